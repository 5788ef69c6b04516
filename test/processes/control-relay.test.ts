import { request } from 'node:http'
import t, { type Test } from 'tap'
import { toPasswordHash } from '../../lib/config/texts.ts'
import { HttpServer } from '../../lib/http/server.ts'
import { ControlRelay } from '../../lib/processes/control-relay.ts'
import { KIND } from '../../lib/runtime/wire-protocol.ts'
import { FakeLine } from '../helpers/fake-line.ts'
import { waitUntil } from '../helpers/gateway-bed.ts'
import type { Answer, Connection } from '../helpers/processes-bed.ts'
import { serveTwice } from '../helpers/processes-bed.ts'
import { makePublic } from '../helpers/public.ts'
import { RawConnection } from '../helpers/raw-http.ts'

const FILES = {
  'hello.js': 'export const handler = event => ({ hello: event.query.name ?? "world" })\n',
  'post.echo.js': 'export const handler = event => ({ bytes: (event.body ?? "").length })\n',
}

/** What may differ between two answers to the same request. */
const OWN = /"(?:latency_ms|worker_ms|total_ms|queue_ms|request_id|trace_id)":[^,}]+/g

function toFacts({ status, headers, text }: Answer): object {
  const { 'x-request-id': id, date, 'content-length': length, 'set-cookie': cookie, etag, ...rest } = headers
  return { status, rest, text: text.replace(OWN, '') }
}

t.test('[processes/processes.5] the control plane answers the same at every process', async t => {
  const { first, front } = await serveTwice(t, FILES, { uiEnabled: true, adminToken: 'a-token-of-the-test' })
  const foreign = { 'X-Forwarded-For': '203.0.113.9' }
  const requests: [string, NonNullable<Parameters<Connection['ask']>[1]>?][] = [
    ['/_fn/health'],
    ['/_fn/health?ready=1'],
    ['/_fn/health', { method: 'HEAD' }],
    ['/_fn/catalog'],
    ['/_fn/nope'],
    ['/_fn/health', { method: 'DELETE' }],
    ['/%5ffn/health'],
    ['/console'],
    ['/_fn/settings'],
    ['/_fn/catalog', { headers: foreign }],
    ['/_fn/reload', { method: 'POST', headers: { Origin: 'http://evil.example' } }],
    ['/_fn/invoke', { method: 'POST', body: '{"name":"hello","query":{"name":"x"}}' }],
    ['/_fn/invoke', { method: 'POST', body: '{ no json' }],
    [
      '/_fn/invoke',
      { method: 'POST', body: JSON.stringify({ name: 'post.echo', method: 'POST', body: 'x'.repeat(300_000) }) },
    ],
    ['/_fn/invoke', { method: 'POST', body: Buffer.alloc(3 * 1024 * 1024, 32), headers: { Expect: '100-continue' } }],
    ['/_fn/logs?file=error'],
    ['/_fn/metrics?format=json'],
  ]
  for (const [path, options] of requests) {
    const [here, there] = [await first.ask(path, options), await front.ask(path, options)]
    const { status } = here
    t.equal(there.status, status, `${options?.method ?? 'GET'} ${path}: ${status}`)
    if (!/health|metrics|settings/.test(path)) t.same(toFacts(there), toFacts(here), path)
    t.equal(there.headers['content-type'], here.headers['content-type'])
  }
})

t.test(
  '[processes/processes.5] who has logged in at one process is known at every other, and a client keeps its request id',
  async t => {
    const { first, front } = await serveTwice(t, FILES, {
      uiEnabled: true,
      consoleLoginApi: true,
      consoleLoginUsername: 'me',
      consoleLoginPasswordHash: toPasswordHash('correct horse'),
    })
    t.equal((await front.ask('/_fn/catalog')).status, 401)
    const body = JSON.stringify({ username: 'me', password: 'correct horse' })
    const login = await front.ask('/_fn/login', {
      method: 'POST',
      body,
      headers: { 'Content-Type': 'application/json' },
    })
    t.equal(login.status, 200, login.text)
    const cookie = String(login.headers['set-cookie']?.[0]).split(';')[0]!
    for (const connection of [first, front]) {
      const { status, headers } = await connection.ask('/_fn/catalog', {
        headers: { Cookie: cookie, 'X-Request-Id': 'mine' },
      })
      t.same([status, headers['x-request-id']], [200, 'mine'])
    }
    const wrong = JSON.stringify({ username: 'me', password: 'wrong' })
    const statuses: number[] = []
    for (let at = 0; at < 7; at++)
      statuses.push((await [first, front][at % 2]!.ask('/_fn/login', { method: 'POST', body: wrong })).status)
    t.same(statuses, [401, 401, 401, 401, 401, 429, 429], 'failed logins are counted together')
  },
)

t.test(
  '[processes/processes.5] an answer that goes on comes through a front as it is made, and ends when the client leaves',
  async t => {
    const { gateway, front } = await serveTwice(t, FILES)
    const answer = await front.open('/_fn/events')
    t.match(answer.headers['content-type'], /text\/event-stream/)
    answer.setEncoding('utf8')
    const seen = (async () => {
      let text = ''
      for await (const chunk of answer) {
        text += chunk
        if (text.includes('event: reload')) return true
      }
      return false
    })()
    await gateway.reload()
    t.equal(await seen, true)
    answer.destroy()
  },
)

t.test('[processes/processes.5] a request that leaves before its body is whole leaves nothing behind', async t => {
  const { url, front } = await serveTwice(t, FILES)
  const broken = request(new URL('/_fn/invoke', url), { method: 'POST', headers: { 'Content-Length': 1000 } })
  broken.on('error', () => {})
  broken.write('{"name":')
  await new Promise(resolve => broken.once('socket', socket => socket.once('connect', resolve)))
  broken.destroy()
  t.equal((await front.ask('/_fn/health')).status, 200)
})

/** A front whose first process is the test. */
async function serveRelay(t: Test) {
  const line = new FakeLine()
  const relay = new ControlRelay(line)
  const made = makePublic({}, { control: exchange => relay.handle(exchange) })
  const server = new HttpServer({
    handle: made.handle,
    clock: made.clock,
    requestIds: made.requestIds,
    lifecycle: made.lifecycle,
  })
  const { port } = await server.listen(0, '127.0.0.1')
  t.teardown(() => server.close(0))
  const frame = (kind: keyof typeof KIND, header = '', body: string | Buffer = '', to = line.lastId) =>
    relay.handleFrame(KIND[kind], to, header, Buffer.from(body))
  /** A client that has sent this, when it came over the line. */
  const ask = async (text: string) => {
    const client = await RawConnection.open(port)
    t.teardown(() => client.socket.destroy())
    const count = line.lastId
    client.write(text)
    await waitUntil(() => line.lastId > count, 'it is asked')
    return client
  }
  const sent = (word: string) => waitUntil(() => line.sent.some(({ kind }) => kind === word), word)
  return { line, frame, ask, sent, finished: made.finished }
}

const GET = 'GET /_fn/x?y HTTP/1.1\r\nHost: h\r\nX-Request-Id: mine\r\nA: b\r\n\r\n'
const OK = '{"status":200,"headers":["Content-Type","text/plain","Content-Length","2","Date","today","Connection","x"]}'

t.test(
  '[processes/processes.5] a request is asked with its one id, and its answer written as the front writes its own',
  async t => {
    const { line, frame, ask } = await serveRelay(t)
    const client = await ask(GET)
    const { header } = line.sent[0]!
    t.same(JSON.parse(header), {
      method: 'GET',
      url: '/_fn/x?y',
      headers: ['Host', 'h', 'A', 'b', 'X-Request-Id', 'mine'],
      address: '127.0.0.1',
      hasBody: false,
    })
    frame('pong')
    frame('reply', OK, 'ok')
    const [answer] = await client.answers(1)
    t.match(answer, {
      status: 200,
      headers: {
        'content-type': 'text/plain',
        'content-length': '2',
        'x-request-id': 'mine',
        connection: 'keep-alive',
      },
      body: 'ok',
    })
    t.not(answer!.headers.date, 'today')
    t.equal(frame('reply', OK, 'ok'), false, 'it is over')
    client.write(GET.replace('GET', 'HEAD'))
    await waitUntil(() => line.sent.length === 2, 'the next one is asked')
    frame('reply', OK.replace('"2"', '"77"'))
    await client.until(() => client.text.includes('HTTP/1.1 200', 1) && client.text.endsWith('\r\n\r\n'))
    t.match(
      client.text.slice(client.text.lastIndexOf('HTTP/1.1')),
      /Content-Length: 77\r\n/i,
      'HEAD says what GET would have',
    )
  },
)

t.test(
  '[processes/processes.9] an answer that is cut breaks the connection, one that cannot be had is 500',
  async t => {
    const { frame, ask } = await serveRelay(t)
    const refused = await ask(GET)
    frame('error', '{"error":"cut"}')
    t.match(await refused.answers(1), [{ status: 500, body: '{"error":"answer was cut off"}' }])
    const whole = await ask(GET)
    frame('loaded', '{"status":200,"headers":[]}')
    frame('chunk', '', 'all of it')
    frame('end')
    await whole.until(() => whole.text.endsWith('all of it\r\n0\r\n\r\n'))
    t.notOk(whole.isClosed)
    const cut = await ask(GET)
    frame('loaded', '{"status":200,"headers":[]}')
    frame('chunk', '', 'half')
    await cut.until(() => cut.text.includes('half'))
    frame('end', '{"error":"cut"}')
    await cut.closed()
    t.notMatch(cut.text, /\r\n0\r\n\r\n$/, 'no end that would look like a good one')
  },
)

t.test('[processes/processes.9] the first process may send on when the client has taken what there is', async t => {
  const { line, frame, ask } = await serveRelay(t)
  const client = await ask(GET)
  client.socket.pause()
  line.take()
  frame('loaded', '{"status":200,"headers":[]}')
  const piece = Buffer.alloc(256 * 1024, 'x')
  let pieces = 0
  do {
    frame('chunk', '', piece)
    pieces += 1
  } while (line.sent.splice(0).length > 0 && pieces < 1000)
  t.ok(pieces < 1000, 'a client that reads nothing is waited for')
  client.socket.resume()
  await waitUntil(() => line.sent.length > 0, 'it may go on')
  t.match(line.sent, [{ kind: 'more', header: `{"bytes":${piece.length}}` }])
  frame('end')
  await client.until(() => client.text.endsWith('\r\n0\r\n\r\n'))
  t.equal(client.text.split('x'.repeat(1000)).length - 1 >= pieces * 262, true, 'all of it came')
})

t.test('[processes/processes.5] a client that leaves ends what was asked for it', async t => {
  const { line, frame, ask, sent, finished } = await serveRelay(t)
  for (const begin of [() => {}, () => frame('loaded', '{"status":200,"headers":[]}') && frame('chunk', '', 'first')]) {
    const client = await ask(GET)
    begin()
    client.socket.destroy()
    await sent('cancel')
    t.equal(frame('chunk', '', 'late'), false)
    t.equal(frame('end'), false)
    line.take()
  }
  await waitUntil(() => finished.length === 2, 'both are over')
})

t.test('[processes/processes.5] a body that breaks off is not waited for, whether it was asked for or not', async t => {
  const { line, frame, ask, sent, finished } = await serveRelay(t)
  for (const [leave, isAsked] of [
    ['destroy', true],
    ['end', true],
    ['end', false],
  ] as const) {
    const client = await ask('POST /_fn/x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf')
    if (isAsked) {
      frame('more')
      await sent('chunk')
      frame('more')
    }
    client.socket[leave]()
    await sent('cancel')
    t.notOk(
      line.sent.some(({ kind }) => kind === 'end'),
      'half a body has no end',
    )
    t.equal(frame('reply', OK, 'ok'), false)
    if (leave === 'end') t.match(await client.answers(1), [{ status: 400, headers: { connection: 'close' } }])
    line.take()
  }
  await waitUntil(() => finished.length === 3, 'all are over')
})

t.test('[processes/processes.5] a body is sent as it is asked for, after the client was told to go on', async t => {
  const { line, frame, ask, sent } = await serveRelay(t)
  const client = await ask('POST /_fn/x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n')
  t.equal(client.text, '')
  t.match(JSON.parse(line.sent.splice(0)[0]!.header), { hasBody: true })
  frame('more')
  await client.until(() => client.text.length > 0)
  t.match(client.text, /^HTTP\/1.1 100 Continue\r\n/)
  client.write('ab')
  await sent('chunk')
  t.match(line.sent.splice(0), [{ kind: 'chunk', body: 'ab' }])
  client.write('cd')
  frame('more')
  await sent('chunk')
  frame('more')
  await sent('end')
  t.match(line.sent.splice(0), [{ kind: 'chunk', body: 'cd' }, { kind: 'end' }])
  frame('reply', OK, 'ok')
  await client.until(() => client.text.endsWith('ok'))
  // An answer before the body was taken: the rest is not sent to anybody.
  const early = await ask('POST /_fn/x HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\nhalf')
  frame('more')
  await sent('chunk')
  frame('reply', OK.replace('200', '413'), 'no')
  await early.until(() => early.text.endsWith('no'))
  line.take()
  early.write('x'.repeat(2_999_996))
  early.write(GET)
  await early.until(() => line.sent.length > 0)
  t.same(
    line.sent.map(({ kind }) => kind),
    early.isClosed ? [] : ['start'],
    'the next request, or none',
  )
})
