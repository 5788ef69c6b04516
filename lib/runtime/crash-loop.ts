/**
 * When workers of a function that fails again and again may start once more: after a few failures in a row each one
 * doubles the wait. Owner: page runtime/worker-set.
 */

import { backoffDelay, type Clock } from '../core/clock.ts'
import type { GatewayError } from '../core/errors.ts'

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
