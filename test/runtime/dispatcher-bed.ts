/** A dispatcher over a runtime in memory, whose workers and preparations do what the test tells them. */

import type { FunctionVersion, WorkerPoolPolicy } from '../../lib/core/catalog.ts'
import { Dispatcher } from '../../lib/runtime/dispatcher.ts'
import type { Preparer, Runtime } from '../../lib/runtime/runtime.ts'
import { FakeClock } from '../helpers/clock.ts'
import { FakeWorker, SeenCall } from '../helpers/fake-worker.ts'
import { makeFn } from '../helpers/fn.ts'

interface Work {
  fn: FunctionVersion
  tell: () => void
  resolve: (program: string | null) => void
  reject: (error: Error) => void
}

interface BedOptions {
  /** True: functions need something made first, and calls wait 100 ms for it. */
  prepares?: boolean
  /** What of the files on disk is not as it was discovered. */
  disk?: { change: string | null }
  sockets?: number
  maxWorkers?: number
  /** True: changed functions are loaded at once. */
  loadsChanged?: boolean
}

export function makeBed({
  prepares = false,
  disk,
  sockets = 1,
  maxWorkers = 8,
  loadsChanged = false,
}: BedOptions = {}) {
  const clock = new FakeClock()
  const log: string[] = []
  const workers: FakeWorker[] = []
  const programs: (string | null)[] = []
  const works: Work[] = []
  const preparer: Preparer = {
    prepare: (fn, tell = () => {}) => new Promise((resolve, reject) => works.push({ fn, tell, resolve, reject })),
    toStep: fn => `building go function ${fn.name}`,
    waitMs: 100,
    prepareAhead: fn => void preparer.prepare(fn).catch(() => {}),
  }
  const runtime: Runtime = {
    name: 'go',
    sockets: sockets === 1 ? null : { count: sockets, up: () => [], begin: () => 0 },
    preparer: prepares ? preparer : null,
    maxWorkers,
    start: async () => {
      log.push('start')
    },
    rest: () => log.push('rest'),
    spawn: (set, program) => {
      const worker = new FakeWorker(set)
      workers.push(worker)
      programs.push(program)
      return worker
    },
    health: () => ({ version: null, routing: 'single', up: true, reason: 'ok', sockets: [] }),
    close: () => Promise.resolve(),
  }
  const dispatcher = new Dispatcher({
    tenancy: null,
    clock,
    changeOf: () => disk?.change ?? null,
    runtimes: new Map([['go', runtime]]),
    onLog: () => {},
    onFailure: (fn, error) => log.push(`${fn.name} failed: ${error.message}`),
    onStandIn: fn => log.push(`${fn.name} served by the previous version`),
    onFixed: fn => log.push(`${fn.name} fixed`),
    loadsChanged,
  })
  return {
    clock,
    log,
    workers,
    programs,
    works,
    dispatcher,
    retain: (...functions: FunctionVersion[]) => dispatcher.retain(new Map(functions.map(fn => [fn.key, fn]))),
    call: (fn: FunctionVersion) => {
      const call = new SeenCall(fn)
      dispatcher.setOf(fn).dispatch(call)
      return call
    },
    /** A tool begins to work for a function. */
    work: (fn: FunctionVersion) => {
      for (const work of works) if (work.fn === fn) work.tell()
    },
    /** Settles all work for a function. @param outcome - its program, null for packages, or the failure */
    finish: async (fn: FunctionVersion, outcome: string | null | Error) => {
      for (const work of works) {
        if (work.fn !== fn) continue
        if (outcome instanceof Error) work.reject(outcome)
        else work.resolve(outcome)
      }
      await new Promise(setImmediate)
    },
  }
}

export const POOL: WorkerPoolPolicy = {
  enabled: true,
  minWarm: 0,
  maxWorkers: 4,
  maxQueue: 0,
  queueTimeoutMs: 0,
  queuePollMs: 20,
  idleTtlSeconds: 1,
  overflowStatus: 429,
}
export const makeGo = (name: string, signature = '1', workerPool: WorkerPoolPolicy | null = null) =>
  makeFn({ runtime: 'go', name, signature, policy: { timeoutMs: 1000, workerPool } })
