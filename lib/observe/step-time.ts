/**
 * Time as the history counts it: it goes on with the monotonic clock, and is the wall clock's wherever that does not go back.
 * Owner: page observe/history.
 */

import type { Clock } from '../core/clock.ts'

/** A clock that is further off was set, or the machine slept: anything less is the drift of two clocks. */
const DRIFT_MS = 1000

export class StepTime {
  readonly #clock: Clock
  /** Wall clock minus monotonic clock, as last accepted. */
  #offset: number
  /** What stands between the two when the wall clock was set back: time is not told twice. */
  #ahead = 0

  constructor(clock: Clock) {
    this.#clock = clock
    this.#offset = clock.wall() - clock.monotonic()
  }

  /** Ms since the epoch that never go back. */
  now(): number {
    const monotonic = this.#clock.monotonic()
    const moved = this.#clock.wall() - monotonic - this.#offset
    if (Math.abs(moved) > DRIFT_MS) {
      this.#offset += moved
      this.#ahead = Math.max(0, this.#ahead - moved)
    }
    return monotonic + this.#offset + this.#ahead
  }

  /** The wall clock's time of an instant, ms. @param instant - as `now` gives it */
  toWall(instant: number): number {
    return instant - this.#ahead
  }
}
