/** The jobs of a gateway: where they are kept, and what of the gateway they use. Owner: page jobs/jobs. */

import { type Catalog, findFunction } from './catalog-loader.ts'
import type { Settings } from './config/settings.ts'
import type { FunctionVersion } from './core/catalog.ts'
import type { Clock } from './core/clock.ts'
import type { Method } from './core/identity.ts'
import type { EdgeProxy } from './edge/passthrough.ts'
import { OwnFolder } from './files/own-folder.ts'
import type { RootLock } from './files/root-lock.ts'
import type { FunctionCalls } from './function-calls.ts'
import type { Admission } from './invocation/admission.ts'
import { CallbackSender } from './jobs/callback-sender.ts'
import { FileStore } from './jobs/file-store.ts'
import { Jobs } from './jobs/jobs.ts'
import { toJobsText } from './metrics-parts.ts'
import type { Journal } from './observe/journal.ts'
import type { Metrics } from './observe/metrics.ts'
import type { RouteRecords } from './router/route-records.ts'

interface JobsPartsOptions {
  settings: Settings
  /** True starts nothing. */
  inspect: boolean
  clock: Clock
  journal: Journal
  lock: RootLock
  admission: Admission
  edge: EdgeProxy
  calls: FunctionCalls
  metrics: Pick<Metrics, 'register'>
  /** The catalog in force now. */
  catalog: () => Catalog
}

export function createJobs(options: JobsPartsOptions): Jobs {
  const { settings, clock, journal, admission, edge, calls, catalog } = options
  const folder = new OwnFolder(settings.functionsRoot, '.svc', 'jobs')
  const onLog = (level: 'warn' | 'error', message: string): void => journal.log(level, message)
  const functionOf = (key: string): FunctionVersion | null => catalog().functions.get(key) ?? null
  const store = new FileStore({
    folder,
    lock: options.lock,
    now: () => clock.wall(),
    onProblem: message => onLog('warn', message),
  })
  const jobs = new Jobs({
    clock,
    enabled: settings.jobsEnabled && !options.inspect,
    maxConcurrency: settings.jobsMaxConcurrency,
    maxResultBytes: settings.jobsMaxResultBytes,
    store,
    hasStored: () => folder.isThere(),
    call: request => calls.run(request),
    functionOf,
    admission,
    find: (name, version, runtime) => findFunction(catalog().discovery.functions, name, version, runtime),
    routesOf: createRoutesOf(() => catalog().records()),
    callbacks: new CallbackSender({ network: edge, secret: settings.jobsCallbackSecret, store, functionOf, onLog }),
    onEvent: record => journal.events.emit('job', record),
    onLog,
  })
  options.metrics.register(() => [toJobsText(jobs.counts())])
  return jobs
}

/** Routes by function and method; looked up once for each catalog, since every job asks. */
export function createRoutesOf(
  records: () => Pick<RouteRecords, 'mapped_routes'>,
): (fn: FunctionVersion, method: Method) => readonly string[] {
  // Holds the records, which are made anew for whoever asks when nobody does.
  let known: { of: object; routes: Map<string, string[]> } | null = null
  return ({ runtime, name, version }, method) => {
    const made = records()
    if (known?.of !== made) known = { of: made, routes: toRoutes(made.mapped_routes) }
    return known.routes.get(`${runtime} ${name} ${version} ${method}`) ?? []
  }
}

function toRoutes(mapped: RouteRecords['mapped_routes']): Map<string, string[]> {
  const routes = new Map<string, string[]>()
  for (const [route, owners] of Object.entries(mapped)) {
    for (const { runtime, name, version, methods } of owners) {
      for (const method of methods) {
        const key = `${runtime} ${name} ${version} ${method}`
        const list = routes.get(key)
        if (list === undefined) routes.set(key, [route])
        else list.push(route)
      }
    }
  }
  return routes
}
