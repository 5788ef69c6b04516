/**
 * The last day of a gateway in numbers: every 5 s it reads what is counted anyway and keeps what was added.
 * Owner: page observe/history.
 *
 *   Metrics, slots, workers ──every 5 s, and when somebody looks──► what was added ──► all, its runtime, its function
 */

import type { Clock } from '../core/clock.ts'
import { addCounts, type Counts, createCounts, Tally } from './histogram.ts'
import type { FunctionCounters, Metrics } from './metrics.ts'

interface Tier {
  readonly stepMs: number
  readonly steps: number
}

/** How fine the past is kept: every step of a tier holds those of the finer one. */
export const TIERS = {
  '5m': { stepMs: 5000, steps: 60 },
  '1h': { stepMs: 60_000, steps: 60 },
  '24h': { stepMs: 600_000, steps: 144 },
} as const satisfies Record<string, Tier>

export type WindowName = keyof typeof TIERS
export const WINDOWS = Object.keys(TIERS) as readonly WindowName[]

/** The numbers of one or several steps. */
export interface StepNumbers extends Counts {
  /** Calls waiting for a slot, and workers: the most that were seen. */
  queued: number
  workers: number
}

export function createStepNumbers(): StepNumbers {
  return { ...createCounts(), queued: 0, workers: 0 }
}

function addStepNumbers(sum: StepNumbers, added: StepNumbers): void {
  addCounts(sum, added)
  sum.queued = Math.max(sum.queued, added.queued)
  sum.workers = Math.max(sum.workers, added.workers)
}

/** Number of the step that an instant is in. */
export function toStep(name: WindowName, instant: number): number {
  return Math.floor(instant / TIERS[name].stepMs)
}

/** A clock that is further off was set, or the machine slept: anything less is the drift of two clocks. */
const DRIFT_MS = 1000

/** Time as the history counts it: it advances with the monotonic clock and follows the wall clock wherever that does not go back. */
export class StepTime {
  readonly #clock: Clock
  /** Wall clock minus monotonic clock, as last accepted. */
  #offset: number
  /** What stands between the two when the wall clock was set back: time is not told twice. */
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

  /** The wall clock's time of an instant, ms. @param instant - as `now` gives it */
  toWall(instant: number): number {
    return instant - this.#ahead
  }
}

const NONE = -1

/**
 * A row for each of the newest steps of time. Steps are numbered for ever; the row of a step is where that of the step `length` before it was.
 *
 *   step        … 118  119  120  121        length 4, newest 121
 *   row            2    3    0    1         118 is the oldest that is kept
 *
 * Rows between the newest and a later step are emptied when that one is written, so that a ring that is seldom written
 * costs nothing meanwhile.
 */
export class StepRing<Row> {
  readonly #rows: (Row | null)[]
  #newest = NONE

  /** @param length - steps that are kept */
  constructor(length: number) {
    this.#rows = Array<Row | null>(length).fill(null)
  }

  /** Steps are written in order. */
  set(step: number, row: Row): void {
    const { length } = this.#rows
    const missed = this.#newest === NONE ? 0 : Math.min(length, step - this.#newest)
    for (let one = step - missed + 1; one < step; one++) this.#rows[one % length] = null
    if (step > this.#newest) this.#newest = step
    this.#rows[step % length] = row
  }

  /** The row of a step; null for one in which nothing was written or of which nothing is kept. */
  get(step: number): Row | null {
    const { length } = this.#rows
    const isKept = this.#newest !== NONE && step <= this.#newest && step > this.#newest - length
    return isKept ? this.#rows[step % length]! : null
  }
}

/** The numbers of one function, one runtime or everything in every window. */
export class HistorySeries {
  /** Before this instant nothing is known of it; what was not counted since is 0. */
  readonly knownFrom: number
  /** Last instant at which something was counted. */
  countedAt = 0
  readonly #rings = Object.fromEntries(
    WINDOWS.map(name => [name, new StepRing<StepNumbers>(TIERS[name].steps)]),
  ) as Record<WindowName, StepRing<StepNumbers>>

  constructor(knownFrom: number) {
    this.knownFrom = knownFrom
  }

  /** Adds what was counted to the steps that an instant is in. */
  add(instant: number, numbers: StepNumbers): void {
    for (const name of WINDOWS) {
      const step = toStep(name, instant)
      const ring = this.#rings[name]
      const known = ring.get(step)
      if (known === null) ring.set(step, { ...numbers })
      else addStepNumbers(known, numbers)
    }
  }

  /** The numbers of a step; null where nothing was counted. */
  stepOf(name: WindowName, step: number): Readonly<StepNumbers> | null {
    return this.#rings[name].get(step)
  }
}

/** Functions that have a series: 85 MB at one call a minute each. */
const MAX_FUNCTION_SERIES = 3000
/** A function that was called since keeps its series, however many others want one. */
const KEPT_AFTER_CALL_MS = 300_000

/** The last failure of a function. */
interface LastError {
  /** Wall clock, ms. */
  at: number
  message: string
}

/** Series of everything, of each runtime, and of each function that was called, up to a number of functions. */
export class HistoryStore {
  readonly time: StepTime
  /** Instants of the start and of the last sample, and the one that its numbers were put at. */
  readonly startedAt: number
  sampledAt: number
  takenAt: number
  readonly all: HistorySeries
  readonly runtimes = new Map<string, HistorySeries>()
  /** By key; the one that was called last is the last. */
  readonly functions = new Map<string, HistorySeries>()
  /** Functions that were called and have no series. */
  readonly leftOut = new Set<string>()
  readonly errors = new Map<string, LastError>()
  readonly #maxFunctions: number
  /** Steps in which a sample was taken. */
  readonly #known = Object.fromEntries(WINDOWS.map(name => [name, new StepRing<true>(TIERS[name].steps)])) as Record<
    WindowName,
    StepRing<true>
  >

  constructor(time: StepTime, maxFunctions: number) {
    this.time = time
    this.#maxFunctions = maxFunctions
    this.startedAt = time.now()
    this.sampledAt = this.startedAt
    this.takenAt = this.startedAt
    this.all = new HistorySeries(this.startedAt)
  }

  /** Numbers will be put at this instant. */
  open(instant: number): void {
    this.takenAt = instant
    for (const name of WINDOWS) this.#known[name].set(toStep(name, instant), true)
  }

  /** True for a step in which a sample was taken: of others nothing is known. */
  isKnown(name: WindowName, step: number): boolean {
    return this.#known[name].get(step) === true
  }

  runtimeOf(name: string): HistorySeries {
    const series = this.runtimes.get(name) ?? new HistorySeries(this.startedAt)
    this.runtimes.set(name, series)
    return series
  }

  /** The series of a function that was just called; null where there is no room for one. */
  called(key: string): HistorySeries | null {
    const series = this.functions.get(key) ?? this.#begin(key)
    if (series === null) return null
    series.countedAt = this.takenAt
    this.functions.delete(key)
    this.functions.set(key, series)
    return series
  }

  /** @param isGone - tells of a key whether its function is there no more */
  forget(isGone: (key: string) => boolean): void {
    for (const keyed of [this.functions, this.leftOut, this.errors])
      for (const key of keyed.keys()) if (isGone(key)) keyed.delete(key)
  }

  #begin(key: string): HistorySeries | null {
    if (this.functions.size >= this.#maxFunctions && !this.#dropOldest()) {
      this.leftOut.add(key)
      return null
    }
    // What one that was left out did meanwhile is not known.
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
  metrics: Pick<Metrics, 'tally' | 'functions'>
  /** Functions with calls that wait for a slot, and how many. */
  waiting: () => Iterable<readonly [key: string, count: number]>
  /** Functions with workers, and how many; a key may come twice. */
  workers: () => Iterable<readonly [key: string, count: number]>
  maxFunctions?: number
  onProblem: (message: string) => void
}

export class History {
  readonly #options: HistoryOptions
  /** Keys of the functions that the last sample found. */
  #known: ReadonlySet<string> = new Set()
  #store: HistoryStore | null = null
  #timer: NodeJS.Timeout | null = null

  constructor(options: HistoryOptions) {
    this.#options = options
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
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    this.#timer = null
  }

  /** Forgets everything. */
  stop(): void {
    this.close()
    this.#store = null
  }

  /** A function failed, in words. */
  failed(key: string, message: string): void {
    const at = this.#options.clock.wall()
    this.#store?.errors.set(key, { at, message: message.slice(0, MAX_ERROR_CHARS) })
  }

  /** What is kept, up to now; null while nothing is. */
  read(): HistoryStore | null {
    this.#trySample()
    return this.#store
  }

  #schedule(store: HistoryStore): void {
    const left = SAMPLE_MS - (store.time.now() % SAMPLE_MS)
    this.#timer = this.#options.clock.setTimeout(() => {
      this.#trySample()
      if (this.#store === store) this.#schedule(store)
    }, Math.ceil(left))
    this.#timer.unref?.()
  }

  /** A machine that runs out of memory loses its history and serves on. */
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
    const now = store.time.now()
    // What came since the last sample belongs to the step that lasted meanwhile, not to the one that has just begun.
    store.open(Math.max((store.sampledAt + now) / 2, now - SAMPLE_MS / 2))
    const sums = new Sums()
    for (const [key, count] of this.#options.waiting()) sums.gauge(key, count, 0)
    for (const [key, count] of this.#options.workers()) sums.gauge(key, 0, count)
    const known = new Set<string>()
    for (const counters of this.#options.metrics.functions.counters()) {
      known.add(counters.key)
      this.#addFunction(store, counters, sums)
    }
    for (const [name, sum] of sums.runtimes) store.runtimeOf(name).add(store.takenAt, sum.take())
    store.all.add(store.takenAt, this.#takeAll(sums))
    const before = this.#known
    this.#known = known
    store.forget(key => before.has(key) && !known.has(key))
    store.sampledAt = now
  }

  #addFunction(store: HistoryStore, counters: FunctionCounters, sums: Sums): void {
    const { key } = counters
    const gauge = sums.gauges.get(key)
    const { queued = 0, workers = 0 } = gauge ?? {}
    const counts = counters.tally.take()
    if (counts !== null) {
      sums.add(key, counts)
      this.#noteErrors(store, key, counts)
      store.called(key)?.add(store.takenAt, { ...counts, queued, workers })
    } else if (gauge !== undefined) {
      store.functions.get(key)?.add(store.takenAt, { ...createCounts(), queued, workers })
    }
  }

  /** A function that returns 5xx itself gives no reason. */
  #noteErrors(store: HistoryStore, key: string, { errors5xx }: Counts): void {
    if (errors5xx === 0) return
    const told = store.errors.get(key)
    if (told === undefined || told.at < store.time.toWall(store.sampledAt))
      this.failed(key, 'answered with a 5xx status')
  }

  /** Requests are the public ones; cold starts and waits are those of functions through every door. */
  #takeAll({ all }: Sums): StepNumbers {
    const { coldStarts, waits, queued, workers } = all.take()
    return { ...(this.#options.metrics.tally.take() ?? createCounts()), coldStarts, waits, queued, workers }
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

/** What a sample found, added up for each runtime and for all. */
class Sums {
  readonly all = new Sum()
  readonly runtimes = new Map<string, Sum>()
  readonly gauges = new Map<string, { queued: number; workers: number }>()

  gauge(key: string, queued: number, workers: number): void {
    const known = this.gauges.get(key)
    const gauge = known ?? { queued: 0, workers: 0 }
    if (known === undefined) this.gauges.set(key, gauge)
    for (const sum of [gauge, this.all, this.#runtimeOf(key)]) {
      sum.queued += queued
      sum.workers += workers
    }
  }

  add(key: string, counts: Counts): void {
    this.#runtimeOf(key).tally.add(counts)
    this.all.tally.add({ ...counts, durations: '' })
  }

  #runtimeOf(key: string): Sum {
    const name = key.slice(0, key.indexOf('/'))
    const known = this.runtimes.get(name)
    if (known !== undefined) return known
    const sum = new Sum()
    this.runtimes.set(name, sum)
    return sum
  }
}
