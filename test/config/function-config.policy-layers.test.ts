import t from 'tap'
import { type FunctionConfig, mergePolicies, parseFunctionConfigValue } from '../../lib/config/function-config.ts'
import type { Warning } from '../../lib/core/errors.ts'
import { METHODS } from '../../lib/core/identity.ts'

/** A config that has nothing wrong. */
function configOf(value: unknown): FunctionConfig {
  const { value: config, warnings: problems } = parseFunctionConfigValue(value, 'users/fn.config.json')
  t.notOk(
    problems.some(({ code }) => code === 'CONFIG_VALUE'),
    JSON.stringify(value),
  )
  return config
}

const DEFAULTS = {
  defaultTimeoutMs: 2500,
  defaultMaxConcurrency: 20,
  defaultQueue: { maxQueue: 500, timeoutMs: 5000, maxWaitMs: 0 },
  defaultMaxBodyBytes: 1_048_576,
}

t.test('[config/function-config.12] without any config a policy has the defaults', async t => {
  t.same(mergePolicies([null, null], DEFAULTS, { kind: 'function' }), {
    timeoutMs: 2500,
    maxConcurrency: 20,
    defaultQueue: { maxQueue: 500, timeoutMs: 5000, maxWaitMs: 0 },
    maxBodyBytes: 1_048_576,
    methods: ['GET'],
    allowHosts: [],
    handler: null,
    adapter: 'native',
    adapterName: 'native',
    workerPool: null,
    keepWarm: null,
    edge: null,
    schedule: null,
    scheduleProblem: null,
    cors: null,
    configProblem: null,
    sharedDeps: [],
    allowScripts: [],
    includeDebugHeaders: false,
    group: null,
    isPrivate: false,
    validate: false,
    summary: null,
    exampleQuery: null,
    exampleBody: null,
    exampleContentType: null,
  })
})

const ROOT = {
  timeout_ms: 1000,
  max_concurrency: 7,
  group: 'root',
  invoke: {
    allow_hosts: ['root.example'],
    validate: true,
    methods: ['POST'],
    handler: 'rooted',
    adapter: 'lambda',
    summary: 'Root',
  },
  response: { include_debug_headers: true },
  worker_pool: { max_workers: 3, max_queue: 9 },
  edge: { allow_private: true },
  cors: { origins: ['*'] },
  schedule: { every_seconds: 5 },
  keep_warm: {},
  shared_deps: ['base'],
}

t.test(
  '[config/function-config.13] the nearest folder wins; invoke and response key by key, other blocks whole',
  async t => {
    const near = { timeout_ms: 2000, invoke: { handler: 'near' }, worker_pool: { max_queue: 1 } }
    const policy = mergePolicies([configOf(ROOT), null, configOf(near)], DEFAULTS, { kind: 'file' })
    t.match(policy, {
      timeoutMs: 2000,
      maxConcurrency: 7,
      maxBodyBytes: 1_048_576,
      allowHosts: ['root.example'],
      validate: true,
      includeDebugHeaders: true,
      group: 'root',
      edge: { allowPrivate: true },
      cors: { origins: ['*'] },
      workerPool: { maxWorkers: 7, maxQueue: 1 },
    })
    t.match(mergePolicies([configOf(ROOT), configOf({ invoke: { validate: false } })], DEFAULTS, { kind: 'file' }), {
      validate: false,
    })
    t.same(
      mergePolicies([configOf(ROOT), configOf({ cors: false, invoke: { allow_hosts: [] } })], DEFAULTS, {
        kind: 'file',
      }).cors,
      null,
    )
  },
)

t.test(
  '[config/function-config.14] callable, adapter, packs, methods, schedule and texts are not inherited from parent folders',
  async t => {
    const root = configOf(ROOT)
    for (const kind of ['file', 'function', 'version'] as const) {
      const layers = kind === 'version' ? [root, null, null] : [root, null]
      t.match(mergePolicies(layers, DEFAULTS, { kind }), {
        methods: ['GET'],
        handler: null,
        adapter: 'native',
        sharedDeps: [],
        schedule: null,
        keepWarm: null,
        summary: null,
      })
    }
    t.match(
      mergePolicies([null, root], DEFAULTS, { kind: 'file' }),
      {
        methods: ['POST'],
        handler: 'rooted',
        adapter: 'cloud-lambda',
        sharedDeps: ['base'],
        schedule: { everySeconds: 5 },
        keepWarm: { pingEverySeconds: 45 },
        summary: 'Root',
      },
      'its own folder',
    )
  },
)

t.test(
  '[config/function-config.15] a version has what its function has, but not its schedule and keep_warm',
  async t => {
    const policy = mergePolicies([null, configOf(ROOT), configOf({ invoke: { methods: ['PUT'] } })], DEFAULTS, {
      kind: 'version',
    })
    t.match(policy, {
      methods: ['PUT'],
      handler: 'rooted',
      sharedDeps: ['base'],
      timeoutMs: 1000,
      schedule: null,
      keepWarm: null,
    })
    t.same(mergePolicies([configOf(ROOT), null], DEFAULTS, { kind: 'version' }).methods, ['POST'])
    const own = configOf({ schedule: { cron: '@daily' } })
    t.equal(mergePolicies([configOf(ROOT), own], DEFAULTS, { kind: 'version' }).schedule?.cron, '@daily')
  },
)

t.test('[config/function-config.16] default methods', async t => {
  const post = configOf({ invoke: { methods: ['POST'] } })
  const none = configOf({ timeout_ms: 5 })
  const cases: [
    name: string,
    layers: (FunctionConfig | null)[],
    target: Parameters<typeof mergePolicies>[2],
    methods: readonly string[],
  ][] = [
    ['file name', [post], { kind: 'file', methods: ['PUT'] }, ['PUT']],
    ['file in a folder with methods', [post], { kind: 'file' }, ['POST']],
    ['file below such a folder', [post, null], { kind: 'file' }, ['GET']],
    ['file with a policy config', [none], { kind: 'file' }, ['GET']],
    ['function without config', [none, null], { kind: 'function' }, ['GET']],
    ['function with a config', [none], { kind: 'function' }, METHODS],
    ['function with methods', [post], { kind: 'function' }, ['POST']],
    ['version of a function with a config', [none, null], { kind: 'version' }, METHODS],
  ]
  for (const [name, layers, target, methods] of cases)
    t.same(mergePolicies(layers, DEFAULTS, target).methods, methods, name)
})

t.test('[config/function-config.17] worker_pool defaults', async t => {
  const pool = (value: object, warnings: Warning[] = []) =>
    mergePolicies([configOf(value)], DEFAULTS, { kind: 'function', label: 'a/fn.config.json', warnings }).workerPool
  t.same(pool({ worker_pool: {} }), {
    enabled: true,
    minWarm: 0,
    maxWorkers: 20,
    maxQueue: 0,
    queueTimeoutMs: 0,
    queuePollMs: 20,
    idleTtlSeconds: 300,
    overflowStatus: 429,
  })
  t.equal(pool({ max_concurrency: 0, worker_pool: { min_warm: 50 } })?.minWarm, 50, 'no limit, no cap')
  const warnings: Warning[] = []
  t.equal(pool({ max_concurrency: 4, worker_pool: { min_warm: 5 } }, warnings)?.minWarm, 4)
  t.match(warnings, [{ code: 'CONFIG_CLAMPED', path: 'a/fn.config.json', message: /min_warm is 5, 4 is used/ }])
})
