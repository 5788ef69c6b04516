/** Keeps some workers of a function started, also when nobody calls it. Owner: §2.8 (`min_warm`), page runtime/worker-set. */

import { backoffDelay, type Clock, Timer } from '../core/clock.ts'
import type { GatewayError } from '../core/errors.ts'
import type { Worker } from './worker.ts'

interface WarmOptions {
  clock: Clock
  crashLoop: CrashLoop
  /** Workers there are, those that are starting too. */
  count(): number
  /** False where none may start now; who changes that calls `fill`. */
  mayStart(): boolean
  start(): void
}

export class WarmWorkers {
  /** Workers that stay however long they idle. */
  wanted: number
  readonly #options: WarmOptions
  readonly #timer: Timer

  constructor(wanted: number, options: WarmOptions) {
    this.wanted = wanted
    this.#options = options
    this.#timer = new Timer(options.clock)
  }

  /** Starts those that are missing, at once or when starts are no longer delayed. */
  fill(): void {
    const { clock, crashLoop, count, mayStart, start } = this.#options
    if (!mayStart()) return
    for (let missing = this.wanted - count(); missing > 0; missing--) {
      const now = clock.monotonic()
      if (crashLoop.errorAt(now) !== null) {
        this.fillLater(crashLoop.blockedUntil - now)
        return
      }
      start()
    }
  }

  fillLater(delayMs: number): void {
    if (!this.#timer.isSet && this.#options.count() < this.wanted) this.#timer.set(delayMs, () => this.fill())
  }

  /** None is kept any more. */
  end(): void {
    this.wanted = 0
    this.#timer.clear()
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
    const delay = backoffDelay(over, CRASH_LOOP)
    this.blockedUntil = this.#clock.monotonic() + delay
  }

  /** A call came to its end: the function works. */
  clear(): void {
    if (this.#failures === 0) return
    this.#failures = 0
    this.blockedUntil = 0
  }
}

// Ends workers that had no call for long, but for those that are kept warm.

interface IdleOptions {
  clock: Clock
  idleTtlMs: number
  /** In the order they were started; one that is stopped leaves it. */
  workers: readonly Worker[]
  /** Workers that stay however long they idle. */
  minWarm(): number
}

export class IdleWorkers {
  readonly #options: IdleOptions
  readonly #timer: Timer

  constructor(options: IdleOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock, true)
  }

  /** A worker has nothing to do from now on. */
  watch(): void {
    const { workers, minWarm, idleTtlMs } = this.#options
    if (!this.#timer.isSet && workers.length > minWarm()) this.#lookIn(idleTtlMs)
  }

  close(): void {
    this.#timer.clear()
  }

  #lookIn(delayMs: number): void {
    this.#timer.set(Math.max(1, delayMs), () => this.#look())
  }

  #look(): void {
    const { clock, workers, idleTtlMs } = this.#options
    const minWarm = this.#options.minWarm()
    const now = clock.monotonic()
    let next = Number.POSITIVE_INFINITY
    // From the back: the first workers are the ones that calls are given to.
    for (let i = workers.length - 1; i >= 0 && workers.length > minWarm; i--) {
      const worker = workers[i]!
      if (worker.state !== 'ready' || worker.inflight.size > 0) continue
      const left = worker.idleSince + idleTtlMs - now
      if (left <= 0) worker.stop()
      else next = Math.min(next, left)
    }
    if (next !== Number.POSITIVE_INFINITY && workers.length > minWarm) this.#lookIn(next)
  }
}
