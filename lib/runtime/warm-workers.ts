/** Keeps some workers of a function started, also when nobody calls it. Owner: §2.8 (`min_warm`), page runtime/worker-set. */

import type { Clock } from '../core/clock.ts'
import type { CrashLoop } from './crash-loop.ts'

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
