import { execFileSync } from 'node:child_process'
import { Worker } from 'node:worker_threads'
import t, { type Test } from 'tap'
import { runtimeFile } from '../../lib/runtime/package-files.ts'
import { type LuaSite, makeLuaSite } from './lua-site.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'

/** Runs the request body as Lua: one thread serves a whole table of cases. */
const EVALUATE = 'function handler(event, params) return assert(load(event.body, "=case"))(event, params) end'
// Memory is filled and threads are started many times; a busy machine needs long for that.
t.setTimeout(280_000)

const JSON_HEAD = '{"status":200,"headers":{"content-type":"application/json"}}'
const SLOW = { timeoutMs: 400 }

function makeEvaluator(memoryMb = 128): LuaSite {
  const site = makeLuaSite({}, { memoryMb })
  site.add('eval', EVALUATE, { timeoutMs: 20_000 }, { env: { NAME: { value: 'wért', isSecret: false } } })
  site.retain()
  return site
}

/** A thread without a gateway that serves `handler.lua` of a tree; `said` gets four items for each message from it. */
function startThread(t: Test, tree: Tree, fields: object = {}) {
  const memory = new Int32Array(new SharedArrayBuffer(12))
  memory.set([0, 1, 1024 * 1024])
  const thread = new Worker(runtimeFile('lua/worker.mjs'), {
    env: {},
    workerData: {
      memoryBytes: 128 * 1024 * 1024,
      loadTimeoutMs: 10_000,
      graceMs: 50,
      progress: new SharedArrayBuffer(8),
      memory: memory.buffer,
    },
  })
  t.teardown(() => thread.terminate())
  const { root } = tree
  const start = { key: 'f', name: 'f', version: null, root, dir: root, entry: tree.path('handler.lua'), adapter: null }
  const fn = { ...start, callable: { names: ['handler'] }, env: {}, context: { timeout_ms: 100 }, ...fields }
  const said: unknown[] = []
  thread.on('message', (message: unknown[]) => said.push(...message))
  let isStarted = false
  const send = (calls: unknown[]): void => {
    thread.postMessage({ ...(isStarted ? {} : { start: JSON.stringify(fn) }), calls })
    isStarted = true
  }
  return { send, said, memory }
}

t.test('[runtime/lua-runtime.12, runtime/lua-runtime.16] a value without envelope fields is a JSON body', async t => {
  const site = makeEvaluator()
  t.teardown(() => site.close())
  const cases: [lua: string, body: string][] = [
    ['return { hello = "world" }', '{"hello":"world"}'],
    ['return { 1, 2, 3 }', '[1,2,3]'],
    ['return "a\\"b\\n\\1\\127é"', '"a\\"b\\n\\u0001\u007fé"'],
    ['return 7', '7'],
    ['return 7.0, "only the first counts"', '7'],
    ['return 2^53', '9007199254740992'],
    ['return 0.1', '0.1'],
    ['return -0.0', '0'],
    ['return 1e300', '1e+300'],
    ['return false', 'false'],
    ['return {}', '{}'],
    ['return { list = require("cjson").empty_array }', '{"list":[]}'],
    ['return setmetatable({}, require("cjson").array_mt)', '[]'],
    ['return setmetatable({}, require("cjson").empty_array_mt)', '[]'],
    ['return { null = require("cjson").null }', '{"null":null}'],
    ['return { [1] = "a", [3] = "c" }', '["a",null,"c"]'],
    ['return { [1] = "a", [1000] = "z" }', '{"1":"a","1000":"z"}'],
    ['return { [1.5] = 1 }', '{"1.5":1}'],
    ['return { 1, x = 2 }', '{"x":2,"1":1}'],
    ['local t = { 1, 2, 3 } t[3] = nil return t', '[1,2]'],
    ['return { body = 1 }', '{"body":1}'],
    ['return { headers = {} }', '{"headers":{}}'],
    ['local t = {} return { a = t, b = t }', '{"a":{},"b":{}}'],
    ['return { ["__proto__"] = 1, constructor = 2 }', '{"__proto__":1,"constructor":2}'],
  ]
  for (const [lua, body] of cases) {
    const { header, body: sent, error } = await site.call('eval', {}, lua)
    t.equal(error, null, lua)
    t.equal(header, JSON_HEAD, lua)
    t.equal(sent.toString(), body, lua)
  }
  for (const lua of ['return nil', 'return', 'return require("cjson").null']) {
    const { header, body } = await site.call('eval', {}, lua)
    t.equal(header, '{"status":200,"headers":{}}', lua)
    t.equal(body.length, 0, lua)
  }
  const big = await site.call('eval', {}, 'local t = {} for i = 1, 50000 do t[i] = "item " .. i end return t')
  t.equal(JSON.parse(big.body.toString()).length, 50_000, 'a long text is put together right')
  t.equal(JSON.parse(big.body.toString())[49_999], 'item 50000')
})

t.test('[runtime/lua-runtime.13, runtime/lua-runtime.15] envelopes become a reply', async t => {
  const site = makeEvaluator()
  t.teardown(() => site.close())
  const text = 'text/plain; charset=utf-8'
  const cases: [lua: string, head: object, body: string | Buffer][] = [
    [
      'return { status = 201, body = { id = 1 } }',
      { status: 201, headers: { 'content-type': 'application/json' } },
      '{"id":1}',
    ],
    ['return { statusCode = 404, body = "no" }', { status: 404, headers: { 'content-type': text } }, 'no'],
    ['return { status = 200.0, body = "x" }', { status: 200, headers: { 'content-type': text } }, 'x'],
    ['return { status = 204 }', { status: 204, headers: {} }, ''],
    ['return { headers = {}, body = "x" }', { status: 200, headers: { 'content-type': text } }, 'x'],
    ['return { status = 200, body = 5 }', { status: 200, headers: { 'content-type': 'application/json' } }, '5'],
    [
      'return { status = 200, body = false }',
      { status: 200, headers: { 'content-type': 'application/json' } },
      'false',
    ],
    [
      'return { status = 200, body = "\\255\\0" }',
      { status: 200, headers: { 'content-type': 'application/octet-stream' } },
      Buffer.from([255, 0]),
    ],
    ['return { status = 200, body = "é" }', { status: 200, headers: { 'content-type': text } }, 'é'],
    [
      'return { status = 200, headers = { ["Content-Type"] = "text/html" }, body = "<p>" }',
      { status: 200, headers: { 'Content-Type': 'text/html' } },
      '<p>',
    ],
    [
      'return { status = 200, headers = { ["set-cookie"] = { "a=1", "b=2" }, ["x-n"] = 5, ["x-b"] = true } }',
      { status: 200, headers: { 'set-cookie': ['a=1', 'b=2'], 'x-n': '5', 'x-b': 'true' } },
      '',
    ],
    [
      'return { body_base64 = "AAEC/w==" }',
      { status: 200, headers: { 'content-type': 'application/octet-stream' } },
      Buffer.from([0, 1, 2, 255]),
    ],
    [
      'return { status = 200, is_base64 = true, body_base64 = "aGk=", headers = { ["content-type"] = "image/png" } }',
      { status: 200, headers: { 'content-type': 'image/png' } },
      'hi',
    ],
    [
      'return { status = 200, isBase64Encoded = true, body = "aGk=" }',
      { status: 200, headers: { 'content-type': 'application/octet-stream' } },
      'hi',
    ],
    [
      'return { proxy = { path = "/up", method = "PUT", timeout_ms = 50, headers = { a = "b" }, body = "raw" } }',
      { proxy: { path: '/up', method: 'PUT', timeout_ms: 50, headers: { a: 'b' } } },
      'raw',
    ],
    ['return { proxy = { path = "/é", body = { a = 1 } } }', { proxy: { path: '/é' } }, '{"a":1}'],
    [
      'return { status = 200, body = ("x"):rep(200000) }',
      { status: 200, headers: { 'content-type': text } },
      'x'.repeat(200_000),
    ],
  ]
  for (const [lua, head, body] of cases) {
    const result = await site.call('eval', {}, lua)
    t.equal(result.error, null, lua)
    t.same(result.head, head, lua)
    t.ok(result.body.equals(Buffer.from(body as string)), lua)
  }
  const again = await site.call('eval', {}, 'return { status = 201, body = { id = 2 } }')
  t.equal(again.header, '{"status":201,"headers":{"content-type":"application/json"}}', 'equal heads are equal texts')
})

t.test('[runtime/lua-runtime.35] bytes that come back as they were given are the bytes that came', async t => {
  const give = 'body_base64 = e.body_base64'
  const site = makeLuaSite({
    back: `function handler(e) return { ${give} } end`,
    // The same text, but another string; and the same string after the event was changed.
    other: 'function handler(e) return { body_base64 = (e.body_base64 .. "=="):sub(1, -3) } end',
    changed: `function handler(e) local given = e.body_base64 e.body_base64 = "AAAA" return { body_base64 = given } end`,
    replaced: `function handler(e) e.body_base64 = "AAEC" return { ${give} } end`,
    // The string of the call before is no longer what was given.
    kept: `local last = "AAEC" function handler(e) local now = last last = e.body_base64 return { body_base64 = now } end`,
  })
  t.teardown(() => site.close())
  const borders = [16, 32, 48, 64, 96, 256, 1024].map(kib => kib * 1024)
  let before = Buffer.from([0, 1, 2])
  for (const size of [1, 2, 3, ...borders.flatMap(border => [border - 1, border, border + 1])]) {
    const body = Buffer.allocUnsafeSlow(size)
    for (let i = 0; i < size; i++) body[i] = (i * 7 + size) & 0xff
    body[0] = 0xff
    for (const name of ['back', 'other', 'changed'])
      t.ok((await site.call(name, {}, body)).body.equals(body), `${name}: ${size} bytes`)
    t.same((await site.call('replaced', {}, body)).body, Buffer.from([0, 1, 2]))
    t.ok((await site.call('kept', {}, body)).body.equals(before), `kept: before ${size} bytes`)
    before = Buffer.from(body)
  }
})

t.test(
  '[runtime/lua-runtime.14, runtime/lua-runtime.16] an answer that breaks the contract is refused by name',
  async t => {
    const site = makeEvaluator()
    t.teardown(() => site.close())
    const status = 'status must be an integer from 100 to 599, got '
    const cases: [lua: string, why: string][] = [
      ['return { status = "200" }', `${status}"200" (string)`],
      ['return { status = 99 }', `${status}99 (number)`],
      ['return { status = 600 }', `${status}600 (number)`],
      ['return { status = 200.5 }', `${status}200.5 (number)`],
      ['return { status = 0/0 }', `${status}NaN (number)`],
      ['return { status = 1/0 }', `${status}Infinity (number)`],
      ['return { status = true }', `${status}true (boolean)`],
      ['return { status = {} }', `${status}an object`],
      ['return { status = 200, headers = "x" }', 'headers must be an object, got "x" (string)'],
      ['return { status = 200, headers = { "x" } }', 'headers must be an object, got an array of 1 item'],
      ['return { status = 200, headers = { ["a b"] = "x" } }', 'header name "a b" is not allowed in HTTP'],
      [
        'return { status = 200, headers = { a = "x\\r\\nb: c" } }',
        'header "a" holds the character U+000D, which HTTP does not allow there',
      ],
      [
        'return { status = 200, headers = { a = print } }',
        'header "a" must be a string, a number, a boolean or a list of them, got a function',
      ],
      [
        'return { status = 200, headers = { a = { x = 1 } } }',
        'header "a" must be a string, a number, a boolean or a list of them, got an object',
      ],
      ['return { status = 200, body = { list = { 1, print } } }', 'body.list[2] is a function, which JSON cannot hold'],
      ['return { a = { b = 0/0 } }', 'the answer.a.b is NaN, which JSON cannot hold'],
      ['return 1/0', 'the answer is infinity, which JSON cannot hold'],
      ['local t = {} t.me = { t } return t', 'the answer.me[1] is a table that contains itself'],
      [
        'local t = {} for i = 1, 200 do t = { t } end return t',
        `the answer${'[1]'.repeat(128)} is nested deeper than 128 tables`,
      ],
      [
        'return { name = "\\255" }',
        'the answer.name is a string that is not valid UTF-8; send binary data with body_base64',
      ],
      ['return { [true] = 1 }', 'the answer has a key that is a boolean; keys must be strings or numbers'],
      ['return coroutine.create(print)', 'the answer is a thread, which JSON cannot hold'],
      ['return { status = 200, is_base64 = true }', 'is_base64 is true, but body_base64 is missing'],
      [
        'return { status = 200, is_base64 = "yes", body_base64 = "" }',
        'is_base64 must be true or false, got "yes" (string)',
      ],
      ['return { status = 200, body_base64 = "%%" }', 'body_base64 must be base64 text, got "%%" (string)'],
      ['return { proxy = "x" }', 'proxy must be an object, got "x" (string)'],
    ]
    for (const [lua, why] of cases) {
      const { error } = await site.call('eval', {}, lua)
      t.equal(error?.message, `invalid runtime response: ${why}`, lua)
      t.equal(error?.status, 502, lua)
    }
  },
)

t.test(
  '[runtime/lua-runtime.8, runtime/lua-runtime.9, runtime/lua-runtime.10] the event is a plain table of the call',
  async t => {
    const site = makeEvaluator()
    t.teardown(() => site.close())
    const fields = {
      path: '/p/é',
      params: { id: '7', __proto__x: 'y' },
      query: { a: '1', list: ['x', 'y'], empty: '' },
      headers: { host: 'h', 'x-ü': '€' },
      user: { roles: ['admin', null, 'x'], n: 1.5, big: 5e9, deep: { nothing: null } },
    }
    const cases: [lua: string, expected: unknown][] = [
      ['return { e.id, e.method, e.path, e.raw_path, e.version }', ['req-1', 'POST', '/p/é', '/fn', 'default']],
      ['return e.ts', 1_700_000_000_123],
      ['return math.type(e.ts)', 'float'],
      [
        'return { e.query.a, e.query.list[1], e.query.list[2], #e.query.list, e.query.empty, e.query.nope == nil }',
        ['1', 'x', 'y', 2, '', true],
      ],
      ['return e.headers["x-ü"]', '€'],
      ['return #e.headers["x-ü"]', 3],
      ['return { p.id, e.params.id, p == e.params, e.params == e.path_params }', ['7', '7', true, true]],
      ['local n = 0 for k, v in pairs(e) do n = n + 1 end return n', 15],
      [
        'local names = {} for k in pairs(e.query) do names[#names + 1] = k end table.sort(names) return names',
        ['a', 'empty', 'list'],
      ],
      [
        'return { next(e) ~= nil, rawget(e, "method"), rawlen(e.query.list), getmetatable(e) == nil }',
        [true, 'POST', 2, true],
      ],
      ['return { e.session == nil, e.body_base64 == nil, e.is_base64, type(e.body) }', [true, true, false, 'string']],
      ['return e.client', { ip: '127.0.0.1' }],
      [
        'return e.context',
        {
          request_id: 'req-1',
          runtime: 'lua',
          function_name: 'eval',
          timeout_ms: 20_000,
          user: { roles: ['admin', null, 'x'], n: 1.5, big: 5e9, deep: {} },
        },
      ],
      [
        'return { e.env.NAME, os.getenv("NAME"), os.getenv("PATH") == nil, os.getenv("__proto__") == nil }',
        ['wért', 'wért', true, true],
      ],
      ['e.method = nil e.extra = 1 return { e.method == nil, e.extra }', [true, 1]],
      ['return e.query', { a: '1', list: ['x', 'y'], empty: '' }],
    ]
    for (const [lua, expected] of cases) {
      const { body, error } = await site.call('eval', fields, `local e, p = ... ${lua}`)
      t.equal(error, null, lua)
      t.same(JSON.parse(body.toString()), expected, lua)
    }
    site.add(
      'raw',
      'function handler(e, p) return { body = e.body, b64 = e.body_base64, flag = e.is_base64, n = e.body and #e.body, p = type(p) } end',
    )
    site.retain()
    const bodies: [body: Buffer | null, expected: object][] = [
      [Buffer.from('héllo'), { body: 'héllo', flag: false, n: 6, p: 'table' }],
      [Buffer.from([0xff, 0x00]), { b64: '/wA=', flag: true, p: 'table' }],
      [Buffer.alloc(0), { flag: false, p: 'table' }],
      [null, { flag: false, p: 'table' }],
    ]
    for (const [body, expected] of bodies)
      t.same(JSON.parse((await site.call('raw', {}, body)).body.toString()), expected)
  },
)

t.test('[runtime/lua-runtime.10] every byte of a body passes through unchanged', async t => {
  const site = makeLuaSite({
    echo: 'function handler(e) return { status = 200, body = e.body } end',
    bytes:
      'function handler(e) local t = {} for i = 0, 255 do t[#t + 1] = string.char(i) end return { status = 200, body = table.concat(t):rep(1000) } end',
  })
  t.teardown(() => site.close())
  const text = 'aé€😀\u0000\n'.repeat(30_000)
  t.equal((await site.call('echo', {}, text)).body.toString(), text)
  const { body } = await site.call('bytes')
  t.equal(body.length, 256_000)
  t.ok(body.every((byte, i) => byte === i % 256))
})

t.test(
  '[runtime/lua-runtime.4, runtime/lua-runtime.11] nothing of one function reaches another, nor an argument the next call',
  async t => {
    const writer = `
    string.shared, table.shared, math.shared, leaked = "x", "x", "x", "x"
    setmetatable(_G, { __index = function() return "meta" end })
    getmetatable("").__index.evil = "x"
    package.loaded.cjson = "x"
    package.preload.evil = function() return "x" end
    function handler(e) e.env.NAME = "changed" e.context.runtime = "changed" count = (rawget(_G, "count") or 0) + 1 return count end`
    const reader = `
    function handler(e)
      return { rawget(_G, "leaked") == nil, string.shared == nil, table.shared == nil, math.shared == nil, getmetatable(_G) == nil,
        ("").evil == nil, type(require("cjson")), (pcall(require, "evil")), rawget(_G, "count") == nil, e.context.runtime }
    end`
    const site = makeLuaSite({ writer, reader })
    t.teardown(() => site.close())
    t.equal((await site.call('writer')).body.toString(), '1')
    t.equal((await site.call('writer')).body.toString(), '2', 'globals of a thread last')
    t.same(JSON.parse((await site.call('reader')).body.toString()), [
      true,
      true,
      true,
      true,
      true,
      true,
      'table',
      false,
      true,
      'lua',
    ])
    site.add(
      'twice',
      'function handler(e) local before = e.env.A .. tostring(e.context.mark) e.env.A = "z" e.context.mark = 1 return before end',
      {},
      { env: { A: { value: 'a', isSecret: false } } },
    )
    site.retain()
    for (let i = 0; i < 2; i++) t.equal((await site.call('twice')).body.toString(), '"anil"')
  },
)

t.test(
  '[runtime/lua-runtime.5, runtime/lua-runtime.6] the callable is found, or the error says what is there',
  async t => {
    const found: [source: string, handler: string | null][] = [
      ['function handler() return "ok" end', null],
      ['return function() return "ok" end', null],
      ['return { handler = function() return "ok" end }', null],
      ['return { main = function() return "ok" end }', null],
      ['function main() return "ok" end', null],
      ['function main() return "no" end return { handler = function() return "ok" end }', null],
      ['function handler() return "no" end return function() return "ok" end', null],
      ['local M = {} function M.handler() return "ok" end function handler() return "no" end return M', null],
      ['handler = setmetatable({}, { __call = function() return "ok" end })', null],
      ['function run() return "ok" end function handler() return "no" end', 'run'],
      ['return { run = function() return "ok" end }', 'run'],
      ['\uFEFF#!/usr/bin/lua\nfunction handler() return "ok" end', null],
    ]
    const missing: [source: string, handler: string | null, message: string, hint: string][] = [
      [
        'local function handler() end',
        null,
        'm/handler.lua has no function "handler" (it defines none)',
        '"handler" is local: remove "local", or end the file with "return handler"',
      ],
      [
        'function greet() end function bye() end',
        null,
        'm/handler.lua has no function "handler" (it defines bye, greet)',
        'add function handler(event, params) ... end, or name another function in invoke.handler',
      ],
      [
        'function handler() end',
        'run',
        'm/handler.lua has no function "run" (it defines handler)',
        'add function run(event, params) ... end, or name another function in invoke.handler',
      ],
      [
        'return function() end',
        'run',
        'm/handler.lua has no function "run" (it defines none)',
        'add function run(event, params) ... end, or name another function in invoke.handler',
      ],
      [
        'handler = 5',
        null,
        'm/handler.lua has no function "handler" (it defines none)',
        'add function handler(event, params) ... end, or name another function in invoke.handler',
      ],
      [
        '',
        null,
        'm/handler.lua has no function "handler" (it defines none)',
        'add function handler(event, params) ... end, or name another function in invoke.handler',
      ],
    ]
    const site = makeLuaSite({})
    t.teardown(() => site.close())
    for (const [i, [source, handler]] of found.entries()) site.add(`f${i}`, source, { handler })
    site.retain()
    for (const [i, [source]] of found.entries()) t.equal((await site.call(`f${i}`)).body.toString(), '"ok"', source)
    for (const [source, handler, message, hint] of missing) {
      site.add('m', source, { handler })
      site.retain()
      const { error } = await site.call('m')
      t.equal(error?.message, message, source)
      t.equal(error?.status, 500)
      t.equal(error?.detail?.hint, hint, source)
    }
  },
)

t.test('[runtime/lua-runtime.7] a function that cannot be loaded says where and why', async t => {
  const cases: [name: string, source: string, message: RegExp, line: number | undefined][] = [
    [
      'syntax',
      'function handler()\n  local x = = 1\nend',
      /^syntax error in syntax\/handler\.lua:2: unexpected symbol near '='$/,
      2,
    ],
    [
      'unclosed',
      'function handler()\n',
      /^syntax error in unclosed\/handler\.lua:\d: 'end' expected .*near <eof>$/,
      undefined,
    ],
    ['[id]', 'x = = 1', /^syntax error in \[id\]\/handler\.lua:1: /, 1],
    ['throws', '\nerror("no config")', /^cannot load throws\/handler\.lua:2: no config$/, 2],
    [
      'nil',
      'local x = nil\nx.y = 1',
      /^cannot load nil\/handler\.lua:2: attempt to index a nil value \(local 'x'\)$/,
      2,
    ],
    ['bytecode', '\x1bLua', /^syntax error in .*attempt to load a binary chunk/, undefined],
    [
      'module',
      'require("nowhere")',
      /^cannot load module\/handler\.lua:1: module 'nowhere' not found:\n\tno file 'module\/nowhere\.lua'/,
      1,
    ],
  ]
  const site = makeLuaSite({})
  t.teardown(() => site.close())
  for (const [name, source] of cases) site.add(name, source)
  site.retain()
  for (const [name, , message, line] of cases) {
    const { error } = await site.call(name)
    t.match(error?.message, message, name)
    t.equal(error?.code, 'LOAD_FAILED', name)
    t.equal(error?.detail?.file, `${name}/handler.lua`, name)
    if (line !== undefined) t.equal(error?.detail?.line, line, name)
  }
  site.add('requires', '\nrequire("part")')
  site.tree.write({ 'requires/part.lua': 'local a = 1\n\tlocal x = = 1\n' })
  site.retain()
  t.match((await site.call('requires')).error, {
    message: "syntax error in requires/part.lua:2: unexpected symbol near '='",
    detail: {
      file: 'requires/part.lua',
      line: 2,
      stack:
        /part\.lua:2\n {4}1 \| local a = 1\n {4}2 \| {2}local x = = 1\n.*\n\trequires\/handler\.lua:2: in main chunk$/,
    },
  })
  site.add('gone', '')
  site.tree.remove('gone/handler.lua')
  site.add('adapted', 'function handler() end', { adapter: 'cloud-lambda', adapterName: 'cloud-lambda' })
  site.retain()
  t.equal((await site.call('gone')).error?.message, 'handler file gone/handler.lua does not exist')
  t.equal((await site.call('adapted')).error?.message, 'adapter "cloud-lambda" is not available in lua')
})

t.test('[runtime/lua-runtime.17] what a handler raises is told with file, line and stack', async t => {
  const site = makeEvaluator()
  t.teardown(() => site.close())
  site.add('deep', 'local function inner(x)\n  error("boom " .. x)\nend\nfunction handler() inner("1") end')
  site.add('index', 'function handler(e)\n\n  return e.nothing.x\nend')
  site.retain()
  const { error } = await site.call('deep')
  t.equal(error?.message, 'boom 1')
  t.equal(error?.status, 500)
  t.equal(error?.detail?.file, 'deep/handler.lua')
  t.equal(error?.detail?.line, 2)
  t.match(
    error?.detail?.stack,
    /deep\/handler\.lua:2: in upvalue 'inner'\n\t\tx = "1"\n\tdeep\/handler\.lua:4: in function/,
  )
  t.notMatch(error?.detail?.stack, /\[C\]|\[JS\]|\.mjs/, 'only frames of the function')
  site.add(
    'far',
    'local function f(n) if n == 0 then error(("é"):rep(3000)) end return 1 + f(n - 1) end\nfunction handler() f(100) end',
  )
  site.retain()
  const { stack } = (await site.call('far')).error?.detail ?? {}
  t.ok(stack !== undefined && Buffer.byteLength(stack) <= 8 * 1024, 'at most 8 KiB')
  t.equal((await site.call('index')).error?.message, "attempt to index a nil value (field 'nothing')")
  const cases: [lua: string, message: RegExp][] = [
    ['error("plain", 0)', /^plain$/],
    ['error({ message = "of a table" })', /^of a table$/],
    ['error({ error = "of a field" })', /^of a field$/],
    ['error({ code = 7 })', /^handler threw \{"code":7\}$/],
    ['error(setmetatable({}, { __tostring = function() return "own text" end }))', /^own text$/],
    ['error(setmetatable({}, { __tostring = function() error("again") end }))', /^handler threw a table$/],
    ['error()', /^error\(nil\)$/],
    ['error(print)', /^function: /],
    ['error("\\255")', /^\ufffd$/],
    ['os.exit(1)', /^attempt to call a nil value \(field 'exit'\)$/],
    ['error(("x"):rep(1e6), 0)', /^x{16384}\.\.\.$/],
  ]
  for (const [lua, message] of cases) {
    const result = await site.call('eval', {}, lua)
    t.match(result.error?.message, message, lua)
    t.equal(result.error?.code, 'HANDLER_FAILED', lua)
  }
  t.equal((await site.call('eval', {}, 'return "still here"')).body.toString(), '"still here"')
})

t.test(
  '[runtime/lua-runtime.20, runtime/lua-runtime.21] the sandbox holds what it should and nothing else',
  async t => {
    const site = makeEvaluator()
    t.teardown(() => site.close())
    const { body } = await site.call(
      'eval',
      {},
      'local n = {} for k in pairs(_G) do n[#n + 1] = k end table.sort(n) return n',
    )
    t.same(JSON.parse(body.toString()), [
      '_G',
      '_VERSION',
      'assert',
      'collectgarbage',
      'coroutine',
      'debug',
      'dofile',
      'error',
      'getmetatable',
      'handler',
      'io',
      'ipairs',
      'load',
      'loadfile',
      'loadstring',
      'math',
      'next',
      'os',
      'package',
      'pairs',
      'pcall',
      'print',
      'rawequal',
      'rawget',
      'rawlen',
      'rawset',
      'require',
      'select',
      'setmetatable',
      'string',
      'table',
      'tonumber',
      'tostring',
      'type',
      'unpack',
      'utf8',
      'xpcall',
    ])
    const cases: [lua: string, expected: unknown][] = [
      [
        'local n = {} for k in pairs(os) do n[#n + 1] = k end table.sort(n) return n',
        ['clock', 'date', 'difftime', 'getenv', 'time'],
      ],
      ['local n = {} for k in pairs(io) do n[#n + 1] = k end table.sort(n) return n', ['stderr', 'stdout', 'write']],
      ['local n = {} for k in pairs(debug) do n[#n + 1] = k end return n', ['traceback']],
      [
        'local n = {} for k in pairs(package) do n[#n + 1] = k end table.sort(n) return n',
        ['config', 'loaded', 'path', 'preload'],
      ],
      ['return { package.loadlib == nil, string.dump == nil, package.loaded.fengari == nil }', [true, true, true]],
      [
        'return { load("\\27Lua") == nil, (select(2, load("return 1", "x", "b"))) }',
        [true, 'bytecode is not accepted: load source text'],
      ],
      [
        'return { load("return 1 + 1")(), load(function() return nil end) ~= nil, loadstring("return 3")() }',
        [2, true, 3],
      ],
      ['local parts, i = { "return ", "5" }, 0 return load(function() i = i + 1 return parts[i] end)()', 5],
      ['return load("return x", "n", "t", { x = 9 })()', 9],
      ['return (select(2, load("x = = 1", "=name")))', "name:1: unexpected symbol near '='"],
      [
        'collectgarbage("stop") collectgarbage() return { collectgarbage("count") > 0, collectgarbage("isrunning") }',
        [true, true],
      ],
      [
        'return { os.date("!%Y-%m-%dT%H:%M:%SZ", 0), os.date("!%c", 86400) }',
        ['1970-01-01T00:00:00Z', 'Fri Jan  2 00:00:00 1970'],
      ],
      ['return { os.date("!%Y", 4e9), math.type(os.time()), os.time() > 1.7e9 }', ['2096', 'integer', true]],
      [
        'local d = os.date("!*t", 951782400) return { d.year, d.month, d.day, d.wday, d.yday, d.isdst }',
        [2000, 2, 29, 3, 60, false],
      ],
      ['local t = { year = 2024, month = 14, day = -1 } os.time(t) return { t.year, t.month, t.day }', [2025, 1, 30]],
      ['return os.time({ year = 2050, month = 1, day = 1 }) > 2147483647', true],
      ['return (select(2, pcall(os.date, "%Ez")))', "bad argument #1 to 'os.date' (invalid conversion specifier '%E')"],
      ['return { os.difftime(10, 4), os.clock() >= 0 }', [6, true]],
      [
        'return { ("ab"):rep(3, "-"), ("x"):rep(0), (""):rep(1e9), ("x"):rep(-1), ("abc"):rep(1, "sep") }',
        ['ab-ab-ab', '', '', '', 'abc'],
      ],
      ['return debug.traceback("m"):sub(1, 18)', 'm\nstack traceback:'],
      ['return math.type(2147483647 + 1)', 'integer'],
      // Repairs of the interpreter's strings.
      [
        'return { ({ ["\\t\\18"] = 1 })["\\145\\2"] == nil, "\\n" < "A", "a" < "b", "é" > "z", "a" < "a\\0" }',
        [true, true, true, true, true],
      ],
      [
        'local t = {} for i = 1, 1000 do t["k" .. i] = i end for i = 1, 1000, 2 do t["k" .. i] = nil end local n = 0 for _ in pairs(t) do n = n + 1 end return n',
        500,
      ],
      ['local t = { a = 1, b = 2, c = 3 } for k in pairs(t) do t[k] = nil end return next(t) == nil', true],
      ['local t = { 1, 2, 3 } table.remove(t, 1) table.insert(t, 1, 9) return t', [9, 2, 3]],
      [
        'return { tonumber("0x10"), tonumber(" 12 "), tonumber("1e2"), tonumber("é") == nil, tonumber("zz", 36) }',
        [16, 12, 100, true, 1295],
      ],
    ]
    for (const [lua, expected] of cases) {
      const result = await site.call('eval', {}, lua)
      t.equal(result.error, null, `${lua} ${result.error?.message}`)
      if (result.error === null) t.same(JSON.parse(result.body.toString()), expected, lua)
    }
  },
)

t.test('[runtime/lua-runtime.30] no call changes the metatable of strings', async t => {
  const site = makeEvaluator()
  t.teardown(() => site.close())
  const attempts = [
    'getmetatable("").__index = function() return "changed" end',
    'getmetatable("x").__add = function() return "changed" end',
    'rawset(getmetatable(""), "__add", function() return "changed" end)',
    'rawset(getmetatable(""), "__index", function() return "changed" end)',
    'setmetatable(getmetatable(""), { __index = { __index = 1 } })',
    'getmetatable(getmetatable("")).__index = nil',
    'for key in pairs(getmetatable("")) do getmetatable("")[key] = nil end',
  ]
  for (const lua of attempts) {
    const after = 'return { ("a").upper ~= nil and ("a"):upper(), pcall(function() return "a" + 1 end) }'
    await site.call('eval', {}, lua)
    const { body, error } = await site.call('eval', {}, after)
    t.equal(error, null, lua)
    t.match(
      error === null && JSON.parse(body.toString()),
      ['A', false, /attempt to perform arithmetic on a string value/],
      lua,
    )
  }
  const seen: [lua: string, expected: unknown][] = [
    ['return getmetatable("").__index == string', true],
    ['return getmetatable("") ~= getmetatable("")', true],
    ['return getmetatable(setmetatable({}, { __metatable = "mine" }))', 'mine'],
    ['return getmetatable({}) == nil and getmetatable(1) == nil', true],
    [
      'return (select(2, pcall(function() getmetatable("").__mod = 1 end)))',
      'case:1: the metatable of strings cannot be changed: all strings of all calls share it',
    ],
    ['return (select(2, pcall(getmetatable)))', "bad argument #1 to 'getmetatable' (value expected)"],
  ]
  for (const [lua, expected] of seen) {
    const { body, error } = await site.call('eval', {}, lua)
    t.equal(error, null, `${lua} ${error?.message}`)
    t.same(JSON.parse(body.toString()), expected, lua)
  }
})

t.test(
  "[runtime/lua-runtime.34] a library is the function's own; methods of strings are not changed by it",
  async t => {
    const site = makeEvaluator()
    t.teardown(() => site.close())
    const steps: [lua: string, expected: unknown][] = [
      ['string.upper = function() return "changed" end return ("a"):upper()', 'A'],
      ['return { ("a"):upper(), string.upper("a") }', ['A', 'changed']],
      ['function string.trim(s) return (s:gsub("^%s+", "")) end return ("  a"):trim()', 'a'],
      ['return ("  b"):trim()', 'b'],
      ['for name in pairs(string) do string[name] = nil end return ("a"):upper()', 'A'],
      ['return { ("a"):rep(3), ("%d"):format(7), pcall(function() return ("a"):trim() end) }', ['aaa', '7', false]],
      ['string = nil return ("abc"):sub(2)', 'bc'],
      ['return getmetatable("").__index.upper == nil', true],
      ['getmetatable("").__index.upper = function() return "changed" end return ("a"):upper()', 'A'],
      [
        'setmetatable(getmetatable("").__index, { __index = function() return "added" end }) return ("a").nothing',
        'added',
      ],
      ['math.floor = nil table.mine = 1 return { math.floor == nil, table.mine }', [true, 1]],
      ['return { math.floor == nil, table.mine }', [true, 1]],
    ]
    for (const [lua, expected] of steps) {
      const { body, error } = await site.call('eval', {}, lua)
      t.equal(error, null, `${lua} ${error?.message}`)
      if (error === null) t.match(JSON.parse(body.toString()), expected, lua)
    }
    const fresh = makeEvaluator()
    t.teardown(() => fresh.close())
    const { body } = await fresh.call('eval', {}, 'local n = 0 for _ in pairs(string) do n = n + 1 end return n')
    t.equal(JSON.parse(body.toString()), 16, 'nothing is added to what a program sees')
  },
)

t.test('[runtime/lua-runtime.22] files come from the function and the root alone', async t => {
  const site = makeLuaSite(
    {},
    {
      files: {
        'fn/util.lua': 'return { name = ..., dir = "fn" }',
        'fn/sub/init.lua': 'return "sub"',
        'fn/sub/deep.lua': 'count = (count or 0) + 1 return count',
        'fn/broken.lua': 'x = = 1',
        'fn/data.lua': 'return 1, 2',
        'fn/nothing.lua': 'ran = true',
        'lib/shared.lua': 'return "shared"',
        'fn/pipe.d/': '',
        'fn/folder.lua/': '',
        'fn/out.lua': { symlink: '/etc/hostname' },
        'fn/in.lua': { symlink: '../lib/shared.lua' },
        'fn/huge.lua': `return "${'x'.repeat(3 * 1024 * 1024)}"`,
      },
    },
  )
  t.teardown(() => site.close())
  site.add('fn', EVALUATE)
  site.retain()
  execFileSync('mkfifo', [site.tree.path('fn/fifo.lua')])
  const cases: [lua: string, expected: unknown][] = [
    ['local u = require("util") return { u.name, u.dir, require("util") == u }', ['util', 'fn', true]],
    [
      'return { require("sub"), require("sub.deep"), require("sub.deep"), require("lib.shared"), require("lib/shared") }',
      ['sub', 1, 1, 'shared', 'shared'],
    ],
    ['return { require("nothing"), ran, require("in") }', [true, true, 'shared']],
    ['return { dofile("data.lua") }', [1, 2]],
    ['return loadfile("data.lua")()', 1],
    [
      'return { loadfile("missing.lua") == nil, (select(2, loadfile("missing.lua"))) }',
      [true, 'cannot read missing.lua: no such file'],
    ],
  ]
  for (const [lua, expected] of cases) {
    const result = await site.call('fn', {}, lua)
    t.equal(result.error, null, `${lua} ${result.error?.message}`)
    if (result.error === null) t.same(JSON.parse(result.body.toString()), expected, lua)
  }
  const refused: [lua: string, message: RegExp][] = [
    ['require("broken")', /error loading module 'broken': fn\/broken\.lua:1: unexpected symbol near '='/],
    [
      'require("nope")',
      /module 'nope' not found:\n\tno file 'fn\/nope\.lua'\n\tno file 'fn\/nope\/init\.lua'\n\tno file 'nope\.lua'/,
    ],
    ['require("../fn/util")', /module name '\.\.\/fn\/util' must be parts/],
    ['require("/etc/passwd")', /module name '\/etc\/passwd' must be parts/],
    ['require("..util")', /must be parts/],
    ['dofile("/etc/hostname")', /cannot read .*hostname: it lies outside the functions root/],
    ['dofile("../../../../../../../../etc/hostname")', /outside the functions root/],
    ['require("out")', /fn\/out\.lua: it lies outside the functions root/],
    ['dofile("fifo.lua")', /cannot read fn\/fifo\.lua: it is not a regular file/],
    ['dofile("/dev/zero")', /outside the functions root/],
    ['require("folder")', /fn\/folder\.lua: it is not a regular file/],
    ['dofile("huge.lua")', /3145737 bytes are more than the 2097152 of a source file/],
  ]
  for (const [lua, message] of refused) t.match((await site.call('fn', {}, lua)).error?.message, message, lua)
})

t.test('[runtime/lua-runtime.23] cjson and cjson.safe', async t => {
  const site = makeEvaluator()
  t.teardown(() => site.close())
  const cases: [lua: string, expected: unknown][] = [
    ['return c.encode({ a = 1, b = { 1, 2 } })', '{"a":1,"b":[1,2]}'],
    ['return c.decode(\'{"a":[1,2,{"b":null}],"é":"\\\\u20ac\\\\n"}\')["é"]', '€\n'],
    [
      'local t = c.decode("[1,null,3]") return { #t, t[2] == c.null, type(c.null), tostring(c.null) }',
      [3, true, 'userdata', 'userdata: null'],
    ],
    [
      'return { c.decode("5"), c.decode("true"), c.decode(\'"x"\'), math.type(c.decode("3")), math.type(c.decode("3.5")), math.type(c.decode("3000000000")) }',
      [5, true, 'x', 'integer', 'float', 'float'],
    ],
    [
      'return { c.encode(c.null), c.encode({}), c.encode(c.empty_array), c.encode(setmetatable({}, c.array_mt)) }',
      ['null', '{}', '[]', '[]'],
    ],
    [
      'c.encode_empty_table_as_object(false) local r = c.encode({ a = {} }) c.encode_empty_table_as_object(true) return r',
      '{"a":[]}',
    ],
    [
      'c.decode_array_with_array_mt(true) local r = c.encode(c.decode("[]")) c.decode_array_with_array_mt(false) return { r, c.encode(c.decode("[]")) }',
      ['[]', '{}'],
    ],
    ['return { pcall(c.decode, "{x") }', [false, /the text is not JSON/]],
    ['return { pcall(c.encode, { f = print }) }', [false, /the value\.f is a function, which JSON cannot hold/]],
    ['local v, m = s.decode("nope") return { v == nil, m }', [true, /the text is not JSON/]],
    ['local v, m = s.encode(0/0) return { v == nil, m }', [true, 'the value is NaN, which JSON cannot hold']],
    ['return { c ~= s, require("cjson") == c, c.new ~= nil, c._NAME }', [true, true, true, 'cjson']],
    ['return { pcall(c.decode, ("["):rep(2000) .. ("]"):rep(2000)) }', [false, /nested deeper than 1000/]],
    ['return c.encode("\\1\\\\/")', '"\\u0001\\\\/"'],
    ['local t = c.decode(\'{"__proto__":1,"a":2}\') return { t["__proto__"], t.a }', [1, 2]],
  ]
  for (const [lua, expected] of cases) {
    const result = await site.call('eval', {}, `local c, s = require("cjson"), require("cjson.safe") ${lua}`)
    t.equal(result.error, null, `${lua} ${result.error?.message}`)
    if (result.error === null) t.match(JSON.parse(result.body.toString()), expected, lua)
  }
})

t.test('[runtime/lua-runtime.24] what a handler prints belongs to its call', async t => {
  const site = makeEvaluator()
  t.teardown(() => site.close())
  const one = await site.call(
    'eval',
    {},
    'print("a", 1, nil, true) io.write("b", 2):write("c") io.stdout:write("\\n") io.stderr:write("oops") return 1',
  )
  t.equal(one.stdout, 'a\t1\tnil\ttrue\nb2c\n')
  t.equal(one.stderr, 'oops')
  t.equal((await site.call('eval', {}, 'return 1')).stdout, '', 'nothing is left for the next call')
  const flood = await site.call('eval', {}, 'for i = 1, 100000 do print(("x"):rep(100)) end return 1')
  t.ok(flood.stdout.length <= 64 * 1024 + 30)
  t.match(flood.stdout, /\n\[output truncated\]\n$/)
  t.equal(flood.body.toString(), '1')
  site.add('hangs', 'function handler() for i = 1, 3 do print(i) end while true do end end', SLOW)
  // Long enough to print 600 lines on a busy machine.
  site.add('chatters', 'function handler() while true do print(("x"):rep(99)) end end', { timeoutMs: 2000 })
  site.retain()
  const hung = await site.call('hangs')
  t.match(hung, { error: { status: 504 }, stdout: '1\n2\n3\n' }, 'what it printed tells where it hangs')
  const chatter = await site.call('chatters')
  t.equal(chatter.error?.status, 504)
  t.match(chatter.stdout, /^(?:x{99}\n){600}/)
  t.ok(chatter.stdout.length <= 64 * 1024 + 30, 'the limit holds for the call, not for the time between two looks')
  const failed = await site.call('eval', {}, 'print("before") error("x")')
  t.equal(failed.stdout, 'before\n')
  t.equal((await site.call('eval', {}, 'print("\\255") return 1')).stdout, '\ufffd\n')
  site.add('noisy', 'print("loading") function handler() return 1 end')
  site.retain()
  await site.call('noisy')
  t.same(site.logs, ['noisy stdout loading\n'])
})

t.test('[runtime/lua-runtime.18] endless work of any kind ends with 504, and the next call is served', async t => {
  const loops: Record<string, string> = {
    loop: 'while true do end',
    'pcall loop': 'while true do pcall(function() while true do end end) end',
    'pcall and go on':
      'pcall(function() while true do end end) pcall(function() while true do end end) return "escaped"',
    'xpcall handler': 'xpcall(function() while true do end end, function() while true do end end) return "escaped"',
    'coroutine loop':
      'local co = coroutine.wrap(function() while true do coroutine.yield() end end) while true do co() end',
    'after a caught error in a coroutine': 'coroutine.wrap(function() pcall(error) while true do end end)()',
    'coroutine in pcall': 'while true do pcall(coroutine.wrap(function() while true do end end)) end',
    pattern: 'return (("a"):rep(40)):find(("a?"):rep(40) .. ("a"):rep(40) .. "b")',
    'pattern backtracking': 'return (("a"):rep(30000)):find(".-.-.-.-b")',
    sort: 'local t = {} for i = 1, 1000 do t[i] = i end while true do table.sort(t, function(a, b) return a < b end) end',
    'table.move': 'table.move(setmetatable({}, { __index = rawequal, __newindex = rawequal }), 1, 2^31 - 2, 2)',
    concat:
      'return #table.concat(setmetatable({}, { __len = function() return 2^31 - 1 end, __index = function() return "" end }))',
    metamethod:
      'local t = setmetatable({}, { __index = function(t, k) return t[k] end, __concat = function() while true do end end }) return t .. t',
    gsub: 'return (("x"):rep(1e6)):gsub("x", function() while true do end end)',
    'load reader': 'load(function() return " " end)',
  }
  const site = makeLuaSite({ other: 'function handler() return "fine" end' }, { memoryMb: 256 })
  t.teardown(() => site.close())
  for (const [name, source] of Object.entries(loops)) {
    site.add(name, `function handler(e) if e.query.ok then return "ok" end ${source} end`, { timeoutMs: 250 })
  }
  site.retain()
  for (const name of Object.keys(loops)) {
    await site.call(name, { query: { ok: '1' } })
    const [{ error }, beside] = await Promise.all([site.call(name), site.call('other')])
    t.ok(
      (error !== null && [503, 504].includes(error.status)) || name === 'load reader',
      `${name}: ${error?.status} ${error?.message}`,
    )
    if (name !== 'load reader' && name !== 'table.move') t.match(error?.message, /^runtime timeout after \d+ ms$/, name)
    t.equal(beside.body.toString(), '"fine"', `another function beside ${name}`)
    t.equal((await site.call(name, { query: { ok: '1' } })).body.toString(), '"ok"', `the next call after ${name}`)
  }
})

t.test('[runtime/lua-runtime.18] a thread that nobody ends in time ends its call itself', async t => {
  const tree = makeTree({
    'handler.lua': `function handler(e)
      if e.query.ok then return "ok" end
      local co = coroutine.wrap(function() while true do pcall(function() while true do end end) end end)
      while true do pcall(co) end
    end`,
  })
  t.teardown(() => tree.cleanup())
  // The thread alone, without the set whose timer would end it first.
  const { send, said } = startThread(t, tree)
  send([1, '{"query":{}}', null, 2, '{"query":{"ok":"1"}}', null])
  await until(() => said.length >= 12, 'both calls are answered')
  t.same(said.slice(0, 2), ['ready', 0])
  t.same(said.slice(4, 6), ['error', 1])
  t.match(JSON.parse(String(said[6])), { code: 'timeout', message: 'runtime timeout' })
  t.same(said.slice(8), ['reply', 2, JSON_HEAD, '"ok"'], 'and serves the next one')
})

t.test(
  '[runtime/lua-runtime.19, runtime/lua-runtime.29] memory bombs end their own thread, never the process',
  async t => {
    const bombs: Record<string, string> = {
      'growing table': 'local t = {} for i = 1, 1e9 do t[i] = i end',
      'growing record': 'local t = {} for i = 1, 1e9 do t["k" .. i] = {} end',
      'doubling string': 'local s = "x" while true do s = s .. s end',
      'many operands':
        'local s = ("x"):rep(1e7) return #(s .. s .. s .. s .. s .. s .. s .. s .. s .. s .. s .. s .. s .. s .. s .. s)',
      'list of strings': 'local t = {} for i = 1, 1e9 do t[i] = ("x"):rep(1000) .. i end',
      'string.rep': 'return ("x"):rep(2^31 - 1)',
      'rep of rep': 'local t = {} for i = 1, 1000 do t[i] = ("x"):rep(1e7 + i) end',
      'table.concat': 'local t = {} for i = 1, 1e5 do t[i] = ("x"):rep(1000) end return #table.concat(t)',
      gsub: 'return #(("x"):rep(1e6):gsub(".", ("y"):rep(1e6)))',
      'string.format': 'local t = {} for i = 1, 1e9 do t[i] = ("%99.99f"):format(i) end',
      'utf8.char': 'local t = {} for i = 1, 1e9 do t[i] = utf8.char(0x10FFFF):rep(100) end',
      unpack: 'local t = { 1, 2, 3 } while true do t[#t + 1] = { table.unpack(t) } end',
      'unpack far': 'return select("#", table.unpack({}, 1, 1e8))',
      'table.move': 'return #table.move(setmetatable({}, { __index = type }), 1, 2^31 - 2, 1, {})',
      'table.insert':
        'table.insert(setmetatable({}, { __len = function() return 2^31 - 3 end, __index = type }), 1, 1)',
      bytes: 'local s, t = ("x"):rep(1e5), {} for i = 1, 1e9 do t[i] = { s:byte(1, -1) } end',
      coroutines:
        'local s, t = ("x"):rep(1e5), {} for i = 1, 1e9 do local co = coroutine.create(function(...) coroutine.yield() end) coroutine.resume(co, s:byte(1, -1)) t[i] = co end',
      'after a caught error in a coroutine':
        'coroutine.wrap(function() pcall(error) pcall(error) local t = {} for i = 1, 1e9 do t[i] = i end end)()',
      closures: 'local t = {} for i = 1, 1e9 do t[i] = function() return i end end',
      recursion: 'local function f(n) return 1 + f(n + 1) end return f(1)',
      'mutual pcall': 'local function f() return pcall(f) end return f()',
      'tostring recursion':
        'local t t = setmetatable({}, { __tostring = function() return tostring(t) end }) return tostring(t)',
      'long keys': 'local s, t = ("x"):rep(1e6), {} for i = 1, 1e9 do t[s .. i] = 1 end',
      'source text': 'return load(("x = 1 "):rep(1e6))',
      'nested source': 'return load(("("):rep(1e6))',
      'deep json': 'return require("cjson").decode(("["):rep(5e6))',
      'wide json': 'return #require("cjson").decode("[" .. ("{},"):rep(1.5e6) .. "{}]")',
      'big answer': 'local t = {} for i = 1, 1e5 do t[i] = ("x"):rep(1000) end return t',
      'same answer often': 'local s = ("x"):rep(1e6) local t = {} for i = 1, 5000 do t[i] = s end return t',
      'pcall around':
        'local t = {} while true do pcall(function() for i = 1, 1e6 do t[#t + 1] = ("x"):rep(100) end end) end',
      'print flood': 'while true do print(("x"):rep(1e6)) end',
      'error chain': 'local s = "x" while true do s = select(2, pcall(error, s .. s)) end',
      'number of text': 'return tonumber(("1"):rep(1e7))',
    }
    const site = makeLuaSite(
      { other: 'function handler() return "fine" end' },
      { memoryMb: 32, policy: { timeoutMs: 4000 } },
    )
    t.teardown(() => site.close())
    for (const [name, source] of Object.entries(bombs)) {
      // What a handler prints is not held: only the time ends it.
      const policy = name === 'print flood' ? { timeoutMs: 1000 } : {}
      site.add(name, `function handler(e) if e.query.ok then return "ok" end ${source} end`, policy)
    }
    site.retain()
    for (const name of Object.keys(bombs)) {
      const { error, body } = await site.call(name)
      const text = error === null ? body.subarray(0, 40).toString() : `${error.status} ${error.message.slice(0, 100)}`
      t.ok(error === null || [500, 502, 503, 504].includes(error.status), `${name}: ${text}`)
      t.equal((await site.call('other')).body.toString(), '"fine"', `another function after ${name}`)
      t.equal((await site.call(name, { query: { ok: '1' } })).body.toString(), '"ok"', `the next call after ${name}`)
      site.dispatcher.retain(new Map([...site.fns.values()].filter(fn => fn.name !== name).map(fn => [fn.key, fn])))
    }
  },
)

t.test('[runtime/lua-runtime.19] garbage alone ends nothing', async t => {
  const site = makeLuaSite({}, { memoryMb: 32, policy: { timeoutMs: 20_000 } })
  t.teardown(() => site.close())
  site.add('tables', 'function handler() local x for i = 1, 3e5 do x = { i, { i }, tostring(i) } end return "ok" end')
  site.add('strings', 'function handler() local x for i = 1, 500 do x = ("x"):rep(1e6) .. i end return #x end')
  site.add('grow', 'function handler() local s = "" for i = 1, 8000 do s = s .. "0123456789" end return #s end')
  site.retain()
  for (const [name, expected] of Object.entries({ tables: '"ok"', strings: '1000003', grow: '80000' })) {
    const { error, body } = await site.call(name)
    t.equal(error?.message ?? body.toString(), expected, name)
  }
})

t.test('[runtime/lua-runtime.19] memory that many small calls fill is noticed as that of a large one', async t => {
  const site = makeLuaSite({}, { memoryMb: 64 })
  t.teardown(() => site.close())
  site.add('keep', 'kept = {} function handler() kept[#kept + 1] = ("x"):rep(3e6) .. #kept return #kept end')
  site.retain()
  let most = 0
  let failed = 0
  for (let i = 0; i < 40; i++) {
    const { error, body } = await site.call('keep')
    if (error === null) most = Math.max(most, Number(body))
    else {
      failed++
      t.match(error.message, 'out of memory: limit 64 MB, FN_WORKER_MEMORY_MB')
    }
  }
  t.ok(failed >= 1, `${failed} calls failed`)
  t.ok(most * 3 < 64, `${most * 3} MB were kept`)
})

t.test('[runtime/lua-runtime.31] all threads together hold no more than their limit; small ones go on', async t => {
  const site = makeLuaSite({}, { memoryMb: 64, totalMemoryMb: 128, policy: { timeoutMs: 20_000 } })
  t.teardown(() => site.close())
  const hogs = ['a', 'b', 'c', 'd', 'e', 'f']
  const keep =
    'kept = {} function handler(e) for i = 1, 20 do kept[#kept + 1] = ("x"):rep(1e6) .. i end return #kept end'
  for (const name of hogs) site.add(name, keep)
  site.add('small', 'count = 0 function handler() count = count + 1 return count end')
  site.retain()
  t.equal((await site.call('small')).body.toString(), '1')
  const told: string[] = []
  for (let round = 0; round < 2; round++) {
    // Each holds 20 MB, then 40: less than one may, and together more than all may.
    const answers = await Promise.all(hogs.map(name => site.call(name)))
    for (const { error } of answers) if (error !== null) told.push(error.message)
    // What a thread held is given back when it has ended, a moment after its call was told.
    await until(() => site.runtime.heldMb <= 128, 'no more is held than all may')
    t.equal((await site.call('small')).body.toString(), String(round + 2), 'the same thread serves on')
  }
  t.ok(told.length >= 1)
  for (const text of told)
    t.match(text, /^out of memory: limit 128 MB for all Lua functions, FN_LUA_MEMORY_MB; this one holds \d+ MB$/)
  await site.closeRuntime(0)
  t.equal(site.runtime.heldMb, 0, 'threads that ended hold nothing')
})

t.test('[runtime/lua-runtime.32] a thread tells which files it read, also when a call reads them', async t => {
  const tree = makeTree({
    'handler.lua': `local helper = require("helper")
      function handler(e)
        if e.query.lazy then return require("lazy") .. dofile("more.lua") end
        return helper
      end`,
    'helper.lua': 'return "helper"',
    'lazy.lua': 'return "lazy"',
    'more.lua': 'return "more"',
  })
  t.teardown(() => tree.cleanup())
  const call = (id: number, query: object) => [id, JSON.stringify({ query }), null]
  for (const production of [false, true]) {
    const { send, said } = startThread(t, tree, { production })
    send([...call(1, {}), ...call(2, { lazy: '1' }), ...call(3, { lazy: '1' })])
    await until(() => said.includes(3), 'the last call is answered')
    const messages: unknown[][] = []
    for (let i = 0; i < said.length; i += 4) messages.push(said.slice(i, i + 4))
    const files = (...names: string[]) => JSON.stringify({ files: names.map(tree.path) })
    t.same(
      messages.filter(([kind]) => kind !== 'reply'),
      [
        ['ready', 0, files('handler.lua', 'helper.lua'), ''],
        ...(production ? [] : [['loaded', 0, files('lazy.lua', 'more.lua'), '']]),
      ],
    )
    t.same(
      messages.filter(([kind]) => kind === 'reply').map(([, id, , body]) => [id, body]),
      [
        [1, '"helper"'],
        [2, '"lazymore"'],
        [3, '"lazymore"'],
      ],
    )
  }
})

t.test('[runtime/lua-runtime.32] the gateway hears of files that a thread read', async t => {
  const site = makeLuaSite(
    { f: 'function handler(e) if e.query.lazy then require("lazy") end return 1 end' },
    { files: { 'f/lazy.lua': 'return 1' } },
  )
  t.teardown(() => site.close())
  t.equal((await site.call('f')).body.toString(), '1')
  t.same(site.files, ['f f/handler.lua'])
  t.equal((await site.call('f', { query: { lazy: '1' } })).body.toString(), '1')
  await until(() => site.files.length > 1, 'the file of the call is told')
  t.same(site.files, ['f f/handler.lua', 'f f/lazy.lua'])
})

t.test('[runtime/lua-runtime.27] a function that fails to load is not tried without end', async t => {
  const site = makeLuaSite({ bad: 'x = = 1' })
  t.teardown(() => site.close())
  for (let i = 0; i < 8; i++) t.match((await site.call('bad')).error?.message, /^syntax error in bad/)
  t.ok(site.failures.length < 8, `${site.failures.length} starts for 8 calls`)
  site.add('bad', 'function handler() return "mended" end')
  site.retain()
  t.equal((await site.call('bad')).body.toString(), '"mended"', 'a new version is tried at once')
})

t.test('[runtime/lua-runtime.28] many calls at once are each answered once, with their own answer', async t => {
  const site = makeLuaSite({ echo: 'function handler(e) return { e.query.n, e.body } end' })
  t.teardown(() => site.close())
  for (let round = 0; round < 10; round++) {
    const calls = Array.from({ length: 300 }, (_, n) => site.start('echo', { query: { n: `${round}-${n}` } }, `b${n}`))
    const results = await Promise.all(calls.map(({ result }) => result))
    for (const [n, { body }] of results.entries()) {
      if (body.toString() !== `["${round}-${n}","b${n}"]`) t.fail(`call ${n} got ${body}`)
    }
    t.ok(calls.every(({ settled }) => settled === 1))
  }
})

t.test('[runtime/lua-runtime.28] nothing is lost or run twice behind a call that never ends', async t => {
  const site = makeLuaSite({}, { policy: { timeoutMs: 400, maxConcurrency: 0 } })
  t.teardown(() => site.close())
  // The second one never comes to an instruction where the thread could look around.
  const stuck = ['while true do end', 'return (("a"):rep(30000)):find(".-.-.-.-b")']
  for (const [i, source] of stuck.entries()) {
    const name = `stuck${i}`
    site.add(
      name,
      `function handler(e) if e.query.slow then ${source} end print("run " .. e.query.n) return e.query.n end`,
    )
    site.retain()
    for (let round = 0; round < 5; round++) {
      await Promise.all(Array.from({ length: 200 }, (_, n) => site.call(name, { query: { n: String(n) } })))
    }
    const calls = Array.from({ length: 60 }, (_, n) =>
      site.start(name, { query: n === 30 ? { slow: '1' } : { n: String(n) } }),
    )
    const results = await Promise.all(calls.map(({ result }) => result))
    for (const [n, { error, body, stdout }] of results.entries()) {
      if (n === 30) t.match(error?.message, /^runtime timeout after \d+ ms$/, 'the stuck call')
      else if (error !== null || body.toString() !== `"${n}"` || stdout !== `run ${n}\n`) {
        t.fail(`call ${n} of ${name}: ${error?.message} ${body} ${stdout}`)
      }
    }
    t.ok(calls.every(({ settled }) => settled === 1))
  }
})

t.test('[runtime/lua-runtime.28] a slow call among quick ones delays them for a short while only', async t => {
  const site = makeLuaSite(
    { mixed: 'function handler(e) if e.query.slow then while true do end end return 1 end' },
    { policy: { ...SLOW, maxConcurrency: 0 } },
  )
  t.teardown(() => site.close())
  for (let i = 0; i < 5; i++) await Promise.all(Array.from({ length: 200 }, () => site.call('mixed')))
  const results = await Promise.all([
    ...Array.from({ length: 30 }, () => site.call('mixed')),
    site.call('mixed', { query: { slow: '1' } }),
    ...Array.from({ length: 30 }, () => site.call('mixed')),
  ])
  const failed = results.filter(({ error }) => error !== null)
  t.same(
    failed.map(({ error }) => error?.message),
    [`runtime timeout after ${SLOW.timeoutMs} ms`],
    'only the slow one fails',
  )
})

t.test(
  '[runtime/lua-runtime.1, runtime/lua-runtime.2, runtime/lua-runtime.3] threads come with functions and go with them',
  async t => {
    const site = makeLuaSite({})
    t.teardown(() => site.close())
    t.equal(site.runtime.threadCount, 0, 'no function, no thread')
    t.same(site.runtime.health(), {
      routing: 'single',
      up: true,
      reason: 'in-process',
      version: '5.3',
      sockets: [{ index: 1, uri: 'inprocess:lua', up: true, reason: 'in-process' }],
    })
    const pool = {
      enabled: true,
      minWarm: 0,
      maxWorkers: 4,
      maxQueue: 0,
      queueTimeoutMs: 0,
      queuePollMs: 20,
      idleTtlSeconds: 0.05,
      overflowStatus: 429 as const,
    }
    const fn = site.add('hello', 'function handler() return 1 end', { workerPool: pool })
    site.retain()
    t.equal(site.runtime.threadCount, 1, 'a spare one waits')
    await site.call('hello')
    t.equal(site.dispatcher.workerCount(fn.key), 1)
    await until(() => site.runtime.threadCount === 2, 'another takes its place')
    await until(() => site.dispatcher.workerCount(fn.key) === 0, 'the idle worker ends')
    t.equal((await site.call('hello')).body.toString(), '1', 'and comes back')
    site.add('hello', 'function handler() return 2 end', { workerPool: pool })
    site.retain()
    t.equal((await site.call('hello')).body.toString(), '2', 'new code after a reload')
    site.fns.clear()
    site.retain()
    await until(() => site.runtime.threadCount === 0, 'without functions no thread is left')
    site.add('busy', 'function handler() local x = 0 for i = 1, 3000000 do x = x + i end return x end', {
      timeoutMs: 10_000,
      maxConcurrency: 0,
    })
    site.retain()
    await Promise.all(Array.from({ length: 100 }, () => site.call('busy')).slice(0, 12))
    t.ok(site.dispatcher.workerCount(site.fns.get('busy')!.key) <= 32, 'threads of one function are bounded')
  },
)

t.test('[runtime/lua-runtime.2] close ends every thread and what runs on them', async t => {
  const site = makeLuaSite(
    { loop: 'function handler() while true do end end', hello: 'function handler() return 1 end' },
    { policy: { timeoutMs: 60_000 } },
  )
  await site.call('hello')
  const running = site.start('loop')
  await until(() => running.phase === 'running', 'the loop runs')
  await site.closeRuntime(20)
  const { error } = await running.result
  t.equal(error?.status, 503)
  t.equal(site.runtime.threadCount, 0)
  t.equal(site.runtime.health().up, false)
  await site.close()
  t.throws(() => site.start('hello'), { code: 'SHUTTING_DOWN' }, 'a call after the end is refused')
})

/** Waits for a condition that another thread brings about. */
async function until(condition: () => boolean, what: string): Promise<void> {
  const deadline = performance.now() + 10_000
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`timed out: ${what}`)
    await new Promise(resolve => setImmediate(resolve))
  }
}
