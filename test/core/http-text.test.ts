import t from 'tap'
import {
  decodePercent,
  findUnsendable,
  headerOf,
  isHeaderName,
  isJsonType,
  matchesTag,
  toAllow,
  toHeaderRecord,
  withoutHeaders,
} from '../../lib/core/http-text.ts'

t.test('[invocation/response.3, edge/passthrough.15] header names and values', async t => {
  for (const name of ['X-A', 'x', "!#$%&'*+-.^_`|~09azAZ"]) t.ok(isHeaderName(name))
  for (const name of ['', 'a b', 'a:', 'a\n', 'é', 'a\r\nb', '(a)', 'a/b', '"a"'])
    t.notOk(isHeaderName(name), JSON.stringify(name))
  for (const value of ['', 'a b', 'tab\tin it', 'caf\xe9', '\x80\xff', '~'])
    t.equal(findUnsendable(value), null, JSON.stringify(value))
  for (const [value, character] of [
    ['a\rb', '\r'],
    ['a\n', '\n'],
    ['\0', '\0'],
    ['a\x7f', '\x7f'],
    ['a\x1b[m', '\x1b'],
    ['x\u0100\n', '\u0100'],
    ['\u2028', '\u2028'],
  ] as const)
    t.equal(findUnsendable(value), character)
})

t.test('[http/public.5] Allow', async t => {
  t.equal(toAllow(['GET', 'POST']), 'GET, HEAD, POST')
  t.equal(toAllow(['DELETE']), 'DELETE')
  t.equal(toAllow([]), '')
})

t.test('[invocation/response.4, edge/passthrough.14] headers that are dropped, and that Connection names', async t => {
  const list = ['A', '1', 'Connection', 'close, B', 'b', '2', 'C', '3', 'connection', ' c ', 'D', '4', 'D', '5']
  t.same(
    withoutHeaders(list, name => name === 'connection'),
    ['A', '1', 'D', '4', 'D', '5'],
  )
  t.same(
    withoutHeaders(['D', '4', 'D', '5'], (name, value) => name === 'd' && value === '4'),
    ['D', '5'],
  )
})

t.test('[control/access.8, http/openapi.4] types of JSON', async t => {
  for (const type of [
    'application/json',
    'Application/JSON; charset=utf-8',
    ' application/problem+json ;x',
    'application/vnd.a.b+json',
  ])
    t.ok(isJsonType(type), type)
  for (const type of [
    '',
    'text/json',
    'application/jsonp',
    'application/x-www-form-urlencoded',
    'text/plain, application/json',
  ])
    t.notOk(isJsonType(type), type)
})

t.test('[invocation/event.3] percent escapes', async t => {
  for (const [text, decoded] of [
    ['a+b', 'a+b'],
    ['%41%2f%C3%A9', 'A/é'],
    ['%2541', '%41'],
    ['%zz', null],
    ['%', null],
    ['%c0%ae', null],
  ] as const)
    t.equal(decodePercent(text), decoded, text)
})

t.test('[assets/static-assets.17, http/openapi.7] entity tags', async t => {
  for (const [list, isWeak, matches] of [
    ['"a"', false, true],
    ['"b", "a"', false, true],
    ['W/"a"', false, false],
    ['W/"a"', true, true],
    ['*', false, true],
    [' * ', true, true],
    ['"A"', true, false],
    ['a', true, false],
    ['', true, false],
    ['"b', true, false],
  ] as const)
    t.equal(matchesTag(list, '"a"', isWeak), matches, `${list} ${isWeak}`)
})

t.test('[http/public.5] repeated headers', async t => {
  const headers = ['Accept', 'a', 'X-Id', '1', 'accept', 'b']
  t.equal(headerOf(headers, 'accept'), 'a, b')
  t.equal(headerOf(headers, 'cookie'), null)
  t.same({ ...toHeaderRecord(headers) }, { accept: ['a', 'b'], 'x-id': '1' })
})
