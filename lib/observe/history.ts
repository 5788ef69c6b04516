/**
 * The last day of a gateway in numbers: every 5 s it reads what is counted anyway and keeps what was added. A request pays
 * nothing for it. Owner: page observe/history.
 *
 *   Metrics, slots, workers ──every 5 s, and when somebody looks──► what was added ──► all, its runtime, its function
 */

import type { Clock } from '../core/clock.ts'
import { COUNTER, COUNTERS, type FunctionCounters } from './function-metrics.ts'
import { createStepNumbers, type StepNumbers, TIERS } from './history-series.ts'
import { HistoryStore, MAX_FUNCTION_SERIES } from './history-store.ts'
import type { Metrics } from './metrics.ts'
import { StepTime } from './step-time.ts'

const SAMPLE_MS = TIERS['5m'].stepMs
const MAX_ERROR_CHARS = 300

interface HistoryOptions {
  clock: Clock
  metrics: Pick<Metrics, 'readPublic' | 'functions'>
  /** Functions with calls that wait for a slot, and how many. */
  waiting: () => Iterable<readonly [key: string, count: number]>
  /** Functions with workers, and how many; a key may come twice. */
  workers: () => Iterable<readonly [key: string, count: number]>
  maxFunctions?: number
  onProblem: (message: string) => void
}

/** A counter's numbers at the last sample. */
interface Base {
  of: FunctionCounters
  numbers: Float64Array
}

export class History {
  readonly #options: HistoryOptions
  readonly #now = new Float64Array(COUNTERS)
  readonly #publicBase = new Float64Array(COUNTERS)
  readonly #bases = new Map<string, Base>()
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
    metrics.readPublic(this.#publicBase)
    for (const counters of metrics.functions.counters()) counters.read(this.#baseOf(counters).numbers)
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
    this.#bases.clear()
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
    for (const [name, numbers] of sums.runtimes) store.runtimeOf(name).add(store.takenAt, numbers)
    this.#addAll(store, sums)
    if (known.size < this.#bases.size) {
      for (const key of this.#bases.keys()) if (!known.has(key)) this.#bases.delete(key)
      store.forget(key => !known.has(key))
    }
    store.sampledAt = now
  }

  #addFunction(store: HistoryStore, counters: FunctionCounters, sums: Sums): void {
    const { key } = counters
    const gauge = sums.gauges.get(key)
    const { queued = 0, workers = 0 } = gauge ?? {}
    counters.read(this.#now)
    const counts = takeAdded(this.#now, this.#baseOf(counters).numbers)
    if (counts !== null) {
      sums.add(key, counts)
      this.#noteErrors(store, key, counts)
      store.called(key)?.add(store.takenAt, { counts, queued, workers })
    } else if (gauge !== undefined) {
      store.functions.get(key)?.add(store.takenAt, { counts: NOTHING, queued, workers })
    }
  }

  /** A function that answers 5xx itself tells no reason. */
  #noteErrors(store: HistoryStore, key: string, counts: Float64Array): void {
    if (counts[COUNTER.errors5xx] === 0) return
    const told = store.errors.get(key)
    if (told === undefined || told.at < store.time.toWall(store.sampledAt))
      this.failed(key, 'answered with a 5xx status')
  }

  /** Requests are the public ones; cold starts and waits are those of functions through every door. */
  #addAll(store: HistoryStore, { all }: Sums): void {
    this.#options.metrics.readPublic(this.#now)
    const added = takeAdded(this.#now, this.#publicBase)
    if (added !== null) for (let i = 0; i < COUNTER.coldStarts; i++) all.counts[i] = added[i]!
    else all.counts.fill(0, 0, COUNTER.coldStarts)
    store.all.add(store.takenAt, all)
  }

  #baseOf(counters: FunctionCounters): Base {
    const known = this.#bases.get(counters.key)
    // The counters of a function that went and came again begin at 0.
    if (known !== undefined && known.of === counters) return known
    const base = { of: counters, numbers: new Float64Array(COUNTERS) }
    this.#bases.set(counters.key, base)
    return base
  }
}

const NOTHING = new Float64Array(COUNTERS)

/** Moves a base up to the numbers of now. @returns what was added; null for nothing */
function takeAdded(now: Float64Array, base: Float64Array): Float64Array | null {
  let added: Float64Array | null = null
  for (let i = 0; i < COUNTERS; i++) {
    if (now[i] === base[i]) continue
    added ??= new Float64Array(COUNTERS)
    added[i] = now[i]! - base[i]!
    base[i] = now[i]!
  }
  return added
}

/** What a sample found, added up for each runtime and for all. */
class Sums {
  readonly all = createStepNumbers()
  readonly runtimes = new Map<string, StepNumbers>()
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

  add(key: string, counts: Float64Array): void {
    const runtime = this.#runtimeOf(key).counts
    const all = this.all.counts
    for (let i = 0; i < COUNTERS; i++) {
      runtime[i]! += counts[i]!
      all[i]! += counts[i]!
    }
  }

  #runtimeOf(key: string): StepNumbers {
    const name = key.slice(0, key.indexOf('/'))
    const known = this.runtimes.get(name)
    if (known !== undefined) return known
    const numbers = createStepNumbers()
    this.runtimes.set(name, numbers)
    return numbers
  }
}
