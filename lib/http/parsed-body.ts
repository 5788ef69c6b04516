/**
 * The body of a request that a host application's parser has read already: `express.json()` and its like put what they made of
 * it beside the request, and the stream is empty. Owner: page http/public.
 */

import { IncomingMessage, ServerResponse } from 'node:http'
import { isJsonType } from '../core/http-text.ts'
import { headerOf, withHeaders } from '../invocation/forwarded-headers.ts'
import type { Asked, Exchange } from './exchange.ts'

/** What parsers leave beside a request. */
interface ParsedRequest {
  /** The bytes as they came, where the host keeps them. */
  rawBody?: unknown
  body?: unknown
}

/** A request and its answer as Fastify wraps them. */
export interface WrappedRequest extends ParsedRequest {
  raw: IncomingMessage
}
export interface WrappedResponse {
  raw: ServerResponse
  /** Tells the framework that somebody else answers. */
  hijack(): unknown
}

/** node's own request and answer of either kind; a wrapper's body goes with them. */
export function unwrap(
  req: IncomingMessage | WrappedRequest,
  res: ServerResponse | WrappedResponse,
): { req: IncomingMessage; res: ServerResponse } {
  const inner = isWrapped(req) ? req.raw : req
  if (isWrapped(req)) Object.assign(inner, { body: req.body, rawBody: req.rawBody })
  if (res instanceof ServerResponse || !('raw' in res)) return { req: inner, res: res as ServerResponse }
  res.hijack()
  return { req: inner, res: res.raw }
}

function isWrapped(req: IncomingMessage | WrappedRequest): req is WrappedRequest {
  return !(req instanceof IncomingMessage) && 'raw' in req
}

/**
 * Gives an exchange the body that was read before it came here, and headers that are true of it: written anew or unpacked, it
 * has another length than what the client sent.
 * @param asked - of the exchange, not checked yet
 */
export function takeParsedBody(exchange: Exchange, asked: Asked): void {
  const { head } = asked
  const bytes = toBodyBytes(exchange.req, headerOf(head.raw, 'content-type'))
  if (bytes === undefined) return
  exchange.parsedBody = bytes
  const length = String(bytes.length)
  asked.head = withHeaders(head, {
    'content-length': length,
    'content-encoding': null,
    'transfer-encoding': null,
  })
}

/**
 * The bytes that a parsed body stands for: those that were kept, else the value written anew in the type that it came in.
 * @param contentType - of the request; null when absent
 * @returns undefined when nothing was left, or nothing that can be written as that type (a multipart form's fields)
 */
export function toBodyBytes({ rawBody, body }: ParsedRequest, contentType: string | null): Buffer | undefined {
  return toBytes(rawBody) ?? toBytes(body) ?? writeAnew(body, contentType ?? '')
}

function toBytes(value: unknown): Buffer | undefined {
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength)
  return undefined
}

function writeAnew(body: unknown, contentType: string): Buffer | undefined {
  if (body === undefined) return undefined
  // A JSON text was parsed, so a string is a value here and not the text itself.
  if (isJsonType(contentType)) return Buffer.from(JSON.stringify(body))
  if (typeof body === 'string') return Buffer.from(body)
  if (/^application\/x-www-form-urlencoded\s*(?:;|$)/i.test(contentType) && isRecord(body)) return toForm(body)
  return undefined
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** A form's fields; nested ones in brackets, as parsers read them. */
function toForm(fields: Record<string, unknown>): Buffer {
  const form = new URLSearchParams()
  const add = (name: string, value: unknown): void => {
    if (Array.isArray(value)) for (const item of value) add(name, item)
    else if (isRecord(value)) for (const [key, item] of Object.entries(value)) add(`${name}[${key}]`, item)
    else form.append(name, String(value ?? ''))
  }
  for (const [name, value] of Object.entries(fields)) add(name, value)
  return Buffer.from(form.toString())
}
