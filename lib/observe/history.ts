/**
 * The last day of a gateway in numbers: every 5 s it reads what is counted anyway and keeps what was added.
 * Owner: page observe/history.
 *
 *   Metrics, slots, workers ──every 5 s, and when somebody looks──► what was added ──► all, its runtime, its function
 */

import type { Clock } from '../core/clock.ts'
import type { FunctionCounters } from './function-metrics.ts'
import { type StepNumbers, TIERS } from './history-series.ts'
import { HistoryStore, MAX_FUNCTION_SERIES } from './history-store.ts'
import { type Counts, createCounts, Tally } from './metric-counts.ts'
import type { Metrics } from './metrics.ts'
import { StepTime } from './step-time.ts'

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
    this.#store = new HistoryStore({ time: new StepTime(clock), maxFunctions })
    metrics.tally.take()
    for (const { tally } of metrics.functions.counters()) tally.take()
    this.#schedule(this.#store)
  }

  /** Reads by itself no more; who asks in the gateway's last moments is still told. */
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

  /** What nobody can do without is not at stake: a machine without memory loses its history, and serves. */
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

  /** A function that answers 5xx itself tells no reason. */
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
