/** `GET /_fn/metrics`: for Prometheus and compatible tools, and as the console draws it. Owner: page observe/metrics. */

import { setImmediate } from 'node:timers/promises'
import { oneOf, showText, string } from '../config/fields.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import { readDescriptorLimit } from '../core/host.ts'
import { RUNTIMES } from '../core/identity.ts'
import {
  type HistoryReport,
  parseHistoryReport,
  sumHistoryReports,
  toHistoryReport,
} from '../observe/history-report.ts'
import { type HistoryStore, HistoryView, type WindowName, WINDOWS } from '../observe/history.ts'
import { countOpenFiles, toProcessText } from '../observe/metrics.ts'
import {
  badQuery,
  type ControlContext,
  type ControlReply,
  type Endpoint,
  endpoint,
  json,
  type JsonObject,
  type readQuery,
  sendPieces,
} from './endpoint.ts'
import { toSeconds } from './records.ts'

/** Characters that are made and sent in one go: with ten thousand functions the whole takes longer than requests may wait. */
const PIECE_CHARS = 64 * 1024
const TEXT_HEADERS = ['Content-Type', 'text/plain; version=0.0.4; charset=utf-8']

const HISTORY_FIELDS = {
  window: oneOf(WINDOWS),
  key: string({ maxLength: 2048 }),
  runtime: oneOf(RUNTIMES),
  scope: oneOf(['gateway', 'fleet']),
}
const QUERY = { format: oneOf(['text', 'json']), ...HISTORY_FIELDS }

export function createMetricsEndpoints(context: ControlContext): readonly Endpoint[] {
  const descriptorLimit = readDescriptorLimit()
  const { metrics, clock, processes, fleet } = context
  fleet?.serveHistory(async window => {
    const isKnown = (name: string): name is WindowName => WINDOWS.includes(name as WindowName)
    return isKnown(window) ? toHistoryReport(await openHistory(context), context.state(false).functions, window) : {}
  })
  return [
    endpoint(
      'GET /_fn/metrics',
      'read',
      async ({ query }) => {
        if (query.format === 'json')
          return query.scope === 'fleet' ? readFleetHistory(context, query) : readHistory(context, query)
        const field = Object.keys(query).find(name => Object.hasOwn(HISTORY_FIELDS, name))
        if (field !== undefined) throw badQuery(field, 'is for format=json only: add &format=json')
        await processes()?.count()
        const processText = toProcessText(clock, await countOpenFiles(), descriptorLimit)
        return { send: exchange => sendPieces(exchange, TEXT_HEADERS, toPieces(metrics.toText(), processText)) }
      },
      QUERY,
    ),
  ]
}

/** Joins short texts, and lets other requests have their turn after each piece. */
async function* toPieces(families: Iterable<string>, end: string): AsyncGenerator<Buffer, void> {
  let piece = ''
  for (const text of families) {
    piece += text
    if (piece.length < PIECE_CHARS) continue
    yield Buffer.from(piece)
    piece = ''
    await setImmediate()
  }
  yield Buffer.from(piece + end)
}

type HistoryQuery = ReturnType<typeof readQuery<typeof HISTORY_FIELDS>>

async function readHistory(context: ControlContext, query: HistoryQuery): Promise<ControlReply> {
  const { clock, state } = context
  const { key, runtime } = query
  const functions = (): readonly FunctionVersion[] => state(false).functions
  if (key !== undefined && runtime !== undefined)
    throw new GatewayError('BAD_REQUEST', 'query fields key and runtime cannot both be given: a key has its runtime')
  if (key !== undefined && !functions().some(fn => fn.key === key))
    throw new GatewayError('NOT_FOUND', `no function has the key "${showText(key)}": see key in /_fn/health`)
  const store = await openHistory(context)
  return json(await toHistoryRecord(store, functions(), query, clock.wall()))
}

/** Up to now. @throws GatewayError NOT_FOUND while none is kept */
async function openHistory({ history, processes }: ControlContext): Promise<HistoryStore> {
  await processes()?.count()
  const store = history.read()
  if (store === null)
    throw new GatewayError('NOT_FOUND', 'no history is kept while the console is off: set FN_UI_ENABLED=1')
  return store
}

/** The sum of all gateways that reply. Without a fleet it is the history of this gateway, and `fleet` is null. */
async function readFleetHistory(context: ControlContext, query: HistoryQuery): Promise<ControlReply> {
  const { fleet, clock, state } = context
  const field = (['key', 'runtime'] as const).find(name => query[name] !== undefined)
  if (field !== undefined) throw badQuery(field, 'cannot be given with scope=fleet')
  const { window = '5m' } = query
  const store = await openHistory(context)
  const { functions } = state(false)
  if (fleet === null) return json({ ...(await toHistoryRecord(store, functions, query, clock.wall())), fleet: null })
  const own = { id: fleet.id, history: await toHistoryReport(store, functions, window) }
  const reports: HistoryReport[] = []
  const missing: { id: string; problem: string }[] = []
  for (const reply of [own, ...(await fleet.askHistories(window))]) {
    if ('problem' in reply) missing.push(reply)
    else
      try {
        reports.push(parseHistoryReport(reply.history, window))
        await setImmediate()
      } catch {
        missing.push({ id: reply.id, problem: 'its report has another form' })
      }
  }
  const now = clock.wall()
  const sum = sumHistoryReports(reports, window, now)
  return json({ generated_at: toSeconds(now), ...sum, fleet: { id: fleet.id, gateways: reports.length, missing } })
}

/** Functions that are read in one go: requests have their turn before the next. */
const FUNCTIONS_AT_ONCE = 25

/** @param query - one function, or one runtime; without both it is everything */
async function toHistoryRecord(
  store: HistoryStore,
  functions: readonly FunctionVersion[],
  { window = '5m', key, runtime }: HistoryQuery,
  now: number,
): Promise<JsonObject> {
  const view = new HistoryView(store, window)
  const ofRuntime = runtime === undefined ? store.all : (store.runtimes.get(runtime) ?? null)
  const ofFunction = key === undefined ? null : (store.functions.get(key) ?? null)
  const head = {
    generated_at: toSeconds(now),
    window,
    step_ms: view.stepMs,
    started_at: toSeconds(Math.round(store.time.toWall(store.startedAt))),
    times: view.times,
    series: key === undefined ? view.toSeries(ofRuntime) : view.toFunctionSeries(key),
    totals: view.toTotals(key === undefined ? ofRuntime : ofFunction),
    runtimes: Object.fromEntries([...store.runtimes].map(([name, series]) => [name, view.toTotals(series)])),
    functions_left_out: store.leftOut.size,
  }
  const isKnown = (one: string): boolean => store.functions.has(one) || store.errors.has(one)
  const isOfRuntime = (fn: FunctionVersion): boolean => runtime === undefined || fn.runtime === runtime
  const summaries: unknown[] = []
  for (const fn of functions) {
    if (key === undefined ? !isOfRuntime(fn) || !isKnown(fn.key) : fn.key !== key) continue
    summaries.push(view.toSummary(fn))
    if (summaries.length % FUNCTIONS_AT_ONCE === 0) await setImmediate()
  }
  return { ...head, functions: summaries }
}
