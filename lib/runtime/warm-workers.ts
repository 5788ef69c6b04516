/** Keeps some workers of a function started, also when nobody calls it. Owner: §2.8 (`min_warm`), page runtime/worker-set. */

import { backoffDelay, type Clock } from '../core/clock.ts'
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
  #timer: NodeJS.Timeout | null = null

  constructor(wanted: number, options: WarmOptions) {
    this.wanted = wanted
    this.#options = options
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
    const { clock, count } = this.#options
    if (this.#timer !== null || count() >= this.wanted) return
    this.#timer = clock.setTimeout(() => {
      this.#timer = null
      this.fill()
    }, delayMs)
  }

  /** None is kept any more. */
  end(): void {
    this.wanted = 0
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    this.#timer = null
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
  #timer: NodeJS.Timeout | null = null

  constructor(options: IdleOptions) {
    this.#options = options
  }

  /** A worker has nothing to do from now on. */
  watch(): void {
    const { workers, minWarm, idleTtlMs } = this.#options
    if (this.#timer === null && workers.length > minWarm()) this.#arm(idleTtlMs)
  }

  close(): void {
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    this.#timer = null
  }

  #arm(delayMs: number): void {
    this.#timer = this.#options.clock.setTimeout(() => this.#look(), Math.max(1, delayMs))
    this.#timer.unref?.()
  }

  #look(): void {
    this.#timer = null
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
    if (next !== Number.POSITIVE_INFINITY && workers.length > minWarm) this.#arm(next)
  }
}
