/** Time as a value, so that tests can own it. Owner: §8 (durations never depend on the wall clock). */

export interface Clock {
  /** Milliseconds since the epoch; may jump. For timestamps and schedules. */
  wall(): number
  /** Milliseconds that never go back. For every duration and deadline. */
  monotonic(): number
  setTimeout(callback: () => void, ms: number): NodeJS.Timeout
  clearTimeout(timer: NodeJS.Timeout): void
}

export const systemClock: Clock = {
  wall: () => Date.now(),
  monotonic: () => performance.now(),
  setTimeout: (callback, ms) => setTimeout(callback, ms),
  clearTimeout: timer => clearTimeout(timer),
}
