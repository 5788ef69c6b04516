import t from 'tap'
import { createGateway, type GatewayOptions } from '../../lib/index.ts'
import { makeTree } from '../helpers/tree.ts'

type Json = Record<string, unknown>

const TREE = {
  'users/[id].js': 'export const handler = () => 1\n',
  'hello/handler.js': 'export const handler = () => 1\n',
  'hello/fn.config.json': '{ "runtime": "node", "worker_pool": { "max_workers": 3, "max_queue": 5 } }',
  'hello/fn.env.json': '{ "TOKEN": { "value": "planted-secret", "is_secret": true } }',
  'hello/v2/handler.js': 'export const handler = () => 2\n',
  'twice/index.js': 'export const handler = () => 1\n',
  'twice.js': 'export const handler = () => 1\n',
  'flag.lua': 'function handler() return 1 end\n',
}

async function serve(t: import('tap').Test, options: GatewayOptions = {}) {
  const { root, cleanup } = await makeTree(TREE)
  t.teardown(cleanup)
  const gateway = await createGateway({ functionsRoot: root, env: process.env, ...options })
  t.teardown(() => gateway.close())
  return { root, gateway }
}

const REMOTE = { remoteAddress: '203.0.113.9' }

t.test('[control/records.1, control/records.2, control/records.3] health', async t => {
  const { gateway, root } = await serve(t, {
    runtimes: ['node', 'lua', 'php'],
    runtimeDaemons: { node: 2 },
    binaries: { php: '/nonexistent' },
  })
  const { status, json } = await gateway.inject('/_fn/health')
  const body = json() as Json & { functions: { states: Json[] } }
  t.equal(status, 503, 'php was asked for and is not there')
  t.match(body, {
    config_loaded_at: Number,
    defaults: { timeout_ms: 2500, max_concurrency: 20, max_body_bytes: 1048576 },
    functions_root: root,
    runtime_order: ['node', 'lua', 'php'],
    hot_reload: { enabled: false, last_catalog_scan_at: Number },
    storage: { ok: true, problems: [] },
    routing: { mapped_routes: Number, mapped_route_conflicts: 1 },
    runtimes: {
      node: {
        routing: 'round_robin',
        timeout_ms: 2500,
        health: { up: true, reason: 'ok' },
        sockets: [
          { index: 1, uri: /^unix:/, up: true, reason: 'ok' },
          { index: 2, uri: /^unix:/, up: true, reason: 'ok' },
        ],
      },
      lua: { routing: 'single', health: { up: true }, sockets: [{ index: 1, uri: 'inprocess:lua', up: true }] },
      php: { health: { up: false, reason: /\/nonexistent/ } },
    },
  })
  await gateway.inject('/hello')
  const after = (await gateway.inject('/_fn/health')).json() as { functions: { summary: Json; states: Json[] } }
  t.match(after.functions.summary, {
    total: 7,
    warm: 1,
    stale: 0,
    cold: 6,
    pool_enabled: 3,
    pool_active: 0,
    pool_queued: 0,
    pool_queue_drops: 0,
  })
  t.match(
    after.functions.states.find(state => state.key === 'node/hello@default'),
    {
      runtime: 'node',
      name: 'hello',
      version: 'default',
      state: 'warm',
      workers: Number,
      worker_pool: { enabled: true, max_workers: 3, max_queue: 5 },
    },
  )
  t.equal(after.functions.states.length, 7, 'file routes are states too')
  const whole = await serve(t)
  t.equal((await whole.gateway.inject('/_fn/health')).status, 200)
})

t.test('[control/records.4] strangers see no paths and no addresses', async t => {
  const { gateway, root } = await serve(t, { consoleLocalOnly: false })
  for (const url of ['/_fn/health', '/_fn/catalog', '/_fn/reload']) {
    const text = (await gateway.inject({ url, ...REMOTE })).text()
    t.notMatch(text, root, url)
    t.notMatch(text, /unix:|inprocess:|\/tmp\//, url)
    t.match(text, /runtime_order/, url)
  }
})

t.test('[control/records.5, control/records.6, control/records.7] catalog', async t => {
  const { gateway, root } = await serve(t)
  const first = (await gateway.inject('/_fn/catalog')).json() as Json
  t.match(first, { generated_at: Number, functions_root: root, defaults: Object, runtime_order: Array, ignored: Array })
  const routes = first.mapped_routes as Record<string, Json[]>
  t.same(routes['/users/:id'], [
    {
      runtime: 'node',
      name: 'users/[id]',
      fn_name: 'users/[id]',
      version: null,
      methods: ['GET'],
      source: 'file',
      source_rank: 1,
      file: 'users/[id].js',
      origin: 'users/[id].js',
      allow_hosts: [],
      force_url: false,
    },
  ])
  t.match(routes['/hello'], [{ methods: ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'], source: 'config', source_rank: 3 }])
  t.equal((first.mapped_route_conflicts as Record<string, Json[]>)['/twice']!.length, 2)
  t.match(first.warnings, [
    { code: 'DUPLICATE_NAME' },
    { code: 'ROUTE_CONFLICT', path: String, message: String, hint: String },
  ])
  const node = (first.runtimes as Record<string, { functions: Json[] }>).node!
  t.match(
    node.functions.find(fn => fn.name === 'hello'),
    {
      has_default: true,
      versions: ['v2'],
      file: 'hello/handler.js',
      policy: { timeout_ms: 2500 },
      versions_policy: { v2: { timeout_ms: 2500 } },
    },
  )
  t.notMatch(JSON.stringify(first), /planted-secret/)
  await gateway.reload()
  const second = (await gateway.inject('/_fn/catalog')).json() as Json
  for (const key of ['mapped_routes', 'mapped_route_conflicts', 'warnings', 'ignored']) {
    t.equal(JSON.stringify(second[key]), JSON.stringify(first[key]), key)
  }
})
