import t, { type Test } from 'tap'
import { createGateway, type Gateway } from '../../lib/index.ts'
import { type RedisBed, startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'
import { makeTree } from '../helpers/tree.ts'

const TREE = {
  'hello/handler.js': 'exports.handler = e => ({ trigger: e.context.trigger?.type ?? null })',
}

async function start(t: Test, redis: RedisBed, more: object = {}): Promise<Gateway> {
  const tree = makeTree(TREE)
  t.teardown(tree.cleanup)
  const gateway = await createGateway({
    functionsRoot: tree.root,
    runtimes: ['node'],
    storeUrl: redis.url,
    adminToken: 'a'.repeat(32),
    consoleWriteEnabled: true,
    ...more,
  })
  t.teardown(() => gateway.close())
  return gateway
}

async function ask(gateway: Gateway, method: string, url: string, body?: unknown) {
  const headers = { authorization: `Bearer ${'a'.repeat(32)}`, 'content-type': 'application/json' }
  const answer = await gateway.inject({
    method,
    url,
    headers,
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  return { status: answer.status, body: JSON.parse(String(answer.body)) }
}

t.test(
  '[fleet/fleet.5] without the store functions answer, and a required one makes a gateway not ready',
  { skip: WITHOUT_REDIS },
  async t => {
    const server = await startRedis(t)
    const strict = await start(t, server, { storeRequired: true })
    const mild = await start(t, server)
    t.match((await ask(mild, 'GET', '/_fn/fleet')).body, { store: 'up', gateways: [{}, {}] })
    await server.end()
    t.equal((await ask(mild, 'GET', '/hello')).status, 200)
    const refused = await ask(mild, 'POST', '/_fn/jobs', { name: 'hello' })
    t.match(refused, { status: 503, body: { error: /^the store does not answer: / } })
    t.match((await ask(mild, 'GET', '/_fn/health')).body, { store: 'down' })
    t.match(await ask(mild, 'GET', '/_fn/health?ready=1'), { status: 200 })
    t.match(await ask(strict, 'GET', '/_fn/health?ready=1'), {
      status: 503,
      body: { ready: false, reasons: [/^the store is away: /] },
    })
    const late = await start(t, server, { storeRequired: false })
    t.match((await ask(late, 'GET', '/_fn/fleet')).body, { store: 'down' })
  },
)
