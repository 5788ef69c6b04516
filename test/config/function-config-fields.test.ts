import t from 'tap'
import { emptyConfig, parseFunctionConfigValue } from '../../lib/config/function-config.ts'
import { type Finding, toPlace } from '../../lib/config/fields.ts'
import { FUNCTION_CONFIG } from '../../lib/config/function-config-fields.ts'

const FILE = 'users/fn.config.json'
const parse = (given: unknown) => {
  const { value: config, warnings: problems } = parseFunctionConfigValue(given, FILE)
  return { config, problems }
}
const EMPTY = emptyConfig()
/** Puts `value` at a dotted path. */
const at = (path: string, value: unknown): Record<string, unknown> => {
  const [key = '', ...rest] = path.split('.')
  return { [key]: rest.length === 0 ? value : at(rest.join('.'), value) }
}
const get = (holder: unknown, path: string): unknown =>
  path.split('.').reduce<unknown>((value, key) => (value as Record<string, unknown> | undefined)?.[key], holder)

const NOT_TEXT = [5, true, [], {}, '']
const NOT_BOOLEAN = ['true', 1, 'yes', [], {}]
const NOT_INTEGER = ['5', 1.5, true, [], {}, 1e300]
const NOT_OBJECT = ['x', 5, true, []]

/** Fields with a test of their own below. */
const ELSEWHERE =
  /^(\$schema|invoke\.(adapter|allow_hosts)|response\.include_debug_headers|assets\..+|schedule(\..+)?|edge\.allow_hosts)$/

/** Every declared field, as dotted paths. */
function declaredFields(): string[] {
  type Node = { properties?: Record<string, Node>; deprecated?: boolean }
  const { properties = {} } = FUNCTION_CONFIG.schema as Node
  return Object.entries(properties).flatMap(([key, node]) => {
    const inner = Object.entries(node.properties ?? {}).filter(([, child]) => !child.deprecated)
    return node.deprecated ? [] : [key, ...inner.map(([name]) => `${key}.${name}`)]
  })
}

/** Every field: what is read into where, and what is refused. A field that is missing here fails the test. */
const FIELDS: [field: string, good: unknown, path: string, value: unknown, bad: unknown[]][] = [
  ['runtime', 'Python', 'runtime', 'python', ['ruby', 'typescript', ...NOT_TEXT]],
  ['name', 'api/v1/users', 'name', 'api/v1/users', ['a b', '/a', 'a//b', '../a', 'ü', ...NOT_TEXT]],
  ['version', '1.0.0', 'version', undefined, [5, {}]],
  [
    'entrypoint',
    './src/app.py',
    'entrypoint',
    'src/app.py',
    ['/etc/passwd', '../x.py', 'a/../../b', 'a\\b', 'a\0', ...NOT_TEXT],
  ],
  ['group', 'shop', 'group', 'shop', ['x'.repeat(81), 'a\nb', ...NOT_TEXT]],
  ['timeout_ms', 100, 'timeoutMs', 100, [0, -1, 86_400_001, ...NOT_INTEGER]],
  ['max_concurrency', 0, 'maxConcurrency', 0, [-1, ...NOT_INTEGER]],
  ['max_body_bytes', 1, 'maxBodyBytes', 1, [0, 2 ** 31, ...NOT_INTEGER]],
  ['methods', ['get', 'POST'], 'invoke.methods', ['GET', 'POST'], [[], ['FETCH'], ['HEAD'], 5, {}]],
  [
    'routes',
    ['/a', '/a'],
    'invoke.routes',
    ['/a'],
    [['a'], ['/_fn/x'], ['/../x'], ['/a?b'], 5, {}, Array(33).fill('/x')],
  ],
  ['force-url', true, 'invoke.forceUrl', true, NOT_BOOLEAN],
  ['private', true, 'private', true, NOT_BOOLEAN],
  ['include_debug_headers', true, 'response.includeDebugHeaders', true, NOT_BOOLEAN],
  ['invoke', {}, 'invoke.handler', undefined, NOT_OBJECT],
  ['invoke.handler', 'run_it', 'invoke.handler', 'run_it', ['1run', 'a-b', 'a.b', '__proto__ ', ...NOT_TEXT]],
  ['invoke.routes', '/a, /b/*', 'invoke.routes', ['/a', '/b/*'], [['//_fn'], ['/console'], ['/a b'], ['/\u0000']]],
  ['invoke.route', '/one', 'invoke.routes', ['/one'], ['one', '/_fn', ...NOT_TEXT]],
  ['invoke.methods', ['delete', 'DELETE'], 'invoke.methods', ['DELETE'], [['OPTIONS'], 'ANY', [5]]],
  ['invoke.force-url', true, 'invoke.forceUrl', true, NOT_BOOLEAN],
  ['invoke.validate', true, 'invoke.validate', true, NOT_BOOLEAN],
  ['invoke.summary', 'Lists users', 'invoke.summary', 'Lists users', ['x'.repeat(501), ...NOT_TEXT]],
  ['invoke.query', { a: [1] }, 'invoke.query', { a: [1] }, NOT_OBJECT],
  ['invoke.body', [1, { a: null }], 'invoke.body', [1, { a: null }], []],
  ['invoke.content_type', 'text/plain', 'invoke.contentType', 'text/plain', ['a\r\nb', ...NOT_TEXT]],
  ['invoke.default_method', 'POST', 'invoke.methods', undefined, ['FETCH', 5]],
  ['invoke.home', '/x', 'home.route', '/x', [5, [], '/']],
  ['invoke.home-route', 'x', 'home.route', 'x', [...NOT_TEXT, '/_fn/health']],
  ['response', { include_debug_headers: true }, 'response.includeDebugHeaders', true, NOT_OBJECT],
  ['home', 'https://example.com/', 'home.redirect', 'https://example.com/', [5, [], '/', 'mailto:x@y.z', '../up']],
  ['home.route', './list', 'home.route', 'list', ['/', '/console', '/a/../b', 'http://x/', ...NOT_TEXT]],
  ['home.function', '/list', 'home.route', '/list', ['/', '//', ...NOT_TEXT]],
  [
    'home.redirect',
    '/docs',
    'home.redirect',
    '/docs',
    ['/', '//evil.example', 'javascript:x', 'x', '/a\r\nb', ...NOT_TEXT],
  ],
  [
    'assets',
    { directory: 'public' },
    'assets',
    { directory: 'public', notFoundHandling: '404', runWorkerFirst: false },
    [...NOT_OBJECT, {}],
  ],
  ['worker_pool', {}, 'workerPool', {}, NOT_OBJECT],
  ['worker_pool.enabled', false, 'workerPool.enabled', false, NOT_BOOLEAN],
  ['worker_pool.min_warm', 0, 'workerPool.minWarm', 0, [-1, 1001, ...NOT_INTEGER]],
  ['worker_pool.max_workers', 1, 'workerPool.maxWorkers', 1, [0, -1, 'four', ...NOT_INTEGER]],
  ['worker_pool.max_queue', 0, 'workerPool.maxQueue', 0, [-1, ...NOT_INTEGER]],
  ['worker_pool.queue_timeout_ms', 0, 'workerPool.queueTimeoutMs', 0, [-1, 86_400_001, ...NOT_INTEGER]],
  ['worker_pool.queue_poll_ms', 20, 'workerPool.queuePollMs', 20, [0, ...NOT_INTEGER]],
  ['worker_pool.idle_ttl_seconds', 0, 'workerPool.idleTtlSeconds', 0, [-1, ...NOT_INTEGER]],
  ['worker_pool.overflow_status', 503, 'workerPool.overflowStatus', 503, [500, '429', true, []]],
  ['keep_warm', {}, 'keepWarm', { enabled: true, minWarm: 1, pingEverySeconds: 45, idleTtlSeconds: 300 }, NOT_OBJECT],
  ['keep_warm.enabled', false, 'keepWarm.enabled', false, NOT_BOOLEAN],
  ['keep_warm.min_warm', 2, 'keepWarm.minWarm', 2, [-1, 1001, ...NOT_INTEGER]],
  ['keep_warm.ping_every_seconds', 1, 'keepWarm.pingEverySeconds', 1, [0, 86_401, ...NOT_INTEGER]],
  ['keep_warm.idle_ttl_seconds', 1, 'keepWarm.idleTtlSeconds', 1, [0, ...NOT_INTEGER]],
  ['edge', {}, 'edge', undefined, NOT_OBJECT],
  [
    'edge.base_url',
    'https://api.example.com/v1/',
    'edge.baseUrl',
    'https://api.example.com/v1',
    ['ftp://x/', 'https://u:p@x/', 'https://x/?a', 'x', ...NOT_TEXT],
  ],
  ['edge.allow_private', true, 'edge.allowPrivate', true, NOT_BOOLEAN],
  ['edge.max_response_bytes', 1, 'edge.maxResponseBytes', 1, [0, 2 ** 31, ...NOT_INTEGER]],
  [
    'allow_scripts',
    ['esbuild', '@scope/name', 'vendor/name'],
    'allowScripts',
    ['esbuild', '@scope/name', 'vendor/name'],
    [['-g'], ['../x'], ['a b'], ['@x'], ['a/b/c'], ['https://x/y'], 5, {}],
  ],
  ['shared_deps', ['base', 'img_tools'], 'sharedDeps', ['base', 'img_tools'], [5, {}]],
  [
    'cors',
    { origins: ['*'] },
    'cors',
    { origins: ['*'], methods: [], headers: [], expose: [], credentials: false, maxAgeSeconds: 600 },
    [true, 5, 'x', [], {}],
  ],
]

t.test(
  '[config/function-config.1, config/function-config.2] every field takes its values and refuses others',
  async t => {
    const tried = new Set(FIELDS.map(([field]) => field))
    t.same(
      declaredFields().filter(field => !tried.has(field) && !ELSEWHERE.test(field)),
      [],
      'declared and not tried',
    )
    for (const [field, good, path, value, bads] of FIELDS) {
      const parsed = parse(at(field, good))
      t.same(parsed.problems, [], `${field}: ${JSON.stringify(good)}`)
      t.same(get(parsed.config, path), value, field)
      for (const bad of bads) {
        const { config, problems } = parse(at(field, bad))
        const shown = `${field}: ${JSON.stringify(bad)}`
        t.ok(problems.length > 0, shown)
        t.ok(
          problems.every(({ path }) => path === FILE),
          shown,
        )
        t.match(problems[0]!.message, `${FILE}: ${field}`, shown)
        t.ok(problems[0]!.hint !== '', shown)
        const kept = get(config, path)
        const block = get(EMPTY, path) ?? (field === 'keep_warm' ? undefined : get(parse(at(field, null)).config, path))
        t.same(kept, block, `${shown} counts as absent`)
      }
    }
  },
)

t.test(
  '[config/function-config.2, config/function-config.5] an adapter that does not exist is kept by name, not used',
  async t => {
    const { config, problems } = parse({ invoke: { adapter: 'azure' } })
    t.same(config.invoke.adapter, { name: null, given: 'azure' })
    t.match(problems, [
      { code: 'CONFIG_VALUE', message: /invoke\.adapter must be one of native, cloud-lambda, edge-worker/ },
    ])
    t.same(parse({ invoke: { adapter: 5 } }).config.invoke.adapter, { name: null, given: '' })
    for (const [given, name] of [
      ['LAMBDA', 'cloud-lambda'],
      ['', 'native'],
      ['workers', 'edge-worker'],
    ] as const)
      t.match(parse({ invoke: { adapter: given } }), { config: { invoke: { adapter: { name } } }, problems: [] })
  },
)

t.test('[config/function-config.9] home is a text or an object, and a redirect is no path', async t => {
  const homeOf = (home: unknown) => FUNCTION_CONFIG.read({ home }, toPlace(FILE, '', []))?.home
  t.same(homeOf('HTTPS://x.example/a'), { redirect: 'HTTPS://x.example/a' })
  t.same(homeOf('./list'), { route: 'list' })
  t.same(homeOf({ function: 'a', route: 'b' }), { route: 'b', redirect: undefined })
  for (const bad of ['/', '/_fn/x', 'javascript:1', 'http://', 5, []]) t.equal(homeOf(bad), undefined, String(bad))
})

t.test('[config/function-config.7, config/function-config.10] headers of a schedule and origins of cors', async t => {
  const findings: Finding[] = []
  const raw = FUNCTION_CONFIG.read(
    {
      schedule: { every_seconds: 1, headers: { 'X-A': 5, 'x-b': true }, timezone: 'z', cron: ' @DAILY ' },
      cors: { origins: ['HTTPS://A.example:8443', 'null', 'capacitor://localhost'], expose: '*, X-B' },
    },
    toPlace(FILE, '', findings),
  )
  t.same(findings, [])
  t.match(raw?.schedule, { headers: { 'X-A': '5', 'x-b': 'true' }, timezone: 'Z', cron: '@daily' })
  t.match(raw?.cors, { origins: ['https://a.example:8443', 'null', 'capacitor://localhost'], expose: ['*', 'x-b'] })
  const wrong = parse({ cors: { origins: ['https://a.example'], expose: ['a b'], headers: ['x:y'] } })
  t.match(
    wrong.problems,
    [{ message: /cors\.headers must be a header name/ }, { message: /cors\.expose must be/ }].reverse(),
  )
})

t.test(
  '[config/function-config.22] a pack name that is wrong is a problem, and stays for the call to fail with',
  async t => {
    for (const [given, kept] of [
      ['../x', '../x'],
      ['.svc', '.svc'],
      ['a/b', 'a/b'],
      ['', ''],
      [5, '5'],
      ['a\nb', 'a\\u000ab'],
    ] as const) {
      const { config, problems } = parse({ shared_deps: ['base', given] })
      t.same(config.sharedDeps, ['base', kept])
      t.match(problems, [{ code: 'CONFIG_VALUE', message: /shared_deps\[1\] must be a pack name, which has letters/ }])
    }
  },
)
