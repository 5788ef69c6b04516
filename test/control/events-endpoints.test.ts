import t from 'tap'
import { MAX_FOLLOWERS } from '../../lib/observe/event-feed.ts'
import { askClosing, HELD_FUNCTION, serveTree } from '../helpers/gateway-bed.ts'

const TREE = { 'hello.js': 'exports.handler = () => { console.log("said by hello"); return 1 }\n' }

/** The events of a stream, one by one. */
async function* read(response: Response): AsyncGenerator<{ name: string; id: string | null; data: unknown }> {
  let text = ''
  const decoder = new TextDecoder()
  for await (const chunk of response.body!) {
    text += decoder.decode(chunk as Uint8Array, { stream: true })
    for (let end = text.indexOf('\n\n'); end !== -1; end = text.indexOf('\n\n')) {
      const block = text.slice(0, end)
      text = text.slice(end + 2)
      const data = /^data: (.*)$/m.exec(block)?.[1]
      if (data === undefined) continue
      yield {
        name: /^event: (.*)$/m.exec(block)![1]!,
        id: /^id: (.*)$/m.exec(block)?.[1] ?? null,
        data: JSON.parse(data),
      }
    }
  }
}

t.test(
  '[observe/event-feed.1, observe/event-feed.4] what happens is seen over HTTP, and after a cut what was missed',
  async t => {
    const { url, gateway } = await serveTree(t, TREE, { runtimes: ['node'] })
    const leave = new AbortController()
    const response = await fetch(`${url}/_fn/events?events=request,log,reload`, { signal: leave.signal })
    t.equal(response.status, 200)
    t.match(Object.fromEntries(response.headers), {
      'content-type': 'text/event-stream',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    })
    const events = read(response)
    await gateway.inject('/hello')
    await gateway.reload()
    const seen = new Map<string, { id: string | null; data: unknown }>()
    while (seen.size < 3) {
      const event = (await events.next()).value!
      seen.set(event.name, event)
    }
    t.match(seen.get('request'), { data: { path: '/hello', status: 200, fn: 'hello' } })
    t.match(seen.get('log'), { data: { message: 'said by hello\n', stream: 'stdout', fn: 'hello' } })
    t.match(seen.get('reload'), { data: { cause: 'api' } })
    const last = [...seen.values()].at(-1)!.id!
    leave.abort()
    await t.rejects(events.next())
    await gateway.inject('/hello')
    const again = await fetch(`${url}/_fn/events?events=request`, { headers: { 'Last-Event-ID': last } })
    // The first stream's own end may be told too.
    for await (const event of read(again)) {
      if ((event.data as { path: string }).path !== '/hello') continue
      t.match(event, { name: 'request', data: { path: '/hello' } })
      break
    }
  },
)

t.test('[observe/event-feed.1] a wrong list, HEAD, a stranger', async t => {
  const { gateway } = await serveTree(t, TREE, { runtimes: ['node'] })
  for (const events of ['requests', 'request,', '__proto__', 'request;log']) {
    const { status, json } = await gateway.inject({ url: '/_fn/events', query: { events } })
    t.match(
      [status, json()],
      [400, { error: /^query field events must be a list of request, reload, .*got "/ }],
      events,
    )
  }
  const head = await gateway.inject({ method: 'HEAD', url: '/_fn/events' })
  t.match([head.status, head.headers['content-type'], head.body.length], [200, 'text/event-stream', 0])
  const stranger = await gateway.inject({ url: '/_fn/events', remoteAddress: '203.0.113.9' })
  t.equal(stranger.status, 403)
})

t.test(
  '[observe/event-feed.7] with one follower too many the oldest stream ends; the gateway stops at once whoever follows',
  async t => {
    const { url, gateway } = await serveTree(t, TREE, { runtimes: ['node'] })
    const open = () => fetch(`${url}/_fn/events`)
    const responses = await Promise.all(Array.from({ length: MAX_FOLLOWERS }, open))
    t.same(
      responses.filter(({ status }) => status !== 200),
      [],
    )
    responses.push(await open())
    t.equal(responses.at(-1)!.status, 200)
    t.equal(responses[0]!.headers.get('cross-origin-resource-policy'), 'same-origin')
    await gateway.close({ timeoutMs: 60_000 })
    // Streams that ended in good order can be read to their end.
    for (const response of responses) t.match(await response.text(), /^retry: 2000\nid: /)
  },
)

t.test('[observe/event-feed.7] a gateway that stops says so to who would follow', async t => {
  const bed = await serveTree(t, { 'held.mjs': HELD_FUNCTION }, { runtimes: ['node'] })
  const { status, headers, body } = await askClosing(bed, '/_fn/events')
  t.match([status, JSON.parse(body)], [503, { error: 'gateway is shutting down' }])
  t.equal(headers['retry-after'], '1')
})

t.test('[observe/event-feed.5] a client that reads nothing is cut off, and the gateway serves on', async t => {
  const { open, gateway, until } = await serveTree(
    t,
    { 'loud.js': 'exports.handler = () => { console.log("x".repeat(30000)); return 1 }\n' },
    { runtimes: ['node'] },
  )
  const lazy = await open()
  lazy.write('GET /_fn/events?events=request HTTP/1.1\r\nHost: localhost\r\n\r\n')
  await lazy.until(() => lazy.text.includes('retry:'))
  lazy.socket.pause()
  const dropped: string[] = []
  gateway.on('request', ({ path, error }) => path === '/_fn/events' && dropped.push(String(error)))
  // Only errors are long here: each is a request of its own, until the kernel's buffers and ours are full.
  const userAgent = 'u'.repeat(12_000)
  for (let i = 0; dropped.length === 0 && i < 5000; i++)
    await gateway.inject({ url: `/${'p'.repeat(4000)}`, headers: { 'User-Agent': userAgent } })
  await until(() => dropped.length > 0, 'the slow follower is dropped')
  t.same(dropped, ['events were not read fast enough'])
  t.equal((await gateway.inject('/loud')).status, 200)
  lazy.socket.destroy()
})
