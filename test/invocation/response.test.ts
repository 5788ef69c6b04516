import t from 'tap'
import type { GatewayError } from '../../lib/core/errors.ts'
import { ReplyHeads, toReplyHead } from '../../lib/invocation/response.ts'

const reasonOf = (text: string): string => {
  try {
    new ReplyHeads().read(text)
  } catch (error) {
    t.match(error, { code: 'CONTRACT_BROKEN', status: 502 })
    return (error as GatewayError).message
  }
  return 'accepted'
}

t.test('[invocation/response.1] a reply is an object with status and perhaps headers', async t => {
  t.same(new ReplyHeads().read('{"status":200}'), {
    status: 200,
    headers: [],
    hasBody: true,
    length: null,
    text: 'HTTP/1.1 200 OK\r\n',
    proxy: null,
  })
  t.same(new ReplyHeads().read('{"status":201,"headers":null,"length":5,"more":1}').length, 5)
  t.match(new ReplyHeads().read('{"status":404,"headers":{"dAte":"now","A":["b","c"]}}'), {
    text: 'HTTP/1.1 404 Not Found\r\ndAte: now\r\nA: b\r\nA: c\r\n',
    isDated: true,
  })
  t.equal(new ReplyHeads().read('{"status":304}').text, undefined, 'no body: not sent the short way')
  for (const text of ['', 'x', '[]', 'null', '"a"', '5', '{"status":200', '\u0000']) {
    t.match(reasonOf(text), /^invalid runtime response: the reply/, text)
  }
  for (const length of ['-1', '1.5', '"5"', '1e99', '{}', 'true'])
    t.match(reasonOf(`{"status":200,"length":${length}}`), 'length must be a number of bytes', length)
})

t.test('[invocation/response.2] status is an integer from 100 to 599 and ends the request', async t => {
  for (const status of [200, 204, 299, 304, 400, 418, 500, 599]) t.equal(toReplyHead({ status }).status, status)
  for (const status of ['"200"', '99', '600', '999', '-1', '0', '200.5', 'null', 'true', '[200]', '{}', '1e3']) {
    t.match(reasonOf(`{"status":${status}}`), 'status must be an integer from 100 to 599', status)
  }
  t.match(reasonOf('{}'), 'got nothing')
  for (const status of [100, 101, 103, 199]) t.match(reasonOf(`{"status":${status}}`), 'informational')
})

t.test('[invocation/response.3] headers are strings or arrays of strings that a header can carry', async t => {
  t.same(toReplyHead({ status: 200, headers: { 'Set-Cookie': ['a=1', 'b=2'], 'X-Y': 'caf\xe9\t!' } }).headers, [
    'Set-Cookie',
    'a=1',
    'Set-Cookie',
    'b=2',
    'X-Y',
    'caf\xe9\t!',
  ])
  t.same(toReplyHead({ status: 200, headers: { a: [] } }).headers, [])
  for (const headers of ['[]', '[["a","b"]]', '"a: b"', '5', 'true'])
    t.match(reasonOf(`{"status":200,"headers":${headers}}`), 'headers must be an object', headers)
  for (const value of ['1', 'null', 'true', '{}', '[1]', '["a",null]', '[["a"]]'])
    t.match(reasonOf(`{"status":200,"headers":{"x":${value}}}`), 'header "x" must be a string or strings', value)
  for (const value of ['a\r\nb', 'a\nb', 'a\rb', '\u0000', '\u007f', '\u20ac', '\ud83d\ude00', '\u001b[31m'])
    t.match(
      reasonOf(JSON.stringify({ status: 200, headers: { x: value } })),
      'which HTTP does not allow there',
      JSON.stringify(value),
    )
  for (const name of ['', 'a b', 'a:', 'a\r\nb', 'caf\u00e9', 'x\u0000', '(a)', 'a\nb: c'])
    t.match(
      reasonOf(JSON.stringify({ status: 200, headers: { [name]: 'v' } })),
      'is not allowed in HTTP',
      JSON.stringify(name),
    )
  const many = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`x-${i}`, '0123456789']))
  t.match(reasonOf(JSON.stringify({ status: 200, headers: many })), 'larger than 65536')
})

t.test('[invocation/response.4] headers of the connection are dropped', async t => {
  const headers = {
    Connection: 'close, X-Hop',
    'Keep-Alive': '1',
    'transfer-encoding': 'chunked',
    Upgrade: 'h2',
    TE: 'x',
    Trailer: 'x',
    'Content-Length': '5',
    'X-REQUEST-ID': 'mine',
    'x-hop': '1',
    'x-kept': '2',
  }
  t.same(toReplyHead({ status: 200, headers }).headers, ['x-kept', '2'])
})

t.test('[invocation/response.4] a handler does not widen the scope of a service worker over the console', async t => {
  const headers = { 'Service-Worker-Allowed': '/', A: 'b' }
  t.same(toReplyHead({ status: 200, headers }).headers, ['A', 'b'])
  t.same(toReplyHead({ status: 200, headers }, false).headers, ['Service-Worker-Allowed', '/', 'A', 'b'])
  const text = JSON.stringify({ status: 200, headers })
  t.same(new ReplyHeads().read(text).headers, ['A', 'b'])
  t.same(new ReplyHeads(false).read(text).headers, ['Service-Worker-Allowed', '/', 'A', 'b'])
})

t.test('[invocation/response.4] the cookie of the gateway is not set by a handler', async t => {
  for (const cookie of [
    'fngw_session=x',
    ' fngw_session=x; Path=/',
    'fngw_session',
    '=fngw_session=x',
    'fngw_session =x',
  ])
    t.same(
      toReplyHead({ status: 200, headers: { 'Set-Cookie': ['a=1', cookie] } }).headers,
      ['Set-Cookie', 'a=1'],
      cookie,
    )
  for (const cookie of ['fngw_session2=x', 'a=fngw_session=x', 'FNGW_SESSION=x', 'x_fngw_session=1'])
    t.same(toReplyHead({ status: 200, headers: { 'set-cookie': cookie } }).headers, ['set-cookie', cookie], cookie)
})

t.test('[invocation/response.5] the reason names field and value', async t => {
  t.equal(
    reasonOf('{"status":"200"}'),
    'invalid runtime response: status must be an integer from 100 to 599, got "200" (string)',
  )
  t.ok(reasonOf(JSON.stringify({ status: 'x'.repeat(1000) })).length < 250, 'bounded')
})

t.test('[invocation/response.6] 204 and 304 have no body', async t => {
  for (const [status, hasBody] of [
    [200, true],
    [204, false],
    [205, true],
    [304, false],
    [404, true],
  ] as const)
    t.equal(toReplyHead({ status }).hasBody, hasBody)
})

t.test('[invocation/response.7] heads are remembered by their text', async t => {
  const heads = new ReplyHeads()
  const text = '{"status":200,"headers":{"a":"b"}}'
  const first = heads.read(text)
  t.equal(heads.read(text), first)
  for (let i = 0; i < 1000; i++) heads.read(`{"status":200,"headers":{"etag":"${i}"}}`)
  t.not(heads.read(text), first, 'bounded')
  t.same(heads.read(text), first)
  const long = JSON.stringify({ status: 200, headers: { a: 'x'.repeat(2000) } })
  t.not(heads.read(long), heads.read(long), 'long ones are not kept')
  const directive = '{"proxy":{"path":"/x"}}'
  t.not(heads.read(directive), heads.read(directive))
})

t.test('[invocation/response.9] a directive is handed on as it is', async t => {
  t.same(toReplyHead({ proxy: { path: '/x', headers: {} } }).proxy, { path: '/x', headers: {} })
  t.equal(toReplyHead({ status: 200, proxy: null }).proxy, null)
  for (const proxy of ['5', '"/x"', '[]', 'true']) t.match(reasonOf(`{"proxy":${proxy}}`), 'proxy must be an object')
})
