import t from 'tap'
import { RUNTIMES } from '../../lib/core/identity.ts'
import { createDiscoverer } from '../../lib/discovery/discover.ts'
import { codesOf, discoverTree, namesOf, OPTIONS, routesOf, snapshotOf } from '../helpers/discovery.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

type Entries = Record<string, TreeEntry>
const ALL = 'GET,POST,PUT,PATCH,DELETE'

/** A tree of empty files, beside the entries given with content. */
function files(names: string, more: Entries = {}): Entries {
  return { ...Object.fromEntries(names.split(' ').map(name => [name, ''])), ...more }
}

const LAYOUTS: { title: string; tree: Entries; routes: string[]; warnings?: string[] }[] = [
  {
    title: '[discovery/layouts.4, discovery/layouts.12] a pure file tree',
    tree: files(
      'hello.js users/list.py users/[id].js get.items.lua post.orders.[id].close.php admin/delete.js Keep_Me.js',
    ),
    routes: [
      'DELETE /admin admin/delete.js',
      'GET /Keep_Me Keep_Me.js',
      'GET /hello hello.js',
      'GET /items get.items.lua',
      'GET /users/:id users/[id].js',
      'GET /users/list users/list.py',
      'POST /orders/:id/close post.orders.[id].close.php',
    ],
  },
  {
    title: '[discovery/layouts.5, discovery/layouts.6] an entry file makes a function with private siblings',
    tree: files('users/index.js users/db.js users/[id].js users/post.js users/put.[id].py users/my.helper(1).js'),
    routes: [
      'GET /users users/index.js',
      'GET /users/:id users/[id].js',
      'POST /users users/post.js',
      'PUT /users/:id users/put.[id].py',
    ],
  },
  {
    title: '[discovery/layouts.5] a declared identity makes a function',
    tree: files('shop/app.js shop/other.js', { 'shop/fn.config.json': { json: { entrypoint: 'app.js' } } }),
    routes: [`${ALL} /shop shop/app.js`, `${ALL} /shop/* shop/app.js`],
  },
  {
    title: '[discovery/layouts.6] mixed subtree: only explicit files below a function are public',
    tree: files(
      'shop/handler.py shop/util.py shop/admin/index.js shop/admin/tool.js shop/cart/get.js shop/cart/[id].py ' +
        'shop/cart/plain.py shop/docs/[...page].js shop/deep/main.lua shop/deep/er/[[...x]].php',
    ),
    routes: [
      'GET /shop shop/handler.py',
      'GET /shop/admin shop/admin/index.js',
      'GET /shop/cart shop/cart/get.js',
      'GET /shop/cart/:id shop/cart/[id].py',
      'GET /shop/deep shop/deep/main.lua',
      'GET /shop/deep/er/:x*? shop/deep/er/[[...x]].php',
      'GET /shop/docs/:page* shop/docs/[...page].js',
    ],
  },
  {
    title: '[discovery/layouts.7] index in the root answers / and hides nothing',
    tree: files('index.js hello.js post.js sub/x.js'),
    routes: ['GET / index.js', 'GET /hello hello.js', 'GET /sub/x sub/x.js', 'POST / post.js'],
  },
  {
    title: '[discovery/layouts.7] handler in the root hides its siblings, but no folders',
    tree: files('handler.py helper.py users/list.py'),
    routes: ['GET / handler.py', 'GET /users/list users/list.py'],
  },
  {
    title: '[discovery/layouts.8] a runtime folder groups functions',
    tree: files(
      'python/hello/handler.py python/alice/hello/main.py python/alice/tool.js node/echo/handler.js node/api/[id].js',
    ),
    routes: [
      'GET /alice/hello python/alice/hello/main.py',
      'GET /alice/hello/* python/alice/hello/main.py',
      'GET /api/:id node/api/[id].js',
      'GET /echo node/echo/handler.js',
      'GET /echo/* node/echo/handler.js',
      'GET /hello python/hello/handler.py',
      'GET /hello/* python/hello/handler.py',
    ],
  },
  {
    title:
      '[discovery/layouts.8] a runtime folder with a route file is an ordinary folder, and so is one of a runtime not enabled',
    tree: files('node/hello.js node/a/handler.js go/b/handler.py'),
    routes: ['GET /go/b go/b/handler.py', 'GET /node/a node/a/handler.js', 'GET /node/hello node/hello.js'],
    warnings: ['GROUP_HAS_ROUTES node'],
  },
  {
    title: '[discovery/layouts.9] names in a group have three segments, versions of them one more folder',
    tree: files('python/a/b/c/handler.py python/a/b/c/v2/handler.py python/a/b/c/get.x.py python/a/b/d/e/handler.py'),
    routes: [
      'GET /a/b/c python/a/b/c/handler.py',
      'GET /a/b/c/* python/a/b/c/handler.py',
      'GET /a/b/c/v2 python/a/b/c/v2/handler.py',
      'GET /a/b/c/x python/a/b/c/get.x.py',
    ],
    warnings: ['NAMESPACE_DEPTH python/a/b/d/e'],
  },
  {
    title: '[discovery/layouts.10] six folder levels are served',
    tree: files('a/b/c/d/e/f/ok.js a/b/c/d/e/f/g/no.js a/b/c/d/e/f/data/x.json'),
    routes: ['GET /a/b/c/d/e/f/ok a/b/c/d/e/f/ok.js'],
    warnings: ['ROUTE_DEPTH a/b/c/d/e/f/g'],
  },
  {
    title: '[discovery/layouts.11] all layouts in one root',
    tree: files('python/hello/handler.py bye/handler.js list.lua', {
      'api/fn.config.json': { json: { name: 'api' } },
      'api/index.php': '',
    }),
    routes: [
      'GET /bye bye/handler.js',
      'GET /hello python/hello/handler.py',
      'GET /hello/* python/hello/handler.py',
      'GET /list list.lua',
      `${ALL} /api api/index.php`,
      `${ALL} /api/* api/index.php`,
    ],
  },
  {
    title: '[discovery/layouts.13] dynamic folders, and what no route can be',
    tree: files('[org]/[repo]/index.js docs/[...slug]/index.js more/[...slug]/edit.js [id]/x/[id].js [[id]].js'),
    routes: ['GET /:org/:repo [org]/[repo]/index.js', 'GET /docs/:slug* docs/[...slug]/index.js'],
    warnings: ['INVALID_ROUTE [id]/x/[id].js', 'INVALID_ROUTE more/[...slug]/edit.js', 'UNSUPPORTED_NAME [[id]].js'],
  },
  {
    title: '[discovery/layouts.14] two methods are ambiguous',
    tree: files('get.post.items.js GET.put.js get.users.post.js Post.ok.js'),
    routes: ['GET /users/post get.users.post.js', 'POST /ok Post.ok.js'],
    warnings: ['AMBIGUOUS_METHOD_PREFIX GET.put.js', 'AMBIGUOUS_METHOD_PREFIX get.post.items.js'],
  },
  {
    title: '[discovery/layouts.15] handler, main and index at the end stand for the folder',
    tree: files('post.index.js put.main.py users.handler.js'),
    routes: ['GET /users users.handler.js', 'POST / post.index.js', 'PUT / put.main.py'],
  },
  {
    title: '[discovery/layouts.16] names outside the supported set',
    tree: files('ünï.js a..b.js dir(1)/x.js data(1)/x.txt ok/good-name_1.js', {
      'with space.js': '',
      'my docs/a.md': '',
    }),
    routes: ['GET /ok/good-name_1 ok/good-name_1.js'],
    warnings: [
      'UNSUPPORTED_NAME a..b.js',
      'UNSUPPORTED_NAME dir(1)',
      'UNSUPPORTED_NAME with space.js',
      'UNSUPPORTED_NAME ünï.js',
    ],
  },
  {
    title: '[discovery/layouts.17, discovery/layouts.18] private and ignored names',
    tree: files(
      '_shared.js _lib/x.js src/y.js .hidden/z.js .dot.js node_modules/p/index.js vendor/a.php __pycache__/c.py target/t.rs ' +
        'a.test.js b.spec.ts c.d.ts d.d.mts site/app.js real.js',
      { 'fn.config.json': { json: { assets: { directory: 'site' } } } },
    ),
    routes: ['GET /real real.js'],
    warnings: ['TEST_FILE a.test.js'],
  },
  {
    title: '[discovery/layouts.19] reserved prefixes',
    tree: files('console/handler.py console.js consoles.js x/handler.js', {
      'x/fn.config.json': { json: { name: 'console/deep' } },
    }),
    routes: ['GET /consoles consoles.js'],
    warnings: ['RESERVED_PREFIX console.js', 'RESERVED_PREFIX console/handler.py', 'RESERVED_PREFIX x/fn.config.json'],
  },
  {
    title: '[discovery/layouts.21] a method prefix beats no prefix in the same folder',
    tree: files('a/index.js a/get.js b/handler.py b/post.py c/x.js c/get.x.js', {
      'b/fn.config.json': { json: { invoke: { methods: ['GET', 'POST'] } } },
    }),
    routes: ['GET /a a/get.js', 'GET /b b/handler.py', 'GET /c/x c/get.x.js', 'POST /b b/post.py'],
  },
]

t.test('[discovery/layouts.4, discovery/layouts.5] a tree gives exactly these routes and warnings', async t => {
  for (const { title, tree, routes, warnings = [] } of LAYOUTS) {
    const discovery = discoverTree(tree)
    t.same(routesOf(discovery), routes, title)
    t.same(codesOf(discovery), warnings, `${title}: warnings`)
  }
})

t.test('[discovery/layouts.3, discovery/layouts.12] every warning says what and how to mend it', async t => {
  const { warnings } = discoverTree(files('get.post.x.js bad(1).js console.js', { 'a/fn.config.json': '{' }))
  t.equal(warnings.length, 5)
  for (const { code, path, message, hint } of warnings) {
    t.match(code, /^[A-Z_]+$/)
    t.ok(message.startsWith(path), message)
    t.ok(hint.length > 10, hint)
  }
})

t.test('[discovery/layouts.18, discovery/layouts.5] what exposes nothing is listed with its reason', async t => {
  const { ignored } = discoverTree(
    files('hello/handler.py hello/util.py hello/x.go a.rb node_modules/p.js _p.js notes.txt'),
  )
  const reasons = new Map(ignored.map(({ path, reason }) => [path, reason]))
  t.match(reasons.get('hello/util.py'), /private/)
  t.match(reasons.get('hello/x.go'), /go is not enabled/)
  t.match(reasons.get('a.rb'), /no runtime runs .rb/)
  t.match(reasons.get('node_modules'), /packages/)
  t.match(reasons.get('_p.js'), /"_"/)
  t.notOk(reasons.has('notes.txt'), 'plain data is nobody’s question')
})

t.test('[core/identity.5, discovery/layouts.8] names follow the folders', async t => {
  const tree = files(
    'hello/handler.py alice/hello/handler.py api/v1/users/handler.py node/team/tool/index.js users/[id].js',
  )
  t.same(namesOf(discoverTree(tree)), ['team/tool', 'users/[id]', 'alice/hello', 'api/v1/users', 'hello'])
})

t.test('[discovery/layouts.9] FN_NAMESPACE_DEPTH counts name segments', async t => {
  const tree = files('python/a/b/c/d/e/handler.py python/a/b/c/d/e/v1/handler.py')
  t.same(namesOf(discoverTree(tree, { namespaceDepth: 4 })), [])
  t.same(namesOf(discoverTree(tree, { namespaceDepth: 5 })), ['a/b/c/d/e', 'a/b/c/d/e@v1'])
})

const TEST_NAMES = 'load_test.go db.test.js db.spec.ts test_users.py conftest.py'

t.test(
  '[discovery/layouts.42] test files are no routes, which one warning says until fn.routes.json names them',
  async t => {
    const names = TEST_NAMES.split(' ')
    const discovery = discoverTree(files(`${TEST_NAMES} api/${names.join(' api/')}`), { runtimes: RUNTIMES })
    t.same(routesOf(discovery), [])
    t.same(discovery.ignored.map(({ path }) => path).sort(), [...names, ...names.map(name => `api/${name}`)].sort())
    for (const { path, reason, kind } of discovery.ignored) {
      t.equal(kind, 'test', path)
      t.match(reason, /^a test file; .*fn\.routes\.json or as "entrypoint"/, path)
    }
    t.match(discovery.warnings, [
      { code: 'TEST_FILE', message: /: conftest\.py, .* and 5 more$/, hint: /fn\.routes\.json/ },
    ])
    const inside = discoverTree(files('fn/handler.py fn/a.test.js'))
    t.same([inside.ignored[0]?.kind, ...inside.warnings], [undefined], 'a private file')
    const named = discoverTree({
      'a.test.js': '',
      'sub/test_a.py': '',
      'fn.routes.json': { json: { routes: { '/a': 'a.test.js', '/b': 'sub/test_a.py' } } },
    })
    t.same(routesOf(named), ['GET /a a.test.js', 'GET /b sub/test_a.py'])
    t.same([...named.warnings, ...named.ignored], [])
  },
)

/** Files whose names are often those of tests, scripts and tools; each with a text that has a callable, and one without. */
const SCRIPTS: [path: string, handler: string, other: string][] = [
  ['tests/run/handler.js', 'export const handler = () => 1', 'import test from "node:test"\ntest("handler", () => {})'],
  ['tests/a.ts', 'export default (event: object) => event', 'console.log(1)'],
  ['scripts/run/handler.js', 'module.exports = () => 1', 'module.exports = { deploy() {} }'],
  ['scripts/b.cjs', 'exports.handler = () => 1', 'require("./handler").handler()'],
  ['scripts/c.mjs', 'export { run as handler } from "../_run.js"', 'export function run() {}'],
  [
    'scripts/deploy.py',
    'def handler(event):\n    pass',
    'def main():\n    pass\nif __name__ == "__main__":\n    main()',
  ],
  ['scripts/e.py', 'def main(event):\n    pass', 'import logging\nclass A:\n    def handler(self): pass'],
  ['scripts/f.py', 'from lib import (\n  handler\n)', 'import handlers'],
  ['tests/deep/g.php', '<?php function handler($e) {}', '<?php echo 1;'],
  ['tests/h.php', '<?php\nreturn fn($e) => 1;', '<?php\nreturn ["a" => 1];'],
  ['scripts/i.lua', 'return function() end', 'print(1)'],
  ['scripts/j.go', 'package main\nfunc Handler(e any) any { return e }', 'package main\nfunc main() {}'],
  ['scripts/k.rs', 'pub fn handler(e: Value) -> Value { e }', 'fn main() {}'],
  ['speed_test.js', 'export const handler = () => 1', 'describe("speed", () => {})'],
  ['setup.py', 'def handler(event):\n    pass', 'from setuptools import setup\nsetup()'],
  ['noxfile.py', 'handler = print', 'import nox\ndef main(session): pass'],
  ['gulpfile.js', 'exports.handler = () => 1', 'exports.default = () => 1'],
  ['Gruntfile.js', 'module.exports = { handler() {} }', 'module.exports = grunt => grunt'],
  ['app.config.js', 'export const handler = () => 1', 'export default { port: 1 }'],
]

t.test('[discovery/layouts.43] files of tests, scripts and tools are served when they have a callable', async t => {
  const served = discoverTree(Object.fromEntries(SCRIPTS.map(([path, text]) => [path, text])), { runtimes: RUNTIMES })
  t.same(served.functions.map(fn => fn.entryFile).sort(), SCRIPTS.map(([path]) => path).sort())
  t.same([...served.ignored, ...served.warnings], [])
  const others = discoverTree(Object.fromEntries(SCRIPTS.map(([path, , text]) => [path, text])), { runtimes: RUNTIMES })
  t.same(
    others.functions.map(fn => fn.entryFile),
    [],
  )
  t.same(others.ignored.map(({ path }) => path).sort(), SCRIPTS.map(([path]) => path).sort())
  for (const { reason } of others.ignored)
    t.match(reason, /^defines no handler; to serve it, name it in fn\.routes\.json/)
  t.same(others.warnings, [])
  const names =
    'configs.js contest.py test_users.js setup.js testing.py latest.js a/setup.php get.config.js api/tests/c.js'
  t.equal(discoverTree(files(names)).claims.length, 9, 'other files are routes, whatever is in them')
})

t.test('[discovery/layouts.43] a config or fn.routes.json serves a file whatever its text shows', async t => {
  const discovery = discoverTree({
    'app.config.js': '',
    'fn.routes.json': { json: { routes: { '/config': 'app.config.js' } } },
    'setup/setup.py': '',
    'setup/fn.config.json': { json: { entrypoint: 'setup.py', methods: ['GET'] } },
    'scripts/run.js': '',
    'scripts/fn.config.json': { json: { invoke: { handler: 'run' } } },
  })
  t.same(routesOf(discovery), [
    'GET /config app.config.js',
    'GET /scripts/run scripts/run.js',
    'GET /setup setup/setup.py',
    'GET /setup/* setup/setup.py',
  ])
  t.same(discovery.ignored, [])
})

t.test('[discovery/layouts.42, discovery/layouts.43] tests are no helpers, configurations may be', async t => {
  const base = files('hello.js app.config.js db.test.js scripts/tool.js __tests__/a.js __tests__/_lib/b.js')
  const tree = makeTree(base)
  t.teardown(tree.cleanup)
  const { discover } = createDiscoverer(OPTIONS)
  let snapshot = snapshotOf(tree.root)
  let before = discover(snapshot)
  t.same(
    before.functions.map(fn => fn.entryFile),
    ['hello.js'],
  )
  for (const [path, isChanged] of [
    ['db.test.js', false],
    ['scripts/tool.js', false],
    ['__tests__/a.js', false],
    ['__tests__/_lib/b.js', false],
    ['app.config.js', true],
  ] as const) {
    tree.write({ [path]: 'changed' })
    snapshot = snapshotOf(tree.root, { previous: snapshot, changed: [path] })
    const after = discover(snapshot)
    t.equal(after.functions[0] !== before.functions[0], isChanged, path)
    before = after
  }
  tree.write({ 'scripts/tool.js': 'export const handler = () => 1' })
  t.same(routesOf(discover(snapshotOf(tree.root, { previous: snapshot, changed: ['scripts/tool.js'] }))), [
    'GET /hello hello.js',
    'GET /scripts/tool scripts/tool.js',
  ])
})

t.test('[discovery/layouts.32] the files of a nested assets folder are for browsers and never run', async t => {
  const assets = (directory: string): TreeEntry => ({ json: { assets: { directory } } })
  const discovery = discoverTree({
    'shop/fn.config.json': assets('public/js'),
    'shop/public/js/app.js': '',
    'shop/public/js/deep/handler.js': '',
    'shop/public/other.js': '',
    'shop/deep/public/js/x.js': '',
    'fn/handler.py': '',
    'fn/fn.config.json': assets('site'),
    'fn/site/index.js': '',
  })
  t.same(
    routesOf(discovery).map(route => route.split(' ').at(-1)),
    ['shop/deep/public/js/x.js', 'shop/public/other.js', 'fn/handler.py'],
  )
  t.same(codesOf(discovery), ['NESTED_ASSETS fn/fn.config.json', 'NESTED_ASSETS shop/fn.config.json'])
  t.match(
    discovery.ignored.find(({ path }) => path === 'shop/public/js')?.reason,
    /browsers: the assets of shop\/fn\.config\.json/,
  )
})
