import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { HttpServer } from '../../lib/http/server.ts'
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
