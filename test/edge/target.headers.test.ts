import t from 'tap'
import { toAnswerHeaders, toCodings } from '../../lib/edge/answer.ts'
import { toRequestHeaders } from '../../lib/edge/target.ts'
import { toTraceHeaders } from '../../lib/edge/transfer.ts'

t.test('[edge/passthrough.14, edge/passthrough.15] headers of the request', async t => {
  t.same(toRequestHeaders(undefined), [])
  t.same(toRequestHeaders(null), [])
  t.same(toRequestHeaders([]), [])
  t.same(toRequestHeaders({ 'X-A': 'é', 'x-b': ['1', 2, null, true], 'x-c': null, ['__proto__']: 'p' }), [
    ...['X-A', 'é', 'x-b', '1', 'x-b', '2', 'x-b', 'true', '__proto__', 'p'],
  ])
  const own =
    'Host Content-Length Connection Keep-Alive Proxy-Connection Proxy-Authorization TE Trailer Transfer-Encoding'
  const dropped = Object.fromEntries(
    `${own} Upgrade Expect X-Fn-Internal-Edge X-Named`.split(' ').map(name => [name, 'x']),
  )
  t.same(toRequestHeaders({ ...dropped, Connection: 'close, X-Named', 'X-Kept': '1' }), ['X-Kept', '1'])
  const rows: [unknown, RegExp][] = [
    ['x', /proxy\.headers must be an object, got "x" \(string\)/],
    [['a'], /proxy\.headers must be an object, got an array of 1 item/],
    [{ 'a b': '1' }, /proxy\.headers: "a b" is not a header name/],
    [{ 'a\r\nX-Evil': '1' }, /proxy\.headers: "a\\u000d\\u000aX-Evil" is not a header name/],
    [{ '': '1' }, /"" is not a header name/],
    [{ 'x-a': 'b\r\nX-Evil: 1' }, /proxy\.headers: x-a holds a character that a header cannot carry/],
    [{ 'x-a': 'b\nc' }, /x-a holds a character/],
    [{ 'x-a': '\0' }, /x-a holds a character/],
    [{ 'x-a': '€' }, /x-a holds a character/],
    [{ 'x-a': ['ok', 'b\rc'] }, /x-a holds a character/],
    [{ 'x-a': {} }, /proxy\.headers: x-a must be a string or strings, got an object/],
    [{ 'x-a': 'x'.repeat(65_536) }, /proxy\.headers are larger than 65536 bytes/],
  ]
  for (const [headers, message] of rows)
    t.throws(
      () => toRequestHeaders(headers),
      { status: 502, code: 'CONTRACT_BROKEN', message },
      JSON.stringify(headers).slice(0, 60),
    )
})

t.test('[edge/passthrough.16] headers of the answer', async t => {
  const raw = [
    'Set-Cookie',
    'a=1',
    'Set-Cookie',
    'b=2',
    'Connection',
    'X-Named, close',
    'X-Named',
    '1',
    'Content-Length',
    '5',
  ]
  t.same(toAnswerHeaders([...raw, 'Transfer-Encoding', 'chunked', 'X-Request-Id', '1', 'Location', '/x']), [
    ...['Set-Cookie', 'a=1', 'Set-Cookie', 'b=2', 'Location', '/x'],
  ])
  t.equal(toAnswerHeaders(['X-A', 'a\u0001']), null)
  t.same(toCodings(['Content-Encoding', 'GZIP, identity', 'content-encoding', 'br']), ['gzip', 'br'])
})

t.test('[edge/passthrough.16] response headers that are dropped', async t => {
  t.same(
    toAnswerHeaders(['Set-Cookie', 'fngw_session=x; Path=/', 'Set-Cookie', 'a=1', 'x-fn-internal-y', '1', 'A', '\xe9']),
    [...['Set-Cookie', 'a=1', 'A', '\xe9']],
  )
  for (const value of ['a\rb', 'a\nb', 'a\0', '\u0100']) t.equal(toAnswerHeaders(['X', 'ok', 'Y', value]), null)
  t.same(toAnswerHeaders(['Service-Worker-Allowed', '/', 'A', 'b']), ['A', 'b'])
  t.same(toAnswerHeaders(['Service-Worker-Allowed', '/'], false), ['Service-Worker-Allowed', '/'])
  t.same(toAnswerHeaders([]), [])
})

t.test('[edge/passthrough.20] codings of an answer, outermost last', async t => {
  for (const [raw, codings] of [
    [[], []],
    [['Content-Encoding', ''], []],
    [['Content-Encoding', ' , identity ,'], []],
    [
      ['content-encoding', 'br , GZIP'],
      ['br', 'gzip'],
    ],
    [['Transfer-Encoding', 'gzip'], []],
  ] as const)
    t.same(toCodings(raw), codings)
})

t.test('[edge/passthrough.14] the trace of the call goes with it, unless the handler says another', async t => {
  const call = { trace: '00-a-b-01', traceState: 'v=1' }
  t.same(toTraceHeaders([], call), ['traceparent', '00-a-b-01', 'tracestate', 'v=1'])
  t.same(toTraceHeaders([], { ...call, traceState: null }), ['traceparent', '00-a-b-01'])
  t.same(toTraceHeaders(['TraceParent', 'mine'], call), [], 'a state belongs to its parent')
  t.same(toTraceHeaders(['Tracestate', 'mine'], call), ['traceparent', '00-a-b-01'])
})
