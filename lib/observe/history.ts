/**
 * The last day of a gateway in numbers, as the console draws them: every 5 s it takes the counts of `Metrics` since the last time.
 * Owner: page observe/history.
 *
 *   Metrics, slots, workers ──every 5 s, and at each request──► what was added ──► all, its runtime, its function
 */

import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, Timer } from '../core/clock.ts'
import { getOrMake } from '../core/collections.ts'
import { toFunctionLabels } from '../core/identity.ts'
import { addTo, type Counts, createCounts, type Metrics, sumCounts, Tally, toPercentileMs, toTotal } from './metrics.ts'

/** The resolution of the past: every step of a tier contains those of the finer one. */
export const TIERS = {
  '5m': { stepMs: 5000, steps: 60 },
  '1h': { stepMs: 60_000, steps: 60 },
  '24h': { stepMs: 600_000, steps: 144 },
} as const

export type WindowName = keyof typeof TIERS
export const WINDOWS = Object.keys(TIERS) as readonly WindowName[]

/** The numbers of one or several steps. */
export interface StepNumbers extends Counts {
  /** The maximum of calls that waited for a slot, and of workers. */
  queued: number
  workers: number
}

export function createStepNumbers(): StepNumbers {
  return { ...createCounts(), queued: 0, workers: 0 }
}

const NOTHING: Readonly<StepNumbers> = createStepNumbers()

function addStepNumbers(sum: StepNumbers, { durations, waits, queued, workers, ...numbers }: StepNumbers): void {
  addTo(sum, numbers)
  sum.durations = sumCounts(sum.durations, durations)
  sum.waits = sumCounts(sum.waits, waits)
  sum.queued = Math.max(sum.queued, queued)
  sum.workers = Math.max(sum.workers, workers)
}

/** Number of the step that contains an instant. */
function toStep(name: WindowName, instant: number): number {
  return Math.floor(instant / TIERS[name].stepMs)
}

/** With a larger difference the clock was set, or the machine slept; a smaller one is the drift of two clocks. */
const DRIFT_MS = 1000

/** Time of the history: it advances with the monotonic clock and follows the wall clock wherever that does not go back. */
export class StepTime {
  readonly #clock: Clock
  /** Wall clock minus monotonic clock, as last accepted. */
  #offset: number
  /** Offset after the wall clock was set back, so that no time is counted twice. */
  #ahead = 0

  constructor(clock: Clock) {
    this.#clock = clock
    this.#offset = clock.wall() - clock.monotonic()
  }

  /** Ms since the epoch that never go back. */
  now(): number {
    const monotonic = this.#clock.monotonic()
    const moved = this.#clock.wall() - monotonic - this.#offset
    if (Math.abs(moved) > DRIFT_MS) {
      this.#offset += moved
      this.#ahead = Math.max(0, this.#ahead - moved)
    }
    return monotonic + this.#offset + this.#ahead
  }

  /** The wall clock's time of an instant from `now`, ms. */
  toWall(instant: number): number {
    return instant - this.#ahead
  }
}

/** The numbers of one function, one runtime or everything in every window. */
export class HistorySeries {
  /** Nothing is known before this instant; since then no numbers mean 0. */
  readonly knownFrom: number
  /** Last instant at which something was counted. */
  countedAt = 0
  /** By number of the step, ascending; steps in which nothing was counted have none. */
  readonly #steps: Readonly<Record<WindowName, Map<number, StepNumbers>>> = {
    '5m': new Map(),
    '1h': new Map(),
    '24h': new Map(),
  }

  constructor(knownFrom: number) {
    this.knownFrom = knownFrom
  }

  /** Adds numbers to the steps that contain an instant, which is not before the last one. */
  add(instant: number, numbers: StepNumbers): void {
    for (const name of WINDOWS) {
      const steps = this.#steps[name]
      const step = toStep(name, instant)
      addStepNumbers(getOrMake(steps, step, createStepNumbers), numbers)
      for (const old of steps.keys()) {
        if (old > step - TIERS[name].steps) break
        steps.delete(old)
      }
    }
  }

  /** The numbers of a step; null where nothing was counted. */
  stepOf(name: WindowName, step: number): Readonly<StepNumbers> | null {
    return this.#steps[name].get(step) ?? null
  }
}

/** A failure; `at` is wall clock, ms. */
export interface FunctionError {
  at: number
  message: string
}

/** Functions that have a series: 85 MB at one call a minute each. */
const MAX_FUNCTION_SERIES = 3000
/** A function that was called within this time keeps its series when there is no room for another. */
const KEPT_AFTER_CALL_MS = 300_000

/** Series of everything, of each runtime, and of each function that was called, up to a number of functions. */
export class HistoryStore {
  readonly time: StepTime
  /** Instants of the start and of the last sample, and the one that its numbers belong to. */
  readonly startedAt: number
  sampledAt: number
  takenAt: number
  readonly all: HistorySeries
  readonly runtimes = new Map<string, HistorySeries>()
  /** By key, in the order of their last calls. */
  readonly functions = new Map<string, HistorySeries>()
  /** Functions that were called and have no series. */
  readonly leftOut = new Set<string>()
  /** The last failure of each function. */
  readonly errors = new Map<string, FunctionError>()
  readonly #maxFunctions: number

  constructor(time: StepTime, maxFunctions: number) {
    this.time = time
    this.#maxFunctions = maxFunctions
    this.startedAt = time.now()
    this.sampledAt = this.startedAt
    this.takenAt = this.startedAt
    this.all = new HistorySeries(this.startedAt)
  }

  /** Begins a sample whose numbers belong to this instant. */
  open(instant: number): void {
    this.takenAt = instant
    this.all.add(instant, NOTHING)
  }

  /** Nothing is known of a step without a sample. */
  isKnown(name: WindowName, step: number): boolean {
    return this.all.stepOf(name, step) !== null
  }

  runtimeOf(name: string): HistorySeries {
    return getOrMake(this.runtimes, name, () => new HistorySeries(this.startedAt))
  }

  /** The series of a function that was just called; null if the limit of series is reached. */
  called(key: string): HistorySeries | null {
    const series = this.functions.get(key) ?? this.#begin(key)
    if (series === null) return null
    series.countedAt = this.takenAt
    this.functions.delete(key)
    this.functions.set(key, series)
    return series
  }

  /** @param isGone - true for the key of a removed function */
  forget(isGone: (key: string) => boolean): void {
    for (const keyed of [this.functions, this.leftOut, this.errors])
      for (const key of keyed.keys()) if (isGone(key)) keyed.delete(key)
  }

  #begin(key: string): HistorySeries | null {
    if (this.functions.size >= this.#maxFunctions && !this.#dropOldest()) {
      this.leftOut.add(key)
      return null
    }
    // The counts of a function that was left out are unknown.
    return new HistorySeries(this.leftOut.delete(key) ? this.takenAt : this.startedAt)
  }

  #dropOldest(): boolean {
    const [oldest] = this.functions
    if (oldest === undefined || this.takenAt - oldest[1].countedAt < KEPT_AFTER_CALL_MS) return false
    this.functions.delete(oldest[0])
    this.leftOut.add(oldest[0])
    return true
  }
}

const SAMPLE_MS = TIERS['5m'].stepMs
const MAX_ERROR_CHARS = 300

interface HistoryOptions {
  clock: Clock
  metrics: Metrics
  /** Functions with calls that wait for a slot, and how many. */
  waiting: () => Iterable<readonly [key: string, count: number]>
  /** Functions with workers, and how many; a key may come twice. */
  workers: () => Iterable<readonly [key: string, count: number]>
  maxFunctions?: number
  onProblem: (message: string) => void
}

export class History {
  readonly #options: HistoryOptions
  readonly #timer: Timer
  /** Keys of the functions in the last sample. */
  #known: ReadonlySet<string> = new Set()
  #store: HistoryStore | null = null

  constructor(options: HistoryOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock, true)
  }

  /** Begins with the numbers of now; does nothing when it is on. */
  start(): void {
    if (this.#store !== null) return
    const { clock, metrics, maxFunctions = MAX_FUNCTION_SERIES } = this.#options
    this.#store = new HistoryStore(new StepTime(clock), maxFunctions)
    metrics.tally.take()
    for (const { tally } of metrics.functions.counters()) tally.take()
    this.#schedule(this.#store)
  }

  /** Stops the timer; `read` still works while the gateway stops. */
  close(): void {
    this.#timer.clear()
  }

  get isOn(): boolean {
    return this.#store !== null
  }

  /** Forgets everything. */
  stop(): void {
    this.close()
    this.#store = null
  }

  /** A function failed. */
  failed(key: string, message: string): void {
    const at = this.#options.clock.wall()
    this.#store?.errors.set(key, { at, message: message.slice(0, MAX_ERROR_CHARS) })
  }

  /** The history up to now; null while it is off. */
  read(): HistoryStore | null {
    this.#trySample()
    return this.#store
  }

  #schedule({ time }: HistoryStore): void {
    this.#timer.set(Math.ceil(SAMPLE_MS - (time.now() % SAMPLE_MS)), () => {
      this.#trySample()
      if (this.#store !== null) this.#schedule(this.#store)
    })
  }

  /** A machine that runs out of memory loses its history and continues to serve. */
  #trySample(): void {
    if (this.#store === null) return
    try {
      this.#sample(this.#store)
    } catch (error) {
      this.stop()
      this.#options.onProblem(`the history of the console is given up: ${(error as Error).message}`)
    }
  }

  #sample(store: HistoryStore): void {
    const { metrics, waiting, workers } = this.#options
    const now = store.time.now()
    // Counts since the last sample belong to the step between the two, not to the one that has just begun.
    store.open(Math.max((store.sampledAt + now) / 2, now - SAMPLE_MS / 2))
    const all = new Sum()
    const runtimes = new Map<string, Sum>()
    const functions = new Map<string, Sum>()
    const runtimeOf = (key: string): Sum => getOrMake(runtimes, key.slice(0, key.indexOf('/')), () => new Sum())
    const sumsOf = (key: string): Sum[] => [all, runtimeOf(key), getOrMake(functions, key, () => new Sum())]
    for (const [key, count] of waiting()) for (const sum of sumsOf(key)) sum.queued += count
    for (const [key, count] of workers()) for (const sum of sumsOf(key)) sum.workers += count
    const known = new Set<string>()
    for (const { key, tally } of metrics.functions.counters()) {
      known.add(key)
      const gauges = functions.get(key)
      const { queued = 0, workers = 0 } = gauges ?? {}
      const counts = tally.take()
      if (counts === null) {
        if (gauges !== undefined) store.functions.get(key)?.add(store.takenAt, gauges.take())
        continue
      }
      runtimeOf(key).tally.add(counts)
      all.tally.add({ ...counts, durations: '' })
      if (counts.errors5xx > 0) this.#noteStatus(store, key)
      store.called(key)?.add(store.takenAt, { ...counts, queued, workers })
    }
    for (const [name, sum] of runtimes) store.runtimeOf(name).add(store.takenAt, sum.take())
    // Requests are the public ones; cold starts and waits are those of functions through every door.
    const { coldStarts, waits, ...gauges } = all.take()
    const requests = metrics.tally.take() ?? createCounts()
    store.all.add(store.takenAt, { ...gauges, ...requests, coldStarts, waits })
    const before = this.#known
    this.#known = known
    store.forget(key => before.has(key) && !known.has(key))
    store.sampledAt = now
  }

  /** A function that returns 5xx itself gives no reason. */
  #noteStatus(store: HistoryStore, key: string): void {
    const last = store.errors.get(key)
    if (last === undefined || last.at < store.time.toWall(store.sampledAt))
      this.failed(key, 'answered with a 5xx status')
  }
}

/** Numbers of several functions. */
class Sum {
  queued = 0
  workers = 0
  readonly tally = new Tally()

  take(): StepNumbers {
    const { queued, workers } = this
    return { ...(this.tally.take() ?? createCounts()), queued, workers }
  }
}

/** Columns of a sparkline. */
const SPARK_COLUMNS = 30

/** The numbers of each step of a window; null where nothing is known. */
type Steps = readonly (Readonly<StepNumbers> | null)[]

/** The numbers of a whole window, and its requests in columns. */
export interface WindowSum {
  counts: Counts
  spark: number[]
}

/** The history over one window, in the shapes of `/_fn/metrics?format=json`. */
export class HistoryView {
  readonly stepMs: number
  readonly #store: HistoryStore
  readonly #window: WindowName
  /** Numbers of the steps; the last one has not ended yet. */
  readonly #steps: readonly number[]

  constructor(store: HistoryStore, window: WindowName) {
    const { stepMs, steps } = TIERS[window]
    this.stepMs = stepMs
    this.#store = store
    this.#window = window
    const last = toStep(window, store.takenAt)
    this.#steps = Array.from({ length: steps }, (_, i) => last - steps + 1 + i)
  }

  /** Start of each step, seconds. */
  get times(): number[] {
    return this.#steps.map(step => this.#store.time.toWall(step * this.stepMs) / 1000)
  }

  /**
   * @param series - null for a function that was never called
   * @param knownFrom - nothing is known of steps that ended before
   */
  stepsOf(series: HistorySeries | null, knownFrom = 0): Steps {
    return this.#steps.map(step => {
      if ((step + 1) * this.stepMs <= knownFrom || !this.#store.isKnown(this.#window, step)) return null
      return series?.stepOf(this.#window, step) ?? NOTHING
    })
  }

  sumOf(series: HistorySeries | null): WindowSum {
    return sumSteps(this.#steps.map(step => series?.stepOf(this.#window, step) ?? null))
  }

  /** @param key - of a function */
  toFunctionSeries(key: string) {
    const series = this.#store.functions.get(key) ?? null
    const knownFrom = this.#store.leftOut.has(key) ? Number.POSITIVE_INFINITY : series?.knownFrom
    return toSeriesRecord(this.stepsOf(series, knownFrom))
  }

  toSeries(series: HistorySeries | null) {
    return toSeriesRecord(this.stepsOf(series))
  }

  toTotals(series: HistorySeries | null) {
    return toTotalsRecord(this.sumOf(series))
  }

  toSummary(fn: FunctionVersion) {
    const { errors, functions } = this.#store
    return toFunctionRecord(fn, this.sumOf(functions.get(fn.key) ?? null), errors.get(fn.key) ?? null)
  }
}

export function sumSteps(steps: Steps): WindowSum {
  const sum = new Tally()
  const spark = Array<number>(SPARK_COLUMNS).fill(0)
  for (const [index, numbers] of steps.entries()) {
    if (numbers === null || numbers === NOTHING) continue
    const { queued: _, workers: __, ...counts } = numbers
    sum.add(counts)
    spark[Math.floor((index * SPARK_COLUMNS) / steps.length)]! += toRequests(numbers)
  }
  return { counts: sum.take() ?? createCounts(), spark }
}

/** `series` of `/_fn/metrics?format=json`. */
export function toSeriesRecord(steps: Steps) {
  const row = (read: (numbers: StepNumbers) => number | null): (number | null)[] =>
    steps.map(numbers => (numbers === null ? null : read(numbers)))
  return {
    requests: row(toRequests),
    errors_4xx: row(({ errors4xx }) => errors4xx),
    errors_5xx: row(({ errors5xx }) => errors5xx),
    throttled: row(({ throttled }) => throttled),
    p50_ms: row(({ durations }) => toShown(durations, 0.5)),
    p95_ms: row(({ durations }) => toShown(durations, 0.95)),
    p99_ms: row(({ durations }) => toShown(durations, 0.99)),
    queue_depth: row(({ queued }) => queued),
    queue_wait_p95_ms: row(({ waits }) => toShown(waits, 0.95)),
    workers: row(({ workers }) => workers),
    cold_starts: row(({ coldStarts }) => coldStarts),
  }
}

/** `totals` of `/_fn/metrics?format=json`, also of a runtime or a function. */
export function toTotalsRecord({ counts, spark }: WindowSum) {
  const { errors4xx, errors5xx, throttled, durations } = counts
  return {
    requests: toRequests(counts),
    errors_4xx: errors4xx,
    errors_5xx: errors5xx,
    throttled,
    p50_ms: toShown(durations, 0.5),
    p95_ms: toShown(durations, 0.95),
    p99_ms: toShown(durations, 0.99),
    spark,
  }
}

/** @param error - the last one of the function */
export function toFunctionRecord(
  fn: Parameters<typeof toFunctionLabels>[0] & { key: string },
  sum: WindowSum,
  error: FunctionError | null,
) {
  const { runtime, fn: name, version } = toFunctionLabels(fn)
  return {
    ...{ key: fn.key, runtime, name, version },
    ...toTotalsRecord(sum),
    last_error_at: error === null ? null : error.at / 1000,
    last_error: error?.message ?? null,
  }
}

/** A percentile with three decimals. */
function toShown(counts: string, share: number): number | null {
  const ms = toPercentileMs(counts, share)
  return ms === null ? null : Math.round(ms * 1000) / 1000
}

/** Refused requests have no duration. */
export function toRequests({ durations, throttled }: Pick<Counts, 'durations' | 'throttled'>): number {
  return toTotal(durations) + throttled
}
