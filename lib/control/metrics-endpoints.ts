/** `GET /_fn/metrics`: for Prometheus and what understands it, and as the console draws it. Owner: page observe/metrics. */

import { setImmediate } from 'node:timers/promises'
import { showText } from '../config/findings.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { readDescriptorLimit } from '../core/host.ts'
import { RUNTIMES } from '../core/identity.ts'
import type { Exchange } from '../http/exchange.ts'
import { type HistoryStore, HistoryView, type WindowName, WINDOWS } from '../observe/history.ts'
import { countOpenFiles, toProcessText } from '../observe/metrics.ts'
import {
  badQuery,
  type ControlContext,
  type ControlQuery,
  type ControlReply,
  type Endpoint,
  PacedWriter,
  READ,
} from './endpoint.ts'
import { toSeconds } from './records.ts'

/** Characters that are made and sent in one go: with ten thousand functions the whole takes longer than requests may wait. */
const PIECE_CHARS = 64 * 1024

const QUERY = ['format', 'window', 'key', 'runtime'] as const

export function createMetricsEndpoints(context: ControlContext): readonly Endpoint[] {
  const descriptorLimit = readDescriptorLimit()
  return [
    {
      method: 'GET',
      path: '/_fn/metrics',
      access: READ,
      query: QUERY,
      handle: ({ query }) => {
        if (query.oneOf('format', ['text', 'json'], 'text') === 'json') return readHistory(context, query)
        const field = QUERY.find(name => name !== 'format' && query.text(name) !== null)
        if (field !== undefined) throw badQuery(field, `is for format=json only: add &format=json`)
        return readText(context, descriptorLimit)
      },
    },
  ]
}

async function readText({ metrics, clock, processes }: ControlContext, limit: number | null): Promise<ControlReply> {
  await processes()?.count()
  const processText = toProcessText(clock, await countOpenFiles(), limit)
  const pieces = toPieces(metrics.toText(), processText)
  return {
    send: exchange => {
      sendPieces(exchange, pieces).catch(error => exchange.responder.sendError(exchange, toGatewayError(error)))
    },
  }
}

async function readHistory(
  { history, clock, state, processes }: ControlContext,
  query: ControlQuery,
): Promise<ControlReply> {
  const functions = () => state(false).functions
  const window = query.oneOf('window', WINDOWS, '5m')
  const key = query.text('key')
  const runtime = query.text('runtime') === null ? null : query.oneOf('runtime', RUNTIMES, 'node')
  if (key !== null && runtime !== null)
    throw new GatewayError('BAD_REQUEST', 'query fields key and runtime cannot both be given: a key has its runtime')
  if (key !== null && !functions().some(fn => fn.key === key))
    throw new GatewayError('NOT_FOUND', `no function has the key "${showText(key)}": see key in /_fn/health`)
  await processes()?.count()
  const store = history.read()
  if (store === null)
    throw new GatewayError('NOT_FOUND', 'no history is kept while the console is off: set FN_UI_ENABLED=1')
  const wanted = { window, key, runtime, now: clock.wall() }
  return { status: 200, body: await toHistoryRecord(store, functions(), wanted) }
}

function* toPieces(families: Iterable<string>, end: string): Generator<string> {
  let piece = ''
  for (const text of families) {
    piece += text
    if (piece.length < PIECE_CHARS) continue
    yield piece
    piece = ''
  }
  yield piece + end
}

/** Sends pieces as the client takes them, and lets others have their turn between two. */
async function sendPieces(exchange: Exchange, pieces: Iterator<string>): Promise<void> {
  const { responder } = exchange
  const headers = ['Content-Type', 'text/plain; version=0.0.4; charset=utf-8', 'Cache-Control', 'no-store']
  const first = pieces.next().value as string
  let next = pieces.next()
  if (next.done === true || exchange.method === 'HEAD') {
    responder.send(exchange, 200, headers, first)
    return
  }
  responder.openStream(exchange, 200, headers, null)
  const writer = new PacedWriter(exchange)
  exchange.work = writer
  await writer.write(Buffer.from(first), true)
  for (; next.done !== true; next = pieces.next()) {
    await setImmediate()
    if (exchange.ended || writer.hasLeft) return
    await writer.write(Buffer.from(next.value), true)
  }
  responder.closeStream(exchange, null)
}

// The history as `GET /_fn/metrics?format=json` shows it.

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

async function toHistoryRecord(
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
