/**
 * One table of cases, run against every language through a real gateway and real workers. The expectation is the same for
 * all; where the specification gives a language less, the cell says why and is reported as skipped.
 */

import { existsSync, readFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import {
  type Answer,
  type Bed,
  LANGUAGES,
  type Language,
  makeBed,
  readFixture,
  type SendOptions,
  SHORT_TIMEOUT_MS,
} from '../helpers/conformance.ts'
import { listProcesses } from '../helpers/processes.ts'
import { isAlive, until } from '../helpers/worker-client.ts'

process.env.FNGW_TEST_HOST_ONLY = 'not for functions'
process.env.FN_ADMIN_TOKEN = 'not for functions either'

/** Labels that lack a case, with the specification's reason. */
type Lacks = Readonly<Record<string, string>>

const EXPLICIT = 'explicit envelope required'
const COMPILED: Lacks = { golang: EXPLICIT, rs: EXPLICIT }
const ONE_EMPTY_TABLE: Lacks = { lua5: 'Lua has one empty table, which is an object' }
const NO_PROCESS: Lacks = {
  lua5: 'Lua runs inside the gateway process: nothing to exit, kill or write to by descriptor',
}

/** Handler files that cannot be loaded, by case and extension; the mistake is on line 2. */
const BROKEN: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  syntax: {
    '.js': 'const a = 1\nexport const handler = ( => a\n',
    '.cjs': 'const a = 1\nexports.handler = ( => a\n',
    '.ts': 'const a: number = 1\nexport const handler = ( => a\n',
    '.py': 'a = 1\ndef handler(event:\n',
    '.php': '<?php\nfunction handler( {}\n',
    '.lua': 'local a = 1\nfunction handler() return = a end\n',
  },
  symbol: {
    '.js': 'export const greet = () => 1\n',
    '.cjs': 'exports.greet = () => 1\n',
    '.ts': 'export const greet = (): number => 1\n',
    '.py': 'def greet(event):\n    return 1\n',
    '.php': '<?php\nfunction greet() { return 1; }\n',
    '.lua': 'function greet() return 1 end\n',
  },
  import: {
    '.js': 'const a = 1\nimport "./_gone.js"\nexport const handler = () => a\n',
    '.cjs': 'const a = 1\nrequire("./_gone")\n',
    '.ts': 'const a: number = 1\nimport "./_gone.ts"\nexport const handler = () => a\n',
    '.py': 'a = 1\nimport _gone\n',
    '.php': '<?php\nrequire "_gone.php";\n',
    '.lua': 'local a = 1\nrequire("_gone")\n',
  },
  throws: {
    '.js': 'const a = 1\nthrow new Error("no start")\n',
    '.cjs': 'const a = 1\nthrow new Error("no start")\n',
    '.ts': 'const a: number = 1\nthrow new Error("no start")\n',
    '.py': 'a = 1\nraise ValueError("no start")\n',
    '.php': '<?php\nthrow new Exception("no start");\n',
    '.lua': 'local a = 1\nerror("no start")\n',
  },
}

function brokenFunctions({ extension }: Language): Record<string, string | { json: unknown }> {
  const entries: Record<string, string | { json: unknown }> = {}
  for (const [name, files] of Object.entries(BROKEN)) {
    const text = files[extension]
    if (text === undefined) continue
    entries[`broken-${name}/handler${extension}`] = text
    // Named, so that every language looks for one name only.
    entries[`broken-${name}/fn.config.json`] = { json: { invoke: { handler: 'handler' } } }
  }
  return entries
}

// The many processes of a busy machine may take longer than the 30 seconds of a file that is run by itself.
t.setTimeout(180_000)

let bed: Bed
t.before(async () => {
  bed = await makeBed(brokenFunctions)
})

/** One subtest per language; languages whose program is missing are skipped with that reason. */
async function each(t: Test, lacks: Lacks, check: (t: Test, language: Language) => Promise<void>): Promise<void> {
  for (const language of LANGUAGES) {
    const reason = bed.missing.get(language.label) ?? lacks[language.label]
    await t.test(language.label, { skip: reason ?? false }, t => check(t, language))
  }
}

const ask = (language: Language, answer: string, options: Partial<SendOptions> = {}): Promise<Answer> =>
  bed.send({ path: `/${language.label}/all`, ...options, headers: { 'x-do': answer, ...options.headers } })

const giveBack = (language: Language, value: unknown): Promise<Answer> =>
  ask(language, 'return', { method: 'POST', body: JSON.stringify(value) })

interface Wanted {
  status?: number
  /** Content type; null for none. */
  type?: string | null
  text?: string
  json?: unknown
  /** Why it is refused: `error` without `invalid runtime response: `, with status 502. */
  broken?: string
  /** Headers that must be there; null for absent. */
  headers?: Readonly<Record<string, string | string[] | null>>
}

interface Row {
  value: unknown
  want: Wanted
  lacks?: Lacks
}

function check(t: Test, name: string, answer: Answer, want: Wanted): void {
  const seen: Record<string, unknown> = {}
  const wanted: Record<string, unknown> = {}
  const compare = (key: string, actual: unknown, expected: unknown): void => {
    seen[key] = actual
    wanted[key] = expected
  }
  compare('status', answer.status, want.status ?? (want.broken === undefined ? 200 : 502))
  if (want.type !== undefined) compare('type', answer.headers['content-type'] ?? null, want.type)
  if (want.text !== undefined) compare('text', answer.text, want.text)
  if (want.json !== undefined) compare('json', toJson(answer.text), want.json)
  if (want.broken !== undefined) compare('error', toError(answer), `invalid runtime response: ${want.broken}`)
  for (const [header, value] of Object.entries(want.headers ?? {})) {
    compare(header, answer.headers[header] ?? null, value)
  }
  t.same(seen, wanted, name)
}

function toJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return `no JSON: ${text}`
  }
}

const toError = (answer: Answer): unknown => (toJson(answer.text) as { error?: unknown })?.error ?? answer.text

/** Rows of returned JSON values; cells that a language lacks are told in one skip per reason. */
async function runRows(t: Test, rows: readonly Row[]): Promise<void> {
  await each(t, {}, async (t, language) => {
    const lacking = new Map<string, string[]>()
    for (const { value, want, lacks } of rows) {
      const name = JSON.stringify(value).slice(0, 100)
      const reason = lacks?.[language.label]
      if (reason === undefined) check(t, name, await giveBack(language, value), want)
      else lacking.set(reason, [...(lacking.get(reason) ?? []), name])
    }
    for (const [reason, names] of lacking) t.pass(`without ${names.join(', ')}`, { skip: reason })
  })
}

/** What the fixtures answer to `echo` and `env`. */
interface Echo {
  [field: string]: unknown
  ts: number
  method: string
  body: string | null
  query: Record<string, unknown>
  headers: Record<string, string>
  context: { user: { who: string; deep: unknown[] }; trace: string }
}

const JSON_TYPE = 'application/json'
const TEXT_TYPE = 'text/plain; charset=utf-8'
const BYTES_TYPE = 'application/octet-stream'

t.test('[invocation/response.12] a bare value is a JSON body with status 200, nothing is an empty one', async t => {
  const values = ['hi', '', 'ünï ☃ 𝄞', '{"a":1}', 42, -1.5, 0, true, false, [1, [2]], { a: 1 }, { a: { b: [null] } }]
  await runRows(t, [
    ...values.map(value => ({ value, want: { type: JSON_TYPE, json: value }, lacks: COMPILED })),
    { value: {}, want: { type: JSON_TYPE, text: '{}' }, lacks: COMPILED },
    { value: [], want: { type: JSON_TYPE, text: '[]' }, lacks: { ...COMPILED, ...ONE_EMPTY_TABLE } },
    { value: { a: [] }, want: { text: '{"a":[]}' }, lacks: { ...COMPILED, ...ONE_EMPTY_TABLE } },
    { value: null, want: { type: null, text: '' }, lacks: COMPILED },
    // Like an envelope, but none.
    { value: { headers: { a: 'b' } }, want: { type: JSON_TYPE, json: { headers: { a: 'b' } } }, lacks: COMPILED },
    { value: { body: 'x' }, want: { type: JSON_TYPE, json: { body: 'x' } }, lacks: COMPILED },
  ])
  await each(t, COMPILED, async (t, language) => {
    check(t, 'nothing at all', await ask(language, 'nothing'), { type: null, text: '' })
  })
})

t.test('[invocation/response.13, invocation/response.14] an envelope, and what its body becomes', async t => {
  await runRows(t, [
    { value: { status: 201 }, want: { status: 201, type: null, text: '' } },
    { value: { status: 200, body: 'x ü' }, want: { type: TEXT_TYPE, text: 'x ü' } },
    { value: { status: 200, body: '{"a":1}' }, want: { type: TEXT_TYPE, text: '{"a":1}' } },
    { value: { status: 200, body: 'a\0b\r\n' }, want: { type: TEXT_TYPE, text: 'a\0b\r\n' } },
    { value: { status: 200, body: '' }, want: { text: '' } },
    { value: { status: 200, body: null }, want: { type: null, text: '' } },
    { value: { status: 200, body: { a: [1] } }, want: { type: JSON_TYPE, text: '{"a":[1]}' } },
    { value: { status: 200, body: {} }, want: { type: JSON_TYPE, text: '{}' } },
    { value: { status: 200, body: [] }, want: { type: JSON_TYPE, text: '[]' }, lacks: ONE_EMPTY_TABLE },
    { value: { status: 200, body: [1, 'b'] }, want: { type: JSON_TYPE, text: '[1,"b"]' } },
    { value: { status: 200, body: 5 }, want: { type: JSON_TYPE, text: '5' } },
    { value: { status: 200, body: false }, want: { type: JSON_TYPE, text: 'false' } },
    { value: { status: 200, more: 1, body: 'x' }, want: { text: 'x' } },
    { value: { headers: { a: 'b' }, body: 'x' }, want: { type: TEXT_TYPE, headers: { a: 'b' } }, lacks: COMPILED },
    { value: { statusCode: 202, body: 'x' }, want: { status: 202, type: TEXT_TYPE }, lacks: {} },
    { value: { status: 203, statusCode: 202 }, want: { status: 203 } },
    {
      value: { status: 200, headers: { 'CONTENT-TYPE': 'text/html' }, body: '<p>' },
      want: { type: 'text/html', text: '<p>' },
    },
    {
      value: { status: 200, headers: { 'Content-Type': JSON_TYPE }, body: '{"a": 1}' },
      want: { type: JSON_TYPE, text: '{"a": 1}' },
    },
    {
      value: { status: 200, headers: { 'content-type': 'application/vnd.x+json' }, body: { a: 1 } },
      want: { type: 'application/vnd.x+json', text: '{"a":1}' },
    },
  ])
})

t.test(
  '[invocation/response.2, invocation/response.5, invocation/response.19] statuses from 200 to 599, and others',
  async t => {
    const must = 'status must be an integer from 100 to 599, got '
    const long = 'x'.repeat(100)
    const wrong: [unknown, string][] = [
      [99, '99 (number)'],
      [600, '600 (number)'],
      [-1, '-1 (number)'],
      [0, '0 (number)'],
      [200.5, '200.5 (number)'],
      ['200', '"200" (string)'],
      ['zweihundert ü', '"zweihundert ü" (string)'],
      [long, `"${long.slice(0, 60)}..." (string)`],
      [true, 'true (boolean)'],
      [null, 'null'],
      [{ a: 1 }, 'an object'],
      [[200], 'an array of 1 item'],
      [[1, 2], 'an array of 2 items'],
    ]
    await runRows(t, [
      ...[200, 201, 299, 301, 400, 404, 418, 500, 503, 599].map(status => ({
        value: { status, body: 'x' },
        want: { status, text: 'x' },
      })),
      ...[204, 304].map(status => ({
        value: { status, body: 'x' },
        want: { status, text: '', headers: { 'content-length': null } },
      })),
      ...[100, 101, 199].map(status => ({
        value: { status },
        want: { broken: `status ${status} is informational and cannot end a request` },
      })),
      ...wrong.map(([status, shown]) => ({ value: { status, body: 'x' }, want: { broken: must + shown } })),
    ])
    await each(t, {}, async (t, language) => {
      if (language.label === 'rs') t.pass('NaN', { skip: 'a JSON value of Rust is never NaN' })
      else check(t, 'NaN', await ask(language, 'nan'), { broken: `${must}NaN (number)` })
      const whole = await ask(language, 'return', { method: 'POST', body: '{"status": 200.0, "body": "x"}' })
      check(t, '200.0', whole, { text: 'x' })
    })
  },
)

t.test('[invocation/response.3, invocation/response.4, invocation/response.15] headers of an answer', async t => {
  const name = (text: string) => ({ broken: `header name ${JSON.stringify(text)} is not allowed in HTTP` })
  const char = (code: string) => ({ broken: `header "a" holds the character ${code}, which HTTP does not allow there` })
  const value = 'header "a" must be a string, a number, a boolean or a list of them, got '
  const rows: [headers: unknown, want: Wanted, lacks?: Lacks][] = [
    [{ 'X-A': 'b', a: '' }, { headers: { 'x-a': 'b', a: '' } }],
    [{ a: 5, b: true, c: null, d: 1.5, e: 'é\t!' }, { headers: { a: '5', b: 'true', c: null, d: '1.5', e: 'é\t!' } }],
    [{ 'Set-Cookie': ['a=1; Path=/', 'b=2'] }, { headers: { 'set-cookie': ['a=1; Path=/', 'b=2'] } }],
    [{ 'x-n': ['1', 2, false], 'x-e': [] }, { headers: { 'x-n': '1, 2, false', 'x-e': null } }],
    [{ Connection: 'x-hop', 'X-Hop': '1', 'X-Kept': '1' }, { headers: { 'x-hop': null, 'x-kept': '1' } }],
    [{ 'Content-Length': '3', 'Transfer-Encoding': 'gzip', 'Keep-Alive': 'x' }, { headers: { 'content-length': '4' } }],
    [{ __proto__x: '1', constructor: '2' }, { headers: { __proto__x: '1', constructor: '2' } }],
    [null, {}],
    [{}, {}],
    [[], {}],
    ['x', { broken: 'headers must be an object, got "x" (string)' }],
    [5, { broken: 'headers must be an object, got 5 (number)' }],
    [['a'], { broken: 'headers must be an object, got an array of 1 item' }],
    [{ 'bad name': 'x' }, name('bad name')],
    [{ '': 'x' }, name('')],
    [{ 'a:': 'x' }, name('a:')],
    [{ 'a\r\nb': 'x' }, name('a\r\nb')],
    [{ ü: 'x' }, name('ü')],
    [{ a: 'x\r\nset-cookie: y=1' }, char('U+000D')],
    [{ a: 'x\ny' }, char('U+000A')],
    [{ a: ['x', 'y\0'] }, char('U+0000')],
    [{ a: '\u007f' }, char('U+007F')],
    [{ a: 'snow ☃' }, char('U+2603')],
    [{ a: { b: 1 } }, { broken: `${value}an object` }],
    [{ a: [1, { b: 1 }] }, { broken: `${value}an object` }],
    [{ a: ['x', ['y']] }, { broken: `${value}an array of 1 item` }],
  ]
  await runRows(
    t,
    rows.map(([headers, want, lacks]) => ({ value: { status: 200, headers, body: 'four' }, want, lacks: lacks ?? {} })),
  )
  await each(t, {}, async (t, language) => {
    const { rawHeaders } = await giveBack(language, { status: 200, headers: { 'Set-Cookie': ['a=1', 'b=2'] } })
    const cookies = rawHeaders.filter((_, at) => rawHeaders[at - 1]?.toLowerCase() === 'set-cookie')
    t.same(cookies, ['a=1', 'b=2'], 'two lines')
  })
})

t.test('[invocation/response.16] bodies given as base64', async t => {
  const must = 'body_base64 must be base64 text, got '
  const all = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
  await runRows(t, [
    { value: { status: 200, is_base64: true, body_base64: 'YWI=' }, want: { type: BYTES_TYPE, text: 'ab' } },
    { value: { status: 200, body_base64: 'YWI=' }, want: { type: BYTES_TYPE, text: 'ab' } },
    { value: { status: 200, is_base64: true, body_base64: 'YWI' }, want: { text: 'ab' } },
    { value: { status: 200, is_base64: true, body_base64: '' }, want: { text: '' } },
    { value: { status: 200, is_base64: true, body: 'x', body_base64: 'YWI=' }, want: { text: 'ab' } },
    { value: { status: 200, is_base64: false, body: 'x', body_base64: 'YWI=' }, want: { type: TEXT_TYPE, text: 'x' } },
    {
      value: { status: 200, is_base64: true, body_base64: 'YWI=', headers: { 'content-type': 'image/png' } },
      want: { type: 'image/png', text: 'ab' },
    },
    { value: { status: 200, is_base64: true }, want: { broken: 'is_base64 is true, but body_base64 is missing' } },
    {
      value: { status: 200, is_base64: 'yes', body_base64: '' },
      want: { broken: 'is_base64 must be true or false, got "yes" (string)' },
    },
    ...['###', 'Y', 'YWI==', 'Y=I=', 'YW\nI=', ' YWI='].map(text => ({
      value: { status: 200, is_base64: true, body_base64: text },
      want: { broken: `${must}${JSON.stringify(text)} (string)` },
    })),
    { value: { status: 200, is_base64: true, body_base64: 5 }, want: { broken: `${must}5 (number)` } },
  ])
  await each(t, {}, async (t, language) => {
    const { body } = await giveBack(language, { status: 200, is_base64: true, body_base64: all.toString('base64') })
    t.ok(body.equals(all), 'all 256 byte values')
  })
})

t.test('[invocation/response.9, invocation/response.17] a proxy directive needs an edge policy', async t => {
  const disabled = { status: 502, json: { error: 'edge proxy disabled for this function' } }
  await runRows(t, [
    {
      value: { proxy: { path: '/x', method: 'POST', headers: { a: 'b' }, body: { a: 1 }, timeout_ms: 5 } },
      want: disabled,
    },
    { value: { status: 200, body: 'x', proxy: { path: '/x' } }, want: disabled },
    { value: { status: 200, body: 'x', proxy: null }, want: { text: 'x' } },
    { value: { proxy: 'x' }, want: { broken: 'proxy must be an object, got "x" (string)' } },
    { value: { proxy: [1, 2] }, want: { broken: 'proxy must be an object, got an array of 2 items' } },
  ])
})

t.test('[invocation/response.18] explicit envelopes alone in compiled languages', async t => {
  await each(t, {}, async (t, language) => {
    if (COMPILED[language.label] === undefined) {
      t.pass('has shorthands')
      return
    }
    for (const value of ['x', 5, [1], { a: 1 }, { body: 'x' }, null]) {
      const answer = await giveBack(language, value)
      t.equal(answer.status, 502, JSON.stringify(value))
      t.match(toError(answer), /^invalid runtime response: /)
    }
  })
})

t.test(
  '[invocation/event.1, invocation/event.2, invocation/event.7, invocation/event.11, invocation/event.14, observe/trace.4] every field of the event',
  async t => {
    const trace = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    await each(t, {}, async (t, language) => {
      const headers = {
        'x-do': 'echo',
        'x-uni': 'ü é',
        'user-agent': 'test/1',
        cookie: 'a=1; sid=s1',
        traceparent: trace,
        tracestate: 'vendor="a\\b"',
      }
      const path = `/${language.label}/all`
      const before = Date.now()
      const answer = await bed.send({ method: 'POST', path: `${path}/?a=1&b=%C3%BC`, headers, body: 'text ü' })
      const event = toJson(answer.text) as Echo
      t.ok(event.ts >= before && event.ts <= Date.now(), 'ts is now')
      const id = answer.headers['x-request-id']
      t.same(event, {
        id,
        ts: event.ts,
        method: 'POST',
        path,
        raw_path: `${path}/?a=1&b=%C3%BC`,
        params: {},
        path_params: {},
        query: { a: '1', b: 'ü' },
        headers: {
          'x-do': 'echo',
          'x-uni': 'ü é',
          'user-agent': 'test/1',
          cookie: 'a=1; sid=s1',
          traceparent: trace,
          tracestate: 'vendor="a\\b"',
          host: `127.0.0.1:${bed.port}`,
          'content-length': '7',
        },
        body: 'text ü',
        is_base64: false,
        body_base64: null,
        client: { ip: '127.0.0.1', ua: 'test/1' },
        session: { id: 's1', raw: 'a=1; sid=s1', cookies: { a: '1', sid: 's1' } },
        version: 'default',
        env: { PLAIN: 'plän', SECRET: 's3cret', NUMBER: '5' },
        context: {
          request_id: id,
          runtime: language.runtime,
          function_name: `${language.label}/all`,
          version: 'default',
          timeout_ms: 20_000,
          max_concurrency: 200,
          max_body_bytes: 20 * 1024 * 1024,
          worker_pool: null,
          gateway: { worker_pid: 0 },
          debug: { enabled: true },
          edge: false,
          user: null,
          trigger: null,
          trace,
          trace_state: 'vendor="a\\b"',
        },
      })
      const bare = toJson((await ask(language, 'echo')).text) as Echo
      t.match(bare, { params: {}, query: {}, body: null, is_base64: false, body_base64: null, session: null })
      t.match(bare, { client: { ua: null }, context: { user: null, trigger: null, trace_state: null } })
      t.match(bare.context.trace, /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/)
      const called = await bed.gateway.invoke(`${language.label}/all`, {
        method: 'PUT',
        headers: { 'X-Do': 'echo' },
        query: { n: 1, list: [1, 'b'] },
        context: { who: 'me', deep: [1, { a: null }] },
      })
      const inner = toJson(called.body.toString()) as Echo
      t.match(inner, { method: 'PUT', query: { n: '1', list: ['1', 'b'] } })
      t.equal(inner.context.user.who, 'me')
      t.equal(inner.context.user.deep[0], 1)
    })
  },
)

t.test('[invocation/event.3, invocation/event.10] query forms', async t => {
  const rows: [search: string, query: unknown][] = [
    ['', {}],
    ['?', {}],
    ['?a', { a: '' }],
    ['?a=', { a: '' }],
    ['?a=1&a=2&a=3', { a: ['1', '2', '3'] }],
    ['?a+b=c+d', { 'a b': 'c d' }],
    ['?%C3%BC=%E2%98%83&x=%F0%9D%84%9E', { ü: '☃', x: '𝄞' }],
    ['?a=b=c', { a: 'b=c' }],
    ['?a=%zz&b=%FF', { a: '%zz', b: '%FF' }],
    ['?1=x&0=y', { 0: 'y', 1: 'x' }],
    ['?constructor=1&toString=2&length=3', { constructor: '1', toString: '2', length: '3' }],
    ['?a[]=1&a.b=2', { 'a[]': '1', 'a.b': '2' }],
    ['?q=%00%22%5C%0A', { q: '\0"\\\n' }],
  ]
  await each(t, {}, async (t, language) => {
    for (const [search, query] of rows) {
      const { text } = await ask(language, 'echo', { path: `/${language.label}/all${search}` })
      t.same((toJson(text) as { query: unknown }).query, query, search)
    }
    const { text } = await ask(language, 'echo', { path: `/${language.label}/all?__proto__=1` })
    t.match(text, '"__proto__":"1"', 'an ordinary key')
  })
})

t.test('[discovery/callable.5] params in the event and as the language takes them', async t => {
  const rows: [path: string, params: Record<string, string>][] = [
    ['params/42', { id: '42' }],
    ['params/a%20b%2Fc', { id: 'a b/c' }],
    ['params/%C3%BC%E2%98%83', { id: 'ü☃' }],
    ['docs/a', { slug: 'a' }],
    ['docs/a/b%20c/d', { slug: 'a/b c/d' }],
    ['maybe', {}],
    ['maybe/x/y', { slug: 'x/y' }],
    ['wild', {}],
    ['wild/', {}],
    ['wild/x/y%20z', { wildcard: 'x/y z' }],
  ]
  await each(t, {}, async (t, language) => {
    for (const [path, params] of rows) {
      const target = `/${language.label}/${path}`
      const { params: inEvent, path_params: again } = toJson(
        (await ask(language, 'echo', { path: target })).text,
      ) as Echo
      t.same([inEvent, again], [params, params], `${path}: in the event`)
      const given = toJson((await ask(language, 'args', { path: target })).text)
      t.same(given, params, `${path}: beside it`)
    }
  })
})

t.test('[invocation/event.15] request bodies of any bytes, every method, and unicode everywhere', async t => {
  const all = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
  const texts = ['x', 'ü☃𝄞', 'a\0b', '\ufeffbom', ' \r\n', '{"a":1}', 'null']
  const binaries = [
    all,
    Buffer.from([0xff]),
    Buffer.from([0xc0, 0x80]),
    Buffer.from([0xed, 0xa0, 0x80]),
    Buffer.from('ü', 'latin1'),
  ]
  await each(t, {}, async (t, language) => {
    for (const body of texts) {
      const event = toJson((await ask(language, 'echo', { method: 'POST', body })).text) as Echo
      t.same([event.body, event.is_base64, event.body_base64], [body, false, null], JSON.stringify(body))
      const back = await ask(language, 'binary', { method: 'POST', body })
      t.equal(back.text, body)
    }
    for (const body of binaries) {
      const event = toJson((await ask(language, 'echo', { method: 'POST', body })).text) as Echo
      t.same([event.body, event.is_base64, event.body_base64], [null, true, body.toString('base64')])
      const back = await ask(language, 'binary', { method: 'POST', body })
      t.ok(back.body.equals(body), `${body.length} bytes come back`)
      t.equal(back.headers['content-type'], 'application/x-test')
    }
    const native = await ask(language, 'bytes')
    t.ok(native.body.equals(all), 'all bytes as the language returns them')
    t.equal(native.headers['content-type'], BYTES_TYPE)
    for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']) {
      t.equal((toJson((await ask(language, 'echo', { method })).text) as Echo).method, method)
    }
    const target = `/${language.label}/wild/%C3%BC/%E2%98%83?%C3%A4=%F0%9D%84%9E`
    const event = toJson((await ask(language, 'echo', { path: target })).text) as Echo
    t.match(event, { path: `/${language.label}/wild/ü/☃`, raw_path: target, query: { ä: '𝄞' } })
  })
})

t.test('[invocation/response.6] HEAD runs as GET and sends no body; 204 and 304 neither', async t => {
  await each(t, {}, async (t, language) => {
    const head = await ask(language, 'large', { method: 'HEAD', path: `/${language.label}/all?bytes=1000` })
    t.same([head.status, head.headers['content-length'], head.text], [200, '1000', ''])
    const named = await ask(language, 'echo', { method: 'HEAD' })
    t.equal(named.status, 200)
    t.ok(Number(named.headers['content-length']) > 100)
    const after = await ask(language, 'large', { path: `/${language.label}/all?bytes=4` })
    t.equal(after.text, 'ää', 'the connection is in order')
  })
})

t.test(
  '[runtimes/conformance.1, runtimes/conformance.8] a function sees its own environment and nothing of the host',
  async t => {
    await each(t, {}, async (t, language) => {
      const { event, process: seen } = toJson((await ask(language, 'env')).text) as Record<
        string,
        Record<string, string>
      >
      t.same(event, { PLAIN: 'plän', SECRET: 's3cret', NUMBER: '5' })
      t.match(seen, { PLAIN: 'plän', SECRET: 's3cret' })
      const foreign = Object.keys(seen ?? {}).filter(name => /^(FN_|FNGW_|npm_|TAP|NODE_OPTIONS)/.test(name))
      t.same(foreign, [], 'no variable of the gateway')
      const bare = await bed.send({ path: `/${language.label}/short`, headers: { 'x-do': 'env' } })
      t.same((toJson(bare.text) as Echo).event, {}, 'nor of another function')
    })
  },
)

/** 1-based number of the line that ends with `boom`. */
function boomLine(language: Language): number {
  return (
    readFixture(language.handler)
      .split('\n')
      .findIndex(line => /(\/\/|#|--) boom$/.test(line)) + 1
  )
}

t.test(
  '[runtimes/conformance.2, runtime/wire-protocol.14] a thrown error is its bare message, with file and line',
  async t => {
    await each(t, {}, async (t, language) => {
      const answer = await ask(language, 'throw')
      const { error, detail } = toJson(answer.text) as { error: string; detail: Record<string, unknown> }
      const file = `${language.label}/all/handler${language.extension}`
      t.same([answer.status, error, detail.file, detail.line], [500, 'boom ü', file, boomLine(language)])
      const stack = String(detail.stack)
      t.match(stack, `handler${language.extension}`, 'with frames of the function')
      t.notMatch(stack, /runtimes\/|node:|node_modules|\[C\]|lib\/python/, 'and no other ones')
      t.ok(Buffer.byteLength(stack) <= 8 * 1024)
      t.equal((await ask(language, 'echo')).status, 200, 'the next call is served')
    })
    const panics = 'a panic is made of its message'
    const noText: Lacks = {
      golang: panics,
      rs: panics,
      py: 'only exceptions can be raised',
      pya: 'only exceptions can be raised',
      php8: 'only Throwable can be thrown',
    }
    await each(t, noText, async (t, language) => {
      t.equal(toError(await ask(language, 'throw-text')), 'just text')
    })
    await each(t, noText, async (t, language) => {
      t.equal(toError(await ask(language, 'throw-object')), 'handler threw {"code":7}')
    })
  },
)

t.test('[runtimes/conformance.3, discovery/callable.2] what cannot be loaded says where and why', async t => {
  const compiled: Lacks = { golang: 'compiled: see page runtimes/go', rs: 'compiled: see page runtimes/rust' }
  await each(t, compiled, async (t, language) => {
    const { label, extension } = language
    const seen = async (name: string) => {
      const answer = await bed.send({ path: `/${label}/broken-${name}` })
      const { error, detail } = toJson(answer.text) as { error: string; detail: Record<string, unknown> }
      return { status: answer.status, error, file: detail?.file, line: detail?.line }
    }
    const file = (name: string) => `${label}/broken-${name}/handler${extension}`
    const is = (name: string, message: string | RegExp, line: number | undefined) => ({
      status: 500,
      error: message,
      file: file(name),
      line,
    })
    const starts = (text: string) => new RegExp(`^${text.replace(/[.()[\]]/g, '\\$&')}`)
    t.match(await seen('syntax'), is('syntax', starts(`syntax error in ${file('syntax')}:2: `), 2))
    t.match(await seen('import'), is('import', starts(`cannot load ${file('import')}:2: `), 2))
    t.match(await seen('import'), { error: /_gone/ }, 'again')
    t.same(await seen('throws'), is('throws', `cannot load ${file('throws')}:2: no start`, 2))
    t.match(await seen('symbol'), is('symbol', starts(`${file('symbol')} has no function "handler" (it `), undefined))
    t.match(await seen('symbol'), { error: /(exports|defines) greet\)$/ }, 'and what it has')
  })
})

t.test(
  '[discovery/callable.1, discovery/callable.2, discovery/callable.6] the callable, and another one by its name',
  async t => {
    await each(t, {}, async (t, language) => {
      const other = await bed.send({ path: `/${language.label}/other` })
      t.same([other.status, other.text], [200, 'other GET'])
    })
  },
)

t.test(
  '[runtime/worker-set.6, runtime/worker-set.7, runtimes/conformance.4] a call that loops or waits too long is 504 and runs no further',
  async t => {
    const { languages } = bed
    const late = new Map<string, { short: string; long: string }>()
    await Promise.all(
      languages.map(async ({ label }) => {
        const files = { short: bed.tree.path(`${label}-short.txt`), long: bed.tree.path(`${label}-long.txt`) }
        late.set(label, files)
        const wait = (folder: string, file: string) =>
          bed.send({
            path: `/${label}/${folder}?ms=900&n=${label}-${folder}&file=${encodeURIComponent(file)}`,
            headers: { 'x-do': 'late' },
          })
        // Both would say so at about the same moment; only one may.
        const [cut, whole] = await Promise.all([wait('short', files.short), wait('all', files.long)])
        t.same([cut.status, toError(cut)], [504, `runtime timeout after ${SHORT_TIMEOUT_MS} ms`], `${label}: cut`)
        t.same([whole.status, whole.text], [200, 'late'], `${label}: the other function`)
      }),
    )
    await Promise.all(
      languages.map(async ({ label }) => {
        const loop = await bed.send({ path: `/${label}/short`, headers: { 'x-do': 'loop' } })
        t.same([loop.status, toError(loop)], [504, `runtime timeout after ${SHORT_TIMEOUT_MS} ms`], `${label}: loop`)
        const next = await bed.send({ path: `/${label}/short`, headers: { 'x-do': 'echo' } })
        t.equal(next.status, 200, `${label}: the next call`)
      }),
    )
    const said = bed.logs.map(record => record.message).join('')
    await each(t, {}, async (t, { label, runtime }) => {
      const files = late.get(label)!
      t.notOk(existsSync(files.short), 'wrote nothing after its end')
      t.notMatch(said, `late ${label}-short`, 'said nothing after its end')
      t.match(said, `late ${label}-all`)
      if (runtime !== 'lua') t.equal(readFileSync(files.long, 'utf8'), `${label}-all\n`)
    })
  },
)

t.test(
  '[runtimes/conformance.4, runtime/worker-set.9] exits, kills, memory and recursion end their own call alone',
  async t => {
    const ends: [answer: string, query: string, lacks: Lacks, error: RegExp][] = [
      ['exit', '?code=0', NO_PROCESS, /exited with code 0|exit code 0|called exit\(\)/],
      ['exit', '?code=1', NO_PROCESS, /exited with code 1|exit code 1|called exit\(\)/],
      ['kill', '', NO_PROCESS, /^runtime worker ended: ended by SIGKILL/],
      ['memory', '', {}, /^(runtime worker ended: )?out of memory/],
      ['recurse', '', {}, /stack|recursion|memory|ended by SIG(SEGV|ABRT)|exited with code 2/i],
    ]
    await each(t, {}, async (t, language) => {
      const { label } = language
      // Another function of the language is called all the while.
      let isOver = false
      const beside: number[] = []
      const neighbour = (async () => {
        while (!isOver) beside.push((await bed.send({ path: `/${label}/other` })).status)
      })()
      for (const [answer, query, lacks, error] of ends) {
        if (lacks[label] !== undefined) {
          t.pass(answer, { skip: lacks[label] })
          continue
        }
        const cut = await ask(language, answer, { path: `/${label}/all${query}` })
        t.ok(cut.status === 500 || cut.status === 503, `${answer}${query}: ${cut.status} ${cut.text.slice(0, 200)}`)
        t.match(toError(cut), error)
        t.equal((await ask(language, 'echo')).status, 200, `${answer}${query}: the next call`)
      }
      isOver = true
      await neighbour
      t.ok(beside.length > 0)
      t.same([...new Set(beside)], [200], 'another function notices nothing')
    })
  },
)

t.test(
  '[runtimes/conformance.5, invocation/response.11] output belongs to its call, also among 20 at once',
  async t => {
    await each(t, {}, async (t, language) => {
      const { headers } = await ask(language, 'print', { path: `/${language.label}/all?n=1` })
      t.same([headers['x-fn-stdout'], headers['x-fn-stderr']], ['out 1 a out 1 b out 1 c', 'err 1 a err 1 b err 1 c'])
    })
    await each(t, {}, async (t, language) => {
      const from = bed.logs.length
      const answers = await Promise.all(
        Array.from({ length: 20 }, async (_, n) => ({
          n,
          answer: await ask(language, 'print', { path: `/${language.label}/all?n=${n}` }),
        })),
      )
      const records = bed.logs.slice(from)
      for (const { n, answer } of answers) {
        const lines = (word: string) => ['a', 'b', 'c'].map(part => `${word} ${n} ${part}`)
        t.equal(answer.headers['x-fn-stdout'], lines('out').join(' '), `stdout of ${n}`)
        t.equal(answer.headers['x-fn-stderr'], lines('err').join(' '), `stderr of ${n}`)
        const own = records.filter(record => record.requestId === answer.headers['x-request-id'])
        const text = (stream: string) =>
          own
            .filter(record => record.stream === stream)
            .map(({ message }) => message)
            .join('')
        t.same(text('stdout').trim().split('\n'), lines('out'), 'in the log')
        t.same(text('stderr').trim().split('\n'), lines('err'))
      }
    })
  },
)

t.test(
  '[runtimes/conformance.5, runtimes/conformance.6] raw writes reach the log and corrupt nothing; a flood is cut',
  async t => {
    await each(t, NO_PROCESS, async (t, language) => {
      const from = bed.logs.length
      const answers = await Promise.all(Array.from({ length: 5 }, () => ask(language, 'raw')))
      for (const answer of answers) t.same([answer.status, answer.text], [200, 'whole'])
      const heard = (stream: string) =>
        bed.logs.slice(from).filter(record => record.stream === stream && record.message.includes('raw \0\x10'))
          .length > 0
      await until(() => heard('stdout') && heard('stderr'))
      t.equal((await ask(language, 'echo')).status, 200)
    })
    await each(t, {}, async (t, language) => {
      const from = bed.logs.length
      const answer = await ask(language, 'flood')
      t.same([answer.status, answer.text], [200, 'flooded'])
      t.ok((answer.headers['x-fn-stdout'] as string).length <= 1024)
      const own = bed.logs.slice(from).filter(record => record.requestId === answer.headers['x-request-id'])
      const bytes = own.reduce((sum, { message }) => sum + message.length, 0)
      t.ok(bytes >= 60 * 1024 && bytes < 70 * 1024, `${bytes} of 1,024,000 bytes are kept`)
      t.match(own.at(-1)?.message, /more|dropped|cut|truncated/i, 'and it is told')
    })
  },
)

t.test('[runtimes/conformance.7] large bodies come and go unchanged', async t => {
  const MIB = 1024 * 1024
  const anyBytes = Buffer.alloc(5 * MIB + 1, Buffer.from(Array.from({ length: 257 }, (_, i) => i & 0xff)))
  const noBase64: Lacks = { lua5: 'the fixture decodes base64 in Lua, which takes long' }
  await each(t, {}, async (t, language) => {
    const { label } = language
    const sizes = [MIB - 1, MIB, MIB + 1, ...(language.variant ? [] : [5 * MIB, 16 * MIB])]
    for (const size of sizes) {
      const body = Buffer.alloc(size, 'text of some length, ')
      const back = await ask(language, 'binary', { method: 'POST', body })
      t.ok(back.status === 200 && back.body.equals(body), `${size} bytes of text both ways`)
    }
    const lacking = noBase64[label] ?? (language.variant ? 'as in the language before' : undefined)
    if (lacking === undefined) {
      const back = await ask(language, 'binary', { method: 'POST', body: anyBytes })
      t.ok(back.body.equals(anyBytes), '5 MiB of any bytes')
    } else {
      t.pass('5 MiB of any bytes', { skip: lacking })
    }
    for (const size of [MIB - 2, MIB, MIB + 2]) {
      const { body } = await ask(language, 'large', { path: `/${label}/all?bytes=${size}` })
      t.ok(body.equals(Buffer.alloc(size, 'ä')), `${size} bytes from the handler`)
    }
  })
})

t.test('[runtimes/conformance.9] 100 calls at once never cross', async t => {
  await each(t, {}, async (t, language) => {
    const answers = await Promise.all(
      Array.from({ length: 100 }, async (_, n) => {
        const body = `${n} ü ${'x'.repeat((n * 977) % 5000)}`
        const path = `/${language.label}/all?n=${n}`
        const { text } = await ask(language, 'echo', { method: 'POST', path, body, headers: { 'x-n': String(n) } })
        const event = toJson(text) as Echo
        return event.body === body && event.query.n === String(n) && event.headers['x-n'] === String(n)
      }),
    )
    t.same(answers.filter(isRight => !isRight).length, 0)
  })
})

t.test('[jobs/jobs.6, jobs/jobs.11] jobs run in every language, and a canceled one does nothing more', async t => {
  const { jobs } = bed.gateway
  const reached = (id: string, ...states: string[]): Promise<void> =>
    new Promise((resolve, reject) => {
      const look = (state: string): void => {
        if (states.includes(state)) resolve()
      }
      bed.gateway.on('job', event => {
        if (event.id === id) look(event.state)
      })
      // It may have come there before anybody listened.
      jobs.get(id).then(({ status }) => look(status), reject)
    })
  const from = bed.logs.length
  await Promise.all(
    bed.languages.map(async ({ label, runtime }) => {
      const name = `${label}/all`
      const echo = (await jobs.create({ name, runtime, headers: { 'x-do': 'echo' }, context: { by: 'me' } })).record
      await reached(echo.id, 'done', 'failed')
      const { result } = await jobs.result(echo.id)
      let text = ''
      for await (const piece of result!.body) text += String(piece)
      const event = JSON.parse(text) as { context: { user: unknown; trigger: unknown } }
      const trigger = { type: 'job', id: echo.id, attempt: 1, max_attempts: 1 }
      t.match(event.context, { user: { by: 'me' }, trigger }, label)

      const file = bed.tree.path(`${label}-job.txt`)
      const query = { ms: 1000, n: `${label}-job`, file }
      const late = (await jobs.create({ name, runtime, headers: { 'x-do': 'late' }, query })).record
      const pass = (ms: number) =>
        bed.send({
          path: `/${label}/short?ms=${ms}&n=pass&file=${encodeURIComponent(bed.tree.path(`${label}-pass.txt`))}`,
          headers: { 'x-do': 'late' },
        })
      await reached(late.id, 'running')
      await pass(SHORT_TIMEOUT_MS / 3)
      t.match(await jobs.cancel(late.id), { deleted: false, record: { status: 'canceled' } }, label)
      // Calls that take longer together than the handler would have.
      for (let waited = 0; waited < 1200; waited += SHORT_TIMEOUT_MS / 3) await pass(SHORT_TIMEOUT_MS / 3)
      t.notOk(existsSync(file), `${label}: wrote nothing after its end`)
      t.equal(
        (await ask(bed.languages.find(one => one.label === label)!, 'echo')).status,
        200,
        `${label}: the next call`,
      )
    }),
  )
  const said = bed.logs
    .slice(from)
    .map(({ message }) => message)
    .join('')
  for (const { label } of bed.languages) t.notMatch(said, `late ${label}-job`, `${label}: said nothing after its end`)
})

t.test('[runtimes/conformance.10] closing the gateway ends every process', async t => {
  const pids = listProcesses()
  const daemons = new Set(bed.languages.map(({ runtime }) => runtime).filter(runtime => runtime !== 'lua'))
  t.ok(pids.length > daemons.size, `${pids.length} daemons and workers`)
  await bed.close()
  await until(() => !pids.some(isAlive))
})
