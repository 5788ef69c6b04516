/** A request's body, up to a limit and no byte further. Owner: §4.1. */

import { type Bytes, joined } from '../core/byte-pool.ts'
import { GatewayError } from '../core/errors.ts'
import { toBodyError } from '../invocation/policy.ts'
import type { Exchange } from './exchange.ts'
import type { UploadMemory } from './upload.ts'

/**
 * Reads the body of an exchange whose `bodyReceiver` is set. A body that says it is too long is refused unread; one that
 * turns out to be too long is refused at the first byte over the limit, and nothing of it is kept.
 * @param limit - bytes
 * @param memory - for a body that nobody needs when its exchange is over; null leaves it in the pieces as node read them
 */
export function readBody(exchange: Exchange, limit: number, memory: UploadMemory | null = null): void {
  if (!exchange.hasBody) {
    finish(exchange, null)
    return
  }
  if (exchange.parsedBody !== null) {
    exchange.bytesIn = exchange.parsedBody.length
    if (exchange.bytesIn > limit) fail(exchange, toBodyError(limit))
    else finish(exchange, exchange.parsedBody)
    return
  }
  if (exchange.req.readableEnded) {
    // Waiting for its end would be waiting for ever.
    const why = 'request body was already read by the host application, and nothing of it is in req.body or req.rawBody'
    fail(exchange, new GatewayError('INTERNAL', why))
    return
  }
  if (exchange.declaredLength > limit) {
    fail(exchange, toBodyError(limit))
    return
  }
  if (exchange.expectsContinue) {
    exchange.expectsContinue = false
    exchange.res.writeContinue()
  }
  // Whatever else a host application lets read the request gets the same pieces.
  const isOurs = exchange.req.leaveBody !== undefined
  const upload = memory === null ? null : memory.begin(exchange.declaredLength, isOurs)
  exchange.upload = upload
  let chunks: Buffer[] = []
  let bytes = 0
  exchange.req.on('data', chunk => {
    bytes += chunk.length
    if (exchange.bodyReceiver === null) return
    if (bytes > limit) {
      chunks = []
      upload?.free()
      fail(exchange, toBodyError(limit))
    } else if (upload === null) {
      chunks.push(chunk)
    } else if (!upload.add(chunk)) {
      const why = 'request bodies hold all the memory that they may (FN_BODY_MEMORY_MB); try again later'
      fail(exchange, new GatewayError('OVERLOADED', why))
    }
  })
  exchange.req.on('end', () => {
    exchange.bytesIn = bytes
    // As it came: whoever needs it in one piece joins it.
    if (exchange.bodyReceiver === null) return
    finish(exchange, upload !== null ? upload.take() : chunks.length === 1 ? chunks[0]! : chunks)
  })
  // A body that is cut off: the connection's end follows and ends the exchange.
  exchange.req.on('error', () => {})
}

/**
 * Reads a body for code that waits: the control plane.
 * @returns null when there is none; never settles when the client leaves
 */
export function collectBody(exchange: Exchange, limit: number): Promise<Buffer | null> {
  return new Promise((resolve, reject) => {
    exchange.bodyReceiver = { onBody: body => resolve(body && joined(body)), onBodyError: reject }
    readBody(exchange, limit)
  })
}

function finish(exchange: Exchange, body: Bytes | null): void {
  const receiver = exchange.bodyReceiver
  exchange.bodyReceiver = null
  receiver?.onBody(body !== null && body.length > 0 ? body : null)
}

function fail(exchange: Exchange, error: GatewayError): void {
  const receiver = exchange.bodyReceiver
  exchange.bodyReceiver = null
  receiver?.onBodyError(error)
}
