/** Health, catalog and reload: the state of the gateway as records. Owner: §4.2, §2.17. */

import { GatewayError } from '../core/errors.ts'
import type { Lifecycle } from '../core/transitions.ts'
import { type ConstantAnswer, toConstantAnswer } from '../http/respond.ts'
import { ACT, type ControlContext, type ControlReply, type Endpoint, OPEN, READ } from './endpoint.ts'
import { toCatalogRecord, toHealthRecord, toReloadRecord } from './records.ts'

/** Milliseconds for which strangers get the same health record: making it looks at every function. */
export const STRANGERS_HEALTH_MS = 1000

export function createStateEndpoints(context: ControlContext): readonly Endpoint[] {
  const { state, reload, clock, doctor } = context
  const health = createHealth(context)
  const reloaded = async (details: boolean): Promise<ControlReply> => {
    await reload()
    return { status: 200, body: toReloadRecord(state(details), clock.wall()) }
  }
  return [
    {
      method: 'GET',
      path: '/_fn/health',
      access: OPEN,
      // Probes add fields of their own against caches.
      query: 'any',
      handle: ({ details, exchange }) => health(exchange.search, details),
    },
    {
      method: 'GET',
      path: '/_fn/catalog',
      access: READ,
      handle: ({ details }) => ({ status: 200, body: toCatalogRecord(state(details)) }),
    },
    {
      method: 'GET',
      path: '/_fn/doctor',
      access: READ,
      handle: async ({ details }) => {
        if (!details) throw new GatewayError('FORBIDDEN', 'checks are shown to local callers and with the admin token')
        return { status: 200, body: { checks: await doctor() } }
      },
    },
    { method: 'POST', path: '/_fn/reload', access: ACT, handle: ({ details }) => reloaded(details) },
    // Watchers of older tools ask so.
    { method: 'GET', path: '/_fn/reload', access: ACT, handle: ({ details }) => reloaded(details) },
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
    const probe = askedProbe(search)
    if (probe === 'live') return ALIVE
    // Before its tree is read there is nothing else to show.
    if (probe === 'ready' || lifecycle.starting) return toReadyReply(context, details)
    const record = details ? toHealthRecord(state(true)) : strangers()
    return lifecycle.draining ? { ...record, status: 503 } : record
  }
}

// The probes of `/_fn/health`: whether the gateway should get requests, and whether it is alive.

/** A field of the query that stands by itself or is switched on. */
const PROBE = /(?:^|&)(ready|live)(?:=(?:1|true|yes|on)?)?(?=&|$)/gi

/** The probe of a query; `ready` wins over `live`. Other fields are ignored: probes add some against caches. */
function askedProbe(search: string): 'ready' | 'live' | null {
  const asked = [...search.matchAll(PROBE)].map(([, name]) => name!.toLowerCase())
  if (asked.includes('ready')) return 'ready'
  return asked.length > 0 ? 'live' : null
}

/** `?live=1`: a process that responds is alive, also while it starts or stops. */
const ALIVE: ControlReply = { status: 200, body: { live: true } }

/**
 * `?ready=1`: 503 with the reasons while starting or stopping, or when an enabled runtime is down.
 * @param details - reasons of runtimes may be shown: they name programs and paths
 */
function toReadyReply({ lifecycle, runtimes }: ControlContext, details: boolean): ControlReply {
  const reasons = toReasons(lifecycle, runtimes, details)
  if (reasons.length === 0) return { status: 200, body: { ready: true } }
  return { status: 503, body: { ready: false, reasons }, headers: ['Retry-After', '1'] }
}

function toReasons(
  lifecycle: Readonly<Lifecycle>,
  runtimes: ControlContext['runtimes'],
  details: boolean,
): readonly string[] {
  if (lifecycle.draining) return ['the gateway is stopping']
  if (lifecycle.starting) return ['the gateway is starting']
  return [...runtimes].flatMap(([name, runtime]) => {
    const { up, reason } = runtime.health()
    return up ? [] : [details ? `runtime ${name} is down: ${reason}` : `runtime ${name} is down`]
  })
}
