import t, { type Test } from 'tap'
import { toRunId } from '../../lib/fleet/fleet-runs.ts'
import { LEASE_MS, ScheduleLease } from '../../lib/fleet/schedule-lease.ts'
import { Store } from '../../lib/fleet/fleet-store.ts'
import { NEW_STATE, type ScheduleState } from '../../lib/scheduler/schedule-store.ts'
import { ScheduleRunner } from '../../lib/scheduler/schedule-runner.ts'
import { Schedule } from '../../lib/scheduler/schedule.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { startLink } from '../helpers/link.ts'
import { until } from '../helpers/worker-client.ts'
import { type RedisBed, startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'

const STATE: ScheduleState = {
  ...NEW_STATE,
  rule: 'every 60 UTC',
  next: 1_700_000_040_000,
  doneUpTo: 1_699_999_980_000,
}

async function gateway(t: Test, redis: RedisBed, id: string, prefix: string) {
  const store = await Store.open({ url: redis.url, prefix, isRequiredAtStart: true, onLog: () => {} })
  const clock = new FakeClock()
  const rivals = { hasNewer: false, hasOlder: false }
  const lease = new ScheduleLease({ store, clock, id, rivals: () => rivals })
  let losses = 0
  lease.onLost = () => losses++
  t.teardown(async () => {
    await lease.close()
    store.close()
  })
  return { store, clock, lease, rivals, losses: () => losses }
}

async function untilAnswered(store: Store): Promise<void> {
  for (;;) if (await store.ask(client => client.ping()).catch(() => null)) return
}

t.test('[fleet/schedule-lease.1] schedules of a fleet', { skip: WITHOUT_REDIS }, async t => {
  const redis = await startRedis(t)

  await t.test('[fleet/schedule-lease.1] one gateway leads and hands over what it kept', async t => {
    const [a, b] = [await gateway(t, redis, 'a', 'one'), await gateway(t, redis, 'b', 'one')]
    t.match(await a.lease.open(), { states: new Map(), warnings: [] })
    t.same(await b.lease.open(), { heldBy: 'gateway a' })
    t.same([a.lease.isLeader, b.lease.isLeader], [true, false])
    const many = new Map(Array.from({ length: 1200 }, (_, i) => [`node/f${i}@default`, STATE]))
    await a.lease.save(many)
    await a.lease.save(new Map([['node/f0@default', null]]))
    await t.rejects(b.lease.save(many), { message: 'another gateway may lead' })
    await redis.client().hset(a.store.key('schedules'), 'node/damaged@default', '{')
    await a.lease.close()
    const opened = await b.lease.open()
    const states = 'states' in opened ? opened.states : new Map()
    t.equal(states.size, 1199)
    t.same(states.get('node/f7@default'), STATE)
  })

  await t.test('[fleet/schedule-lease.2] one that lost its lease without knowing can keep nothing', async t => {
    const [a, b] = [await gateway(t, redis, 'a', 'two'), await gateway(t, redis, 'b', 'two')]
    await a.lease.open()
    // As after a pause that is longer than the lease.
    await redis.client().del(a.store.key('leader'))
    t.ok('states' in (await b.lease.open()))
    await t.rejects(a.lease.save(new Map([['node/f@default', STATE]])), { message: 'another gateway leads' })
    t.same([a.losses(), a.lease.isLeader], [1, false])
    t.equal(await redis.client().hlen(a.store.key('schedules')), 0)
    await a.lease.close()
    t.equal(b.lease.isLeader, true, 'what ends gives up its own lease only')
    t.match(await redis.client().get(b.store.key('leader')), /^b#2$/)
  })

  await t.test('[fleet/schedule-lease.2] a write that arrives after a partition changes nothing', async t => {
    const link = await startLink(t, redis.port)
    const a = await gateway(t, { ...redis, url: `redis://127.0.0.1:${link.port}` }, 'a', 'cut')
    const b = await gateway(t, redis, 'b', 'cut')
    await a.lease.open()
    link.cut()
    await t.rejects(a.lease.save(new Map([['node/f@default', STATE]])), { message: /^the store does not answer: / })
    t.same([a.losses(), a.lease.isLeader], [1, false])
    await redis.client().del(b.store.key('leader'))
    t.ok('states' in (await b.lease.open()))
    const state = { ...STATE, doneUpTo: 1_700_000_040_000 }
    await b.lease.save(new Map([['node/f@default', state]]))
    link.mend()
    await untilAnswered(a.store)
    t.same(await a.lease.open(), { heldBy: 'gateway b' })
    t.match(JSON.parse((await redis.client().hget(b.store.key('schedules'), 'node/f@default'))!), {
      done_up_to: state.doneUpTo / 1000,
    })
  })

  await t.test('[fleet/schedule-lease.3] a lease is renewed, and given up when that fails for too long', async t => {
    const server = await startRedis(t)
    const { store, clock, lease, losses } = await gateway(t, server, 'a', 'three')
    await lease.open()
    const renewed = async (): Promise<void> => {
      clock.advance(LEASE_MS / 4)
      await store.ask(client => client.ping()).catch(() => {})
    }
    await server.client().pexpire(store.key('leader'), 1000)
    await renewed()
    t.ok((await server.client().pttl(store.key('leader'))) > 1000)
    await server.end()
    for (let i = 0; i < 3; i++) await renewed()
    t.same([losses(), lease.isLeader], [1, false])
    t.match(await lease.open(), { problem: /^the store does not answer: / })
  })

  await t.test('[fleet/schedule-lease.4] a run that cannot be noted does not begin, and is due again', async t => {
    const { store, clock, lease } = await gateway(t, redis, 'a', 'four')
    await lease.open()
    let calls = 0
    const runner = new ScheduleRunner({
      clock,
      store: lease,
      call: async () => {
        calls++
        return { status: 200, error: null, latencyMs: 1 }
      },
      onEvent: () => {},
      onLog: () => {},
    })
    const schedule = new Schedule(makeFn())
    const due = { ...STATE, next: 0 }
    Object.assign(schedule, { state: due, policy: { retry: null } })
    const idle = () =>
      new Promise<void>(onIdle => {
        runner.begin({ schedule, stop: null, isGone: false, onIdle } as never, clock.wall())
      })
    await redis.client().set(store.key('leader'), 'b#9')
    await idle()
    t.equal(calls, 0)
    t.same(schedule.state, due)
  })

  await t.test('[fleet/schedule-lease.8] a run is noted with its state, and stays as long as that', async t => {
    const { store, lease } = await gateway(t, redis, 'a', 'eight')
    await lease.open()
    const key = 'node/f@default'
    const running = { ...STATE, running: 1, runningDue: STATE.next }
    const record = () => redis.client().hget(store.key('schedules', 'runs'), key)
    await lease.save(new Map([[key, running]]))
    const run = toRunId(key, running)
    t.equal(await record(), run)
    await redis.client().hset(store.key('schedules', 'runs'), key, `${run} b {}`)
    await lease.save(new Map([[key, { ...running, rule: 'every 5 UTC' }]]))
    t.equal(await record(), `${run} b {}`, 'who has it, and its outcome, stay')
    const next = { ...running, running: 2 }
    await lease.save(new Map([[key, next]]))
    t.equal(await record(), toRunId(key, next))
    await lease.save(new Map([[key, STATE]]))
    t.equal(await record(), null)
    await lease.save(new Map([[key, running]]))
    await lease.save(new Map([[key, null]]))
    t.equal(await record(), null)
    await redis.client().set(store.key('leader'), 'b#9')
    await t.rejects(lease.save(new Map([[key, running]])))
    t.equal(await record(), null, 'a gateway that does not lead notes nothing')
  })

  await t.test('[fleet/schedule-lease.6] a newer release takes over at once, with the runs that go on', async t => {
    const [old, young] = [await gateway(t, redis, 'old', 'six'), await gateway(t, redis, 'young', 'six')]
    const [both, only, fresh] = ['node/both@default', 'node/only@default', 'node/fresh@default']
    const running = { ...STATE, running: 1, runningDue: STATE.next }
    const later = { ...STATE, next: STATE.next! + 60_000 }
    await old.lease.open()
    await old.lease.save(
      new Map([
        [both, running],
        [only, STATE],
      ]),
    )
    old.rivals.hasNewer = true
    young.rivals.hasOlder = true
    const leader = () => redis.client().get(old.store.key('leader'))
    old.clock.advance(LEASE_MS / 4)
    await until(() => old.losses() === 1)
    t.equal(await leader(), null)
    await t.rejects(old.lease.save(new Map([[both, later]])), { message: 'another gateway may lead' })

    const waiting = await old.lease.open()
    t.same('states' in waiting && waiting.elsewhere, new Set([both, only]), 'until the newer release says what it has')
    const taken = await young.lease.open()
    t.same(
      'states' in taken && taken.states,
      new Map([
        [both, running],
        [only, STATE],
      ]),
    )
    await young.lease.save(
      new Map([
        [both, later],
        [fresh, STATE],
        [only, null],
      ]),
    )
    old.clock.advance(LEASE_MS / 4)
    await until(() => old.losses() === 2)
    const kept = await old.lease.open()
    t.same('states' in kept && [kept.states, kept.elsewhere], [new Map([[only, STATE]]), new Set([both, fresh])])
    t.same([old.lease.isLeader, young.lease.isLeader], [true, true])
    await old.lease.save(new Map([[only, later]]))
    await t.rejects(old.lease.save(new Map([[both, running]])), { message: 'another gateway leads' })
    t.equal(JSON.parse((await redis.client().hget(old.store.key('schedules'), both))!).running, null)

    t.comment('the newer release is gone')
    await young.lease.close()
    old.rivals.hasNewer = false
    const back = await old.lease.open()
    t.same('states' in back && [...back.states].sort(), [
      [both, later],
      [fresh, STATE],
      [only, later],
    ])
    t.same('states' in back && back.elsewhere, new Set())
    t.match(await leader(), /^old#/)
  })
})
