import t from 'tap'
import { CatalogLoader } from '../../lib/gateway/catalog-loader.ts'
import { NO_OUTER_ENV } from '../../lib/config/function-env.ts'
import { checkLua, LuaChecks } from '../../lib/discovery/callable.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'

const NAMES = ['handler', 'main']

t.test(
  '[discovery/callable.7] a syntax error of a Lua handler is told with file and line, without running it',
  async t => {
    const cases: [text: string, message: RegExp][] = [
      ['local x = 1\nfunction handler( return = x end', /^a\.lua:2: <name> or '\.\.\.' expected near 'return'/],
      ['function handler() end end', /^a\.lua:1: .*'end'/],
      ['return {', /^a\.lua:1: '}' expected near '<eof>'/],
      ['x = "\\q"', /^a\.lua:1: invalid escape sequence/],
      ['function handler() break end', /^a\.lua:1: no loop to break/],
      ['local x <const> = 1', /^a\.lua:1: /],
    ]
    for (const [text, message] of cases) {
      const found = checkLua(text, 'a.lua', NAMES)
      t.match(found, { code: 'SYNTAX_ERROR', message, hint: /is reloaded when it is saved/ }, text)
    }
  },
)

t.test('[discovery/callable.7] a callable that is certainly missing is told, one that may be there is not', async t => {
  const missing: [text: string, message: RegExp, hint: RegExp][] = [
    [
      '',
      /^a\.lua has no function "handler" or "main" \(it defines none\): calls fail with 500$/,
      /Add function handler/,
    ],
    ['function greet() end\nbye = function() end', /\(it defines bye, greet\)/, /Add function handler/],
    [
      'local function handler() end',
      /\(it defines none\)/,
      /^"handler" is local: remove "local", or end the file with "return handler"\.$/,
    ],
    ['local main = function() end', /none/, /^"main" is local/],
    ['local handler\nfunction handler() end', /none/, /^"handler" is local/],
    ['local t = {} function t.handler() end return', /none/, /Add function/],
    ['do local function handler() end end -- handler', /none/, /"handler" is local/],
  ]
  for (const [text, message, hint] of missing) {
    t.match(checkLua(text, 'a.lua', NAMES), { code: 'CALLABLE_MISSING', message, hint }, text)
  }
  const fine = [
    'function handler() end',
    'handler = require',
    'function main() end',
    'if true then handler = function() end end',
    'local function f() handler = 1 end f()',
    'return function() end',
    'return { handler = print }',
    'return require("app")',
    'require("app")',
    '_G.handler = print',
    '_ENV["handler"] = print',
    'load("handler = print")()',
    'setmetatable(_G, {})',
    'a, handler = 1, function() end',
    '\uFEFF#!/usr/bin/lua\nfunction handler() end',
    'goto a ::a:: function handler() return 1 // 2 & 3 end',
    `x = ${'1 + '.repeat(100_000)}1\nfunction handler() end`,
    // Too deep to be parsed here; whether it runs is not for this to say.
    `x = ${'('.repeat(200_000)}1`,
  ]
  for (const text of fine) t.equal(checkLua(text, 'a.lua', NAMES), null, text.slice(0, 60))
  t.match(checkLua('function handler() end', 'a.lua', ['run']), { message: /no function "run" \(it defines handler\)/ })
})

t.test('[discovery/callable.7] every Lua handler is looked at once for each change', async t => {
  const tree = makeTree({ 'good.lua': 'function handler() end', 'bad.lua': 'x = = 1', 'other.js': 'x = = 1' })
  t.teardown(() => tree.cleanup())
  const fn = (file: string, signature: string, fields = {}) =>
    makeFn({
      runtime: file.endsWith('.lua') ? 'lua' : 'node',
      name: file.replace(/\.\w+$/, ''),
      entryPath: tree.path(file),
      entryFile: file,
      signature,
      ...fields,
    })
  const checks = new LuaChecks()
  const all = (signature: string) => [
    fn('good.lua', '1'),
    fn('bad.lua', signature),
    fn('other.js', '1'),
    fn('gone.lua', '1'),
  ]
  const codes = async (signature: string) =>
    (await checks.check(all(signature))).map(({ code, path }) => `${code} ${path}`)
  t.same(await codes('1'), ['SYNTAX_ERROR bad.lua'])
  tree.write({ 'bad.lua': 'y = 1' })
  t.same(await codes('1'), ['SYNTAX_ERROR bad.lua'], 'an unchanged one is not read again')
  t.same(await codes('2'), ['CALLABLE_MISSING bad.lua'])
  tree.write({ 'bad.lua': `${'-- long\n'.repeat(40_000)}x = = 1` })
  t.same(await codes('3'), [], 'a very long one is not held up for')
  t.same(await checks.check([]), [])

  const first = new LuaChecks(true)
  const found = async (signature: string) => (await first.check(all(signature))).length
  tree.write({ 'bad.lua': 'x = = 1' })
  t.same(await found('1'), 1)
  t.same([await found('1'), await found('2')], [1, 0], 'a change is loaded at once: that says what is wrong')
})

t.test('[discovery/callable.7] what is found is a warning of the catalog', async t => {
  const tree = makeTree({ 'hello.lua': 'function hello() return 1 end', 'hi.py': 'def x(' })
  t.teardown(() => tree.cleanup())
  const load = (checksSources: boolean) =>
    new CatalogLoader({
      rootPath: tree.root,
      runtimes: ['lua', 'python'],
      namespaceDepth: 3,
      forceUrl: false,
      checksSources,
      defaults: {
        defaultTimeoutMs: 2500,
        defaultMaxConcurrency: 20,
        defaultQueue: { maxQueue: 500, timeoutMs: 5000, maxWaitMs: 0 },
        defaultMaxBodyBytes: 1024,
      },
      now: () => 42,
      outerEnv: () => NO_OUTER_ENV,
      steps: () => ({ before: [], after: [], homes: [], warnings: [] }),
    }).load(null)
  t.match((await load(true)).warnings, [{ code: 'CALLABLE_MISSING', path: 'hello.lua', message: /it defines hello/ }])
  t.same((await load(false)).warnings, [])
})
