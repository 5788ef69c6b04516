import t from 'tap'
import { CONFIG_FIELDS, INVOKE_FIELDS } from '../../lib/config/function-config-fields.ts'
import { changeConfig } from '../../lib/config/config-change.ts'
import { parseFunctionConfig } from '../../lib/config/function-config.ts'

const change = (before: unknown, body: Record<string, unknown>) => {
  const text = before === null || typeof before === 'string' ? before : JSON.stringify(before)
  const result = changeConfig(text as string | null, body, 'a/fn.config.json')
  return result.ok ? { ...result, value: JSON.parse(result.text) as unknown } : { ...result, value: null }
}

/** Every field of the page with a value that is right: all of them can be set. */
const EVERY: Record<string, unknown> = {
  $schema: 'x',
  runtime: 'node',
  name: 'a/b',
  version: '1',
  entrypoint: 'main.js',
  group: 'g',
  timeout_ms: 1,
  max_concurrency: 0,
  max_body_bytes: 1,
  invoke: {
    handler: 'run',
    adapter: 'native',
    routes: ['/x'],
    route: '/y',
    methods: ['GET'],
    allow_hosts: ['a.b'],
    'force-url': true,
    summary: 's',
    query: { a: 1 },
    body: [1],
    content_type: 'text/plain',
    validate: true,
    default_method: 'GET',
    home: '/x',
    'home-route': '/x',
  },
  private: true,
  response: { include_debug_headers: true },
  home: { route: '/x' },
  assets: { directory: 'public' },
  worker_pool: { max_workers: 2, min_warm: 1 },
  keep_warm: { enabled: true },
  edge: { base_url: 'https://a.b' },
  schedule: { every_seconds: 5 },
  shared_deps: ['p'],
  allow_scripts: ['esbuild'],
  cors: { origins: ['*'] },
}

t.test(
  '[control/function-config.1] every documented field is taken, merged into what is there, and taken out by null',
  t => {
    const nested = ['methods', 'routes', 'force-url', 'include_debug_headers']
    t.same([...Object.keys(EVERY), ...nested].sort(), Object.keys(CONFIG_FIELDS).sort(), 'none is left out')
    t.same(Object.keys(EVERY.invoke as object).sort(), Object.keys(INVOKE_FIELDS).sort())
    const all = change({ mine: 1 }, EVERY)
    t.same(all.value, { mine: 1, ...EVERY })
    t.same(
      parseFunctionConfig(JSON.stringify(all.value), '').warnings.filter(({ code }) => code === 'CONFIG_VALUE'),
      [],
    )
    for (const key of Object.keys(EVERY)) {
      t.same(change(null, { [key]: EVERY[key] }).value, { [key]: EVERY[key] }, key)
      t.notOk(Object.hasOwn(change(EVERY, { [key]: null }).value as object, key), `${key}: null`)
    }
    t.same(change({ a: 1, worker_pool: { max_workers: 2 } }, { worker_pool: { max_queue: 1 } }).value, {
      a: 1,
      worker_pool: { max_queue: 1 },
    })
    const invoke = { handler: 'run', methods: ['GET'] }
    t.same(change({ invoke }, { invoke: { handler: null, summary: 's' } }).value, {
      invoke: { methods: ['GET'], summary: 's' },
    })
    t.same(change({ invoke: { handler: 'run' } }, { invoke: { handler: null } }).value, {}, 'an empty block goes')
    t.end()
  },
)

t.test(
  '[control/function-config.2] fields of the top level and their nested ones are one field, and invoke wins',
  t => {
    const get = ['GET']
    const post = ['POST']
    t.same(change(null, { methods: get }).value, { invoke: { methods: get } })
    t.same(change(null, { methods: get, invoke: { methods: post } }).value, { invoke: { methods: post } })
    t.same(change({ methods: get }, { invoke: { methods: post } }).value, { invoke: { methods: post } })
    t.same(change({ invoke: { methods: get } }, { methods: post }).value, { invoke: { methods: post } })
    t.same(change({ methods: get, forceUrl: true }, { methods: null, 'force-url': null }).value, {})
    t.same(change({ include_debug_headers: true }, { response: { include_debug_headers: false } }).value, {
      response: { include_debug_headers: false },
    })
    t.same(change({ invoke: { route: '/a' } }, { routes: ['/b'] }).value, { invoke: { routes: ['/b'] } })
    t.same(
      change({ sharedDeps: ['a'] }, { deps: ['b'] }).value,
      { shared_deps: ['b'] },
      'other spellings are one field',
    )
    t.end()
  },
)

t.test('[control/function-config.3] unknown fields are told and not written; what is clamped or unused is told', t => {
  const result = change({ kept: 1 }, { timeout_ms: 5, timeout: 1, invoke: { metods: ['GET'] }, __proto__x: 1 })
  t.same(result.value, { kept: 1, timeout_ms: 5 })
  t.match(result, { ok: true, warnings: [/timeout is not a known key, did you mean/, /invoke.metods/, /__proto__x/] })
  const proto = change(null, JSON.parse('{"__proto__": {"timeout_ms": 1}, "group": "a"}') as Record<string, unknown>)
  t.same(proto.value, { group: 'a' })
  t.end()
})

t.test('[control/function-config.4] a bad value names field, rule and value, and nothing is changed', t => {
  const cases: [body: Record<string, unknown>, problem: RegExp][] = [
    [
      { timeout_ms: 'x' },
      /^body: timeout_ms must be an integer of 1 to 86400000|^body: timeout_ms must be .*got "x" \(string\)$/,
    ],
    [{ invoke: { methods: ['GET', 'BREW'] } }, /^body: invoke.methods\[1\] must be one of GET, .*"BREW"/],
    [{ invoke: { routes: ['/_fn/x'] } }, /^body: invoke.routes must be a path .* not below \/_fn/],
    [{ routes: ['/../x'] }, /^body: routes must be/],
    [{ worker_pool: { max_workers: 0 } }, /^body: worker_pool.max_workers must be/],
    [{ schedule: { cron: 5 } }, /^body: schedule.cron must be/],
    [{ schedule: {} }, /^body: schedule is not used/],
    [{ invoke: 5 }, /^body: invoke must be an object/],
    [{ invoke: [] }, /^body: invoke must be an object/],
    [{ entrypoint: '../x.js' }, /^body: entrypoint must be/],
    [{ name: '../x' }, /^body: name must be/],
    [{ cors: { origins: ['*'], credentials: true } }, /credentials/],
  ]
  for (const [body, problem] of cases) {
    const result = change({ group: 'a' }, body)
    t.match(result, { ok: false, problems: [problem] }, JSON.stringify(body))
  }
  t.match(change({ timeout_ms: 'old' }, { group: 'a' }), {
    ok: false,
    problems: [/^a\/fn.config.json: timeout_ms must/],
  })
  t.match(change({ timeout_ms: 'old' }, { timeout_ms: 5 }), { ok: true }, 'which is how it is mended')
  t.end()
})
