/** The history over one window as the shapes that `/_fn/metrics?format=json` shows. Owner: page observe/history. */

import { toFunctionLabels } from './metrics.ts'
import { Tally, toPercentileMs, toTotal } from './histogram.ts'
import {
  createStepNumbers,
  type HistorySeries,
  type HistoryStore,
  type StepNumbers,
  TIERS,
  toStep,
  type WindowName,
} from './history.ts'
import type { FunctionVersion } from '../core/catalog.ts'

/** Columns of a sparkline. */
const SPARK_COLUMNS = 30

/** A number of each step; null where nothing is known. */
type Row = (number | null)[]

interface SeriesRecord {
  requests: Row
  errors_4xx: Row
  errors_5xx: Row
  throttled: Row
  p50_ms: Row
  p95_ms: Row
  p99_ms: Row
  queue_depth: Row
  queue_wait_p95_ms: Row
  workers: Row
  cold_starts: Row
}

interface TotalsRecord {
  requests: number
  errors_4xx: number
  errors_5xx: number
  throttled: number
  p50_ms: number | null
  p95_ms: number | null
  p99_ms: number | null
  /** Requests in 30 columns. */
  spark: number[]
}

interface SummaryRecord extends TotalsRecord {
  key: string
  runtime: string
  name: string
  version: string
  last_error_at: number | null
  last_error: string | null
}

export class HistoryView {
  readonly #store: HistoryStore
  readonly #window: WindowName
  /** Numbers of the steps; the last one still goes on. */
  readonly #steps: readonly number[]

  constructor(store: HistoryStore, window: WindowName) {
    this.#store = store
    this.#window = window
    const last = toStep(window, store.takenAt)
    const count = TIERS[window].steps
    this.#steps = Array.from({ length: count }, (_, i) => last - count + 1 + i)
  }

  get stepMs(): number {
    return TIERS[this.#window].stepMs
  }

  /** Start of each step, seconds. */
  get times(): number[] {
    return this.#steps.map(step => this.#store.time.toWall(step * this.stepMs) / 1000)
  }

  /** @param key - of a function */
  toFunctionSeries(key: string): SeriesRecord {
    const series = this.#store.functions.get(key) ?? null
    return this.toSeries(series, this.#store.leftOut.has(key) ? Number.POSITIVE_INFINITY : series?.knownFrom)
  }

  /**
   * @param series - null for what was never called
   * @param knownFrom - of steps that ended before, nothing is known
   */
  toSeries(series: HistorySeries | null, knownFrom = 0): SeriesRecord {
    const steps = this.#steps.map(step =>
      (step + 1) * this.stepMs <= knownFrom ? null : this.#numbersOf(series, step),
    )
    const row = (read: (numbers: StepNumbers) => number | null): Row =>
      steps.map(numbers => (numbers === null ? null : read(numbers)))
    const percentile = (share: number) => row(({ durations }) => toShown(toPercentileMs(durations, share)))
    return {
      requests: row(toRequests),
      errors_4xx: row(({ errors4xx }) => errors4xx),
      errors_5xx: row(({ errors5xx }) => errors5xx),
      throttled: row(({ throttled }) => throttled),
      p50_ms: percentile(0.5),
      p95_ms: percentile(0.95),
      p99_ms: percentile(0.99),
      queue_depth: row(({ queued }) => queued),
      queue_wait_p95_ms: row(({ waits }) => toShown(toPercentileMs(waits, 0.95))),
      workers: row(({ workers }) => workers),
      cold_starts: row(({ coldStarts }) => coldStarts),
    }
  }

  toTotals(series: HistorySeries | null): TotalsRecord {
    const sum = new Tally()
    const spark = Array<number>(SPARK_COLUMNS).fill(0)
    for (const [index, step] of this.#steps.entries()) {
      const numbers = series?.stepOf(this.#window, step) ?? null
      if (numbers === null) continue
      sum.add(numbers)
      spark[Math.floor((index * SPARK_COLUMNS) / this.#steps.length)]! += toRequests(numbers)
    }
    const { errors4xx, errors5xx, throttled, durations } = sum.take() ?? NOTHING
    const percentile = (share: number) => toShown(toPercentileMs(durations, share))
    return {
      requests: toRequests({ durations, throttled }),
      errors_4xx: errors4xx,
      errors_5xx: errors5xx,
      throttled,
      p50_ms: percentile(0.5),
      p95_ms: percentile(0.95),
      p99_ms: percentile(0.99),
      spark,
    }
  }

  toSummary(fn: FunctionVersion): SummaryRecord {
    const { runtime, fn: name, version } = toFunctionLabels(fn)
    const error = this.#store.errors.get(fn.key)
    return {
      ...{ key: fn.key, runtime, name, version },
      ...this.toTotals(this.#store.functions.get(fn.key) ?? null),
      last_error_at: error === undefined ? null : error.at / 1000,
      last_error: error?.message ?? null,
    }
  }

  #numbersOf(series: HistorySeries | null, step: number): Readonly<StepNumbers> | null {
    if (!this.#store.isKnown(this.#window, step)) return null
    return series?.stepOf(this.#window, step) ?? NOTHING
  }
}

const NOTHING: Readonly<StepNumbers> = createStepNumbers()

function toShown(ms: number | null): number | null {
  return ms === null ? null : Math.round(ms * 1000) / 1000
}

/** Refused requests have no duration. */
function toRequests({ durations, throttled }: Pick<StepNumbers, 'durations' | 'throttled'>): number {
  return toTotal(durations) + throttled
}
