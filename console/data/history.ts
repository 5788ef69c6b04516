/** `GET /_fn/metrics?format=json`: what was counted over 5 minutes, an hour or a day; described on page observe/history. Owner: page console/overview. */

import { useLoad } from './load.ts'

/** A number of each step; null where nothing is known. */
export type Row = readonly (number | null)[]

export interface Series {
  readonly requests: Row
  readonly errors_4xx: Row
  readonly errors_5xx: Row
  /** Refused by admission; not among the errors. */
  readonly throttled: Row
  readonly p50_ms: Row
  readonly p95_ms: Row
  readonly p99_ms: Row
  readonly queue_depth: Row
  readonly queue_wait_p95_ms: Row
  readonly workers: Row
  readonly cold_starts: Row
}

/** Sums over the whole window. */
export interface Totals {
  readonly requests: number
  readonly errors_4xx: number
  readonly errors_5xx: number
  readonly throttled: number
  readonly p50_ms: number | null
  readonly p95_ms: number | null
  readonly p99_ms: number | null
  /** Requests in 30 columns. */
  readonly spark: readonly number[]
}

export interface FunctionTotals extends Totals {
  readonly key: string
  readonly runtime: string
  readonly name: string
  readonly version: string
  /** Seconds since the epoch. */
  readonly last_error_at: number | null
  readonly last_error: string | null
}

export interface History {
  /** Seconds since the epoch, as are `started_at` and `times`. */
  readonly generated_at: number
  readonly started_at: number
  readonly window: string
  readonly step_ms: number
  /** Start of each step. */
  readonly times: readonly number[]
  readonly series: Series
  readonly totals: Totals
  readonly functions: readonly FunctionTotals[]
  readonly runtimes: Readonly<Record<string, Totals>>
  readonly functions_left_out: number
  /** With `scope=fleet`: whose numbers these are the sum of. Null for a gateway in no fleet. */
  readonly fleet?: FleetScope | null
}

export interface FleetScope {
  /** Of the gateway that responds. */
  readonly id: string
  /** Those that are in the sum. */
  readonly gateways: number
  readonly missing: readonly { readonly id: string; readonly problem: string }[]
}

/** Milliseconds between two questions. */
const EVERY_MS: Readonly<Record<string, number>> = { '5m': 5000, '1h': 15_000, '24h': 60_000 }

/** @param wanted - `key` of a function, or the sum of a fleet; without them it is everything of this gateway */
export function useHistory(window: string, wanted: { key?: string; scope?: 'fleet' } = {}) {
  return useLoad<History>('/_fn/metrics', {
    query: { format: 'json', window, ...wanted },
    every: EVERY_MS[window] ?? 5000,
    on: ['reload'],
  })
}
