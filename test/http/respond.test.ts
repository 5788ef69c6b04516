import { EventEmitter } from 'node:events'
import t from 'tap'
import { BytePool } from '../../lib/core/byte-pool.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { type ClientConnection, Exchange, type HttpResponse } from '../../lib/http/exchange.ts'
import { refuseRequest, rejectConnection, Responder } from '../../lib/http/respond.ts'
import type { ReplyHead } from '../../lib/invocation/response.ts'
import { HttpServer } from '../../lib/http/server.ts'
import { HeadReader } from '../../lib/invocation/forwarded-headers.ts'
import { FakeClock } from '../helpers/clock.ts'
import { inject } from '../../lib/http/inject.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic, type PublicSetup } from '../helpers/public.ts'
import { RawConnection } from '../helpers/raw-http.ts'

type Teardown = { teardown: (fn: () => Promise<void>) => void }

async function serve(t: Teardown, setup: PublicSetup = {}) {
  const fn = makeFn({ policy: { methods: ['GET', 'POST'] } })
  const made = makePublic({ '/a': fn }, setup)
  const server = new HttpServer({ ...made, requestIds: made.requestIds })
  const { port, url } = await server.listen(0, '127.0.0.1')
  t.teardown(() => server.close(0))
  return { ...made, port, url }
}

t.test('[http/public.20] error bodies, in development and in production', async t => {
  const detail = { file: 'hello/handler.py', line: 3, hint: 'pip install x' }
  for (const [error, dev, production] of [
    [new GatewayError('HANDLER_FAILED', 'boom', { detail }), { error: 'boom', detail }, { error: 'function failed' }],
    [new GatewayError('LOAD_FAILED', 'no x'), { error: 'no x' }, { error: 'function could not be loaded' }],
    [new GatewayError('TIMEOUT', 'runtime timeout'), { error: 'runtime timeout' }, { error: 'runtime timeout' }],
    [new GatewayError('INTERNAL', 'gateway exception'), { error: 'gateway exception' }, { error: 'gateway exception' }],
  ] as const) {
    for (const [isProduction, expected] of [
      [false, dev],
      [true, production],
    ] as const) {
      const { handle, runtime } = makePublic({ '/a': makeFn() }, { production: isProduction })
      runtime.answer = (call, own) => own.fail(call, error)
      const answer = await inject(handle, { url: '/a' })
      t.equal(answer.status, error.status)
      t.equal(answer.headers['content-type'], 'application/json')
      t.same(answer.json(), expected)
    }
  }
})

t.test('[http/public.20] Retry-After, Allow, and statuses that are none', async t => {
  const { handle, runtime } = makePublic({ '/a': makeFn() })
  for (const [error, status, headers] of [
    [new GatewayError('RUNTIME_DOWN', 'runtime down'), 503, { 'retry-after': '1' }],
    [new GatewayError('BUILD_PENDING', 'building', { headers: { 'Retry-After': '7' } }), 503, { 'retry-after': '7' }],
    [new GatewayError('CONCURRENCY_LIMIT', 'x'), 429, { 'retry-after': '1' }],
    [new GatewayError('METHOD_NOT_ALLOWED', 'x', { headers: { Allow: 'GET' } }), 405, { allow: 'GET' }],
    [new GatewayError('INTERNAL', 'x', { status: 0 }), 500, {}],
    [new GatewayError('INTERNAL', 'x', { status: 700 }), 500, {}],
  ] as const) {
    runtime.answer = (call, own) => own.fail(call, error)
    t.match(await inject(handle, { url: '/a' }), { status, headers })
  }
})

t.test('[http/public.20] a step or handler that throws is a 500 and nothing more', async t => {
  const { handle } = makePublic(
    {},
    {
      before: [
        () => {
          throw new Error('secret')
        },
      ],
    },
  )
  const answer = await inject(handle, { url: '/a' })
  t.equal(answer.status, 500)
  t.same(answer.json(), { error: 'gateway exception' })
})

t.test('[http/public.21, invocation/response.6] lengths and bodies', async t => {
  const { url, runtime } = await serve(t)
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
  const big = Buffer.alloc(300_000, bytes)
  for (const [status, body, length] of [
    [200, bytes, '256'],
    [200, big, '300000'],
    [200, Buffer.alloc(0), '0'],
    [404, bytes, '256'],
    [204, bytes, null],
    [304, bytes, null],
  ] as const) {
    runtime.answer = (call, own) => own.reply(call, status, { 'content-type': 'x/y' }, body)
    for (const method of ['GET', 'HEAD']) {
      const answer = await fetch(`${url}/a`, { method })
      t.equal(answer.status, status)
      const isHeadWithoutBody = method === 'HEAD' && body.length === 0
      t.equal(answer.headers.get('content-length'), isHeadWithoutBody ? null : length, `${method} ${status}`)
      const received = Buffer.from(await answer.arrayBuffer())
      t.ok(received.equals(method === 'HEAD' || length === null ? Buffer.alloc(0) : body), `${method} ${status}`)
    }
  }
  runtime.answer = (call, own) => own.reply(call, 200, { 'Set-Cookie': ['a=1', 'b=2'], 'X-U': 'caf\xe9' })
  const cookies = await fetch(`${url}/a`)
  t.same(cookies.headers.getSetCookie(), ['a=1', 'b=2'])
  t.equal(cookies.headers.get('x-u'), 'caf\xe9')
})

t.test('[http/public.22, http/public.23] streams arrive piece by piece', async t => {
  const { port, runtime } = await serve(t)
  runtime.answer = (call, own) => own.stream(call, { headers: { 'content-type': 'text/event-stream' } })
  const connection = await RawConnection.open(port)
  connection.write('GET /a HTTP/1.1\r\nHost: h\r\n\r\n')
  await connection.until(() => connection.text.includes('\r\n\r\n'))
  t.match(connection.text, /cache-control: no-cache\r\nx-accel-buffering: no\r\n/i, 'the head before any piece')
  t.match(connection.text, /transfer-encoding: chunked/i)
  const [call] = runtime.calls
  for (const piece of ['data: 1\n\n', 'data: 2\n\n']) {
    call!.onChunk(Buffer.from(piece))
    await connection.until(() => connection.text.includes(piece))
    t.match(connection.text, piece)
  }
  runtime.end(call!)
  await connection.until(() => connection.text.endsWith('0\r\n\r\n'))
  runtime.answer = (next, own) =>
    own.stream(next, { headers: { 'Content-Type': 'text/event-stream', 'Cache-Control': 'private' }, length: 3 })
  connection.write('GET /a HTTP/1.1\r\nHost: h\r\n\r\n')
  while (runtime.calls.length < 2) await new Promise(setImmediate)
  runtime.calls[1]!.onChunk(Buffer.from('abc'))
  runtime.end(runtime.calls[1]!)
  await connection.until(() => connection.text.endsWith('abc'))
  t.match(connection.text, /Cache-Control: private\r\nX-Accel-Buffering: no\r\nContent-Length: 3\r\n/)
  connection.socket.destroy()
})

t.test('[http/public.22] a stream that is not whole cuts the connection', async t => {
  const { url, runtime, admission } = await serve(t)
  for (const [head, steps] of [
    [{}, ['abc', 'error']],
    [{ length: 5 }, ['abc', 'end']],
    [{ length: 5 }, ['abcdef', 'end']],
  ] as const) {
    runtime.answer = (call, own) => {
      own.stream(call, head)
      for (const step of steps) {
        if (step === 'end') own.end(call)
        else if (step === 'error') own.end(call, new GatewayError('WORKER_DIED', 'worker died'))
        else call.onChunk(Buffer.from(step))
      }
    }
    await t.rejects(
      fetch(`${url}/a`).then(answer => answer.text()),
      JSON.stringify([head, steps]),
    )
    t.equal(admission.total(), 0)
  }
})

t.test('[http/public.22] the worker may go on when the client has taken what was sent', async t => {
  const { port, runtime } = await serve(t)
  let granted = 0
  runtime.answer = (call, own) => {
    call.host = {
      grant: (_call: unknown, bytes: number) => {
        granted += bytes
      },
    } as never
    own.stream(call, {})
  }
  const connection = await RawConnection.open(port)
  connection.socket.pause()
  connection.write('GET /a HTTP/1.1\r\nHost: h\r\n\r\n')
  while (runtime.calls.length < 1) await new Promise(setImmediate)
  const piece = Buffer.alloc(256 * 1024, 'x')
  let sent = 0
  // As a worker does: another piece only for what was granted.
  for (let i = 0; i < 100 && sent === granted; i++) {
    runtime.calls[0]!.onChunk(piece)
    sent += piece.length
    await new Promise(setImmediate)
  }
  t.ok(sent < 100 * piece.length, 'a client that does not read stops the worker')
  t.ok(granted < sent)
  connection.socket.resume()
  while (granted < sent) await new Promise(setImmediate)
  t.equal(granted, sent)
  runtime.end(runtime.calls[0]!)
  await connection.until(() => connection.text.endsWith('0\r\n\r\n'))
  connection.socket.destroy()
})

t.test('[http/public.22, http/public.5] a stream for HEAD is stopped', async t => {
  const { url, runtime, admission } = await serve(t)
  runtime.answer = (call, own) => own.stream(call, { headers: { 'x-a': 'b' } })
  const answer = await fetch(`${url}/a`, { method: 'HEAD' })
  t.equal(answer.headers.get('x-a'), 'b')
  t.equal(runtime.abandoned.length, 1)
  t.equal(admission.total(), 0)
})

/** A response that notes what is done with it. */
class NotedResponse extends EventEmitter implements HttpResponse {
  readonly seen: unknown[][] = []
  /** Bytes that stay as they are until they are gone. */
  readonly kept: { bytes: Buffer; onGone: () => void }[] = []
  readonly socket = { end: () => this.seen.push(['half close']), once: () => {}, setTimeout: () => {} }
  shouldKeepAlive = true
  headersSent = false
  writableFinished = false
  isDirect = true
  isTaking = true
  readonly #note = (...what: unknown[]): void => {
    this.seen.push(what)
  }
  writeContinue(): void {}
  writeHead(status: number, headers: string[]): void {
    this.headersSent = true
    this.#note('head', status, headers)
  }
  flushHeaders(): void {
    this.#note('flush')
  }
  write(chunk: Buffer | string, encoding?: string): boolean {
    this.#note('write', chunk, encoding)
    return this.isTaking
  }
  end(chunk?: Buffer | string, encoding?: string): void {
    this.#note('end', chunk, encoding)
  }
  destroy(): void {
    this.#note('destroy')
  }
  sendWhole(status: number, head: string, body: string | Buffer, onGone?: () => void): void {
    this.#note('whole', status, head, body)
    if (typeof body !== 'string') this.kept.push({ bytes: body, onGone: onGone! })
  }
  writeKept(bytes: Buffer, onGone: () => void): boolean {
    this.kept.push({ bytes, onGone })
    return this.write(bytes)
  }
}

interface Given {
  method?: string
  headers?: string[]
  /** The request was received to its end. */
  complete?: boolean
  expectsContinue?: boolean
  pool?: BytePool
}

function makeExchange({ method = 'GET', headers = [], complete = true, expectsContinue = false, pool }: Given = {}) {
  const clock = new FakeClock()
  const finished: Exchange[] = []
  const lifecycle = { draining: false }
  const responder = new Responder({
    clock,
    pool: pool ?? new BytePool(clock),
    production: false,
    lifecycle,
    onFinished: one => finished.push(one),
  })
  const timeouts: number[] = []
  const req = Object.assign(new EventEmitter(), {
    method,
    url: '/',
    httpVersion: '1.1',
    rawHeaders: headers,
    complete,
    readableEnded: false,
    isResumed: false,
    socket: { remoteAddress: '10.0.0.1', once: () => {}, end: () => {}, setTimeout: (ms: number) => timeouts.push(ms) },
    resume() {
      this.isResumed = true
    },
  })
  const res = new NotedResponse()
  type KnownConnection = Pick<
    ClientConnection,
    'address' | 'closing' | 'remove' | 'hold' | 'release' | 'watch' | 'unwatch'
  >
  const connection: KnownConnection & { latest: Exchange | null; hasWaiting: boolean; removed: Exchange[] } = {
    address: '10.0.0.1',
    latest: null,
    hasWaiting: false,
    closing: false,
    removed: [],
    remove: one => connection.removed.push(one),
    hold: (bytes, budget) => (budget.used += bytes),
    release: bytes => (responder.pool.unread.used -= bytes),
    watch: ms => timeouts.push(ms),
    unwatch: () => timeouts.push(0),
  }
  const head = new HeadReader().read(headers)
  const exchange = new Exchange(req, res, connection as never, responder, head, 'id-1', 0, expectsContinue)
  connection.latest = exchange
  return { clock, finished, lifecycle, responder, timeouts, req, res, connection, exchange }
}

const ID = ['X-Request-Id', 'id-1']
const long = Buffer.alloc(16 * 1024 + 1, 'x')
const DIRECT_HEAD: ReplyHead = {
  status: 201,
  headers: [],
  hasBody: true,
  length: null,
  proxy: null,
  text: 'HTTP/1.1 201 Created\r\n',
}

t.test('[http/public.21, http/public.6] what goes out of a whole answer', async t => {
  const cases: [
    name: string,
    method: string,
    status: number,
    body: Buffer | string | null,
    headers: string[],
    end: unknown[],
  ][] = [
    ['text', 'GET', 200, 'h\u00e9', ['Content-Length', '3'], ['h\u00c3\u00a9', 'latin1']],
    ['bytes', 'GET', 200, Buffer.from([0, 255]), ['Content-Length', '2'], ['\0\u00ff', 'latin1']],
    ['none', 'GET', 200, null, ['Content-Length', '0'], []],
    ['204', 'GET', 204, Buffer.from('x'), [], []],
    ['304', 'GET', 304, 'x', [], []],
    ['HEAD', 'HEAD', 200, 'four', ['Content-Length', '4'], []],
    ['HEAD without a body', 'HEAD', 200, null, [], []],
    ['HEAD, 204', 'HEAD', 204, 'x', [], []],
  ]
  for (const [name, method, status, body, headers, end] of cases) {
    const { responder, exchange, res, finished, connection } = makeExchange({ method })
    responder.send(exchange, status, ['A', 'b'], body)
    t.same(
      res.seen,
      [
        ['head', status, ['A', 'b', ...headers, ...ID]],
        ['end', end[0], end[1]],
      ],
      name,
    )
    t.equal(exchange.bytesOut, end.length === 0 ? 0 : Number(headers[1]), name)
    t.match(exchange, { status, ended: true }, name)
    t.same([finished, connection.removed], [[exchange], [exchange]], name)
    t.equal(connection.closing, false)
    responder.send(exchange, 500, [], 'again')
    responder.sendError(exchange, new GatewayError('INTERNAL', 'again'))
    responder.openStream(exchange, 200, [], null)
    responder.closeStream(exchange, null)
    t.equal(responder.writeStream(exchange, Buffer.from('x')), true)
    t.equal(res.seen.length, 2, `${name}: an answer is one answer`)
    t.equal(finished.length, 1)
  }
})

t.test(
  '[http/public.21, http/public.15] a long body is bytes of its own, and a client that takes nothing is cut',
  async t => {
    for (const isConstant of [false, true]) {
      const { responder, exchange, res, timeouts } = makeExchange()
      responder.send(exchange, 200, [], long, isConstant)
      const [, [what, sent] = []] = res.seen
      t.equal(what, isConstant ? 'end' : 'write')
      t.equal(sent === long, isConstant, 'copied unless it never changes')
      t.ok((sent as Buffer).equals(long))
      t.same(timeouts, [60_000])
      res.emit('finish')
      t.same(timeouts, [60_000, 0])
    }
    const { responder, exchange, timeouts } = makeExchange()
    responder.send(exchange, 200, [], long.subarray(1))
    t.same(timeouts, [], 'a short one leaves at once')
    const hosted = makeExchange()
    Object.defineProperty(hosted.res, 'sendWhole', { value: undefined })
    hosted.responder.send(hosted.exchange, 200, [], long)
    hosted.res.emit('finish')
    t.same(hosted.timeouts, [60_000], "a host application's server has a limit of its own")
  },
)

t.test('[core/byte-pool.3, core/byte-pool.5] long bytes lie in the pool until they are gone', async t => {
  const spoil = (bytes: Buffer) => bytes.fill(0xdd)
  const ways: [name: string, send: (made: ReturnType<typeof makeExchange>, body: Buffer) => void][] = [
    ['whole', ({ responder, exchange }, body) => responder.send(exchange, 200, [], body)],
    ['the short way', ({ responder, exchange }, body) => void responder.sendDirectly(exchange, DIRECT_HEAD, body, 0)],
    ['a stream', ({ responder, exchange }, body) => void responder.writeStream(exchange, body)],
  ]
  for (const [name, send] of ways) {
    for (const isPooled of [true, false]) {
      const pool = new BytePool(new FakeClock(), spoil)
      const made = makeExchange({ pool })
      const body = isPooled ? pool.take(long.length) : Buffer.allocUnsafeSlow(long.length)
      long.copy(body)
      send(made, body)
      // What a worker's reader does once the frame was handed on: its memory is used for the next one.
      if (isPooled) pool.free(body)
      else body.fill(0)
      const [{ bytes, onGone }] = made.res.kept as [NotedResponse['kept'][number]]
      t.ok(bytes.equals(long), `${name}: as it was`)
      t.equal(bytes.buffer === body.buffer, isPooled, `${name}: copied only where it does not lie in the pool`)
      t.equal(pool.freeBytes, 0, `${name}: held while the client has not taken it`)
      onGone()
      t.ok(pool.freeBytes > 0, `${name}: free afterwards`)
      t.equal(bytes[0], 0xdd)
    }
    const pool = new BytePool(new FakeClock(), spoil)
    const hosted = makeExchange({ pool })
    Object.assign(hosted.res, { writeKept: undefined, isDirect: false })
    if (name === 'the short way') continue
    send(hosted, long)
    t.ok(hosted.res.seen.some(([what, bytes]) => what === 'write' && bytes !== long && long.equals(bytes as Buffer)))
    t.equal(pool.take(1).length, 1, "a host application's response gets bytes of its own")
  }
})

t.test(
  '[http/public.27, http/public.12] while the gateway stops the last answer of a connection closes it',
  async t => {
    for (const [draining, isLatest, hasWaiting, closes] of [
      [false, true, false, false],
      [true, true, false, true],
      [true, false, false, false],
      [true, true, true, false],
    ] as const) {
      const { responder, exchange, res, lifecycle, connection } = makeExchange()
      lifecycle.draining = draining
      if (!isLatest) connection.latest = null
      connection.hasWaiting = hasWaiting
      responder.send(exchange, 200, [], null)
      t.same([!res.shouldKeepAlive, connection.closing], [closes, closes], `${draining} ${isLatest} ${hasWaiting}`)
    }
  },
)

t.test('[http/public.18] an answer that overtakes its request', async t => {
  const cases: [name: string, given: Given, lingers: boolean][] = [
    ['received', { headers: ['Content-Length', '70000'], complete: true }, false],
    ['short', { headers: ['Content-Length', '65536'] }, false],
    ['long', { headers: ['Content-Length', '65537'] }, true],
    ['of unknown length', { headers: ['Transfer-Encoding', 'chunked'] }, true],
    ['one that waits for 100', { headers: ['Content-Length', '5'], expectsContinue: true }, true],
    ['none', { headers: ['Content-Length', '0'] }, false],
  ]
  for (const [name, given, lingers] of cases) {
    for (const body of ['no', null]) {
      const { responder, exchange, res, req, clock } = makeExchange({ method: 'POST', complete: false, ...given })
      responder.send(exchange, 413, [], body)
      t.equal(res.shouldKeepAlive, !lingers, name)
      t.equal(
        res.seen.some(([what]) => what === 'half close'),
        lingers,
        name,
      )
      t.equal(clock.pending, lingers ? 1 : 0, name)
      const ends = () => res.seen.filter(([what]) => what === 'end').length
      t.equal(ends(), lingers ? 0 : 1, name)
      if (!lingers) continue
      t.equal(req.isResumed, true, 'the rest is read and dropped')
      t.equal(
        res.seen.some(([what]) => what === 'write'),
        body !== null,
      )
      if (body === null) clock.advance(1000)
      else req.emit('end')
      t.equal(ends(), 1, `${name}: after a moment, or when all of it came`)
      t.equal(clock.pending, 0)
    }
  }
  const { responder, exchange, res, clock, connection } = makeExchange({
    method: 'POST',
    headers: ['Content-Length', '5'],
    complete: false,
  })
  connection.closing = true
  responder.send(exchange, 400, [], null)
  t.equal(clock.pending, 1, 'on a connection that closes a short rest may be the start of anything')
  res.emit('close')
  t.equal(clock.pending, 0)
})

t.test('[http/public.21, http/public.6] the short way is taken for usual answers alone', async t => {
  const head = DIRECT_HEAD
  const usual = makeExchange()
  const at = usual.clock.monotonic()
  t.equal(usual.responder.sendDirectly(usual.exchange, head, Buffer.from([104, 255]), at), true)
  const [[what, status, text, body] = []] = usual.res.seen
  t.same([what, status, body], ['whole', 201, 'h\u00ff'])
  t.match(text, /^HTTP\/1\.1 201 Created\r\nContent-Length: 2\r\nX-Request-Id: id-1\r\nDate: \w{3}, .* GMT\r\n$/)
  t.match(usual.exchange, { status: 201, bytesOut: 2, answeredAt: at, ended: true })
  t.same([usual.finished, usual.connection.removed], [[usual.exchange], [usual.exchange]])
  const unusual: [name: string, change: (made: ReturnType<typeof makeExchange>) => void, given?: Given][] = [
    ['a host application', ({ res }) => Object.assign(res, { isDirect: false })],
    ['ended', ({ exchange }) => Object.assign(exchange, { ended: true })],
    ['HEAD', () => {}, { method: 'HEAD' }],
    ['cors', ({ exchange }) => Object.assign(exchange, { cors: [] })],
    ['more headers', ({ exchange }) => Object.assign(exchange, { extraHeaders: [] })],
    ['draining', ({ lifecycle }) => Object.assign(lifecycle, { draining: true })],
    ['a body that still comes', () => {}, { headers: ['Content-Length', '5'], complete: false }],
  ]
  for (const [name, change, given] of unusual) {
    const made = makeExchange(given)
    change(made)
    t.equal(made.responder.sendDirectly(made.exchange, head, Buffer.from('x'), 0), false, name)
    t.same(made.res.seen, [], name)
  }
  const constant = makeExchange()
  const page = Buffer.alloc(100_000, 'p')
  t.equal(constant.responder.sendPrepared(constant.exchange, head, page), true)
  t.equal(constant.res.seen[0]![3], page, 'what never changes is not copied')
  const dated = makeExchange()
  const own = { ...head, text: `${head.text}date: Thu, 01 Jan 1970 00:00:00 GMT\r\n`, isDated: true }
  t.equal(dated.responder.sendDirectly(dated.exchange, own, Buffer.from('x'), 0), true)
  t.equal(String(dated.res.seen[0]![2]).match(/^date:/gim)?.length, 1, 'a date of its own is the only one')
  const { text: _, ...untold } = head
  const made = makeExchange()
  t.equal(
    made.responder.sendDirectly(made.exchange, untold, Buffer.from('x'), 0),
    false,
    'a head that was not prepared',
  )
  const received = makeExchange({ headers: ['Content-Length', '5'], complete: true })
  t.equal(received.responder.sendDirectly(received.exchange, head, Buffer.alloc(0), 0), true)
})

t.test('[http/public.22] streams keep their promise of a length', async t => {
  const open = (length: number | null) => {
    const made = makeExchange()
    made.responder.openStream(made.exchange, 200, ['A', 'b'], length)
    return made
  }
  const free = open(null)
  t.same(free.res.seen, [['head', 200, ['A', 'b', ...ID]], ['flush']])
  const piece = Buffer.from('abc')
  t.equal(free.responder.writeStream(free.exchange, piece), true)
  t.equal(free.responder.writeStream(free.exchange, Buffer.alloc(0)), true, 'nothing is written for nothing')
  free.res.isTaking = false
  t.equal(free.responder.writeStream(free.exchange, piece, true), false)
  t.equal(free.res.seen.length, 4)
  t.not(free.res.seen[2]![1], piece, 'copied')
  t.equal(free.res.seen[3]![1], piece, 'not copied')
  free.responder.closeStream(free.exchange, null)
  t.same(free.res.seen.at(-1)!.slice(0, 1), ['end'])
  t.equal(free.exchange.bytesOut, 6)

  for (const [name, pieces, error, last] of [
    ['exact', ['ab', 'cde'], null, 'end'],
    ['short', ['ab'], null, 'destroy'],
    ['too much', ['ab', 'cdef'], null, 'destroy'],
    ['whole and then an error', ['abcde'], new GatewayError('WORKER_DIED', 'x'), 'destroy'],
  ] as const) {
    const made = open(5)
    t.same(made.res.seen[0]![2], ['A', 'b', 'Content-Length', '5', ...ID])
    for (const text of pieces) made.responder.writeStream(made.exchange, Buffer.from(text))
    made.responder.closeStream(made.exchange, error)
    t.equal(made.res.seen.at(-1)![0], last, name)
    t.equal(made.exchange.error, error, name)
    t.notMatch(made.res.seen.filter(([what]) => what === 'write').join(), 'cdef', 'nothing beyond the promise')
  }
})

t.test('[http/public.35, http/public.22] pieces together keep the promise of a length', async t => {
  const made = makeExchange()
  made.responder.openStream(made.exchange, 200, [], 5)
  const written: [string, number][] = []
  Object.assign(made.res, {
    writePieces: (pieces: Buffer[], bytes: number) => written.push([Buffer.concat(pieces).toString(), bytes]) > 0,
  })
  const write = (...texts: string[]) =>
    made.responder.writePieces(
      made.exchange,
      texts.map(text => Buffer.from(text)),
      texts.join('').length,
      () => {},
    )
  write('ab', 'c')
  t.match(made.exchange, { bytesOut: 3, bytesLeft: 2 })
  write('d', 'ef')
  t.equal(made.res.seen.at(-1)![0], 'destroy')
  t.same(written, [['abc', 3]])
  made.responder.closeStream(made.exchange, new GatewayError('WORKER_DIED', 'x'))
  write('a')
  t.equal(written.length, 1, 'nothing behind the end')
})

t.test('[http/public.35, http/public.15] a client that takes nothing for long is cut', async t => {
  const { responder, exchange, timeouts } = makeExchange()
  responder.watchClient(exchange, true)
  responder.watchClient(exchange, false)
  t.same(timeouts, [60_000, 0])
})

t.test('[http/public.35, core/byte-pool.5] pieces over a response of a host application', async t => {
  const { responder, exchange, res } = makeExchange()
  Object.assign(res, { writeKept: undefined })
  let taken = 0
  const pieces = [Buffer.from('ab'), Buffer.from('c')]
  const write = () => responder.writePieces(exchange, pieces, 3, () => (taken += 1))
  write()
  t.same([res.seen.map(([, bytes]) => String(bytes)), taken], [['ab', 'c'], 1])
  t.not(res.seen[0]![1], pieces[0], 'bytes of its own')
  res.isTaking = false
  write()
  t.equal(taken, 1)
  res.emit('drain')
  t.equal(taken, 2)
})

t.test('[http/public.22, http/public.15] a slow client', async t => {
  const { responder, exchange, res, timeouts } = makeExchange()
  let drained = 0
  responder.onDrain(exchange, () => (drained += 1))
  t.same([timeouts, drained], [[60_000], 0])
  res.emit('drain')
  res.emit('drain')
  t.same([timeouts, drained], [[60_000, 0], 1])
})

t.test('[http/public.20, http/public.22] an error behind a head that is sent cuts the connection', async t => {
  const { responder, exchange, res, finished } = makeExchange()
  responder.openStream(exchange, 200, [], null)
  const error = new GatewayError('TIMEOUT', 'late')
  responder.sendError(exchange, error)
  t.equal(res.seen.at(-1)![0], 'destroy')
  t.equal(exchange.error, error)
  t.same(finished, [exchange])
})

t.test('[http/public.19] a client that left ends its exchange', async t => {
  const { responder, exchange, connection, finished, res } = makeExchange()
  exchange.work = { abandon: () => {} }
  exchange.bodyReceiver = { onBody: () => {}, onBodyError: () => {} }
  responder.onDisconnect(exchange)
  t.match(exchange, { ended: true, work: null, bodyReceiver: null })
  t.same([connection.removed, finished, res.seen], [[exchange], [exchange], []])
})

t.test("[http/cors.10] the gateway's cross-origin headers take the place of a handler's", async t => {
  const { responder, exchange, res } = makeExchange()
  exchange.cors = ['Access-Control-Allow-Origin', 'https://a.example']
  exchange.extraHeaders = ['X-Extra', '1']
  const own = [
    'access-control-allow-origin',
    '*',
    'A',
    'b',
    'Access-Control-Expose-Headers',
    'x',
    'Access-Controls',
    'c',
  ]
  responder.send(exchange, 200, own, null)
  t.same(res.seen[0]![2], [
    ...['A', 'b', 'Access-Controls', 'c', 'Content-Length', '0', ...ID],
    ...['Access-Control-Allow-Origin', 'https://a.example', 'X-Extra', '1'],
  ])
})

t.test('[http/public.10, http/public.27] refusals before there is an exchange', async t => {
  const res = new NotedResponse()
  const closing = new GatewayError('SHUTTING_DOWN', 'gateway is shutting down', { headers: { 'Retry-After': '1' } })
  refuseRequest(res as never, closing, ['X-Request-Id', 'id-8'])
  t.match(res.seen, [
    [
      'head',
      503,
      [
        'Content-Type',
        'application/json',
        'Content-Length',
        '36',
        'Retry-After',
        '1',
        'X-Request-Id',
        'id-8',
        'Connection',
        'close',
      ],
    ],
    ['end', '{"error":"gateway is shutting down"}'],
  ])
  const clock = new FakeClock()
  const written: string[] = []
  let destroyed = 0
  const socket = Object.assign(new EventEmitter(), {
    end: (text: string) => written.push(text),
    destroy: () => (destroyed += 1),
  })
  for (const closes of [true, false]) {
    rejectConnection(socket as never, clock, new GatewayError('BAD_REQUEST', 'malformed'), 'id-9')
    if (closes) socket.emit('close')
    clock.advance(1000)
    t.equal(destroyed, closes ? 0 : 1)
    t.equal(clock.pending, 0)
  }
  t.equal(
    written[0],
    'HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 21\r\nX-Request-Id: id-9\r\n' +
      'Connection: close\r\n\r\n{"error":"malformed"}',
  )
})
