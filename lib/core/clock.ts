/** Time as a value, so that tests can control it. Owner: §8 (durations never depend on the wall clock). */

/** The clock of a gateway: wall time, monotonic time, and timers. */
export interface Clock {
  /** Milliseconds since the epoch; may jump. For timestamps and schedules. */
  wall(): number
  /** Milliseconds that never go back. For every duration and deadline. */
  monotonic(): number
  setTimeout(callback: () => void, ms: number): NodeJS.Timeout
  clearTimeout(timer: NodeJS.Timeout): void
}

type Timers = Pick<Clock, 'setTimeout' | 'clearTimeout'>

/** A timer that is set again and again; setting it moves it. */
export class Timer {
  readonly #clock: Timers
  readonly #isBackground: boolean
  #timer: NodeJS.Timeout | null = null

  /** @param isBackground - true: it does not keep the process running */
  constructor(clock: Timers, isBackground = false) {
    this.#clock = clock
    this.#isBackground = isBackground
  }

  get isSet(): boolean {
    return this.#timer !== null
  }

  set(ms: number, act: () => void, isBackground = this.#isBackground): void {
    this.clear()
    this.#timer = this.#clock.setTimeout(() => {
      this.#timer = null
      act()
    }, ms)
    if (isBackground) this.#timer.unref?.()
  }

  /** Acts every `ms` milliseconds until it is cleared, which `act` may do. */
  repeat(ms: number, act: () => void): void {
    this.set(ms, () => {
      this.repeat(ms, act)
      act()
    })
  }

  clear(): void {
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer)
    this.#timer = null
  }
}

/**
 * The result of work that ends within `ms` milliseconds; null when it takes longer, and then it goes on.
 * @param isBackground - true: waiting does not keep the process running
 */
export async function within<T>(clock: Timers, ms: number, work: Promise<T>, isBackground = false): Promise<T | null> {
  const timer = new Timer(clock, isBackground)
  const late = new Promise<null>(resolve => timer.set(ms, () => resolve(null)))
  try {
    return await Promise.race([work, late])
  } finally {
    timer.clear()
  }
}

interface Backoff {
  /** The first delay; each further one is `factor` times as long (default 2), up to `max` (default: no bound). */
  first: number
  factor?: number
  max?: number
}

/** The delay after some failures in a row, in the unit of `first`. @param earlier - failures before this one */
export function backoffDelay(earlier: number, { first, factor = 2, max = Number.MAX_VALUE }: Backoff): number {
  return Math.min(max, first * factor ** earlier)
}

/** Milliseconds for which a reading of the wall clock is carried on by the monotonic one. */
const WALL_READ_MS = 100

/**
 * Wall time by the monotonic clock, up to a millisecond late: a request reads that one anyway, and a second reading costs
 * as much as its routing. A wall clock that was set is noticed within WALL_READ_MS.
 */
export class WallTime {
  readonly #clock: Clock
  #offset = 0
  #readAt = Number.NEGATIVE_INFINITY

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** @param monotonic - now, ms; @returns whole ms since the epoch */
  at(monotonic: number): number {
    if (monotonic - this.#readAt >= WALL_READ_MS) {
      this.#offset = this.#clock.wall() - monotonic
      this.#readAt = monotonic
    }
    return Math.floor(this.#offset + monotonic + 1e-6)
  }
}

/** Longest time that a timer of Node takes, ms: a longer one would run at once. */
const MAX_TIMER_MS = 2 ** 31 - 1

export const systemClock: Clock = {
  wall: () => Date.now(),
  monotonic: () => performance.now(),
  setTimeout: (callback, ms) => setTimeout(callback, Math.min(ms, MAX_TIMER_MS)),
  clearTimeout: timer => clearTimeout(timer),
}
