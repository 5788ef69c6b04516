/**
 * The history of one gateway over a window as it is sent to another one, and the sum of several. Reports have a limited size, and
 * whatever reaches the store can send one: each is checked. Owner: page observe/history-report.
 */

import { setImmediate } from 'node:timers/promises'
import type { FunctionVersion } from '../core/catalog.ts'
import { getOrMake } from '../core/collections.ts'
import {
  type FunctionError,
  type HistoryStore,
  HistoryView,
  type StepNumbers,
  sumSteps,
  TIERS,
  toFunctionRecord,
  toRequests,
  toSeriesRecord,
  toTotalsRecord,
  type WindowName,
  type WindowSum,
} from './history.ts'
import { type Counts, createCounts, fromReported, Tally, toReported } from './metrics.ts'

/** Gateways with another one are not summed. */
export const HISTORY_FORMAT = 1
/** Functions of a report: half of them are those that failed most, the others the slowest. */
const MAX_FUNCTIONS = 100
const MAX_RUNTIMES = 20
/** Of a key or an error, and numbers of a row. */
const MAX_CHARS = 500
const MAX_COLUMNS = 40
/** Runtime, name and version of a function. */
const KEY = /^([^/]+)\/(.*)@([^@]*)$/s
/** Functions that are read in one go: requests have their turn before the next. */
const FUNCTIONS_AT_ONCE = 25

/** The order of numbers in a row; durations and waits follow. */
const COUNTS = ['errors4xx', 'errors5xx', 'throttled', 'coldStarts'] as const

interface FunctionSum extends WindowSum {
  error: FunctionError | null
}

/** A report as it was received. */
export interface HistoryReport {
  /** Ms since the epoch. */
  startedAt: number
  /** By number of the step since the epoch. */
  steps: ReadonlyMap<number, StepNumbers>
  runtimes: ReadonlyMap<string, WindowSum>
  functions: ReadonlyMap<string, FunctionSum>
  /** Functions that were called and are not among them. */
  leftOut: number
}

/** The report of this gateway, to be sent as JSON. */
export async function toHistoryReport(
  store: HistoryStore,
  functions: readonly FunctionVersion[],
  window: WindowName,
): Promise<Record<string, unknown>> {
  const view = new HistoryView(store, window)
  const called: [string, FunctionSum][] = []
  for (const [index, { key }] of functions.entries()) {
    if (index % FUNCTIONS_AT_ONCE === FUNCTIONS_AT_ONCE - 1) await setImmediate()
    const series = store.functions.get(key)
    if (series === undefined || key.length > MAX_CHARS) continue
    const sum = view.sumOf(series)
    if (toRequests(sum.counts) > 0) called.push([key, { ...sum, error: store.errors.get(key) ?? null }])
  }
  const sent = chooseFunctions(called)
  const { times } = view
  return {
    started_at: store.time.toWall(store.startedAt),
    steps: view.stepsOf(store.all, store.startedAt).flatMap((numbers, index) => {
      if (numbers === null) return []
      const step = Math.round((times[index]! * 1000) / view.stepMs)
      return [[step, numbers.queued, numbers.workers, ...toRow(numbers)]]
    }),
    runtimes: [...store.runtimes].map(([name, series]) => {
      const { counts, spark } = view.sumOf(series)
      return [name, spark, ...toRow(counts)]
    }),
    functions: sent.map(([key, { counts, spark, error }]) => [
      key,
      error?.at ?? 0,
      error?.message ?? '',
      spark,
      ...toRow(counts),
    ]),
    left_out: store.leftOut.size + called.length - sent.length,
  }
}

function chooseFunctions(called: readonly [string, FunctionSum][]): [string, FunctionSum][] {
  if (called.length <= MAX_FUNCTIONS) return [...called]
  const failures = ([, { counts }]: [string, FunctionSum]): number =>
    counts.errors5xx * 1e6 + counts.throttled * 1e3 + counts.errors4xx
  const slowness = ([, sum]: [string, FunctionSum]): number => toTotalsRecord(sum).p95_ms ?? 0
  const failing = called.toSorted((a, b) => failures(b) - failures(a)).slice(0, MAX_FUNCTIONS / 2)
  const slowest = called.toSorted((a, b) => slowness(b) - slowness(a))
  return [...new Set([...failing, ...slowest])].slice(0, MAX_FUNCTIONS)
}

function toRow(counts: Counts): unknown[] {
  return [...COUNTS.map(name => counts[name]), toReported(counts.durations), toReported(counts.waits)]
}

/** @throws TypeError for a report that breaks a rule */
export function parseHistoryReport(sent: Readonly<Record<string, unknown>>, window: WindowName): HistoryReport {
  const steps = toList(sent.steps, TIERS[window].steps).map(row => {
    const [step, queued, workers, ...counts] = toList(row)
    return [toCount(step), { queued: toCount(queued), workers: toCount(workers), ...toCounts(counts) }] as const
  })
  const runtimes = toList(sent.runtimes, MAX_RUNTIMES).map(row => {
    const [name, spark, ...counts] = toList(row)
    return [toText(name), { spark: toSpark(spark), counts: toCounts(counts) }] as const
  })
  const functions = toList(sent.functions, MAX_FUNCTIONS).map(row => {
    const [key, at, message, spark, ...counts] = toList(row)
    const error = toCount(at) === 0 ? null : { at: toCount(at), message: toText(message) }
    return [toText(key), { spark: toSpark(spark), counts: toCounts(counts), error }] as const
  })
  return {
    startedAt: toCount(sent.started_at),
    steps: new Map(steps),
    runtimes: new Map(runtimes),
    functions: new Map(functions),
    leftOut: toCount(sent.left_out),
  }
}

function refuse(): never {
  throw new TypeError('the report has another form')
}

function toList(value: unknown, most = MAX_COLUMNS): unknown[] {
  return Array.isArray(value) && value.length <= most ? value : refuse()
}

function toCount(value: unknown): number {
  return Number.isFinite(value) && (value as number) >= 0 ? (value as number) : refuse()
}

function toText(value: unknown): string {
  return typeof value === 'string' && value.length <= MAX_CHARS ? value : refuse()
}

function toSpark(value: unknown): number[] {
  return toList(value).map(toCount)
}

function toCounts(values: readonly unknown[]): Counts {
  const numbers = COUNTS.map((name, index) => [name, toCount(values[index])])
  const [durations, waits] = values.slice(COUNTS.length).map(fromReported)
  if (durations == null || waits == null) return refuse()
  return { ...createCounts(), ...Object.fromEntries(numbers), durations, waits }
}

/**
 * The sum of several gateways, in the shape of `/_fn/metrics?format=json`.
 * @param now - wall clock, ms; steps of a gateway whose clock is ahead are left out until they are there
 */
export function sumHistoryReports(reports: readonly HistoryReport[], window: WindowName, now: number) {
  const { stepMs, steps: count } = TIERS[window]
  const last = Math.floor(now / stepMs)
  const numbers = Array.from({ length: count }, (_, index) => last - count + 1 + index)
  const steps = numbers.map(step => sumGateways(reports.flatMap(report => report.steps.get(step) ?? [])))
  const runtimes = sumByName(reports.map(({ runtimes }) => runtimes))
  const functions = sumByName(reports.map(({ functions }) => functions))
  return {
    started_at: Math.min(...reports.map(({ startedAt }) => startedAt)) / 1000,
    window,
    step_ms: stepMs,
    times: numbers.map(step => (step * stepMs) / 1000),
    series: toSeriesRecord(steps),
    totals: toTotalsRecord(sumSteps(steps)),
    runtimes: Object.fromEntries([...runtimes].map(([name, sum]) => [name, toTotalsRecord(sum)])),
    functions_left_out: reports.reduce((total, { leftOut }) => total + leftOut, 0),
    functions: [...functions].map(([key, sum]) => {
      const [, runtime = '', name = key, version = ''] = KEY.exec(key) ?? []
      const errors = reports.flatMap(one => one.functions.get(key)?.error ?? [])
      const error = errors.sort((a, b) => b.at - a.at)[0] ?? null
      return toFunctionRecord({ key, runtime, name, version }, sum, error)
    }),
  }
}

/** Queues and workers of gateways are added; those of the samples of one gateway are not. @returns null for no gateway */
function sumGateways(known: readonly StepNumbers[]): StepNumbers | null {
  const tally = new Tally()
  let [queued, workers] = [0, 0]
  for (const { queued: waiting, workers: running, ...counts } of known) {
    tally.add(counts)
    queued += waiting
    workers += running
  }
  const counts = tally.take()
  return counts && { ...counts, queued, workers }
}

function sumByName(maps: readonly ReadonlyMap<string, WindowSum>[]): Map<string, WindowSum> {
  const sums = new Map<string, { tally: Tally; spark: number[] }>()
  for (const map of maps)
    for (const [name, { counts, spark }] of map) {
      const sum = getOrMake(sums, name, () => ({ tally: new Tally(), spark: spark.map(() => 0) }))
      sum.tally.add(counts)
      for (const [index, requests] of spark.entries()) sum.spark[index] = (sum.spark[index] ?? 0) + requests
    }
  return new Map([...sums].map(([name, { tally, spark }]) => [name, { counts: tally.take() ?? createCounts(), spark }]))
}
