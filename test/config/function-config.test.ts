import t from 'tap'
import {
  emptyConfig,
  type FunctionConfig,
  mergePolicies,
  parseFunctionConfig,
  parseFunctionConfigValue,
} from '../../lib/config/function-config.ts'
import { NO_HOST } from '../../lib/config/texts.ts'

const FILE = 'users/fn.config.json'
const DEFAULTS = {
  defaultTimeoutMs: 2500,
  defaultMaxConcurrency: 20,
  defaultQueue: { maxQueue: 500, timeoutMs: 5000, maxWaitMs: 0 },
  defaultMaxBodyBytes: 1_048_576,
}

const parse = (given: unknown) => {
  const { value: config, warnings: problems } = parseFunctionConfigValue(given, FILE)
  return { config, problems }
}
const configOf = (value: unknown): FunctionConfig => {
  const { config, problems } = parse(value)
  t.same(
    problems.filter(({ code }) => code !== 'CONFIG_NO_EFFECT'),
    [],
    JSON.stringify(value),
  )
  return config
}

const EMPTY = emptyConfig()

t.test('[config/function-config.2] a text that is no JSON object gives a closed config and one warning', async t => {
  for (const text of ['', '{', '[]', '"x"', 'null', '5', '{"a":1,}', '\u0000']) {
    const { value: config, warnings: problems } = parseFunctionConfig(text, FILE)
    const problem = problems[0]!.message
    t.same(config, { ...EMPTY, scheduleProblem: problem, problem }, text)
    t.equal(problems.length, 1, text)
    t.equal(problems[0]!.path, FILE)
  }
  t.equal(parseFunctionConfig('\uFEFF{"timeout_ms": 5}', FILE).value.timeoutMs, 5)
  t.same(parseFunctionConfig('{"worker_pool":{"max_workers":"four"},"timeout_ms":7}', FILE), {
    value: { ...EMPTY, workerPool: {}, timeoutMs: 7 },
    warnings: [
      {
        code: 'CONFIG_VALUE',
        path: FILE,
        message: 'users/fn.config.json: worker_pool.max_workers must be an integer of at least 1, got "four" (string)',
        hint: 'Leave it out to use max_concurrency, where 0 means no limit.',
      },
    ],
  })
})

t.test('[config/function-config.3] runtime, name or entrypoint declare an identity, nothing else does', async t => {
  for (const value of [{ runtime: 'node' }, { name: 'x' }, { entrypoint: 'a.js' }]) t.ok(configOf(value).identity)
  for (const value of [{}, { timeout_ms: 5 }, { version: '1' }, { invoke: { routes: ['/a'] } }])
    t.notOk(configOf(value).identity)
  t.notOk(parse({ runtime: 'ruby', name: '../x' }).config.identity, 'a wrong one does not count')
})

t.test('[config/function-config.4] invoke.* wins over the same field at top level', async t => {
  const value = {
    methods: ['GET'],
    routes: ['/top'],
    force_url: false,
    include_debug_headers: false,
    invoke: { methods: ['POST'], routes: ['/inner'], forceUrl: true },
    response: { include_debug_headers: true },
  }
  t.match(configOf(value), {
    invoke: { methods: ['POST'], routes: ['/inner'], forceUrl: true },
    response: { includeDebugHeaders: true },
  })
  t.same(configOf({ invoke: { route: '/b', routes: ['/a'] } }).invoke.routes, ['/a', '/b'])
  t.same(configOf({ routes: [] }).invoke.routes, [], 'an empty list is not the same as none')
  t.equal(configOf({}).invoke.routes, undefined)
})

t.test('[config/function-config.5] adapter names, aliases and the old names', async t => {
  const names: [given: string, name: string][] = [
    ['native', 'native'],
    ['', 'native'],
    ['cloud-lambda', 'cloud-lambda'],
    ['lambda', 'cloud-lambda'],
    ['apigw-v2', 'cloud-lambda'],
    ['api-gateway-v2', 'cloud-lambda'],
    ['aws-lambda', 'cloud-lambda'],
    ['edge-worker', 'edge-worker'],
    ['Worker', 'edge-worker'],
    ['workers', 'edge-worker'],
    ['cloudflare-worker', 'edge-worker'],
    ['cloudflare-workers', 'edge-worker'],
  ]
  for (const [given, name] of names) t.equal(configOf({ invoke: { adapter: given } }).invoke.adapter?.name, name, given)
  for (const bad of ['azure', 5, {}]) {
    const { config, problems } = parse({ invoke: { adapter: bad } })
    t.equal(config.invoke.adapter?.name, null, 'not native: the handler expects another call')
    t.match(problems, [{ message: /invoke\.adapter must be one of native, cloud-lambda, edge-worker/ }])
    const policy = mergePolicies([config], DEFAULTS, { kind: 'function' })
    t.equal(policy.adapter, null)
  }
  t.equal(
    mergePolicies([parse({ invoke: { adapter: 'azure' } }).config], DEFAULTS, { kind: 'file' }).adapterName,
    'azure',
  )
})

t.test('[config/function-config.6] a broken list of hosts stays closed', async t => {
  const hosts = ['Example.com', 'example.com:8080', '*.example.com', '[::1]:80']
  t.same(
    configOf({ invoke: { allow_hosts: hosts } }).invoke.allowHosts,
    hosts.map(host => host.toLowerCase()),
  )
  t.same(configOf({ invoke: { allow_hosts: 'a.example, b.example' } }).invoke.allowHosts, ['a.example', 'b.example'])
  t.same(configOf({ invoke: { allow_hosts: [] } }).invoke.allowHosts, [])
  for (const bad of [['https://example.com/'], ['a b'], 5, { host: 'x' }, ['*'], ['**.x'], ['x/y']]) {
    const { config, problems } = parse({ invoke: { allow_hosts: bad } })
    t.same(config.invoke.allowHosts, [NO_HOST], JSON.stringify(bad))
    t.equal(problems.length, 1)
  }
  t.same(parse({ invoke: { allow_hosts: ['a.example', 'a b'] } }).config.invoke.allowHosts, ['a.example'])
  const edge = parse({ edge: { base_url: 'https://x.example', allow_hosts: 7 } })
  t.equal(edge.config.edge, undefined, 'no proxy at all instead of a proxy to everywhere')
  t.match(edge.problems, [{ message: /edge\.allow_hosts must be/ }, { message: /edge is not used/ }])
  t.match(configOf({ edge: { allow_hosts: ['a.example'] } }).edge, {
    baseUrl: null,
    allowHosts: ['a.example'],
    maxResponseBytes: 2_097_152,
  })
})

function parseSchedule(schedule: object) {
  return parse({ schedule })
}

t.test('[config/function-config.7] a schedule is read whole or not at all', async t => {
  t.same(configOf({ schedule: { every_seconds: 60 } }).schedule, {
    enabled: true,
    everySeconds: 60,
    cron: null,
    timezone: 'local',
    method: 'GET',
    query: {},
    headers: {},
    body: null,
    context: null,
    retry: null,
  })
  const full = {
    enabled: false,
    cron: ' 0  */5 * * MON-FRI ',
    tz: '+0530',
    method: 'post',
    query: { a: 1 },
    headers: { 'x-a': 1 },
    body: '{}\n',
    context: { by: 'cron' },
    retry: true,
  }
  t.match(configOf({ schedule: full }).schedule, {
    enabled: false,
    cron: '0 */5 * * MON-FRI',
    timezone: '+0530',
    method: 'POST',
    headers: { 'x-a': '1' },
    retry: { maxAttempts: 3, baseDelaySeconds: 1, maxDelaySeconds: 30, jitter: 0.2 },
  })
  for (const cron of ['@Daily', '@hourly', '* * * * *', '0 0 1 1 *', '*/10 * * * * *', '0 12 ? * 7']) {
    t.ok(configOf({ schedule: { cron } }).schedule, cron)
  }
  for (const timezone of ['UTC', 'utc', 'Z', 'LOCAL', '+02:00', '-0500', 'Europe/Berlin'])
    t.ok(configOf({ schedule: { cron: '@daily', timezone } }).schedule)
  const broken: [field: string, value: unknown][] = [
    ['enabled', 'yes'],
    ['every_seconds', 0],
    ['every_seconds', 1.5],
    ['cron', '* * * *'],
    ['cron', '* * * * * * *'],
    ['cron', '@reboot'],
    ['cron', '* * * * ;'],
    ['cron', '0 0 30 2 *'],
    ['timezone', 'Europe/Nowhere'],
    ['timezone', '+2'],
    ['timezone', '+15:00'],
    ['timezone', '+02:60'],
    ['method', 'FETCH'],
    ['query', 'a=1'],
    ['headers', { 'bad name': 'x' }],
    ['headers', { 'x-a': 'b\r\nc: d' }],
    ['headers', { 'x-a': ['b'] }],
    ['body', { a: 1 }],
    ['context', 'x'],
  ]
  for (const [field, value] of broken) {
    const { config, problems } = parseSchedule({ every_seconds: 60, [field]: value })
    const name = `${field} ${JSON.stringify(value)}`
    t.equal(config.schedule, undefined, name)
    t.match(problems.at(-1)!.message, 'schedule is not used', name)
    t.equal(problems.length, 2, name)
    t.equal(config.scheduleProblem, problems[0]!.message, 'it is what its row says')
  }
  const neither = parseSchedule({ enabled: true })
  t.equal(neither.config.schedule, undefined)
  t.match(neither.problems, [{ message: /neither every_seconds nor cron/ }])
})

t.test(
  '[config/function-config.8] retry numbers are clamped, its old names are read, a wrong one has its default',
  async t => {
    const cases: [retry: unknown, expected: object | null, notes: number][] = [
      [false, null, 0],
      [{ enabled: false, max_attempts: 5 }, null, 0],
      [{}, { maxAttempts: 3, baseDelaySeconds: 1, maxDelaySeconds: 30, jitter: 0.2 }, 0],
      [
        { max_attempts: 99, base_delay_seconds: -1, max_delay_seconds: 9999, jitter: 2 },
        { maxAttempts: 10, baseDelaySeconds: 0, maxDelaySeconds: 3600, jitter: 0.5 },
        4,
      ],
      [{ max_attempts: 0, jitter: -1 }, { maxAttempts: 1, jitter: 0 }, 2],
      [
        { attempts: 5, delaySeconds: 2.5, maxDelaySeconds: 7 },
        { maxAttempts: 5, baseDelaySeconds: 2.5, maxDelaySeconds: 7 },
        0,
      ],
      [{ max_attempts: 'five' }, { maxAttempts: 3 }, 1],
      ['yes', null, 1],
    ]
    for (const [retry, expected, notes] of cases) {
      const { config, problems } = parseSchedule({ every_seconds: 60, retry })
      if (expected === null) t.equal(config.schedule?.retry, null)
      else t.match(config.schedule?.retry, expected, JSON.stringify(retry))
      t.equal(problems.length, notes, JSON.stringify(problems))
    }
  },
)

t.test('[config/function-config.9] home, assets and their other spellings', async t => {
  const homes: [value: unknown, home: unknown][] = [
    ['/list', { route: '/list' }],
    ['list', { route: 'list' }],
    [
      { path: '/a', location: '/b' },
      { route: '/a', redirect: '/b' },
    ],
    [{ function: 'a' }, { route: 'a' }],
    [{ 'home-route': '/a' }, { route: '/a' }],
    [{ url: 'http://x.example/y?z' }, { redirect: 'http://x.example/y?z' }],
    [{}, undefined],
  ]
  for (const [value, home] of homes)
    t.match(configOf({ home: value }).home ?? null, home ?? null, JSON.stringify(value))
  const assets: [value: object, expected: object][] = [
    [
      { directory: './site/', not_found_handling: 'spa' },
      { directory: 'site', notFoundHandling: 'single-page-application' },
    ],
    [
      { directory: 'a/b', not_found_handling: '404', run_worker_first: true },
      { directory: 'a/b', notFoundHandling: '404', runWorkerFirst: true },
    ],
  ]
  for (const [value, expected] of assets) t.match(configOf({ assets: value }).assets, expected)
  for (const directory of ['..', '../x', '/etc', '', '.', 'a/../b', 'a\\b', 5]) {
    const { config, problems } = parse({ assets: { directory } })
    t.equal(config.assets, undefined, String(directory))
    t.equal(problems.length, 1)
  }
  t.match(parse({ assets: { directory: 'x', not_found_handling: 'index' } }).config.assets, { notFoundHandling: '404' })
})

t.test('[config/function-config.10] cors never sends credentials to every origin', async t => {
  const open = parse({ cors: { origins: ['*'], credentials: true } })
  t.equal(open.config.cors?.credentials, false)
  t.match(open.problems, [{ message: /cors\.credentials has no effect with the origin \*/ }])
  t.match(configOf({ cors: { origins: 'https://A.example', credentials: true, headers: ['X-A'], max_age: 5 } }).cors, {
    origins: ['https://a.example'],
    credentials: true,
    headers: ['x-a'],
    maxAgeSeconds: 5,
  })
  t.equal(configOf({ cors: false }).cors, null)
  for (const origin of ['example.com', 'https://x.example/path', 'https://x y', '']) {
    t.equal(parse({ cors: { origins: [origin] } }).config.cors, undefined, origin)
  }
})

t.test('[config/function-config.11] keys without effect and unknown keys are notes', async t => {
  const { config, problems } = parse({
    $schema: 'x',
    strict_fs: true,
    timeout: 5,
    invoke: { adaptor: 'x' },
    __proto: 1,
  })
  t.same(config, EMPTY)
  t.same(
    problems.map(({ code, message }) => `${code} ${message}`),
    [
      `CONFIG_NO_EFFECT ${FILE}: strict_fs has no effect: handlers have the file access of their process`,
      `CONFIG_UNKNOWN_KEY ${FILE}: timeout is not a known key, did you mean timeout_ms?`,
      `CONFIG_UNKNOWN_KEY ${FILE}: invoke.adaptor is not a known key, did you mean adapter?`,
      `CONFIG_UNKNOWN_KEY ${FILE}: __proto is not a known key`,
    ],
  )
})

t.test('[config/function-config.21] a schedule that is not used says why in the config', async t => {
  t.equal(configOf({ schedule: { every_seconds: 60 } }).scheduleProblem, undefined)
  const wrong = parse({ schedule: 5, shared_deps: {} })
  t.same(
    wrong.problems.map(({ code }) => code),
    ['CONFIG_VALUE', 'CONFIG_VALUE'],
  )
  t.match(wrong.config.scheduleProblem, `${FILE}: schedule must be an object, got 5 (number)`)
  t.match(parse({ schedule: {} }).config.scheduleProblem, 'neither every_seconds nor cron')
})
