/**
 * Runs of schedules, from the moment that one is due to the record that is kept of it. Owner: page scheduler/schedule.
 *
 *   due ─► noted in the store ─► call, here or at a gateway of the fleet ─► outcome kept, reported ─► put in the queue again
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

/** A run that was noted, for the gateways of a fleet. */
export interface SharedRun {
  /** Of the schedule. */
  key: string
  /** When it was due, wall clock, ms. */
  due: number
  /** Number of the run; 0 for one that was requested. */
  attempt: number
  /** Aborted when another gateway is to follow it. */
  signal: AbortSignal
}

export interface ScheduleRunnerOptions {
  clock: Clock
  store: ScheduleStore
  /** Calls the function through its own admission. Never rejects. */
  call: (run: ScheduledRun) => Promise<CallResult>
  /**
   * Has a noted run done by any gateway of a fleet. It takes place once, even when several gateways ask for it. Null without a fleet.
   * Never rejects. @returns null when another gateway follows it
   */
  share?: ((run: SharedRun) => Promise<RunOutcome | null>) | null
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

type CallResult = Pick<InternalResult, 'status' | 'error' | 'latencyMs'>

/** @param signal - of the run */
export function toRunOutcome({ status, error, latencyMs }: CallResult, signal: AbortSignal): RunOutcome {
  if (signal.aborted) return { ...INTERRUPTED, latencyMs }
  // A response of 400 or more is reported by its status.
  return { status, error: error?.message ?? (status >= 400 ? `HTTP ${status}` : null), latencyMs }
}

interface BegunRun {
  entry: Runnable
  /** The state to go back to when it does not take place. */
  before: ScheduleState
}

export class ScheduleRunner {
  readonly #options: ScheduleRunnerOptions
  readonly #random: () => number
  readonly #share: NonNullable<ScheduleRunnerOptions['share']> | null
  readonly #runs = new Map<Runnable, Promise<unknown>>()
  /** Noted together: all that is due in one turn. */
  #begun: BegunRun[] = []
  #isClosed = false
  #hasProblem = false

  constructor(options: ScheduleRunnerOptions) {
    this.#options = options
    this.#random = options.random ?? Math.random
    this.#share = options.share ?? null
  }

  /** Begins a run that is due. */
  begin(entry: Runnable, now: number): void {
    const before = entry.schedule.state
    entry.schedule.begin(now)
    entry.stop = new AbortController()
    this.#begun.push({ entry, before })
    if (this.#begun.length === 1) queueMicrotask(() => void this.#start())
  }

  /**
   * Runs a schedule once, now, whatever its times are; its retries and due times stay.
   * @param isLeading - false where no gateway runs schedules by their times: the run is not noted
   * @throws GatewayError CONFLICT while it runs, RUNTIME_DOWN when another gateway took over the schedules
   */
  async runNow(entry: Runnable, isLeading: boolean): Promise<RunOutcome> {
    const { schedule } = entry
    if (entry.stop !== null) throw new GatewayError('CONFLICT', `the schedule of ${schedule.fn.key} runs right now`)
    entry.stop = new AbortController()
    const before = schedule.state
    schedule.beginNow(this.#options.clock.wall())
    const run = this.#runNow({ entry, before }, isLeading)
    this.#track(entry, run)
    return run
  }

  /** Follows a run that another gateway of the fleet has noted. */
  resume(entry: Runnable): void {
    entry.stop = new AbortController()
    this.#track(entry, this.#call(entry, true))
  }

  /** Another gateway follows the runs that go on. */
  leave(): void {
    for (const { stop } of this.#runs.keys()) stop?.abort()
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

  /** Lets runs end within a time, then ends them. Those of a fleet go on. */
  async close(timeoutMs: number): Promise<void> {
    const { clock } = this.#options
    this.#isClosed = true
    // Runs that were begun in this turn are noted first.
    await Promise.resolve()
    const ended = this.#ended()
    if (this.#share !== null || (await within(clock, timeoutMs, ended)) === null) this.leave()
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
      const { entry } = run
      if (mayRun && !this.#isClosed && !entry.isGone && entry.schedule.policy !== null)
        this.#track(entry, this.#call(entry, true))
      else await this.#undo(run)
    }
  }

  /** It was noted and did not take place. */
  async #undo({ entry, before }: BegunRun): Promise<void> {
    entry.schedule.undo(before)
    await this.#settle(entry)
  }

  async #runNow(run: BegunRun, isLeading: boolean): Promise<RunOutcome> {
    const { entry } = run
    const { key } = entry.schedule.fn
    const isNoted = isLeading && (await this.keep(new Map([[key, entry.schedule.state]])))
    if (isLeading && !isNoted && this.#options.store.isShared) {
      await this.#undo(run)
      throw new GatewayError('RUNTIME_DOWN', `the run of ${key} could not be noted, so it did not begin`)
    }
    const outcome = await this.#call(entry, isNoted)
    if (outcome !== null) return outcome
    throw new GatewayError('RUNTIME_DOWN', `another gateway follows the run of ${key}: its schedule shows the outcome`)
  }

  #track(entry: Runnable, run: Promise<unknown>): void {
    const tracked: Promise<unknown> = run
      .catch(() => {})
      .then(() => {
        if (this.#runs.get(entry) === tracked) this.#runs.delete(entry)
      })
    this.#runs.set(entry, tracked)
  }

  /** @returns null when another gateway follows the run */
  async #call(entry: Runnable, isNoted: boolean): Promise<RunOutcome | null> {
    const { clock, call } = this.#options
    const { schedule } = entry
    const { signal } = entry.stop!
    const { fn, policy } = schedule
    const { running, runningDue } = schedule.state
    const attempt = Math.max(1, running!)
    const outcome =
      this.#share !== null && isNoted
        ? await this.#share({ key: fn.key, due: runningDue!, attempt: running!, signal })
        : toRunOutcome(await call({ fn, policy: policy!, attempt, isManual: running === 0, signal }), signal)
    if (outcome === null) {
      entry.stop = null
      entry.onIdle()
      return null
    }
    schedule.end(outcome, clock.wall(), this.#random())
    const isKept = await this.#settle(entry)
    // Otherwise the next leader finds the outcome, and reports it.
    if (isKept || this.#share === null) this.#report(schedule, attempt, outcome)
    return outcome
  }

  /** A schedule has no run any more. @returns whether that is kept */
  async #settle(entry: Runnable): Promise<boolean> {
    const { schedule } = entry
    entry.stop = null
    entry.onIdle()
    return this.keep(new Map([[schedule.fn.key, entry.isGone ? null : schedule.state]]))
  }

  #report({ fn, policy }: Schedule, attempt: number, { status, error, latencyMs: durationMs }: RunOutcome): void {
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
