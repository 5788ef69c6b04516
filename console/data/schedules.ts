/** Schedules and pings as `/_fn/schedules` shows them, and what they say in words. Owner: page console/scheduler. */

import { formatMs } from '../format.ts'

interface Target {
  readonly runtime: string
  readonly name: string
  readonly version: string
  readonly key: string
}

/** The outcome of the last run; times are seconds since the epoch. */
interface Runs {
  readonly next: number | null
  readonly last: number | null
  readonly last_status: number | null
  readonly last_error: string
}

export interface ScheduleRow extends Target, Runs {
  /** null for one that is wrong: `last_error` says why. */
  readonly schedule: Readonly<Record<string, unknown>> | null
  /** In the schedule's own zone. */
  readonly next_at: string | null
  readonly running: boolean
  readonly retry_due?: number
  readonly retry_attempt?: number
}

export interface KeepWarmRow extends Target, Runs {
  readonly keep_warm: {
    readonly min_warm: number
    readonly ping_every_seconds: number
    readonly idle_ttl_seconds: number
  }
  readonly warm_state: string
}

export interface Schedules {
  readonly schedules: readonly ScheduleRow[]
  readonly keep_warm: readonly KeepWarmRow[]
}

/** Seconds as milliseconds; null stays. */
export function toMs(seconds: number | null | undefined): number | null {
  return seconds == null ? null : seconds * 1000
}

/** The requests for one schedule. */
export function toTarget({ runtime, name, version }: Target): Record<string, string> {
  return version === 'default' ? { runtime, name } : { runtime, name, version }
}

/** When it runs, as it was written. */
export function toRule(schedule: ScheduleRow['schedule']): string {
  if (schedule === null) return 'wrong'
  const { every_seconds: every, cron, timezone, enabled } = schedule
  const rule = every == null ? `${String(cron)} in ${String(timezone)}` : `every ${formatMs(Number(every) * 1000)}`
  return enabled === false ? `${rule}, disabled` : rule
}

/** The soonest of them; null when nothing is due. */
export function findNext(rows: readonly ScheduleRow[]): ScheduleRow | null {
  let soonest: ScheduleRow | null = null
  for (const row of rows) {
    if (row.next !== null && (soonest === null || row.next < (soonest.next ?? 0))) soonest = row
  }
  return soonest
}
