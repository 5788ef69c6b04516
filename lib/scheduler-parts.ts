/** The scheduler of a gateway: where its state is kept, and what of the gateway it uses. Owner: page scheduler/scheduler. */

import type { Catalog } from './catalog-loader.ts'
import type { Settings } from './config/settings.ts'
import type { Clock } from './core/clock.ts'
import { toFunctionPath } from './core/versions.ts'
import { OwnFolder } from './files/own-folder.ts'
import type { RootLock } from './files/root-lock.ts'
import type { FunctionCalls } from './function-calls.ts'
import type { RequestIds } from './invocation/event.ts'
import { createRoutesOf } from './jobs-parts.ts'
import type { Journal } from './observe/journal.ts'
import { FileScheduleStore } from './scheduler/schedule-store.ts'
import { pickPath, toScheduledRequest } from './scheduler/schedule-runner.ts'
import { Scheduler } from './scheduler/scheduler.ts'

interface SchedulerPartsOptions {
  settings: Settings
  clock: Clock
  /** True starts nothing. */
  inspect: boolean
  journal: Journal
  lock: RootLock
  calls: FunctionCalls
  requestIds: RequestIds
  /** The catalog in force now. */
  catalog: () => Pick<Catalog, 'records'>
}

export function createScheduler(options: SchedulerPartsOptions): Scheduler {
  const { settings, clock, inspect, journal, lock, calls, requestIds, catalog } = options
  const routesOf = createRoutesOf(() => catalog().records())
  const store = new FileScheduleStore({
    folder: new OwnFolder(settings.functionsRoot, '.svc'),
    path: settings.schedulerStatePath,
    persists: settings.schedulerPersistEnabled,
    lock,
    now: () => clock.wall(),
  })
  return new Scheduler({
    clock,
    tickMs: settings.schedulerIntervalSeconds * 1000,
    enabled: settings.schedulerEnabled && !inspect,
    persistMs: settings.schedulerPersistIntervalSeconds * 1000,
    store,
    call: run => {
      const { fn, policy } = run
      const path = pickPath(fn, routesOf(fn, policy.method), toFunctionPath(fn.name, fn.version))
      return calls.run(toScheduledRequest(run, `schedule-${requestIds.next()}`, path))
    },
    ping: fn => calls.ping(fn),
    onEvent: record => journal.events.emit('schedule', record),
    onLog: (level, message) => journal.log(level, message),
  })
}
