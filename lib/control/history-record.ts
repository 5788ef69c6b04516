/** The history as `GET /_fn/metrics?format=json` shows it. Owner: page observe/history. */

import { setImmediate } from 'node:timers/promises'
import type { FunctionVersion } from '../core/catalog.ts'
import type { HistoryStore, WindowName } from '../observe/history.ts'
import { HistoryView } from '../observe/history-view.ts'
import { toSeconds } from './records.ts'

/** Functions that are read in one go: requests have their turn before the next. */
const FUNCTIONS_AT_ONCE = 25

interface WantedHistory {
  window: WindowName
  /** One function, or one runtime; null for both: everything. */
  key: string | null
  runtime: string | null
  /** Wall clock, ms. */
  now: number
}

export async function toHistoryRecord(
  store: HistoryStore,
  functions: readonly FunctionVersion[],
  { window, key, runtime, now }: WantedHistory,
): Promise<Record<string, unknown>> {
  const view = new HistoryView(store, window)
  const ofRuntime = runtime === null ? store.all : (store.runtimes.get(runtime) ?? null)
  const ofFunction = key === null ? null : (store.functions.get(key) ?? null)
  const head = {
    generated_at: toSeconds(now),
    window,
    step_ms: view.stepMs,
    started_at: toSeconds(Math.round(store.time.toWall(store.startedAt))),
    times: view.times,
    series: key === null ? view.toSeries(ofRuntime) : view.toFunctionSeries(key),
    totals: view.toTotals(key === null ? ofRuntime : ofFunction),
    runtimes: Object.fromEntries([...store.runtimes].map(([name, series]) => [name, view.toTotals(series)])),
    functions_left_out: store.leftOut.size,
  }
  const isKnown = (one: string): boolean => store.functions.has(one) || store.errors.has(one)
  const wanted = functions.filter(fn =>
    key === null ? (runtime === null || fn.runtime === runtime) && isKnown(fn.key) : fn.key === key,
  )
  const summaries: unknown[] = []
  for (const fn of wanted) {
    summaries.push(view.toSummary(fn))
    if (summaries.length % FUNCTIONS_AT_ONCE === 0) await setImmediate()
  }
  return { ...head, functions: summaries }
}
