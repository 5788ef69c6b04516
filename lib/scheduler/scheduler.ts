/**
 * The scheduler of a gateway: one clock and one queue for schedules and for the pings that keep functions warm.
 * Spec: page scheduler/scheduler.
 */

import type { FunctionVersion, SchedulePolicy } from '../core/catalog.ts'
import { Timer } from '../core/clock.ts'
import { GatewayError, type Warning } from '../core/errors.ts'
import { KeepWarm, type PingOutcome, type Work, WorkQueue } from './keep-warm.ts'
import { type Runnable, type RunOutcome, ScheduleRunner, type ScheduleRunnerOptions } from './schedule-runner.ts'
import type { ScheduleState } from './schedule-store.ts'
import { Rules, Schedule } from './schedule.ts'

interface SchedulerOptions extends Omit<SchedulesOptions, 'queue'> {
  /** Milliseconds between two ticks. */
  tickMs: number
  /** Calls a function to keep it warm. Never rejects. */
  ping: (fn: FunctionVersion) => Promise<PingOutcome>
}

export class Scheduler {
  readonly schedules: Schedules
  readonly keepWarm: KeepWarm
  readonly #enabled: boolean
  readonly #queue: WorkQueue

  constructor(options: SchedulerOptions) {
    const { clock, tickMs, enabled, ping } = options
    this.#enabled = enabled
    this.#queue = new WorkQueue({ clock, tickMs, onSetBack: now => this.#setBack(now) })
    this.schedules = new Schedules({ ...options, queue: this.#queue })
    this.keepWarm = new KeepWarm({ clock, queue: this.#queue, ping })
  }

  get warnings(): readonly Warning[] {
    return this.schedules.warnings
  }

  /** Takes the functions of a new catalog. */
  adopt(functions: ReadonlyMap<string, FunctionVersion>): void {
    this.schedules.adopt(functions)
    this.keepWarm.adopt(functions)
  }

  /** Begins to run what is due. Never rejects. */
  async start(): Promise<void> {
    await this.schedules.start()
    if (this.#enabled) this.#queue.start()
  }

  /** Begins nothing any more. In a fleet another gateway leads from now on. */
  stop(): void {
    this.#queue.stop()
    this.schedules.handOver()
  }

  /** Lets runs end within a time, and keeps the state. */
  async close(timeoutMs: number): Promise<void> {
    this.#queue.stop()
    await this.schedules.close(timeoutMs)
  }

  #setBack(now: number): void {
    this.schedules.setBack(now)
    this.keepWarm.setBack(now)
  }
}

/** Milliseconds until schedules that another gateway runs are asked for again. */
export const TAKEOVER_MS = 5000

interface SchedulesOptions extends ScheduleRunnerOptions {
  queue: WorkQueue
  /** False: nothing runs by itself. */
  enabled: boolean
  /** Milliseconds between two writings of the whole state. */
  persistMs: number
}

/** One schedule as it is shown. */
export interface ScheduleRow {
  fn: FunctionVersion
  /** null for one that is wrong. */
  policy: SchedulePolicy | null
  problem: string | null
  state: Readonly<ScheduleState>
  /** `next` in the zone of the schedule; null without one. */
  rule: Schedule['rule']
  isRunning: boolean
}

function isScheduled({ policy }: FunctionVersion): boolean {
  return policy.schedule !== null || policy.scheduleProblem !== null
}

class Entry implements Work, Runnable {
  heapIndex = -1
  dueAt = Infinity
  stop: AbortController | null = null
  isGone = false
  readonly schedule: Schedule
  readonly onDue: (now: number) => void
  readonly onIdle: () => void

  constructor(fn: FunctionVersion, onDue: (entry: Entry, now: number) => void, onIdle: (entry: Entry) => void) {
    this.schedule = new Schedule(fn)
    this.onDue = now => onDue(this, now)
    this.onIdle = () => onIdle(this)
  }
}

/** The schedules of a gateway: takes them from the catalog, queues them, and keeps their state. */
export class Schedules {
  readonly #options: SchedulesOptions
  readonly #runner: ScheduleRunner
  readonly #rules = new Rules()
  readonly #random: () => number
  readonly #entries = new Map<string, Entry>()
  /** Stored states that no function has taken yet; null before the store was read. */
  #kept: Map<string, ScheduleState> | null = null
  /** How runs of earlier processes, or of other gateways, went, where schedules do not run here. */
  #past: ReadonlyMap<string, ScheduleState> = new Map()
  #opening: Promise<void> | null = null
  readonly #takeover: Timer
  readonly #flushTimer: Timer
  #isStarted = false
  #isClosed = false
  #heldBy: string | null = null
  /** Why no gateway can run schedules now, such as a store that is away; null otherwise. */
  #problem: string | null = null
  /** Keys of schedules that another gateway runs, although this one runs others. */
  #elsewhere: ReadonlySet<string> = new Set()
  #warnings: readonly Warning[] = []

  constructor(options: SchedulesOptions) {
    this.#options = options
    this.#takeover = new Timer(options.clock, true)
    this.#flushTimer = new Timer(options.clock, true)
    this.#runner = new ScheduleRunner(options)
    this.#random = options.random ?? Math.random
    options.store.onLost = () => this.#handleLost()
  }

  get warnings(): readonly Warning[] {
    // In a fleet one gateway runs the schedules of all.
    const isExpected = this.#heldBy === null || this.#options.store.isShared
    if (isExpected || this.#entries.size === 0) return this.#warnings
    const message = `schedules do not run here: another gateway of this root runs them (${this.#heldBy})`
    const hint = 'They run here as soon as that one has ended.'
    return [...this.#warnings, { code: 'SCHEDULES_ELSEWHERE', path: '.svc/gateway.lock', message, hint }]
  }

  /** Takes the functions of a catalog. Those that are gone are forgotten; the unchanged ones go on. */
  adopt(functions: ReadonlyMap<string, FunctionVersion>): void {
    const now = this.#options.clock.wall()
    const changes = new Map<string, ScheduleState | null>()
    const rules = new Set<string>()
    for (const fn of functions.values()) {
      if (!isScheduled(fn)) continue
      const entry = this.#take(fn, now)
      if (entry.hasChanged && !this.#elsewhere.has(fn.key)) changes.set(fn.key, entry.schedule.state)
      rules.add(entry.schedule.state.rule)
    }
    for (const [key, entry] of this.#entries) {
      const fn = functions.get(key)
      if (fn !== undefined && isScheduled(fn)) continue
      this.#forget(key, entry)
      // One that runs stays noted until its run ends.
      if (entry.stop === null) changes.set(key, null)
    }
    // Another rule is a change; most reloads have none.
    if (changes.size > 0) this.#rules.retain(rules)
    if (this.#kept !== null) void this.#runner.keep(changes)
    if (this.#isStarted) void this.#open()
  }

  /** Runs what is due from now on. Resolves when what earlier processes kept is read; never rejects. */
  async start(): Promise<void> {
    this.#isStarted = this.#options.enabled
    if (this.#isStarted) return this.#open()
    await this.#readPast()
  }

  /** The clock was set back. */
  setBack(now: number): void {
    for (const entry of this.#entries.values()) {
      entry.schedule.setBack(now)
      this.#place(entry)
    }
  }

  /** Lets runs end within a time, then ends them, and keeps everything. */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosed = true
    const { store, queue } = this.#options
    this.#takeover.clear()
    this.#flushTimer.clear()
    for (const entry of this.#entries.values()) queue.remove(entry)
    await this.#opening
    await this.#runner.close(timeoutMs)
    await store.close()
  }

  /** Lets another gateway of a fleet follow the runs, before this one has ended its requests. */
  handOver(): void {
    if (this.#options.share) void this.close(0)
  }

  /** Reads how the last runs of schedules went that another gateway of a fleet runs. Never rejects. */
  async refresh(): Promise<void> {
    const isElsewhere = this.#kept === null || this.#elsewhere.size > 0
    if (this.#options.store.isShared && isElsewhere) await this.#readPast()
  }

  /** By key. */
  rows(): ScheduleRow[] {
    const rows = [...this.#entries.values()].filter(({ isGone }) => !isGone).map(toRow)
    return rows.sort((a, b) => (a.fn.key < b.fn.key ? -1 : 1))
  }

  /** The schedule of a function. @throws GatewayError NOT_FOUND when it has none that could run */
  rowOf(fn: FunctionVersion): ScheduleRow {
    return toRow(this.#find(fn))
  }

  /** Runs a schedule once, now. @throws GatewayError NOT_FOUND, CONFLICT while it runs, here or in another gateway */
  async runNow(fn: FunctionVersion): Promise<RunOutcome> {
    const entry = this.#find(fn)
    if (this.#isClosed) throw new GatewayError('SHUTTING_DOWN', 'gateway is shutting down')
    if (entry.schedule.policy === null) throw new GatewayError('CONFLICT', `the schedule of ${fn.key} is switched off`)
    if (this.#opening !== null) await this.#opening
    if (this.#problem !== null)
      throw new GatewayError('RUNTIME_DOWN', this.#problem, { headers: { 'Retry-After': `${TAKEOVER_MS / 1000}` } })
    if (this.#heldBy !== null)
      throw new GatewayError('CONFLICT', `another gateway runs the schedules of this root (${this.#heldBy})`)
    if (this.#elsewhere.has(fn.key))
      throw new GatewayError('CONFLICT', `a gateway of a newer release runs the schedule of ${fn.key}`)
    this.#options.queue.remove(entry)
    return this.#runner.runNow(entry, this.#kept !== null)
  }

  #find(fn: FunctionVersion): Entry {
    const entry = this.#entries.get(fn.key)
    if (entry === undefined || entry.isGone) throw new GatewayError('NOT_FOUND', `${fn.key} has no schedule`)
    const { scheduleProblem: problem } = entry.schedule.fn.policy
    if (problem !== null) throw new GatewayError('CONFLICT', `the schedule of ${fn.key} is not used: ${problem}`)
    return entry
  }

  #take(fn: FunctionVersion, now: number): { schedule: Schedule; hasChanged: boolean } {
    let entry = this.#entries.get(fn.key)
    const isNew = entry === undefined
    entry ??= new Entry(
      fn,
      (one, at) => this.#runner.begin(one, at),
      one => this.#onIdle(one),
    )
    this.#entries.set(fn.key, entry)
    entry.isGone = false
    const { schedule } = fn.policy
    const policy = schedule?.enabled === true ? schedule : null
    const rule = policy === null ? null : this.#rules.of(policy)
    const hasChanged = entry.schedule.adopt(fn, policy, rule, now)
    if (isNew) this.#restore(entry, now)
    if (isNew) this.#recall(entry)
    this.#place(entry)
    return { schedule: entry.schedule, hasChanged: hasChanged || isNew }
  }

  /** One that runs is forgotten when its run ends: it does not begin again beside it when the config comes back. */
  #forget(key: string, entry: Entry): void {
    entry.isGone = true
    this.#options.queue.remove(entry)
    if (entry.stop === null) this.#entries.delete(key)
  }

  #onIdle(entry: Entry): void {
    if (entry.isGone) this.#entries.delete(entry.schedule.fn.key)
    else this.#place(entry)
  }

  #place(entry: Entry): void {
    const { queue } = this.#options
    const due = entry.schedule.nextDue
    const isHere = this.#kept !== null && !this.#elsewhere.has(entry.schedule.fn.key)
    const waits = isHere && !this.#isClosed && entry.stop === null && !entry.isGone && due < Infinity
    if (waits) queue.put(entry, due)
    else queue.remove(entry)
  }

  #open(): Promise<void> {
    // A release without schedules takes over too: those of an older one are known by what it has not.
    const hasUse = this.#entries.size > 0 || this.#options.store.isShared
    const isNeeded = this.#kept === null && !this.#isClosed && hasUse && !this.#takeover.isSet
    if (isNeeded) this.#opening ??= this.#openNow().finally(() => (this.#opening = null))
    return this.#opening ?? Promise.resolve()
  }

  async #openNow(): Promise<void> {
    const { clock, store } = this.#options
    const opened = await store.open()
    if (this.#isClosed) return
    if ('problem' in opened) {
      if (this.#problem === null && this.#entries.size > 0)
        this.#options.onLog('warn', `no gateway can run the schedules: ${opened.problem}`)
      this.#problem = opened.problem
      this.#heldBy = null
      this.#takeover.set(TAKEOVER_MS, () => void this.#open())
      return
    }
    this.#problem = null
    if ('heldBy' in opened) {
      if (this.#heldBy === null && this.#entries.size > 0)
        this.#options.onLog(store.isShared ? 'info' : 'warn', `another gateway runs the schedules (${opened.heldBy})`)
      this.#heldBy = opened.heldBy
      this.#takeover.set(TAKEOVER_MS, () => void this.#open())
      return
    }
    this.#heldBy = null
    this.#warnings = opened.warnings
    for (const { message } of opened.warnings) this.#options.onLog('warn', message)
    this.#kept = opened.states
    this.#elsewhere = opened.elsewhere ?? new Set()
    const now = clock.wall()
    const changes = new Map<string, ScheduleState | null>()
    for (const [key, entry] of this.#entries) {
      if (this.#restore(entry, now)) this.#runner.resume(entry)
      if (!this.#elsewhere.has(key)) changes.set(key, entry.schedule.state)
      this.#place(entry)
    }
    // Of functions that went while no gateway was there.
    for (const key of opened.states.keys()) changes.set(key, null)
    opened.states.clear()
    await this.#runner.keep(changes)
    if (this.#isClosed) return
    this.#flushTimer.repeat(this.#options.persistMs, () => {
      store.flush().catch(error => this.#runner.tellProblem(error))
    })
  }

  /** Another gateway runs the schedules now; it is asked again and again whether it has ended. */
  #handleLost(): void {
    this.#flushTimer.clear()
    this.#kept = null
    if (this.#options.store.isShared) this.#runner.leave()
    for (const entry of this.#entries.values()) this.#place(entry)
    void this.#open()
  }

  /** @returns true for a run that another gateway of the fleet has begun, and that is to be followed here */
  #restore(entry: Entry, now: number): boolean {
    const { key } = entry.schedule.fn
    const kept = this.#kept?.get(key)
    if (kept === undefined) return false
    this.#kept!.delete(key)
    const isNoted = this.#options.share != null && kept.running !== null && kept.runningDue !== null
    const goesOn = isNoted && entry.stop === null && !this.#elsewhere.has(key)
    entry.schedule.restore(kept, now, this.#random(), goesOn)
    return goesOn
  }

  async #readPast(): Promise<void> {
    this.#past = await this.#options.store.peek()
    for (const [key, entry] of this.#entries) if (this.#kept === null || this.#elsewhere.has(key)) this.#recall(entry)
  }

  #recall({ schedule }: Entry): void {
    const past = this.#past.get(schedule.fn.key)
    if (past !== undefined) schedule.recall(past)
  }
}

function toRow({ schedule, stop }: Entry): ScheduleRow {
  const { fn, state, rule } = schedule
  return { fn, policy: fn.policy.schedule, problem: fn.policy.scheduleProblem, state, rule, isRunning: stop !== null }
}

//
