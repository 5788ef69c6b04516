/** Schedules and pings as `/_fn/schedules` shows them. Owner: page control/schedules. */

import { toSchedulePolicyRecord, toSeconds } from './records.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { toZonedText } from '../core/cron.ts'
import type { KeepWarmRow } from '../scheduler/keep-warm.ts'
import type { ScheduleRow } from '../scheduler/scheduler.ts'

type Json = Record<string, unknown>

/**
 * `GET /_fn/schedules`.
 * @param isWarm - whether a function has a worker that could take a call now
 */
export function toSchedulesRecord(
  rows: readonly ScheduleRow[],
  pings: readonly KeepWarmRow[],
  isWarm: (key: string) => boolean,
  now: number,
): Json {
  return {
    ts: toSeconds(now),
    schedules: rows.map(toScheduleRecord),
    keep_warm: pings.map(row => toKeepWarmRecord(row, isWarm(row.fn.key))),
  }
}

export function toScheduleRecord({ fn, policy, problem, state, rule, isRunning }: ScheduleRow): Json {
  const isRetrying = state.retryDue !== null
  // Flat as the specification names them, and in `state` for tools that look there.
  const fields = {
    next: toTime(state.next),
    ...(isRetrying ? { retry_due: toTime(state.retryDue), retry_attempt: state.retryAttempt } : {}),
    last: toTime(state.last),
    last_status: state.lastStatus,
    last_error: problem ?? state.lastError ?? '',
  }
  return {
    ...toIdentity(fn),
    schedule: policy && toSchedulePolicyRecord(policy),
    next_at: state.next === null || rule === null ? null : toZonedText(state.next, rule.zone),
    running: isRunning,
    state: fields,
    ...fields,
  }
}

function toKeepWarmRecord({ fn, policy, state }: KeepWarmRow, isWarm: boolean): Json {
  const fields = {
    warm_state: isWarm ? 'warm' : 'cold',
    warm_at: toTime(state.warmAt),
    next: toTime(state.next),
    last: toTime(state.last),
    last_status: state.lastStatus,
    last_error: state.lastError ?? '',
  }
  return {
    ...toIdentity(fn),
    keep_warm: {
      enabled: policy.enabled,
      min_warm: policy.minWarm,
      ping_every_seconds: policy.pingEverySeconds,
      idle_ttl_seconds: policy.idleTtlSeconds,
    },
    state: fields,
    ...fields,
  }
}

function toIdentity({ runtime, name, version, key }: FunctionVersion): Json {
  return { runtime, name, version: version ?? DEFAULT_VERSION_LABEL, key }
}

function toTime(at: number | null): number | null {
  return at === null ? null : toSeconds(at)
}
