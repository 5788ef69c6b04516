/** What counting and tracing cost each request. */

import { systemClock } from '../../lib/core/clock.ts'
import { History } from '../../lib/observe/history.ts'
import { Metrics } from '../../lib/observe/metrics.ts'
import { TraceIds } from '../../lib/observe/trace.ts'
import { makeFn } from '../helpers/fn.ts'
import type { BenchRow } from './rows.ts'

const COUNT = 1_000_000
const FUNCTIONS = 1000

export async function run(): Promise<BenchRow[]> {
  const functions = Array.from({ length: FUNCTIONS }, (_, i) => makeFn({ name: `f${i}` }))
  const metrics = new Metrics()
  metrics.functions.adopt(new Map(functions.map(fn => [fn.key, fn])))
  const ids = new TraceIds()
  const call = { trace: '', traceState: null, span: null }
  let at = 0
  const next = () => {
    at = (at + 7) % FUNCTIONS
    return functions[at]!
  }
  const rows = [
    toRow(
      'counting a request, one function',
      300,
      time(() => metrics.request('GET', 200, functions[0]!, 0.7, 0)),
    ),
    toRow(
      'counting a request, 1000 functions',
      300,
      time(() => metrics.request('GET', 200, next(), 0.7, 0)),
    ),
    toRow(
      'a trace that begins here',
      300,
      time(() => ids.join(call, null, null)),
    ),
    toRow(
      'a trace of the client',
      300,
      time(() => ids.join(call, '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', null)),
    ),
  ]
  const startedAt = performance.now()
  let chars = 0
  for (const piece of metrics.toText()) chars += piece.length
  rows.push({
    name: `the text of 1000 functions, ${(chars / 1e6).toFixed(1)} MB`,
    value: performance.now() - startedAt,
    unit: 'ms',
  })
  return [...rows, ...measureHistory()]
}

/** Reading the counters of 10,000 functions, a tenth of which was called since the last time. */
function measureHistory(): BenchRow[] {
  const functions = Array.from({ length: 10_000 }, (_, i) => makeFn({ name: `f${i}` }))
  const metrics = new Metrics()
  metrics.functions.adopt(new Map(functions.map(fn => [fn.key, fn])))
  for (const fn of functions) metrics.request('GET', 200, fn, 1, 0)
  const history = new History({
    clock: systemClock,
    metrics,
    waiting: () => [],
    workers: () => [],
    onProblem: () => {},
  })
  history.start()
  globalThis.gc?.()
  const before = process.memoryUsage().heapUsed
  const times = Array.from({ length: 30 }, () => {
    for (let i = 0; i < FUNCTIONS; i++) metrics.request('GET', 200, functions[i]!, 1, 0)
    const startedAt = performance.now()
    history.read()
    return performance.now() - startedAt
  })
  globalThis.gc?.()
  const bytes = process.memoryUsage().heapUsed - before
  history.stop()
  const [first] = times
  const usual = times.slice(1).sort((a, b) => a - b)[14]!
  return [
    { name: 'a sample of the history, 1000 of 10,000 functions called', value: usual, unit: 'ms' },
    { name: 'the first one, which makes their series', value: first!, unit: 'ms' },
    { name: 'memory of the series of 1000 functions', value: bytes / 1e6, unit: 'MB' },
  ]
}

function toRow(name: string, goalNs: number, ns: number): BenchRow {
  return { name, value: ns, unit: 'ns', goal: `at most ${goalNs}`, ok: ns <= goalNs }
}

/** Least nanoseconds of several rounds: what else the machine does only adds to it. */
function time(work: () => void): number {
  let least = Number.POSITIVE_INFINITY
  for (let round = 0; round < 7; round++) {
    const startedAt = performance.now()
    for (let i = 0; i < COUNT; i++) work()
    least = Math.min(least, performance.now() - startedAt)
  }
  return (least * 1e6) / COUNT
}
