/** Keeps some workers of a function started, and ends others that had no call for long. Owner: §2.8 (`min_warm`), page runtime/worker-set. */

import { backoffDelay, type Clock, Timer } from '../core/clock.ts'
import type { GatewayError } from '../core/errors.ts'
import type { Worker } from './worker.ts'

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

  /** A worker has nothing to do from now on. */
  watchIdle(): void {
    const { workers, idleTtlMs } = this.#options
    if (!this.#idleTimer.isSet && workers.length > this.#kept) this.#lookIn(idleTtlMs)
  }

  /** None is kept any more. */
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
      const left = worker.idleSince + idleTtlMs - now
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
