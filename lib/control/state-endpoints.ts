/** Health, catalog, checks, reload and packs: the state of the gateway as records. Owner: §4.2, §2.17. */

import { getOrMake } from '../core/collections.ts'
import { GatewayError } from '../core/errors.ts'
import type { Member } from '../fleet/members.ts'
import { type ConstantAnswer, toConstantAnswer } from '../http/respond.ts'
import { announce, type ControlContext, type ControlReply, type Endpoint, endpoint, json } from './endpoint.ts'
import { toCatalogRecord, toHealthRecord, toReloadRecord, toSeconds } from './records.ts'

/** Milliseconds for which strangers get the same health record: making it looks at every function. */
export const STRANGERS_HEALTH_MS = 1000

export function createStateEndpoints(context: ControlContext): readonly Endpoint[] {
  const { state, reload, clock, doctor, packs } = context
  const health = createHealth(context)
  const reloaded = async (details: boolean): Promise<ControlReply> => {
    await reload()
    return announce(context, json(toReloadRecord(state(details), clock.wall())))
  }
  return [
    // Probes add query fields against caches.
    endpoint('GET /_fn/health', 'open', ({ details, exchange }) => health(exchange.search, details), null),
    endpoint('GET /_fn/catalog', 'read', ({ details }) => json(toCatalogRecord(state(details)))),
    endpoint('GET /_fn/doctor', 'read', async ({ details }) => {
      if (!details) throw new GatewayError('FORBIDDEN', 'checks are shown to local callers and with the admin token')
      return json({ checks: await doctor() })
    }),
    endpoint('GET /_fn/fleet', 'read', ({ details }) => json(toFleetRecord(context.fleet, clock.wall(), details))),
    endpoint('POST /_fn/reload', 'acts', ({ details }) => reloaded(details)),
    // For watchers of older tools.
    endpoint('GET /_fn/reload', 'acts', ({ details }) => reloaded(details)),
    endpoint('GET /_fn/packs', 'read', ({ details }) => {
      const runtimes: Record<string, { packs: unknown[] }> = {}
      for (const { runtime, name, dir, facts } of packs.list()) {
        runtimes[runtime] ??= { packs: [] }
        runtimes[runtime].packs.push({ name, ...(details && { dir }), ...facts })
      }
      return json({ generated_at: toSeconds(clock.wall()), ...(details && { packs_root: packs.root }), runtimes })
    }),
  ]
}

/** The record, or the response to a probe. Callers that may not see details share one record for a second. */
function createHealth(context: ControlContext): (search: string, details: boolean) => ControlReply {
  const { clock, state, lifecycle } = context
  let shared: { health: ConstantAnswer; at: number } | null = null
  const strangers = (): ConstantAnswer => {
    const now = clock.monotonic()
    if (shared === null || now - shared.at >= STRANGERS_HEALTH_MS) {
      const { status, body } = toHealthRecord(state(false))
      shared = { health: toConstantAnswer(status, body), at: now }
    }
    return shared.health
  }
  return (search, details) => {
    const probes = [...search.matchAll(PROBE)].map(([, name]) => name!.toLowerCase())
    // Before its tree is read there is nothing else to show.
    const asksReady = probes.includes('ready') || (lifecycle.starting && probes.length === 0)
    // A process that responds is alive, also while it starts or stops.
    if (probes.length > 0 && !asksReady) return json({ live: true })
    if (asksReady) return toReadyReply(context, details)
    const record = details ? toHealthRecord(state(true)) : strangers()
    return lifecycle.draining ? { ...record, status: 503 } : record
  }
}

/** A field of the query that stands by itself or is switched on. Other fields are ignored. */
const PROBE = /(?:^|&)(ready|live)(?:=(?:1|true|yes|on)?)?(?=&|$)/gi

/**
 * `?ready=1`: 503 with the reasons while starting or stopping, when an enabled runtime is down, or without a required store.
 * @param details - reasons of runtimes may be shown: they name programs and paths
 */
function toReadyReply({ lifecycle, runtimes, fleet, settings }: ControlContext, details: boolean): ControlReply {
  const down = [...runtimes].flatMap(([name, runtime]) => {
    const { up, reason } = runtime.health()
    return up ? [] : [`runtime ${name} is down${details ? `: ${reason}` : ''}`]
  })
  if (fleet !== null && fleet.problem !== null && settings.storeRequired === true)
    down.push(`the store is away${details ? `: ${fleet.problem}` : ''}`)
  const step = lifecycle.draining ? 'stopping' : lifecycle.starting ? 'starting' : null
  const reasons = step === null ? down : [`the gateway is ${step}`]
  if (reasons.length === 0) return json({ ready: true })
  return json({ ready: false, reasons }, 503, ['Retry-After', '1'])
}

/** The gateways of a fleet. @param details - hosts and addresses may be shown */
function toFleetRecord(fleet: ControlContext['fleet'], wallMs: number, details: boolean): Record<string, unknown> {
  if (fleet === null) return { fleet: false, gateways: [] }
  const { id, problem, release } = fleet
  const members = fleet.members()
  const releases = toReleaseRecords(members)
  return {
    fleet: true,
    id,
    store: problem === null ? 'up' : 'down',
    ...(details && problem !== null && { problem }),
    release,
    rollout: releases.length > 1,
    releases,
    gateways: members.map(one => ({
      id: one.id,
      ...(details && { host: one.host, pid: one.pid, addresses: one.addresses }),
      version: one.version,
      release: one.release,
      state: one.isGone ? 'gone' : one.state,
      started_at: toSeconds(one.startedAt),
      uptime_seconds: Math.max(0, Math.round((wallMs - one.startedAt) / 1000)),
      load_average: one.loadAverage,
      cpus: one.cpus,
      running_calls: one.runningCalls,
      queued_calls: one.queuedCalls,
      runs_schedules: one.leads,
      seen_ms_ago: one.seenAgoMs,
    })),
  }
}

/** The releases that are served, the newest first. */
function toReleaseRecords(members: readonly Member[]): { release: string; since: number; gateways: number }[] {
  const records = new Map<string, { release: string; since: number; gateways: number }>()
  for (const { release, releaseSince, isGone } of members) {
    if (isGone) continue
    const record = getOrMake(records, release, () => ({ release, since: toSeconds(releaseSince), gateways: 0 }))
    record.gateways += 1
  }
  return [...records.values()].sort((a, b) => b.since - a.since)
}
