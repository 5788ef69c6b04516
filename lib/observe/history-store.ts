/** Series of everything, of each runtime and of each function that was called, as many as there is room for. Owner: page observe/history. */

import { HistorySeries, TIERS, WINDOWS, type WindowName } from './history-series.ts'
import { StepRing } from './step-ring.ts'
import type { StepTime } from './step-time.ts'

/** Functions that have a series: 85 MB at one call a minute each. */
export const MAX_FUNCTION_SERIES = 3000
/** A function that was called since keeps its series, however many others want one. */
const KEPT_AFTER_CALL_MS = 300_000

/** The last failure of a function. */
interface LastError {
  /** Wall clock, ms. */
  at: number
  message: string
}

interface HistoryStoreOptions {
  time: StepTime
  maxFunctions: number
}

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

  constructor({ time, maxFunctions }: HistoryStoreOptions) {
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

/** Number of the step that an instant is in. */
export function toStep(name: WindowName, instant: number): number {
  return Math.floor(instant / TIERS[name].stepMs)
}
