import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import type { RunOutcome, SharedRun } from '../../lib/scheduler/schedule-runner.ts'
import { NEW_STATE } from '../../lib/scheduler/schedule-store.ts'
import { TAKEOVER_MS } from '../../lib/scheduler/scheduler.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeSchedules, MemoryStore, RETRY, scheduled, settle } from '../helpers/schedules-bed.ts'

/** A bed whose clock shows a whole minute. */
function bed(options: Parameters<typeof makeSchedules>[2] = {}, store = new MemoryStore(), clock = new FakeClock()) {
  clock.jumpWall(60_000 - (clock.wall() % 60_000))
  return makeSchedules(store, clock, options)
}

t.test(
  '[scheduler/schedule.1, scheduler/schedule.8] due at multiples of the interval, no run beside another one',
  async t => {
    const { adopt, start, pass, calls, running, schedules, close } = bed()
    adopt(scheduled('a'))
    await start()
    await pass(59_000)
    t.same(calls, [], 'not at the start')
    await pass(1000)
    t.same(calls, ['a 1'])
    t.match(schedules.rows(), [{ isRunning: true, state: { running: 1 } }])
    await pass(150_000)
    t.same(calls, ['a 1'], 'it still runs')
    running[0]!.end(200)
    await pass(1000)
    t.same(calls, ['a 1', 'a 1'], 'two due times that passed are one late run')
    running[1]!.end(200)
    await pass(1000)
    t.equal(calls.length, 2)
    t.equal(schedules.rows()[0]!.state.next! % 60_000, 0)
    await pass(60_000)
    t.equal(calls.length, 3, 'and then at its times again')
    await close()
    t.match(schedules.rows(), [{ state: { running: null, lastStatus: 0, lastError: /gateway ended/ } }])
  },
)

t.test('[scheduler/schedule.9, scheduler/schedule.10] retries, what they say, and their end', async t => {
  const { adopt, start, pass, calls, running, schedules, events, close } = bed()
  adopt(scheduled('a', { everySeconds: 600, retry: RETRY }))
  await start()
  await pass(600_000)
  running[0]!.end(503, new GatewayError('RUNTIME_DOWN', 'runtime down'))
  await settle()
  const now = schedules.rows()[0]!.state
  t.equal(now.retryDue! - now.last!, 10_000)
  t.match(now, { retryAttempt: 2, lastStatus: 503, lastError: 'retrying 2/3 in 10.00s: runtime down' })
  await pass(9000)
  t.equal(calls.length, 1)
  await pass(1000)
  t.same(calls, ['a 1', 'a 2'])
  running[1]!.end(500)
  await settle()
  t.match(schedules.rows()[0]!.state, { retryAttempt: 3, lastError: 'retrying 3/3 in 20.00s: HTTP 500' })
  await pass(20_000)
  running[2]!.end(429)
  await settle()
  t.match(schedules.rows()[0]!.state, { retryDue: null, retryAttempt: null, lastStatus: 429, lastError: 'HTTP 429' })
  await pass(500_000)
  t.equal(calls.length, 3, 'nothing before the next due time')
  await pass(100_000)
  t.same(calls.slice(3), ['a 1'])
  running[3]!.end(404)
  await settle()
  t.match(
    schedules.rows()[0]!.state,
    { retryDue: null, lastStatus: 404, lastError: 'HTTP 404' },
    'an answer is no failure to try again',
  )
  t.same(
    events.map(({ key, attempt, status, error }) => [key, attempt, status, error]),
    [
      ['node/a@default', 1, 503, 'runtime down'],
      ['node/a@default', 2, 500, 'HTTP 500'],
      ['node/a@default', 3, 429, 'HTTP 429'],
      ['node/a@default', 1, 404, 'HTTP 404'],
    ],
  )
  await close()
})

t.test(
  '[scheduler/schedule.11] a reload: what is the same goes on, what changed begins anew, what is gone is forgotten',
  async t => {
    const { adopt, start, pass, calls, running, schedules, store, close } = bed()
    adopt(scheduled('a', { retry: RETRY }), scheduled('b'), scheduled('c', { everySeconds: 3600 }))
    await start()
    await pass(60_000)
    running[0]!.end(500)
    await settle()
    const before = schedules.rows()[0]!.state
    adopt(scheduled('a', { retry: RETRY, body: 'new' }), scheduled('b'), scheduled('c', { everySeconds: 3600 }))
    t.same(schedules.rows()[0]!.state, before, 'a pending retry stays')
    await pass(10_000)
    t.same(calls, ['a 1', 'b 1', 'a 2'])
    t.equal(running[2]!.run.policy.body, 'new', 'and sends what the config says now')
    adopt(scheduled('c', { everySeconds: 90 }))
    t.same(
      schedules.rows().map(({ fn }) => fn.name),
      ['c'],
    )
    t.equal(schedules.rows()[0]!.state.next! % 90_000, 0)
    adopt(scheduled('b'), scheduled('c', { everySeconds: 90 }))
    await pass(60_000)
    t.equal(
      calls.filter(one => one.startsWith('b')).length,
      1,
      'it came back while its run went on: no second one beside it',
    )
    running[1]!.end(200)
    await pass(1000)
    t.equal(calls.filter(one => one.startsWith('b')).length, 2)
    adopt()
    for (const { end } of running) end(200)
    await settle()
    t.equal(store.kept.size, 0)
    await close()
  },
)

t.test('[scheduler/schedule.11] a retry that the config allows no more is dropped', async t => {
  const { adopt, start, pass, calls, running, schedules, close } = bed()
  adopt(scheduled('a', { everySeconds: 600, retry: RETRY }))
  await start()
  await pass(600_000)
  running[0]!.end(500)
  await settle()
  adopt(scheduled('a', { everySeconds: 600 }))
  t.match(schedules.rows()[0]!.state, { retryDue: null, retryAttempt: null })
  await pass(60_000)
  t.equal(calls.length, 1)
  await close()
})

t.test('[scheduler/schedule.12] switched off, wrong, and back', async t => {
  const { adopt, start, pass, calls, schedules, close } = bed()
  const wrong = makeFn({ name: 'w', policy: { scheduleProblem: 'w/fn.config.json: schedule.cron must be ...' } })
  adopt(scheduled('a', { enabled: false }), wrong)
  await start()
  await pass(180_000)
  t.same(calls, [])
  t.match(schedules.rows(), [
    { policy: { enabled: false }, state: { next: null } },
    { policy: null, problem: /schedule.cron/, state: { next: null } },
  ])
  await t.rejects(schedules.runNow(wrong), { status: 409, message: /not used: w\/fn.config.json/ })
  await t.rejects(schedules.runNow(scheduled('a')), { status: 409, message: /switched off/ })
  await t.rejects(schedules.runNow(makeFn({ name: 'none' })), { status: 404, message: /no schedule/ })
  adopt(scheduled('a'))
  await pass(1000)
  t.same(calls, [], 'nothing is made up for')
  await pass(59_000)
  t.same(calls, ['a 1'])
  await close()
})

t.test('[scheduler/schedule.13] a run by hand has no retry, moves no due time and joins no other run', async t => {
  const { adopt, start, pass, calls, running, schedules, clock, store, close } = bed()
  const fn = scheduled('a', { retry: RETRY })
  adopt(fn)
  await start()
  await pass(30_000)
  const { next } = schedules.rows()[0]!.state
  const outcome = schedules.runNow(fn)
  await settle()
  t.match(store.kept.get(fn.key), { running: 0, runningDue: clock.wall() }, 'noted, as a due run is')
  t.equal(running[0]!.run.isManual, true)
  await t.rejects(schedules.runNow(fn), { status: 409, message: /runs right now/ })
  await pass(40_000)
  t.equal(calls.length, 1, 'due meanwhile, and waits')
  running[0]!.end(500)
  t.match(await outcome, { status: 500, error: 'HTTP 500', latencyMs: 1 })
  t.match(schedules.rows()[0]!.state, { next, retryDue: null, lastStatus: 500 })
  await pass(1000)
  t.equal(calls.length, 2)
  t.equal(running[1]!.run.isManual, false)
  await close()
  await t.rejects(schedules.runNow(fn), { status: 503, message: /shutting down/ })
})

t.test('[scheduler/schedule.14] with the scheduler off the last runs of earlier processes are shown', async t => {
  const store = new MemoryStore()
  const first = bed({}, store)
  first.adopt(scheduled('a'), scheduled('b'))
  await first.start()
  await first.pass(60_000)
  for (const one of first.running) one.end(500)
  await first.close()
  const off = bed({ enabled: false }, store)
  off.adopt(scheduled('a'))
  await off.start()
  off.adopt(scheduled('a'), scheduled('b'))
  const past = { last: store.kept.get('node/a@default')!.last, lastStatus: 500, lastError: 'HTTP 500' }
  t.match(off.schedules.rows(), [{ state: past }, { state: past }])
  t.ok(past.last)
  await off.pass(200_000)
  t.same(off.calls, [])
  await off.close()
})

t.test('[scheduler/schedule.14] with the scheduler off nothing runs by itself, by hand it does', async t => {
  const { adopt, start, pass, calls, running, schedules, store, close } = bed({ enabled: false })
  const fn = scheduled('a')
  adopt(fn)
  await start()
  await pass(200_000)
  t.same(calls, [])
  const outcome = schedules.runNow(fn)
  running[0]!.end(200)
  t.match(await outcome, { status: 200, error: null })
  t.equal(store.kept.size, 0)
  await close()
})

t.test('[scheduler/schedule-store.5] another gateway has them: this one waits until it has gone', async t => {
  const store = new MemoryStore()
  store.heldBy = 'process 7'
  const { adopt, start, pass, calls, schedules, logs, close } = bed({}, store)
  const fn = scheduled('a', { everySeconds: 1 })
  adopt(fn)
  await start()
  await pass(TAKEOVER_MS + 2000)
  t.same(calls, [])
  t.match(schedules.warnings, [{ code: 'SCHEDULES_ELSEWHERE', message: /process 7/ }])
  t.same(logs, ['warn another gateway runs the schedules (process 7)'], 'told once')
  await t.rejects(schedules.runNow(fn), { status: 409, message: /another gateway/ })
  store.heldBy = null
  await pass(TAKEOVER_MS)
  t.ok(calls.length > 0)
  t.same(schedules.warnings, [])
  await close()
})

t.test('[scheduler/schedule-store.5] while the store is away no gateway runs them', async t => {
  const store = new MemoryStore()
  store.isShared = true
  store.problem = 'the store refuses a command: OOM'
  const { adopt, start, pass, calls, schedules, logs, close } = bed({}, store)
  const fn = scheduled('a', { everySeconds: 1 })
  adopt(fn)
  await start()
  await pass(TAKEOVER_MS + 2000)
  t.same(calls, [])
  t.same(logs, ['warn no gateway can run the schedules: the store refuses a command: OOM'], 'logged once')
  await t.rejects(schedules.runNow(fn), { code: 'RUNTIME_DOWN', message: 'the store refuses a command: OOM' })
  store.problem = null
  await pass(TAKEOVER_MS)
  t.ok(calls.length > 0)
  await close()
})

t.test('[scheduler/schedule-store.6] a store that fails is told once, and the schedules run on', async t => {
  const store = new MemoryStore()
  const it = bed({}, store)
  it.answer = () => 200
  it.adopt(scheduled('a', { everySeconds: 1 }))
  await it.start()
  store.broken = new Error('no space left on device')
  await it.pass(20_000)
  t.ok(it.calls.length >= 19)
  t.same(it.logs, ['warn the state of schedules cannot be kept: no space left on device'])
  store.broken = null
  await it.pass(2000)
  t.ok(store.kept.size > 0)
  t.ok(store.flushes > 0, 'everything is written from time to time')
  await it.close()
  t.equal(store.closed, 1)
})

t.test(
  '[scheduler/schedule-store.3, scheduler/schedule.15] a run is noted before it begins, and a kill makes no second one of it',
  async t => {
    const store = new MemoryStore()
    const clock = new FakeClock()
    const first = bed({}, store, clock)
    first.adopt(scheduled('a', { everySeconds: 600 }), scheduled('b', { everySeconds: 600, retry: RETRY }))
    await first.start()
    await first.pass(600_000)
    t.same(first.calls, ['a 1', 'b 1'])
    t.match([...store.kept.values()], [{ running: 1 }, { running: 1 }])
    // Killed: whoever made the first one never hears of it again.
    first.queue.stop()
    clock.advance(5000)
    const second = makeSchedules(store, clock)
    second.adopt(scheduled('a', { everySeconds: 600 }), scheduled('b', { everySeconds: 600, retry: RETRY }))
    await second.start()
    t.match(second.schedules.rows(), [
      { state: { running: null, lastStatus: 0, lastError: 'the gateway ended during the run', retryDue: null } },
      {
        state: {
          running: null,
          retryAttempt: 2,
          lastError: 'retrying 2/3 in 10.00s: the gateway ended during the run',
        },
      },
    ])
    await second.pass(10_000)
    t.same(second.calls, ['b 2'])
    await second.close()
  },
)

t.test('[scheduler/schedule.15] after a time without a gateway one run makes up for all', async t => {
  const store = new MemoryStore()
  const clock = new FakeClock()
  const first = bed({}, store, clock)
  first.answer = () => 200
  const daily = { everySeconds: null, cron: '0 3 * * *' }
  first.adopt(scheduled('a'), scheduled('d', daily), scheduled('x'))
  await first.start()
  await first.pass(60_000)
  await first.close()
  const waiting = store.kept.get('node/d@default')!.next!
  clock.jumpWall(3 * 86_400_000)
  const second = makeSchedules(store, clock)
  second.answer = () => 200
  second.adopt(scheduled('a'), scheduled('d', daily))
  await second.start()
  await second.pass(1000)
  t.same(second.calls.sort(), ['a 1', 'd 1'])
  t.ok(second.schedules.rows()[1]!.state.next! > waiting + 2 * 86_400_000)
  t.same(
    [...store.kept.keys()].sort(),
    ['node/a@default', 'node/d@default'],
    'a function that went meanwhile is forgotten',
  )
  await second.pass(30_000)
  t.equal(second.calls.length, 2)
  await second.close()
})

t.test('[fleet/schedule-lease.7] schedules that another gateway runs are left alone until it does no more', async t => {
  const store = new MemoryStore()
  const [mine, theirs] = [scheduled('mine'), scheduled('theirs')]
  store.elsewhere = new Set([theirs.key])
  const bed = makeSchedules(store, new FakeClock())
  bed.answer = () => 200
  bed.adopt(mine, theirs)
  await bed.start()
  await bed.pass(120_000)
  t.ok(bed.calls.length > 0)
  t.notOk(bed.calls.some(call => call.startsWith('theirs')))
  t.same([...store.kept.keys()], [mine.key], 'nothing is kept about it')
  bed.adopt(mine, scheduled('theirs', { everySeconds: 30 }, '2'))
  await bed.pass(60_000)
  t.same([...store.kept.keys()], [mine.key])
  store.elsewhere = new Set()
  store.onLost!()
  await bed.pass(60_000)
  t.ok(bed.calls.some(call => call.startsWith('theirs')))
  await bed.close()
})

t.test(
  '[fleet/schedule-lease.7] a gateway without schedules asks for a shared store, and warns about nothing',
  async t => {
    const store = new MemoryStore()
    Object.assign(store, { isShared: true, heldBy: 'gateway a' })
    store.kept.set('node/gone@default', { ...NEW_STATE })
    const bed = makeSchedules(store, new FakeClock())
    bed.adopt()
    await bed.start()
    t.same([bed.schedules.warnings, bed.logs], [[], []])
    store.heldBy = null
    await bed.pass(TAKEOVER_MS)
    t.equal(store.kept.size, 0, 'what its tree does not have is not of its release')
    await bed.close()
  },
)

t.test('[fleet/schedule-lease.1, fleet/fleet-runs.8] runs of a leader are followed by the next one', async t => {
  const store = new MemoryStore()
  store.isShared = true
  const clock = new FakeClock()
  const shared: { run: SharedRun; end: (outcome: RunOutcome | null) => void }[] = []
  const share = (run: SharedRun) =>
    new Promise<RunOutcome | null>(resolve => {
      shared.push({ run, end: resolve })
      run.signal.addEventListener('abort', () => resolve(null))
    })
  const [due, now] = [scheduled('due', { retry: RETRY }), scheduled('now', { everySeconds: 86_400 })]
  const first = bed({ share }, store, clock)
  first.adopt(due, now)
  await first.start()
  await first.pass(60_000)
  const byHand = t.rejects(first.schedules.runNow(now), { status: 503, message: /another gateway follows the run/ })
  await settle()
  t.match(store.kept.get(due.key), { running: 1, runningDue: clock.wall() })
  t.match(store.kept.get(now.key), { running: 0, runningDue: clock.wall() })
  first.schedules.handOver()
  await byHand
  await settle()
  t.same([store.closed, first.events], [1, []])

  const next = makeSchedules(store, clock, { share })
  next.adopt(due, now)
  await next.start()
  await settle()
  t.same(
    shared.slice(2).map(({ run: { signal: _, ...run } }) => run),
    shared.slice(0, 2).map(({ run: { signal: _, ...run } }) => run),
  )
  await t.rejects(next.schedules.runNow(due), { status: 409, message: /runs right now/ })
  await next.pass(120_000)
  t.equal(shared.length, 4, 'no run beside another one')
  for (const { end } of shared.slice(2)) end({ status: 500, error: 'HTTP 500', latencyMs: 7 })
  await settle()
  t.match(store.kept.get(due.key), { running: null, retryAttempt: 2 })
  t.match(store.kept.get(now.key), { running: null, retryAttempt: null, lastStatus: 500 })
  t.match(next.events, [{ fn: 'due', attempt: 1, durationMs: 7 }, { fn: 'now' }])

  t.comment('an outcome that cannot be kept is that of the next leader')
  await next.pass(10_000)
  t.match(shared[4]!.run, { attempt: 2 })
  store.broken = new Error('another gateway leads')
  shared[4]!.end({ status: 200, error: null, latencyMs: 1 })
  await settle()
  t.equal(next.events.length, 2)
  t.match(store.kept.get(due.key), { running: 2 })
  store.broken = null
  await next.close()
})
