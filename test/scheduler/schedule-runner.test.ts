import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { Rules, Schedule } from '../../lib/scheduler/schedule.ts'
import {
  pickPath,
  type Runnable,
  type RunOutcome,
  ScheduleRunner,
  type ScheduleRunnerOptions,
  type ScheduledRun,
  type SharedRun,
  toScheduledRequest,
} from '../../lib/scheduler/schedule-runner.ts'
import { FakeClock } from '../helpers/clock.ts'
import { MemoryStore, RETRY, scheduled, settle } from '../helpers/schedules-bed.ts'

async function bed(share: ScheduleRunnerOptions['share'] = null) {
  const clock = new FakeClock()
  const store = new MemoryStore()
  await store.open()
  const open: { run: ScheduledRun; end: (status: number, error?: GatewayError) => void }[] = []
  const logs: string[] = []
  const events: string[] = []
  const runner = new ScheduleRunner({
    clock,
    store,
    random: () => 0.5,
    share,
    call: run =>
      new Promise(resolve => {
        const end = (status: number, error: GatewayError | null = null) => resolve({ status, error, latencyMs: 2 })
        open.push({ run, end })
        run.signal.addEventListener('abort', () => end(0))
      }),
    onEvent: ({ fn, attempt, status, error }) => events.push(`${fn} ${attempt} ${status} ${error}`),
    onLog: (_, message) => logs.push(message),
  })
  const make = (name: string): Runnable & { idle: number } => {
    const fn = scheduled(name, { everySeconds: 60, retry: RETRY })
    const schedule = new Schedule(fn)
    const policy = fn.policy.schedule!
    schedule.adopt(fn, policy, new Rules().of(policy), clock.wall())
    return {
      schedule,
      stop: null,
      isGone: false,
      idle: 0,
      onIdle() {
        this.idle += 1
      },
    }
  }
  return { clock, store, open, logs, events, runner, make }
}

t.test('[scheduler/schedule-store.3] all that is due in one turn is noted at once, and begins afterwards', async t => {
  const { clock, store, open, runner, make } = await bed()
  const entries = ['a', 'b', 'c'].map(make)
  for (const entry of entries) runner.begin(entry, clock.wall())
  t.equal(open.length, 0)
  await settle()
  t.equal(store.saves, 1)
  t.same(
    [...store.kept.values()].map(({ running }) => running),
    [1, 1, 1],
  )
  t.equal(open.length, 3)
  for (const { end } of open) end(200)
  await settle()
  t.same(
    [...store.kept.values()].map(({ running, lastStatus }) => [running, lastStatus]),
    Array(3).fill([null, 200]),
  )
  t.same(
    entries.map(({ idle, stop }) => [idle, stop]),
    Array(3).fill([1, null]),
  )
})

t.test('[scheduler/schedule.11] what went between the note and the run does not run', async t => {
  const { clock, store, open, runner, make } = await bed()
  const gone = make('gone')
  const off = make('off')
  runner.begin(gone, clock.wall())
  runner.begin(off, clock.wall())
  gone.isGone = true
  off.schedule.adopt(off.schedule.fn, null, null, clock.wall())
  await settle()
  t.equal(open.length, 0)
  t.same([...store.kept.keys()], ['node/off@default'])
  t.equal(off.schedule.state.running, null)
})

t.test(
  '[scheduler/schedule.10, scheduler/scheduler.4] every outcome is an event, every failure a log line',
  async t => {
    const { clock, open, logs, events, runner, make } = await bed()
    const entry = make('a')
    for (const [status, error] of [
      [500, null],
      [503, new GatewayError('RUNTIME_DOWN', 'runtime down')],
      [200, null],
      [404, null],
    ] as const) {
      runner.begin(entry, clock.wall())
      await settle()
      open.at(-1)!.end(status, error ?? undefined)
      await settle()
    }
    t.same(events, ['a 1 500 HTTP 500', 'a 2 503 runtime down', 'a 3 200 null', 'a 1 404 HTTP 404'])
    t.same(logs, [
      'schedule of node/a@default failed (attempt 1 of 3, 2.0 ms): HTTP 500',
      'schedule of node/a@default failed (attempt 2 of 3, 2.0 ms): runtime down',
      'schedule of node/a@default failed (attempt 1 of 3, 2.0 ms): HTTP 404',
    ])
  },
)

t.test('[scheduler/schedule.15] a stop lets runs end, then ends them; what was noted last does not begin', async t => {
  const { clock, store, open, runner, make } = await bed()
  const quick = make('quick')
  const slow = make('slow')
  runner.begin(quick, clock.wall())
  runner.begin(slow, clock.wall())
  await settle()
  const late = make('late')
  runner.begin(late, clock.wall())
  const { state } = make('late').schedule
  let isClosed = false
  const closing = runner.close(1000).then(() => (isClosed = true))
  await settle()
  t.equal(open.length, 2)
  t.same(late.schedule.state, state, 'it is due again at the next start')
  open[0]!.end(200)
  await settle()
  t.equal(isClosed, false)
  clock.advance(1000)
  await closing
  t.match(store.kept.get('node/quick@default'), { lastStatus: 200 })
  t.match(store.kept.get('node/slow@default'), { running: null, retryAttempt: 2, lastError: /gateway ended/ })
})

t.test('[scheduler/schedule.13] a run by hand is noted, leaves the due times, and is the only one', async t => {
  const { clock, store, open, events, runner, make } = await bed()
  const entry = make('a')
  const { next } = entry.schedule.state
  const outcome = runner.runNow(entry, true)
  await t.rejects(runner.runNow(entry, true), { code: 'CONFLICT', message: /runs right now/ })
  await settle()
  t.match(store.kept.get('node/a@default'), { running: 0, runningDue: clock.wall() })
  t.match(open[0]!.run, { attempt: 1, isManual: true })
  open[0]!.end(500)
  t.same(await outcome, { status: 500, error: 'HTTP 500', latencyMs: 2 })
  t.match(store.kept.get('node/a@default'), { running: null, retryAttempt: null, lastStatus: 500, next })
  t.same(events, ['a 1 500 HTTP 500'])

  t.comment('a fleet does not begin what it cannot note')
  Object.assign(store, { isShared: true, broken: new Error('away') })
  await t.rejects(runner.runNow(entry, true), { code: 'RUNTIME_DOWN', message: /could not be noted/ })
  t.same([open.length, entry.schedule.state.running, entry.stop], [1, null, null])
})

t.test(
  '[fleet/fleet-runs.1, fleet/fleet-runs.8] a fleet does what was noted, and another leader may follow it',
  async t => {
    const shared: { run: SharedRun; end: (outcome: RunOutcome | null) => void }[] = []
    const share = (run: SharedRun) =>
      new Promise<RunOutcome | null>(resolve => {
        shared.push({ run, end: resolve })
        run.signal.addEventListener('abort', () => resolve(null))
      })
    const { clock, store, open, events, runner, make } = await bed(share)
    const entry = make('a')
    runner.begin(entry, clock.wall())
    await settle()
    const { running, runningDue } = entry.schedule.state
    t.match(shared[0]!.run, { key: 'node/a@default', due: runningDue, attempt: running })
    runner.leave()
    await settle()
    t.match(store.kept.get('node/a@default'), { running: 1 }, 'it goes on')
    t.same([events, entry.stop, entry.idle], [[], null, 1])

    runner.resume(entry)
    t.match(shared[1]!.run, { due: runningDue, attempt: running })
    shared[1]!.end({ status: 200, error: null, latencyMs: 3 })
    await settle()
    t.match(store.kept.get('node/a@default'), { running: null, lastStatus: 200 })
    t.same([events, open.length], [['a 1 200 null'], 0])

    const byHand = runner.runNow(entry, true)
    await settle()
    const closing = runner.close(60_000)
    await t.rejects(byHand, { code: 'RUNTIME_DOWN', message: /another gateway follows the run/ })
    await closing
  },
)

t.test('[scheduler/schedule.2] a run is a request of its function that names its trigger', async t => {
  const { make } = await bed()
  const { fn } = make('a').schedule
  const policy = fn.policy.schedule!
  const { signal } = new AbortController()
  const run = (fields: Partial<ScheduledRun> = {}, changed: Partial<typeof policy> = {}) =>
    toScheduledRequest(
      { fn, policy: { ...policy, ...changed }, attempt: 1, isManual: false, signal, ...fields },
      'id',
      '/a',
    )
  t.match(run(), {
    path: '/a',
    method: policy.method,
    headers: { 'user-agent': 'fngw-schedule', 'x-fn-trigger': 'schedule' },
    trigger: { type: 'schedule', every_seconds: 60, attempt: 1, max_attempts: RETRY.maxAttempts },
    mustEnd: true,
  })
  t.match(run({ isManual: true }).trigger, { manual: true })
  const cron = { everySeconds: null, cron: '0 9 * * *', timezone: 'UTC', retry: null, headers: { 'X-Note': 'n' } }
  t.same(run({ attempt: 2 }, cron).trigger, { type: 'schedule', cron: '0 9 * * *', timezone: 'UTC', attempt: 2 })
  t.match(run({}, cron).headers, { 'x-note': 'n' })
})

t.test('[scheduler/schedule.2] a file route is called at a path without params where it has one', async t => {
  const { make } = await bed()
  const { fn } = make('a').schedule
  t.equal(pickPath({ ...fn, kind: 'file' }, ['/a/:id', '/a'], '/fallback'), '/a')
  t.equal(pickPath({ ...fn, kind: 'file' }, ['/a/:id'], '/fallback'), '/fallback')
  t.equal(pickPath(fn, ['/a'], '/fallback'), '/fallback')
})
