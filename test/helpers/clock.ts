import type { Clock } from '../../lib/core/clock.ts'

interface FakeTimer {
  at: number
  callback: () => void
  order: number
}

/** A clock that stands still until `advance` is called; timers run in order of their time. */
export class FakeClock implements Clock {
  private now = 1_000_000
  private wallOffset = 1_700_000_000_000
  private timers = new Set<FakeTimer>()
  private count = 0

  wall(): number {
    return this.wallOffset + this.now
  }

  monotonic(): number {
    return this.now
  }

  setTimeout(callback: () => void, ms: number): NodeJS.Timeout {
    const timer: FakeTimer = { at: this.now + ms, callback, order: this.count++ }
    this.timers.add(timer)
    return timer as unknown as NodeJS.Timeout
  }

  clearTimeout(timer: NodeJS.Timeout): void {
    this.timers.delete(timer as unknown as FakeTimer)
  }

  /** Moves the wall clock alone. */
  jumpWall(ms: number): void {
    this.wallOffset += ms
  }

  /** Time passes while no timer runs, as in a process that stands still: `advance` then runs them late. */
  stall(ms: number): void {
    this.now += ms
  }

  get pending(): number {
    return this.timers.size
  }

  advance(ms: number): void {
    const end = this.now + ms
    for (;;) {
      let next: FakeTimer | null = null
      for (const timer of this.timers) {
        if (timer.at > end) continue
        if (next === null || timer.at < next.at || (timer.at === next.at && timer.order < next.order)) next = timer
      }
      if (next === null) break
      this.timers.delete(next)
      this.now = Math.max(this.now, next.at)
      next.callback()
    }
    this.now = end
  }
}
