import { once } from 'node:events'
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { brotliCompressSync, gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import type { EdgePolicy, Policy } from '../../lib/core/catalog.ts'
import { systemClock } from '../../lib/core/clock.ts'
import type { GatewayError } from '../../lib/core/errors.ts'
import { METHODS } from '../../lib/core/identity.ts'
import { type EdgeOptions, EdgeProxy } from '../../lib/edge/passthrough.ts'
import { EDGE_ANSWER, EDGE_CLIENT_MS, EDGE_HOLD_MS, EDGE_WINDOW_BYTES } from '../../lib/edge/transfer.ts'
import { createGateway } from '../../lib/gateway/gateway.ts'
import { inject, type InjectRequest } from '../../lib/http/inject.ts'
import { HttpServer } from '../../lib/http/server.ts'
import { invokeInternal } from '../../lib/invocation/internal-call.ts'
import { Call } from '../../lib/invocation/invoke.ts'
import type { ReplyHead } from '../../lib/invocation/response.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'
import { makeTree } from '../helpers/tree.ts'
import { httpUpstream, makeCertificates, rawUpstream, tlsUpstream, type Upstream } from '../helpers/upstream.ts'

const FAILED = 'edge proxy failed: '

interface BedSetup extends Partial<EdgeOptions> {
  edge?: Partial<EdgePolicy>
  policy?: Partial<Policy>
}

/**
 * An edge proxy behind the whole request path; its function asks for what the test says. Time stands still unless a test
 * moves it, so that a busy machine changes nothing.
 */
function makeBed(t: Test, setup: BedSetup = {}) {
  const { edge, policy, clock = new FakeClock(), ...options } = setup
  const proxy = new EdgeProxy({ clock, listening: () => [], ...options })
  const fn = makeFn({
    policy: {
      methods: METHODS,
      edge: { baseUrl: null, allowHosts: [], allowPrivate: true, maxResponseBytes: 1_000_000, ...edge },
      ...policy,
    },
  })
  const parts = makePublic({ '/f': fn }, { edge: proxy.handle, clock })
  t.teardown(() => proxy.close(0))
  const direct = (directive: unknown, body: string | Buffer = '') => {
    parts.runtime.answer = (call, own) => own.replyText(call, JSON.stringify({ proxy: directive }), body)
  }
  const ask = (directive: unknown, body: string | Buffer = '', request: Partial<InjectRequest> = {}) => {
    direct(directive, body)
    return inject(parts.handle, { url: '/f', ...request })
  }
  /** Status and message of a refusal. */
  const refusal = async (directive: unknown, request: Partial<InjectRequest> = {}) => {
    const answer = await ask(directive, '', request)
    return `${answer.status} ${(answer.json() as { error?: string }).error}`
  }
  return { ...parts, fn, proxy, direct, ask, refusal }
}

async function upstreamFor(t: Test, handler: RequestListener): Promise<Upstream> {
  const upstream = await httpUpstream(handler)
  t.teardown(upstream.close)
  return upstream
}

async function rawFor(t: Test, text: string | ((head: string) => string), ends = true): Promise<Upstream> {
  const upstream = await rawUpstream((socket, head) => {
    const bytes = Buffer.from(typeof text === 'string' ? text : text(head), 'latin1')
    if (ends) socket.end(bytes)
    else socket.write(bytes)
  })
  t.teardown(upstream.close)
  return upstream
}

async function readAll(req: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = []
  for await (const piece of req) pieces.push(piece as Buffer)
  return Buffer.concat(pieces).toString()
}

const echo: RequestListener = async (req: IncomingMessage, res: ServerResponse) => {
  const body = await readAll(req)
  res.end(JSON.stringify({ method: req.method, url: req.url, headers: req.rawHeaders, body }))
}

t.test(
  '[edge/passthrough.1, edge/passthrough.4, edge/passthrough.14] the request that the upstream receives',
  async t => {
    const { port, url } = await upstreamFor(t, echo)
    const { ask } = makeBed(t, { edge: { baseUrl: `${url}/api` } })
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
    const client = { headers: { Authorization: 'secret', Cookie: 'sid=1', 'X-Client': '1', traceparent } }
    t.same((await ask({ path: '/x?a=1' }, '', client)).json(), {
      method: 'GET',
      url: '/api/x?a=1',
      headers: ['Host', `127.0.0.1:${port}`, 'traceparent', traceparent, 'Connection', 'keep-alive'],
      body: '',
    })
    const headers = {
      traceparent,
      Host: 'evil.test',
      'content-length': '999',
      'Transfer-Encoding': 'chunked',
      'X-Two': ['1', '2'],
    }
    const trace = ['traceparent', traceparent]
    const own = [
      'Host',
      `127.0.0.1:${port}`,
      ...trace,
      'X-Two',
      '1',
      'X-Two',
      '2',
      'Content-Length',
      '7',
      'Connection',
      'keep-alive',
    ]
    t.same((await ask({ url: `${url}/y`, headers }, 'h\u00e9llo!', { method: 'POST', body: 'own' })).json(), {
      method: 'POST',
      url: '/y',
      headers: own,
      body: 'h\u00e9llo!',
    })
    t.match((await ask({ path: '/', method: 'PUT' })).json(), { method: 'PUT', headers: /Content-Length,0/ })
    t.match((await ask({ path: '/', method: 'DELETE' }, 'x')).json(), { method: 'DELETE', body: 'x' })
    t.match((await ask({ path: '/', method: 'GET' }, Buffer.from([0xc3, 0x28]))).json(), {
      headers: /Content-Length,2/,
    })
    const { body, ...rest } = await ask({ path: '/' }, '', { method: 'HEAD' })
    t.match([rest.status, body.length], [200, 0])
  },
)

t.test('[edge/passthrough.2] without an edge block', async t => {
  const { refusal } = makeBed(t, { policy: { edge: null } })
  t.equal(await refusal({ url: 'http://127.0.0.1/' }), '502 edge proxy disabled for this function')
})

t.test('[edge/passthrough.3, edge/passthrough.15] refusals reach the client as 502', async t => {
  const { refusal, admission } = makeBed(t)
  t.equal(await refusal({}), `502 ${FAILED}proxy.url or proxy.path is required`)
  t.equal(
    await refusal({ url: 'http://127.0.0.1/', headers: { 'x-a': 'b\r\nc' } }),
    '502 invalid runtime response: proxy.headers: x-a holds a character that a header cannot carry',
  )
  t.equal(admission.total(), 0)
})

t.test('[edge/passthrough.8, edge/passthrough.9] private and special addresses', async t => {
  const { url } = await upstreamFor(t, () => t.fail('reached'))
  const names: Record<string, string[]> = {
    'mixed.test': ['8.8.8.8', '127.0.0.1'],
    'six.test': ['::1'],
    'mapped.test': ['::ffff:127.0.0.1'],
    'meta.test': ['169.254.169.254'],
    'wild.test': ['0.0.0.0'],
    'none.test': [],
  }
  const resolve = (name: string) =>
    name in names
      ? Promise.resolve(names[name]!.map(address => ({ address, family: address.includes(':') ? 6 : 4 })))
      : Promise.reject(Object.assign(new Error(`getaddrinfo ENOTFOUND ${name}`), { code: 'ENOTFOUND' }))
  const strict = makeBed(t, { edge: { allowPrivate: false }, resolve })
  const { port } = new URL(url)
  const denied = `502 ${FAILED}proxy denied: private host not allowed`
  const hosts =
    '127.0.0.1 127.1 2130706433 0x7f.1 0177.1 127.0.0.1. 0 [::1] [::ffff:127.0.0.1] [::] 10.0.0.1 169.254.169.254'
  for (const host of [...hosts.split(' '), ...Object.keys(names).slice(0, -1)])
    t.equal(await strict.refusal({ url: `http://${host}:${port}/` }), denied, host)
  t.equal(await strict.refusal({ url: 'http://none.test/' }), `502 ${FAILED}proxy request failed: name not resolved`)
  t.equal(await strict.refusal({ url: 'http://gone.test/' }), `502 ${FAILED}proxy request failed: name not resolved`)
  const loose = makeBed(t, { resolve })
  const special = `502 ${FAILED}proxy denied: special address not allowed`
  for (const host of ['0', '[::]', '169.254.169.254', '[fe80::1]', '224.0.0.1', 'meta.test', 'wild.test'])
    t.equal(await loose.refusal({ url: `http://${host}:${port}/` }), special, host)
})

t.test('[edge/passthrough.10] addresses of this machine are private, whatever range they are in', async t => {
  const resolve = () => Promise.resolve([{ address: '8.8.4.4', family: 4 }])
  const { refusal } = makeBed(t, { edge: { allowPrivate: false }, interfaces: () => ['8.8.4.4'], resolve })
  t.equal(await refusal({ url: 'http://own.test/' }), `502 ${FAILED}proxy denied: private host not allowed`)
})

t.test('[edge/passthrough.11] only checked addresses are reached', async t => {
  const good = await upstreamFor(t, (_req, res) => res.end('good'))
  const bad = await httpUpstream(() => t.fail('reached'), '127.0.0.2')
  t.teardown(bad.close)
  // The name changes its address at every look: a second look would find the gateway's neighbour.
  const answers = ['127.0.0.1', '127.0.0.9']
  let looks = 0
  const resolve = () => Promise.resolve([{ address: answers[looks++]!, family: 4 }])
  const { ask, refusal } = makeBed(t, { resolve })
  const answer = await ask({ url: `http://rebind.test:${good.port}/` })
  t.equal(answer.text(), 'good')
  t.equal(looks, 1)
  // The kept connection is to another address than the name has now: it must not be used.
  t.match(await refusal({ url: `http://rebind.test:${good.port}/` }), 'connection refused')
  t.equal(good.connections(), 1)
})

t.test('[edge/passthrough.11] of several addresses one that answers is enough', async t => {
  const upstream = await upstreamFor(t, (_req, res) => res.end('second'))
  const resolve = () => Promise.resolve(['127.0.0.9', '127.0.0.1'].map(address => ({ address, family: 4 })))
  const { ask } = makeBed(t, { resolve })
  t.equal((await ask({ url: `http://two.test:${upstream.port}/` })).text(), 'second')
})

t.test('[edge/passthrough.12, edge/passthrough.13] this gateway as its own upstream', async t => {
  const files = { 'index.js': 'exports.handler = () => "home"', 'console_x.js': 'exports.handler = () => "near"' }
  const config = { edge: { allow_private: true }, invoke: { methods: ['GET'] } }
  const handler = 'exports.handler = ({ query }) => ({ proxy: { url: query.url } })'
  const tree = makeTree({ ...files, 'p/handler.js': handler, 'p/fn.config.json': { json: config } })
  t.teardown(tree.cleanup)
  const gateway = await createGateway({ functionsRoot: tree.root, consoleWriteEnabled: true })
  t.teardown(() => gateway.close())
  const { port } = await gateway.listen({ port: 0, host: '0.0.0.0' })
  const get = async (path: string, host = '127.0.0.1') => {
    const { status, body } = await gateway.inject(`/p?url=${encodeURIComponent(`http://${host}:${port}${path}`)}`)
    return `${status} ${body}`
  }
  const denied = '502 {"error":"edge proxy failed: proxy denied: control-plane path not allowed"}'
  t.match(await get('/'), '200')
  t.match(await get('/console_x'), '200')
  const paths = [
    '/_fn/health',
    '//_fn/health',
    '/%5ffn/health',
    '/%255ffn/health',
    '/x/../_fn/health',
    '/console',
    '/x/_fn/health',
  ]
  for (const path of [...paths, '/x%2f..%2f_fn/health', '/_fn%2fhealth', '/app/console'])
    t.equal(await get(path), denied, path)
  for (const host of ['127.0.0.2', 'localhost', '2130706433', '[::ffff:127.0.0.1]'])
    t.equal(await get('/x/_fn', host), denied, host)
})

t.test('[edge/passthrough.16] the answer as it is', async t => {
  const { url } = await upstreamFor(t, (req, res) => {
    const status = Number(req.url!.slice(1))
    res.writeHead(status, [
      'Set-Cookie',
      'a=1',
      'Set-Cookie',
      'b=2',
      'Set-Cookie',
      'fngw_session=mine; Path=/',
      'Location',
      'http://127.0.0.1/_fn',
      'X-Named',
      'x',
      'Connection',
      'X-Named',
    ])
    res.end(status === 204 || status === 304 ? undefined : 'body')
  })
  const { ask } = makeBed(t, { edge: { baseUrl: url } })
  for (const status of [200, 201, 204, 301, 302, 304, 307, 404, 418, 500, 503, 599]) {
    const answer = await ask({ path: `/${status}` })
    t.match(answer, { status, headers: { 'set-cookie': 'a=1, b=2', location: 'http://127.0.0.1/_fn' } })
    t.equal(answer.rawHeaders.filter(text => text === 'Set-Cookie').length, 2)
    t.notOk('x-named' in answer.headers)
    t.equal(answer.text(), status === 204 || status === 304 ? '' : 'body')
  }
  const head = await ask({ path: '/200' }, '', { method: 'HEAD' })
  t.match([head.status, head.text()], [200, ''])
})

t.test('[edge/passthrough.16, edge/passthrough.22] answers on the edge of HTTP', async t => {
  const rows: [string, string, string | RegExp][] = [
    ['HTTP/1.0, ended by its close', 'HTTP/1.0 200 OK\r\n\r\nold', '200 old'],
    ['no length, ended by its close', 'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nopen', '200 open'],
    [
      'informational first',
      'HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok',
      '200 ok',
    ],
    [
      'chunked with trailers',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: 1\r\n\r\n',
      '200 ok',
    ],
    [
      'an upgrade that is none',
      'HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nok',
      '200 ok',
    ],
    ['many headers', `HTTP/1.1 200 OK\r\n${'X-A: b\r\n'.repeat(3000)}Content-Length: 2\r\n\r\nok`, '200 ok'],
    [
      'more than its length',
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil',
      '200 ok',
    ],
    [
      'another protocol',
      'HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n',
      /asked for another protocol/,
    ],
    ['status 600', 'HTTP/1.1 600 Odd\r\nContent-Length: 0\r\n\r\n', /answered with status 600/],
    ['less than its length', 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok', /connection reset/],
    ['chunks without an end', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok', /connection reset/],
    ['no answer', '', /connection reset/],
    ['half a head', 'HTTP/1.1 200 OK\r\nX-A: b\r\n', /connection reset|malformed/],
    ['not HTTP', 'SSH-2.0-OpenSSH_9.2\r\n\r\n', /malformed response/],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok', /malformed response/],
    [
      'length and chunks',
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
      /malformed response/,
    ],
    [
      'a coding before chunks',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
      /Transfer-Encoding other than chunked/,
    ],
    ['a coding alone', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok', /other than chunked|malformed/],
    ['the coding that is none', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nok', '200 ok'],
    [
      'a bad chunk',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
      /malformed response|connection reset/,
    ],
    ['a control character in a header', 'HTTP/1.1 200 OK\r\nX-A: a\x01b\r\n\r\n', /malformed/],
    ['a huge head', `HTTP/1.1 200 OK\r\nX-A: ${'x'.repeat(70_000)}\r\n\r\n`, /headers of the answer are too large/],
  ]
  for (const [title, bytes, expected] of rows) {
    const upstream = await rawFor(t, bytes)
    const { ask, admission, proxy } = makeBed(t, { edge: { baseUrl: upstream.url } })
    const answer = await ask({ path: '/secret-path' })
    const text = `${answer.status} ${answer.text()}`
    if (typeof expected === 'string') {
      t.equal(text, expected, title)
    } else {
      t.match(text, expected, title)
      t.equal(answer.status, 502, title)
      t.notMatch(text, /127\.0\.0\.1|secret-path|\d{5}/, title)
    }
    t.same([admission.total(), proxy.active], [0, 0], title)
  }
})

t.test('[edge/passthrough.22] connections that fail', async t => {
  const resetting = await rawUpstream(socket => socket.resetAndDestroy())
  t.teardown(resetting.close)
  const closed = await httpUpstream(() => {})
  await closed.close()
  const { refusal } = makeBed(t)
  t.equal(await refusal({ url: resetting.url }), `502 ${FAILED}proxy request failed: connection reset`)
  t.equal(await refusal({ url: closed.url }), `502 ${FAILED}proxy request failed: connection refused`)
  t.equal(
    await refusal({ url: closed.url.replace('http', 'https') }),
    `502 ${FAILED}proxy request failed: connection refused`,
  )
  const plain = await upstreamFor(t, echo)
  t.equal(
    await refusal({ url: plain.url.replace('http', 'https') }),
    `502 ${FAILED}proxy request failed: TLS handshake failed`,
  )
})

t.test('[edge/passthrough.23] TLS', async t => {
  const { ca, key, cert, selfSigned } = makeCertificates()
  const upstream = await tlsUpstream(key, cert, (req, res) => res.end(`hello ${req.headers.host}`))
  const forged = await tlsUpstream(key, selfSigned, () => t.fail('reached'))
  t.teardown(upstream.close)
  t.teardown(forged.close)
  const resolve = () => Promise.resolve([{ address: '127.0.0.1', family: 4 }])
  const trusting = makeBed(t, { ca, resolve })
  const named = await trusting.ask({ url: `https://Upstream.TEST.:${upstream.port}/` })
  t.equal(named.text(), `hello upstream.test:${upstream.port}`)
  t.equal((await trusting.ask({ url: upstream.url })).status, 200, 'by address')
  const rows: [string, string][] = [
    [`https://other.test:${upstream.port}/`, 'TLS certificate is for another name'],
    [`https://upstream.test:${forged.port}/`, 'TLS certificate is not trusted'],
  ]
  for (const [url, why] of rows) t.equal(await trusting.refusal({ url }), `502 ${FAILED}proxy request failed: ${why}`)
  const before = process.env.NODE_TLS_REJECT_UNAUTHORIZED
  const warnings = process.listeners('warning')
  process.removeAllListeners('warning')
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0'
  t.teardown(() => {
    for (const listener of warnings) process.on('warning', listener)
    if (before === undefined) delete process.env.NODE_TLS_REJECT_UNAUTHORIZED
    else process.env.NODE_TLS_REJECT_UNAUTHORIZED = before
  })
  const usual = makeBed(t, { resolve })
  t.match(await usual.refusal({ url: `https://upstream.test:${upstream.port}/` }), 'TLS certificate is not trusted')
})

t.test('[edge/passthrough.5, edge/passthrough.18] the limit on received bytes', async t => {
  const { url } = await upstreamFor(t, (req, res) => {
    const [, kind, size] = req.url!.split('/')
    if (kind === 'known') res.setHeader('Content-Length', size!)
    res.write(Buffer.alloc(Number(size), 'x'))
    res.end()
  })
  const limit = 1000
  const { ask, refusal } = makeBed(t, { edge: { baseUrl: url, maxResponseBytes: limit } })
  const tooLarge = (bytes: number) => `502 ${FAILED}upstream response too large: the limit is ${bytes} bytes`
  for (const kind of ['known', 'chunked']) {
    t.equal((await ask({ path: `/${kind}/1000` })).body.length, 1000, kind)
    t.equal(await refusal({ path: `/${kind}/1001` }), tooLarge(limit), kind)
    t.equal(await refusal({ path: `/${kind}/11`, max_response_bytes: 10 }), tooLarge(10), kind)
    t.equal(await refusal({ path: `/${kind}/1001`, max_response_bytes: 5000 }), tooLarge(limit), `${kind}, raised`)
  }
  const large = makeBed(t, { edge: { baseUrl: url, maxResponseBytes: 3_000_000 } })
  t.equal((await large.ask({ path: '/chunked/3000000' })).body.length, 3_000_000)
  t.equal((await large.ask({ path: '/known/3000000' })).headers['content-length'], '3000000')
  await t.rejects(large.ask({ path: '/chunked/3000001' }), /cut off/, 'an answer that has begun is cut')
  t.equal(await large.refusal({ path: '/known/3000001' }), tooLarge(3_000_000))
  t.equal(
    (await large.ask({ path: '/known/99999999' }, '', { method: 'HEAD' })).status,
    200,
    'a HEAD answer only names a length',
  )
  t.same([large.admission.total(), large.proxy.active], [0, 0])
})

t.test('[edge/passthrough.20] the limit on decoded bytes; the body itself is passed on as it is', async t => {
  const bodies: Record<string, { coding: string; body: Uint8Array }> = {
    small: { coding: 'gzip', body: gzipSync('hello') },
    bomb: { coding: 'gzip', body: gzipSync(Buffer.alloc(50_000_000)) },
    brotli: { coding: 'br', body: brotliCompressSync(Buffer.alloc(5_000_000)) },
    nested: { coding: 'gzip, gzip', body: gzipSync(gzipSync(Buffer.alloc(5_000_000))) },
    lie: { coding: 'gzip', body: Buffer.from('hello') },
    cut: { coding: 'gzip', body: gzipSync('hello').subarray(0, 15) },
    unknown: { coding: 'zstd', body: Buffer.from('hello') },
    five: {
      coding: 'gzip, gzip, gzip, gzip, gzip',
      body: [1, 2, 3, 4, 5].reduce<Buffer>(body => gzipSync(body), Buffer.alloc(5_000_000)),
    },
    prototype: { coding: 'constructor', body: Buffer.from('hello') },
    large: { coding: 'gzip', body: gzipSync(Buffer.alloc(900_000, 'x'), { level: 0 }) },
  }
  const { url } = await upstreamFor(t, (req, res) => {
    const { coding, body } = bodies[req.url!.slice(1)]!
    res.writeHead(200, { 'Content-Encoding': coding })
    res.write(body.subarray(0, body.length / 2))
    res.end(body.subarray(body.length / 2))
  })
  const { ask, refusal, admission } = makeBed(t, { edge: { baseUrl: url } })
  for (const name of ['small', 'large']) {
    const answer = await ask({ path: `/${name}` })
    t.match(answer.headers, { 'content-encoding': bodies[name]!.coding }, name)
    t.ok(answer.body.equals(bodies[name]!.body), name)
  }
  for (const name of ['bomb', 'brotli', 'nested'])
    t.equal(
      await refusal({ path: `/${name}` }),
      `502 ${FAILED}upstream response too large: the limit is 1000000 bytes`,
      name,
    )
  for (const name of ['lie', 'cut'])
    t.equal(
      await refusal({ path: `/${name}` }),
      `502 ${FAILED}upstream response does not match its Content-Encoding`,
      name,
    )
  for (const name of ['five', 'unknown', 'prototype'])
    t.equal(
      await refusal({ path: `/${name}` }),
      `502 ${FAILED}upstream answered with a Content-Encoding that cannot be counted`,
      name,
    )
  for (const name of ['bomb', 'unknown'])
    t.equal((await ask({ path: `/${name}` }, '', { method: 'HEAD' })).status, 200, 'nothing to decode')
  t.equal(admission.total(), 0)
})

/** Records what arrives and takes nothing until `isTaking` is set. */
class SlowCall extends Call {
  readonly seen: string[] = []
  bytes = 0
  isTaking = false
  wake = () => {}

  #note(text: string): void {
    this.seen.push(text)
    this.wake()
  }

  override onHead(head: ReplyHead, body: Buffer, stream: boolean): void {
    this.#note(`${stream ? 'stream' : 'answer'} ${head.status} ${body}`)
  }

  override onPiece(body: Buffer): void {
    this.bytes += body.length
    if (this.isTaking) this.grant(body.length)
    this.wake()
  }

  override onDone(error: GatewayError | null): void {
    this.#note(`end ${error?.message ?? 'ok'}`)
  }

  override onFailed(error: GatewayError): void {
    this.#note(`refused ${error.status} ${error.message}`)
  }

  async until(done: () => boolean): Promise<void> {
    while (!done()) {
      await new Promise<void>(resolve => {
        this.wake = resolve
      })
    }
  }
}

t.test(
  '[edge/passthrough.19, edge/passthrough.31] a slow client stops the upstream, and is cut when it takes nothing',
  async t => {
    const total = 30_000_000
    let sent = 0
    const piece = Buffer.alloc(100_000)
    const { url } = await upstreamFor(t, (_req, res) => {
      const push = (): void => {
        while (sent < total) {
          sent += piece.length
          if (!res.write(piece)) {
            res.once('drain', push)
            return
          }
        }
        res.end()
      }
      push()
    })
    const clock = new FakeClock()
    const bed = makeBed(t, { clock, edge: { baseUrl: url, maxResponseBytes: total } })
    const { direct, fn, invoker } = bed
    direct({ path: '/' })
    const call = new SlowCall(fn, invoker)
    invoker.start(call)
    await call.until(() => call.bytes >= EDGE_WINDOW_BYTES)
    const handedOn = call.bytes
    for (let round = 0; round < 50; round += 1) await new Promise(resolve => setImmediate(resolve))
    t.equal(call.bytes, handedOn, 'nothing more before the client takes some')
    t.ok(handedOn < EDGE_WINDOW_BYTES * 4, `${handedOn} bytes handed on`)
    t.ok(sent < total)
    clock.advance(EDGE_CLIENT_MS - 1)
    t.same(call.seen, ['stream 200 '])
    call.isTaking = true
    call.grant(call.bytes)
    await call.until(() => call.seen.length > 1)
    t.equal(call.bytes, total)
    t.same(call.seen, ['stream 200 ', 'end ok'])

    sent = 0
    const idle = new SlowCall(fn, invoker)
    invoker.start(idle)
    await idle.until(() => idle.bytes >= EDGE_WINDOW_BYTES)
    t.equal(bed.admission.total(), 1)
    clock.advance(EDGE_CLIENT_MS)
    t.same(idle.seen, [
      'stream 200 ',
      `end ${FAILED}client timeout: too little of the answer taken within ${EDGE_CLIENT_MS} ms`,
    ])
    t.same([bed.admission.total(), bed.proxy.active, clock.pending], [0, 0, 0])
  },
)

t.test('[edge/passthrough.32] an upstream that drips does not hold a place for ever', async t => {
  const clock = new FakeClock()
  let drip = () => {}
  const { url } = await upstreamFor(t, (_req, res) => {
    res.write('-')
    drip = () => res.write('-')
  })
  const { direct, fn, invoker, admission, proxy } = makeBed(t, {
    clock,
    edge: { baseUrl: url },
    policy: { timeoutMs: 5000 },
  })
  direct({ path: '/' })
  const call = new SlowCall(fn, invoker)
  call.isTaking = true
  const startedAt = clock.monotonic()
  invoker.start(call)
  await call.until(() => {
    clock.advance(EDGE_HOLD_MS)
    setImmediate(() => call.wake())
    return call.bytes > 0
  })
  while (call.seen.length === 1) {
    const { bytes } = call
    drip()
    await call.until(() => call.bytes > bytes || call.seen.length > 1)
    clock.advance(4000)
  }
  t.match(call.seen[1], new RegExp(`^end ${FAILED}upstream timeout: the answer was not complete within 600\\d\\d ms$`))
  t.ok(clock.monotonic() - startedAt < EDGE_ANSWER.minMs + 10_000)
  t.same([admission.total(), proxy.active, clock.pending], [0, 0, 0])
})

t.test('[edge/passthrough.21] time limits', async t => {
  const clock = new FakeClock()
  let onRequest = () => {}
  const { url } = await upstreamFor(t, (req, res) => {
    if (req.url === '/begun') {
      res.writeHead(200, { 'Content-Length': '10' })
      res.write('12345')
    }
    onRequest()
  })
  const { direct, fn, invoker, admission, proxy } = makeBed(t, {
    clock,
    edge: { baseUrl: url },
    policy: { timeoutMs: 500 },
  })
  const begin = async (directive: Record<string, unknown>, startedAt = 0) => {
    const asked = new Promise<void>(resolve => {
      onRequest = resolve
    })
    direct(directive)
    const call = new SlowCall(fn, invoker)
    call.startedAt = startedAt
    call.isTaking = true
    invoker.start(call)
    await asked
    return call
  }
  const rows: [string, Record<string, unknown>, number, number, string][] = [
    ["the function's", {}, 0, 500, 'timeout_ms 500'],
    ["the directive's", { timeout_ms: 40 }, 0, 40, 'proxy.timeout_ms 40'],
    ['a directive that wants more', { timeout_ms: 9000 }, 0, 500, 'timeout_ms 500'],
    ['what the handler left', {}, 300, 200, 'timeout_ms 500'],
  ]
  for (const [title, fields, spentMs, leftMs, limit] of rows) {
    const call = await begin({ path: '/silent', ...fields }, spentMs === 0 ? 0 : clock.monotonic() - spentMs)
    clock.advance(leftMs - 1)
    t.same(call.seen, [], title)
    clock.advance(1)
    t.same(call.seen, [`refused 504 ${FAILED}upstream timeout: no answer within ${limit}`], title)
  }
  const call = await begin({ path: '/begun' })
  await call.until(() => {
    clock.advance(EDGE_HOLD_MS)
    setImmediate(() => call.wake())
    return call.bytes === 5
  })
  clock.advance(500)
  t.same(call.seen, ['stream 200 ', `end ${FAILED}upstream timeout: nothing more of the answer within timeout_ms 500`])
  t.same([admission.total(), proxy.active, clock.pending], [0, 0, 0])
})

t.test('[edge/passthrough.21] a name server that is silent', async t => {
  const clock = new FakeClock()
  const { direct, fn, invoker } = makeBed(t, { clock, resolve: () => new Promise(() => {}) })
  direct({ url: 'http://silent.test/' })
  const call = new SlowCall(fn, invoker)
  invoker.start(call)
  clock.advance(fn.policy.timeoutMs)
  t.same(call.seen, [`refused 504 ${FAILED}upstream timeout: no answer within timeout_ms 2500`])
})

t.test('[edge/passthrough.17] a short answer is held back until it is whole, a long one streams', async t => {
  const clock = new FakeClock()
  let upstreamAnswer!: ServerResponse
  let onRequest = () => {}
  const { url } = await upstreamFor(t, (_req, res) => {
    upstreamAnswer = res
    res.writeHead(200, { 'Content-Type': 'text/event-stream' })
    res.write('data: 1\n\n')
    onRequest()
  })
  const { direct, fn, invoker } = makeBed(t, { clock, edge: { baseUrl: url } })
  const begin = async () => {
    const asked = new Promise<void>(resolve => {
      onRequest = resolve
    })
    direct({ path: '/' })
    const call = new SlowCall(fn, invoker)
    call.isTaking = true
    invoker.start(call)
    await asked
    return call
  }
  const whole = await begin()
  upstreamAnswer.end('data: 2\n\n')
  await whole.until(() => whole.seen.length > 0)
  t.same(whole.seen, ['answer 200 data: 1\n\ndata: 2\n\n'])
  const events = await begin()
  await events.until(() => {
    clock.advance(EDGE_HOLD_MS)
    setImmediate(() => events.wake())
    return events.bytes > 0
  })
  t.same(events.seen, ['stream 200 '], 'the first event does not wait for the second')
  upstreamAnswer.end()
  await events.until(() => events.seen.length > 1)
  t.same(events.seen, ['stream 200 ', 'end ok'])
})

t.test(
  '[edge/passthrough.24, edge/passthrough.25] the place is held until the end; a client that leaves ends all',
  async t => {
    let onRequest = () => {}
    let onGone = () => {}
    const { url } = await upstreamFor(t, (req, res) => {
      if (req.url === '/begun') res.write('x'.repeat(200_000))
      res.once('close', () => onGone())
      onRequest()
    })
    const { direct, handle, requestIds, lifecycle, admission, proxy } = makeBed(t, { edge: { baseUrl: url } })
    const server = new HttpServer({ handle, clock: systemClock, requestIds, lifecycle })
    const { port } = await server.listen(0, '127.0.0.1')
    t.teardown(() => server.close(0))
    for (const path of ['/silent', '/begun']) {
      const asked = new Promise<void>(resolve => {
        onRequest = resolve
      })
      const gone = new Promise<void>(resolve => {
        onGone = resolve
      })
      direct({ path })
      const client = connect(port, '127.0.0.1')
      client.write('GET /f HTTP/1.1\r\nHost: h\r\n\r\n')
      await asked
      if (path === '/begun') await once(client, 'data')
      t.equal(admission.total(), 1, path)
      client.destroy()
      await gone
      t.same([admission.total(), proxy.active], [0, 0], path)
    }
  },
)

t.test('[edge/passthrough.26] kept connections', async t => {
  const seen: string[] = []
  const upstream = await upstreamFor(t, (req, res) => {
    seen.push(req.method!)
    res.end('ok')
  })
  const { ask } = makeBed(t, { edge: { baseUrl: upstream.url } })
  for (const method of ['GET', 'GET', 'PUT', 'DELETE']) t.equal((await ask({ path: '/', method })).status, 200)
  t.equal(upstream.connections(), 1, 'reused')
  for (const method of ['POST', 'PATCH']) await ask({ path: '/', method })
  t.ok(
    upstream.connections() <= 3,
    'a request that may not be sent twice gets a new connection unless one was used just now',
  )
  t.same(seen, ['GET', 'GET', 'PUT', 'DELETE', 'POST', 'PATCH'])

  // The second request of a connection finds it closed.
  const counts = new Map<unknown, number>()
  const closing = await rawUpstream(socket => {
    const count = (counts.get(socket) ?? 0) + 1
    counts.set(socket, count)
    if (count === 1) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    else socket.resetAndDestroy()
  })
  t.teardown(closing.close)
  const again = makeBed(t, { edge: { baseUrl: closing.url } })
  t.equal((await again.ask({ path: '/' })).status, 200)
  t.equal((await again.ask({ path: '/' })).text(), 'ok', 'sent again on a new connection')
  t.same([...counts.values()], [2, 1])
})

t.test('[edge/passthrough.28] the doors without a client', async t => {
  const { url } = await upstreamFor(t, async (req, res) => {
    const body = await readAll(req)
    if (req.url === '/large') res.write(Buffer.alloc(300_000, 'x'))
    res.end(`${req.method} ${body}`)
  })
  const { direct, fn, invoker, admission } = makeBed(t, { edge: { baseUrl: url } })
  const request = { fn, id: 'i', method: 'PUT', path: '/f' }
  direct({ path: '/' }, 'in')
  const small = await invokeInternal(invoker, request)
  t.match([small.status, small.error, small.body.toString()], [200, null, 'PUT in'])
  direct({ path: '/large' })
  t.equal((await invokeInternal(invoker, request)).body.length, 300_004)
  direct({ path: '/..' })
  t.match(await invokeInternal(invoker, request), { status: 502, error: { code: 'EDGE_FAILED' } })
  const controller = new AbortController()
  direct({ path: '/' })
  const stopped = invokeInternal(invoker, { ...request, signal: controller.signal })
  controller.abort()
  t.match(await stopped, { status: 0 })
  t.equal(admission.total(), 0)
})

t.test('[edge/passthrough.29] close', async t => {
  let onRequest = (_res: ServerResponse) => {}
  const { url } = await upstreamFor(t, (_req, res) => onRequest(res))
  const begin = async (bed: ReturnType<typeof makeBed>) => {
    const asked = new Promise<ServerResponse>(resolve => {
      onRequest = resolve
    })
    const answer = bed.ask({ path: '/' })
    return { answer, upstream: await asked }
  }
  const patient = makeBed(t, { edge: { baseUrl: url } })
  const running = await begin(patient)
  const closed = patient.proxy.close(60_000)
  t.equal(await patient.refusal({ path: '/' }), '503 gateway is shutting down')
  running.upstream.end('done')
  t.equal((await running.answer).text(), 'done', 'what runs is finished')
  await closed

  const clock = new FakeClock()
  const hurried = makeBed(t, { edge: { baseUrl: url }, clock, policy: { timeoutMs: 60_000 } })
  const cut = await begin(hurried)
  const ended = hurried.proxy.close(1000)
  clock.advance(1000)
  await ended
  t.equal((await cut.answer).status, 503)
})

t.test('[edge/passthrough.1, edge/passthrough.30] handlers of every language', async t => {
  const { url } = await upstreamFor(t, echo)
  const config = { json: { edge: { base_url: url, allow_private: true }, timeout_ms: 20_000 } }
  const tree = makeTree({
    'n/handler.js':
      'exports.handler = () => ({ proxy: { path: "/x?a=1", method: "POST", headers: { "x-a": "1" }, body: "hi" } })',
    'p/handler.py':
      'def handler(event):\n    return {"proxy": {"path": "/x?a=1", "method": "POST", "headers": {"x-a": "1"}, "body": "hi"}}\n',
    'h/handler.php':
      '<?php function handler($event) { return ["proxy" => ["path" => "/x?a=1", "method" => "POST", "headers" => ["x-a" => "1"], "is_base64" => true, "body_base64" => "aGk="]]; }',
    'l/handler.lua':
      'function handler(event) return { proxy = { path = "/x?a=1", method = "POST", headers = { ["x-a"] = "1" }, is_base64 = true, body_base64 = "aGk=" } } end',
    'w/handler.js': 'exports.handler = () => ({ proxy: { path: "/x" } })',
    ...Object.fromEntries(['n', 'p', 'h', 'l'].map(name => [`${name}/fn.config.json`, config])),
    'w/fn.config.json': { json: { timeout_ms: 20_000 } },
  })
  t.teardown(tree.cleanup)
  const gateway = await createGateway({ functionsRoot: tree.root })
  t.teardown(() => gateway.close())
  for (const name of ['n', 'p', 'h', 'l']) {
    const answer = await gateway.inject(`/${name}`)
    t.equal(answer.status, 200, name)
    t.match(
      answer.json(),
      { method: 'POST', url: '/x?a=1', headers: /x-a,1,traceparent,[^,]+,Content-Length,2/, body: 'hi' },
      name,
    )
  }
  t.match((await gateway.inject('/w')).text(), 'edge proxy disabled for this function')
  t.match(await gateway.invoke('n'), { status: 200, error: null })
})

t.test('[observe/trace.5, observe/metrics.7] an upstream request carries the trace of its call', async t => {
  const trace = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
  const own = '00-11111111111111111111111111111111-2222222222222222-00'
  const { url } = await upstreamFor(t, ({ headers }, res) => {
    res.end(JSON.stringify({ parent: headers.traceparent, state: headers.tracestate }))
  })
  const { ask, proxy } = makeBed(t)
  const headers = { traceparent: trace, tracestate: 'a=1' }
  t.same((await ask({ url }, '', { headers })).json(), { parent: trace, state: 'a=1' })
  t.same((await ask({ url, headers: { TraceParent: own } }, '', { headers })).json(), { parent: own })
  t.same((await ask({ url, headers: { tracestate: 'b=2' } }, '', { headers })).json(), { parent: trace, state: 'b=2' })
  t.match((await ask({ url })).json(), { parent: /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/ })
  t.equal((await ask({ url: 'ftp://x' })).status, 502)
  t.equal((await ask({ url: 'http://127.0.0.1:1/' })).status, 502)
  t.same(proxy.results, { answered: 4, failed: 1, refused: 1, left: 0 })
})
