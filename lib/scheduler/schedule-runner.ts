/**
 * Runs of schedules, from the moment that one is due to the record that is kept of it. Owner: page scheduler/schedule.
 *
 *   due ─► noted on the disk ─► call ─► outcome kept, reported ─► put in the queue again
 *
 * Noted first: a gateway that is killed during a run knows afterwards that it was begun, and does not begin it again.
 */

import type { FunctionVersion, SchedulePolicy } from '../core/catalog.ts'
import { type Clock, within } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import { TRIGGER_HEADER } from '../invocation/forwarded-headers.ts'
import type { InternalRequest, InternalResult } from '../invocation/internal-call.ts'
import type { ScheduleRecord } from '../observe/events.ts'
import type { ScheduleState, ScheduleStore } from './schedule-store.ts'
import { INTERRUPTED, type RunResult, type Schedule } from './schedule.ts'

/** The cause of a run. */
export interface ScheduledRun {
  fn: FunctionVersion
  policy: SchedulePolicy
  /** From 1. */
  attempt: number
  /** True for a run that was requested, not due. */
  isManual: boolean
  signal: AbortSignal
}

export interface ScheduleRunnerOptions {
  clock: Clock
  store: ScheduleStore
  /** Calls the function through its own admission. Never rejects. */
  call: (run: ScheduledRun) => Promise<Pick<InternalResult, 'status' | 'error' | 'latencyMs'>>
  onEvent: (record: ScheduleRecord) => void
  onLog: (level: 'info' | 'warn', message: string) => void
  /** In [0, 1). */
  random?: () => number
}

/** A schedule that may run, one run at a time. */
export interface Runnable {
  readonly schedule: Schedule
  /** Ends its run; null while none goes on. */
  stop: AbortController | null
  /** No config has it any more. */
  isGone: boolean
  /** A run has ended: it may wait for its time again. */
  onIdle(): void
}

export interface RunOutcome extends RunResult {
  latencyMs: number
}

interface BegunRun {
  entry: Runnable
  attempt: number
  /** The state to go back to when it does not take place. */
  before: ScheduleState
}

export class ScheduleRunner {
  readonly #options: ScheduleRunnerOptions
  readonly #random: () => number
  readonly #runs = new Map<Runnable, Promise<unknown>>()
  /** Noted together: all that is due in one turn. */
  #begun: BegunRun[] = []
  #isClosed = false
  #hasProblem = false

  constructor(options: ScheduleRunnerOptions) {
    this.#options = options
    this.#random = options.random ?? Math.random
  }

  /** Begins a run that is due. */
  begin(entry: Runnable, now: number): void {
    const before = entry.schedule.state
    const attempt = entry.schedule.begin(now)
    entry.stop = new AbortController()
    this.#begun.push({ entry, attempt, before })
    if (this.#begun.length === 1) queueMicrotask(() => void this.#start())
  }

  /** Runs a schedule once, now, whatever its times are; its retries and due times stay. @throws GatewayError CONFLICT while it runs */
  async runNow(entry: Runnable): Promise<RunOutcome> {
    const { schedule } = entry
    if (entry.stop !== null) throw new GatewayError('CONFLICT', `the schedule of ${schedule.fn.key} runs right now`)
    entry.stop = new AbortController()
    const run = this.#call(entry, 1, true)
    this.#track(entry, run)
    return run
  }

  /**
   * Keeps states as they are now. Never rejects: the problem is logged once.
   * @returns whether they are kept
   */
  async keep(changes: ReadonlyMap<string, ScheduleState | null>): Promise<boolean> {
    if (changes.size === 0) return true
    try {
      await this.#options.store.save(changes)
      this.#hasProblem = false
      return true
    } catch (error) {
      this.tellProblem(error)
      return false
    }
  }

  tellProblem(error: unknown): void {
    if (!this.#hasProblem)
      this.#options.onLog('warn', `the state of schedules cannot be kept: ${(error as Error).message}`)
    this.#hasProblem = true
  }

  /** Lets runs end within a time, then ends them. */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosed = true
    // Runs that were begun in this turn are noted first.
    await Promise.resolve()
    const ended = this.#ended()
    if ((await within(this.#options.clock, timeoutMs, ended)) === null)
      for (const { stop } of this.#runs.keys()) stop?.abort()
    await ended
  }

  /** @returns true when no run goes on any more */
  async #ended(): Promise<true> {
    while (this.#runs.size > 0) await Promise.all(this.#runs.values())
    return true
  }

  async #start(): Promise<void> {
    const begun = this.#begun
    this.#begun = []
    const kept = this.keep(new Map(begun.map(({ entry }) => [entry.schedule.fn.key, entry.schedule.state])))
    for (const { entry } of begun) this.#track(entry, kept)
    // A gateway that has its schedules to itself runs them even when nothing can be kept.
    const mayRun = (await kept) || !this.#options.store.isShared
    for (const run of begun) {
      const { entry, attempt, before } = run
      if (mayRun && !this.#isClosed && !entry.isGone && entry.schedule.policy !== null) {
        this.#track(entry, this.#call(entry, attempt, false))
        continue
      }
      // It was noted and did not take place.
      entry.schedule.undo(before)
      await this.#settle(entry)
    }
  }

  #track(entry: Runnable, run: Promise<unknown>): void {
    const tracked: Promise<unknown> = run
      .catch(() => {})
      .then(() => {
        if (this.#runs.get(entry) === tracked) this.#runs.delete(entry)
      })
    this.#runs.set(entry, tracked)
  }

  async #call(entry: Runnable, attempt: number, isManual: boolean): Promise<RunOutcome> {
    const { clock, call } = this.#options
    const { schedule } = entry
    const { signal } = entry.stop!
    const { fn } = schedule
    const { status, error, latencyMs } = await call({ fn, policy: schedule.policy!, attempt, isManual, signal })
    // A response of 400 or more is reported by its status.
    const reason = error?.message ?? (status >= 400 ? `HTTP ${status}` : null)
    const result = signal.aborted ? INTERRUPTED : { status, error: reason }
    const now = clock.wall()
    if (isManual) schedule.note(result, now)
    else schedule.end(attempt, result, now, this.#random())
    this.#report(schedule, attempt, result, latencyMs)
    await this.#settle(entry)
    return { ...result, latencyMs }
  }

  /** A schedule has no run any more. */
  async #settle(entry: Runnable): Promise<void> {
    const { schedule } = entry
    entry.stop = null
    entry.onIdle()
    await this.keep(new Map([[schedule.fn.key, entry.isGone ? null : schedule.state]]))
  }

  #report({ fn, policy }: Schedule, attempt: number, { status, error }: RunResult, durationMs: number): void {
    const { clock, onEvent, onLog } = this.#options
    const { runtime, name, key } = fn
    const version = fn.version ?? DEFAULT_VERSION_LABEL
    onEvent({ time: clock.wall(), key, runtime, fn: name, version, status, attempt, durationMs, error })
    if (error === null) return
    const facts = `attempt ${attempt} of ${policy?.retry?.maxAttempts ?? 1}, ${durationMs.toFixed(1)} ms`
    onLog('warn', `schedule of ${key} failed (${facts}): ${error}`)
  }
}

/** @param path - at which the function answers */
export function toScheduledRequest(run: ScheduledRun, id: string, path: string): InternalRequest {
  const { fn, policy, signal } = run
  const { method, query, headers, body, context } = policy
  return {
    fn,
    id,
    method,
    path,
    query,
    headers: { 'user-agent': 'fngw-schedule', ...lowerNames(headers), [TRIGGER_HEADER]: 'schedule' },
    body,
    user: context,
    trigger: toTrigger(run),
    signal,
    mustEnd: true,
  }
}

function toTrigger({ policy, attempt, isManual }: ScheduledRun): Record<string, unknown> {
  const { everySeconds, cron, timezone, retry } = policy
  return {
    type: 'schedule',
    ...(everySeconds === null ? { cron } : { every_seconds: everySeconds }),
    ...(timezone === 'local' ? {} : { timezone }),
    attempt,
    ...(retry === null ? {} : { max_attempts: retry.maxAttempts }),
    ...(isManual ? { manual: true } : {}),
  }
}

function lowerNames(headers: SchedulePolicy['headers']): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))
}

/** A route without params where there is one: a file route has no path of its name alone. */
export function pickPath(fn: FunctionVersion, routes: readonly string[], fallback: string): string {
  return fn.kind === 'file' ? (routes.find(route => !/[:*]/.test(route)) ?? fallback) : fallback
}
