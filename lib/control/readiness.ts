/** Whether the gateway should get requests, and whether it lives at all: what probes ask of `/_fn/health`. Owner: §4.2. */

import type { RuntimeName } from '../core/identity.ts'
import type { Lifecycle } from '../core/transitions.ts'
import type { Runtime } from '../runtime/runtime.ts'
import type { ControlReply } from './endpoint.ts'

export interface ReadinessOptions {
  lifecycle: Readonly<Lifecycle>
  /** The enabled ones. */
  runtimes: ReadonlyMap<RuntimeName, Pick<Runtime, 'health'>>
}

/** A field of the query that stands by itself or is switched on. */
const PROBE = /(?:^|&)(ready|live)(?:=(?:1|true|yes|on)?)?(?=&|$)/gi

/** What a query asks for besides the record; `ready` says more than `live`. Other fields pass unread: probes add some against caches. */
export function askedProbe(search: string): 'ready' | 'live' | null {
  const asked = [...search.matchAll(PROBE)].map(([, name]) => name!.toLowerCase())
  if (asked.includes('ready')) return 'ready'
  return asked.length > 0 ? 'live' : null
}

/** `?live=1`: whoever can say so lives, at the start and at the end too. */
export const ALIVE: ControlReply = { status: 200, body: { live: true } }

/**
 * `?ready=1`: 503 with the reasons while starting or stopping, or when an enabled runtime is down.
 * @param details - reasons of runtimes may be shown: they name programs and paths
 */
export function toReadyReply({ lifecycle, runtimes }: ReadinessOptions, details: boolean): ControlReply {
  const reasons = toReasons(lifecycle, runtimes, details)
  if (reasons.length === 0) return { status: 200, body: { ready: true } }
  return { status: 503, body: { ready: false, reasons }, headers: ['Retry-After', '1'] }
}

function toReasons(
  lifecycle: Readonly<Lifecycle>,
  runtimes: ReadinessOptions['runtimes'],
  details: boolean,
): readonly string[] {
  if (lifecycle.draining) return ['the gateway is stopping']
  if (lifecycle.starting) return ['the gateway is starting']
  return [...runtimes].flatMap(([name, runtime]) => {
    const { up, reason } = runtime.health()
    return up ? [] : [details ? `runtime ${name} is down: ${reason}` : `runtime ${name} is down`]
  })
}
