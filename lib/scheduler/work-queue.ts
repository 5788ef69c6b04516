/**
 * One clock for everything that the scheduler does: pieces of work in a heap by their due time, looked at once per tick. A tick
 * costs what is due, not what exists. Owner: page scheduler/scheduler.
 */

import type { Clock } from '../core/clock.ts'

export interface Work {
  /** Its place in the heap, kept by the queue; -1 outside. */
  heapIndex: number
  /** Wall clock, ms; kept by the queue. */
  dueAt: number
  /** It is due, and in the queue no more. */
  onDue(now: number): void
}

/** Pieces of work begun in one turn of the event loop: the rest of a crowd follows in the next ones. */
export const WORK_PER_TURN = 100
/** Milliseconds by which the wall clock must fall behind the steady one to count as set back. */
const SET_BACK_MS = 1000

interface WorkQueueOptions {
  clock: Clock
  /** Milliseconds between two ticks. */
  tickMs: number
  /** The wall clock was set back: what was due at a time of the old one may be due otherwise now. */
  onSetBack: (now: number) => void
}

export class WorkQueue {
  readonly #options: WorkQueueOptions
  readonly #heap: Work[] = []
  #timer: NodeJS.Timeout | null = null
  #isStopped = false
  #lastWall: number | null = null
  #lastMonotonic = 0

  constructor(options: WorkQueueOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#heap.length
  }

  /** Puts work in, or moves it. */
  put(work: Work, dueAt: number): void {
    work.dueAt = dueAt
    if (work.heapIndex < 0) {
      work.heapIndex = this.#heap.length
      this.#heap.push(work)
    }
    this.#settle(work)
  }

  remove(work: Work): void {
    const { heapIndex: index } = work
    if (index < 0) return
    work.heapIndex = -1
    const last = this.#heap.pop()!
    if (last === work) return
    this.#heap[index] = last
    last.heapIndex = index
    this.#settle(last)
  }

  /** Ticks now and from now on. */
  start(): void {
    if (this.#timer === null && !this.#isStopped) this.#run()
  }

  stop(): void {
    this.#isStopped = true
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    this.#timer = null
  }

  /** Begins what is due. @returns true when there is more */
  tick(): boolean {
    const { clock, onSetBack } = this.#options
    const now = clock.wall()
    if (this.#wasSetBack(now)) onSetBack(now)
    for (let begun = 0; begun < WORK_PER_TURN; begun++) {
      const first = this.#heap[0]
      if (first === undefined || first.dueAt > now) return false
      this.remove(first)
      first.onDue(now)
    }
    return (this.#heap[0]?.dueAt ?? Infinity) <= now
  }

  #run(): void {
    const { clock, tickMs } = this.#options
    const hasMore = this.tick()
    if (this.#isStopped) return
    // At whole ticks of the wall clock: what is due at a whole second begins at once.
    this.#timer = clock.setTimeout(() => this.#run(), hasMore ? 0 : tickMs - (clock.wall() % tickMs))
    this.#timer.unref?.()
  }

  #wasSetBack(now: number): boolean {
    const monotonic = this.#options.clock.monotonic()
    const expected = this.#lastWall === null ? now : this.#lastWall + monotonic - this.#lastMonotonic
    this.#lastWall = now
    this.#lastMonotonic = monotonic
    return expected - now >= SET_BACK_MS
  }

  /** Brings an entry whose due time changed to its place. */
  #settle(work: Work): void {
    const heap = this.#heap
    let index = work.heapIndex
    while (index > 0) {
      const parent = heap[(index - 1) >> 1]!
      if (parent.dueAt <= work.dueAt) break
      this.#place(parent, index)
      index = (index - 1) >> 1
    }
    for (;;) {
      let child = heap[2 * index + 1]
      const right = heap[2 * index + 2]
      if (child === undefined) break
      if (right !== undefined && right.dueAt < child.dueAt) child = right
      if (child.dueAt >= work.dueAt) break
      const { heapIndex } = child
      this.#place(child, index)
      index = heapIndex
    }
    this.#place(work, index)
  }

  #place(work: Work, index: number): void {
    this.#heap[index] = work
    work.heapIndex = index
  }
}
