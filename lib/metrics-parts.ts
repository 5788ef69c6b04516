/** What a gateway counts, joined with what its parts know already: slots, workers, runtimes, upstream requests. Owner: page observe/metrics. */

import type { FunctionVersion } from './core/catalog.ts'
import type { Clock } from './core/clock.ts'
import type { EdgeProxy } from './edge/passthrough.ts'
import type { Admission, AdmissionSnapshot } from './invocation/admission.ts'
import type { Journal } from './observe/journal.ts'
import { Metrics, toFunctionLabels } from './observe/metrics.ts'
import { History } from './observe/history.ts'
import { toFamily, toFamilyHead, toLabels, toSample } from './observe/histogram.ts'
import type { Runtimes } from './runtime/runtimes.ts'

interface MetricsDeps {
  clock: Clock
  admission: Pick<Admission, 'snapshot' | 'waiting'>
  runtimes: Pick<Runtimes, 'byName' | 'dispatcher'>
  edge: Pick<EdgeProxy, 'active' | 'results'>
  journal: Pick<Journal, 'events' | 'onFailure' | 'log'>
  /** Functions of the catalog in force, by key. */
  functions: () => ReadonlyMap<string, FunctionVersion>
}

export function createMetrics(deps: MetricsDeps): Metrics {
  const metrics = new Metrics()
  deps.journal.events.on('reload', () => metrics.reload('ok'))
  deps.journal.events.on('schedule', ({ error }) => metrics.scheduleRun(error === null ? 'ok' : 'failed'))
  metrics.register(() => toAdmissionText(deps))
  metrics.register(() => toWorkersText(deps))
  metrics.register(() => toOthersText(deps))
  return metrics
}

/** What is kept of those numbers while the console is on. */
export function createHistory({ clock, admission, runtimes, journal }: MetricsDeps, metrics: Metrics): History {
  const history = new History({
    clock,
    metrics,
    waiting: () => admission.waiting(),
    workers: () => runtimes.dispatcher.liveWorkers(),
    onProblem: message => journal.log('warn', message),
  })
  journal.onFailure = (fn, message) => history.failed(fn.key, message)
  return history
}

function* toAdmissionText({ admission, functions }: MetricsDeps): Generator<string> {
  const known = functions()
  const rows = admission.snapshot().filter(({ key }) => known.has(key))
  const labelsOf = ({ key }: AdmissionSnapshot): string => toLabels(toFunctionLabels(known.get(key)!))
  if (rows.length === 0) return
  yield toFamilyHead('fn_calls_in_flight', 'gauge', 'Calls that have a slot.')
  for (const row of rows) yield toSample('fn_calls_in_flight', labelsOf(row), row.active)
  yield toFamilyHead('fn_queue_depth', 'gauge', 'Calls that wait for a slot.')
  for (const row of rows) yield toSample('fn_queue_depth', labelsOf(row), row.queued)
  yield toFamilyHead('fn_refused_total', 'counter', 'Calls that got no slot, by why.')
  for (const row of rows) {
    const labels = labelsOf(row)
    yield toSample('fn_refused_total', `${labels},reason="overflow"`, row.overflows)
    yield toSample('fn_refused_total', `${labels},reason="queue_timeout"`, row.queue_timeouts)
  }
}

const STATES = ['starting', 'idle', 'busy', 'ending', 'lent'] as const

function* toWorkersText({ runtimes }: MetricsDeps): Generator<string> {
  let head = toFamilyHead('fn_workers', 'gauge', 'Workers by what they do.')
  for (const { fn, counts } of runtimes.dispatcher.workerStates()) {
    const labels = toLabels(toFunctionLabels(fn))
    yield head + STATES.map(state => toSample('fn_workers', `${labels},state="${state}"`, counts[state])).join('')
    head = ''
  }
}

function* toOthersText({ runtimes, edge }: MetricsDeps): Generator<string> {
  const up = [...runtimes.byName].map(([name, runtime]) => [{ runtime: name }, runtime.health().up ? 1 : 0] as const)
  yield toFamily('fn_runtime_up', 'gauge', 'Whether a runtime can serve: 1 or 0.', up)
  const results = Object.entries(edge.results).map(([result, count]) => [{ result }, count] as const)
  yield toFamily('fn_edge_requests_total', 'counter', 'Upstream requests that functions asked for, by result.', results)
  yield toFamily('fn_edge_in_flight', 'gauge', 'Upstream requests under way.', [[{}, edge.active]])
}

/** @param counts - jobs by state */
export function toJobsText(counts: Readonly<Record<string, number>>): string {
  const rows = Object.entries(counts).map(([state, count]) => [{ state }, count] as const)
  return toFamily('fn_jobs', 'gauge', 'Jobs that are kept, by state.', rows)
}
