import t from 'tap'
import { isSameVersion, toFunctionPath, toVersionPath } from '../../lib/core/versions.ts'
import { buildRouteTable } from '../../lib/router/route-table.ts'
import { codesOf, discoverTree, fnOf, namesOf, routesOf } from '../helpers/discovery.ts'
import { makeFn } from '../helpers/fn.ts'

const config = (json: unknown) => ({ json })

t.test('[core/versions.1, core/versions.2] addresses of versions', async t => {
  t.equal(toVersionPath('alice/hello', '2.0'), '/alice/hello@2.0')
  t.equal(toFunctionPath('alice/hello', '2.0'), '/alice/hello@2.0')
  t.equal(toFunctionPath('alice/hello', null), '/alice/hello')
  const fn = makeFn({})
  t.ok(isSameVersion(fn, { ...fn, policy: { ...fn.policy, timeoutMs: 1 } }), 'policies may differ')
  t.notOk(isSameVersion(fn, { ...fn, signature: 'other' }))
  const named: [string, string][] = [
    ['hello', 'v2'],
    ['alice/hello', '2.0'],
    ['h.i', 'v1'],
    ['a b', 'v1'],
    ['users/[id]', 'v1'],
    ['hello', '..'],
    ['hello', 'a@b'],
  ]
  const functions = named.map(([name, version]) => makeFn({ name, version }))
  const table = buildRouteTable([], { functions, forceUrl: false })
  t.same(
    table.leaves.map(leaf => leaf.pattern),
    ['/alice/hello@2.0', '/hello@v2'],
  )
  t.same(table.warnings, [])
})

t.test('[core/versions.3, core/versions.4] child folders with a handler are versions, in every layout', async t => {
  const discovery = discoverTree({
    'hello/handler.py': '',
    'hello/v2/handler.py': '',
    'hello/beta/main.py': '',
    'hello/notes/x.md': '',
    'hello/_old/handler.py': '',
    'python/alice/hello/handler.py': '',
    'python/alice/hello/2.0/handler.py': '',
    'shop/fn.config.json': config({ name: 'store', runtime: 'node' }),
    'shop/v1/handler.js': '',
    'shop/stable/fn.config.json': config({ entrypoint: 'app.js' }),
    'shop/stable/app.js': '',
  })
  const versions = namesOf(discovery).filter(name => name.includes('@'))
  t.same(versions, ['store@stable', 'store@v1', 'alice/hello@2.0', 'hello@beta', 'hello@v2'])
  const paths = routesOf(discovery).map(route => route.split(' ')[1])
  t.same(paths.filter(path => /v2|beta|2\.0|v1|stable/.test(path ?? '')).sort(), [
    '/hello/beta',
    '/hello/v2',
    '/shop/stable',
    '/shop/stable/*',
    '/shop/v1',
  ])
  t.same(codesOf(discovery), [])
})

t.test('[core/versions.5] without a handler of its own, a folder has versions that look like ones', async t => {
  const discovery = discoverTree({
    'hello/v1/handler.py': '',
    'hello/2.0/handler.py': '',
    'hello/other/handler.py': '',
    'api/v1/users/handler.py': '',
  })
  t.same(namesOf(discovery), ['api/v1/users', 'hello/other', 'hello/v1', 'hello@2.0', 'hello@v1'])
})

t.test('[core/versions.6] another name is another function', async t => {
  const discovery = discoverTree({
    'api/handler.js': '',
    'api/users/handler.js': '',
    'api/users/fn.config.json': config({ name: 'people' }),
    'api/v2/handler.js': '',
    'api/v2/fn.config.json': config({ name: 'api', version: 'v2' }),
  })
  t.same(namesOf(discovery), ['api/v2', 'api', 'api@v2', 'people'])
})

t.test('[core/versions.7] what a version inherits', async t => {
  const discovery = discoverTree({
    'hello/handler.py': '',
    'hello/fn.config.json': config({
      timeout_ms: 100,
      max_concurrency: 3,
      invoke: { methods: ['POST'], handler: 'run' },
      schedule: { every_seconds: 5 },
      keep_warm: {},
    }),
    'hello/v1/handler.py': '',
    'hello/v2/handler.py': '',
    'hello/v2/fn.config.json': config({
      timeout_ms: 200,
      invoke: { methods: ['PUT'] },
      schedule: { every_seconds: 9 },
    }),
  })
  const version = (label: string) => discovery.functions.find(fn => fn.version === label)!.policy
  t.match(version('v1'), {
    timeoutMs: 100,
    maxConcurrency: 3,
    methods: ['POST'],
    handler: 'run',
    schedule: null,
    keepWarm: null,
  })
  t.match(version('v2'), {
    timeoutMs: 200,
    maxConcurrency: 3,
    methods: ['PUT'],
    handler: 'run',
    schedule: { everySeconds: 9 },
  })
  t.equal(fnOf(discovery, 'hello').policy.schedule?.everySeconds, 5)
  t.equal(fnOf(discovery, 'hello/v2').policy.schedule, null, 'one schedule runs once')
})

t.test('[core/versions.8] routes of a version are forced by FN_FORCE_URL alone', async t => {
  const tree = {
    'hello/handler.py': '',
    'hello/v2/handler.py': '',
    'hello/v2/fn.config.json': config({ invoke: { routes: ['/hello', '/new'], 'force-url': true } }),
  }
  const forcedOf = (forceUrl: boolean) =>
    discoverTree(tree, { forceUrl })
      .claims.filter(claim => claim.fn.version === 'v2')
      .map(claim => `${claim.pattern.text} ${claim.source} ${claim.forced}`)
  t.same(forcedOf(false), ['/hello config false', '/new config false'])
  t.same(forcedOf(true), ['/hello config true', '/new config true'])
})
