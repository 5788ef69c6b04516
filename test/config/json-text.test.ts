import t from 'tap'
import { parseJsonText } from '../../lib/config/json-text.ts'
import { type Finding, readJsonFile } from '../../lib/config/fields.ts'
import { MAX_CONFIG_FILE_BYTES, MAX_JSON_DEPTH } from '../../lib/core/limits.ts'

t.test('[config/fields.12] what counts as JSON text', async t => {
  const good: [name: string, source: string | Uint8Array, value: unknown][] = [
    ['a byte-order mark in text', '\uFEFF{"a":1}', { a: 1 }],
    ['a byte-order mark in bytes', Buffer.from('\uFEFF[1]'), [1]],
    ['a repeated key', '{"a":1,"a":2}', { a: 2 }],
    ['a value that is no object', ' "text" ', 'text'],
    ['brackets inside a text', JSON.stringify('['.repeat(1000)), '['.repeat(1000)],
    ['an escaped quote before brackets', '"\\"[[["', '"[[['],
  ]
  for (const [name, source, value] of good) t.same(parseJsonText(source), { ok: true, value }, name)
  const result = parseJsonText('{"__proto__":{"admin":true}}')
  t.ok(result.ok && Object.hasOwn(result.value as object, '__proto__'), '__proto__ is a key like any other')
  t.equal(({} as { admin?: boolean }).admin, undefined)
})

// Line and column are where a person would put the cursor.
const BROKEN: [name: string, text: string, line: number, column: number, reason: RegExp, hint: RegExp][] = [
  ['comma before a brace', '{\n  "a": 1,\n}', 2, 9, /comma before }/, /Remove the comma/],
  ['comma before a bracket', '[1,]', 1, 3, /comma before ]/, /Remove the comma/],
  ['line comment', '{\r\n// no\r\n}', 2, 1, /comment/, /no comments/],
  ['block comment', '{"a": /* x */ 1}', 1, 7, /comment/, /no comments/],
  ['hash comment', '# x\n{}', 1, 1, /comment/, /no comments/],
  ['key without quotes', '{a: 1}', 1, 2, /"a" where a key in double quotes/, /double quotes/],
  ['single quotes', "{'a': 1}", 1, 2, /where a key/, /double quotes/],
  ['missing value', '{"a": }', 1, 7, /"}" where a value/, /value/],
  ['missing colon', '{"a" 1}', 1, 6, /where a colon/, /colon/],
  ['missing comma', '{"a": 1 "b": 2}', 1, 9, /where a comma or }/, /comma/],
  ['end too early', '{"a": [1, 2', 1, 12, /ends where a comma or ]/, /Finish/],
  ['open quotes', '{"a": "x}', 1, 7, /never closed/, /closing quote/],
  ['line break in quotes', '{"a": "x\ny"}', 1, 9, /line break/, /Close the quotes/],
  ['unknown escape', '{"a": "C:\\dir"}', 1, 10, /escape/, /backslash/],
  ['leading zero', '[01]', 1, 2, /"0" where a value/, /value/],
  ['NaN', '[NaN]', 1, 2, /"N" where a value/, /value/],
  ['wrong word', '[True]', 1, 2, /"T" where a value/, /value/],
  ['second value', '{}\n{}', 2, 1, /after the end/, /one value/],
  ['control character', '{\u0007}', 1, 2, /\\u0007/, /key/],
  ['too deep', `{"a":\n${'['.repeat(MAX_JSON_DEPTH)}`, 2, MAX_JSON_DEPTH, /deeper than 64/, /Flatten/],
]

t.test('[config/fields.13] a text that is no JSON gives line, column, reason and hint', async t => {
  for (const [name, text, line, column, reason, hint] of BROKEN) {
    const result = parseJsonText(text)
    t.match(result, { ok: false, line, column, reason, hint }, name)
  }
  const findings: Finding[] = []
  t.equal(readJsonFile('{\n "a": 1,\n}', 'users/fn.config.json', findings), undefined)
  t.match(findings, [
    { code: 'CONFIG_NOT_JSON', message: 'users/fn.config.json is not JSON: line 2, column 8: a comma before }' },
  ])
})

t.test('[config/fields.13] the search for the fault agrees with JSON.parse on every cut of a text', async t => {
  const text = '{"a":[1,-2.5e3,true,null,"x\\u0041\\n"],"b":{"c":[]},"d":""}'
  for (let end = 0; end <= text.length; end++) {
    for (const source of [text.slice(0, end), text.slice(end), `${text.slice(0, end)},${text.slice(end)}`]) {
      const result = parseJsonText(source)
      if (isJson(source)) t.ok(result.ok, source)
      else t.match(result, { ok: false, reason: /^(?!it cannot be read)/ }, source)
    }
  }
})

t.test('[config/fields.14] size, depth and encoding are refused before anything is built', async t => {
  const full = `"${'x'.repeat(MAX_CONFIG_FILE_BYTES - 2)}"`
  t.ok(parseJsonText(full).ok, 'as large as allowed')
  t.match(parseJsonText(`${full} `), { ok: false, line: 0, reason: /1048577 bytes, at most 1048576/ })
  t.match(
    parseJsonText('é'.repeat(MAX_CONFIG_FILE_BYTES - 1)),
    { ok: false, reason: /bytes/ },
    'bytes count, not characters',
  )
  t.ok(parseJsonText('['.repeat(MAX_JSON_DEPTH) + ']'.repeat(MAX_JSON_DEPTH)).ok, 'as deep as allowed')
  t.match(parseJsonText('['.repeat(500_000)), { ok: false, reason: /deeper/ })
  t.match(parseJsonText(Uint8Array.of(0x7b, 0xff, 0x7d)), { ok: false, reason: /not UTF-8/ })
  t.match(parseJsonText(Buffer.from('\uFEFF{}', 'utf16le')), { ok: false, reason: /not UTF-8/, hint: /Save/ })
  t.match(parseJsonText(' \n'), { ok: false, reason: /empty/ })
})

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}
