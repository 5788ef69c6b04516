import t, { type Test } from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { type Clock, systemClock } from '../../lib/core/clock.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { FleetRuns, type FleetRunsOptions, toRunId } from '../../lib/fleet/fleet-runs.ts'
import { Store } from '../../lib/fleet/fleet-store.ts'
import type { ScheduledRun, SharedRun } from '../../lib/scheduler/schedule-runner.ts'
import { NEW_STATE } from '../../lib/scheduler/schedule-store.ts'
import { startLink } from '../helpers/link.ts'
import { type RedisBed, startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'
import { scheduled } from '../helpers/schedules-bed.ts'
import { until } from '../helpers/worker-client.ts'

const DUE = 1_700_000_040_000
const GOOD = { status: 200, error: null, latencyMs: 3 }
const CUT_OFF = { status: 0, error: 'the gateway ended during the run' }

/** Waits a twentieth of the time, but not for the end of a connection. */
const hasty: Clock = {
  ...systemClock,
  setTimeout: (act, ms) => systemClock.setTimeout(act, ms === 2000 ? ms : ms / 20),
}

interface Going {
  run: ScheduledRun
  end: (result?: Awaited<ReturnType<FleetRunsOptions['call']>>) => void
}

/** A gateway of the fleet `prefix` with the schedules `names`. */
async function join(t: Test, redis: RedisBed, prefix: string, options: Partial<FleetRunsOptions> = {}, port?: number) {
  const logs: string[] = []
  const onLog = (_level: string, message: string): void => void logs.push(message)
  const url = port === undefined ? redis.url : `redis://127.0.0.1:${port}`
  const store = await Store.open({ url, prefix, isRequiredAtStart: true, onLog })
  const functions = new Map<string, FunctionVersion>()
  const going: Going[] = []
  const runs = new FleetRuns(
    {
      clock: hasty,
      id: `gateway-${Math.random()}`,
      release: () => 'r1',
      isThere: () => true,
      functionOf: key => functions.get(key) ?? null,
      admission: { canEnter: () => true, onceRoom: () => {} },
      call: run =>
        new Promise(resolve => {
          going.push({ run, end: (result = GOOD) => resolve(result) })
          run.signal.addEventListener('abort', () => resolve({ status: 0, error: null, latencyMs: 1 }))
        }),
      lockMs: 300,
      ...options,
      store,
      onLog,
    },
    await import('bullmq'),
  )
  t.teardown(async () => {
    await runs.close(0)
    store.close()
  })
  runs.start()
  const have = (...names: string[]): void => {
    for (const name of names) functions.set(`node/${name}@default`, scheduled(name))
  }
  have('a')
  return { runs, going, logs, store, have, functions }
}

/** Notes a run as the leader does. */
async function note(redis: RedisBed, prefix: string, name = 'a', attempt = 1, due = DUE): Promise<SharedRun> {
  const key = `node/${name}@default`
  const run = toRunId(key, { ...NEW_STATE, running: attempt, runningDue: due })
  await redis.client().hset(`{${prefix}}:schedules:runs`, key, run)
  return { key, due, attempt, signal: new AbortController().signal }
}

const tickets = (redis: RedisBed, prefix: string): Promise<string[]> => redis.client().keys(`{${prefix}}:runs:run-*`)

t.test('[fleet/fleet-runs.1] runs of schedules in a fleet', { skip: WITHOUT_REDIS }, async t => {
  const started = await startRedis(t)
  const client = started.client()
  const redis: RedisBed = { ...started, client: () => client }
  const alive = setInterval(() => {}, 60_000)
  t.teardown(() => clearInterval(alive))

  await t.test('[fleet/fleet-runs.1] runs that are due at once take place at all gateways, once each', async t => {
    const [a, b] = [await join(t, redis, 'one'), await join(t, redis, 'one')]
    const names = Array.from({ length: 60 }, (_, i) => `f${i}`)
    for (const one of [a, b]) one.have(...names)
    const shared = []
    for (const name of names) shared.push(a.runs.share(await note(redis, 'one', name)))
    const all = (): Going[] => [...a.going, ...b.going]
    await until(() => all().length === names.length)
    t.ok(a.going.length > 0 && b.going.length > 0, `${a.going.length} and ${b.going.length} runs`)
    t.same([...new Set(all().map(({ run }) => run.fn.name))].sort(), [...names].sort())
    t.match(all()[0]!.run, { attempt: 1, isManual: false, policy: { everySeconds: 60 } })
    for (const { end } of all().slice(2)) end()
    all()[0]!.end({ status: 500, error: null, latencyMs: 5 })
    all()[1]!.end({ status: 503, error: new GatewayError('RUNTIME_DOWN', 'runtime down'), latencyMs: 1 })
    const outcomes = await Promise.all(shared)
    const bad = outcomes.filter(one => one!.status !== 200)
    t.same(new Set(bad.map(one => one!.error)), new Set(['HTTP 500', 'runtime down']))
    t.same(
      outcomes.filter(one => one!.status === 200),
      Array(58).fill(GOOD),
    )
    await until(async () => (await tickets(redis, 'one')).length === 0)
  })

  await t.test(
    '[fleet/fleet-runs.2] a run that two leaders ask for takes place once, and both get its outcome',
    async t => {
      const [a, b] = [await join(t, redis, 'two'), await join(t, redis, 'two')]
      const run = await note(redis, 'two')
      const outcomes = [a.runs.share(run), b.runs.share(run)]
      await until(() => a.going.length + b.going.length > 0)
      for (const { end } of [...a.going, ...b.going]) end()
      t.same(await Promise.all(outcomes), [GOOD, GOOD])
      const late = await join(t, redis, 'two')
      t.same(await late.runs.share(run), GOOD, 'also a leader that comes after its end')
      t.equal(a.going.length + b.going.length + late.going.length, 1)
      const [left, next] = [new AbortController(), await note(redis, 'two', 'a', 2)]
      const deposed = a.runs.share({ ...next, signal: left.signal })
      left.abort()
      t.equal(await deposed, null, 'another gateway follows it')
    },
  )

  await t.test('[fleet/fleet-runs.3] a run that is not noted does not take place', async t => {
    const a = await join(t, redis, 'three')
    const run = await note(redis, 'three', 'a', 1, DUE + 60_000)
    const lost = await a.runs.share({ ...run, due: DUE })
    t.match(lost, { status: 0, error: /the store lost this run/ })
    await until(async () => (await tickets(redis, 'three')).length === 0)
    t.equal(a.going.length, 0)
    const manual = a.runs.share(await note(redis, 'three', 'a', 0))
    await until(() => a.going.length === 1)
    t.match(a.going[0]!.run, { attempt: 1, isManual: true })
    a.going[0]!.end()
    t.same(await manual, GOOD)
  })

  await t.test(
    '[fleet/fleet-runs.4] the gateway of a run ends: it is interrupted, and a late end is dropped',
    async t => {
      const link = await startLink(t, redis.port)
      const lost = await join(t, redis, 'four', { id: 'lost' }, link.port)
      const run = await note(redis, 'four')
      void lost.runs.share(run)
      await until(() => lost.going.length === 1)
      link.cut()
      const leader = await join(t, redis, 'four', {
        isThere: which => !('id' in which && which.id === 'lost'),
      })
      t.match(await leader.runs.share(run), CUT_OFF)
      lost.going[0]!.end()
      await until(() => lost.logs.some(line => /waits for the store/.test(line)))
      link.mend()
      await until(() => lost.logs.some(line => /the end of a run of node\/a@default is dropped/.test(line)))
      t.equal(leader.going.length, 0, 'it does not begin again')
      t.match(await redis.client().hget('{four}:schedules:runs', run.key), / lost \{"status":0,/)
    },
  )

  await t.test('[fleet/fleet-runs.5] the store is away when a run ends: the end is kept when it is back', async t => {
    const server = await startRedis(t)
    const a = await join(t, server, 'five')
    const outcome = a.runs.share(await note(server, 'five'))
    await until(() => a.going.length === 1)
    await server.end()
    a.going[0]!.end()
    await until(() => a.logs.some(line => /waits for the store/.test(line)))
    await server.begin()
    t.same(await outcome, GOOD)
    t.equal(a.going.length, 1)
  })

  await t.test(
    '[fleet/fleet-runs.6] gateways of the release of the leader take a run, others when none is left',
    async t => {
      const there = new Set(['r1', 'r2'])
      const isThere: FleetRunsOptions['isThere'] = which => 'id' in which || there.has(which.release)
      const [leader, newer] = [
        await join(t, redis, 'six', { isThere }),
        await join(t, redis, 'six', { isThere, release: () => 'r2' }),
      ]
      const first = leader.runs.share(await note(redis, 'six'))
      await until(() => leader.going.length === 1)
      leader.going[0]!.end()
      await first
      t.equal(newer.going.length, 0)
      const second = leader.runs.share(await note(redis, 'six', 'b'))
      newer.have('b')
      await until(async () => (await redis.client().zcard('{six}:runs:delayed')) === 1)
      there.delete('r1')
      await until(() => newer.going.length === 1)
      newer.going[0]!.end()
      t.same(await second, GOOD)
    },
  )

  await t.test('[fleet/fleet-runs.7] a run waits for room, and for a gateway that has its schedule', async t => {
    let hasRoom = false
    const admission = { canEnter: () => hasRoom, onceRoom: () => {} }
    let ahead = 0
    const clock: Clock = { ...hasty, wall: () => Date.now() + ahead }
    const a = await join(t, redis, 'seven', { admission, clock })
    const waiting = async (): Promise<boolean> => (await redis.client().zcard('{seven}:runs:delayed')) === 1
    const share = async (name: string, attempt = 1) => a.runs.share(await note(redis, 'seven', name, attempt))
    const first = share('a')
    await until(waiting)
    hasRoom = true
    await until(() => a.going.length === 1)
    a.going[0]!.end()
    t.same(await first, GOOD)
    hasRoom = false
    // A run of its own: the ticket of the first one may still be there.
    const second = share('a', 2)
    await until(waiting)
    ahead = 31_000
    await until(() => a.going.length === 2)
    a.going[1]!.end({ status: 429, error: null, latencyMs: 0 })
    t.match(await second, { status: 429 }, 'after 30 s the limits of the function decide')
    ahead = 0
    const third = share('gone')
    await until(waiting)
    ahead = 61_000
    t.match(await third, { status: 0, error: 'no gateway has this schedule' })
  })

  await t.test('[fleet/fleet-runs.8] a gateway that stops lets its runs end, and follows none', async t => {
    const [leader, other] = [await join(t, redis, 'eight'), await join(t, redis, 'eight')]
    const names = Array.from({ length: 20 }, (_, i) => `f${i}`)
    for (const one of [leader, other]) one.have(...names)
    const shared = []
    for (const name of names) shared.push(leader.runs.share(await note(redis, 'eight', name)))
    await until(() => leader.going.length + other.going.length === names.length)
    const closing = leader.runs.close(60_000)
    t.same(await Promise.all(shared), Array(names.length).fill(null), 'the next leader follows them')
    for (const { end } of leader.going) end()
    await closing
    await other.runs.close(0)
    const records = await redis.client().hgetall('{eight}:schedules:runs')
    const ends = Object.values(records).map(text => JSON.parse(text.slice(text.indexOf('{'))))
    t.equal(ends.filter(({ status }) => status === 200).length, leader.going.length)
    t.equal(ends.filter(({ error }) => error === CUT_OFF.error).length, other.going.length)
    t.equal(await leader.runs.share(await note(redis, 'eight')), null)
  })

  await t.test('[fleet/fleet-runs.9] tickets, records and messages of something else do nothing', async t => {
    const a = await join(t, redis, 'nine')
    const { Queue } = await import('bullmq')
    const queue = new Queue('runs', { connection: a.store.redis, prefix: a.store.prefix })
    for (const data of [
      null,
      5,
      [],
      {},
      { key: 'node/a@default' },
      { key: '__proto__', due: 1, attempt: 1, release: 'r1' },
    ])
      await queue.add('x', data)
    const key = '{nine}:schedules:runs'
    await redis.client().hset(key, 'node/b@default', '\n{"status":200}')
    const run = await note(redis, 'nine')
    const outcome = a.runs.share(run)
    await until(() => a.going.length === 1)
    await redis.client().publish(`${key}:ends`, '{')
    const record = (await redis.client().hget(key, run.key))!
    for (const text of ['{', '{"status":"200","latencyMs":1}', '[]']) {
      await redis.client().hset(key, run.key, `${record} ${text}`)
      await redis.client().publish(`${key}:ends`, record.split(' ')[0]!)
    }
    await redis.client().hset(key, run.key, `${record} {"status":200,"error":{},"latencyMs":1}`)
    t.same(await outcome, { status: 200, error: null, latencyMs: 1 })
    a.going[0]!.end()
    await until(async () => (await queue.count()) + (await queue.getActiveCount()) === 0)
    t.equal(a.going.length, 1)
    await queue.close()
  })
})
