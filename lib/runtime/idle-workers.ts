/** Ends workers that had no call for long, but for those that are kept warm. Owner: §2.8 (`idle_ttl_seconds`), page runtime/worker-set. */

import type { Clock } from '../core/clock.ts'
import type { Worker } from './worker.ts'

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
