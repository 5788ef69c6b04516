/** One timer for all deadlines of a worker, which knows when this process itself stood still. Owner: §2.8, page runtime/worker-set. */

import type { Clock } from '../core/clock.ts'

/** A timer that is later than this many milliseconds means that the whole process stood still. */
const STANDSTILL_MS = 25

export class DeadlineTimer {
  readonly #clock: Clock
  readonly #onDue: () => void
  #timer: NodeJS.Timeout | null = null
  /** Monotonic ms. */
  #dueAt = 0

  /** @param onDue - called once for each `arm`; the timer is no longer armed then */
  constructor(clock: Clock, onDue: () => void) {
    this.#clock = clock
    this.#onDue = onDue
  }

  /** True when it runs by then, or no later than a standstill is long: calls of one moment need one timer. @param deadline - monotonic ms */
  isArmedBy(deadline: number): boolean {
    return this.#timer !== null && this.#dueAt <= deadline + STANDSTILL_MS
  }

  /** In place of the time it was armed for before. */
  arm(delayMs: number): void {
    this.disarm()
    const ms = Math.max(1, Math.ceil(delayMs))
    this.#dueAt = this.#clock.monotonic() + ms
    this.#timer = this.#clock.setTimeout(() => this.#handleTimer(), ms)
  }

  disarm(): void {
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer)
    this.#timer = null
  }

  /** After a moment in which this process stood still answers may lie unread: they are read before anybody is late. */
  #handleTimer(): void {
    if (this.#clock.monotonic() - this.#dueAt <= STANDSTILL_MS) this.#tell()
    else this.#timer = this.#clock.setTimeout(() => this.#tell(), 1)
  }

  #tell(): void {
    this.#timer = null
    this.#onDue()
  }
}
