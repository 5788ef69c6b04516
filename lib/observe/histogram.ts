/** How long things took, counted in buckets. Owner: page observe/metrics. */

import { toSample } from './metrics-text.ts'

/** Upper bounds of the buckets, seconds; the last bucket has none. */
export const DURATION_BOUNDS: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
]

/** The same in ms, as durations come: one multiplication a request less. */
const BOUNDS_MS = Float64Array.from(DURATION_BOUNDS, bound => bound * 1000)
/** Buckets of a histogram. */
export const BUCKETS = BOUNDS_MS.length + 1

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

  /** Adds the buckets of a class to others, from an index on. */
  addBuckets(index: number, target: Float64Array, at: number): void {
    const from = index * (BUCKETS + 1)
    for (let bucket = 0; bucket < BUCKETS; bucket++) target[at + bucket]! += this.#numbers[from + bucket]!
  }

  /** Adds what another one has counted. */
  add(numbers: Float64Array): void {
    for (let i = 0; i < this.#numbers.length; i++) this.#numbers[i]! += numbers[i]!
  }

  /** What was counted, for `add` of another one; begins at 0 again. */
  take(): Float64Array {
    const taken = this.#numbers.slice()
    this.#numbers.fill(0)
    return taken
  }

  /** Observations of a class. */
  countOf(index: number): number {
    let count = 0
    for (let bucket = 0; bucket < BUCKETS; bucket++) count += this.#numbers[index * (BUCKETS + 1) + bucket]!
    return count
  }

  /** Samples of a class, or with null of all of them; none when nothing was observed. @param labels - see toLabels */
  toText(index: number | null, name: string, labels: string): string {
    const { counts, sumMs } = this.#gather(index)
    const start = labels === '' ? '' : `${labels},`
    let count = 0
    let text = ''
    for (let bucket = 0; bucket < BUCKETS; bucket++) {
      count += counts[bucket]!
      text += toSample(`${name}_bucket`, `${start}le="${DURATION_BOUNDS[bucket] ?? '+Inf'}"`, count)
    }
    if (count === 0) return ''
    return text + toSample(`${name}_sum`, labels, sumMs / 1000) + toSample(`${name}_count`, labels, count)
  }

  #gather(index: number | null): { counts: Float64Array; sumMs: number } {
    const counts = new Float64Array(BUCKETS)
    let sumMs = 0
    const classes = this.#numbers.length / (BUCKETS + 1)
    for (let one = index ?? 0; one < (index === null ? classes : index + 1); one++) {
      this.addBuckets(one, counts, 0)
      sumMs += this.#numbers[one * (BUCKETS + 1) + BUCKETS]!
    }
    return { counts, sumMs }
  }
}

/**
 * A percentile of counted buckets: within the bucket that it falls in, as far as its share. What is longer than the last
 * bound is told as that bound.
 * @param counts - observations by bucket, from an index on
 * @param share - 0.95 for p95
 * @returns ms; null when nothing was observed
 */
export function toPercentileMs(counts: ArrayLike<number>, from: number, share: number): number | null {
  let total = 0
  for (let bucket = 0; bucket < BUCKETS; bucket++) total += counts[from + bucket]!
  if (total === 0) return null
  const rank = share * total
  let below = 0
  for (let bucket = 0; bucket < BOUNDS_MS.length; bucket++) {
    const count = counts[from + bucket]!
    if (count > 0 && below + count >= rank) {
      const lower = bucket === 0 ? 0 : BOUNDS_MS[bucket - 1]!
      return lower + ((BOUNDS_MS[bucket]! - lower) * (rank - below)) / count
    }
    below += count
  }
  return BOUNDS_MS.at(-1)!
}
