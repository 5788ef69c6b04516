import t from 'tap'
import { STRANGERS_HEALTH_MS } from '../../lib/control/state-endpoints.ts'
import { createGateway, type GatewayOptions } from '../../lib/index.ts'
import { FakeClock } from '../helpers/clock.ts'
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
      ['GET', '/_fn/catalog', REMOTE, 403],
      ['GET', '/_fn/nothing', REMOTE, 403],
      ['DELETE', '/_fn/catalog', REMOTE, 403],
      ['GET', '/_fn/catalog', { ...REMOTE, headers: { 'x-fn-admin-token': 'right' } }, 200],
      ['GET', '/_fn/catalog', { headers: { 'x-fn-admin-token': 'wrong' } }, 401],
      ['GET', '/_fn/catalog', { headers: { host: 'evil.example' } }, 403],
      ['GET', '/_fn/catalog', { headers: { 'x-forwarded-for': '127.0.0.1' } }, 403],
      ['POST', '/_fn/reload', { headers: { origin: 'http://evil.example' } }, 403],
      ['POST', '/_fn/reload', { headers: { 'sec-fetch-site': 'cross-site' } }, 403],
      ['GET', '/_fn/reload', { headers: { 'sec-fetch-site': 'cross-site' } }, 403],
      ['HEAD', '/_fn/reload', { headers: { 'sec-fetch-site': 'same-origin' } }, 403],
      ['GET', '/_fn/reload', { headers: { 'sec-fetch-site': 'same-origin', 'x-fngw-request': '1' } }, 200],
      // Safari before 16.4, for an image.
      ['GET', '/_fn/reload', { headers: { 'user-agent': 'Mozilla/5.0 (Macintosh)', accept: 'image/*' } }, 403],
      ['GET', '/_fn/reload', { headers: { referer: 'http://evil.example/' } }, 403],
      ['GET', '/_fn/catalog', { headers: { 'user-agent': 'Mozilla/5.0 (Macintosh)' } }, 200],
      ['POST', '/_fn/reload', { headers: { 'content-type': 'text/plain' }, body: '{}' }, 403],
      ['POST', '/_fn/reload', { headers: { 'content-type': 'application/json' }, body: '{}' }, 200],
    ]
    for (const [method, url, extra, status] of cases) {
      const response = await gateway.inject({ method, url, ...extra })
      const name = `${method} ${url} ${JSON.stringify(extra)}`
      t.equal(response.status, status, name)
      t.equal(response.headers['content-type'], 'application/json', name)
      t.equal(response.headers['cache-control'], 'no-store', name)
      if (status >= 400 && method !== 'HEAD') t.type((response.json() as Json).error, 'string', name)
      if (status === 405) t.equal(response.headers.allow, 'GET, HEAD', name)
    }
  },
)

const FORWARDING: readonly (readonly [name: string, value: string])[] = [
  ['X-Forwarded-For', 'unknown'],
  ['X-Forwarded-For', '203.0.113.9, unknown'],
  ['X-Forwarded-For', '_hidden'],
  ['X-Forwarded-For', ''],
  ['X-Forwarded-For', '203.0.113.9'],
  ['X-Forwarded-Host', 'localhost'],
  ['X-Forwarded-Proto', 'https'],
  ['X-Forwarded-Port', '443'],
  ['X-Forwarded-Server', 'proxy'],
  ['Forwarded', 'for=127.0.0.1'],
  ['Via', '1.1 proxy'],
  ['X-Real-IP', '127.0.0.1'],
  ['CF-Connecting-IP', '127.0.0.1'],
  ['True-Client-IP', '127.0.0.1'],
  ['X-Client-IP', '127.0.0.1'],
  ['X-Cluster-Client-IP', '127.0.0.1'],
  ['X-Original-Forwarded-For', '127.0.0.1'],
]

t.test('[control/access.4] a caller that somebody speaks for is local only by an address that can be read', async t => {
  const trusting = (await serve(t, { trustedProxyCidrs: ['127.0.0.1/32'] })).gateway
  const alone = (await serve(t)).gateway
  const ask = async (gateway: typeof alone, headers: Record<string, string>) =>
    (await gateway.inject({ url: '/_fn/catalog', headers: { host: 'localhost', ...headers } })).status
  t.equal(await ask(trusting, {}), 200, 'nobody speaks for it')
  t.equal(await ask(alone, {}), 200, 'nobody speaks for it, no proxies')
  t.equal(await ask(trusting, { 'X-Forwarded-For': '127.0.0.1' }), 200, 'a proxy of this machine and its own client')
  for (const [name, value] of FORWARDING) {
    t.equal(await ask(trusting, { [name]: value }), 403, `${name}: ${value} from a trusted proxy`)
    t.equal(await ask(alone, { [name]: value }), 403, `${name}: ${value} from anything else`)
  }
})

t.test('[control/control-plane.6] the health that strangers see is made now and then, and has a tag', async t => {
  const clock = new FakeClock()
  const { gateway } = await serve(t, { clock, runtimes: ['lua'] })
  const ask = (headers: Record<string, string> = {}) => gateway.inject({ url: '/_fn/health', headers, ...REMOTE })
  const first = await ask()
  t.match(first, { status: 200, headers: { 'cache-control': 'no-cache', etag: /^"[\w-]{22}"$/ } })
  t.match(first.json(), { functions: { summary: { total: 1, warm: 0, cold: 1 } } })
  await gateway.inject('/flag')
  t.ok((await ask()).body.equals(first.body), 'the same for a moment')
  const known = await ask({ 'if-none-match': first.headers.etag! })
  t.match([known.status, known.body.length], [304, 0])
  clock.advance(STRANGERS_HEALTH_MS)
  t.match((await ask({ 'if-none-match': first.headers.etag! })).json(), { functions: { summary: { warm: 1 } } })
  const own = await gateway.inject('/_fn/health')
  t.match(own.json(), { functions: { states: [{ key: String }] } })
  t.notOk('etag' in own.headers)
})

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
