/** `/_fn/schedules`: what is due when and how it went, the next times of one, and a run by hand. Spec: page control/schedules. */

import { object, readRequest } from '../config/fields.ts'
import { toZonedText } from '../core/cron.ts'
import type { KeepWarmRow } from '../scheduler/keep-warm.ts'
import type { ScheduleRow } from '../scheduler/scheduler.ts'
import { TARGET, toShownMs } from './call-fields.ts'
import {
  type ControlContext,
  type ControlReply,
  type ControlRequest,
  type Endpoint,
  findTarget,
  READ,
  TARGET_FIELDS,
  WRITE,
  readJson,
} from './endpoint.ts'
import { toLabels, toSchedulePolicyRecord, toSeconds, toSnake } from './records.ts'

const COUNT = { min: 1, max: 100, default: 5 } as const

export function createScheduleEndpoints(context: ControlContext): readonly Endpoint[] {
  const { clock, scheduler, state } = context
  return [
    {
      method: 'GET',
      path: '/_fn/schedules',
      access: READ,
      handle: ({ details }) => {
        const { schedules, keepWarm } = scheduler
        const { isWarm } = state(details)
        return { status: 200, body: toSchedulesRecord(schedules.rows(), keepWarm.rows(), isWarm, clock.wall()) }
      },
    },
    {
      method: 'GET',
      path: '/_fn/schedules/next',
      access: READ,
      query: [...TARGET_FIELDS, 'count'],
      handle: request => preview(context, request),
    },
    { method: 'POST', path: '/_fn/schedules/run', access: WRITE, handle: request => run(context, request) },
  ]
}

/** The due times that follow, whatever may become of them. */
function preview({ clock, scheduler, find }: ControlContext, { query }: ControlRequest): ControlReply {
  const count = query.integer('count', COUNT)
  const row = scheduler.schedules.rowOf(findTarget(query, find))
  const { fn, rule, state } = row
  const times: number[] = []
  let at = state.next
  while (rule !== null && at !== null && times.length < count) {
    times.push(at)
    at = rule.nextAfter(Math.max(at, clock.wall()))
  }
  const next = times.map(time => ({ at: toSeconds(time), local: toZonedText(time, rule!.zone) }))
  return { status: 200, body: { key: fn.key, timezone: rule?.zone.name ?? null, next } }
}

const RUN = object(TARGET, { required: ['name'], strict: true })

async function run({ scheduler, find }: ControlContext, request: ControlRequest): Promise<ControlReply> {
  const { name, runtime = null, version = null } = readRequest(RUN, await readJson(request))
  const fn = find(name!, version, runtime)
  const { status, error, latencyMs } = await scheduler.schedules.runNow(fn)
  const outcome = { status, error: error ?? '', latency_ms: toShownMs(latencyMs) }
  return { status: 200, body: { key: fn.key, ...outcome, schedule: toScheduleRecord(scheduler.schedules.rowOf(fn)) } }
}

// Schedules and pings as `/_fn/schedules` shows them.

type Json = Record<string, unknown>

/**
 * `GET /_fn/schedules`.
 * @param isWarm - whether a function has a worker that could take a call now
 */
function toSchedulesRecord(
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

function toScheduleRecord({ fn, policy, problem, state, rule, isRunning }: ScheduleRow): Json {
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
    ...toLabels(fn),
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
    ...toLabels(fn),
    keep_warm: toSnake(policy),
    state: fields,
    ...fields,
  }
}

function toTime(at: number | null): number | null {
  return at === null ? null : toSeconds(at)
}
