import { createServer as createHttpServer } from 'node:http'
import { createServer } from 'node:net'
import t from 'tap'
import { BytePool } from '../../lib/core/byte-pool.ts'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { Descriptors } from '../../lib/core/host.ts'
import { HttpServer, ListenError, type ServerOptions } from '../../lib/http/server.ts'
import type { RuntimeCall } from '../../lib/runtime/call.ts'
import { FakeClock } from '../helpers/clock.ts'
import { headerOfCall } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'
import { parseAnswers, RawConnection } from '../helpers/raw-http.ts'
import { REFUSED } from '../helpers/refused-requests.ts'
import { until } from '../helpers/worker-client.ts'
import { FIRST_OPEN_EXCHANGES, MAX_OPEN_EXCHANGES } from '../../lib/http/exchange.ts'
import { createRandom } from '../helpers/random.ts'

type Teardown = { teardown: (fn: () => Promise<void>) => void }

const ANY = makeFn({ policy: { methods: ['GET', 'POST'], maxBodyBytes: 1000 } })

async function serve(t: Teardown, options: Partial<ServerOptions> = {}, fn: FunctionVersion = ANY) {
  const made = makePublic({ '/a': fn, '/p/:x': fn })
  const server = new HttpServer({
    handle: made.handle,
    clock: made.clock,
    requestIds: made.requestIds,
    lifecycle: made.lifecycle,
    ...options,
  })
  const { port, url } = await server.listen(0, '127.0.0.1')
  t.teardown(() => server.close(0))
  return { ...made, server, port, url, open: () => RawConnection.open(port) }
}

const GET = 'GET /a HTTP/1.1\r\nHost: h\r\n\r\n'
const POST = 'POST /a HTTP/1.1\r\nHost: h\r\n'

t.test(
  '[http/public.7, http/public.8, http/public.9, http/public.10] what cannot be a request is refused, and the connection closes',
  async t => {
    const { open, runtime, finished } = await serve(t)
    for (const [name, bytes, status] of REFUSED) {
      const connection = await open()
      connection.write(bytes)
      // What follows would be a good request: it must not be read as one.
      connection.write(GET)
      await connection.closed()
      const answers = parseAnswers(connection.text)
      t.same(
        answers.map(answer => answer.status),
        [status],
        name,
      )
      const fixed = { 'content-type': 'application/json', connection: 'close', 'x-request-id': /^test-/ }
      t.match(answers[0], { headers: fixed, body: /^\{"error":"[^"]+"\}$/ }, name)
    }
    t.equal(runtime.calls.length, 0)
    t.ok(finished.every(exchange => exchange.ended))
  },
)

t.test('[http/public.5, http/public.8, http/public.9, http/public.14] unusual requests that are right', async t => {
  const { open, runtime } = await serve(t)
  for (const [name, bytes, status, path] of [
    ['absolute form', 'GET http://other:8080/a?x=1 HTTP/1.1\r\nHost: h\r\n\r\n', 200, '/a'],
    ['absolute form without a path', 'GET HTTP://other HTTP/1.1\r\nHost: h\r\n\r\n', 404, null],
    ['asterisk', 'OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n', 204, null],
    ['HTTP/1.0 without Host', 'GET /a HTTP/1.0\r\n\r\n', 200, '/a'],
    ['IPv6 host', 'GET /a HTTP/1.1\r\nHost: [::1]:80\r\n\r\n', 200, '/a'],
    ['WebSocket', 'GET /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n', 501, null],
    ['upgrade', 'GET /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n', 200, '/a'],
    ['no upgrade', 'GET /a HTTP/1.1\r\nHost: h\r\nConnection: x\r\nUpgrade: websocket\r\n\r\n', 200, '/a'],
    ['h2c', 'GET /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n', 200, '/a'],
    ['TRACE', 'TRACE /a HTTP/1.1\r\nHost: h\r\n\r\n', 405, null],
    ['OPTIONS', 'OPTIONS /a HTTP/1.1\r\nHost: h\r\n\r\n', 405, null],
    ['PROPFIND', 'PROPFIND /a HTTP/1.1\r\nHost: h\r\n\r\n', 405, null],
    ['blank lines first', `\r\n\r\n${GET}`, 200, '/a'],
    ['backslash', 'GET /a\\b HTTP/1.1\r\nHost: h\r\n\r\n', 404, null],
    ['10,000 segments would not fit, 4,000 do', `GET ${'/x'.repeat(4000)} HTTP/1.1\r\nHost: h\r\n\r\n`, 404, null],
  ] as const) {
    const connection = await open()
    const before = runtime.calls.length
    connection.write(bytes)
    const [answer] = await connection.answers(1)
    t.equal(answer?.status, status, name)
    if (status === 405) t.equal(answer?.headers.allow, 'GET, HEAD, POST', name)
    t.equal(runtime.calls.length - before, path === null ? 0 : 1, name)
    if (path !== null) t.equal(headerOfCall(runtime.calls.at(-1)!).path, path)
    connection.socket.destroy()
  }
})

t.test('[http/public.14] a request that asks for an upgrade is the last of its connection', async t => {
  const { open, runtime } = await serve(t)
  const asks = (method: string, connection: string, rest: string) =>
    `${method} /p/asked HTTP/1.1\r\nHost: h\r\nConnection: ${connection}\r\nUpgrade: x\r\n${rest}`
  const hidden = 'GET /p/hidden HTTP/1.1\r\nHost: h\r\n\r\n'
  const head = `POST /p/dropped HTTP/1.1\r\nHost: h\r\nContent-Length: ${hidden.length}\r\n\r\n`
  for (const [name, packets] of [
    ['a body in the next packet', [asks('GET', 'Upgrade', '\r\n') + head, hidden]],
    ['a request in the same packet', [asks('GET', 'keep-alive, UPGRADE', '\r\n') + hidden]],
    ['a request in the next packet', [asks('GET', 'upgrade', '\r\n'), hidden]],
    ['behind a body', [asks('POST', 'Upgrade', 'Content-Length: 3\r\n\r\nabc') + head, hidden]],
    ['in two headers', [asks('GET', 'x', 'Connection: upgrade\r\n\r\n') + head, hidden]],
  ] as const) {
    runtime.calls.length = 0
    const held: (() => void)[] = []
    runtime.answer = (call, own) => held.push(() => own.reply(call, 200, {}, 'asked'))
    const connection = await open()
    for (const [index, packet] of packets.entries()) {
      connection.write(packet)
      if (index === 0) await until(() => runtime.calls.length === 1)
    }
    // What was sent has been read when a later request on another connection was.
    const probe = await open()
    probe.write(GET)
    await until(() => runtime.calls.length > 1)
    for (const reply of held) reply()
    await connection.closed()
    const answers = parseAnswers(connection.text)
    t.same(
      answers.map(({ status, headers }) => [status, headers.connection]),
      [[200, 'close']],
      name,
    )
    t.same(
      runtime.calls.map(call => headerOfCall(call).path),
      ['/p/asked', '/a'],
      name,
    )
    probe.socket.destroy()
  }
})

t.test('[http/public.11] late headers are there', async t => {
  const { open, runtime } = await serve(t)
  const connection = await open()
  const many = Array.from({ length: 1900 }, (_, i) => `a${i}:\r\n`).join('')
  connection.write(`GET /a HTTP/1.1\r\nHost: h\r\n${many}X-Last: here\r\n\r\n`)
  t.equal((await connection.answers(1))[0]?.status, 200)
  const headers = headerOfCall(runtime.calls[0]!).headers as Record<string, string>
  t.equal(headers['x-last'], 'here')
  t.equal(Object.keys(headers).length, 1902)
  connection.write(`GET /a HTTP/1.1\r\nHost: h\r\n${many}Host: second\r\n\r\n`)
  t.equal((await connection.answers(2))[1]?.status, 400, 'a second Host, late')
})

t.test('[http/public.12] pipelined answers come in order', async t => {
  const { open, runtime } = await serve(t)
  runtime.answer = () => {}
  const connection = await open()
  for (let i = 0; i < 5; i++) connection.write(`GET /p/${i} HTTP/1.1\r\nHost: h\r\n\r\n`)
  while (runtime.calls.length < 5) await new Promise(setImmediate)
  for (const call of [...runtime.calls].reverse()) runtime.reply(call, 200, {}, String(headerOfCall(call).path))
  t.same(
    (await connection.answers(5)).map(answer => answer.body),
    ['/p/0', '/p/1', '/p/2', '/p/3', '/p/4'],
  )
})

t.test('[http/public.31] the body behind a large response is read to its end once that response was read', async t => {
  const { open, runtime } = await serve(t)
  const large = Buffer.alloc(6 * 1024 * 1024)
  runtime.answer = call => runtime.reply(call, 200, {}, headerOfCall(call).method === 'GET' ? large : 'second')
  const connection = await open()
  connection.socket.pause()
  connection.write(GET)
  await until(() => runtime.calls.length === 1)
  connection.write(`${POST}Content-Length: 8\r\n\r\nhalf`)
  // What the gateway takes of it, it has taken by the time that another was answered.
  const other = await open()
  other.write(`${POST}Content-Length: 1\r\n\r\n1`)
  await other.answers(1)
  t.equal(runtime.calls.length, 2, 'the POST waits until the response before it is read')
  connection.socket.resume()
  await connection.until(() => connection.text.length > large.length)
  connection.write('half')
  await connection.until(() => connection.text.endsWith('second'))
  t.equal(runtime.calls.length, 3)
})

t.test('[http/public.31] a client that sends without end has few requests open, and each is answered', async t => {
  const { open, runtime } = await serve(t, {}, makeFn({ policy: { maxConcurrency: 0 } }))
  const held: RuntimeCall[] = []
  runtime.answer = call => held.push(call)
  const total = 20_000
  const flood = await open()
  flood.write(Array.from({ length: total }, (_, i) => `GET /p/${i} HTTP/1.1\r\nHost: h\r\n\r\n`).join(''))
  let answered = 0
  let most = 0
  while (answered < total) {
    await until(() => held.length > 0)
    // Whatever the gateway takes without an answer, it has taken by the time that others were answered.
    const other = await open()
    other.write(GET)
    await until(() => held.some(call => headerOfCall(call).path === '/a'))
    for (const call of held) if (headerOfCall(call).path === '/a') runtime.reply(call, 200)
    await other.answers(1)
    other.socket.destroy()
    const calls = held.splice(0).filter(call => headerOfCall(call).path !== '/a')
    most = Math.max(most, calls.length)
    for (const call of calls) runtime.reply(call, 200, {}, String(headerOfCall(call).path))
    answered += calls.length
  }
  t.ok(most <= MAX_OPEN_EXCHANGES, `${most} open at once, also when one packet brings thousands`)
  await flood.until(() => flood.text.endsWith(`/p/${total - 1}`))
  t.same(
    [...flood.text.matchAll(/\/p\/(\d+)/g)].map(match => Number(match[1])),
    Array.from({ length: total }, (_, i) => i),
  )
})

t.test('[http/public.36] a client that does not read its response is disconnected, and the log says so', async t => {
  const problems: string[] = []
  const made = makePublic(
    { '/a': makeFn() },
    { responseIdleTimeoutMs: 100, onProblem: message => problems.push(message) },
  )
  const server = new HttpServer(made)
  const { port } = await server.listen(0, '127.0.0.1')
  t.teardown(() => server.close(0))
  for (const kind of ['whole', 'stream'] as const) {
    const body = Buffer.alloc(8 * 1024 * 1024, 'x')
    const { runtime } = made
    runtime.answer = call => {
      if (kind === 'whole') {
        runtime.reply(call, 200, {}, body)
        return
      }
      runtime.stream(call, {})
      call.onChunk(body)
    }
    const client = await RawConnection.open(port)
    client.socket.pause()
    client.write(GET)
    await until(() => server.connections === 1)
    await until(() => server.connections === 0)
    t.match(problems.splice(0), [
      /^GET \/a: the client read nothing of the response for 100 ms and was disconnected \(FN_/,
    ])
    client.socket.destroy()
  }
})

t.test('[http/public.39] a client that sends requests and reads no response has few of them begun', async t => {
  const { open, runtime, responder, server } = await serve(t, {}, makeFn({ policy: { maxConcurrency: 0 } }))
  const body = Buffer.alloc(1_000_000, 'x')
  runtime.answer = call => runtime.reply(call, 200, {}, body)
  const client = await open()
  client.socket.pause()
  const count = 60
  client.write(GET.repeat(count))
  await until(() => runtime.calls.length > 0 && responder.pool.unread.used > 0)
  // The system takes some of it, what then waits is at most one response and what is below the limit.
  const other = await open()
  other.write(GET)
  await other.answers(1)
  other.socket.destroy()
  t.ok(responder.pool.unread.used <= FIRST_OPEN_EXCHANGES * body.length, `${responder.pool.unread.used} bytes held`)
  t.ok(runtime.calls.length < count / 2, `${runtime.calls.length} begun`)
  let bytes = 0
  client.socket.removeAllListeners('data').on('data', piece => {
    bytes += piece.length
  })
  client.socket.resume()
  await until(() => bytes > count * body.length)
  t.equal(runtime.calls.length, count + 1, 'all of them once it reads')
  client.socket.destroy()
  await until(() => server.connections === 0)
  t.equal(responder.pool.unread.used, 0)
})

t.test(
  '[http/public.38] unread responses and request bodies have a limit, small ones and other clients do not feel it',
  async t => {
    const pool = new BytePool(systemClock, undefined, 300_000)
    const made = makePublic({ '/a': makeFn({ policy: { methods: ['GET', 'POST'], maxConcurrency: 0 } }) }, { pool })
    const server = new HttpServer(made)
    const { port } = await server.listen(0, '127.0.0.1')
    t.teardown(() => server.close(0))
    const { runtime } = made
    let size = 8 * 1024 * 1024
    runtime.answer = call => runtime.reply(call, 200, {}, Buffer.alloc(size, 'x'))
    const slow = await RawConnection.open(port)
    slow.socket.pause()
    slow.write(GET)
    await until(() => pool.unread.isFull())
    const ask = async (text: string) => {
      const client = await RawConnection.open(port)
      client.write(text)
      const [answer] = await client.answers(1)
      client.socket.destroy()
      return answer
    }
    const refused = await ask(GET)
    t.same([refused?.status, refused?.headers['retry-after']], [503, '1'])
    t.match(refused?.body, /unread responses hold all the memory that they may \(FN_BODY_MEMORY_MB\)/)
    size = 10
    t.equal((await ask(GET))?.status, 200, 'a small one')
    slow.socket.destroy()
    await until(() => pool.unread.used === 0)
    size = 8 * 1024 * 1024
    t.equal((await ask(GET))?.status, 200, 'memory is free again')
    size = 10
    const uploads = await Promise.all(
      [1, 2, 3].map(async () => {
        const client = await RawConnection.open(port)
        client.write(`${POST}Content-Length: 400000\r\n\r\n`)
        client.write(Buffer.alloc(200_000, 'x'))
        return client
      }),
    )
    await until(() => pool.received.isFull())
    const late = await ask(`${POST}Content-Length: 100000\r\n\r\n${'x'.repeat(100_000)}`)
    t.same([late?.status, late?.headers['retry-after']], [503, '1'])
    t.match(late?.body, /request bodies hold all the memory that they may \(FN_BODY_MEMORY_MB\)/)
    t.equal((await ask(`${POST}Content-Length: 5\r\n\r\nhello`))?.status, 200, 'a small one')
    for (const upload of uploads) upload.socket.destroy()
    await until(() => pool.received.used === 0)
  },
)

t.test('[http/public.40] at the limit of open files the health still answers, and others get 503', async t => {
  const descriptors = new Descriptors(64 + 10)
  const problems: string[] = []
  const { open, server } = await serve(t, { descriptors, onProblem: message => problems.push(message) })
  descriptors.take()
  const clients = await Promise.all(Array.from({ length: 9 }, open))
  await until(() => server.connections === 9)
  t.throws(() => descriptors.take(), { code: 'OVERLOADED' }, 'files and upstreams have the same limit')
  const ask = async (path: string) => {
    const client = await open()
    client.write(`GET ${path} HTTP/1.1\r\nHost: h\r\n\r\n`.repeat(2))
    await client.closed()
    return parseAnswers(client.text).map(({ status, headers }) => `${status} ${headers.connection}`)
  }
  t.same(await ask('/_fn/health'), ['200 close'])
  t.same(await ask('/_fn/health?x=1'), ['200 close'])
  t.same(await ask('/a'), ['503 close'])
  t.match(problems, [/^refused 1 connections: the open-file limit allows 10 connections and files/])
  clients[0]!.write(GET)
  t.equal((await clients[0]!.answers(1))[0]?.status, 200, 'a connection below the limit serves on')
  clients[0]!.socket.destroy()
  await until(() => server.connections === 8)
  clients[0] = await open()
  clients[0].write(GET)
  t.equal((await clients[0].answers(1))[0]?.headers.connection, 'keep-alive', 'another one is in its place')
  const spare = await Promise.all(Array.from({ length: 8 }, open))
  await until(() => server.connections === 9 + 8)
  t.same(await ask('/_fn/health'), ['200 close'], 'also while others say nothing on every connection beyond the limit')
  await Promise.all(spare.map(client => client.closed()))
  await until(() => server.connections === 9)
  for (const client of [...clients, ...spare]) client.socket.destroy()
})

t.test('[http/public.10] raw characters outside ASCII are refused with what to do', async t => {
  const { open } = await serve(t)
  const connection = await open()
  connection.write('GET /a?name=J\u00f6rg HTTP/1.1\r\nHost: h\r\n\r\n')
  await connection.closed()
  t.match(parseAnswers(connection.text), [
    { status: 400, body: /non-ASCII characters in the URL must be percent-encoded/ },
  ])
})

t.test('[http/public.12] a malformed request never gets in front of an earlier answer', async t => {
  for (const bad of ['nonsense\r\n\r\n', 'GET /a HTTP/1.1\r\n\r\n', `${POST}Content-Length: x\r\n\r\n`]) {
    const { open, runtime } = await serve(t)
    runtime.answer = () => {}
    const connection = await open()
    connection.write('GET /p/1 HTTP/1.1\r\nHost: h\r\n\r\nGET /p/2 HTTP/1.1\r\nHost: h\r\n\r\n')
    while (runtime.calls.length < 2) await new Promise(setImmediate)
    connection.write(bad + GET)
    // Time for the refusal to overtake, if it could.
    await new Promise(resolve => setTimeout(resolve, 20))
    t.equal(connection.text, '')
    runtime.reply(runtime.calls[1]!, 200, {}, 'two')
    runtime.reply(runtime.calls[0]!, 200, {}, 'one')
    await connection.closed()
    const answers = parseAnswers(connection.text)
    t.same(
      answers.slice(0, 2).map(answer => answer.body),
      ['one', 'two'],
      bad,
    )
    t.ok(answers.length <= 3 && (answers[2]?.status ?? 400) === 400, bad)
    t.equal(runtime.calls.length, 2, bad)
  }
})

t.test('[http/public.12] a malformed request behind requests that wait for their turn ends the connection', async t => {
  const { open, runtime } = await serve(t, {}, makeFn({ policy: { maxConcurrency: 0 } }))
  runtime.answer = () => {}
  const connection = await open()
  connection.write(`${'GET /p/1 HTTP/1.1\r\nHost: h\r\n\r\n'.repeat(100)}nonsense\r\n\r\n`)
  await until(() => runtime.calls.length === FIRST_OPEN_EXCHANGES)
  for (const call of runtime.calls) runtime.reply(call, 200, {}, 'ok')
  await connection.closed()
  t.same(
    parseAnswers(connection.text).map(answer => answer.status),
    Array.from({ length: FIRST_OPEN_EXCHANGES }, () => 200),
    'no answer that could be taken for that of one that was not begun',
  )
  t.equal(runtime.calls.length, FIRST_OPEN_EXCHANGES)
})

t.test('[http/public.13] 100 Continue only when the body will be read', async t => {
  const { open, runtime } = await serve(t)
  const expect = (length: number, path = '/a') =>
    `POST ${path} HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: ${length}\r\n\r\n`
  const good = await open()
  good.write(expect(5))
  t.equal((await good.answers(1))[0]?.status, 100)
  good.write('hello')
  t.same(
    (await good.answers(2)).map(answer => answer.status),
    [100, 200],
  )
  t.equal(runtime.calls[0]!.body!.toString(), 'hello')
  for (const [bytes, status] of [
    [expect(1001), 413],
    [expect(5, '/nowhere'), 404],
    [expect(5).replace('POST', 'PUT'), 405],
  ] as const) {
    const refused = await open()
    refused.write(bytes)
    const [answer] = await refused.answers(1)
    t.equal(answer?.status, status)
    t.equal(answer?.headers.connection, 'close')
    refused.socket.end()
    await refused.closed()
  }
})

t.test('[http/public.15] slow and silent connections are closed, others are served', async t => {
  const { open, runtime } = await serve(t, {
    headersTimeoutMs: 100,
    requestTimeoutMs: 200,
    keepAliveTimeoutMs: 100,
    checkIntervalMs: 20,
  })
  const silent = await open()
  const slowHead = await open()
  slowHead.write('GET /a HTTP/1.1\r\nHo')
  const slowBody = await open()
  slowBody.write(`${POST}Content-Length: 10\r\n\r\nhel`)
  const idle = await open()
  idle.write(GET)
  const [answer] = await idle.answers(1)
  t.equal(answer?.status, 200)
  await Promise.all([silent, slowHead, slowBody, idle].map(connection => connection.closed()))
  t.equal(parseAnswers(slowHead.text)[0]?.status, 408)
  t.equal(parseAnswers(slowBody.text)[0]?.status, 408)
  t.equal(parseAnswers(idle.text).length, 1)
  t.equal(runtime.calls.length, 1)
})

t.test('[http/public.15] only a connection that is quiet and waits for nothing is closed', async t => {
  const clock = new FakeClock()
  const { open, runtime } = await serve(t, { clock })
  const quiet = await open()
  quiet.write(GET)
  await quiet.answers(1)
  runtime.answer = () => {}
  const waiting = await open()
  waiting.write(GET)
  await until(() => runtime.open.size === 1)
  clock.advance(60_000)
  runtime.answer = (call, runtime) => runtime.reply(call, 200)
  quiet.write(GET)
  await quiet.answers(2)
  clock.advance(60_000)
  quiet.write(GET)
  t.equal((await quiet.answers(3))[2]?.status, 200, 'each request begins the time anew')
  clock.advance(70_000)
  await quiet.closed()
  for (const call of runtime.open) runtime.reply(call, 201)
  t.equal((await waiting.answers(1))[0]?.status, 201, 'however long its answer takes')
  clock.advance(70_000)
  await waiting.closed()
})

t.test('[http/public.15] a thousand idle connections', async t => {
  const { open, url } = await serve(t)
  const idle = await Promise.all(Array.from({ length: 1000 }, open))
  const answer = await fetch(`${url}/a`)
  t.equal(answer.status, 200)
  t.equal(answer.headers.get('keep-alive'), 'timeout=60', 'less than the connection is kept')
  for (const { socket } of idle) socket.destroy()
})

t.test('[http/public.17, http/public.18] 413 and what becomes of the connection', async t => {
  const { open, runtime } = await serve(t)
  const exact = await open()
  exact.write(`${POST}Content-Length: 1000\r\n\r\n${'x'.repeat(1000)}`)
  t.equal((await exact.answers(1))[0]?.status, 200)
  const short = await open()
  short.write(`${POST}Content-Length: 1001\r\n\r\n`)
  const [refusal] = await short.answers(1)
  t.equal(refusal?.status, 413, 'before the body was sent')
  t.equal(refusal?.headers.connection, 'keep-alive')
  short.write(`${'x'.repeat(1001)}${GET}`)
  t.same(
    (await short.answers(2)).map(answer => answer.status),
    [413, 200],
    'the connection stays right',
  )
  const long = await open()
  long.write(`${POST}Content-Length: 10000000\r\n\r\n${'x'.repeat(500_000)}`)
  const [closing] = await long.answers(1)
  t.equal(closing?.status, 413)
  t.equal(closing?.headers.connection, 'close')
  long.socket.end()
  const chunked = await open()
  chunked.write(`${POST}Transfer-Encoding: chunked\r\n\r\n3e8\r\n${'x'.repeat(1000)}\r\n`)
  chunked.write(`1\r\ny\r\n`)
  const [late] = await chunked.answers(1)
  t.equal(late?.status, 413)
  t.equal(late?.headers.connection, 'close')
  chunked.write(`0\r\n\r\n${GET}`)
  await chunked.closed()
  t.equal(parseAnswers(chunked.text).length, 1)
  t.equal(runtime.calls.length, 2)
  await long.closed()
})

t.test('[http/public.19, invocation/admission.7] a client that hangs up frees everything', async t => {
  const { open, runtime, admission, finished } = await serve(t)
  runtime.answer = () => {}
  const running = await open()
  running.write(GET + GET)
  while (runtime.calls.length < 2) await new Promise(setImmediate)
  running.socket.destroy()
  while (runtime.abandoned.length < 2) await new Promise(setImmediate)
  t.equal(admission.total(), 0)
  const uploading = await open()
  uploading.write(`${POST}Content-Length: 100\r\n\r\nhalf`)
  const begun = finished.length
  await new Promise(setImmediate)
  uploading.socket.resetAndDestroy()
  while (finished.length === begun) await new Promise(setImmediate)
  t.equal(runtime.calls.length, 2)
  t.same(
    finished.map(exchange => exchange.aborted || exchange.error?.message === 'request was cut off'),
    [true, true, true],
  )
})

t.test('[http/public.26] a port that cannot be listened on', async t => {
  const blocker = createServer()
  await new Promise<void>(resolve => blocker.listen(0, '127.0.0.1', resolve))
  t.teardown(() => blocker.close())
  const { port } = blocker.address() as { port: number }
  const made = makePublic({})
  const make = () =>
    new HttpServer({ handle: made.handle, clock: made.clock, requestIds: made.requestIds, lifecycle: made.lifecycle })
  const busy = await make()
    .listen(port, '127.0.0.1')
    .catch(error => error)
  t.ok(busy instanceof ListenError)
  t.equal(busy.code, 'EADDRINUSE')
  t.match(busy.message, `127.0.0.1:${port} is in use`)
  const foreign = await make()
    .listen(0, '192.0.2.1')
    .catch(error => error)
  t.equal(foreign.code, 'EADDRNOTAVAIL')
  t.match(foreign.message, '--host')
  await make().close(100)
})

t.test('[http/public.27] closing answers what was received', async t => {
  const { open, runtime, server, lifecycle, port } = await serve(t)
  runtime.answer = () => {}
  const busy = await open()
  busy.write(GET)
  const kept = await open()
  const silent = await open()
  while (runtime.calls.length < 1) await new Promise(setImmediate)
  const closing = server.close(5000)
  t.equal(lifecycle.draining, true)
  t.equal(server.close(1), closing, 'once')
  await t.rejects(RawConnection.open(port), { code: 'ECONNREFUSED' })
  // A request that was under way on a kept connection.
  kept.write(GET)
  while (runtime.calls.length < 2) await new Promise(setImmediate)
  for (const call of runtime.calls) runtime.reply(call, 200, {}, 'last')
  for (const connection of [busy, kept]) {
    const [answer] = await connection.answers(1)
    t.match(answer, { status: 200, body: 'last', headers: { connection: 'close' } })
  }
  await Promise.all([busy, kept, silent].map(connection => connection.closed()))
  await closing
})

t.test('[http/public.27] whoever has just connected when the gateway closes may still ask', async t => {
  const clock = new FakeClock()
  const { open, server } = await serve(t, { clock })
  const kept = await open()
  kept.write(GET)
  await kept.answers(1)
  const [late, silent] = [await open(), await open()]
  // Its answer shows that the connections before it were taken.
  const last = await open()
  last.write(GET)
  await last.answers(1)
  const closing = server.close(5000)
  clock.advance(400)
  await Promise.all([kept, last].map(connection => connection.closed()))
  t.notOk(late.isClosed || silent.isClosed)
  late.write(GET)
  const [answer] = await late.answers(1)
  t.match(answer, { status: 200, headers: { connection: 'close' } })
  clock.advance(200)
  await silent.closed()
  await closing
})

t.test('[http/public.27] closing does not wait for ever', async t => {
  const { open, runtime, server, admission } = await serve(t)
  runtime.answer = () => {}
  const stuck = await open()
  stuck.write(GET)
  while (runtime.calls.length < 1) await new Promise(setImmediate)
  await server.close(60)
  await stuck.closed()
  t.equal(stuck.text, '')
  t.equal(runtime.abandoned.length, 1)
  t.equal(admission.total(), 0)
})

t.test('[http/public.29] in a host application', async t => {
  const { handle, runtime } = makePublic({ '/a': ANY })
  const host = createHttpServer(async (req, res) => {
    if (req.headers['x-read'] !== undefined) for await (const _ of req) void _
    handle(req, res, false, async () => {
      let body = ''
      for await (const chunk of req) body += chunk
      res.end(`host got ${body}`)
    })
  })
  await new Promise<void>(resolve => host.listen(0, '127.0.0.1', resolve))
  t.teardown(() => host.close())
  const url = `http://127.0.0.1:${(host.address() as { port: number }).port}`
  const post = { method: 'POST', body: 'hello' }
  t.equal(await (await fetch(`${url}/other`, post)).text(), 'host got hello')
  t.equal(await (await fetch(`${url}/a`, post)).text(), 'ok')
  t.equal(runtime.calls[0]!.body!.toString(), 'hello')
  const late = await fetch(`${url}/a`, { ...post, headers: { 'x-read': '1' } })
  t.equal(late.status, 500)
  t.match(await late.json(), { error: /^request body was already read by the host application/ })
  host.closeAllConnections()
})

/** Parts of requests, good and bad, from which nonsense is made. */
const WORDS = [
  ...[
    'GET',
    'POST',
    'PUT',
    'get',
    'BREW',
    'CONNECT',
    'HEAD',
    ' ',
    '  ',
    '\t',
    '/',
    '/p/',
    '*',
    'http://h/p/1',
    '?q=%zz',
    '%00',
  ],
  ...[
    ' HTTP/1.1',
    ' HTTP/1.0',
    ' HTTP/9',
    '\r\n',
    '\n',
    '\r',
    '\r\n\r\n',
    'Host: h\r\n',
    'Host:\r\n',
    'Content-Length: 3\r\n',
  ],
  ...[
    'Content-Length: -1\r\n',
    'Transfer-Encoding: chunked\r\n',
    'Transfer-Encoding: x\r\n',
    'Expect: 100-continue\r\n',
  ],
  ...[
    'Connection: close\r\n',
    'Connection: upgrade\r\nUpgrade: x\r\n',
    'abc',
    '3\r\nabc\r\n0\r\n\r\n',
    'zz\r\n',
    '\0',
    '\xff',
    ': ',
  ],
]

t.test('[http/public.30, http/public.12] generated nonsense among good requests', async t => {
  const { open, runtime, admission } = await serve(t)
  runtime.answer = (call, own) => own.reply(call, 200, {}, String(headerOfCall(call).path))
  const random = createRandom(20261121)
  const run = async (round: number) => {
    const connection = await open()
    const good: string[] = []
    for (let i = random(4); i >= 0; i--) {
      const path = `/p/${round}-${i}`
      good.push(path)
      const body = random(2) === 0 ? '\r\n' : 'Content-Length: 3\r\n\r\nabc'
      connection.write(`${body.length > 2 ? 'POST' : 'GET'} ${path} HTTP/1.1\r\nHost: h\r\n${body}`)
    }
    let noise = ''
    for (let i = random(12); i >= 0; i--) noise += WORDS[random(WORDS.length)]
    connection.write(noise)
    connection.socket.end()
    await connection.closed()
    const answers = parseAnswers(connection.text)
    const own = answers.slice(0, good.length).map(answer => answer.body)
    const what = JSON.stringify([noise, connection.text])
    if (JSON.stringify(own) !== JSON.stringify(good)) t.fail(`good requests are answered first, in order: ${what}`)
    for (const { status, body } of answers.slice(good.length)) {
      if (Number.isNaN(status)) t.fail(`an answer is malformed: ${what}`)
      if (status === 200 && !['/p', '/p/1', ''].includes(body) && !/^\/p\//.test(body)) t.fail(`crossed: ${what}`)
      if (good.includes(body)) t.fail(`answered twice: ${what}`)
    }
  }
  for (let round = 0; round < 400; round += 8) {
    await Promise.all(Array.from({ length: 8 }, (_, i) => run(round + i)))
  }
  t.equal(admission.total(), 0)
})
