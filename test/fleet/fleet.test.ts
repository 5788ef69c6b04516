import t, { type Test } from 'tap'
import { createGateway, type Gateway } from '../../lib/index.ts'
import { type RedisBed, startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'
import { makeTree } from '../helpers/tree.ts'

const TREE = {
  'hello/handler.js': 'exports.handler = e => ({ trigger: e.context.trigger?.type ?? null })',
  'tick/handler.js': 'exports.handler = () => ({})',
  'tick/fn.config.json': { json: { schedule: { enabled: true, every_seconds: 3600, method: 'GET' } } },
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

t.test('[fleet/fleet.1] without the server a gateway does not start, unless it may', async t => {
  await t.rejects(createGateway({ functionsRoot: makeTree(TREE).root, storeUrl: 'redis://127.0.0.1:1' }), {
    message: /the store redis:\/\/127\.0\.0\.1:1 cannot be used/,
  })
})

t.test('[fleet/fleet.2] gateways of a fleet', { skip: WITHOUT_REDIS }, async t => {
  const redis = await startRedis(t)
  const a = await start(t, redis)
  const b = await start(t, redis)

  await t.test('[fleet/fleet.2] a job of one is done, and is seen at both', async t => {
    const done = new Promise<void>(resolve => b.on('job', ({ state }) => state === 'done' && resolve()))
    const made = await ask(a, 'POST', '/_fn/jobs', { name: 'hello' })
    t.equal(made.status, 201)
    await done
    t.match((await ask(b, 'GET', `/_fn/jobs/${made.body.id}/result`)).body, { status: 200, body: '{"trigger":"job"}' })
    t.match((await ask(a, 'GET', '/_fn/jobs')).body, { jobs: [{ id: made.body.id, status: 'done' }] })
  })

  await t.test('[fleet/fleet.3] one runs the schedules, the other says which', async t => {
    const warnings = [a, b].map(one => one.warnings.find(({ code }) => code === 'SCHEDULES_ELSEWHERE'))
    t.match(warnings, [undefined, { message: /another gateway of this root runs them \(gateway .*\)/ }])
  })

  await t.test('[fleet/schedule-lease.5] the other one shows schedules and refuses to run them', async t => {
    const { body } = await ask(b, 'GET', '/_fn/schedules')
    t.match(body.schedules, [{ name: 'tick', next_at: String, last: null }])
    const run = () => ask(b, 'POST', '/_fn/schedules/run', { name: 'tick' })
    t.match(await run(), { status: 409, body: { error: /another gateway runs the schedules of this root \(gateway / } })
    t.match(await ask(a, 'POST', '/_fn/schedules/run', { name: 'tick' }), { status: 200 })
  })

  await t.test('[fleet/fleet.4] the fleet and its store are shown', async t => {
    const { body } = await ask(b, 'GET', '/_fn/fleet')
    t.match(body, { fleet: true, store: 'up', gateways: [{ state: /^(starting|ready)$/ }, {}] })
    t.equal(body.gateways.length, 2)
    t.match(body.gateways[0], { pid: process.pid, running_calls: 0, seen_ms_ago: Number })
    t.match((await ask(a, 'GET', '/_fn/health')).body, { store: 'up' })
    const alone = await createGateway({ functionsRoot: makeTree(TREE).root, runtimes: ['node'] })
    t.teardown(() => alone.close())
    const { body: own } = await alone.inject('/_fn/fleet').then(answer => ({ body: JSON.parse(String(answer.body)) }))
    t.same(own, { fleet: false, gateways: [] })
    t.notOk('store' in (alone.health() as object))
  })
})
