/** `GET /_fn/metrics`: for Prometheus and what understands it, and as the console draws it. Owner: page observe/metrics. */

import { setImmediate } from 'node:timers/promises'
import { showText } from '../config/findings.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { RUNTIMES } from '../core/identity.ts'
import { readDescriptorLimit } from '../core/host.ts'
import type { Exchange } from '../http/exchange.ts'
import { type History, WINDOWS } from '../observe/history.ts'
import type { Metrics } from '../observe/metrics.ts'
import { countOpenFiles, toProcessText } from '../observe/process-metrics.ts'
import type { ControlQuery } from './control-query.ts'
import { type ControlReply, type Endpoint, READ } from './endpoint.ts'
import { toHistoryRecord } from './history-record.ts'

/** Characters that are made and sent in one go: with ten thousand functions the whole takes longer than requests may wait. */
const PIECE_CHARS = 64 * 1024

export interface MetricsEndpointsDeps {
  metrics: Pick<Metrics, 'toText'>
  history: Pick<History, 'read'>
  clock: Clock
  /** Resolves when what other processes have counted is counted here. */
  countAll?: () => Promise<void>
  /** Functions of the catalog in force. */
  functions: () => readonly FunctionVersion[]
}

const QUERY = ['format', 'window', 'key', 'runtime'] as const

export function createMetricsEndpoints(deps: MetricsEndpointsDeps): readonly Endpoint[] {
  const descriptorLimit = readDescriptorLimit()
  return [
    {
      method: 'GET',
      path: '/_fn/metrics',
      access: READ,
      query: QUERY,
      handle: ({ query }) => {
        if (query.oneOf('format', ['text', 'json'], 'text') === 'json') return readHistory(deps, query)
        const field = QUERY.find(name => name !== 'format' && query.text(name) !== null)
        if (field !== undefined)
          throw new GatewayError('BAD_REQUEST', `query field ${field} is for format=json only: add &format=json`)
        return readText(deps, descriptorLimit)
      },
    },
  ]
}

async function readText(
  { metrics, clock, countAll }: MetricsEndpointsDeps,
  limit: number | null,
): Promise<ControlReply> {
  await countAll?.()
  const processText = toProcessText(clock, await countOpenFiles(), limit)
  const pieces = toPieces(metrics.toText(), processText)
  return {
    send: exchange => {
      sendPieces(exchange, pieces).catch(error => exchange.responder.sendError(exchange, toGatewayError(error)))
    },
  }
}

async function readHistory(
  { history, clock, functions, countAll }: MetricsEndpointsDeps,
  query: ControlQuery,
): Promise<ControlReply> {
  const window = query.oneOf('window', WINDOWS, '5m')
  const key = query.text('key')
  const runtime = query.text('runtime') === null ? null : query.oneOf('runtime', RUNTIMES, 'node')
  if (key !== null && runtime !== null)
    throw new GatewayError('BAD_REQUEST', 'query fields key and runtime cannot both be given: a key has its runtime')
  if (key !== null && !functions().some(fn => fn.key === key))
    throw new GatewayError('NOT_FOUND', `no function has the key "${showText(key)}": see key in /_fn/health`)
  await countAll?.()
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
  responder.writeStream(exchange, Buffer.from(first), true)
  for (; next.done !== true; next = pieces.next()) {
    await setImmediate()
    if (exchange.ended) return
    if (!responder.writeStream(exchange, Buffer.from(next.value), true))
      await new Promise<void>(resolve => responder.onDrain(exchange, resolve))
  }
  responder.closeStream(exchange, null)
}
