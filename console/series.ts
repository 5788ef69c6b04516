/** Series for charts, computed from the counts of steps. Owner: page console/overview. */

import type { History, Row } from './data/history.ts'

/** Minimum length of a step in seconds: a step that has just begun has no meaningful rate. */
const SHORTEST_STEP_S = 1

type Steps = Pick<History, 'times' | 'step_ms' | 'started_at' | 'generated_at'>

/** Seconds of each step in which was counted: the first begins with the gateway, the last one still goes on. */
export function toSeconds({ times, step_ms: stepMs, started_at: from, generated_at: until }: Steps): number[] {
  return times.map(start => Math.max(0, Math.min(start + stepMs / 1000, until) - Math.max(start, from)))
}

/** Counts of steps as counts a second. */
export function toRates(counts: Row, steps: Steps): (number | null)[] {
  const seconds = toSeconds(steps)
  return counts.map((count, index) =>
    count === null ? null : count / Math.max(seconds[index] as number, SHORTEST_STEP_S),
  )
}

/** Seconds of the steps of which something is known. */
export function toKnownSeconds(counts: Row, steps: Steps): number {
  return toSeconds(steps).reduce((sum, seconds, index) => (counts[index] === null ? sum : sum + seconds), 0)
}

export function toSum(row: Row): number {
  return row.reduce<number>((sum, value) => sum + (value ?? 0), 0)
}

/** The greatest; null when nothing is known. */
export function toMost(row: Row): number | null {
  return row.reduce((most, value) => (value !== null && (most === null || value > most) ? value : most), null)
}

/** The newest that is known. */
export function toLast(row: Row): number | null {
  return row.findLast(value => value !== null) ?? null
}
