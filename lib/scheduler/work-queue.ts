/**
 * The clock of the scheduler: work in a heap by its due time, checked once per tick. A tick costs as much as there is due work.
 * Owner: page scheduler/scheduler.
 */

import { type Clock, Timer } from '../core/clock.ts'
import { Heap, type HeapItem } from '../core/collections.ts'

export interface Work extends HeapItem {
  /** Wall clock, ms; kept by the queue. */
  dueAt: number
  /** The work is due and has left the queue. */
  onDue(now: number): void
}

/** Work begun in one turn of the event loop; the rest follows in the next ones. */
export const WORK_PER_TURN = 100
/** Milliseconds by which the wall clock must fall behind the steady one to count as set back. */
const SET_BACK_MS = 1000

interface WorkQueueOptions {
  clock: Clock
  /** Milliseconds between two ticks. */
  tickMs: number
  /** The wall clock was set back: due times have to be calculated again. */
  onSetBack: (now: number) => void
}

export class WorkQueue {
  readonly #options: WorkQueueOptions
  readonly #heap = new Heap<Work>((a, b) => a.dueAt < b.dueAt)
  readonly #timer: Timer
  #isStopped = false
  #lastWall: number | null = null
  #lastMonotonic = 0

  constructor(options: WorkQueueOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock, true)
  }

  get size(): number {
    return this.#heap.size
  }

  /** Puts work in, or moves it. */
  put(work: Work, dueAt: number): void {
    work.dueAt = dueAt
    this.#heap.put(work)
  }

  remove(work: Work): void {
    this.#heap.remove(work)
  }

  /** Ticks now and from now on. */
  start(): void {
    if (!this.#timer.isSet && !this.#isStopped) this.#run()
  }

  stop(): void {
    this.#isStopped = true
    this.#timer.clear()
  }

  /** Begins the due work. @returns true when there is more */
  tick(): boolean {
    const { clock, onSetBack } = this.#options
    const now = clock.wall()
    if (this.#wasSetBack(now)) onSetBack(now)
    for (let begun = 0; begun < WORK_PER_TURN; begun++) {
      const { first } = this.#heap
      if (first === undefined || first.dueAt > now) return false
      this.remove(first)
      first.onDue(now)
    }
    return (this.#heap.first?.dueAt ?? Infinity) <= now
  }

  #run(): void {
    const { clock, tickMs } = this.#options
    const hasMore = this.tick()
    if (this.#isStopped) return
    // At whole ticks of the wall clock: work that is due at a whole second begins at once.
    this.#timer.set(hasMore ? 0 : tickMs - (clock.wall() % tickMs), () => this.#run())
  }

  #wasSetBack(now: number): boolean {
    const monotonic = this.#options.clock.monotonic()
    const expected = this.#lastWall === null ? now : this.#lastWall + monotonic - this.#lastMonotonic
    this.#lastWall = now
    this.#lastMonotonic = monotonic
    return expected - now >= SET_BACK_MS
  }
}
