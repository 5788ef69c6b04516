/** A document that many may ask for, made once: bytes with a tag, so that most answers carry neither. Owner: §4.1. */

import { createHash } from 'node:crypto'
import { matchesTag } from '../core/http-text.ts'
import { headerOf } from '../invocation/forwarded-headers.ts'
import type { Exchange } from './exchange.ts'

export interface ConstantAnswer {
  readonly status: number
  readonly body: Buffer
  readonly etag: string
}

export function toConstantAnswer(status: number, value: unknown): ConstantAnswer {
  const body = Buffer.from(JSON.stringify(value))
  return { status, body, etag: `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"` }
}

/** Sends the document, or 304 to a client that has it. Caches ask each time: it may have changed. */
export function sendConstant(exchange: Exchange, { status, body, etag }: ConstantAnswer): void {
  const headers = ['ETag', etag, 'Cache-Control', 'no-cache']
  const known = headerOf(exchange.req.rawHeaders, 'if-none-match')
  if (status === 200 && known !== null && matchesTag(known, etag, true)) {
    exchange.responder.send(exchange, 304, headers, null)
  } else {
    exchange.responder.send(exchange, status, ['Content-Type', 'application/json', ...headers], body, true)
  }
}
