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

t.test(
  '[control/control-plane.1, control/control-plane.2, control/control-plane.3, control/control-plane.4] paths, methods, callers',
  async t => {
    const { gateway } = await serve(t, { adminToken: 'right' })
    const cases: [method: string, url: string, extra: object, status: number][] = [
      ['GET', '/_fn/health', {}, 200],
      ['HEAD', '/_fn/health', {}, 200],
      ['GET', '//_fn//health/', {}, 200],
      ['GET', '/x/../_fn/health', {}, 200],
      ['GET', '/%5ffn/health', {}, 200],
      ['GET', '/_fn%2Fhealth', {}, 200],
      ['DELETE', '/_fn/health', {}, 405],
      ['GET', '/_fn/catalog', {}, 200],
      ['GET', '/_fn/nothing', {}, 404],
      ['GET', '/_fn', {}, 404],
      ['GET', '/console', {}, 404],
      ['GET', '/console/scheduler', {}, 404],
      ['GET', '/_fn/health', REMOTE, 200],
      ['GET', '/_fn/catalog', REMOTE, 403],
      ['GET', '/_fn/nothing', REMOTE, 403],
      ['DELETE', '/_fn/catalog', REMOTE, 403],
      ['GET', '/_fn/catalog', { ...REMOTE, headers: { 'x-fn-admin-token': 'right' } }, 200],
      ['GET', '/_fn/catalog', { headers: { 'x-fn-admin-token': 'wrong' } }, 401],
      ['GET', '/_fn/catalog', { headers: { host: 'evil.example' } }, 403],
      ['GET', '/_fn/catalog', { headers: { 'x-forwarded-for': '127.0.0.1' } }, 403],
      ['POST', '/_fn/reload', { headers: { origin: 'http://evil.example' } }, 403],
      ['POST', '/_fn/reload', { headers: { 'sec-fetch-site': 'cross-site' } }, 403],
    ]
    for (const [method, url, extra, status] of cases) {
      const response = await gateway.inject({ method, url, ...extra })
      const name = `${method} ${url} ${JSON.stringify(extra)}`
      t.equal(response.status, status, name)
      t.equal(response.headers['content-type'], 'application/json', name)
      t.equal(response.headers['cache-control'], 'no-store', name)
      if (status >= 400) t.type((response.json() as Json).error, 'string', name)
      if (status === 405) t.equal(response.headers.allow, 'GET, HEAD', name)
    }
  },
)

t.test('[control/control-plane.5, control/records.8] reload answers with counts', async t => {
  const { gateway, root } = await serve(t)
  for (const method of ['POST', 'GET']) {
    const { status, json } = await gateway.inject({ method, url: '/_fn/reload' })
    t.equal(status, 200)
    t.match(json(), { ok: true, functions_root: root, functions: 7, routes: Number, conflicts: 1, warnings: 2 })
    t.match(json(), {
      reloaded_at: Number,
      catalog_generated_at: Number,
      runtime_order: ['python', 'node', 'php', 'lua'],
    })
  }
})
