/** What runs calls, from whatever door they come, and what counts them. Owner: §1, §2.8. */

import { randomBytes } from 'node:crypto'
import type { Catalog } from './catalog-loader.ts'
import type { Clock } from './core/clock.ts'
import { EdgeProxy } from './edge/passthrough.ts'
import { FunctionCalls } from './function-calls.ts'
import { Admission } from './invocation/admission.ts'
import { Invoker, type InvokerOptions } from './invocation/invoke.ts'
import { RequestIds } from './invocation/event.ts'
import type { History } from './observe/history.ts'
import type { Journal } from './observe/journal.ts'
import type { Metrics } from './observe/metrics.ts'
import type { Descriptors } from './core/host.ts'
import type { Listeners } from './listeners.ts'
import { createHistory, createMetrics } from './metrics-parts.ts'
import type { Runtimes } from './runtime/runtimes.ts'

interface CallPartsOptions {
  clock: Clock
  descriptors: Descriptors
  /** Pages of functions have the origin of the console. */
  sharesOrigin: boolean
  journal: Journal
  runtimes: Runtimes
  schemas: InvokerOptions['schemas']
  /** Every socket that is listened on now. */
  listening: () => Listeners['all']
  /** The catalog in force now. */
  catalog: () => Pick<Catalog, 'discovery' | 'functions' | 'routes'>
}

export interface CallParts {
  requestIds: RequestIds
  admission: Admission
  edge: EdgeProxy
  metrics: Metrics
  history: History
  invoker: Invoker
  calls: FunctionCalls
}

export function createCallParts(options: CallPartsOptions): CallParts {
  const { clock, descriptors, sharesOrigin, journal, runtimes, schemas, listening, catalog } = options
  const requestIds = new RequestIds(randomBytes(6).toString('hex'))
  const admission = new Admission(clock)
  const edge = new EdgeProxy({ clock, listening, descriptors })
  const functions = () => catalog().functions
  const counted = { clock, admission, runtimes, edge, journal, functions }
  const metrics = createMetrics(counted)
  const history = createHistory(counted, metrics)
  const invoker = new Invoker({
    schemas,
    sharesOrigin,
    clock,
    dispatcher: runtimes.dispatcher,
    admission,
    edge: edge.handle,
    secrets: journal.secrets,
    onLog: (call, stream, text) => journal.output(call.fn, stream, text, call),
    onCold: fn => metrics.functions.coldStart(fn),
  })
  const calls = new FunctionCalls({ invoker, requestIds, journal, metrics, catalog })
  return { requestIds, admission, edge, metrics, history, invoker, calls }
}
