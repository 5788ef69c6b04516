/**
 * Counts and durations of a gateway, and the text in which Prometheus reads them (format 0.0.4). Counting a request is a few additions to
 * arrays that exist already; everything else is read at each scrape. Owner: page observe/metrics.
 */

import { readdir } from 'node:fs/promises'
import { performance } from 'node:perf_hooks'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { METHODS, toFunctionLabels } from '../core/identity.ts'

/** Names and values of labels, in the order they are shown. */
type Labels = Readonly<Record<string, string>>

type FamilyType = 'counter' | 'gauge' | 'histogram'

/** The labels of a sample without their braces. */
export function toLabels(labels: Labels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${escapeText(value).replaceAll('"', '\\"')}"`)
    .join(',')
}

/** @param given - text from `toLabels`; empty for none */
export function toSample(name: string, given: Labels | string, value: number): string {
  const labels = typeof given === 'string' ? given : toLabels(given)
  return labels === '' ? `${name} ${value}\n` : `${name}{${labels}} ${value}\n`
}

/** A whole family in pieces: the sender may pause between two. Nothing without samples. */
export function* toFamily(
  name: string,
  type: FamilyType,
  help: string,
  samples: Iterable<string | readonly [labels: Labels | string, value: number]>,
): Generator<string> {
  let head = `# HELP ${name} ${escapeText(help)}\n# TYPE ${name} ${type}\n`
  for (const sample of samples) {
    const text = typeof sample === 'string' ? sample : toSample(name, ...sample)
    if (text === '') continue
    yield head + text
    head = ''
  }
}

function escapeText(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
}

/** Upper bounds of the buckets, seconds; the last bucket has none. */
export const DURATION_BOUNDS: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
]
const BOUNDS_MS = Float64Array.from(DURATION_BOUNDS, bound => bound * 1000)
const BOUND_LABELS = [...DURATION_BOUNDS.map(String), '+Inf']
const BUCKETS = BOUND_LABELS.length

/** Histograms of one family, one for each class, in one array: counting allocates nothing. */
export class Histogram {
  /** Of each class its buckets, then its sum in ms. 64-bit numbers, because a 32-bit count overflows within days. */
  readonly #numbers: Float64Array

  constructor(classes: number) {
    this.#numbers = new Float64Array(classes * (BUCKETS + 1))
  }

  observe(index: number, ms: number): void {
    const from = index * (BUCKETS + 1)
    let bucket = 0
    while (bucket < BOUNDS_MS.length && ms > BOUNDS_MS[bucket]!) bucket += 1
    this.#numbers[from + bucket]! += 1
    this.#numbers[from + BUCKETS]! += ms
  }

  /** Adds the numbers of another one. */
  add(numbers: Float64Array): void {
    for (let i = 0; i < this.#numbers.length; i++) this.#numbers[i]! += numbers[i]!
  }

  /** The numbers for `add` of another one; starts at 0 again. */
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

  /** Samples of a class; none when nothing was observed. @param labels - from `toLabels` */
  toText(index: number, name: string, labels: string): string {
    if (this.countOf(index) === 0) return ''
    const from = index * (BUCKETS + 1)
    const start = labels === '' ? '' : `${labels},`
    let count = 0
    let text = ''
    for (const [bucket, bound] of BOUND_LABELS.entries()) {
      count += this.#numbers[from + bucket]!
      text += toSample(`${name}_bucket`, `${start}le="${bound}"`, count)
    }
    const sum = this.#numbers[from + BUCKETS]! / 1000
    return text + toSample(`${name}_sum`, labels, sum) + toSample(`${name}_count`, labels, count)
  }
}

/** Percentiles come from finer buckets, in 1/256 ms. Durations with the same highest 5 bits share one: it is 3 to 6 % wide. */
const UNITS_PER_MS = 256
/** 2.3 h; longer durations share the last bucket. */
const LONGEST_MS = 2 ** 31 / UNITS_PER_MS - 1

function toBucket(ms: number): number {
  const units = ms > 0 ? (Math.min(ms, LONGEST_MS) * UNITS_PER_MS) | 0 : 0
  const shift = Math.max(0, 27 - Math.clz32(units))
  return shift * 16 + (units >>> shift)
}

function toLowerBoundMs(bucket: number): number {
  const shift = Math.max(0, (bucket >>> 4) - 1)
  return ((bucket - shift * 16) * 2 ** shift) / UNITS_PER_MS
}

/**
 * Counts of the buckets that are not empty, in ascending order: a character for the bucket and one for the count, repeated
 * for the same bucket where one is too small. A string takes 4 bytes a bucket, and the history keeps thousands of them.
 */
type SparseCounts = string
const MAX_COUNT = 0xffff
const MAX_CODES = 10_000

/** Durations in buckets for percentiles. Only the range between the shortest and the longest one takes memory. */
export class LogHistogram {
  #first = 0
  /** From the bucket `#first` on. */
  #counts: number[] = []

  observe(ms: number): void {
    this.addTo(toBucket(ms), 1)
  }

  add(counts: SparseCounts): void {
    for (let i = 0; i < counts.length; i += 2) this.addTo(counts.charCodeAt(i), counts.charCodeAt(i + 1))
  }

  /** The counts; starts at 0 again. */
  take(): SparseCounts {
    const codes: number[] = []
    for (const [index, count] of this.#counts.entries())
      for (let left = count; left > 0; left -= MAX_COUNT) codes.push(this.#first + index, Math.min(left, MAX_COUNT))
    this.#counts.fill(0)
    // A call takes a limited number of arguments.
    return codes.length < MAX_CODES
      ? String.fromCharCode(...codes)
      : Buffer.from(Uint16Array.from(codes).buffer).toString('utf16le')
  }

  addTo(bucket: number, count: number): void {
    const counts = this.#counts
    if (counts.length === 0) this.#first = bucket
    for (; bucket < this.#first; this.#first--) counts.unshift(0)
    while (bucket >= this.#first + counts.length) counts.push(0)
    counts[bucket - this.#first]! += count
  }
}

const BUCKET_COUNT = toBucket(LONGEST_MS) + 1
/** Per histogram of a report: more than a gateway counts in a day. */
const MAX_REPORTED = 1e10

/** For reports, which stay small at any count: the count of each bucket from 0 on, and -n for n empty ones. */
export function toReported(counts: SparseCounts): number[] {
  const reported: number[] = []
  let next = 0
  for (let i = 0; i < counts.length; i += 2) {
    const [bucket, count] = [counts.charCodeAt(i), counts.charCodeAt(i + 1)]
    if (bucket > next) reported.push(next - bucket)
    if (bucket < next) reported[reported.length - 1]! += count
    else reported.push(count)
    next = bucket + 1
  }
  return reported
}

/** @param reported - from another gateway, or anyone. @returns null for numbers that `toReported` does not make */
export function fromReported(reported: unknown): SparseCounts | null {
  if (!Array.isArray(reported) || reported.length > BUCKET_COUNT) return null
  const histogram = new LogHistogram()
  let [bucket, total] = [0, 0]
  for (const count of reported) {
    if (!Number.isInteger(count) || count < -BUCKET_COUNT || bucket >= BUCKET_COUNT) return null
    total += Math.max(0, count)
    if (total > MAX_REPORTED) return null
    if (count > 0) histogram.addTo(bucket, count)
    bucket += count < 0 ? -count : 1
  }
  return histogram.take()
}

export function sumCounts(one: SparseCounts, other: SparseCounts): SparseCounts {
  if (one === '' || other === '') return one + other
  const sum = new LogHistogram()
  sum.add(one)
  sum.add(other)
  return sum.take()
}

/** Number of counted durations. */
export function toTotal(counts: SparseCounts): number {
  let total = 0
  for (let i = 1; i < counts.length; i += 2) total += counts.charCodeAt(i)
  return total
}

/**
 * The lower bound of the bucket that contains a percentile: never above the true value, and at most 6 % below it.
 * @param share - 0.95 for p95
 * @returns ms; null without durations
 */
export function toPercentileMs(counts: SparseCounts, share: number): number | null {
  let left = share * toTotal(counts)
  for (let i = 0; i < counts.length; i += 2) {
    left -= counts.charCodeAt(i + 1)
    if (left <= 0) return toLowerBoundMs(counts.charCodeAt(i))
  }
  return null
}

/** Counts of one function, or of all. */
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

const NO_NUMBERS = { errors4xx: 0, errors5xx: 0, throttled: 0, coldStarts: 0 }

export function createCounts(): Counts {
  return { ...NO_NUMBERS, durations: '', waits: '' }
}

/** Counts since they were taken last. */
export class Tally {
  #isEmpty = true
  #numbers = { ...NO_NUMBERS }
  readonly #durations = new LogHistogram()
  readonly #waits = new LogHistogram()

  /**
   * @param queuedMs - waiting for a slot; 0 for a call that did not
   * @param wasThrottled - refused by admission
   */
  count(status: number, durationMs: number, queuedMs: number, wasThrottled: boolean): void {
    this.#isEmpty = false
    if (queuedMs > 0) this.#waits.observe(queuedMs)
    // A refusal takes no time and says nothing about the latency of the function.
    if (wasThrottled) {
      this.#numbers.throttled += 1
      return
    }
    if (status >= 500) this.#numbers.errors5xx += 1
    // A call that was stopped has status 0 and counts as one whose client left.
    else if (status >= 400 || status < 100) this.#numbers.errors4xx += 1
    this.#durations.observe(durationMs)
  }

  coldStart(): void {
    this.#isEmpty = false
    this.#numbers.coldStarts += 1
  }

  add({ durations, waits, ...numbers }: Counts): void {
    this.#isEmpty = false
    addTo(this.#numbers, numbers)
    this.#durations.add(durations)
    this.#waits.add(waits)
  }

  /** @returns null when nothing was counted since the last time */
  take(): Counts | null {
    if (this.#isEmpty) return null
    const taken = { ...this.#numbers, durations: this.#durations.take(), waits: this.#waits.take() }
    this.#isEmpty = true
    this.#numbers = { ...NO_NUMBERS }
    return taken
  }
}

/** Adds named numbers to others. */
export function addTo<Name extends string>(
  sums: NoInfer<Record<Name, number>>,
  added: Readonly<Record<Name, number>>,
): void {
  for (const name of Object.keys(added) as Name[]) sums[name] += added[name]
}

/** Increments of named numbers since they were taken last. */
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
    for (const name of Object.keys(added) as Name[]) added[name] -= this.#seen[name]
    Object.assign(this.#seen, this.#numbers)
    return Object.values(added).some(number => number !== 0) ? added : null
  }
}

/** Methods by name; the last stands for all others, because clients send any. */
const COUNTED_METHODS = [...METHODS, 'HEAD', 'OPTIONS', 'other'] as const
const METHOD_INDEX: ReadonlyMap<string, number> = new Map(COUNTED_METHODS.map((name, index) => [name, index]))
const OTHER = COUNTED_METHODS.length - 1
/** Statuses are below this. */
const STATUSES = 600

type Result = 'ok' | 'failed'

/** Numbers since they were taken last, for another process. */
export interface MetricCounts {
  /** Index and count, in turn, of the requests by method and status. */
  requests: number[]
  durations: Float64Array
  /** Of public requests; null for none. */
  counts: Counts | null
  functions: { key: string; durations: Float64Array; waits: Float64Array; counts: Counts }[]
}

export class Metrics {
  readonly functions = new FunctionMetrics()
  /** Public requests, for the history. */
  readonly tally = new Tally()
  readonly #requests = new Float64Array(COUNTED_METHODS.length * STATUSES)
  readonly #durations = new Histogram(1)
  readonly #reloads: Record<Result, number> = { ok: 0, failed: 0 }
  readonly #scheduleRuns: Record<Result, number> = { ok: 0, failed: 0 }
  readonly #sources: (() => Iterable<string>)[] = [() => this.#toText(), () => this.functions.toText()]

  /** Adds families whose numbers are kept elsewhere, in pieces of text: the sender may pause between two. */
  register(source: () => Iterable<string>): void {
    this.#sources.push(source)
  }

  /**
   * Counts an answered request.
   * @param fn - null when it was for none
   * @param queuedMs - waiting for a slot
   * @param isControl - it was for `/_fn` or `/console`
   * @param wasThrottled - refused by admission
   */
  request(
    method: string,
    status: number,
    fn: FunctionVersion | null,
    durationMs: number,
    queuedMs: number,
    isControl = false,
    wasThrottled = false,
  ): void {
    this.#requests[(METHOD_INDEX.get(method) ?? OTHER) * STATUSES + (status < STATUSES ? status : 0)]! += 1
    this.#durations.observe(0, durationMs)
    if (!isControl) this.tally.count(status, durationMs, 0, wasThrottled)
    if (fn !== null) this.functions.count(fn, status, durationMs, queuedMs, wasThrottled)
  }

  /** The counts since the last time, for `add` of another process; null for nothing. */
  take(): MetricCounts | null {
    const requests: number[] = []
    for (const [index, count] of this.#requests.entries()) if (count > 0) requests.push(index, count)
    this.#requests.fill(0)
    const functions = this.functions.take()
    if (requests.length + functions.length === 0) return null
    return { requests, durations: this.#durations.take(), counts: this.tally.take(), functions }
  }

  /** Adds the counts of another process. */
  add({ requests, durations, counts, functions }: MetricCounts): void {
    for (let i = 0; i + 1 < requests.length; i += 2) this.#requests[requests[i]!]! += requests[i + 1]!
    this.#durations.add(durations)
    if (counts !== null) this.tally.add(counts)
    this.functions.add(functions)
  }

  reload(result: Result): void {
    this.#reloads[result] += 1
  }

  scheduleRun(result: Result): void {
    this.#scheduleRuns[result] += 1
  }

  /** Every family, in pieces. */
  *toText(): Generator<string> {
    for (const source of this.#sources) yield* source()
  }

  *#toText(): Generator<string> {
    const requests: [Labels, number][] = []
    for (const [index, count] of this.#requests.entries()) {
      const [method, status] = [Math.floor(index / STATUSES), index % STATUSES]
      if (count > 0) requests.push([{ method: COUNTED_METHODS[method]!, code: String(status) }, count])
    }
    yield* toFamily('http_requests_total', 'counter', 'Requests that were answered or left.', requests)
    const duration = 'http_request_duration_seconds'
    const durations = this.#durations.toText(0, duration, '')
    yield* toFamily(duration, 'histogram', 'From the request to the whole answer.', [durations])
    yield* toFamily('fn_reload_total', 'counter', 'Readings of the functions root.', toResults(this.#reloads))
    yield* toFamily('fn_schedule_runs_total', 'counter', 'Runs of schedules.', toResults(this.#scheduleRuns))
  }
}

function toResults(counts: Readonly<Record<Result, number>>): [Labels, number][] {
  return Object.entries(counts).map(([result, count]) => [{ result }, count])
}

const CLASSES = ['1xx', '2xx', '3xx', '4xx', '5xx'] as const

/** Numbers of one function, made at its first call. */
class Series {
  readonly key: string
  readonly labels: string
  readonly durations = new Histogram(CLASSES.length)
  readonly waits = new Histogram(1)
  coldStarts = 0
  readonly tally = new Tally()

  constructor(fn: FunctionVersion) {
    this.key = fn.key
    this.labels = toLabels(toFunctionLabels(fn))
  }
}

class FunctionMetrics {
  readonly #series = new Map<string, Series>()
  #functions: ReadonlyMap<string, FunctionVersion> = new Map()

  /** Replaces the catalog. The series of removed functions are dropped, so that their number is bounded. */
  adopt(functions: ReadonlyMap<string, FunctionVersion>): void {
    this.#functions = functions
    for (const key of this.#series.keys()) if (!functions.has(key)) this.#series.delete(key)
  }

  /** @param queuedMs - waiting for a slot; 0 for a call that did not */
  count(fn: FunctionVersion, status: number, durationMs: number, queuedMs: number, wasThrottled = false): void {
    const series = this.#seriesOf(fn.key)
    if (series === null) return
    series.durations.observe(toClass(status), durationMs)
    if (queuedMs > 0) series.waits.observe(0, queuedMs)
    series.tally.count(status, durationMs, queuedMs, wasThrottled)
  }

  coldStart(fn: FunctionVersion): void {
    const series = this.#seriesOf(fn.key)
    if (series === null) return
    series.coldStarts += 1
    series.tally.coldStart()
  }

  /** @returns null for a function that was removed, and whose last calls end now */
  #seriesOf(key: string): Series | null {
    const known = this.#series.get(key)
    if (known !== undefined) return known
    const fn = this.#functions.get(key)
    if (fn === undefined) return null
    const series = new Series(fn)
    this.#series.set(key, series)
    return series
  }

  take(): MetricCounts['functions'] {
    return [...this.#series.values()].flatMap(({ key, durations, waits, tally }) => {
      const counts = tally.take()
      return counts === null ? [] : [{ key, durations: durations.take(), waits: waits.take(), counts }]
    })
  }

  add(taken: MetricCounts['functions']): void {
    for (const { key, durations, waits, counts } of taken) {
      const series = this.#seriesOf(key)
      if (series === null) continue
      series.durations.add(durations)
      series.waits.add(waits)
      series.coldStarts += counts.coldStarts
      series.tally.add(counts)
    }
  }

  /** Functions of the catalog that were called. */
  counters(): Iterable<{ readonly key: string; readonly tally: Tally }> {
    return this.#series.values()
  }

  /** Families of functions that were called, in pieces. */
  *toText(): Generator<string> {
    const calls = 'fn_invocations_total'
    const ended = this.#toTexts(({ labels, durations }) =>
      ofEachClass(labels, (index, classLabels) => toCount(calls, classLabels, durations.countOf(index))),
    )
    yield* toFamily(calls, 'counter', 'Calls of functions that ended, through every door.', ended)
    const time = 'fn_invocation_duration_seconds'
    const times = this.#toTexts(({ labels, durations }) =>
      ofEachClass(labels, (index, classLabels) => durations.toText(index, time, classLabels)),
    )
    const whole = 'From the request, or the start of an internal call, to the whole answer.'
    yield* toFamily(time, 'histogram', whole, times)
    const wait = 'fn_queue_wait_seconds'
    const waited = this.#toTexts(({ labels, waits }) => waits.toText(0, wait, labels))
    yield* toFamily(wait, 'histogram', 'Waiting for a slot, of calls that waited.', waited)
    const cold = 'fn_cold_starts_total'
    const starts = this.#toTexts(({ labels, coldStarts }) => toCount(cold, labels, coldStarts))
    yield* toFamily(cold, 'counter', 'Calls given to a worker that was still starting.', starts)
  }

  *#toTexts(toText: (series: Series) => string): Generator<string> {
    for (const series of this.#series.values()) yield toText(series)
  }
}

function toCount(name: string, labels: string, count: number): string {
  return count === 0 ? '' : toSample(name, labels, count)
}

function ofEachClass(labels: string, toText: (index: number, labels: string) => string): string {
  return CLASSES.map((status, index) => toText(index, `${labels},status_class="${status}"`)).join('')
}

/** A call that was stopped has status 0 and counts as one whose client left. */
function toClass(status: number): number {
  return status < 100 ? 3 : Math.min(5, Math.trunc(status / 100)) - 1
}

/**
 * The gateway's process, under the names that tools know from other programs.
 * @param openFiles - null where the system does not report it
 * @param maxFiles - files this process may have open; null where the system does not report it
 */
export function toProcessText(clock: Clock, openFiles: number | null, maxFiles: number | null): string {
  const { user, system } = process.cpuUsage()
  const { rss, heapUsed, heapTotal, external } = process.memoryUsage()
  const startedAt = (clock.wall() - process.uptime() * 1000) / 1000
  const busy = performance.eventLoopUtilization().active / 1000
  const rows: [name: string, type: FamilyType, help: string, value: number | null][] = [
    ['process_cpu_seconds_total', 'counter', 'Processor time of the gateway, seconds.', (user + system) / 1e6],
    ['process_resident_memory_bytes', 'gauge', 'Memory of the gateway, bytes.', rss],
    ['process_start_time_seconds', 'gauge', 'Start of the process, seconds since the epoch.', startedAt],
    ['nodejs_heap_size_used_bytes', 'gauge', 'JavaScript heap in use, bytes.', heapUsed],
    ['nodejs_heap_size_total_bytes', 'gauge', 'JavaScript heap, bytes.', heapTotal],
    ['nodejs_external_memory_bytes', 'gauge', 'Memory of buffers and the like, bytes.', external],
    ['nodejs_eventloop_active_seconds_total', 'counter', 'Time in which the event loop was busy, seconds.', busy],
    ['process_open_fds', 'gauge', 'Open files and sockets.', openFiles],
    ['process_max_fds', 'gauge', 'Files and sockets that may be open.', maxFiles],
  ]
  return rows
    .flatMap(([name, type, help, value]) => [...toFamily(name, type, help, value === null ? [] : [['', value]])])
    .join('')
}

/** Open files of this process; null where the system does not report it. */
export async function countOpenFiles(): Promise<number | null> {
  const files = await readdir('/proc/self/fd').catch(() => null)
  // Without the one that was open for reading them.
  return files === null ? null : files.length - 1
}
