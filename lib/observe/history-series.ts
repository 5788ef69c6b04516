/** What was counted of one function, one runtime or everything, over the last 5 minutes, hour and day. Owner: page observe/history. */

import { COUNTER, COUNTERS } from './function-metrics.ts'
import { BUCKETS } from './histogram.ts'
import { StepRing } from './step-ring.ts'

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

/** Counters in the order of `FunctionCounters.read` up to the waits, then the gauges. */
const QUEUED = COUNTER.waits
const WORKERS = QUEUED + 1
const WIDTH = WORKERS + 1

/** The numbers of one or several steps. */
export interface StepNumbers {
  /** As `FunctionCounters.read`. */
  counts: Float64Array
  /** Calls waiting for a slot, and workers: the most that were seen. */
  queued: number
  workers: number
}

export function createStepNumbers(): StepNumbers {
  return { counts: new Float64Array(COUNTERS), queued: 0, workers: 0 }
}

export class HistorySeries {
  /** Before this instant nothing is known of it; what was not counted since is 0. */
  readonly knownFrom: number
  /** Last instant at which something was counted. */
  countedAt = 0
  readonly #counts = createRings(WIDTH)
  #waits: ReturnType<typeof createRings> | null = null

  constructor(knownFrom: number) {
    this.knownFrom = knownFrom
  }

  /** Adds what was counted to the steps that an instant is in. */
  add(instant: number, { counts, queued, workers }: StepNumbers): void {
    if (this.#waits === null && hasAny(counts, COUNTER.waits, COUNTERS)) this.#waits = createRings(BUCKETS)
    for (const name of WINDOWS) {
      const step = Math.floor(instant / TIERS[name].stepMs)
      const ring = this.#counts[name]
      const at = ring.open(step)
      for (let i = 0; i < COUNTER.waits; i++) ring.numbers[at + i]! += counts[i]!
      ring.numbers[at + QUEUED] = Math.max(ring.numbers[at + QUEUED]!, queued)
      ring.numbers[at + WORKERS] = Math.max(ring.numbers[at + WORKERS]!, workers)
      if (this.#waits !== null) addWaits(this.#waits[name], step, counts)
    }
  }

  /** Adds the numbers of a step to others. */
  addStep(name: WindowName, step: number, into: StepNumbers): void {
    const ring = this.#counts[name]
    const at = ring.find(step)
    if (at !== -1) {
      for (let i = 0; i < COUNTER.waits; i++) into.counts[i]! += ring.numbers[at + i]!
      into.queued = Math.max(into.queued, ring.numbers[at + QUEUED]!)
      into.workers = Math.max(into.workers, ring.numbers[at + WORKERS]!)
    }
    const waits = this.#waits?.[name]
    const from = waits?.find(step) ?? -1
    if (waits === undefined || from === -1) return
    for (let i = 0; i < BUCKETS; i++) into.counts[COUNTER.waits + i]! += waits.numbers[from + i]!
  }
}

function createRings(width: number): Record<WindowName, StepRing> {
  const entries = WINDOWS.map(name => [name, new StepRing(TIERS[name].steps, width)])
  return Object.fromEntries(entries) as Record<WindowName, StepRing>
}

function addWaits(ring: StepRing, step: number, counts: Float64Array): void {
  const at = ring.open(step)
  for (let i = 0; i < BUCKETS; i++) ring.numbers[at + i]! += counts[COUNTER.waits + i]!
}

function hasAny(numbers: Float64Array, from: number, to: number): boolean {
  for (let i = from; i < to; i++) if (numbers[i] !== 0) return true
  return false
}
