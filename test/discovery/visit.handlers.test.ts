import t from 'tap'
import { visitFolder } from './visit-bed.ts'
import type { TreeEntry } from '../helpers/tree.ts'
import type { DiscoverOptions } from '../../lib/discovery/discover.ts'

const config = (json: unknown) => ({ json })
const handlers = (entries: Record<string, TreeEntry>, path: string, options: Partial<DiscoverOptions> = {}) =>
  visitFolder(entries, path, options)

t.test('[discovery/layouts.22, discovery/layouts.20] the routes of a function', async t => {
  t.same(handlers({ 'x/handler.js': '' }, 'x').claims, ['GET /x x/handler.js'], 'its folder alone')
  const GET = { methods: ['GET'] }
  const rows: [string, Record<string, TreeEntry>, string, string[]][] = [
    [
      'an identity',
      { 'x/handler.js': '', 'x/fn.config.json': config({ runtime: 'node', invoke: GET }) },
      'x',
      ['GET /x x/handler.js', 'GET /x/* x/handler.js'],
    ],
    [
      'a name',
      { 'x/handler.js': '', 'x/fn.config.json': config({ name: 'a/b', invoke: GET }) },
      'x',
      ['GET /a/b x/handler.js', 'GET /a/b/* x/handler.js'],
    ],
    ['a group', { 'node/x/handler.js': '' }, 'node/x', ['GET /x node/x/handler.js', 'GET /x/* node/x/handler.js']],
    [
      'listed ones',
      { 'x/handler.js': '', 'x/fn.config.json': config({ invoke: { ...GET, routes: ['/p', '/q/*'] } }) },
      'x',
      ['GET /p x/handler.js', 'GET /q/* x/handler.js'],
    ],
    [
      'a catch-all folder',
      { '[...x]/handler.js': '', '[...x]/fn.config.json': config({ runtime: 'node', invoke: GET }) },
      '[...x]',
      ['GET /:x* [...x]/handler.js'],
    ],
    [
      'the root',
      { 'handler.js': '', 'fn.config.json': config({ runtime: 'node', invoke: GET }) },
      '',
      ['GET / handler.js'],
    ],
    [
      'the named root',
      { 'handler.js': '', 'fn.config.json': config({ name: 'r', invoke: GET }) },
      '',
      ['GET /r handler.js', 'GET /r/* handler.js'],
    ],
    [
      'a method file',
      { 'x/handler.js': '', 'x/get.py': '', 'x/fn.config.json': config({ invoke: { methods: ['GET', 'PUT'] } }) },
      'x',
      ['GET /x x/get.py', 'PUT /x x/handler.js'],
    ],
  ]
  for (const [title, entries, path, claims] of rows) {
    const visited = handlers(entries, path)
    t.same(visited.claims, claims, title)
    t.same(visited.codes, [], title)
  }
  const taken = handlers({ 'x/index.js': '', 'x/get.js': '' }, 'x')
  t.same(taken.names, ['x/get'], 'nothing is left for the entry')
  t.match(taken.part.ignored, [{ path: 'x/index.js', reason: /method prefix answer all/ }])
})

t.test('[validation/schema-file.8] the file that describes a handler', async t => {
  const schemasOf = (entries: Record<string, TreeEntry>, path: string) => {
    const { part } = visitFolder(entries, path)
    return [
      ...part.functions.map(fn => `${fn.entryFile} ${fn.schema?.path ?? '-'}`),
      ...part.warnings.map(warning => `${warning.code} ${warning.path}`),
    ]
  }
  const rows: [Record<string, TreeEntry>, string[]][] = [
    [{ 'x/handler.js': '', 'x/schema.json': '{}' }, ['x/handler.js x/schema.json']],
    [
      { 'x/index.py': '', 'x/schema.json': '{}', 'x/index.schema.json': '{}' },
      ['x/index.py x/index.schema.json', 'SCHEMA_UNUSED x/schema.json'],
    ],
    [
      { 'x/get.js': '', 'x/post.php': '', 'x/schema.json': '{}', 'x/post.schema.json': '{}' },
      ['x/get.js x/schema.json', 'x/post.php x/post.schema.json'],
    ],
    [{ 'x/[id].lua': '', 'x/schema.json': '{}' }, ['x/[id].lua -', 'SCHEMA_UNUSED x/schema.json']],
    [{ 'x/[id].lua': '', 'x/[id].schema.json': '{}', 'x/mine.schema.json': '{}' }, ['x/[id].lua x/[id].schema.json']],
    [
      { 'x/src/app.js': '', 'x/fn.config.json': config({ entrypoint: 'src/app.js' }), 'x/schema.json': '{}' },
      ['x/src/app.js x/schema.json'],
    ],
    [
      { 'x/app.js': '', 'x/fn.config.json': config({ entrypoint: 'app.js' }), 'x/schema.json': '{}' },
      ['x/app.js x/schema.json'],
    ],
  ]
  for (const [entries, expected] of rows) t.same(schemasOf(entries, 'x'), expected)
})

t.test('[discovery/layouts.25] forced claims', async t => {
  const entries = (force: boolean) => ({
    'x/handler.js': '',
    'x/fn.config.json': config({ runtime: 'node', invoke: { methods: ['GET'], 'force-url': force } }),
  })
  const plain = ['GET /x x/handler.js', 'GET /x/* x/handler.js']
  const forced = plain.map(claim => `${claim} forced`)
  t.same(handlers(entries(false), 'x').claims, plain)
  t.same(handlers(entries(true), 'x').claims, forced)
  t.same(handlers(entries(false), 'x', { forceUrl: true }).claims, forced)
  const listed = { 'x/handler.js': '', 'x/fn.config.json': config({ invoke: { methods: ['GET'], routes: ['/p'] } }) }
  t.same(handlers(listed, 'x').claims, ['GET /p x/handler.js'])
  t.same(handlers(listed, 'x', { forceUrl: true }).claims, ['GET /p x/handler.js forced'])
  const file = { 'x/handler.js': '', 'x/fn.config.json': config({ invoke: { methods: ['GET'], 'force-url': true } }) }
  t.same(handlers(file, 'x').claims, ['GET /x x/handler.js forced'], 'its own path too')
  t.same(
    handlers({ 'x/handler.js': '' }, 'x', { forceUrl: true }).claims,
    ['GET /x x/handler.js'],
    'a file route is no config',
  )
})

t.test('[core/versions.3, core/versions.4, core/versions.5, core/versions.7, core/versions.8] versions', async t => {
  const version = handlers({ 'x/handler.js': '', 'x/v2/handler.js': '' }, 'x/v2')
  t.same(version.names, ['x@v2', 'x/v2'])
  t.same(version.claims, ['GET /x/v2 x/v2/handler.js'])
  const listed = {
    'x/handler.js': '',
    'x/v2/handler.js': '',
    'x/v2/fn.config.json': config({ invoke: { methods: ['GET'], routes: ['/p'], 'force-url': true } }),
  }
  t.same(
    handlers(listed, 'x/v2').claims,
    ['GET /p x/v2/handler.js', 'GET /x/v2 x/v2/handler.js'],
    'its config forces nothing',
  )
  t.same(handlers(listed, 'x/v2', { forceUrl: true }).claims, [
    'GET /p x/v2/handler.js forced',
    'GET /x/v2 x/v2/handler.js',
  ])
  const identity = { ...listed, 'x/v2/fn.config.json': config({ runtime: 'node', invoke: { methods: ['GET'] } }) }
  t.same(handlers(identity, 'x/v2').claims, ['GET /x/v2 x/v2/handler.js', 'GET /x/v2/* x/v2/handler.js'])
  const odd = handlers({ 'x/handler.js': '', 'x/1.0/handler.js': '' }, 'x/1.0')
  t.same([odd.names, odd.claims], [['x@1.0'], []], 'an address alone')
  t.same(
    handlers({ 'space/v1/handler.js': '' }, 'space/v1').names,
    ['space/v1', 'space@v1'],
    'a function of versions only',
  )
  t.same(handlers({ 'space/plain/handler.js': '' }, 'space/plain').names, ['space/plain'])
  const unnamed = handlers({ '[id]/handler.js': '', '[id]/v1/handler.js': '' }, '[id]/v1')
  t.same(unnamed.names, ['[id]/v1'], 'what has no name has no versions')
  const schedule = config({ schedule: { every_seconds: 5 } })
  const once = handlers({ 'x/handler.js': '', 'x/v2/handler.js': '', 'x/v2/fn.config.json': schedule }, 'x/v2')
  t.same(
    once.part.functions.map(fn => fn.policy.schedule !== null),
    [true, false],
    'a schedule runs once',
  )
  const alone = handlers(
    { '[id]/handler.js': '', '[id]/v1/handler.js': '', '[id]/v1/fn.config.json': schedule },
    '[id]/v1',
  )
  t.ok(alone.part.functions[0]?.policy.schedule)
})

t.test('[discovery/entry-file.2, discovery/entry-file.7] a function without a handler', async t => {
  const rows: [string, Record<string, TreeEntry>, string[], RegExp | null][] = [
    ['missing', { 'x/fn.config.json': config({ entrypoint: 'gone.js' }) }, ['ENTRYPOINT'], /"gone\.js" does not exist/],
    [
      'contradiction',
      { 'x/app.py': '', 'x/fn.config.json': config({ entrypoint: 'app.py', runtime: 'node' }) },
      ['ENTRYPOINT'],
      /is a python file, but runtime is "node"/,
    ],
    ['none', { 'x/a.js': '', 'x/fn.config.json': config({ name: 'x' }) }, ['NO_ENTRY_FILE'], /has no handler file$/],
    ['of a runtime', { 'x/a.js': '', 'x/fn.config.json': config({ runtime: 'lua' }) }, ['NO_ENTRY_FILE'], /for lua$/],
    ['off', { 'x/a.go': '', 'x/fn.config.json': config({ runtime: 'go' }) }, ['RUNTIME_DISABLED'], /runtime go/],
    ['file routes', { 'x/get.js': '', 'x/fn.config.json': config({ name: 'x' }) }, [], null],
    [
      'a manifest',
      {
        'x/a.js': '',
        'x/fn.config.json': config({ name: 'x' }),
        'x/fn.routes.json': config({ routes: { '/q': 'a.js' } }),
      },
      [],
      null,
    ],
    ['versions', { 'x/v1/handler.js': '', 'x/fn.config.json': config({ name: 'x' }) }, [], null],
    ['an overlay', { 'x/y/a.js': '', 'x/fn.config.json': config({ timeout_ms: 5 }) }, [], null],
  ]
  for (const [title, entries, codes, message] of rows) {
    const { part, codes: found } = handlers(entries, 'x')
    t.same(found, codes, title)
    if (message !== null) t.match(part.warnings[0]?.message, message, title)
  }
})

t.test('[discovery/layouts.31, discovery/layouts.32] home and assets of a folder', async t => {
  const home = (path: string, route: string) =>
    handlers(
      { [`${path === '' ? '' : `${path}/`}fn.config.json`]: config({ home: { route } }), 'u/[id]/x.js': '' },
      path,
    )
  t.match(home('', 'x').part.homes, [{ folder: '/', route: '/x', redirect: null, origin: 'fn.config.json' }])
  t.match(home('u', 'x').part.homes, [{ folder: '/u', route: '/u/x' }])
  t.match(home('u', '/x').part.homes, [{ route: '/x' }])
  const dynamic = home('u/[id]', 'x')
  t.same([dynamic.part.homes, dynamic.codes], [[], ['HOME_IGNORED']])
  const redirect = handlers(
    { 'u/fn.config.json': config({ home: { redirect: 'https://a.test/' } }), 'u/x.js': '' },
    'u',
  )
  t.match(redirect.part.homes, [{ route: null, redirect: 'https://a.test/' }])
  const assets = config({ assets: { directory: 'site' } })
  t.same(handlers({ 'u/fn.config.json': assets, 'u/x.js': '' }, 'u').codes, ['NESTED_ASSETS'])
  t.same(handlers({ 'fn.config.json': assets, 'site/a.css': '' }, '').codes, [])
})

t.test('[discovery/entry-file.6, discovery/entry-file.8] two languages stand for one folder', async t => {
  const visited = handlers({ 'x/index.py': '', 'x/main.js': '' }, 'x')
  t.same(visited.names, ['x', 'x'])
  t.same(visited.claims, ['GET /x x/index.py', 'GET /x x/main.js'])
})

t.test('[invocation/adapters.2] one config is wrong once, however many functions it makes', async t => {
  const adapter = config({ invoke: { adapter: 'cloud-lambda' } })
  const { codes } = handlers(
    { 'x/index.php': '', 'x/get.a.php': '', 'x/get.b.php': '', 'x/fn.config.json': adapter },
    'x',
  )
  t.same(codes, ['ADAPTER_UNAVAILABLE', 'ADAPTER_UNAVAILABLE', 'ADAPTER_UNAVAILABLE'], 'one for each file')
  const version = handlers({ 'space/v1/index.php': '', 'space/v1/fn.config.json': adapter }, 'space/v1')
  t.same(version.codes, ['ADAPTER_UNAVAILABLE'], 'the two functions of one file say it once')
})
