/** How long things took, counted in the buckets of Prometheus, and in finer ones for percentiles. Owner: page observe/metrics. */

import { toSample } from './metrics-text.ts'

/** Upper bounds of the buckets, seconds; the last bucket has none. */
export const DURATION_BOUNDS: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
]

/** The same in ms, as durations come: one multiplication a request less. */
const BOUNDS_MS = Float64Array.from(DURATION_BOUNDS, bound => bound * 1000)
/** Buckets of a histogram. */
const BUCKETS = BOUNDS_MS.length + 1

/** Buckets of percentiles count in 1/256 ms. Durations with the same highest 5 bits share one: it is 3 to 6 % wide. */
const UNITS_PER_MS = 256
/** 2.3 h; longer durations share the last bucket. */
const LONGEST_MS = 2 ** 31 / UNITS_PER_MS - 1

export function toBucket(ms: number): number {
  const units = ms > 0 ? (Math.min(ms, LONGEST_MS) * UNITS_PER_MS) | 0 : 0
  const shift = Math.max(0, 27 - Math.clz32(units))
  return shift * 16 + (units >>> shift)
}

function toLowerBoundMs(bucket: number): number {
  const shift = Math.max(0, (bucket >>> 4) - 1)
  return ((bucket - shift * 16) * 2 ** shift) / UNITS_PER_MS
}

/** By bucket of percentiles, the Prometheus bucket of its lower bound: the search for that of a duration begins there. */
const FIRST_BUCKETS = Uint8Array.from(
  { length: toBucket(LONGEST_MS) + 1 },
  (_, bucket) => BOUNDS_MS.filter(bound => bound < toLowerBoundMs(bucket)).length,
)

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

  observe(index: number, ms: number, fine = toBucket(ms)): void {
    const numbers = this.#numbers
    const from = index * (BUCKETS + 1)
    let bucket = FIRST_BUCKETS[fine]!
    while (bucket < BOUNDS_MS.length && ms > BOUNDS_MS[bucket]!) bucket += 1
    numbers[from + bucket]! += 1
    numbers[from + BUCKETS]! += ms
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
      const from = one * (BUCKETS + 1)
      for (let bucket = 0; bucket < BUCKETS; bucket++) counts[bucket]! += this.#numbers[from + bucket]!
      sumMs += this.#numbers[from + BUCKETS]!
    }
    return { counts, sumMs }
  }
}

/**
 * Counts of the buckets that are not empty, by bucket upwards: a character for the bucket and one for the count, again
 * for the same bucket where a count takes more. A string takes 4 bytes a bucket, and thousands of functions keep one for
 * each step of a day.
 */
export type SparseCounts = string
const MAX_COUNT = 0xffff

/** Durations in buckets for percentiles. Only the range between the shortest and the longest one takes memory. */
export class LogHistogram {
  #first = 0
  /** From the bucket `#first` on. */
  #counts: number[] = []

  observe(ms: number, bucket = toBucket(ms)): void {
    const index = bucket - this.#first
    if (index >= 0 && index < this.#counts.length) this.#counts[index]! += 1
    else this.#add(bucket, 1)
  }

  add(counts: SparseCounts): void {
    for (let i = 0; i < counts.length; i += 2) this.#add(counts.charCodeAt(i), counts.charCodeAt(i + 1))
  }

  /** What was counted; begins at 0 again. */
  take(): SparseCounts {
    const codes: number[] = []
    for (const [index, count] of this.#counts.entries())
      for (let left = count; left > 0; left -= MAX_COUNT) codes.push(this.#first + index, Math.min(left, MAX_COUNT))
    this.#counts.fill(0)
    return String.fromCharCode(...codes)
  }

  #add(bucket: number, count: number): void {
    const counts = this.#counts
    if (counts.length === 0) this.#first = bucket
    while (bucket < this.#first) {
      counts.unshift(0)
      this.#first -= 1
    }
    while (bucket >= this.#first + counts.length) counts.push(0)
    counts[bucket - this.#first]! += count
  }
}

export function sumCounts(one: SparseCounts, other: SparseCounts): SparseCounts {
  if (one === '' || other === '') return one + other
  const sum = new LogHistogram()
  sum.add(one)
  sum.add(other)
  return sum.take()
}

/** Durations that were counted. */
export function toTotal(counts: SparseCounts): number {
  let total = 0
  for (let i = 1; i < counts.length; i += 2) total += counts.charCodeAt(i)
  return total
}

/**
 * The lower bound of the bucket that a percentile falls in: never above the true one, and at most 6 % below it.
 * @param share - 0.95 for p95
 * @returns ms; null when nothing was counted
 */
export function toPercentileMs(counts: SparseCounts, share: number): number | null {
  let left = share * toTotal(counts)
  for (let i = 0; i < counts.length; i += 2) {
    left -= counts.charCodeAt(i + 1)
    if (left <= 0) return toLowerBoundMs(counts.charCodeAt(i))
  }
  return null
}
