/** What was counted of one function, one runtime or everything, over the last 5 minutes, hour and day. Owner: page observe/history. */

import { addCounts, type Counts, createCounts } from './metric-counts.ts'
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
      const step = Math.floor(instant / TIERS[name].stepMs)
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
