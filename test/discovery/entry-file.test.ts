import t from 'tap'
import { chooseEntry, chooseRoute, ENTRY_CANDIDATES, isEntryName } from '../../lib/discovery/entry-file.ts'
import { parseFileName, type RouteFile } from '../../lib/discovery/file-name.ts'
import { RUNTIMES } from '../../lib/core/identity.ts'
import { codesOf, discoverTree, routesOf } from '../helpers/discovery.ts'

const routeFile = (name: string): RouteFile => {
  const parsed = parseFileName(name)
  if (parsed.kind !== 'route') throw new Error(`${name} is ${parsed.kind}`)
  return parsed
}
const config = (json: unknown) => ({ json })
const ALL_RUNTIMES = { runtimes: RUNTIMES }

t.test('[discovery/entry-file.3, discovery/entry-file.4] the table, from first to last', async t => {
  const order = RUNTIMES.flatMap(runtime => ENTRY_CANDIDATES[runtime])
  t.same(order.slice(0, 6), ['handler.py', 'main.py', 'handler.js', 'handler.ts', 'index.js', 'index.ts'])
  t.same(order.slice(-8), [
    'handler.php',
    'index.php',
    'handler.lua',
    'main.lua',
    'index.lua',
    'handler.go',
    'main.go',
    'handler.rs',
  ])
  const shuffled = [...order].reverse()
  for (const [index, name] of order.entries()) {
    const choice = chooseEntry(shuffled.filter(other => order.indexOf(other) >= index).map(routeFile))
    t.equal(choice?.chosen.fileName, name)
    t.same(
      choice?.ignored.map(file => file.fileName),
      order.slice(index + 1),
    )
  }
  for (const name of ['main.js', 'index.py', 'main.php', 'main.rs', 'handlers.js', 'get.py'])
    t.notOk(isEntryName(name), name)
})

t.test('[discovery/entry-file.4] one warning names what was passed over', async t => {
  const discovery = discoverTree(
    { 'x/handler.rs': '', 'x/handler.go': '', 'x/index.ts': '', 'x/handler.php': '', 'x/index.py': '' },
    ALL_RUNTIMES,
  )
  t.same(routesOf(discovery), ['GET /x x/index.ts'])
  t.same(codesOf(discovery), ['DUPLICATE_ENTRY x/index.ts'])
  t.match(discovery.warnings[0]?.message, /ignored beside it: handler\.php, handler\.go, handler\.rs, index\.py$/)
})

t.test('[discovery/entry-file.1] entrypoint wins, also in a private folder', async t => {
  const tree = {
    'x/handler.py': '',
    'x/src/deep/app.js': '',
    'x/fn.config.json': config({ entrypoint: './src/deep/app.js' }),
  }
  const discovery = discoverTree(tree)
  t.same(
    routesOf(discovery).map(route => route.split(' ').slice(1).join(' ')),
    ['/x x/src/deep/app.js', '/x/* x/src/deep/app.js'],
  )
  t.same(discovery.warnings, [])
  t.ok(discovery.functions[0]?.fnDir.endsWith('/x'), 'the folder of the function is that of its config')
  t.match(discovery.ignored.find(({ path }) => path === 'x/handler.py')?.reason, /entrypoint/)
})

t.test('[discovery/entry-file.2] a broken entrypoint is a warning and nothing is guessed', async t => {
  const cases: [string, Record<string, unknown>, RegExp][] = [
    ['missing', { entrypoint: 'app.js' }, /"app\.js" does not exist below x/],
    ['missing folder', { entrypoint: 'src/app.js' }, /does not exist/],
    ['no runtime for it', { entrypoint: 'notes.txt' }, /no runtime runs "\.txt"/],
    ['not enabled', { entrypoint: 'app.go' }, /needs the runtime go, which is not enabled/],
    ['not read', { entrypoint: 'node_modules/a/index.js' }, /not read/],
    ['contradiction', { entrypoint: 'ok.py', runtime: 'node' }, /is a python file, but runtime is "node"/],
  ]
  for (const [title, json, message] of cases) {
    const discovery = discoverTree({
      'x/handler.py': '',
      'x/ok.py': '',
      'x/notes.txt': '',
      'x/app.go': '',
      'x/node_modules/a/index.js': '',
      'x/fn.config.json': config(json),
    })
    t.same(routesOf(discovery), [], title)
    t.same(codesOf(discovery), ['ENTRYPOINT x/fn.config.json'], title)
    t.match(discovery.warnings[0]?.message, message)
  }
  const outside = discoverTree({ 'secret.py': '', 'x/fn.config.json': config({ entrypoint: '../secret.py' }) })
  t.same(routesOf(outside), ['GET /secret secret.py'])
  t.match(outside.warnings[0]?.message, /without \.\./)
})

t.test('[discovery/entry-file.5] runtime narrows the choice without a warning', async t => {
  const tree = { 'x/handler.py': '', 'x/handler.js': '', 'x/fn.config.json': config({ runtime: 'node' }) }
  const discovery = discoverTree(tree)
  t.equal(discovery.functions[0]?.entryFile, 'x/handler.js')
  t.same(discovery.warnings, [])
})

t.test('[discovery/entry-file.6] index.py is a route of its folder and hides nothing', async t => {
  const discovery = discoverTree({ 'x/index.py': '', 'x/list.py': '', 'y/main.js': '' })
  t.same(routesOf(discovery), ['GET /x x/index.py', 'GET /x/list x/list.py', 'GET /y y/main.js'])
  t.same(
    discovery.functions.map(fn => `${fn.name} ${fn.kind}`),
    ['y file', 'x/list file', 'x file'],
  )
})

t.test('[discovery/entry-file.7] no fallback to the first file', async t => {
  const plain = discoverTree({ 'x/fn.config.json': config({ runtime: 'node', name: 'x' }), 'x/app.js': '' })
  t.same(routesOf(plain), [])
  t.same(codesOf(plain), ['NO_ENTRY_FILE x/fn.config.json'])
  const off = discoverTree({ 'x/fn.config.json': config({ runtime: 'go' }), 'x/handler.go': '' })
  t.same(codesOf(off), ['RUNTIME_DISABLED x/fn.config.json'])
  const used = discoverTree({
    'x/fn.config.json': config({ name: 'x' }),
    'x/get.js': '',
    'y/fn.config.json': config({ name: 'y' }),
    'y/stable/handler.js': '',
  })
  t.same(codesOf(used), [])
})

t.test('[discovery/entry-file.8] one route in several languages and extensions', async t => {
  t.equal(chooseRoute(['a.cts', 'a.mts', 'a.cjs', 'a.mjs', 'a.ts', 'a.js'].map(routeFile))?.chosen.fileName, 'a.js')
  const discovery = discoverTree({ 'hello.js': '', 'hello.ts': '', 'hello.py': '', 'get.hello.lua': '' })
  t.same(routesOf(discovery), ['GET /hello get.hello.lua'])
  t.same(codesOf(discovery), ['DUPLICATE_ROUTE hello.py'])
  t.match(discovery.warnings[0]?.message, /hello\.js, hello\.ts$/)
})

t.test('[discovery/entry-file.9] files of other runtimes take no part', async t => {
  const tree = { 'x/handler.py': '', 'x/handler.js': '', 'hello.py': '', 'hello.lua': '' }
  const discovery = discoverTree(tree, { runtimes: ['node', 'lua'] })
  t.same(routesOf(discovery), ['GET /hello hello.lua', 'GET /x x/handler.js'])
  t.same(discovery.warnings, [])
  t.match(discovery.ignored.find(({ path }) => path === 'hello.py')?.reason, /FN_RUNTIMES/)
})
