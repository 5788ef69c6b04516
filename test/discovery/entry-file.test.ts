import t from 'tap'
import { ERROR_STATUS } from '../../lib/core/errors.ts'
import type { Discovery } from '../../lib/discovery/discover.ts'
import { chooseEntries, chooseRoutes, ENTRY_CANDIDATES, isEntryName } from '../../lib/discovery/entry-file.ts'
import { parseFileName, type RouteFile } from '../../lib/discovery/layouts.ts'
import { RUNTIME_OF_EXTENSION, RUNTIMES, type RuntimeName } from '../../lib/core/identity.ts'
import { buildRouteTable } from '../../lib/router/route-table.ts'
import { codesOf, discoverTree, routesOf } from '../helpers/discovery.ts'
import type { TreeEntry } from '../helpers/tree.ts'

const routeFile = (name: string): RouteFile => {
  const parsed = parseFileName(name)
  if (parsed.kind !== 'route') throw new Error(`${name} is ${parsed.kind}`)
  return parsed
}
const config = (json: unknown) => ({ json })

/** Who answers each `GET /path`: a handler file, or the status of the refusal. */
function answers(discovery: Discovery, ...requests: string[]): (number | string)[] {
  const table = buildRouteTable(discovery.claims, { functions: discovery.functions, forceUrl: false })
  return requests.map(request => {
    const [method = '', path = ''] = request.split(' ')
    const found = table.find(method, path, '')
    return found.kind === 'match' ? found.fn.entryFile : ERROR_STATUS[found.code]
  })
}
const EXTENSIONS = [...RUNTIME_OF_EXTENSION.keys()]
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
    const choice = chooseEntries(shuffled.filter(other => order.indexOf(other) >= index).map(routeFile))[0]
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
    // With `FN_RUNTIMES=go` alone the other languages would be off.
    if (title === 'not enabled')
      t.match(discovery.warnings[0]?.hint, /--runtimes python,node,php,lua,go \(FN_RUNTIMES=python,node,php,lua,go\)/)
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

t.test('[discovery/entry-file.6] index.py is the handler of its folder, which is one function', async t => {
  const discovery = discoverTree({
    'x/index.py': '',
    'x/list.py': '',
    'y/main.js': '',
    'z/index.py': '',
    'z/main.py': '',
  })
  t.same(routesOf(discovery), ['GET /x x/index.py', 'GET /y y/main.js', 'GET /z z/main.py'])
  t.same(
    discovery.functions.map(fn => `${fn.name} ${fn.kind}`),
    ['y function', 'x function', 'z function'],
  )
  t.same(codesOf(discovery), ['DUPLICATE_ENTRY z/main.py'])
})

t.test(
  '[discovery/layouts.5, discovery/entry-file.6] a canonical file of any language makes plain files private',
  async t => {
    const plain = EXTENSIONS.map(extension => `x/db${extension}`)
    const explicit = EXTENSIONS.flatMap(extension => [`x/get.list${extension}`, `x/[id]${extension}`])
    const tree = Object.fromEntries([...plain, ...explicit].map(path => [path, '']))
    const filesOf = (more: Record<string, string>, runtimes: readonly RuntimeName[]) => {
      const { claims, functions } = discoverTree({ ...tree, ...more }, { runtimes })
      t.equal(claims.length, functions.length)
      return functions.map(({ entryFile }) => entryFile)
    }
    t.ok(
      filesOf({}, RUNTIMES).some(file => file.startsWith('x/db')),
      'a folder without one is a file tree',
    )
    for (const [extension, runtime] of RUNTIME_OF_EXTENSION) {
      for (const stem of ['handler', 'main', 'index']) {
        const file = `x/${stem}${extension}`
        const served = filesOf({ [file]: '' }, RUNTIMES)
        t.ok(served.includes(file), file)
        t.same(
          served.filter(path => path.startsWith('x/db')),
          [],
          `private beside ${file}`,
        )
        t.equal(served.length, 1 + RUNTIMES.length * 2, `explicit files are public beside ${file}`)
        const others = RUNTIMES.filter(name => name !== runtime)
        t.same(
          filesOf({ [file]: '' }, others).filter(path => path.startsWith('x/db')),
          [],
          `${runtime} is not enabled`,
        )
      }
    }
  },
)

t.test(
  '[discovery/entry-file.6, discovery/entry-file.8] without a default entry file languages have equal right',
  async t => {
    const discovery = discoverTree({ 'x/index.py': '', 'x/main.js': '', 'x/main.mjs': '' })
    t.same(routesOf(discovery), ['GET /x x/index.py', 'GET /x x/main.js'])
    t.same(
      discovery.functions.map(fn => fn.key),
      ['node/x@default', 'python/x@default'],
    )
    t.same(codesOf(discovery), ['DUPLICATE_ENTRY x/main.js'])
    t.same(answers(discovery, 'GET /x'), [409])
  },
)

t.test('[discovery/entry-file.7] no fallback to the first file', async t => {
  const plain = discoverTree({ 'x/fn.config.json': config({ runtime: 'node', name: 'x' }), 'x/app.js': '' })
  t.same(routesOf(plain), [])
  t.same(codesOf(plain), ['NO_ENTRY_FILE x/fn.config.json'])
  const off = discoverTree({ 'x/fn.config.json': config({ runtime: 'go' }), 'x/handler.go': '' })
  t.same(codesOf(off), ['RUNTIME_DISABLED x/fn.config.json'])
  t.match(off.warnings[0]?.hint, /^Turn it on: --runtimes [a-z]+(,[a-z]+)+ /, 'with the languages that are on')
  const used = discoverTree({
    'x/fn.config.json': config({ name: 'x' }),
    'x/get.js': '',
    'y/fn.config.json': config({ name: 'y' }),
    'y/stable/handler.js': '',
  })
  t.same(codesOf(used), [])
})

t.test('[discovery/entry-file.8] one language twice is settled, two languages are two functions', async t => {
  t.equal(chooseRoutes(['a.cts', 'a.mts', 'a.cjs', 'a.mjs', 'a.ts', 'a.js'].map(routeFile))[0]?.chosen.fileName, 'a.js')
  const cases: [string, string[], string[], (number | string)[]][] = [
    ['one language', ['a.js', 'a.ts'], ['DUPLICATE_ROUTE a.js'], ['a.js', 405]],
    ['two languages', ['a.js', 'a.py'], [], [409, 405]],
    ['a method prefix in another language', ['get.a.js', 'a.py'], [], [409, 405]],
    ['a method prefix in the same', ['get.a.js', 'a.js'], [], ['get.a.js', 405]],
    ['three languages and a duplicate', ['a.js', 'a.ts', 'a.py', 'get.a.lua'], ['DUPLICATE_ROUTE a.js'], [409, 405]],
    ['other methods', ['a.js', 'post.a.py'], [], ['a.js', 'post.a.py']],
    ['two prefixes', ['get.a.js', 'get.a.py', 'post.a.py'], [], [409, 'post.a.py']],
    ['a param under two names', ['[id].js', '[name].py'], [], [409, 405]],
    ['two folders', ['a.js', 'a/index.py'], [], [409, 405]],
  ]
  for (const [title, names, codes, answered] of cases) {
    const discovery = discoverTree(Object.fromEntries(names.map(name => [name, ''])))
    t.same(codesOf(discovery), codes, title)
    t.same(answers(discovery, 'GET /a', 'POST /a'), answered, title)
  }
})

t.test('[discovery/entry-file.1] a method file does not take a method from an explicit entrypoint', async t => {
  const tree = (json: Record<string, unknown>, names: string): Record<string, TreeEntry> => ({
    'x/app.py': '',
    'x/fn.config.json': config({ entrypoint: 'app.py', ...json }),
    ...Object.fromEntries(names.split(' ').map(name => [`x/${name}`, ''])),
  })
  const asked = ['GET /x', 'POST /x', 'GET /x/items', 'GET /y', 'GET /x/7']
  const cases: [string, Record<string, TreeEntry>, (number | string)[]][] = [
    ['all methods', tree({}, 'get.py post.js'), ['x/app.py', 'x/app.py', 'x/app.py', 404, 'x/app.py']],
    ['what it leaves', tree({ methods: ['POST'] }, 'get.py post.js'), ['x/get.py', 'x/app.py', 405, 404, 405]],
    ['other paths', tree({}, 'get.items.js [id].js'), ['x/app.py', 'x/app.py', 'x/get.items.js', 404, 'x/[id].js']],
    ['routes elsewhere', tree({ routes: ['/y'] }, 'get.py'), ['x/get.py', 405, 404, 'x/app.py', 404]],
    ['a listed route', tree({ routes: ['/x/{n}'] }, '[id].js'), [404, 404, 'x/app.py', 404, 'x/app.py']],
    ['another name', tree({ name: 'y' }, 'get.py'), ['x/get.py', 405, 404, 'x/app.py', 404]],
    ['a broken one', tree({ entrypoint: 'gone.py' }, 'get.py'), ['x/get.py', 405, 404, 404, 404]],
    [
      'the entrypoint itself',
      tree({ entrypoint: 'get.py' }, 'get.py'),
      ['x/get.py', 'x/get.py', 'x/get.py', 404, 'x/get.py'],
    ],
  ]
  for (const [title, files, answered] of cases) t.same(answers(discoverTree(files), ...asked), answered, title)
  const { ignored, functions, warnings } = discoverTree(tree({}, 'get.py post.js'))
  t.same(
    functions.map(fn => fn.entryFile),
    ['x/app.py'],
  )
  t.match(ignored, [
    { path: 'x/get.py', reason: /entrypoint is app\.py, which answers GET of this path/ },
    { path: 'x/post.js', reason: /entrypoint is app\.py/ },
  ])
  t.same(warnings, [])
  const itself = discoverTree(tree({ entrypoint: 'get.py' }, 'get.py'))
  t.same(
    itself.functions.map(fn => fn.name),
    ['x'],
  )
  t.notOk(itself.ignored.some(({ path }) => path === 'x/get.py'))
  const version = discoverTree({
    'x/handler.py': '',
    'x/v2/app.js': '',
    'x/v2/get.py': '',
    'x/v2/fn.config.json': config({ entrypoint: 'app.js' }),
  })
  t.same(answers(version, 'GET /x/v2', 'GET /x@v2'), ['x/v2/app.js', 'x/v2/app.js'])
})

t.test('[discovery/entry-file.9] files of other runtimes take no part', async t => {
  const tree = { 'x/handler.py': '', 'x/handler.js': '', 'hello.py': '', 'hello.lua': '' }
  const discovery = discoverTree(tree, { runtimes: ['node', 'lua'] })
  t.same(routesOf(discovery), ['GET /hello hello.lua', 'GET /x x/handler.js'])
  t.same(discovery.warnings, [])
  t.match(discovery.ignored.find(({ path }) => path === 'hello.py')?.reason, /FN_RUNTIMES/)
})
