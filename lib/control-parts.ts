/** What the control plane is made of: its endpoints, all families in the order of the documents, and who may use them. Owner: §4.2. */

import { randomBytes } from 'node:crypto'
import { findFunction } from './catalog-loader.ts'
import { toPolicyDefaults } from './config/policy-layers.ts'
import type { Settings } from './config/settings.ts'
import type { FunctionVersion } from './core/catalog.ts'
import { AccessState } from './control/access-state.ts'
import type { Endpoint } from './control/endpoint.ts'
import { createDependencyEndpoints } from './control/dependency-endpoints.ts'
import { createEventsEndpoints } from './control/events-endpoints.ts'
import { createFunctionEditEndpoints } from './control/function-edit-endpoints.ts'
import type { FindFunction } from './control/function-target.ts'
import { createFunctionEndpoints } from './control/function-endpoints.ts'
import { createJobsEndpoints, type JobsEndpointsDeps } from './control/jobs-endpoints.ts'
import { createInvokeEndpoints, type InvokeEndpointsDeps } from './control/invoke-endpoints.ts'
import { createLogEndpoints, type LogEndpointsDeps } from './control/log-endpoints.ts'
import { createMetricsEndpoints, type MetricsEndpointsDeps } from './control/metrics-endpoints.ts'
import { createPackEndpoints, type PackEndpointsDeps } from './control/pack-endpoints.ts'
import { createScheduleEndpoints, type ScheduleEndpointsDeps } from './control/schedule-endpoints.ts'
import { createSessionEndpoints } from './control/session-endpoints.ts'
import { Sessions } from './control/sessions.ts'
import { SourceFiles } from './control/source-files.ts'
import { createSettingsEndpoints, type SettingsEndpointsDeps } from './control/settings-endpoints.ts'
import { createStateEndpoints, type StateEndpointsDeps } from './control/state-endpoints.ts'
import { createUiStateEndpoints } from './control/ui-state-endpoints.ts'
import { UiStore } from './control/ui-store.ts'
import { createWorkerEndpoints, type WorkerEndpointsDeps } from './control/worker-endpoints.ts'
import type { Dependencies } from './dependencies/dependencies.ts'
import { unservedReason } from './discovery/layouts.ts'
import type { Snapshot } from './discovery/snapshot.ts'
import { OwnFolder } from './files/own-folder.ts'
import { EventFeed } from './observe/event-feed.ts'
import type { History } from './observe/history.ts'
import type { Journal } from './observe/journal.ts'
import type { Processes } from './processes/processes.ts'
import { toPolicySources } from './policy-sources.ts'

/** What the endpoints need of the gateway. */
interface ControlDeps
  extends Omit<StateEndpointsDeps, 'runtimes'>,
    InvokeEndpointsDeps,
    JobsEndpointsDeps,
    LogEndpointsDeps,
    Omit<MetricsEndpointsDeps, 'functions' | 'countAll'>,
    SettingsEndpointsDeps,
    Omit<WorkerEndpointsDeps, 'fronts'>,
    Pick<ScheduleEndpointsDeps, 'scheduler'>,
    Pick<PackEndpointsDeps, 'packs'> {
  settings: Settings
  journal: Journal
  history: History
  dependencies: Pick<Dependencies, 'recordOf' | 'states'>
  /** The other processes; null where there are none. */
  processes: () => Pick<Processes, 'count' | 'fronts'> | null
  /** The catalog in force. */
  catalog: () => { readonly snapshot: Snapshot }
}

export interface ControlParts {
  endpoints: readonly Endpoint[]
  access: AccessState
  sessions: Sessions
  /** Ends the answers that would go on. */
  close: () => void
}

export function createControlParts(deps: ControlDeps): ControlParts {
  const { clock, settings, journal, history, state } = deps
  const access = new AccessState(settings)
  const sessions = new Sessions({ clock, ttlMs: settings.consoleSessionTtlSeconds * 1000 })
  const store = new UiStore(new OwnFolder(settings.functionsRoot, '.svc', 'console'))
  const id = randomBytes(4).toString('hex')
  const feed = new EventFeed({ clock, id, events: journal.events, builds: () => journal.builds })
  const endpoints = [
    ...createStateEndpoints(deps),
    ...createPackEndpoints(deps),
    ...createFileEndpoints(deps),
    ...createInvokeEndpoints(deps),
    ...createJobsEndpoints(deps),
    ...createScheduleEndpoints({ ...deps, find: toFind(deps) }),
    ...createEventsEndpoints({ feed }),
    ...createLogEndpoints(deps),
    ...createMetricsEndpoints({
      ...deps,
      functions: () => state(false).functions,
      countAll: async () => deps.processes()?.count(),
    }),
    ...createSessionEndpoints({ clock, settings, sessions, access }),
    ...createUiStateEndpoints({ access, store }),
    ...createSettingsEndpoints(deps),
    ...createDependencyEndpoints(deps),
    ...createWorkerEndpoints({ ...deps, fronts: () => deps.processes()?.fronts ?? [] }),
  ]
  // Nobody looks at it where the console is off.
  const followSwitch = (): void => (access.flags.uiEnabled ? history.start() : history.stop())
  access.onChange = followSwitch
  followSwitch()
  const close = (): void => {
    access.onChange = null
    history.close()
    feed.close()
    deps.streams.close()
  }
  return { endpoints, access, sessions, close }
}

/** Looks a function up in the catalog in force. */
function toFind({ state }: Pick<ControlDeps, 'state'>): FindFunction {
  return (name, version, runtime) => findFunction(state(false).functions, name, version, runtime)
}

/** The endpoints that read and write the files of functions. */
function createFileEndpoints({ settings, state, reload, dependencies, catalog }: ControlDeps): readonly Endpoint[] {
  const { functionsRoot, runtimes } = settings
  const functions = () => state(false).functions
  const dependenciesOf = (fn: FunctionVersion) => dependencies.recordOf(fn)
  const policySourcesOf = (fn: FunctionVersion) => toPolicySources(fn, catalog().snapshot, toPolicyDefaults(settings))
  const shared = {
    files: new SourceFiles({ functionsRoot, reload }),
    find: toFind({ state }),
    functions,
    state,
  }
  return [
    ...createFunctionEndpoints({ ...shared, functionsRoot, runtimes, unservedReason, dependenciesOf, policySourcesOf }),
    ...createFunctionEditEndpoints(shared),
  ]
}
