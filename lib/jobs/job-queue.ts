/**
 * Which job is next: of each function the one that is due first, of all functions the oldest of those. Owner: page jobs/jobs.
 *
 *   function ─► heap of its queued jobs by (due, seq)     a function that is full keeps nobody else waiting
 *
 * A job that was canceled stays in its heap until it comes up, or until most of the heap is such.
 */
import type { Job } from './job.ts'

/** A queued job, and when it may run, monotonic ms. */
interface QueuedJob {
  readonly job: Job
  readonly due: number
}

/** Heaps with fewer entries are not cleared of those that left. */
const MIN_CLEARED = 64

interface Lane {
  heap: QueuedJob[]
  /** Entries of it that left. */
  gone: number
}

export class JobQueue {
  readonly #lanes = new Map<string, Lane>()
  readonly #queued = new Map<string, QueuedJob>()

  get size(): number {
    return this.#queued.size
  }

  add(job: Job, due: number): void {
    const queued = { job, due }
    this.#queued.set(job.id, queued)
    const lane = this.#lanes.get(job.key) ?? { heap: [], gone: 0 }
    this.#lanes.set(job.key, lane)
    push(lane.heap, queued)
  }

  /** @returns false when it is not queued */
  remove(id: string): boolean {
    const queued = this.#queued.get(id)
    if (queued === undefined) return false
    this.#queued.delete(id)
    const { key } = queued.job
    const lane = this.#lanes.get(key)!
    lane.gone += 1
    if (lane.heap.length >= MIN_CLEARED && lane.gone > lane.heap.length / 2) this.#clear(lane)
    this.#first(key, lane)
    return true
  }

  /**
   * Takes out the job to run now.
   * @param mayRun - false for a function that is full
   */
  take(now: number, mayRun: (key: string) => boolean): Job | null {
    let best: Job | null = null
    for (const [key, lane] of this.#lanes) {
      const first = this.#first(key, lane)
      if (first === null || first.due > now || (best !== null && best.seq < first.job.seq)) continue
      if (mayRun(key)) best = first.job
    }
    if (best === null) return null
    this.#queued.delete(best.id)
    const lane = this.#lanes.get(best.key)!
    pop(lane.heap)
    this.#first(best.key, lane)
    return best
  }

  /** When the next job is due that is not due yet, monotonic ms; null when there is none. */
  nextDue(now: number): number | null {
    let next: number | null = null
    for (const [key, lane] of this.#lanes) {
      const due = this.#first(key, lane)?.due ?? null
      if (due !== null && due > now && (next === null || due < next)) next = due
    }
    return next
  }

  /** First of a lane that is still queued; a lane without one is forgotten. */
  #first(key: string, lane: Lane): QueuedJob | null {
    for (;;) {
      const first = lane.heap[0]
      if (first === undefined) {
        this.#lanes.delete(key)
        return null
      }
      if (this.#queued.get(first.job.id) === first) return first
      pop(lane.heap)
      lane.gone -= 1
    }
  }

  #clear(lane: Lane): void {
    const kept = lane.heap.filter(queued => this.#queued.get(queued.job.id) === queued)
    // In order, and so a heap.
    lane.heap = kept.sort(compare)
    lane.gone = 0
  }
}

function compare(a: QueuedJob, b: QueuedJob): number {
  return a.due - b.due || a.job.seq - b.job.seq
}

function push(heap: QueuedJob[], added: QueuedJob): void {
  let at = heap.length
  heap.push(added)
  while (at > 0) {
    const parent = (at - 1) >> 1
    if (compare(heap[parent]!, added) <= 0) break
    heap[at] = heap[parent]!
    at = parent
  }
  heap[at] = added
}

function pop(heap: QueuedJob[]): void {
  const last = heap.pop()
  if (last === undefined || heap.length === 0) return
  let at = 0
  for (;;) {
    const left = at * 2 + 1
    if (left >= heap.length) break
    const child = left + 1 < heap.length && compare(heap[left + 1]!, heap[left]!) < 0 ? left + 1 : left
    if (compare(heap[child]!, last) >= 0) break
    heap[at] = heap[child]!
    at = child
  }
  heap[at] = last
}
