import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { InvokeStream } from '../../lib/control/invoke-endpoints.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import type { Exchange } from '../../lib/http/exchange.ts'
import type { BodySink, InternalResult } from '../../lib/invocation/internal-call.ts'
import { serveTree } from '../helpers/gateway-bed.ts'

const STREAM = 'application/x-ndjson'

/** Gives `a`, waits until the file named in the query is there, gives `b`. */
const SLOW = `const { existsSync } = require('node:fs')
exports.handler = event => ({
  status: 201,
  headers: { 'X-A': 'a' },
  body: (async function* () {
    console.log('begun')
    yield 'a'
    while (!existsSync(event.query.file)) await new Promise(resolve => setTimeout(resolve, 5))
    if (event.query.fail !== undefined) throw new Error('no more')
    yield 'b'
  })(),
})
`

const TREE = {
  'fn.config.json': '{ "timeout_ms": 60000 }',
  'slow.js': SLOW,
  'large.js': 'exports.handler = () => ({ status: 200, body: Buffer.alloc(200_000, 255) })\n',
  'throws.js': 'exports.handler = () => { throw new TypeError("broken here") }\n',
  'endless.js':
    'exports.handler = () => ({ status: 200, body: (async function* () { for (;;) yield Buffer.alloc(65536) })() })\n',
}

interface Line {
  head?: { status: number; headers: Record<string, string>; route: string }
  chunk?: string
  end?: { stdout: string; error: string | null; request_id: string; timing: Record<string, number> }
}

async function setup(t: Test) {
  const bed = await serveTree(t, TREE, { runtimes: ['node'] })
  /** Asks over a socket; `lines` gives them as they come. */
  const ask = async (body: object, accept = STREAM) => {
    const stop = new AbortController()
    const answer = await fetch(`${bed.url}/_fn/invoke`, {
      method: 'POST',
      headers: { accept, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: stop.signal,
    })
    return { answer, stop, lines: answer.body === null ? nothing() : toLines(answer.body) }
  }
  return { ...bed, ask }
}

async function* nothing(): AsyncGenerator<Line> {}

async function* toLines(body: ReadableStream<Uint8Array>): AsyncGenerator<Line> {
  const decoder = new TextDecoder()
  let text = ''
  for await (const bytes of body) {
    text += decoder.decode(bytes, { stream: true })
    for (let end = text.indexOf('\n'); end !== -1; end = text.indexOf('\n')) {
      yield JSON.parse(text.slice(0, end)) as Line
      text = text.slice(end + 1)
    }
  }
}

const textOf = (line: Line): string => Buffer.from(line.chunk!, 'base64').toString()

t.test('[control/invoke.10] an answer comes piece by piece while the function makes it', async t => {
  const { ask, tree } = await setup(t)
  const file = join(tree.root, '_go')
  const { answer, lines } = await ask({ name: 'slow', method: 'GET', query: { file } })
  t.equal(answer.headers.get('content-type'), STREAM)
  t.equal(answer.headers.get('cache-control'), 'no-store')
  const { head } = (await lines.next()).value as Line
  t.match(head, { status: 201, headers: { 'x-a': 'a' }, route: '/slow' })
  t.equal(textOf((await lines.next()).value as Line), 'a', 'before the rest is made')
  writeFileSync(file, '')
  t.equal(textOf((await lines.next()).value as Line), 'b')
  const { end } = (await lines.next()).value as Line
  t.match(end, { stdout: 'begun\n', stderr: '', error: null, trace_id: /^[0-9a-f]{32}$/ })
  t.equal(end!.request_id, answer.headers.get('x-request-id'))
  const { queue_ms, worker_ms, total_ms } = end!.timing
  t.ok(Math.abs(queue_ms! + worker_ms! - total_ms!) < 0.0015 && worker_ms! > 0, JSON.stringify(end!.timing))
  t.ok((await lines.next()).done)
})

t.test('[control/invoke.10] a body that breaks off says why in its last line', async t => {
  const { ask, tree } = await setup(t)
  const file = join(tree.root, '_go')
  const { lines } = await ask({ name: 'slow', method: 'GET', query: { file, fail: '1' } })
  t.ok(((await lines.next()).value as Line).head)
  t.equal(textOf((await lines.next()).value as Line), 'a')
  writeFileSync(file, '')
  t.match(((await lines.next()).value as Line).end, { error: /no more/ })
  t.ok((await lines.next()).done)
})

t.test('[control/invoke.10] a large answer is several lines, and what is refused is no stream', async t => {
  const { ask } = await setup(t)
  const { lines } = await ask({ name: 'large', method: 'GET' }, `text/html, ${STREAM};q=0.9`)
  const sizes: number[] = []
  for await (const { chunk } of lines) if (chunk !== undefined) sizes.push(Buffer.from(chunk, 'base64').length)
  t.equal(
    sizes.reduce((a, b) => a + b, 0),
    200_000,
  )
  t.ok(sizes.length >= 4 && Math.max(...sizes) <= 48 * 1024, JSON.stringify(sizes))
  for (const [name, method, status, error] of [
    ['none', 'GET', 404, /unknown function/],
    ['large', 'POST', 405, /method not allowed/],
    ['throws', 'GET', 500, /broken here/],
  ] as const) {
    const { answer } = await ask({ name, method })
    t.equal(answer.status, status)
    t.match(await answer.json(), { error })
  }
  const plain = await ask({ name: 'large', method: 'GET' }, 'application/json')
  t.match(await plain.answer.json(), { status: 200, is_base64: true, timing: { total_ms: Number } })
  const head = await ask({ name: 'large', method: 'HEAD' })
  const kinds: string[] = []
  for await (const line of head.lines) kinds.push(...Object.keys(line))
  t.same(kinds, ['head', 'end'], 'HEAD has no body')
})

t.test('[control/invoke.6] a reader who leaves ends the call', async t => {
  const { ask, until, stateOf } = await setup(t)
  const { stop, lines } = await ask({ name: 'endless', method: 'GET' })
  await lines.next()
  t.equal(stateOf('node/endless@default').worker_pool.active, 1)
  stop.abort()
  await lines.next().catch(() => {})
  await until(() => stateOf('node/endless@default').worker_pool.active === 0, 'the slot is free')
})

/** A client that takes what is written while it is not slow. */
function fakeClient() {
  const written: Line[] = []
  const client = { isSlow: true, drain: (): void => {}, isClosed: false, refused: null as GatewayError | null }
  const exchange = {
    ended: false,
    work: null,
    responder: {
      openStream: () => {},
      writeStream: (_: unknown, chunk: Buffer) => {
        if (exchange.ended) return true
        written.push(JSON.parse(chunk.toString()) as Line)
        return !client.isSlow
      },
      onDrain: (_: unknown, callback: () => void) => {
        client.drain = callback
      },
      closeStream: () => {
        client.isClosed = true
      },
      sendError: (_: unknown, error: GatewayError) => {
        client.refused = error
      },
    },
  } as unknown as Exchange
  const leave = (): void => {
    exchange.ended = true
    exchange.work?.abandon()
  }
  return { written, client, leave, stream: new InvokeStream(exchange, { path: '/x', pattern: null }) }
}

const RESULT: InternalResult = {
  ...{ id: 'call-1', status: 200, headers: [], body: Buffer.alloc(0), stdout: '', stderr: '' },
  ...{ trace: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', latencyMs: 2, queuedMs: 1, error: null },
}

t.test('[control/invoke.10] a slow client holds the function back, one that leaves does not', async t => {
  for (const leaves of [false, true]) {
    const { written, client, leave, stream } = fakeClient()
    const steps: string[] = []
    let taken = Promise.resolve()
    const call = async (sink: BodySink): Promise<InternalResult> => {
      sink.begin(200, [])
      taken = sink.write(Buffer.from('piece')).then(() => void steps.push('taken'))
      await taken
      return RESULT
    }
    const run = stream.run(call)
    await new Promise(resolve => setImmediate(resolve))
    t.same(steps, [], 'the piece is not taken yet')
    client.isSlow = false
    if (leaves) leave()
    else client.drain()
    await run
    t.same(steps, ['taken'])
    t.equal(written.length, leaves ? 2 : 3)
    t.ok(client.isClosed)
  }
})

t.test('[control/invoke.10] a call that ends without an answer is an error', async t => {
  const { client, stream } = fakeClient()
  await stream.run(async () => RESULT)
  t.match(client.refused, { code: 'INTERNAL' })
  await stream.run(async () => ({ ...RESULT, error: new GatewayError('TIMEOUT', 'runtime timeout') }))
  t.match(client.refused, { code: 'TIMEOUT' })
})
