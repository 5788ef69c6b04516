import t from 'tap'
import type { Exchange } from '../../lib/http/exchange.ts'
import { MemoryRequest, MemoryResponse, MemorySocket } from '../../lib/http/inject.ts'
import { headerOfCall } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

interface Given {
  method?: string
  target?: string
  version?: string
  headers?: readonly string[]
  from?: string
  proxies?: readonly string[]
}

interface Seen {
  status: number
  error: string | undefined
  exchange: Exchange
  closes: boolean
  /** Header of the call, when a function was called. */
  call: Record<string, unknown> | undefined
}

/** One request as a parser hands it over, past the check. */
async function check(given: Given): Promise<Seen> {
  const methods = ['GET', 'POST'] as const
  const made = makePublic({ '/:rest*?': makeFn({ policy: { methods } }) }, { trustedProxyCidrs: given.proxies ?? [] })
  const socket = new MemorySocket(given.from ?? '198.51.100.7')
  const headers = [...(given.headers ?? ['Host', 'h.example'])]
  const req = new MemoryRequest(socket, given.method ?? 'GET', given.target ?? '/', headers, [])
  Object.defineProperty(req, 'httpVersion', { value: given.version ?? '1.1' })
  const body: Buffer[] = []
  const res = await new Promise<MemoryResponse>((resolve, reject) => {
    const response = new MemoryResponse(socket, {
      onHead: () => {},
      onChunk: chunk => body.push(chunk) > 0,
      onEnd: () => resolve(response),
      onCut: () => reject(new Error('cut')),
    })
    made.handle(req, response)
  })
  const text = Buffer.concat(body).toString()
  const call = made.runtime.calls[0]
  return {
    status: res.status,
    error: text.startsWith('{"error"') ? (JSON.parse(text) as { error: string }).error : undefined,
    exchange: made.finished[0]!,
    closes: !res.shouldKeepAlive,
    call: call && (headerOfCall(call) as Record<string, unknown>),
  }
}

const HOST = ['Host', 'h.example'] as const

t.test('[http/public.7, http/public.9, http/public.13] versions, expectations and hosts', async t => {
  const malformed = 'malformed Host header'
  const cases: [name: string, given: Given, status: number, error?: string][] = [
    ['plain', {}, 200],
    ['1.0 without a host', { version: '1.0', headers: [] }, 200],
    ['0.9', { version: '0.9', headers: [] }, 400, 'HTTP version 0.9 is not supported'],
    ['2.0', { version: '2.0' }, 400, 'HTTP version 2.0 is not supported'],
    ['1.0 with two hosts', { version: '1.0', headers: [...HOST, ...HOST] }, 400, 'more than one Host header'],
    [
      '1.0 with chunks',
      { version: '1.0', headers: ['Transfer-Encoding', 'chunked'] },
      400,
      'Transfer-Encoding is not allowed in HTTP/1.0',
    ],
    ['1.0 and an expectation, which means nothing there', { version: '1.0', headers: ['Expect', 'x'] }, 200],
    ['no host', { headers: [] }, 400, 'Host header is missing'],
    ['two hosts', { headers: [...HOST, 'host', 'h.example'] }, 400, 'more than one Host header'],
    ['100-continue in capitals', { headers: [...HOST, 'Expect', '100-Continue'] }, 200],
    ['another expectation', { headers: [...HOST, 'Expect', 'tea'] }, 417, 'expectation cannot be met'],
    [
      'gzip before chunks',
      { method: 'POST', headers: [...HOST, 'Transfer-Encoding', 'gzip, chunked'] },
      400,
      'Transfer-Encoding other than chunked is not supported',
    ],
    ['Chunked in capitals', { method: 'POST', headers: [...HOST, 'Transfer-Encoding', 'CHUNKED'] }, 200],
    ['empty host', { headers: ['Host', ''] }, 400, malformed],
    ['user in the host', { headers: ['Host', 'u@h'] }, 400, malformed],
    ['path in the host', { headers: ['Host', 'h/x'] }, 400, malformed],
    ['port in words', { headers: ['Host', 'h:http'] }, 400, malformed],
    ['port of six digits', { headers: ['Host', 'h:123456'] }, 400, malformed],
    ['half an address', { headers: ['Host', '[::1'] }, 400, malformed],
    ['an address', { headers: ['Host', '[::1]:80'] }, 200],
  ]
  for (const [name, given, status, error] of cases) {
    const seen = await check(given)
    t.equal(seen.status, status, name)
    t.equal(seen.error, error, name)
    t.equal(seen.closes, status !== 200, `${name}: what follows a refused request is not read`)
  }
})

t.test('[http/public.14] upgrades', async t => {
  const cases: [name: string, headers: readonly string[], status: number, closes: boolean][] = [
    ['to WebSocket', ['Connection', 'Upgrade', 'Upgrade', 'websocket'], 501, true],
    ['to one of two', ['Connection', 'keep-alive, Upgrade', 'Upgrade', 'h2c, WebSocket'], 501, true],
    ['to HTTP/2', ['Connection', 'Upgrade, HTTP2-Settings', 'Upgrade', 'h2c'], 200, true],
    ['not meant for this connection', ['Upgrade', 'websocket'], 200, false],
    ['to nothing', ['Connection', 'upgrade'], 200, false],
    ['a word that only looks like it', ['Connection', 'x-upgrade', 'Upgrade', 'h2c'], 200, false],
  ]
  for (const [name, headers, status, closes] of cases) {
    const seen = await check({ headers: [...HOST, ...headers] })
    t.equal(seen.status, status, name)
    t.equal(seen.closes, closes, name)
    if (status === 501) t.match(seen.error, /^WebSocket is not supported/, name)
  }
})

t.test('[http/public.10] the size of the header block counts what stands between names and values', async t => {
  // 1,000 names of three characters and 1,000 values of six, with their separators: 13 bytes each.
  const fill = (count: number, value: string) => Array.from({ length: count }, (_, i) => [`x${i % 90}`, value]).flat()
  const small = await check({ headers: [...HOST, ...fill(1000, 'v')] })
  t.equal(small.status, 200)
  const large = await check({ headers: [...HOST, ...fill(1000, 'v'.repeat(14))] })
  t.equal(large.status, 431)
  t.equal(large.error, 'request headers are larger than 16384 bytes')
})

t.test('[http/public.8] targets', async t => {
  const malformed = 'malformed request target'
  const cases: [
    target: string,
    want: { status: number; error?: string; path?: string; search?: string; host?: string },
  ][] = [
    ['/a/b?x=1?y', { status: 200, path: '/a/b', search: 'x=1?y', host: 'h.example' }],
    ['/a?', { status: 200, path: '/a', search: '' }],
    ['/a#b', { status: 400, error: 'request target holds a fragment' }],
    ['/a?b#c', { status: 400, error: 'request target holds a fragment' }],
    ['/%zz', { status: 400, error: 'malformed percent escape in path' }],
    [`/${'x'.repeat(8192)}`, { status: 414, error: 'request target is too long' }],
    [`/${'x'.repeat(8191)}`, { status: 200 }],
    ['http://good.example/x', { status: 200, path: '/x', search: '', host: 'good.example' }],
    ['HTTPS://good.example:81/x?y=1', { status: 200, path: '/x', search: 'y=1', host: 'good.example:81' }],
    ['http://good.example', { status: 200, path: '/', search: '', host: 'good.example' }],
    ['http://good.example?y=1', { status: 200, path: '/', search: 'y=1', host: 'good.example' }],
    ['http://good.example/%zz', { status: 400, error: 'malformed percent escape in path' }],
    ['http://good.example/#x', { status: 400, error: malformed }],
    ['http:///x', { status: 400, error: malformed }],
    ['http://u:p@good.example/x', { status: 400, error: malformed }],
    ['ftp://good.example/x', { status: 400, error: malformed }],
    ['*', { status: 400, error: malformed }],
    ['good.example:80', { status: 400, error: malformed }],
    ['', { status: 400, error: malformed }],
  ]
  for (const [target, { status, error, ...want }] of cases) {
    const seen = await check({ target })
    const name = target.slice(0, 40)
    t.equal(seen.status, status, name)
    t.equal(seen.error, error, name)
    if (status === 200) t.match(seen.exchange, want, name)
  }
  t.equal((await check({ method: 'OPTIONS', target: '*' })).status, 204)
})

t.test('[http/public.8] the authority of an absolute target replaces Host for everybody', async t => {
  const cases: [name: string, headers: readonly string[], version: string][] = [
    ['another host', ['A', '1', 'Host', 'evil.example', 'B', '2'], '1.1'],
    ['the same host', ['Host', 'good.example:81', 'A', '1', 'B', '2'], '1.1'],
    ['no host in 1.0', ['A', '1', 'B', '2'], '1.0'],
  ]
  for (const [name, headers, version] of cases) {
    const { call, exchange } = await check({ target: 'http://good.example:81/a%20b?x=1', headers, version })
    t.match(call, { path: '/a b', raw_path: '/a%20b?x=1', query: { x: '1' } }, name)
    t.same(call!.headers, { host: 'good.example:81', a: '1', b: '2' }, name)
    t.equal(exchange.host, 'good.example:81', name)
  }
  t.match(await check({ target: 'http://good.example?x=1' }), { call: { raw_path: '/?x=1' } })
})

const PROXIES = ['10.0.0.0/8', '127.0.0.1/32']

t.test('[http/public.16] the client behind a trusted proxy, or nobody', async t => {
  const cases: [name: string, from: string, headers: readonly string[], ip: string][] = [
    ['no proxy', '198.51.100.7', ['X-Forwarded-For', '203.0.113.9'], '198.51.100.7'],
    ['a proxy without a word', '10.0.0.1', [], '10.0.0.1'],
    ['a proxy and its client', '10.0.0.1', ['X-Forwarded-For', '203.0.113.9'], '203.0.113.9'],
    ['what the client wrote', '10.0.0.1', ['X-Forwarded-For', '127.0.0.1, 203.0.113.9'], '203.0.113.9'],
    ['two headers', '10.0.0.1', ['X-Forwarded-For', '127.0.0.1', 'x-forwarded-for', '203.0.113.9'], '203.0.113.9'],
    ['unknown', '10.0.0.1', ['X-Forwarded-For', 'unknown'], ''],
    ['unknown behind a client', '10.0.0.1', ['X-Forwarded-For', '203.0.113.9, unknown'], ''],
    ['a hidden name', '10.0.0.1', ['X-Forwarded-For', '_hidden'], ''],
    ['nothing in it', '10.0.0.1', ['X-Forwarded-For', ''], ''],
    ['nothing behind the comma', '10.0.0.1', ['X-Forwarded-For', '203.0.113.9,'], ''],
    ['Forwarded alone', '10.0.0.1', ['Forwarded', 'for=203.0.113.9'], ''],
    ['X-Real-IP alone', '10.0.0.1', ['X-Real-IP', '203.0.113.9'], ''],
    ['Via alone', '10.0.0.1', ['Via', '1.1 squid'], ''],
    ['only the protocol', '10.0.0.1', ['X-Forwarded-Proto', 'https'], ''],
    ['X-Real-IP names another', '10.0.0.1', ['X-Real-IP', '9.9.9.9', 'X-Forwarded-For', '203.0.113.9'], ''],
  ]
  for (const [name, from, forwarding, ip] of cases) {
    const { exchange, call } = await check({ from, headers: [...HOST, ...forwarding], proxies: PROXIES })
    t.equal(exchange.ip, ip, name)
    t.match(call, { client: { ip: ip === '' ? null : ip } }, name)
  }
})

t.test('[http/public.16] of X-Forwarded-Host the right-most entry counts', async t => {
  const cases: [name: string, from: string, value: string, host: string | null][] = [
    ['of a stranger', '198.51.100.7', 'good.example', 'h.example'],
    ['one', '10.0.0.1', 'good.example', 'good.example'],
    ['the left one was written by the client', '10.0.0.1', 'evil.example, real.example:81', 'real.example:81'],
    ['no host at all', '10.0.0.1', 'a b', null],
    ['empty', '10.0.0.1', '', null],
    ['nothing behind the comma', '10.0.0.1', 'evil.example, ', null],
  ]
  for (const [name, from, value, host] of cases) {
    const seen = await check({ from, headers: [...HOST, 'X-Forwarded-Host', value], proxies: PROXIES })
    t.equal(seen.status, host === null ? 400 : 200, name)
    if (host === null) t.equal(seen.error, 'malformed X-Forwarded-Host header', name)
    else t.equal(seen.exchange.host, host, name)
  }
})
