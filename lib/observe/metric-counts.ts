/** What was counted since it was last taken, as data: for the history, and for another process. Owner: page observe/metrics. */

import { LogHistogram, type SparseCounts, sumCounts } from './histogram.ts'

/** What was counted of one function, or of everything. */
export interface Counts {
  errors4xx: number
  errors5xx: number
  /** Refused by admission; not among the errors. */
  throttled: number
  coldStarts: number
  durations: SparseCounts
  /** For a slot, of the calls that waited. */
  waits: SparseCounts
}

export function createCounts(): Counts {
  return { errors4xx: 0, errors5xx: 0, throttled: 0, coldStarts: 0, durations: '', waits: '' }
}

export function addCounts(sum: Counts, added: Counts): void {
  sum.errors4xx += added.errors4xx
  sum.errors5xx += added.errors5xx
  sum.throttled += added.throttled
  sum.coldStarts += added.coldStarts
  sum.durations = sumCounts(sum.durations, added.durations)
  sum.waits = sumCounts(sum.waits, added.waits)
}

/** Counts until the counts are taken. */
export class Tally {
  #isEmpty = true
  #errors4xx = 0
  #errors5xx = 0
  #throttled = 0
  #coldStarts = 0
  readonly #durations = new LogHistogram()
  readonly #waits = new LogHistogram()

  /**
   * @param queuedMs - waiting for a slot; 0 for a call that did not
   * @param wasThrottled - refused by admission
   */
  count(status: number, durationMs: number, queuedMs: number, bucket: number, wasThrottled: boolean): void {
    this.#isEmpty = false
    if (wasThrottled) this.#throttled += 1
    else if (status >= 500) this.#errors5xx += 1
    // A call that was stopped has status 0 and counts as one whose client left.
    else if (status >= 400 || status < 100) this.#errors4xx += 1
    this.#durations.observe(durationMs, bucket)
    if (queuedMs > 0) this.#waits.observe(queuedMs)
  }

  coldStart(): void {
    this.#isEmpty = false
    this.#coldStarts += 1
  }

  add({ errors4xx, errors5xx, throttled, coldStarts, durations, waits }: Counts): void {
    this.#isEmpty = false
    this.#errors4xx += errors4xx
    this.#errors5xx += errors5xx
    this.#throttled += throttled
    this.#coldStarts += coldStarts
    this.#durations.add(durations)
    this.#waits.add(waits)
  }

  /** @returns null when nothing was counted since the last time */
  take(): Counts | null {
    if (this.#isEmpty) return null
    const taken = {
      errors4xx: this.#errors4xx,
      errors5xx: this.#errors5xx,
      throttled: this.#throttled,
      coldStarts: this.#coldStarts,
      durations: this.#durations.take(),
      waits: this.#waits.take(),
    }
    this.#isEmpty = true
    this.#errors4xx = 0
    this.#errors5xx = 0
    this.#throttled = 0
    this.#coldStarts = 0
    return taken
  }
}

/** Numbers of one function: in the buckets of Prometheus, and for the history. */
export interface FunctionCounts {
  key: string
  durations: Float64Array
  waits: Float64Array
  counts: Counts
}

export interface MetricCounts {
  /** Place and count, in turn, of the requests by method, status and plane. */
  requests: number[]
  durations: Float64Array
  /** Of public requests; null for none. */
  counts: Counts | null
  functions: FunctionCounts[]
}

/** What was added to named numbers since the last look. */
export class Added<Name extends string> {
  readonly #numbers: Readonly<Record<Name, number>>
  readonly #seen: Record<Name, number>

  constructor(numbers: Readonly<Record<Name, number>>) {
    this.#numbers = numbers
    this.#seen = { ...numbers }
  }

  /** @returns null when nothing was added */
  take(): Record<Name, number> | null {
    const added: Record<Name, number> = { ...this.#numbers }
    let sum = 0
    for (const name of Object.keys(added) as Name[]) {
      added[name] -= this.#seen[name]
      sum += added[name]
    }
    Object.assign(this.#seen, this.#numbers)
    return sum === 0 ? null : added
  }
}

/** Adds named numbers to others. */
export function addTo<Name extends string>(sums: Record<Name, number>, added: Readonly<Record<Name, number>>): void {
  for (const name of Object.keys(added) as Name[]) sums[name] += added[name]
}
