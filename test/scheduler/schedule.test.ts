import t from 'tap'
import type { SchedulePolicy } from '../../lib/core/catalog.ts'
import { INTERRUPTED, Rules, Schedule, SMALL_SET_BACK_MS } from '../../lib/scheduler/schedule.ts'
import type { ScheduleState } from '../../lib/scheduler/schedule-store.ts'
import { makeFn } from '../helpers/fn.ts'
import { createRandom } from '../helpers/random.ts'
import { RETRY, SCHEDULE } from '../helpers/schedules-bed.ts'

const rules = new Rules()
const NOON = Date.UTC(2026, 5, 1, 12)
const MINUTE = 60_000
const HOUR = 3_600_000
const DAY = 24 * HOUR

function make(policy: Partial<SchedulePolicy>, now = NOON): Schedule {
  const schedule = new Schedule(makeFn())
  take(schedule, policy, now)
  return schedule
}

function take(schedule: Schedule, given: Partial<SchedulePolicy>, now: number): boolean {
  const policy = { ...SCHEDULE, ...given }
  return schedule.adopt(schedule.fn, policy, rules.of(policy), now)
}

const daily = { everySeconds: null, cron: '0 13 * * *' }

t.test('[scheduler/schedule.8, scheduler/schedule.9] begin and end', async t => {
  const schedule = make({ retry: RETRY })
  t.equal(schedule.nextDue, NOON + MINUTE)
  schedule.begin(NOON + MINUTE)
  t.match(schedule.state, { next: NOON + 2 * MINUTE, running: 1, runningDue: NOON + MINUTE, doneUpTo: NOON + MINUTE })
  schedule.end({ status: 500, error: null }, NOON + MINUTE, 0.5)
  t.equal(schedule.nextDue, NOON + MINUTE + 10_000, 'the retry comes first')
  schedule.begin(NOON + 3 * MINUTE)
  t.match(schedule.state, { running: 2, runningDue: NOON + MINUTE + 10_000 })
  t.equal(schedule.state.next, NOON + 2 * MINUTE, 'a due time that passed stays due')
  schedule.end({ status: 200, error: null }, NOON + 3 * MINUTE, 0.5)
  t.match(schedule.state, { lastError: null, lastStatus: 200, running: null, runningDue: null, retryAttempt: null })
})

t.test('[scheduler/schedule.11] a run that was begun and did not take place is due again', async t => {
  const schedule = make({})
  const before = schedule.state
  schedule.begin(NOON + MINUTE)
  schedule.undo(before)
  t.same(schedule.state, before)
  schedule.begin(NOON + MINUTE)
  t.equal(take(schedule, { everySeconds: 3600 }, NOON + MINUTE), true)
  schedule.undo(before)
  t.match(schedule.state, { next: NOON + HOUR, running: null, rule: 'every 3600 UTC' }, 'by its new times')
})

t.test('[scheduler/schedule.16] a clock that is set back', async t => {
  const interval = make({ everySeconds: 60 })
  interval.begin(NOON + MINUTE)
  interval.end({ status: 200, error: null }, NOON + MINUTE, 0)
  interval.setBack(NOON - HOUR)
  t.equal(interval.nextDue, NOON - HOUR + MINUTE, 'what has passed is what counts')
  const cron = make(daily)
  cron.begin(NOON + HOUR)
  cron.end({ status: 200, error: null }, NOON + HOUR, 0)
  cron.setBack(NOON + HOUR - 10 * MINUTE)
  t.equal(cron.nextDue, NOON + HOUR + DAY, 'the same time of the same day has had its run')
  cron.setBack(NOON + HOUR - SMALL_SET_BACK_MS - 1)
  t.equal(cron.nextDue, NOON + HOUR, 'further than that the clock was wrong before')
  const far = make(daily, NOON + 4000 * DAY)
  far.setBack(NOON)
  t.equal(far.nextDue, NOON + HOUR)
  const failed = make({ everySeconds: 3600, retry: RETRY })
  failed.begin(NOON + HOUR)
  failed.end(INTERRUPTED, NOON + HOUR, 0.5)
  failed.setBack(NOON - DAY)
  t.equal(failed.nextDue, NOON - DAY + 30_000, 'a retry is no further away than its longest delay')
})

t.test('[scheduler/schedule.15] what a restart makes of what was kept', async t => {
  const kept = (more: Partial<ScheduleState>): ScheduleState => ({ ...make({}).state, ...more })
  const cases: [name: string, kept: ScheduleState, expected: object][] = [
    ['due meanwhile', kept({ next: NOON - HOUR }), { next: NOON - HOUR }],
    ['due later', kept({ next: NOON + MINUTE }), { next: NOON + MINUTE }],
    ['of a clock that was ahead', kept({ next: NOON + 999 * DAY }), { next: NOON + MINUTE }],
    [
      'other times',
      kept({ rule: 'every 5 UTC', next: NOON - HOUR, lastStatus: 7 }),
      { next: NOON + MINUTE, lastStatus: 7 },
    ],
    ['cut off', kept({ running: 1 }), { running: null, lastStatus: 0, retryDue: null }],
  ]
  for (const [name, state, expected] of cases) {
    const schedule = make({})
    schedule.restore(state, NOON, 0.5)
    t.match(schedule.state, { rule: 'every 60 UTC', ...expected }, name)
  }
  const retrying = make({ retry: RETRY })
  retrying.restore(kept({ running: 2 }), NOON, 0.5)
  t.match(retrying.state, { retryAttempt: 3, retryDue: NOON + 20_000 })
  const last = make({ retry: RETRY })
  last.restore(kept({ running: 3 }), NOON, 0.5)
  t.match(last.state, { retryAttempt: null, lastError: INTERRUPTED.error })
  const without = make({})
  without.restore(kept({ retryDue: NOON + 5000, retryAttempt: 2 }), NOON, 0.5)
  t.match(without.state, { retryDue: null, retryAttempt: null }, 'its config has no retry any more')
})

/** One schedule lived through years: what happens to it, and what is noted of every run. */
function live(seed: number, policy: Partial<SchedulePolicy>, step: number, until: number) {
  const random = createRandom(seed)
  let now = NOON
  let schedule = make(policy, now)
  let kept = schedule.state
  let running: { attempt: number; endsAt: number } | null = null
  const wrong: string[] = []
  const rule = schedule.rule!
  /** The first due time that has had no run. */
  let owed = rule.nextAfter(now)!
  let runs = 0
  let retries = 0
  let latest = now
  const tick = (): void => {
    if (running !== null && now >= running.endsAt) {
      schedule.end({ status: [200, 200, 500, 429][random(4)]!, error: null }, now, random(100) / 100)
      kept = schedule.state
      running = null
    }
    if (running !== null || schedule.nextDue > now) return
    const isRetry = schedule.state.retryDue !== null
    schedule.begin(now)
    kept = schedule.state
    const attempt = kept.running!
    if (isRetry !== attempt > 1) wrong.push(`attempt ${attempt} at ${now}`)
    if (attempt > (policy.retry?.maxAttempts ?? 1)) wrong.push(`attempt ${attempt} is one too many`)
    if (isRetry) retries += 1
    else {
      if (owed > now) wrong.push(`a run at ${now}, nothing is due before ${owed}`)
      owed = rule.nextAfter(now)!
      runs += 1
    }
    running = { attempt, endsAt: now + random(4) * random(step) }
  }
  while (now < until) {
    const what = random(200)
    // Time goes on by ticks, and sometimes by a jump or a stretch in which nobody is there.
    now += what < 3 ? random(40 * step) : 1 + random(step / 4)
    if (what >= 3 && what < 6) {
      // Killed, and started again a while later: a run goes with its process.
      now += random(10 * step)
      schedule = make(policy, now)
      schedule.restore(kept, now, random(100) / 100)
      kept = schedule.state
      running = null
    } else if (what === 7 && policy.cron && now > latest - HOUR) {
      now -= random(2 * HOUR)
      schedule.setBack(now)
    } else if (what === 6) take(schedule, { ...policy, body: String(now) }, now)
    latest = Math.max(latest, now)
    tick()
    // All that is due has a run that goes on, a retry on its way, or begins now.
    const isBusy = running !== null || schedule.state.retryDue !== null
    if (owed <= now && !isBusy) wrong.push(`${owed} is due at ${now} and nothing runs`)
    if (wrong.length > 0) break
  }
  return { wrong, runs, retries }
}

t.test('[scheduler/schedule.17] years of runs, failures, jumps, kills and reloads', async t => {
  const years = NOON + 3 * 365 * DAY
  const lives: [policy: Partial<SchedulePolicy>, step: number, until: number][] = [
    [{ everySeconds: 60 }, MINUTE, NOON + 30 * DAY],
    [{ everySeconds: 3600, retry: RETRY }, 20 * MINUTE, years],
    [{ everySeconds: null, cron: '30 2 * * *', timezone: 'America/New_York', retry: RETRY }, 4 * HOUR, years],
    [{ everySeconds: null, cron: '*/20 0-3 * * *', timezone: 'Europe/Berlin' }, 30 * MINUTE, years],
    [{ everySeconds: null, cron: '0 12 29 2 *', retry: RETRY }, 5 * DAY, NOON + 30 * 365 * DAY],
    [
      { everySeconds: null, cron: '30 * * * SUN', timezone: 'Australia/Lord_Howe', retry: { ...RETRY, jitter: 0.5 } },
      HOUR,
      years,
    ],
  ]
  for (const [policy, step, until] of lives) {
    for (let seed = 1; seed <= 4; seed++) {
      const { wrong, runs, retries } = live(seed, policy, step, until)
      t.same(wrong, [], `${policy.cron ?? policy.everySeconds}, seed ${seed}: ${runs} runs, ${retries} retries`)
      t.ok(runs > 3)
    }
  }
})
