/** Health, catalog and reload: the state of the gateway as records. Owner: §4.2, §2.17. */

import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import type { Lifecycle } from '../core/transitions.ts'
import { type ConstantAnswer, toConstantAnswer } from '../http/respond.ts'
import { ACT, type ControlContext, type ControlReply, type Endpoint, OPEN, READ } from './endpoint.ts'
import { type GatewayState, toCatalogRecord, toHealthRecord, toReloadRecord } from './records.ts'

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

/** The record, or what a probe asks for instead of it. */
function createHealth(context: ControlContext): (search: string, details: boolean) => ControlReply {
  const { clock, state, lifecycle } = context
  const strangers = createStrangersHealth(clock, state)
  return (search, details) => {
    const probe = askedProbe(search)
    if (probe === 'live') return ALIVE
    // Before its tree is read there is nothing else to show.
    if (probe === 'ready' || lifecycle.starting) return toReadyReply(context, details)
    const record = details ? toHealthRecord(state(true)) : strangers()
    return lifecycle.draining ? { ...record, status: 503 } : record
  }
}

/** Whoever may not see details gets what was made for another one a moment ago. */
function createStrangersHealth(clock: Clock, state: (details: boolean) => GatewayState): () => ConstantAnswer {
  let made: { health: ConstantAnswer; at: number } | null = null
  return () => {
    const now = clock.monotonic()
    if (made === null || now - made.at >= STRANGERS_HEALTH_MS) {
      const { status, body } = toHealthRecord(state(false))
      made = { health: toConstantAnswer(status, body), at: now }
    }
    return made.health
  }
}

// Whether the gateway should get requests, and whether it lives at all: what probes ask of `/_fn/health`.

/** A field of the query that stands by itself or is switched on. */
const PROBE = /(?:^|&)(ready|live)(?:=(?:1|true|yes|on)?)?(?=&|$)/gi

/** What a query asks for besides the record; `ready` says more than `live`. Other fields pass unread: probes add some against caches. */
function askedProbe(search: string): 'ready' | 'live' | null {
  const asked = [...search.matchAll(PROBE)].map(([, name]) => name!.toLowerCase())
  if (asked.includes('ready')) return 'ready'
  return asked.length > 0 ? 'live' : null
}

/** `?live=1`: whoever can say so lives, at the start and at the end too. */
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
