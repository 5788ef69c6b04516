/**
 * A worker's reply as an HTTP head, checked against the response contract. Spec: §2.6.
 *
 * The worker has already made an envelope of the handler's return value. The check here is the gateway's own: a worker
 * written elsewhere, or one whose handler meddled with it, may send anything. A head that was checked once is remembered
 * by its text, so an unchanged answer costs one lookup.
 */

import { STATUS_CODES } from 'node:http'
import { showValue } from '../config/fields.ts'
import { GatewayError } from '../core/errors.ts'
import { findUnsendable, isHeaderName, withoutHeaders } from '../core/http-text.ts'
import { MAX_REPLY_HEAD_CHARS, MAX_REPLY_HEADER_BYTES, MAX_STATUS, MIN_STATUS } from '../core/limits.ts'
import { isObject } from '../core/json.ts'
import { HOP_BY_HOP, takesOver } from './forwarded-headers.ts'

/** Reply heads remembered as checked, and the longest one that is, characters. */
const KNOWN_REPLY_HEADS = 256
const KNOWN_REPLY_HEAD_CHARS = 1024

/** Status and headers of an answer. Frozen by use: one object serves many answers. */
export interface ReplyHead {
  status: number
  /** Names and values in turn, as they are sent; without Content-Length. */
  headers: readonly string[]
  /** False for 204 and 304. */
  hasBody: boolean
  /** Bytes of a streamed body when the worker knows them. */
  length: number | null
  /** Status line and headers as they are sent; absent when that is not known. */
  text?: string
  /** True when the text contains a date. */
  isDated?: boolean
  /** The handler asks for an upstream request (§2.10); the other fields then say nothing. */
  proxy: Readonly<Record<string, unknown>> | null
}

/** Checks reply heads and remembers the usual ones; one per gateway. */
export class ReplyHeads {
  /** True when pages of functions have the origin of the console. */
  readonly sharesOrigin: boolean
  readonly #known = new Map<string, ReplyHead>()

  constructor(sharesOrigin = true) {
    this.sharesOrigin = sharesOrigin
  }

  /**
   * @param text - JSON text of a `reply` header
   * @throws GatewayError CONTRACT_BROKEN with `invalid runtime response: <why>`
   */
  read(text: string): ReplyHead {
    const known = this.#known.get(text)
    if (known !== undefined) return known
    if (text.length > MAX_REPLY_HEAD_CHARS)
      throw broken(`status and headers are larger than ${MAX_REPLY_HEAD_CHARS / 1024} KiB`)
    const head = toReplyHead(parseHeader(text), this.sharesOrigin)
    if (text.length <= KNOWN_REPLY_HEAD_CHARS && head.proxy === null && head.length === null) {
      if (this.#known.size >= KNOWN_REPLY_HEADS) this.#known.clear()
      prepareText(head)
      this.#known.set(text, head)
    }
    return head
  }
}

/** Gives the head of an answer with a body its text; its headers were checked. */
export function prepareText(head: ReplyHead): void {
  const { status, headers, hasBody } = head
  if (!hasBody) return
  let text = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'unknown'}\r\n`
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!
    if (name.length === 4 && name.toLowerCase() === 'date') head.isDated = true
    text += `${name}: ${headers[i + 1]}\r\n`
  }
  head.text = text
}

/**
 * @param sharesOrigin - see ReplyHeads
 * @throws GatewayError CONTRACT_BROKEN
 */
export function toReplyHead(reply: unknown, sharesOrigin = true): ReplyHead {
  if (!isObject(reply)) throw broken(`the reply must be an object, got ${describe(reply)}`)
  if (reply.proxy !== undefined && reply.proxy !== null) {
    if (!isObject(reply.proxy)) throw broken(`proxy must be an object, got ${describe(reply.proxy)}`)
    return { status: 0, headers: [], hasBody: true, length: null, proxy: reply.proxy }
  }
  const status = checkStatus(reply.status)
  return {
    status,
    headers: toHeaderList(reply.headers ?? {}, sharesOrigin),
    hasBody: status !== 204 && status !== 304,
    length: checkLength(reply.length ?? null),
    proxy: null,
  }
}

function parseHeader(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw broken('the reply header is not JSON')
  }
}

function checkStatus(status: unknown): number {
  if (typeof status !== 'number' || !Number.isInteger(status) || status < MIN_STATUS || status > MAX_STATUS)
    throw broken(`status must be an integer from ${MIN_STATUS} to ${MAX_STATUS}, got ${describe(status)}`)
  // An informational answer would leave the client waiting for the final one.
  if (status < 200) throw broken(`status ${status} is informational and cannot end a request`)
  return status
}

function checkLength(length: unknown): number | null {
  if (length === null) return null
  if (typeof length !== 'number' || !Number.isSafeInteger(length) || length < 0)
    throw broken(`length must be a number of bytes, got ${describe(length)}`)
  return length
}

/** Headers that the gateway sets itself, or that describe its connection to the client. */
const OWN_HEADERS: ReadonlySet<string> = new Set([...HOP_BY_HOP, 'content-length', 'x-request-id'])

function toHeaderList(headers: unknown, sharesOrigin: boolean): string[] {
  if (!isObject(headers)) throw broken(`headers must be an object, got ${describe(headers)}`)
  const list: string[] = []
  let bytes = 0
  for (const [name, value] of Object.entries(headers)) {
    if (!isHeaderName(name)) throw broken(`header name ${JSON.stringify(name)} is not allowed in HTTP`)
    for (const item of Array.isArray(value) ? value : [value]) {
      if (typeof item !== 'string') throw broken(`header "${name}" must be a string or strings, got ${describe(item)}`)
      const bad = findUnsendable(item)
      if (bad !== null)
        throw broken(`header "${name}" holds the character ${toCodePoint(bad)}, which HTTP does not allow there`)
      bytes += name.length + item.length + 4
      if (bytes > MAX_REPLY_HEADER_BYTES) throw broken(`headers are larger than ${MAX_REPLY_HEADER_BYTES} bytes`)
      list.push(name, item)
    }
  }
  return withoutHeaders(list, (name, value) => OWN_HEADERS.has(name) || takesOver(name, value, sharesOrigin))
}

function toCodePoint(char: string): string {
  return `U+${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}`
}

function describe(value: unknown): string {
  return value === undefined ? 'nothing' : showValue(value)
}

function broken(why: string): GatewayError {
  return new GatewayError('CONTRACT_BROKEN', `invalid runtime response: ${why}`)
}
