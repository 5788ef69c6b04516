/**
 * What a gateway counts, and the text in which a scraper reads it. Counting costs a few additions to arrays that are there;
 * everything else is read where it is kept, when somebody asks. Owner: page observe/metrics.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import { METHODS } from '../core/identity.ts'
import { FunctionMetrics } from './function-metrics.ts'
import { Histogram, toBucket } from './histogram.ts'
import { type MetricCounts, Tally } from './metric-counts.ts'
import { type MetricSource, toFamily, toFamilyHead } from './metrics-text.ts'

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
