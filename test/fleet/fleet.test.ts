import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { createGateway } from '../../lib/index.ts'
import { asNobody } from '../helpers/as-nobody.ts'
import { askAsAdmin, askAsUser, logIn, startMember } from '../helpers/fleet-bed.ts'
import { until } from '../helpers/worker-client.ts'
import { startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'

t.test('[fleet/fleet.1] without the server a gateway does not start, unless it may', async t => {
  await t.rejects(createGateway({ functionsRoot: t.testdir({}), storeUrl: 'redis://127.0.0.1:1' }), {
    message: /the store redis:\/\/127\.0\.0\.1:1 cannot be used/,
  })
})

t.test('[fleet/fleet.2] gateways of a fleet', { skip: WITHOUT_REDIS }, async t => {
  const redis = await startRedis(t)
  const a = await startMember(t, redis, { uiEnabled: true, consoleLoginApi: true })
  const b = await startMember(t, redis, { uiEnabled: true, consoleLoginApi: true })

  await t.test('[fleet/fleet.2] a job of one is done, and is seen at both', async t => {
    const done = new Promise<void>(resolve => b.on('job', ({ state }) => state === 'done' && resolve()))
    const made = await askAsAdmin(a, 'POST', '/_fn/jobs', { name: 'hello' })
    t.equal(made.status, 201)
    await done
    t.match((await askAsAdmin(b, 'GET', `/_fn/jobs/${made.body.id}/result`)).body, {
      status: 200,
      body: '{"trigger":"job"}',
    })
    t.match((await askAsAdmin(a, 'GET', '/_fn/jobs')).body, { jobs: [{ id: made.body.id, status: 'done' }] })
  })

  await t.test('[fleet/fleet.3] one runs the schedules, and that is no warning at the other', async t => {
    t.same(
      [a, b].map(({ warnings }) => warnings),
      [[], []],
    )
  })

  await t.test('[fleet/schedule-lease.5] the other one shows schedules, and has the first one run them', async t => {
    const { body } = await askAsAdmin(b, 'GET', '/_fn/schedules')
    t.match(body.schedules, [{ name: 'tick', next_at: String, last: null }])
    const runs: string[] = []
    for (const [name, gateway] of Object.entries({ a, b })) gateway.on('schedule', () => void runs.push(name))
    const run = (gateway: typeof a, name: string) => askAsAdmin(gateway, 'POST', '/_fn/schedules/run', { name })
    const answer = await run(b, 'tick')
    t.match(answer, { status: 200, body: { status: 200, error: '', schedule: { name: 'tick', last_status: 200 } } })
    t.match(await run(a, 'tick'), { status: 200 })
    t.same(runs, ['a', 'a'])
    const after = await askAsAdmin(b, 'GET', '/_fn/schedules')
    t.match(after.body.schedules, [{ name: 'tick', last: Number, last_status: 200, last_error: '' }])
    t.match(await run(b, 'hello'), { status: 404, body: { error: /has no schedule/ } })
  })

  await t.test('[fleet/fleet-runs.10] a gateway with schedules switched off takes no runs', async t => {
    const off = await startMember(t, redis, { storePrefix: 'off', schedulerEnabled: false })
    const run = () => askAsAdmin(off, 'POST', '/_fn/schedules/run', { name: 'tick' })
    t.match(await run(), { status: 200, body: { status: 200 } }, 'where all have, it runs at the one that is asked')
    const client = redis.client()
    t.same(await client.keys('{off}:runs:*'), [])
    await client.hset('{off}:gateways', 'x', JSON.stringify({ canLead: true }))
    await client.zadd('{off}:gateways:seen', Date.now(), 'x')
    await until(async () => (await run()).status === 503)
    const on = await startMember(t, redis, { storePrefix: 'off' })
    // It may lead before its subscription is there.
    await until(async () => (await run()).status === 200)
    await on.close()
  })

  await t.test('[fleet/fleet.4] the fleet and its store are shown', async t => {
    const { body } = await askAsAdmin(b, 'GET', '/_fn/fleet')
    t.match(body, { fleet: true, store: 'up', gateways: [{ state: /^(starting|ready)$/ }, {}] })
    t.equal(body.gateways.length, 2)
    t.match(body.gateways[0], {
      pid: process.pid,
      version: String,
      uptime_seconds: Number,
      load_average: Number,
      cpus: Number,
      running_calls: 0,
      queued_calls: 0,
      seen_ms_ago: Number,
    })
    t.match((await askAsAdmin(a, 'GET', '/_fn/health')).body, { store: 'up' })
    const alone = await createGateway({ functionsRoot: t.testdir({}), runtimes: ['node'] })
    t.teardown(() => alone.close())
    const { body: own } = await alone.inject('/_fn/fleet').then(answer => ({ body: JSON.parse(String(answer.body)) }))
    t.same(own, { fleet: false, gateways: [] })
    t.notOk('store' in (alone.health() as object))
  })

  await t.test(
    '[fleet/fleet.7, control/ui-state.10] a login and the state of the console are those of the fleet',
    async t => {
      const [cookie, elsewhere] = [await logIn(a), await logIn(b)]
      t.match(await askAsUser(b, cookie, 'GET', '/_fn/ui-state'), { status: 200, body: { current_user: 'admin' } })
      const saved = { store: { try: ['é'] } }
      t.equal((await askAsUser(a, cookie, 'PATCH', '/_fn/ui-state', saved)).status, 200)
      t.match((await askAsUser(b, elsewhere, 'GET', '/_fn/ui-state')).body, saved)
      // A gateway may be cut off from the others, so each one has its own switches and says so.
      const { body: fleet } = await askAsUser(a, cookie, 'GET', '/_fn/fleet')
      const changed = await askAsUser(a, cookie, 'PATCH', '/_fn/ui-state', { write_enabled: false })
      t.match(changed.body, { write_enabled: false, gateway: fleet.id, warnings: [new RegExp(` ${fleet.id} only`)] })
      t.match((await askAsUser(b, elsewhere, 'GET', '/_fn/ui-state')).body, { write_enabled: true, gateway: /./ })
      t.match((await askAsUser(a, cookie, 'DELETE', '/_fn/ui-state')).body, { warnings: [/keep theirs$/] })
      t.equal((await askAsUser(a, cookie, 'PATCH', '/_fn/ui-state', saved)).body.warnings.length, 0)
      const [id] = /[\w-]{43}$/.exec(cookie)!
      const client = redis.client()
      const kept = await client.hgetall('{fngw}:sessions:of')
      t.equal(Object.keys(kept).length, 2)
      t.notMatch(JSON.stringify(kept), id, 'the id itself is in no key and no value')
      t.equal((await askAsUser(b, cookie, 'POST', '/_fn/logout?everywhere=1')).status, 200)
      for (const one of [cookie, elsewhere]) t.equal((await askAsUser(a, one, 'GET', '/_fn/ui-state')).status, 401)
    },
  )

  await t.test('[fleet/fleet.6] equal trees are one release, a gateway of another one is a rollout', async t => {
    const { body: before } = await askAsAdmin(b, 'GET', '/_fn/fleet')
    t.match(before, { rollout: false, release: /^[0-9a-f]{12}$/, releases: [{ release: before.release, gateways: 2 }] })
    t.match((await askAsAdmin(a, 'GET', '/_fn/health')).body, { release: before.release })
    // As a function may write them.
    for (const name of ['data.txt', 'package-lock.json']) writeFileSync(join(a.settings.functionsRoot, name), '{}')
    t.match((await askAsAdmin(a, 'POST', '/_fn/reload')).body.fleet, { gateways: 2, in_force: 2, missing: [] })
    t.match((await askAsAdmin(a, 'GET', '/_fn/fleet')).body, { rollout: false, release: before.release })
    const c = await startMember(t, redis, { release: 'v2' })
    const { body } = await askAsAdmin(c, 'GET', '/_fn/fleet')
    t.match(body, {
      rollout: true,
      release: 'v2',
      releases: [
        { release: 'v2', gateways: 1 },
        { release: before.release, gateways: 2 },
      ],
    })
    t.ok(body.releases[0].since > body.releases[1].since)
    t.same(body.gateways.map(({ release }: { release: string }) => release).sort(), [
      before.release,
      before.release,
      'v2',
    ])
  })

  await t.test(
    '[fleet/fleet.9] a change at one gateway is in force at all that share its folder, one of a read-only folder is refused',
    async t => {
      const { functionsRoot } = a.settings
      const shares = { functionsRoot, hotReload: false }
      const [c, d] = [await startMember(t, redis, shares), await startMember(t, redis, shares)]
      const idOf = async (gateway: typeof a) => (await askAsAdmin(gateway, 'GET', '/_fn/fleet')).body.id as string
      const hello = async (gateway: typeof a) => (await askAsAdmin(gateway, 'GET', '/hello')).body
      t.same(await hello(d), { trigger: null })
      const put = (code: string) => askAsAdmin(c, 'PUT', '/_fn/function-code?name=hello', { code })
      const changed = await put('exports.handler = () => ({ now: 1 })')
      // Gateway b has another tree, without the change.
      t.match(changed, { status: 200, body: { fleet: { gateways: 4, in_force: 3, missing: [await idOf(b)] } } })
      t.same([await hello(d), await hello(a)], [{ now: 1 }, { now: 1 }])
      t.match(await askAsAdmin(d, 'POST', '/_fn/function?name=more&runtime=node', {}), {
        status: 201,
        body: { fleet: { in_force: 3 } },
      })
      t.equal((await askAsAdmin(a, 'GET', '/more')).status, 200)
      for (const [method, url, body] of [
        ['PUT', '/_fn/function-env?name=more', { KEY: 'x' }],
        ['PUT', '/_fn/function-config?name=more', { timeout_ms: 1000 }],
        ['DELETE', '/_fn/function?name=more&runtime=node', undefined],
        ['POST', '/_fn/reload', undefined],
      ] as const)
        t.match(
          await askAsAdmin(a, method, url, body),
          { status: 200, body: { fleet: { gateways: 4, in_force: 3 } } },
          url,
        )
      t.equal((await askAsAdmin(d, 'GET', '/more')).status, 404)
      t.equal((await put('exports.handler = {')).body.fleet.in_force, 3, 'also one that cannot be loaded')
      const refused = await askAsAdmin(a, 'PUT', '/_fn/function-config?name=tick', { timeout_ms: 'soon' })
      t.equal(refused.status, 400)
      t.notOk('fleet' in refused.body)
      const last = () => redis.client().get('{fngw}:change')
      const before = await last()
      t.match(before, /^\d+$/)
      // For everyone but root, who may write everywhere.
      for (const folder of [functionsRoot, join(functionsRoot, 'tick')]) chmodSync(folder, 0o555)
      await asNobody(async () => {
        for (const [method, url, body] of [
          ['PUT', '/_fn/function-code?name=tick', { code: 'exports.handler = () => 1' }],
          ['PUT', '/_fn/function-config?name=tick', { timeout_ms: 1000 }],
          ['PUT', '/_fn/function-env?name=tick', { KEY: 'x' }],
          ['POST', '/_fn/function?name=late&runtime=node', {}],
          ['DELETE', '/_fn/function?name=tick&runtime=node', undefined],
        ] as const) {
          const answer = await askAsAdmin(c, method, url, body)
          t.match(answer, { status: 403, body: { error: /permission denied/ } }, url)
          t.notOk('fleet' in answer.body, url)
        }
      })
      t.equal(await last(), before, 'nothing was announced')
    },
  )

  await t.test(
    '[fleet/members.11, observe/history-report.6, observe/history-report.7] the histories of gateways are summed',
    async t => {
      const history = { storePrefix: 'history', uiEnabled: true }
      const e = await startMember(t, redis, { ...history, uiEnabled: false })
      const [c, d] = [await startMember(t, redis, history), await startMember(t, redis, history)]
      for (const [gateway, count] of [
        [c, 2],
        [d, 3],
        [e, 5],
      ] as const)
        for (let i = 0; i < count; i++) await gateway.inject('/hello')
      const sumOf = async (gateway: typeof a) => {
        const { body } = await askAsAdmin(gateway, 'GET', '/_fn/metrics?format=json&scope=fleet')
        return {
          ...body.fleet,
          requests: body.totals.requests,
          calls: body.functions.map((fn: { requests: number }) => fn.requests),
        }
      }
      const idOf = async (gateway: typeof a) => (await askAsAdmin(gateway, 'GET', '/_fn/fleet')).body.id as string
      const off = [{ id: await idOf(e), problem: 'its console is off, or it has another version of fngw' }]
      t.same(await sumOf(d), { id: await idOf(d), gateways: 2, missing: off, requests: 5, calls: [5] })

      // As a gateway of another version that says it has the format, and a program that forges a reply.
      const client = redis.client()
      const forged = JSON.stringify({ historyFormat: 1, state: 'ready' })
      const listener = redis.client()
      await listener.subscribe('{history}:to:forged')
      listener.on('message', (_channel, text) => {
        const { from, request } = JSON.parse(text) as Record<string, string>
        void client.publish(`{history}:to:${from}`, JSON.stringify({ request, reply: { steps: 'x' } }))
      })
      await client.hset('{history}:gateways', 'forged', forged, 'nobody', forged)
      await client.zadd('{history}:gateways:seen', Date.now(), 'forged', Date.now(), 'nobody')
      let sum = await sumOf(d)
      while (sum.missing.length < 3) sum = await sumOf(d)
      t.match(sum, { gateways: 2, requests: 5 })
      t.match(sum.missing, [
        { id: 'forged', problem: 'its report has another form' },
        { id: 'nobody', problem: 'it cannot be reached' },
        ...off,
      ])
      await c.close()
      t.match(await sumOf(d), { gateways: 1, requests: 3 }, 'the numbers of one that ended are gone')
    },
  )
})
