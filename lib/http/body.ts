/** A request's body, up to a limit and no byte further. Owner: §4.1, page core/byte-pool. */

import { IncomingMessage, ServerResponse } from 'node:http'
import { type BytePool, type Bytes, giveBack, joined, type YoungGarbage } from '../core/byte-pool.ts'
import { GatewayError } from '../core/errors.ts'
import { headerOf, isJsonType } from '../core/http-text.ts'
import { isObject } from '../core/json.ts'
import { withHeaders } from '../invocation/forwarded-headers.ts'
import { toBodyError } from '../invocation/invoke.ts'
import type { Exchange } from './exchange.ts'

/**
 * Reads the body of an exchange whose `bodyReceiver` is set. A body that says it is too long is refused unread; one that
 * turns out to be too long is refused at the first byte over the limit, and nothing of it is kept.
 * @param limit - bytes
 * @param garbage - counts pieces of a body that is not needed when its exchange is over, and that is gathered in the pool; null leaves it in
 * the pieces as node read them
 */
export function readBody(exchange: Exchange, limit: number, garbage: YoungGarbage | null = null): void {
  const { req, res, parsedBody, declaredLength, responder } = exchange
  if (!exchange.hasBody) {
    finish(exchange, null)
    return
  }
  if (parsedBody !== null) {
    exchange.bytesIn = parsedBody.length
    if (parsedBody.length > limit) fail(exchange, toBodyError(limit))
    else finish(exchange, parsedBody)
    return
  }
  if (req.readableEnded) {
    // Waiting for its end would be waiting for ever.
    const why = 'request body was already read by the host application, and nothing of it is in req.body or req.rawBody'
    fail(exchange, new GatewayError('INTERNAL', why))
    return
  }
  if (declaredLength > limit) {
    fail(exchange, toBodyError(limit))
    return
  }
  if (exchange.expectsContinue) {
    exchange.expectsContinue = false
    res.writeContinue()
  }
  // Whatever else a host application lets read the request gets the same pieces.
  const isOurs = req.leaveBody !== undefined
  const upload = garbage === null ? null : new Upload(responder.pool, garbage, declaredLength, isOurs)
  exchange.upload = upload
  let chunks: Buffer[] = []
  let bytes = 0
  req.on('data', chunk => {
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
  req.on('end', () => {
    exchange.bytesIn = bytes
    // As it came: a reader that needs it in one piece joins it.
    if (exchange.bodyReceiver !== null) finish(exchange, upload === null ? chunks : upload.take())
  })
  // A body that is cut off: the connection's end follows and ends the exchange.
  req.on('error', () => {})
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

const KIB = 1024
const GATHER_BYTES = 16 * KIB
/** Memory for the next part of it: as much as has come, so that a length that is a lie takes little. */
const MIN_PART_BYTES = 128 * KIB
const MAX_PART_BYTES = 1024 * KIB

/**
 * A request's body on its way in: the pieces as node read them, and of a large one copies in memory that is used again. Node's own
 * pieces are given back as soon as they are copied, so that the collector never has to look for them, however long the body waits for
 * its worker. Owner: page core/byte-pool.
 */
export class Upload {
  readonly #pool: BytePool
  readonly #garbage: YoungGarbage
  readonly #declared: number
  readonly #isOurs: boolean
  #pieces: Buffer[] = []
  #bytes = 0
  #isGathered: boolean
  /** The part that is being filled, and how far it is. */
  #part: Buffer | null = null
  #filled = 0
  /** Bytes of its parts, which count in the budget. */
  #charged = 0

  /**
   * @param declared - bytes that the request says it has; -1 when it does not
   * @param isOurs - the gateway alone has the pieces
   */
  constructor(pool: BytePool, garbage: YoungGarbage, declared: number, isOurs: boolean) {
    this.#pool = pool
    this.#garbage = garbage
    this.#declared = declared
    this.#isOurs = isOurs
    this.#isGathered = declared > GATHER_BYTES
  }

  /** @returns false when request bodies hold too much memory: this one is refused, and nothing of it is kept */
  add(piece: Buffer): boolean {
    if (!this.#isGathered && this.#bytes + piece.length > GATHER_BYTES) {
      this.#isGathered = true
      const early = this.#pieces
      this.#pieces = []
      this.#bytes = 0
      for (const one of early) if (!this.#copy(one)) return false
    }
    if (this.#isGathered) return this.#copy(piece)
    this.#garbage.note(piece.length)
    this.#pieces.push(piece)
    this.#bytes += piece.length
    return true
  }

  /** All of it; until `free`. */
  take(): Bytes {
    this.#closePart()
    return this.#pieces.length === 1 ? this.#pieces[0]! : this.#pieces
  }

  /** It is not needed any more. A writer that is not done holds it in the pool. */
  free(): void {
    this.#closePart()
    for (const piece of this.#pieces) this.#pool.free(piece)
    this.#pieces = []
    this.#pool.received.used -= this.#charged
    this.#charged = 0
  }

  #copy(piece: Buffer): boolean {
    for (let at = 0; at < piece.length; ) {
      if ((this.#part === null || this.#filled === this.#part.length) && !this.#openPart()) {
        this.free()
        return false
      }
      const copied = piece.copy(this.#part!, this.#filled, at)
      this.#filled += copied
      this.#bytes += copied
      at += copied
    }
    // Node's parser gives each piece separate memory. If it does not, other bytes are beside it.
    if (this.#isOurs && piece.length === piece.buffer.byteLength) giveBack(piece)
    else this.#garbage.note(piece.length)
    return true
  }

  #openPart(): boolean {
    this.#closePart()
    const { received } = this.#pool
    if (received.isFull(this.#charged)) return false
    const left = this.#declared - this.#bytes
    const wanted = Math.max(MIN_PART_BYTES, Math.min(MAX_PART_BYTES, this.#bytes))
    this.#part = this.#pool.take(left > 0 ? Math.min(left, wanted) : wanted)
    this.#filled = 0
    received.used += this.#part.length
    this.#charged += this.#part.length
    return true
  }

  #closePart(): void {
    if (this.#part !== null) this.#pieces.push(this.#part.subarray(0, this.#filled))
    this.#part = null
  }
}

/** A request whose stream a host application's parser, such as `express.json()`, has read: the bytes where the host keeps them, and their value. */
interface ParsedRequest {
  rawBody?: unknown
  body?: unknown
}

/** A request and its answer as Fastify wraps them. */
export interface WrappedRequest extends ParsedRequest {
  raw: IncomingMessage
}
export interface WrappedResponse {
  raw: ServerResponse
  /** Says to the framework that its handler does not answer. */
  hijack(): unknown
}

/** node's own request and answer of either kind; a wrapper's body goes with them. */
export function unwrap(
  req: IncomingMessage | WrappedRequest,
  res: ServerResponse | WrappedResponse,
): { req: IncomingMessage; res: ServerResponse } {
  const isWrapped = !(req instanceof IncomingMessage) && 'raw' in req
  const inner = isWrapped ? Object.assign(req.raw, { body: req.body, rawBody: req.rawBody }) : (req as IncomingMessage)
  if (res instanceof ServerResponse || !('raw' in res)) return { req: inner, res: res as ServerResponse }
  res.hijack()
  return { req: inner, res: res.raw }
}

/**
 * Gives an exchange the body that was read before it came here, and headers that match it: written again or unpacked, it
 * has another length than the body that the client sent.
 * @param exchange - not checked yet
 */
export function takeParsedBody(exchange: Exchange): void {
  const { head } = exchange
  const bytes = toBodyBytes(exchange.req, headerOf(head.raw, 'content-type'))
  if (bytes === undefined) return
  exchange.parsedBody = bytes
  const changed = { 'content-length': String(bytes.length), 'content-encoding': null, 'transfer-encoding': null }
  exchange.head = withHeaders(head, changed)
}

/**
 * The bytes that a parsed body stands for: those that were kept, else the value written again in the type that it came in.
 * @param contentType - of the request; null when absent
 * @returns undefined when nothing was left, or nothing that can be written as that type (a multipart form's fields)
 */
export function toBodyBytes({ rawBody, body }: ParsedRequest, contentType: string | null): Buffer | undefined {
  return toBytes(rawBody) ?? toBytes(body) ?? writeAgain(body, contentType ?? '')
}

function toBytes(value: unknown): Buffer | undefined {
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength)
  return undefined
}

function writeAgain(body: unknown, contentType: string): Buffer | undefined {
  if (body === undefined) return undefined
  // A JSON text was parsed, so a string is a value here and not the text itself.
  if (isJsonType(contentType)) return Buffer.from(JSON.stringify(body))
  if (typeof body === 'string') return Buffer.from(body)
  if (/^application\/x-www-form-urlencoded\s*(?:;|$)/i.test(contentType) && isObject(body)) return toForm(body)
  return undefined
}

/** A form's fields; nested ones in brackets, as parsers read them. */
function toForm(fields: Record<string, unknown>): Buffer {
  const form = new URLSearchParams()
  const add = (name: string, value: unknown): void => {
    if (Array.isArray(value)) for (const item of value) add(name, item)
    else if (isObject(value)) for (const [key, item] of Object.entries(value)) add(`${name}[${key}]`, item)
    else form.append(name, String(value ?? ''))
  }
  for (const [name, value] of Object.entries(fields)) add(name, value)
  return Buffer.from(form.toString())
}
