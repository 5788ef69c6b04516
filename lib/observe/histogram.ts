/** How long things took, counted in buckets. Owner: page observe/metrics. */

import { toSample } from './metrics-text.ts'

/** Upper bounds of the buckets, seconds; the last bucket has none. */
export const DURATION_BOUNDS: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
]

/** The same in ms, as durations come: one multiplication a request less. */
const BOUNDS_MS = Float64Array.from(DURATION_BOUNDS, bound => bound * 1000)
const BUCKETS = BOUNDS_MS.length + 1

/**
 * Several histograms of one family, one for each class of something, in one array: counting allocates nothing and needs
 * no look-up.
 */
export class Histogram {
  /** Of each class its buckets, then its sum in ms. Numbers of 64 bits: a count of 32 is full within days. */
  readonly #numbers: Float64Array

  constructor(classes: number) {
    this.#numbers = new Float64Array(classes * (BUCKETS + 1))
  }

  observe(index: number, ms: number): void {
    const numbers = this.#numbers
    const from = index * (BUCKETS + 1)
    let bucket = 0
    while (bucket < BOUNDS_MS.length && ms > BOUNDS_MS[bucket]!) bucket += 1
    numbers[from + bucket]! += 1
    numbers[from + BUCKETS]! += ms
  }

  /** Observations of a class. */
  countOf(index: number): number {
    let count = 0
    for (let bucket = 0; bucket < BUCKETS; bucket++) count += this.#numbers[index * (BUCKETS + 1) + bucket]!
    return count
  }

  /** Samples of a class; none when nothing was observed. @param labels - see toLabels */
  toText(index: number, name: string, labels: string): string {
    const from = index * (BUCKETS + 1)
    const start = labels === '' ? '' : `${labels},`
    let count = 0
    let text = ''
    for (let bucket = 0; bucket < BUCKETS; bucket++) {
      count += this.#numbers[from + bucket]!
      text += toSample(`${name}_bucket`, `${start}le="${DURATION_BOUNDS[bucket] ?? '+Inf'}"`, count)
    }
    if (count === 0) return ''
    const sum = this.#numbers[from + BUCKETS]! / 1000
    return text + toSample(`${name}_sum`, labels, sum) + toSample(`${name}_count`, labels, count)
  }
}
