/** How long things took, counted in the buckets of Prometheus, and in finer ones for percentiles. Owner: page observe/metrics. */

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
type SparseCounts = string
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

// Metrics as Prometheus reads them, text format 0.0.4.

/** Names and values of labels, in the order they are shown. */
type Labels = Readonly<Record<string, string>>

type FamilyType = 'counter' | 'gauge' | 'histogram'

/** Families of samples, in pieces of text: whoever sends them may pause between two. */
export type MetricSource = () => Iterable<string>

/** The two lines before a family's samples. */
export function toFamilyHead(name: string, type: FamilyType, help: string): string {
  return `# HELP ${name} ${escapeText(help)}\n# TYPE ${name} ${type}\n`
}

/** The labels of a sample without their braces. */
export function toLabels(labels: Labels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${escapeText(value).replaceAll('"', '\\"')}"`)
    .join(',')
}

/** @param labels - as `toLabels` makes them; empty for none */
export function toSample(name: string, labels: string, value: number): string {
  return labels === '' ? `${name} ${value}\n` : `${name}{${labels}} ${value}\n`
}

/** A family whose samples are at hand; none are no family. */
export function toFamily(
  name: string,
  type: FamilyType,
  help: string,
  samples: Iterable<readonly [labels: Labels, value: number]>,
): string {
  let text = ''
  for (const [labels, value] of samples) text += toSample(name, toLabels(labels), value)
  return text === '' ? '' : toFamilyHead(name, type, help) + text
}

function escapeText(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
}

// What was counted since it was last taken, as data: for the history, and for another process.

/** What was counted of one function, or of everything. */
export interface Counts {
  errors4xx: number
  errors5xx: number
  /** Refused by admission; not among the errors. */
  throttled: number
  coldStarts: number
  /** Without throttled calls. */
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
    if (queuedMs > 0) this.#waits.observe(queuedMs)
    // A refusal takes no time and says nothing about the latency of the function.
    if (wasThrottled) {
      this.#throttled += 1
      return
    }
    if (status >= 500) this.#errors5xx += 1
    // A call that was stopped has status 0 and counts as one whose client left.
    else if (status >= 400 || status < 100) this.#errors4xx += 1
    this.#durations.observe(durationMs, bucket)
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
