import { utimesSync } from 'node:fs'
import t from 'tap'
import { createDiscoverer, type Discovery } from '../../lib/discovery/discover.ts'
import { discover, codesOf, discoverTree, fnOf, namesOf, OPTIONS, routesOf, snapshotOf } from '../helpers/discovery.ts'
import { createRandom, Random } from '../helpers/random.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'

const config = (json: unknown) => ({ json })

const FOLDERS = [
  '',
  'a',
  'a/b',
  'a/v1',
  'python',
  'python/x',
  'node/y/z',
  '_lib',
  '[id]',
  'a/[...all]',
  'src',
  'bad name',
  'console',
]
const FILES = [
  'handler.py',
  'index.js',
  'get.js',
  'post.x.js',
  '[id].lua',
  'plain.php',
  '_h.py',
  'get.post.js',
  'main.go',
  'data.json',
  'x.py',
  'x.js',
]
const CONFIGS: [string, unknown][] = [
  ['fn.config.json', { timeout_ms: 5, invoke: { allow_hosts: ['a.example'] } }],
  ['fn.config.json', { name: 'named', invoke: { routes: ['/n/{id}', '/_fn/x'] } }],
  ['fn.config.json', { runtime: 'node', schedule: { every_seconds: 3 } }],
  ['fn.config.json', { timeout_ms: 'x', home: { route: 'x' } }],
  ['fn.routes.json', { routes: { 'GET,POST /m': 'x.py', '/q': 'nope.js' } }],
  ['fn.env.json', { KEY: 'value' }],
]

function randomTree(seed: number): [string, TreeEntry][] {
  const random = new Random(seed)
  const entries = new Map<string, TreeEntry>()
  for (let count = 0; count < 25; count++)
    entries.set(`${random.pick(FOLDERS)}/${random.pick(FILES)}`.replace(/^\//, ''), 'x')
  for (let count = 0; count < 4; count++) {
    const [name, json] = random.pick(CONFIGS)
    entries.set(`${random.pick(FOLDERS)}/${name}`.replace(/^\//, ''), { json })
  }
  return [...entries]
}

/** The outcome as text without the place of the tree and with fixed times. */
function textOf(tree: Tree, paths: readonly string[], memory?: (tree: Tree) => Discovery): string {
  for (const path of paths) utimesSync(tree.path(path), 1000, 1000)
  const found = memory?.(tree) ?? discover(snapshotOf(tree.root), OPTIONS)
  return JSON.stringify(found, null, 1).replaceAll(tree.root, '')
}

t.test(
  '[discovery/layouts.1, discovery/layouts.2, discovery/layouts.3, core/identity.6] the order of creation changes nothing',
  async t => {
    for (let seed = 1; seed <= 40; seed++) {
      const entries = randomTree(seed)
      const paths = entries.map(([path]) => path)
      const next = createRandom(seed + 1000)
      const shuffled = entries.map(entry => ({ entry, at: next(1e9) })).sort((a, b) => a.at - b.at)
      const one = makeTree(Object.fromEntries(entries))
      const two = makeTree()
      // The second tree grows file by file under a discoverer with a memory.
      const { discover: remember } = createDiscoverer(OPTIONS)
      let snapshot = snapshotOf(two.root)
      for (const { entry } of shuffled) {
        two.write({ [entry[0]]: entry[1] })
        snapshot = snapshotOf(two.root, { previous: snapshot, changed: [entry[0]] })
        remember(snapshot)
      }
      const first = textOf(one, paths)
      const second = textOf(two, paths, tree => remember(snapshotOf(tree.root, { previous: snapshot })))
      one.cleanup()
      two.cleanup()
      if (first !== second) t.equal(first, second, `seed ${seed}`)
      const keys = [...first.matchAll(/"key": "([^"]+)"/g)].map(match => match[1])
      const { functions } = JSON.parse(first) as Discovery
      t.equal(new Set(functions.map(fn => fn.key)).size, functions.length, `${keys.length} mentions`)
    }
  },
)

t.test(
  '[discovery/layouts.2] what is remembered never changes the outcome, whatever comes, goes and comes back',
  async t => {
    const root = ['fn.config.json', { assets: { directory: './a' } }] as [string, unknown]
    for (let seed = 1; seed <= 12; seed++) {
      const random = new Random(seed)
      const tree = makeTree(Object.fromEntries(randomTree(seed)))
      const { discover: remember } = createDiscoverer(OPTIONS)
      let snapshot = snapshotOf(tree.root)
      remember(snapshot)
      const made: string[] = []
      for (let step = 0; step < 30; step++) {
        const [name, json] = step % 13 === 12 ? root : random.pick(CONFIGS)
        const folder = step % 13 === 12 ? '' : random.pick(FOLDERS)
        const isGone = made.length > 0 && random.below(3) === 0
        const own = random.below(2) === 0 ? name : random.pick(FILES)
        const path = isGone ? random.pick(made) : `${folder}/${own}`.replace(/^\//, '')
        if (isGone)
          tree.remove(random.below(4) === 0 && path.includes('/') ? path.slice(0, path.lastIndexOf('/')) : path)
        else tree.write({ [path]: own === name ? { json } : `step ${step}` })
        made.push(path)
        snapshot = snapshotOf(tree.root, { previous: snapshot })
        const [kept, anew] = [remember(snapshot), discover(snapshot, OPTIONS)]
        if (JSON.stringify(kept) !== JSON.stringify(anew)) t.same(kept, anew, `seed ${seed}, step ${step}: ${path}`)
      }
      tree.cleanup()
    }
  },
)

t.test('[discovery/layouts.2] of many folders only those that changed are looked at', async t => {
  const names = Array.from({ length: 50 }, (_, i) => `fn-${i}`)
  const tree = makeTree(Object.fromEntries(names.map(name => [`${name}/handler.js`, ''])))
  t.teardown(tree.cleanup)
  const first = snapshotOf(tree.root)
  let looks = 0
  const dirs = first.root.dirs.map(dir => {
    const { files } = dir
    const get = () => {
      looks += 1
      return files
    }
    return Object.defineProperty({ ...dir }, 'files', { enumerable: true, get })
  })
  const { discover: remember } = createDiscoverer(OPTIONS)
  const counted = { ...first, root: { ...first.root, dirs } }
  remember(counted)
  t.ok(looks >= names.length)
  looks = 0
  const [changed] = first.root.dirs
  const next = { ...counted, root: { ...first.root, dirs: dirs.with(0, { ...changed! }) } }
  t.equal(remember(next).functions.length, names.length)
  t.equal(looks, 0)
  // Another place for all of them.
  const outer = { ...next.root, files: [{ name: '_shared.js', size: 1, mtimeMs: 1 }] }
  remember({ ...next, root: outer })
  t.ok(looks >= names.length - 1, 'a helper above concerns each of them')
})

t.test('[discovery/layouts.2] a folder that is closed for now is not what it was before', async t => {
  const tree = makeTree({ 'a/b/handler.js': '', 'a/c/handler.js': '' })
  t.teardown(tree.cleanup)
  const { discover: remember } = createDiscoverer(OPTIONS)
  let snapshot = snapshotOf(tree.root)
  const routesAfter = (path: string, text: TreeEntry | null) => {
    if (text === null) tree.remove(path)
    else tree.write({ [path]: text })
    snapshot = snapshotOf(tree.root, { previous: snapshot })
    return remember(snapshot).claims.map(({ pattern }) => pattern.text)
  }
  remember(snapshot)
  const both = ['/a/b', '/a/c']
  t.same(routesAfter('a/note.md', '1'), both)
  t.same(routesAfter('a/fn.config.json', config({ assets: { directory: 'b' } })), ['/a/c'], 'files for browsers')
  t.same(routesAfter('a/note.md', null), ['/a/c'], 'another change beside it, in the same surroundings')
  t.same(routesAfter('a/d/handler.js', ''), ['/a/c', '/a/d'])
  t.same(routesAfter('a/fn.config.json', null), [...both, '/a/d'])
})

t.test('[discovery/layouts.2] a reload keeps what did not change', async t => {
  const tree = makeTree({ 'a/handler.js': '', 'a/[id].js': '', 'b/index.py': '', 'b/x/handler.py': '', 'c.js': '' })
  t.teardown(tree.cleanup)
  const { discover: remember } = createDiscoverer(OPTIONS)
  const snapshot = snapshotOf(tree.root)
  const before = remember(snapshot)
  t.equal(snapshotOf(tree.root, { previous: snapshot }), snapshot, 'nothing changed: the same snapshot')
  t.equal(remember(snapshot), before)
  tree.write({ 'a/handler.js': 'changed' })
  const after = remember(snapshotOf(tree.root, { previous: snapshot, changed: ['a/handler.js'] }))
  const changed = after.functions.filter(fn => !before.functions.includes(fn)).map(fn => fn.entryFile)
  t.same(changed, ['a/handler.js'])
  t.ok(after.functions.every(fn => Object.isFrozen(fn)))
})

t.test('[discovery/layouts.20, discovery/layouts.22] methods and default routes', async t => {
  const cases: [string, Record<string, TreeEntry>, string[]][] = [
    ['file', { 'x.js': '' }, ['GET /x']],
    [
      'file with methods',
      { 'a/x.js': '', 'a/post.y.js': '', 'a/fn.config.json': config({ methods: ['PUT', 'POST'] }) },
      ['POST /a/y', 'PUT,POST /a/x'],
    ],
    ['methods are not inherited', { 'a/b/x.js': '', 'a/fn.config.json': config({ methods: ['PUT'] }) }, ['GET /a/b/x']],
    ['folder', { 'x/handler.js': '' }, ['GET /x']],
    [
      'folder with a config',
      { 'x/handler.js': '', 'x/fn.config.json': config({ timeout_ms: 9 }) },
      ['GET,POST,PUT,PATCH,DELETE /x'],
    ],
    [
      'identity',
      { 'x/handler.js': '', 'x/fn.config.json': config({ runtime: 'node', invoke: { methods: ['GET'] } }) },
      ['GET /x', 'GET /x/*'],
    ],
    ['group', { 'node/x/handler.js': '' }, ['GET /x', 'GET /x/*']],
    [
      'name',
      { 'x/handler.js': '', 'x/fn.config.json': config({ name: 'team/y', methods: ['GET'] }) },
      ['GET /team/y', 'GET /team/y/*'],
    ],
    [
      'listed',
      { 'x/handler.js': '', 'x/fn.config.json': config({ routes: ['/A/{id}', '/b//[...c]/'], methods: ['GET'] }) },
      ['GET /A/:id', 'GET /b/:c*'],
    ],
    ['none', { 'x/handler.js': '', 'x/fn.config.json': config({ routes: [] }) }, []],
    ['private', { 'x/handler.js': '', 'x/fn.config.json': JSON.stringify({ private: true, routes: ['/y'] }) }, []],
    [
      'catch-all folder',
      { '[...x]/handler.js': '', '[...x]/fn.config.json': config({ runtime: 'node', methods: ['GET'] }) },
      ['GET /:x*'],
    ],
    ['root', { 'handler.js': '', 'fn.config.json': config({ runtime: 'node', methods: ['GET'] }) }, ['GET /']],
    [
      'named root',
      { 'handler.js': '', 'fn.config.json': config({ name: 'r', methods: ['GET'] }) },
      ['GET /r', 'GET /r/*'],
    ],
  ]
  for (const [title, tree, routes] of cases) {
    const discovery = discoverTree(tree)
    t.same(
      routesOf(discovery).map(route => route.split(' ').slice(0, 2).join(' ')),
      routes,
      title,
    )
    t.same(discovery.warnings, [], title)
  }
})

t.test('[discovery/layouts.23, discovery/layouts.19] listed routes that cannot be', async t => {
  const json = { invoke: { routes: ['/ok', '/a/*/b', '/:x/:x', '/%63onsole'], methods: ['GET'] } }
  const discovery = discoverTree({ 'x/handler.js': '', 'x/fn.config.json': config(json) })
  t.same(routesOf(discovery), ['GET /ok x/handler.js'])
  t.same(codesOf(discovery), [
    'INVALID_ROUTE x/fn.config.json',
    'INVALID_ROUTE x/fn.config.json',
    'RESERVED_PREFIX x/fn.config.json',
  ])
})

t.test('[discovery/layouts.24] fn.routes.json', async t => {
  const discovery = discoverTree({
    'api/fn.routes.json': config({
      routes: {
        'GET,POST /items/{id}': 'items.py',
        '/plain': '_h/plain.js',
        'PUT /plain': '_h/plain.js',
        '/gone': 'gone.js',
        '/off': 'off.go',
        '/text': 'notes.txt',
      },
    }),
    'api/items.py': '',
    'api/_h/plain.js': '',
    'api/_h/fn.env.json': config({ KEY: 'v' }),
    'api/off.go': '',
    'api/notes.txt': '',
    'api/sub/x.js': '',
    'api/fn.config.json': config({ timeout_ms: 7 }),
  })
  t.same(routesOf(discovery), [
    'GET /api/items api/items.py',
    'GET /api/sub/x api/sub/x.js',
    'GET /plain api/_h/plain.js',
    'GET,POST /items/:id api/items.py',
    'PUT /plain api/_h/plain.js',
  ])
  t.same(namesOf(discovery), ['api/_h/plain', 'api/sub/x', 'api/items'])
  t.match(fnOf(discovery, 'api/items').policy, { methods: ['GET', 'POST'], timeoutMs: 7 })
  t.match(fnOf(discovery, 'api/_h/plain'), { policy: { methods: ['GET', 'PUT'] }, env: { KEY: { value: 'v' } } })
  t.ok(discovery.claims.every(claim => discovery.functions.includes(claim.fn)))
  t.same(discovery.claims.filter(claim => claim.source === 'manifest').length, 3)
  t.same(codesOf(discovery), Array(3).fill('MANIFEST_TARGET api/fn.routes.json'))
})

t.test('[discovery/layouts.25] forced claims', async t => {
  const tree = {
    'a/handler.js': '',
    'a/fn.config.json': config({ runtime: 'node', invoke: { 'force-url': true } }),
    'b/handler.js': '',
    'b/fn.config.json': config({ name: 'b' }),
    'c.js': '',
  }
  const forced = (forceUrl: boolean) =>
    discoverTree(tree, { forceUrl })
      .claims.filter(claim => claim.forced)
      .map(claim => claim.pattern.text)
  t.same(forced(false), ['/a', '/a/*'])
  t.same(forced(true), ['/a', '/a/*', '/b', '/b/*'])
})

t.test('[discovery/layouts.26, core/identity.6] two functions with one name', async t => {
  const discovery = discoverTree({
    'a/handler.js': '',
    'a/fn.config.json': config({ name: 'x', routes: ['/one'] }),
    'b/handler.js': '',
    'b/fn.config.json': config({ name: 'x', routes: ['/two'] }),
    'x.js': '',
    'python/x/handler.py': '',
  })
  t.same(
    discovery.functions.map(fn => fn.key),
    ['node/x@default', 'node/x@default#b/handler.js', 'node/x@default#x.js', 'python/x@default'],
  )
  t.same(codesOf(discovery), ['DUPLICATE_NAME b/handler.js', 'DUPLICATE_NAME x.js'])
  t.ok(discovery.claims.every(claim => discovery.functions.includes(claim.fn)))
})

t.test('[discovery/layouts.27] nearest overlay wins', async t => {
  const discovery = discoverTree({
    'fn.config.json': config({ timeout_ms: 100, max_body_bytes: 10, invoke: { allow_hosts: ['a.example'] } }),
    'a/fn.config.json': config({ timeout_ms: 200 }),
    'a/b/fn.config.json': config({ invoke: { allow_hosts: ['b.example', '*.c.example'] } }),
    'a/b/c/x.js': '',
    'a/y/handler.py': '',
    'node/z/handler.js': '',
  })
  t.match(fnOf(discovery, 'a/b/c/x').policy, {
    timeoutMs: 200,
    maxBodyBytes: 10,
    allowHosts: ['b.example', '*.c.example'],
  })
  t.match(fnOf(discovery, 'a/y').policy, { timeoutMs: 200, maxBodyBytes: 10, allowHosts: ['a.example'] })
  t.match(fnOf(discovery, 'z').policy, { timeoutMs: 100, maxBodyBytes: 10, maxConcurrency: 20 })
  t.same(discovery.claims.find(claim => claim.pattern.text === '/a/b/c/x')?.hosts, ['b.example', '*.c.example'])
})

t.test('[discovery/layouts.28] whose schedule it is', async t => {
  const schedule = { schedule: { every_seconds: 3 } }
  const scheduled = (tree: Record<string, TreeEntry>) => {
    const discovery = discoverTree({ ...tree, 'a/fn.config.json': config(schedule) })
    const codes = codesOf(discovery).filter(code => !code.startsWith('CONFIG_NO_EFFECT'))
    return [discovery.functions.filter(fn => fn.policy.schedule !== null).map(fn => fn.entryFile), codes]
  }
  t.same(scheduled({ 'a/handler.js': '', 'a/[id].js': '' }), [['a/handler.js'], []])
  t.same(scheduled({ 'a/index.py': '', 'a/x.py': '' }), [['a/index.py'], []])
  t.same(scheduled({ 'a/x.js': '', 'a/b/y.js': '' }), [['a/x.js'], []])
  t.same(scheduled({ 'a/x.js': '', 'a/y.js': '' }), [[], ['SCHEDULE_WITHOUT_FUNCTION a/fn.config.json']])
  t.same(scheduled({ 'a/b/y.js': '' }), [[], ['SCHEDULE_WITHOUT_FUNCTION a/fn.config.json']])
})

t.test('[discovery/layouts.29] env of the folder', async t => {
  const discovery = discoverTree({
    'a/x.js': '',
    'a/fn.env.json': config({ KEY: 1, TOKEN: { value: 't', is_secret: true } }),
    'a/b/y.js': '',
  })
  t.same(
    { ...fnOf(discovery, 'a/x').env },
    { KEY: { value: '1', isSecret: false }, TOKEN: { value: 't', isSecret: true } },
  )
  t.same({ ...fnOf(discovery, 'a/b/y').env }, {})
})

t.test('[discovery/layouts.30] a config that turns wrong leaves the last good one in force', async t => {
  const tree = makeTree({
    'a/handler.js': '',
    'a/fn.config.json': config({ timeout_ms: 100, invoke: { methods: ['PUT'] } }),
    'a/fn.env.json': config({ KEY: 'old' }),
    'a/fn.routes.json': config({ routes: { '/r': 'handler.js' } }),
    'site/index.js': '',
    'fn.config.json': config({ assets: { directory: 'site' } }),
  })
  t.teardown(tree.cleanup)
  const { discover: remember } = createDiscoverer(OPTIONS)
  let snapshot = snapshotOf(tree.root)
  const before = remember(snapshot)
  const reload = (entries: Record<string, TreeEntry>) => {
    tree.write(entries)
    snapshot = snapshotOf(tree.root, { previous: snapshot, changed: Object.keys(entries) })
    return remember(snapshot)
  }
  const broken = {
    'a/fn.config.json': '{ "timeout_ms": 1',
    'a/fn.env.json': '',
    'a/fn.routes.json': '[]',
    'fn.config.json': '{',
  }
  const during = reload(broken)
  t.same(during.functions, before.functions)
  t.same(routesOf(during), routesOf(before))
  t.same(during.assets, before.assets, 'assets do not turn into functions')
  const kept = [
    'CONFIG_KEPT a/fn.config.json',
    'CONFIG_KEPT a/fn.env.json',
    'CONFIG_KEPT a/fn.routes.json',
    'CONFIG_KEPT fn.config.json',
  ]
  t.same(
    codesOf(during).filter(code => code.startsWith('CONFIG_KEPT')),
    kept,
  )
  t.ok(during.warnings.some(warning => /fn\.config\.json is not JSON: line 1/.test(warning.message)))
  const wrongType = reload({ 'a/fn.config.json': config({ timeout_ms: 'x' }) })
  t.equal(fnOf(wrongType, 'a').policy.timeoutMs, 100, 'a second wrong text changes nothing')
  const mended = reload({ 'a/fn.config.json': config({ timeout_ms: 300 }) })
  t.equal(fnOf(mended, 'a').policy.timeoutMs, 300)
  t.notOk(codesOf(mended).includes('CONFIG_KEPT a/fn.config.json'))
  const fresh = discover(snapshotOf(tree.root), OPTIONS)
  t.same({ ...fnOf(fresh, 'a').env }, {}, 'a first text has none before it')
})

const BROKEN_CONFIGS: Record<string, TreeEntry> = {
  'no JSON': '{ "invoke": { "allow_hosts": ["a.test"] }',
  'no object': '[]',
  'an empty file': '',
  'no text': Buffer.from([0x7b, 0xff, 0x7d]),
  'a dangling link': { symlink: 'missing.json' },
  'a link to itself': { symlink: 'fn.config.json' },
  'a link to a folder': { symlink: '.' },
  'a wrong type of methods': '{ "invoke": { "methods": {} } }',
  'wrong methods': '{ "methods": ["GETT", "PSOT"] }',
  'wrong routes': '{ "invoke": { "routes": "none" } }',
  'a wrong invoke': '{ "invoke": [] }',
  'a wrong entrypoint': '{ "entrypoint": "../x.js" }',
}

t.test('[discovery/layouts.51] a config that cannot be used closes what inherits from it', async t => {
  const files = {
    'open.js': '',
    'fn/handler.js': '',
    'fn/[id].py': '',
    'fn/v2/handler.js': '',
    'files/a.js': '',
    'files/post.b.js': '',
    'files/deep/c.js': '',
    'files/deep/fn.config.json': config({ invoke: { allow_hosts: ['b.test'], methods: ['PUT'] } }),
  }
  for (const [name, broken] of Object.entries(BROKEN_CONFIGS)) {
    for (const folder of ['fn', 'files']) {
      const path = `${folder}/fn.config.json`
      const discovery = discoverTree({ ...files, [path]: broken })
      for (const { entryFile, policy } of discovery.functions) {
        const problem = entryFile.startsWith(`${folder}/`) ? new RegExp(`^${path.replaceAll('.', '\\.')}`) : null
        t.match(policy, { configProblem: problem }, `${name}: ${entryFile}`)
      }
      t.ok(codesOf(discovery).includes(`CONFIG_CLOSED ${path}`), name)
    }
  }
  const all = 'GET,POST,PUT,PATCH,DELETE'
  t.same(
    routesOf(discoverTree({ ...files, 'fn/fn.config.json': '{', 'files/fn.config.json': '{' })),
    [
      'GET /open open.js',
      `${all} /fn/:id fn/[id].py`,
      `${all} /files/a files/a.js`,
      `${all} /fn fn/handler.js`,
      `${all} /fn/* fn/handler.js`,
      'POST /files/b files/post.b.js',
      'PUT /files/deep/c files/deep/c.js',
      `${all} /fn/v2 fn/v2/handler.js`,
    ].sort(),
  )
  const root = discoverTree({ ...files, 'fn.config.json': '{' })
  t.ok(root.functions.every(({ policy }) => policy.configProblem !== null))
  const harmless = discoverTree({ ...files, 'fn/fn.config.json': config({ timeout_ms: 'x', summary: 5 }) })
  t.ok(
    harmless.functions.every(({ policy }) => policy.configProblem === null),
    'other wrong fields are left out',
  )
})

t.test('[discovery/layouts.52] a fn.env.json that cannot be used closes the functions of its folder', async t => {
  const files = { 'a/handler.js': '', 'a/[id].py': '', 'a/v2/handler.js': '', 'b.js': '' }
  for (const broken of ['{ "API_KEY": "x"', '[]', '', { symlink: 'missing.json' }, { symlink: '.' }] as TreeEntry[]) {
    const tree = makeTree({ ...files, 'a/fn.env.json': broken })
    t.teardown(tree.cleanup)
    const started = discover(snapshotOf(tree.root), OPTIONS)
    for (const { entryFile, policy } of started.functions) {
      const isClosed = /^a\/[^/]+$/.test(entryFile)
      t.match(policy, { configProblem: isClosed ? /^a\/fn\.env\.json / : null }, entryFile)
    }
    t.ok(codesOf(started).includes('CONFIG_CLOSED a/fn.env.json'))
    tree.remove('a/fn.env.json')
    tree.write({ 'a/fn.env.json': '{ "A": 1 }' })
    const good = snapshotOf(tree.root)
    tree.remove('a/fn.env.json')
    tree.write({ 'a/fn.env.json': broken })
    const kept = discover(snapshotOf(tree.root, { previous: good }), OPTIONS)
    t.match(fnOf(kept, 'a'), { policy: { configProblem: null }, env: { A: { value: '1' } } })
    t.notOk(codesOf(kept).includes('CONFIG_CLOSED a/fn.env.json'))
  }
  const entry = discoverTree({ ...files, 'a/fn.env.json': '{ "A": [], "B": "b" }' })
  t.match(fnOf(entry, 'a'), { policy: { configProblem: null }, env: { B: { value: 'b' } } }, 'other entries are used')
})

t.test(
  '[discovery/layouts.30, discovery/layouts.51] a config that can no longer be read keeps its last good text',
  async t => {
    const good = { invoke: { allow_hosts: ['a.test'] } }
    for (const broken of ['{', { symlink: 'missing.json' }, { symlink: '.' }] as TreeEntry[]) {
      const tree = makeTree({
        'a/handler.js': '',
        'a/fn.config.json': config(good),
        'fn.config.json': config({ assets: { directory: 'site' } }),
        'site/x.js': '',
      })
      t.teardown(tree.cleanup)
      const first = snapshotOf(tree.root)
      tree.remove('a/fn.config.json')
      tree.remove('fn.config.json')
      tree.write({ 'a/fn.config.json': broken, 'fn.config.json': broken })
      const kept = discover(snapshotOf(tree.root, { previous: first }), OPTIONS)
      t.same(namesOf(kept), ['a'], 'the assets are no functions')
      t.match(fnOf(kept, 'a').policy, { allowHosts: ['a.test'], configProblem: null })
      t.ok(codesOf(kept).includes('CONFIG_KEPT a/fn.config.json'))
      const started = discover(snapshotOf(tree.root), OPTIONS)
      t.match(fnOf(started, 'a').policy, { configProblem: /^a\/fn\.config\.json / })
    }
  },
)

t.test('[discovery/layouts.31] home of folders', async t => {
  const home = (route: string) => config({ home: { route } })
  const discovery = discoverTree({
    'fn.config.json': config({ home: { redirect: 'https://example.com/' } }),
    'a/fn.config.json': home('dash'),
    'a/b/fn.config.json': home('/x'),
    'python/p/fn.config.json': home('y'),
    'python/p/get.y.py': '',
    'u/[id]/fn.config.json': home('z'),
  })
  t.same(discovery.homes, [
    { folder: '/', route: null, redirect: 'https://example.com/', origin: 'fn.config.json' },
    { folder: '/a', route: '/a/dash', redirect: null, origin: 'a/fn.config.json' },
    { folder: '/a/b', route: '/x', redirect: null, origin: 'a/b/fn.config.json' },
    { folder: '/p', route: '/p/y', redirect: null, origin: 'python/p/fn.config.json' },
  ])
  t.same(codesOf(discovery), ['HOME_IGNORED u/[id]/fn.config.json'])
})

t.test('[discovery/layouts.32] static assets', async t => {
  const assets = (directory: string) => config({ assets: { directory, not_found_handling: 'single-page-application' } })
  const good = discoverTree({ 'fn.config.json': assets('web/dist'), 'web/dist/app.js': '', 'web/x.js': '' })
  t.match(good.assets, { notFoundHandling: 'single-page-application', runWorkerFirst: false })
  t.match(good.assets?.directory, /\/web\/dist$/)
  t.same(routesOf(good), ['GET /web/x web/x.js'])
  for (const directory of ['nope', 'x.js', '.hidden', 'web/.dist']) {
    const bad = discoverTree({ 'fn.config.json': assets(directory), 'x.js': '', '.hidden/a': '', 'web/.dist/a': '' })
    t.equal(bad.assets, null, directory)
    t.same(codesOf(bad), ['ASSETS_MISSING fn.config.json'])
  }
  const nested = discoverTree({ 'a/fn.config.json': assets('site'), 'a/site/x.js': '' })
  t.equal(nested.assets, null)
  t.same(codesOf(nested), ['NESTED_ASSETS a/fn.config.json'])
})

const SIGNATURE_TREE: Record<string, TreeEntry> = {
  '_shared.js': '',
  '_shared.py': '',
  'hello.js': '',
  'other.py': '',
  'users/index.js': '',
  'users/[id].js': '',
  'users/util.js': '',
  'users/_lib/db.js': '',
  'users/lib/deep/x.js': '',
  'users/fn.config.json': { json: { timeout_ms: 100 } },
  'users/admin/get.js': '',
  'common/_text.js': '',
}

t.test('[discovery/layouts.33, discovery/layouts.34] what changes a signature', async t => {
  const all = ['hello', 'other', 'users', 'users/[id]', 'users/admin/get']
  const inUsers = ['users', 'users/[id]', 'users/admin/get']
  const cases: [string, TreeEntry, string[]][] = [
    ['hello.js', 'x', ['hello']],
    ['users/index.js', 'x', ['users']],
    ['users/util.js', 'x', inUsers],
    ['users/_lib/db.js', 'x', inUsers],
    ['users/lib/deep/x.js', 'x', inUsers],
    ['users/src/new.js', '', inUsers],
    ['_shared.js', 'x', all.filter(name => name !== 'other')],
    ['_shared.py', 'x', ['other']],
    ['common/_text.js', 'x', all.filter(name => name !== 'other')],
    ['users/fn.config.json', config({ timeout_ms: 200 }), []],
    ['users/fn.config.json', config({ invoke: { handler: 'run' } }), ['users', 'users/[id]']],
    ['users/fn.config.json', config({ invoke: { adapter: 'lambda' } }), ['users', 'users/[id]']],
    ['users/fn.config.json', config({ shared_deps: ['pack'] }), ['users', 'users/[id]']],
    ['users/fn.env.json', config({ KEY: 'v' }), ['users', 'users/[id]']],
    ['users/data.json', '{}', []],
    ['users/notes.db', 'x', []],
    ['users/index.test.js', 'x', []],
    ['users/node_modules/p/index.js', 'x', []],
  ]
  for (const [path, entry, expected] of cases) {
    const tree = makeTree(SIGNATURE_TREE)
    const { discover: remember } = createDiscoverer(OPTIONS)
    const snapshot = snapshotOf(tree.root)
    const before = remember(snapshot)
    tree.write({ [path]: entry })
    const after = remember(snapshotOf(tree.root, { previous: snapshot, changed: [path] }))
    const changed = all.filter(name => fnOf(before, name).signature !== fnOf(after, name).signature)
    t.same(changed, expected, `${path} ${JSON.stringify(entry)}`)
    tree.cleanup()
  }
})

t.test('[discovery/layouts.33] a manifest changes the signature of compiled functions in its folder', async t => {
  const tree = makeTree({
    'g/handler.go': '',
    'g/[id].go': '',
    'r/handler.rs': '',
    'n/handler.js': '',
    'g/go.mod': 'a',
  })
  t.teardown(() => tree.cleanup())
  const { discover: remember } = createDiscoverer({ ...OPTIONS, runtimes: [...OPTIONS.runtimes, 'go', 'rust'] })
  const all = ['g', 'g/[id]', 'r', 'n']
  let snapshot = snapshotOf(tree.root)
  let before = remember(snapshot)
  const cases: [string, string[]][] = [
    ['g/go.mod', ['g', 'g/[id]']],
    ['g/go.sum', ['g', 'g/[id]']],
    ['g/Cargo.toml', []],
    ['r/Cargo.toml', ['r']],
    ['r/Cargo.lock', ['r']],
    ['n/go.mod', []],
    ['go.mod', []],
  ]
  for (const [path, expected] of cases) {
    tree.write({ [path]: 'changed' })
    snapshot = snapshotOf(tree.root, { previous: snapshot, changed: [path] })
    const after = remember(snapshot)
    t.same(
      all.filter(name => fnOf(before, name).signature !== fnOf(after, name).signature),
      expected,
      path,
    )
    before = after
  }
  t.same(before.warnings, [])
})

t.test('[discovery/layouts.3, discovery/layouts.35] names of Object and deep or odd texts are plain data', async t => {
  const discovery = discoverTree({
    '__proto__x/handler.js': '',
    'constructor/handler.js': '',
    'toString.js': '',
    'hasOwnProperty/[__proto__].js': '',
    'a/fn.config.json': `{"__proto__": {"timeout_ms": 1}, "invoke": ${'['.repeat(200)}${']'.repeat(200)}}`,
    'a/x.js': '',
  })
  t.same(routesOf(discovery), [
    'GET /constructor constructor/handler.js',
    'GET /hasOwnProperty/:__proto__ hasOwnProperty/[__proto__].js',
    'GET /toString toString.js',
    'GET,POST,PUT,PATCH,DELETE /a/x a/x.js',
  ])
  t.equal(fnOf(discovery, 'a/x').policy.timeoutMs, 2500)
})

t.test(
  '[discovery/layouts.46, discovery/layouts.2] a changed loaded file is another signature, and nothing else',
  async t => {
    const tree = makeTree({
      'a/handler.js': '',
      'b.js': '',
      'c/index.py': '',
      'fn.routes.json': config({ routes: { '/r': 'b.js' } }),
    })
    t.teardown(tree.cleanup)
    const { discover: remember } = createDiscoverer(OPTIONS)
    const snapshot = snapshotOf(tree.root)
    const before = remember(snapshot)
    const revisions = new Map([
      ['node/a@default', 1],
      ['node/b@default', 3],
      ['node/gone@default', 1],
    ])
    const after = remember(snapshot, undefined, revisions)
    const changed = after.functions.filter(fn => !before.functions.includes(fn))
    t.same(
      changed.map(fn => fn.signature),
      [`${fnOf(before, 'a').signature}.1`, `${fnOf(before, 'b').signature}.3`],
    )
    t.same({ ...changed[0], signature: '' }, { ...fnOf(before, 'a'), signature: '' })
    t.ok(after.claims.every(claim => after.functions.includes(claim.fn)))
    t.equal(after.byKey.get('node/a@default'), changed[0])
    t.equal(remember(snapshot, undefined, revisions), after, 'the same again')
    const more = remember(snapshot, undefined, new Map([...revisions, ['python/c@default', 1]]))
    t.equal(fnOf(more, 'a'), changed[0], 'what did not change keeps its object')
    tree.write({ 'a/handler.js': 'changed' })
    const edited = remember(
      snapshotOf(tree.root, { previous: snapshot, changed: ['a/handler.js'] }),
      undefined,
      revisions,
    )
    t.not(fnOf(edited, 'a').signature, changed[0]?.signature)
    t.match(fnOf(edited, 'a').signature, /\.1$/)
  },
)
