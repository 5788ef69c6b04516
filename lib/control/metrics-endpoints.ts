/** `GET /_fn/metrics`, for Prometheus and what understands it. Owner: page observe/metrics. */

import { setImmediate } from 'node:timers/promises'
import type { Clock } from '../core/clock.ts'
import { toGatewayError } from '../core/errors.ts'
import { readDescriptorLimit } from '../http/descriptor-limit.ts'
import type { Exchange } from '../http/exchange.ts'
import type { Metrics } from '../observe/metrics.ts'
import { countOpenFiles, toProcessText } from '../observe/process-metrics.ts'
import { type Endpoint, READ } from './endpoint.ts'

/** Characters that are made and sent in one go: with ten thousand functions the whole takes longer than requests may wait. */
const PIECE_CHARS = 64 * 1024

export interface MetricsEndpointsDeps {
  metrics: Pick<Metrics, 'toText'>
  clock: Clock
}

export function createMetricsEndpoints({ metrics, clock }: MetricsEndpointsDeps): readonly Endpoint[] {
  const descriptorLimit = readDescriptorLimit()
  return [
    {
      method: 'GET',
      path: '/_fn/metrics',
      access: READ,
      handle: async () => {
        const processText = toProcessText(clock, await countOpenFiles(), descriptorLimit)
        const pieces = toPieces(metrics.toText(), processText)
        return {
          send: exchange => {
            sendPieces(exchange, pieces).catch(error => exchange.responder.sendError(exchange, toGatewayError(error)))
          },
        }
      },
    },
  ]
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
