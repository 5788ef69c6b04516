/** The processes of a gateway beside this one, where its settings ask for any. Owner: page processes/processes. */

import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import type { CallParts } from './call-parts.ts'
import type { Settings } from './config/settings.ts'
import { toEndpointPaths } from './control/endpoint-table.ts'
import type { ControlParts } from './control-parts.ts'
import type { FunctionVersion } from './core/catalog.ts'
import type { Clock } from './core/clock.ts'
import type { Lifecycle } from './core/transitions.ts'
import type { PublicHandler } from './http/public.ts'
import type { Listeners } from './listeners.ts'
import type { Journal } from './observe/journal.ts'
import type { Processes } from './processes/processes.ts'
import type { Dispatcher } from './runtime/dispatcher.ts'
import type { Runtime } from './runtime/runtime.ts'
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
  lifecycle: Lifecycle
}

interface LeasingParts {
  settings: Pick<Settings, 'hotReload' | 'isolation' | 'runtimeSockets'>
  runtimes: {
    byName: ReadonlyMap<string, Pick<Runtime, 'preparer' | 'prepareStart'>>
    dispatcher: Pick<Dispatcher, 'isWarm' | 'loadErrorOf'>
  }
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
    admission,
    prepare: fn => prepareLease(options, fn),
    sourceOf: (fn, program) => options.runtimes.byName.get(fn.runtime)?.prepareStart?.(fn, program).source ?? null,
    dispatcher,
    journal,
    metrics,
    edgeResults: edge.results,
    addresses: () => options.listeners.all,
    connections: () => options.listeners.connections,
    lifecycle: options.lifecycle,
  })
}

/**
 * What a front needs to run calls of a function itself; null where only this process can: in Lua, as a user of its own, behind
 * somebody else's daemon, while its files may be edited, and before it has run here.
 */
export async function prepareLease(
  { settings, runtimes }: LeasingParts,
  fn: FunctionVersion,
): Promise<{ program: string | null; header: string } | null> {
  const runtime = runtimes.byName.get(fn.runtime)
  const isElsewhere = (settings.runtimeSockets[fn.runtime]?.length ?? 0) > 0
  if (settings.hotReload || settings.isolation === 'user' || isElsewhere) return null
  if (runtime?.prepareStart === undefined) return null
  const { dispatcher } = runtimes
  if (!dispatcher.isWarm(fn.key) || dispatcher.loadErrorOf(fn.key) !== null) return null
  const program = (await runtime.preparer?.prepare(fn)) ?? null
  return { program, header: runtime.prepareStart(fn, program).header }
}

/** @param wanted - a number, or `auto` for one a processor */
function toProcessCount(wanted: Settings['gatewayWorkers']): number {
  return wanted === 'auto' ? availableParallelism() : wanted
}
