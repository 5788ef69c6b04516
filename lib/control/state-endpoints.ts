/** Health, catalog and reload: the state of the gateway as records. Owner: §4.2, §2.17. */

import type { Clock } from '../core/clock.ts'
import { type ConstantAnswer, toConstantAnswer } from '../http/respond.ts'
import { ACT, type ControlReply, type Endpoint, OPEN, READ } from './endpoint.ts'
import { ALIVE, askedProbe, type ReadinessOptions, toReadyReply } from './readiness.ts'
import { type GatewayState, toCatalogRecord, toHealthRecord, toReloadRecord } from './records.ts'

/** Milliseconds for which strangers get the same health record: making it looks at every function. */
export const STRANGERS_HEALTH_MS = 1000

export interface StateEndpointsDeps extends ReadinessOptions {
  clock: Clock
  /** The state now; `details` tells whether paths and addresses may be shown. */
  state: (details: boolean) => GatewayState
  /** Resolves when the new catalog is in force. */
  reload: () => Promise<void>
}

export function createStateEndpoints(deps: StateEndpointsDeps): readonly Endpoint[] {
  const { state, reload, clock } = deps
  const health = createHealth(deps)
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
    { method: 'POST', path: '/_fn/reload', access: ACT, handle: ({ details }) => reloaded(details) },
    // Watchers of older tools ask so.
    { method: 'GET', path: '/_fn/reload', access: ACT, handle: ({ details }) => reloaded(details) },
  ]
}

/** The record, or what a probe asks for instead of it. */
function createHealth(deps: StateEndpointsDeps): (search: string, details: boolean) => ControlReply {
  const { clock, state, lifecycle } = deps
  const strangers = createStrangersHealth(clock, state)
  return (search, details) => {
    const probe = askedProbe(search)
    if (probe === 'live') return ALIVE
    // Before its tree is read there is nothing else to show.
    if (probe === 'ready' || lifecycle.starting) return toReadyReply(deps, details)
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
