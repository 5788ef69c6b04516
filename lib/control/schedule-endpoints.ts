/** `/_fn/schedules`: schedules and pings with their state, the next times of one, and a run by hand. Spec: page control/schedules. */

import { integer, object, readRequest } from '../config/fields.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { toZonedText } from '../core/cron.ts'
import { GatewayError } from '../core/errors.ts'
import { TARGET } from '../jobs/job-input.ts'
import type { KeepWarmRow } from '../scheduler/keep-warm.ts'
import type { ScheduleRow } from '../scheduler/scheduler.ts'
import { toShownMs } from './call-fields.ts'
import {
  type ControlContext,
  type Endpoint,
  endpoint,
  findTarget,
  json,
  type JsonObject,
  readJson,
} from './endpoint.ts'
import { toLabels, toSchedulePolicyRecord, toSeconds, toSnake } from './records.ts'

const RUN = object(TARGET, { required: ['name'], strict: true })

export function createScheduleEndpoints(context: ControlContext): readonly Endpoint[] {
  const { clock, state, find, scheduler } = context
  const { schedules, keepWarm } = scheduler
  const run = async (fn: FunctionVersion): Promise<JsonObject> => {
    const { status, error, latencyMs } = await schedules.runNow(fn)
    const schedule = toScheduleRecord(schedules.rowOf(fn))
    return { key: fn.key, status, error: error ?? '', latency_ms: toShownMs(latencyMs), schedule }
  }
  context.fleet?.serveRuns(async key => {
    const row = schedules.rows().find(({ fn }) => fn.key === key)
    if (row === undefined) throw new GatewayError('NOT_FOUND', `${key} has no schedule`)
    return run(row.fn)
  })
  return [
    endpoint('GET /_fn/schedules', 'read', async ({ details }) => {
      await schedules.refresh()
      const { isWarm } = state(details)
      return json({
        ts: toSeconds(clock.wall()),
        schedules: schedules.rows().map(toScheduleRecord),
        keep_warm: keepWarm.rows().map(row => toKeepWarmRecord(row, isWarm(row.fn.key))),
      })
    }),
    endpoint(
      'GET /_fn/schedules/next',
      'read',
      ({ query }) => {
        const { count = 5 } = query
        const { fn, rule, state } = schedules.rowOf(findTarget(context, query))
        const next: JsonObject[] = []
        // The due times that follow, whatever may become of them.
        for (let at = state.next; rule !== null && at !== null && next.length < count; ) {
          next.push({ at: toSeconds(at), local: toZonedText(at, rule.zone) })
          at = rule.nextAfter(Math.max(at, clock.wall()))
        }
        return json({ key: fn.key, timezone: rule?.zone.name ?? null, next })
      },
      { ...TARGET, count: integer({ min: 1, max: 100 }) },
    ),
    endpoint('POST /_fn/schedules/run', 'write', async request => {
      const { name, runtime = null, version = null } = readRequest(RUN, await readJson(request))
      const fn = find(name!, version, runtime)
      // One that cannot run is refused here as well.
      const { policy } = schedules.rowOf(fn)
      const reply = policy && (await context.fleet?.runElsewhere(fn.key, fn.policy.timeoutMs))
      return json(reply ?? (await run(fn)))
    }),
  ]
}

function toScheduleRecord({ fn, policy, problem, state, rule, isRunning }: ScheduleRow): JsonObject {
  const isRetrying = state.retryDue !== null
  // Flat as the specification names them, and in `state` for tools that look there.
  const fields = {
    next: toTime(state.next),
    ...(isRetrying && { retry_due: toTime(state.retryDue), retry_attempt: state.retryAttempt }),
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

function toKeepWarmRecord({ fn, policy, state }: KeepWarmRow, isWarm: boolean): JsonObject {
  const fields = {
    warm_state: isWarm ? 'warm' : 'cold',
    warm_at: toTime(state.warmAt),
    next: toTime(state.next),
    last: toTime(state.last),
    last_status: state.lastStatus,
    last_error: state.lastError ?? '',
  }
  return { ...toLabels(fn), keep_warm: toSnake(policy), state: fields, ...fields }
}

function toTime(at: number | null): number | null {
  return at === null ? null : toSeconds(at)
}
