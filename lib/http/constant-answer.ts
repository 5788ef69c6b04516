/** A document that many may ask for, made once: bytes with a tag, so that most answers carry neither. Owner: §4.1. */

import { createHash } from 'node:crypto'
import { matchesTag } from '../core/http-text.ts'
import { headerOf } from '../invocation/forwarded-headers.ts'
import { prepareText, type ReplyHead } from '../invocation/response.ts'
import type { Exchange } from './exchange.ts'

export interface ConstantAnswer {
  readonly status: number
  readonly body: Buffer
  readonly etag: string
  /** JSON where it is absent. */
  readonly contentType?: string
  /** Headers of its own, names and values in turn. */
  readonly headers?: readonly string[]
  /** `Cache-Control`; without it caches ask each time, because it may have changed. */
  readonly cache?: string
}

/** The head of a whole answer, ready to be sent. */
export type PreparedHead = Readonly<ReplyHead>

/** @param headers - names and values in turn, all of them sendable, without a length */
export function toPreparedHead(status: number, headers: readonly string[]): PreparedHead {
  const head: ReplyHead = { status, headers, hasBody: true, length: null, proxy: null }
  prepareText(head)
  return head
}

export function toConstantAnswer(status: number, value: unknown): ConstantAnswer {
  return toConstantBytes(status, Buffer.from(JSON.stringify(value)), 'application/json')
}

export function toConstantBytes(
  status: number,
  body: Buffer,
  contentType: string,
  headers: readonly string[] = [],
): ConstantAnswer {
  const etag = `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`
  return { status, body, etag, contentType, headers }
}

/** Sends the document, or 304 to a client that has it. */
export function sendConstant(exchange: Exchange, answer: ConstantAnswer): void {
  const { status, body, etag, contentType = 'application/json', headers: own = [], cache = 'no-cache' } = answer
  const headers = ['ETag', etag, 'Cache-Control', cache, ...own]
  const known = headerOf(exchange.req.rawHeaders, 'if-none-match')
  if (status === 200 && known !== null && matchesTag(known, etag, true)) {
    exchange.responder.send(exchange, 304, headers, null)
  } else {
    exchange.responder.send(exchange, status, ['Content-Type', contentType, ...headers], body, true)
  }
}
