/** The processes of a gateway beside this one, where its settings ask for any. Owner: page processes/processes. */

import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import type { CallParts } from './call-parts.ts'
import type { Settings } from './config/settings.ts'
import { toEndpointPaths } from './control/endpoint-table.ts'
import type { ControlParts } from './control-parts.ts'
import type { Clock } from './core/clock.ts'
import type { PublicHandler } from './http/public.ts'
import type { Listeners } from './listeners.ts'
import type { Journal } from './observe/journal.ts'
import type { Processes } from './processes/processes.ts'
import type { Runtimes } from './runtime/runtimes.ts'

interface ProcessesPartsOptions extends Pick<CallParts, 'invoker' | 'admission' | 'edge' | 'metrics'> {
  settings: Settings
  clock: Clock
  inspect: boolean
  journal: Journal
  runtimes: Runtimes
  controlParts: ControlParts
  public: PublicHandler
  listeners: Listeners
}

/** From the sources as well as from the built package, whose joined files lie in folders beside `lib`. */
const ENTRY = new URL(`../lib/front-main.${import.meta.url.endsWith('.ts') ? 'ts' : 'js'}`, import.meta.url)

/** @returns null for a gateway of one process, which loads nothing of this */
export async function createProcesses(options: ProcessesPartsOptions): Promise<Processes | null> {
  const { settings, clock, inspect, journal, controlParts, invoker, admission, edge, metrics } = options
  const count = toProcessCount(settings.gatewayWorkers)
  if (count <= 1 || inspect) return null
  const { dispatcher } = options.runtimes
  const { Processes } = await import('./processes/processes.ts')
  return new Processes({
    clock,
    settings,
    controlPaths: toEndpointPaths(controlParts.endpoints),
    count: count - 1,
    entry: fileURLToPath(ENTRY),
    door: { invoker, admission, dispatcher, control: options.public.handle },
    journal,
    metrics,
    edgeResults: edge.results,
    addresses: () => options.listeners.all,
  })
}

/** @param wanted - a number, or `auto` for one a processor */
function toProcessCount(wanted: Settings['gatewayWorkers']): number {
  return wanted === 'auto' ? availableParallelism() : wanted
}
