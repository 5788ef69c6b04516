import { createServer, type IncomingMessage, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { ApiClient, NoGatewayError } from '../../bin/api-client.ts'
import { freePort } from '../helpers/program.ts'

/** A server with these answers, and what it was asked. */
async function serve(t: import('tap').Test, listener: RequestListener) {
  const asked: { request: IncomingMessage; body: string }[] = []
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += String(chunk)
    asked.push({ request, body })
    listener(request, response)
  })
  await new Promise<void>(done => server.listen(0, '127.0.0.1', done))
  t.teardown(() => server.close())
  return { asked, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

const outcome = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    value => value,
    (error: unknown) => error,
  )

t.test('[bin/api-client.3] a call carries token, mark, query and body', async t => {
  const { asked, url } = await serve(t, (_request, response) => response.end('{"ok":true}'))
  const api = new ApiClient({ url: `${url}/below`, token: 'secret' })
  const query = { lines: 5, fn: 'a/b c', follow: true, version: null, stream: undefined }
  t.same(await api.json('POST', '/_fn/x', { query, json: { name: 'é' } }), { ok: true })
  const { request, body } = asked[0]!
  t.match([request.method, request.url], ['POST', '/below/_fn/x?lines=5&fn=a%2Fb+c&follow=true'])
  t.match(request.headers, {
    'x-fn-admin-token': 'secret',
    'x-fngw-request': '1',
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(body)),
  })
  t.equal(body, '{"name":"é"}')
  await new ApiClient({ url, token: null }).json('GET', '/_fn/y')
  t.notOk('x-fn-admin-token' in asked[1]!.request.headers)
  t.notOk('content-type' in asked[1]!.request.headers)
})

t.test('[bin/api-client.3] a redirect is not followed', async t => {
  const { asked, url } = await serve(t, (_request, response) => {
    response.writeHead(302, { Location: '/elsewhere' }).end('{}')
  })
  t.match(await new ApiClient({ url, token: 'secret' }).send('GET', '/_fn/x'), { status: 302 })
  t.equal(asked.length, 1)
})

t.test('[bin/api-client.4] nobody there, no gateway there, cut off', async t => {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const nobody = await outcome(new ApiClient({ url, token: null }).json('GET', '/_fn/x'))
  t.type(nobody, NoGatewayError)
  t.match(nobody, { exitCode: 1, message: new RegExp(`^no gateway answers at ${url}: start one .*--url`) })
  const unknown = new ApiClient({ url: 'http://nowhere.invalid', token: null })
  t.match(await outcome(unknown.json('GET', '/')), {
    message: /^cannot reach http:\/\/nowhere\.invalid: unknown host name$/,
  })

  const other = await serve(t, (request, response) => {
    if (request.url === '/page') response.writeHead(404, { 'Content-Type': 'text/html' }).end('<h1>')
    else if (request.url === '/text') response.end('hello')
    else response.writeHead(200, { 'Content-Length': '10' }).write('{"a"')
    if (request.url === '/cut') setImmediate(() => response.destroy())
  })
  const api = new ApiClient({ url: other.url, token: null })
  for (const path of ['/page', '/text'])
    t.match(await outcome(api.json('GET', path)), { message: /answers, but not as this gateway does .*--url/ }, path)
  t.match(await outcome(api.json('GET', '/cut')), { message: /closed the connection before its answer was complete/ })
  const pieces: string[] = []
  const read = async () => {
    for await (const piece of api.stream('GET', '/cut')) pieces.push(String(piece))
  }
  t.match(await outcome(read()), { message: /closed the connection before its answer was complete/ })
  t.same(pieces, ['{"a"'])
})

t.test('[bin/api-client.5] a refusal says what lets the caller in', async t => {
  const cases: [status: number, reason: string, says: RegExp][] = [
    [401, 'wrong admin token', /says 401: wrong admin token\nSet FN_ADMIN_TOKEN .*--token-file/],
    [403, 'console api local-only', /says 403: console api local-only\nCall it from its own machine.*FN_ADMIN_TOKEN/],
    [403, 'console write disabled', /\nStart the gateway with FN_CONSOLE_WRITE_ENABLED=1, or/],
    [404, 'console api disabled', /\nStart the gateway without FN_CONSOLE_API_ENABLED=0/],
    [404, 'not found', /\n.*--control-port/],
    [404, 'unknown function or version', /says 404: unknown function or version$/],
  ]
  for (const [status, reason, says] of cases) {
    const { url } = await serve(t, (_request, response) => {
      response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify({ error: reason }))
    })
    const api = new ApiClient({ url, token: null })
    t.match(await outcome(api.json('GET', '/_fn/x')), { name: 'Error', exitCode: 1, message: says }, reason)
    t.match(await outcome(api.stream('GET', '/_fn/x').next()), { message: says }, `${reason}, as a stream`)
  }
})

t.test('[bin/api-client.3] a stream is handed on as it comes and ends with its signal', async t => {
  const { url } = await serve(t, (_request, response) => void response.write('first'))
  const stop = new AbortController()
  const stream = new ApiClient({ url, token: null }).stream('GET', '/_fn/x', { signal: stop.signal })
  t.equal(String((await stream.next()).value), 'first')
  const next = stream.next()
  stop.abort()
  t.match(await next, { done: true })
})
