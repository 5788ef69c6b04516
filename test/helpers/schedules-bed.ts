import type { FunctionVersion, SchedulePolicy } from '../../lib/core/catalog.ts'
import type { GatewayError, Warning } from '../../lib/core/errors.ts'
import type { ScheduleRecord } from '../../lib/observe/events.ts'
import type { ScheduledRun, ScheduleRunnerOptions } from '../../lib/scheduler/schedule-runner.ts'
import type { KeptStates, ScheduleState, ScheduleStore } from '../../lib/scheduler/schedule-store.ts'
import { WorkQueue } from '../../lib/scheduler/keep-warm.ts'
import { Schedules } from '../../lib/scheduler/scheduler.ts'
import type { FakeClock } from './clock.ts'
import { makeFn } from './fn.ts'

export const SCHEDULE: SchedulePolicy = {
  enabled: true,
  everySeconds: 60,
  cron: null,
  timezone: 'UTC',
  method: 'GET',
  query: {},
  headers: {},
  body: null,
  context: null,
  retry: null,
}

export const RETRY = { maxAttempts: 3, baseDelaySeconds: 10, maxDelaySeconds: 30, jitter: 0 }

export function scheduled(name: string, policy: Partial<SchedulePolicy> = {}, signature = '1'): FunctionVersion {
  return makeFn({ name, signature, policy: { schedule: { ...SCHEDULE, ...policy } } })
}

/** A store that outlives whoever uses it; what was not saved is lost with the one who forgot it. */
export class MemoryStore implements ScheduleStore {
  isShared = false
  onLost: (() => void) | null = null
  readonly kept = new Map<string, ScheduleState>()
  heldBy: string | null = null
  /** Set: no gateway can have them. */
  problem: string | null = null
  warnings: Warning[] = []
  elsewhere: ReadonlySet<string> = new Set()
  /** Set: saving fails with it. */
  broken: Error | null = null
  saves = 0
  flushes = 0
  closed = 0
  #isOpen = false

  async open(): ReturnType<ScheduleStore['open']> {
    if (this.problem !== null) return { problem: this.problem }
    if (this.heldBy !== null) return { heldBy: this.heldBy }
    this.#isOpen = true
    return { states: new Map(this.kept), elsewhere: this.elsewhere, warnings: this.warnings }
  }

  async peek(): Promise<ReadonlyMap<string, ScheduleState>> {
    return this.kept
  }

  async save(changes: KeptStates): Promise<void> {
    if (!this.#isOpen) return
    this.saves += 1
    if (this.broken !== null) throw this.broken
    for (const [key, state] of changes) {
      if (state === null) this.kept.delete(key)
      else this.kept.set(key, { ...state })
    }
  }

  async flush(): Promise<void> {
    this.flushes += 1
    if (this.broken !== null) throw this.broken
  }

  async close(): Promise<void> {
    this.closed += 1
  }
}

interface Running {
  run: ScheduledRun
  end: (status: number, error?: GatewayError | null) => void
}

/** Schedules on a held clock. Their calls end when the test says so, or at once with `answer`. */
export function makeSchedules(
  store: MemoryStore,
  clock: FakeClock,
  {
    enabled = true,
    random = () => 0.5,
    share = null,
  }: { enabled?: boolean; random?: () => number; share?: ScheduleRunnerOptions['share'] } = {},
) {
  const running: Running[] = []
  const calls: string[] = []
  const events: ScheduleRecord[] = []
  const logs: string[] = []
  const bed = { answer: null as ((run: ScheduledRun) => number) | null }
  const queue: WorkQueue = new WorkQueue({ clock, tickMs: 1000, onSetBack: now => schedules.setBack(now) })
  const schedules: Schedules = new Schedules({
    clock,
    queue,
    store,
    enabled,
    random,
    share,
    persistMs: 15_000,
    call: run => {
      calls.push(`${run.fn.name} ${run.attempt}`)
      const { answer } = bed
      if (answer !== null) return Promise.resolve({ status: answer(run), error: null, latencyMs: 1 })
      return new Promise(resolve => {
        const end: Running['end'] = (status, error = null) => resolve({ status, error, latencyMs: 1 })
        running.push({ run, end })
        run.signal.addEventListener('abort', () => end(0))
      })
    },
    onEvent: record => events.push(record),
    onLog: (level, message) => logs.push(`${level} ${message}`),
  })
  const adopt = (...fns: FunctionVersion[]): void => schedules.adopt(new Map(fns.map(fn => [fn.key, fn])))
  const start = async (): Promise<void> => {
    await schedules.start()
    queue.start()
  }
  /** Time passes a tick at a time, and what began in a tick gets as far as it can. */
  const pass = async (ms: number): Promise<void> => {
    await settle()
    for (let left = ms; left > 0; left -= 1000) {
      clock.advance(Math.min(left, 1000))
      await settle()
    }
  }
  /** Ends what runs, as a stop that leaves no time does. */
  const close = async (): Promise<void> => {
    queue.stop()
    const closing = schedules.close(0)
    await settle()
    clock.advance(0)
    await closing
  }
  return Object.assign(bed, { close, schedules, queue, clock, store, running, calls, events, logs, adopt, start, pass })
}

/** Lets everything go on that waits for nothing but promises. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 4; i++) await new Promise(setImmediate)
}
