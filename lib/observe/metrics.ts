/**
 * What a gateway counts, and the text in which a scraper reads it. Counting costs a few additions to arrays that are there;
 * everything else is read where it is kept, when somebody asks. Owner: page observe/metrics.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import { METHODS } from '../core/identity.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import {
  type FunctionCounts,
  Histogram,
  type MetricCounts,
  type MetricSource,
  Tally,
  toBucket,
  toFamily,
  toFamilyHead,
  toLabels,
  toSample,
} from './histogram.ts'

/** Methods by name; the last stands for all that nobody lists, because a client may make them up. */
const COUNTED_METHODS = [...METHODS, 'HEAD', 'OPTIONS', 'other'] as const
const METHOD_INDEX: ReadonlyMap<string, number> = new Map(COUNTED_METHODS.map((name, index) => [name, index]))
const OTHER = COUNTED_METHODS.length - 1
/** Statuses run below this. */
const STATUSES = 600
/** Requests of the public routes, and those of `/_fn` and `/console` behind them. */
const PUBLIC = 0
const CONTROL = 1
const PLANE_COUNTS = COUNTED_METHODS.length * STATUSES

type Result = 'ok' | 'failed'

export class Metrics {
  readonly functions = new FunctionMetrics()
  /** Public requests, for the history. */
  readonly tally = new Tally()
  readonly #requests = new Float64Array(2 * PLANE_COUNTS)
  readonly #durations = new Histogram(2)
  readonly #reloads: Record<Result, number> = { ok: 0, failed: 0 }
  readonly #scheduleRuns: Record<Result, number> = { ok: 0, failed: 0 }
  readonly #sources: MetricSource[] = [() => this.#toText(), () => this.functions.toText()]

  /** Adds families of somebody who keeps numbers himself: jobs by state, workers, the process. */
  register(source: MetricSource): void {
    this.#sources.push(source)
  }

  /**
   * Counts an answered request.
   * @param fn - that it was for; null for none
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
    const plane = isControl ? CONTROL : PUBLIC
    const index = (METHOD_INDEX.get(method) ?? OTHER) * STATUSES + (status < STATUSES ? status : 0)
    this.#requests[plane * PLANE_COUNTS + index]! += 1
    const bucket = toBucket(durationMs)
    this.#durations.observe(plane, durationMs, bucket)
    if (!isControl) this.tally.count(status, durationMs, 0, bucket, wasThrottled)
    if (fn !== null) this.functions.count(fn, status, durationMs, queuedMs, wasThrottled, bucket)
  }

  /** What was counted since the last time, for `add` of another process; null for nothing. */
  take(): MetricCounts | null {
    const requests: number[] = []
    for (let i = 0; i < this.#requests.length; i++) {
      if (this.#requests[i] === 0) continue
      requests.push(i, this.#requests[i]!)
      this.#requests[i] = 0
    }
    const functions = this.functions.take()
    if (requests.length + functions.length === 0) return null
    return { requests, durations: this.#durations.take(), counts: this.tally.take(), functions }
  }

  /** Adds what another process counted. */
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
    yield toFamily('http_requests_total', 'counter', 'Requests that were answered or left.', this.#toRequests())
    const duration = 'http_request_duration_seconds'
    const help = 'From the request to the whole answer.'
    const text = this.#durations.toText(null, duration, '')
    if (text !== '') yield toFamilyHead(duration, 'histogram', help) + text
    yield toFamily('fn_reload_total', 'counter', 'Readings of the functions root.', toResults(this.#reloads))
    yield toFamily('fn_schedule_runs_total', 'counter', 'Runs of schedules.', toResults(this.#scheduleRuns))
  }

  *#toRequests(): Generator<[Readonly<Record<string, string>>, number]> {
    for (const [method, from] of COUNTED_METHODS.map((name, index) => [name, index * STATUSES] as const)) {
      for (let status = 0; status < STATUSES; status++) {
        const count = this.#requests[from + status]! + this.#requests[PLANE_COUNTS + from + status]!
        if (count > 0) yield [{ method, code: String(status) }, count]
      }
    }
  }
}

function toResults(counts: Readonly<Record<Result, number>>): [Readonly<Record<string, string>>, number][] {
  return [
    [{ result: 'ok' }, counts.ok],
    [{ result: 'failed' }, counts.failed],
  ]
}

// What is counted of each function: calls by status class, how long they took and waited, cold starts.

const CLASSES = ['1xx', '2xx', '3xx', '4xx', '5xx'] as const

/** What was counted of one function. */
export interface FunctionCounters {
  readonly key: string
  readonly tally: Pick<Tally, 'take'>
}

/** Numbers of one function, made at its first call. */
class Series implements FunctionCounters {
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

/** Labels of a function. */
export function toFunctionLabels({ runtime, name, version }: FunctionVersion): {
  runtime: string
  fn: string
  version: string
} {
  return { runtime, fn: name, version: version ?? DEFAULT_VERSION_LABEL }
}

class FunctionMetrics {
  readonly #series = new Map<string, Series>()
  #functions: ReadonlyMap<string, FunctionVersion> = new Map()

  /** A new catalog: what it has no more is forgotten, so that series cannot grow without end. */
  adopt(functions: ReadonlyMap<string, FunctionVersion>): void {
    this.#functions = functions
    for (const key of this.#series.keys()) if (!functions.has(key)) this.#series.delete(key)
  }

  /** @param queuedMs - waiting for a slot; 0 for a call that did not */
  count(
    fn: FunctionVersion,
    status: number,
    durationMs: number,
    queuedMs: number,
    wasThrottled = false,
    bucket = toBucket(durationMs),
  ): void {
    const series = this.#series.get(fn.key) ?? this.#begin(fn)
    if (series === null) return
    series.durations.observe(toClass(status), durationMs, bucket)
    if (queuedMs > 0) series.waits.observe(0, queuedMs)
    series.tally.count(status, durationMs, queuedMs, bucket, wasThrottled)
  }

  coldStart(fn: FunctionVersion): void {
    const series = this.#series.get(fn.key) ?? this.#begin(fn)
    if (series === null) return
    series.coldStarts += 1
    series.tally.coldStart()
  }

  /** What was counted since the last time, for `add` of another process. */
  take(): FunctionCounts[] {
    const taken: FunctionCounts[] = []
    for (const series of this.#series.values()) {
      const { key, durations, waits, tally } = series
      const counts = tally.take()
      if (counts !== null) taken.push({ key, durations: durations.take(), waits: waits.take(), counts })
    }
    return taken
  }

  /** Adds what another process counted; of a function that is gone meanwhile nothing is kept. */
  add(taken: readonly FunctionCounts[]): void {
    for (const { key, durations, waits, counts } of taken) {
      const fn = this.#functions.get(key)
      const series = this.#series.get(key) ?? (fn === undefined ? null : this.#begin(fn))
      if (series === null) continue
      series.durations.add(durations)
      series.waits.add(waits)
      series.coldStarts += counts.coldStarts
      series.tally.add(counts)
    }
  }

  /** @returns null for a function that is in the catalog no more, and whose last calls end now */
  #begin(fn: FunctionVersion): Series | null {
    if (!this.#functions.has(fn.key)) return null
    const series = new Series(fn)
    this.#series.set(fn.key, series)
    return series
  }

  /** Functions that were called and are there. */
  counters(): Iterable<FunctionCounters> {
    return this.#series.values()
  }

  /** Families of functions that were called, in pieces. */
  *toText(): Generator<string> {
    if (this.#series.size === 0) return
    const calls = 'fn_invocations_total'
    yield toFamilyHead(calls, 'counter', 'Calls of functions that ended, through every door.')
    for (const { labels, durations } of this.#series.values()) yield toClassText(calls, labels, durations)
    const duration = 'fn_invocation_duration_seconds'
    yield toFamilyHead(
      duration,
      'histogram',
      'From the request, or the asking of an internal call, to the whole answer.',
    )
    for (const { labels, durations } of this.#series.values())
      for (const [index, name] of CLASSES.entries())
        yield durations.toText(index, duration, `${labels},status_class="${name}"`)
    yield* this.#toShort(
      'fn_queue_wait_seconds',
      'histogram',
      'Waiting for a slot, of calls that waited.',
      ({ waits, labels }, name) => waits.toText(0, name, labels),
    )
    yield* this.#toShort(
      'fn_cold_starts_total',
      'counter',
      'Calls given to a worker that was still starting.',
      ({ coldStarts, labels }, name) => (coldStarts === 0 ? '' : toSample(name, labels, coldStarts)),
    )
  }

  /** A family that many functions have nothing for; without any it is left out. */
  *#toShort(
    name: string,
    type: 'counter' | 'histogram',
    help: string,
    toText: (series: Series, name: string) => string,
  ): Generator<string> {
    let head = toFamilyHead(name, type, help)
    for (const series of this.#series.values()) {
      const text = toText(series, name)
      if (text === '') continue
      yield head + text
      head = ''
    }
  }
}

function toClassText(name: string, labels: string, durations: Histogram): string {
  let text = ''
  for (const [index, status] of CLASSES.entries()) {
    const count = durations.countOf(index)
    if (count > 0) text += toSample(name, `${labels},status_class="${status}"`, count)
  }
  return text
}

/** A call that was stopped has status 0; whoever stopped it counts as a client that left. */
function toClass(status: number): number {
  return status < 100 ? 3 : Math.min(5, Math.trunc(status / 100)) - 1
}
