/** `/_fn/schedules`: what is due when and how it went, the next times of one, and a run by hand. Spec: page control/schedules. */

import { showText } from '../config/findings.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { isRuntimeName, isVersion, RUNTIMES } from '../core/identity.ts'
import { toZonedText } from '../core/cron.ts'
import type { Scheduler } from '../scheduler/scheduler.ts'
import type { ControlRequest } from './control-request.ts'
import { type ControlReply, type Endpoint, READ, WRITE } from './endpoint.ts'
import { type FindFunction, findTarget, TARGET_FIELDS } from './function-target.ts'
import { type GatewayState, toSeconds } from './records.ts'
import { toScheduleRecord, toSchedulesRecord } from './schedule-record.ts'

const COUNT = { min: 1, max: 100, default: 5 } as const

export interface ScheduleEndpointsDeps {
  clock: Clock
  scheduler: Pick<Scheduler, 'schedules' | 'keepWarm'>
  state: (details: boolean) => Pick<GatewayState, 'isWarm'>
  find: FindFunction
}

export function createScheduleEndpoints(deps: ScheduleEndpointsDeps): readonly Endpoint[] {
  const { clock, scheduler, state } = deps
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
      handle: request => preview(deps, request),
    },
    { method: 'POST', path: '/_fn/schedules/run', access: WRITE, handle: request => run(deps, request) },
  ]
}

/** The due times that follow, whatever may become of them. */
function preview({ clock, scheduler, find }: ScheduleEndpointsDeps, { query }: ControlRequest): ControlReply {
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

const RUN_FIELDS: readonly string[] = ['name', 'runtime', 'version']

async function run({ scheduler, find }: ScheduleEndpointsDeps, request: ControlRequest): Promise<ControlReply> {
  const fn = readTarget(await request.readJson(), find)
  const { status, error, latencyMs } = await scheduler.schedules.runNow(fn)
  const outcome = { status, error: error ?? '', latency_ms: Math.round(latencyMs * 1000) / 1000 }
  return { status: 200, body: { key: fn.key, ...outcome, schedule: toScheduleRecord(scheduler.schedules.rowOf(fn)) } }
}

function readTarget(body: Readonly<Record<string, unknown>>, find: FindFunction): ReturnType<FindFunction> {
  const unknown = Object.keys(body).find(name => !RUN_FIELDS.includes(name))
  if (unknown !== undefined) throw refuse(`${showText(unknown)} is not known: it has ${RUN_FIELDS.join(', ')}`)
  const { name, runtime = null, version = null } = body
  if (typeof name !== 'string' || name === '') throw refuse(`name must be the name of a function, got ${show(name)}`)
  if (runtime !== null && !(typeof runtime === 'string' && isRuntimeName(runtime)))
    throw refuse(`runtime must be one of ${RUNTIMES.join(', ')}, got ${show(runtime)}`)
  if (version !== null && !(typeof version === 'string' && isVersion(version)))
    throw refuse(`version must be letters, digits, _ . and -, got ${show(version)}`)
  return find(name, version, runtime)
}

function show(value: unknown): string {
  return value === undefined ? 'nothing' : showText(JSON.stringify(value))
}

function refuse(why: string): GatewayError {
  return new GatewayError('BAD_REQUEST', `body field ${why}`)
}
