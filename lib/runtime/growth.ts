/** How many workers to add while calls of a function wait for one. Owner: §2.8, page runtime/worker-set. */

import { readFileSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { dirname, join } from 'node:path'
import { setImmediate as afterPolling } from 'node:timers/promises'
import { backoffDelay, type Clock, Timer } from '../core/clock.ts'
import { type GatewayError, orNull } from '../core/errors.ts'
import type { Worker } from './worker.ts'

/** Milliseconds a call waits while others are answered before a worker is added for it. */
const SLOW_WAIT_MS = 50
/** Milliseconds from one reading to the beginning of another that is compared with it, at least and at most. */
const WINDOW_MS = { min: 25, max: 250 } as const
/** Milliseconds until workers that compute are read again. */
const COMPUTING_MS = 100
/** Workers of a function that are read. */
const SAMPLE = 4
/** Share of the time in which workers have to wait for something else than a processor, if they hardly ran. */
const LEAST_WAIT = 0.1

interface Look {
  /** Monotonic ms. */
  now: number
  /** Answers of all workers so far. */
  answers: number
  workerCount: number
  /** When the oldest call that waits began to; null when none waits. */
  waitsSince: number | null
}

type Occupation = 'computing' | 'waiting'

/** Milliseconds since a process began; of all its threads. */
export interface ProcessorTime {
  ranMs: number
  /** It could have run and waited for a processor; added when it gets one. */
  queuedMs: number
  /** It runs or waits for a processor right now. */
  isRunnable: boolean
}

/** A reading of the processor time of worker processes. */
export interface Reading {
  /** Monotonic ms. */
  at: number
  times: ReadonlyMap<number, ProcessorTime>
  /** Processes that had the same oldest call before and after the reading: the others are waiting for the gateway. */
  held: ReadonlySet<number>
}

interface BusyWorker {
  readonly pid: number | null
  readonly inflight: { readonly first: unknown }
}

/** Processors as the growth of functions sees them. */
export interface Processors {
  count: number
  /** Resolves when answers that were there before are read. */
  read(pids: readonly number[]): Promise<ReadonlyMap<number, ProcessorTime>>
}

/**
 * Computing when the workers ran for longer than they waited for something else than a processor. Time in which they waited
 * for a processor counts for neither, so that it does not matter what else the machine does; nor does time without a call.
 */
export function toOccupation(before: Reading, after: Reading): Occupation {
  const windowMs = after.at - before.at
  let ranMs = 0
  let waitedMs = 0
  let count = 0
  for (const [pid, time] of after.times) {
    const start = before.times.get(pid)
    if (start === undefined) continue
    const ran = time.ranMs - start.ranMs
    ranMs += ran
    // The system has not counted yet how long one has waited that still waits for a processor.
    if (after.held.has(pid) && !(start.isRunnable && time.isRunnable))
      waitedMs += Math.max(0, windowMs - ran - (time.queuedMs - start.queuedMs))
    count += 1
  }
  return count > 0 && waitedMs < Math.max(ranMs, count * windowMs * LEAST_WAIT) ? 'computing' : 'waiting'
}

export class Growth {
  readonly #clock: Clock
  readonly #processors: Processors | null
  #answersAtLastLook = -1
  #addedAt = Number.NEGATIVE_INFINITY
  #reading: Reading | null = null
  #isReading = false
  /** Not used yet; one that says `computing` is used for a while. */
  #occupation: { is: Occupation; at: number } | null = null
  #latest: Occupation | null = null

  constructor(clock: Clock, processors: Processors | null) {
    this.#clock = clock
    this.#processors = processors
  }

  /** The latest decision; null when it never came to one. */
  get decision(): { decision: Occupation; processors: number } | null {
    const [decision, processors] = [this.#latest, this.#processors]
    return decision === null || processors === null ? null : { decision, processors: processors.count }
  }

  /** Looks begin: calls have begun to wait. @param answers - null lets the first look take the workers for busy */
  begin(answers: number | null): void {
    this.#answersAtLastLook = answers ?? -1
  }

  /**
   * How many calls that wait ask for: as many as there are when nothing was answered since the last look. While answers keep
   * coming the processors are the limit, and more workers would only share them; one is added for a call that waits long all
   * the same. Two looks are compared, because a single one may fall between an answer's arrival and its reading.
   */
  toAdd({ now, answers, workerCount, waitsSince }: Look): number {
    const isFlowing = answers !== this.#answersAtLastLook
    this.#answersAtLastLook = answers
    if (!isFlowing) return Math.max(1, workerCount)
    return waitsSince !== null && now - waitsSince >= SLOW_WAIT_MS && now - this.#addedAt >= SLOW_WAIT_MS ? 1 : 0
  }

  noteAdded(now: number): void {
    this.#addedAt = now
    if (this.#occupation?.is === 'waiting') this.#occupation = null
  }

  /**
   * How many workers there may be as far as processors are concerned: one for each, more while those there are wait.
   * @param workers - that are busy; those without a known process count as waiting
   * @returns null while it is being found out
   */
  limit(now: number, workerCount: number, workers: readonly BusyWorker[]): number | null {
    const count = this.#processors?.count ?? Number.POSITIVE_INFINITY
    if (workerCount < count) return count
    const known = this.#processors === null ? [] : workers.filter(({ pid }) => pid !== null)
    const occupation = known.length === 0 ? 'waiting' : this.#occupationAt(now, known)
    if (occupation === null) return null
    this.#latest = occupation
    return occupation === 'computing' ? count : Number.POSITIVE_INFINITY
  }

  #occupationAt(now: number, workers: readonly BusyWorker[]): Occupation | null {
    const known = this.#occupation
    if (known !== null && now - known.at < COMPUTING_MS) return known.is
    const age = now - (this.#reading?.at ?? Number.NEGATIVE_INFINITY)
    if (!this.#isReading && age >= WINDOW_MS.min)
      void this.#read(workers.slice(0, SAMPLE), age <= WINDOW_MS.max ? this.#reading : null)
    return null
  }

  async #read(workers: readonly BusyWorker[], before: Reading | null): Promise<void> {
    this.#isReading = true
    const sample = workers.map(({ pid, inflight }) => ({ pid: pid!, inflight, call: inflight.first }))
    const times = await this.#processors!.read(sample.map(({ pid }) => pid))
    const at = this.#clock.monotonic()
    const held = new Set<number>()
    for (const { pid, inflight, call } of sample) if (inflight.first === call) held.add(pid)
    this.#reading = { at, times, held }
    this.#isReading = false
    if (times.size === 0) this.#occupation = { is: 'waiting', at }
    else if (before !== null) this.#occupation = { is: toOccupation(before, this.#reading), at }
  }
}

// The processors that workers may use, and what worker processes of this machine did with their time.

const CGROUP_ROOT = '/sys/fs/cgroup'
const NS_PER_MS = 1e6

/** By process id, with what its children did: a worker stands behind a guard. A process without readable figures is left out. */
async function readProcessorTimes(pids: readonly number[]): Promise<ReadonlyMap<number, ProcessorTime>> {
  const found = new Map<number, ProcessorTime>()
  await Promise.all(
    pids.map(async pid => {
      const time = { ranMs: 0, queuedMs: 0, isRunnable: false }
      const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'latin1').catch(() => '')
      const isKnown = await Promise.all(
        [String(pid), ...children.split(' ').filter(Boolean)].map(one => add(one, time)),
      )
      if (isKnown.every(Boolean)) found.set(pid, time)
    }),
  )
  // The rest of a poll phase: answers that arrived meanwhile.
  await afterPolling()
  return found
}

/** @returns false if the system has no such figures */
async function add(pid: string, time: ProcessorTime): Promise<boolean> {
  try {
    const threads = await readdir(`/proc/${pid}/task`)
    await Promise.all(
      threads.map(async thread => {
        const folder = `/proc/${pid}/task/${thread}`
        const [text, state] = await Promise.all([
          readFile(`${folder}/schedstat`, 'latin1'),
          readFile(`${folder}/stat`, 'latin1'),
        ])
        const [ran, queued] = text.split(' ').map(Number)
        time.ranMs += ran! / NS_PER_MS
        time.queuedMs += queued! / NS_PER_MS
        // The name before it may have brackets itself.
        if (state.startsWith(') R', state.lastIndexOf(')'))) time.isRunnable = true
      }),
    )
    return true
  } catch {
    return false
  }
}

/** @param processes - of the gateway, each with separate workers */
export function systemProcessors(processes = 1): Processors {
  return { count: Math.ceil(countProcessors() / processes), read: readProcessorTimes }
}

/** The smaller of the two, rounded up. @param quotas - texts of `cpu.max` files: `<microseconds | max> <period>` */
export function toProcessors(parallelism: number, quotas: readonly string[]): number {
  const counts = quotas.map(text => {
    const [quota, period] = text.trim().split(' ').map(Number)
    return quota! > 0 && period! > 0 ? quota! / period! : Number.POSITIVE_INFINITY
  })
  return Math.max(1, Math.ceil(Math.min(parallelism, ...counts)))
}

function countProcessors(): number {
  const path = /^0::(\/.*)$/m.exec(readOrEmpty('/proc/self/cgroup'))?.[1] ?? '/'
  const quotas: string[] = []
  // Each level may have a quota.
  for (let folder = path; ; folder = dirname(folder)) {
    quotas.push(readOrEmpty(join(CGROUP_ROOT, folder, 'cpu.max')))
    if (dirname(folder) === folder) return toProcessors(availableParallelism(), quotas)
  }
}

function readOrEmpty(path: string): string {
  return orNull(() => readFileSync(path, 'latin1')) ?? ''
}

// Keeps some workers of a function started, and ends others that had no call for long.

interface WarmOptions {
  clock: Clock
  crashLoop: CrashLoop
  /** Workers that stay however long they idle. */
  minWarm: number
  idleTtlMs: number
  /** In the order they were started; one that is stopped leaves it. */
  workers: readonly Worker[]
  /** True while one has to stay, whatever `minWarm` is. */
  isLent?(): boolean
  /** False where none may start now; who changes that calls `fill`. */
  mayStart(): boolean
  start(): void
}

export class WarmWorkers {
  /** Workers that stay however long they idle. */
  wanted: number
  readonly #options: WarmOptions
  readonly #startTimer: Timer
  readonly #idleTimer: Timer

  constructor(options: WarmOptions) {
    this.wanted = options.minWarm
    this.#options = options
    this.#startTimer = new Timer(options.clock)
    this.#idleTimer = new Timer(options.clock, true)
  }

  /** Starts those that are missing, at once or when starts are no longer delayed. */
  fill(): void {
    const { clock, crashLoop, workers, mayStart, start } = this.#options
    if (!mayStart()) return
    for (let missing = this.wanted - workers.length; missing > 0; missing--) {
      const now = clock.monotonic()
      if (crashLoop.errorAt(now) !== null) {
        this.fillLater(crashLoop.blockedUntil - now)
        return
      }
      start()
    }
  }

  fillLater(delayMs: number): void {
    const { length } = this.#options.workers
    if (!this.#startTimer.isSet && length < this.wanted) this.#startTimer.set(delayMs, () => this.fill())
  }

  watchIdle(): void {
    const { workers, idleTtlMs } = this.#options
    if (!this.#idleTimer.isSet && workers.length > this.#kept) this.#lookIn(idleTtlMs)
  }

  end(): void {
    this.wanted = 0
    this.#startTimer.clear()
  }

  close(): void {
    this.end()
    this.#idleTimer.clear()
  }

  get #kept(): number {
    return Math.max(this.wanted, this.#options.isLent?.() === true ? 1 : 0)
  }

  #lookIn(delayMs: number): void {
    this.#idleTimer.set(Math.max(1, delayMs), () => this.#look())
  }

  #look(): void {
    const { clock, workers, idleTtlMs } = this.#options
    const kept = this.#kept
    const now = clock.monotonic()
    let next = Number.POSITIVE_INFINITY
    // From the back: the first workers are the ones that calls are given to.
    for (let i = workers.length - 1; i >= 0 && workers.length > kept; i--) {
      const worker = workers[i]!
      if (worker.state !== 'ready' || worker.inflight.size > 0) continue
      const left = worker.isDebugged ? idleTtlMs : worker.idleSince + idleTtlMs - now
      if (left <= 0) worker.stop()
      else next = Math.min(next, left)
    }
    if (next !== Number.POSITIVE_INFINITY && workers.length > kept) this.#lookIn(next)
  }
}

// When workers of a function that fails again and again may start once more: after a few failures in a row each one
// doubles the wait.

/** Failures in a row before starts are delayed, and the delays, milliseconds. */
const CRASH_LOOP = { tolerated: 3, first: 100, max: 5000 } as const

export class CrashLoop {
  readonly #clock: Clock
  #failures = 0
  #lastError: GatewayError | null = null
  /** Monotonic ms until which nothing starts. */
  blockedUntil = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Why nothing may start now; null when something may. */
  errorAt(now: number): GatewayError | null {
    return this.blockedUntil > now ? this.#lastError : null
  }

  /** A worker could not load its function, or ended by itself. */
  note(error: GatewayError): void {
    this.#lastError = error
    this.#failures++
    const over = this.#failures - CRASH_LOOP.tolerated
    if (over < 0) return
    this.blockedUntil = this.#clock.monotonic() + backoffDelay(over, CRASH_LOOP)
  }

  /** A call came to its end: the function works. */
  clear(): void {
    if (this.#failures === 0) return
    this.#failures = 0
    this.blockedUntil = 0
  }
}
