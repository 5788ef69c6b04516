/**
 * The only file that writes a response. Owner: §4.1; error bodies: §7.
 *
 * Whole answers go out in one write where they are small: head and body are then one latin1 text, which carries any
 * bytes. Streams are written as they come, and the sender learns when the client has taken them.
 */

import { createHash } from 'node:crypto'
import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { BytePool } from '../core/byte-pool.ts'
import { type Clock, WallTime } from '../core/clock.ts'
import { GatewayError, toErrorBody } from '../core/errors.ts'
import { Descriptors } from '../core/host.ts'
import { headerOf, matchesTag } from '../core/http-text.ts'
import { DEFAULT_RESPONSE_IDLE_TIMEOUT_MS, MAX_STATUS } from '../core/limits.ts'
import { escapeUnsafe } from '../core/text.ts'
import type { Lifecycle } from '../core/transitions.ts'
import { prepareText, type ReplyHead } from '../invocation/response.ts'
import { DISCARD_BODY_BYTES, type Exchange, type ExchangeResponder, type HttpResponse } from './exchange.ts'

/** Milliseconds a refused upload may go on after its answer, so that the client can read it before the close. */
const LINGER_MS = 1000
/** Longest body that is joined with its head into one write, bytes. */
const JOINED_BODY_BYTES = 16 * 1024

interface ResponderOptions {
  clock: Clock
  /** Memory for bodies that the client has not taken yet. */
  pool: BytePool
  /** Of this process; no limit when absent. */
  descriptors?: Descriptors
  /** Neutral messages for failures of handlers. */
  production: boolean
  /** `draining` is true while the gateway stops: every answer then closes its connection. */
  lifecycle: Pick<Lifecycle, 'draining' | 'toShed'>
  /** Gets every exchange that ended; null without a listener. */
  onFinished: ((exchange: Exchange) => void) | null
  /** Milliseconds in which a client must read something of a response that waits for it. */
  responseIdleTimeoutMs?: number
  /** Logged for clients that did not. */
  onProblem?: (message: string) => void
}

const NEUTRAL_MESSAGES: Readonly<Record<string, string>> = {
  HANDLER_FAILED: 'function failed',
  LOAD_FAILED: 'function could not be loaded',
  CONFIG_BROKEN: 'function is not available',
}

const JSON_TYPE = 'application/json'

export class Responder implements ExchangeResponder {
  readonly pool: BytePool
  readonly descriptors: Descriptors
  readonly #options: ResponderOptions
  readonly #wall: WallTime
  #second = -1
  #dateText = ''

  constructor(options: ResponderOptions) {
    this.#options = options
    this.pool = options.pool
    this.descriptors = options.descriptors ?? new Descriptors()
    this.#wall = new WallTime(options.clock)
  }

  /**
   * Sends a whole answer.
   * @param headers - names and values in turn; owned by this call and added to
   * @param body - null for none; HEAD, 204 and 304 send none but HEAD its length. The bytes are copied or sent at once.
   * @param isConstant - the bytes never change, so that a long body is sent without a copy
   */
  send(exchange: Exchange, status: number, headers: string[], body: Buffer | string | null, isConstant = false): void {
    if (exchange.ended) return
    const { res } = exchange
    const isText = typeof body === 'string'
    const bytes = isText ? Buffer.from(body) : body
    const length = bytes?.length ?? 0
    const isBodyless = status === 204 || status === 304
    const sent = exchange.method === 'HEAD' || isBodyless || length === 0 ? null : bytes
    const isLong = sent !== null && length > JOINED_BODY_BYTES
    if (isLong && !isConstant && this.refuseIfFull(exchange)) return
    if (!isBodyless && (exchange.method !== 'HEAD' || length > 0)) headers.push('Content-Length', String(length))
    const lingers = this.#writeHead(exchange, status, headers)
    exchange.bytesOut = sent === null ? 0 : length
    this.#end(exchange)
    if (isLong) res.once('finish', this.#await(exchange, isConstant ? 0 : length))
    // A latin1 text joins the head in one write; a long one is cheaper as separate bytes.
    let last = isLong ? sent : (sent?.toString('latin1') ?? null)
    if (isLong && !isConstant && !isText) {
      this.#write(res, sent)
      last = null
    }
    if (lingers && last !== null) res.write(last, 'latin1')
    if (lingers) this.#linger(exchange)
    else if (last === null) res.end()
    else res.end(last, 'latin1')
    this.#options.onFinished?.(exchange)
  }

  /**
   * Writes bytes whose memory the caller may use again.
   * @returns false when the client is slow
   */
  #write(res: HttpResponse, bytes: Buffer): boolean {
    // Responses other than node's own may keep what they are given for as long as they like.
    if (res.writeKept === undefined) return res.write(Buffer.from(bytes))
    const kept = this.pool.keep(bytes)
    return res.writeKept(kept, () => this.pool.free(kept))
  }

  /**
   * Sends a usual answer of a function the short way.
   * @param answeredAt - monotonic ms when it was read
   * @param isConstant - the bytes never change: no copy
   * @returns false when something about it is not usual: then `send` is asked
   */
  sendDirectly(
    exchange: Exchange,
    { status, text, isDated }: ReplyHead,
    body: Buffer,
    answeredAt: number,
    isConstant = false,
  ): boolean {
    const { res } = exchange
    if (text === undefined || res.isDirect !== true || exchange.ended || exchange.method === 'HEAD') return false
    if (exchange.cors !== null || exchange.extraHeaders !== null) return false
    if (this.#endsConnections || (exchange.hasBody && !exchange.req.complete)) return false
    const isLong = body.length > JOINED_BODY_BYTES
    if (isLong && !isConstant && this.pool.unread.isFull()) return false
    exchange.status = status
    exchange.bytesOut = body.length
    exchange.answeredAt = answeredAt
    this.#end(exchange)
    const date = isDated === true ? '' : `Date: ${this.#date(answeredAt)}\r\n`
    const head = `${text}Content-Length: ${body.length}\r\nX-Request-Id: ${exchange.id}\r\n${date}`
    if (!isLong) {
      res.sendWhole!(status, head, body.length === 0 ? '' : body.toString('latin1'))
    } else if (isConstant) {
      res.sendWhole!(status, head, body, this.#await(exchange, 0))
    } else {
      const kept = this.pool.keep(body)
      const onGone = this.#await(exchange, body.length)
      res.sendWhole!(status, head, kept, () => {
        this.pool.free(kept)
        onGone()
      })
    }
    this.#options.onFinished?.(exchange)
    return true
  }

  /** Sends an answer of the gateway's own in the same way; its bytes never change. */
  sendPrepared(exchange: Exchange, head: ReplyHead, body: Buffer): boolean {
    return this.sendDirectly(exchange, head, body, this.#options.clock.monotonic(), true)
  }

  /** True while answers end their connections: at a stop all, else as many as other processes have room for. */
  get #endsConnections(): boolean {
    const { draining, toShed } = this.#options.lifecycle
    return draining || (toShed !== undefined && toShed > 0)
  }

  /** A monotonic moment as HTTP writes it. */
  #date(monotonic: number): string {
    const second = Math.floor(this.#wall.at(monotonic) / 1000)
    if (second !== this.#second) {
      this.#second = second
      this.#dateText = new Date(second * 1000).toUTCString()
    }
    return this.#dateText
  }

  sendJson(exchange: Exchange, status: number, value: unknown, headers: string[] = []): void {
    headers.push('Content-Type', JSON_TYPE)
    this.send(exchange, status, headers, JSON.stringify(value))
  }

  /**
   * Sends a refusal or failure as `{ "error": message }`; in development with where a handler failed. When an answer has
   * already begun the connection is cut, so that the client sees that it is not whole.
   * @param extra - more headers, names and values in turn
   * @param facts - more fields of the body
   */
  sendError(exchange: Exchange, error: GatewayError, extra: readonly string[] = [], facts: object = {}): void {
    if (exchange.ended) return
    exchange.error = error
    if (exchange.res.headersSent) {
      this.closeStream(exchange, error)
      return
    }
    const { code, message, detail, status, headers: own = {} } = error
    const headers = ['Content-Type', JSON_TYPE, ...extra, ...Object.entries(own).flat()]
    if ((status === 429 || status === 503) && own['Retry-After'] === undefined) headers.push('Retry-After', '1')
    const body = this.#options.production ? { error: NEUTRAL_MESSAGES[code] ?? message } : { error: message, detail }
    const isStatus = status >= 400 && status <= MAX_STATUS
    this.send(exchange, isStatus ? status : 500, headers, JSON.stringify({ ...body, ...facts }))
  }

  /**
   * Answers with 503 when unread responses hold all the memory that they may: this one would wait for its client too.
   * The control plane is never refused.
   * @returns true when it did
   */
  refuseIfFull(exchange: Exchange): boolean {
    if (exchange.isControl || !this.pool.unread.isFull()) return false
    const why = 'unread responses hold all the memory that they may (FN_BODY_MEMORY_MB); try again later'
    this.sendError(exchange, new GatewayError('OVERLOADED', why))
    return true
  }

  /**
   * Begins an answer whose body follows in pieces.
   * @param length - bytes of the body when known; pieces beyond it are an error
   */
  openStream(exchange: Exchange, status: number, headers: string[], length: number | null): void {
    if (exchange.ended) return
    if (length !== null) headers.push('Content-Length', String(length))
    exchange.bytesLeft = length ?? -1
    this.#writeHead(exchange, status, headers)
    exchange.res.flushHeaders()
  }

  /**
   * Writes a piece; the caller may use its memory again.
   * @param isConstant - the bytes do not change before `onTaken`, or never: no copy
   * @param onTaken - the system has the bytes; not called for a response of another kind than the server's own
   * @returns false when the client is slow: wait for onDrain before more is written
   */
  writeStream(exchange: Exchange, chunk: Buffer, isConstant = false, onTaken: (() => void) | null = null): boolean {
    if (chunk.length === 0 || !this.#count(exchange, chunk.length)) return true
    const { res, connection } = exchange
    // A wrapper of a host application around its response may keep the bytes and never call back.
    if (onTaken === null || res.writeKept === undefined) return isConstant ? res.write(chunk) : this.#write(res, chunk)
    connection.hold(chunk.length, this.pool.unread)
    return res.writeKept(chunk, () => {
      connection.release(chunk.length)
      onTaken()
    })
  }

  /**
   * Writes pieces of `bytes` bytes together. They stay as they are until `onTaken`: the system has them, or the connection is gone,
   * which may never be called.
   * @returns false when the client is slow: `watchClient` until they are taken
   */
  writePieces(exchange: Exchange, pieces: readonly Buffer[], bytes: number, onTaken: () => void): boolean {
    const { res } = exchange
    if (res.writePieces !== undefined) return !this.#count(exchange, bytes) || res.writePieces(pieces, bytes, onTaken)
    if (pieces.map(piece => this.writeStream(exchange, piece)).every(Boolean)) onTaken()
    else this.onDrain(exchange, onTaken)
    return true
  }

  /** Cuts the connection when the client takes nothing for long. */
  watchClient({ connection, id, method, path }: Exchange, isSlow: boolean): void {
    const { responseIdleTimeoutMs: idleMs = DEFAULT_RESPONSE_IDLE_TIMEOUT_MS, onProblem } = this.#options
    if (isSlow) connection.watch(idleMs, () => onProblem?.(toStallText(id, method, path, idleMs)))
    else connection.unwatch()
  }

  /** Counts bytes of a stream. @returns false when they are more than was promised, or when it is over */
  #count(exchange: Exchange, bytes: number): boolean {
    if (exchange.ended) return false
    if (exchange.bytesLeft >= 0 && bytes > exchange.bytesLeft) {
      // More than was promised would be read as the start of the next answer.
      exchange.res.destroy()
      return false
    }
    if (exchange.bytesLeft >= 0) exchange.bytesLeft -= bytes
    exchange.bytesOut += bytes
    return true
  }

  /**
   * The last bytes of a response wait for the client.
   * @param bytes - that are held for it
   * @returns what to call when the system has them
   */
  #await(exchange: Exchange, bytes: number): () => void {
    const { connection, res } = exchange
    connection.hold(bytes, this.pool.unread)
    this.watchClient(exchange, true)
    return () => {
      connection.release(bytes)
      // A host application's server limits the time until the next request itself; ours sets none.
      if (res.sendWhole !== undefined) this.watchClient(exchange, false)
    }
  }

  /** Calls back when the client has taken what was written; cuts the connection when it takes nothing for long. */
  onDrain(exchange: Exchange, callback: () => void): void {
    this.watchClient(exchange, true)
    exchange.res.once('drain', () => {
      this.watchClient(exchange, false)
      callback()
    })
  }

  /** Ends a stream; with an error, or short of its length, by cutting the connection. */
  closeStream(exchange: Exchange, error: GatewayError | null): void {
    if (exchange.ended) return
    if (error !== null) exchange.error = error
    this.#end(exchange)
    if (error !== null || exchange.bytesLeft > 0) exchange.res.destroy()
    else exchange.res.end()
    this.#options.onFinished?.(exchange)
  }

  onDisconnect(exchange: Exchange): void {
    this.#end(exchange)
    this.#options.onFinished?.(exchange)
  }

  /**
   * Writes the head with what every answer carries.
   * @returns true when the connection must stay open for a moment after the answer, see #linger
   */
  #writeHead(exchange: Exchange, status: number, headers: string[]): boolean {
    const { res, connection } = exchange
    headers.push('X-Request-Id', exchange.id)
    if (exchange.cors !== null) replaceCors(headers, exchange.cors)
    if (exchange.extraHeaders !== null) headers.push(...exchange.extraHeaders)
    exchange.status = status
    // A pipelined request behind this one was accepted too: the last one's answer says close.
    if (this.#endsConnections && connection.latest === exchange && !connection.hasWaiting) {
      res.shouldKeepAlive = false
      const { lifecycle } = this.#options
      if (lifecycle.toShed! > 0) lifecycle.toShed! -= 1
    }
    const lingers = exchange.hasBody && !exchange.req.complete && this.#leaveBody(exchange)
    if (!res.shouldKeepAlive) connection.closing = true
    res.writeHead(status, headers)
    return lingers
  }

  /** An answer overtakes its request's body: a short rest is dropped, a long one ends the connection. */
  #leaveBody(exchange: Exchange): boolean {
    const { declaredLength } = exchange
    exchange.bodyReceiver = null
    exchange.req.resume()
    const isShort = declaredLength >= 0 && declaredLength <= DISCARD_BODY_BYTES
    // A client that waits for 100 may send its body or not: the next bytes cannot be classified.
    if (isShort && !exchange.expectsContinue && !exchange.connection.closing) return false
    exchange.res.shouldKeepAlive = false
    return true
  }

  /**
   * Ends an answer that overtook its request's body. Closing at once would reset the connection, and the client, still
   * sending, would never read the answer: so only our half is closed, and the rest is read and dropped for a moment.
   */
  #linger({ res, req }: Exchange): void {
    const { clock } = this.#options
    res.flushHeaders()
    // Not while an earlier answer waits to be written.
    res.socket?.end()
    const timer = clock.setTimeout(() => res.end(), LINGER_MS)
    req.on('end', () => {
      clock.clearTimeout(timer)
      res.end()
    })
    res.once('close', () => clock.clearTimeout(timer))
  }

  /** Before the last write: writing it may end the connection, which must not count as the client leaving. */
  #end(exchange: Exchange): void {
    exchange.ended = true
    exchange.work = null
    exchange.bodyReceiver = null
    exchange.upload?.free()
    exchange.upload = null
    exchange.connection.remove(exchange)
  }
}

function toStallText(id: string, method: string, path: string, ms: number): string {
  const request = escapeUnsafe(`${method} ${path}`)
  return `${request}: the client read nothing of the response for ${ms} ms and was disconnected (FN_RESPONSE_IDLE_TIMEOUT_MS; request ${id})`
}

/** One origin header too many and the browser refuses the answer: where the gateway's are set, a handler's own go. */
function replaceCors(headers: string[], cors: readonly string[]): void {
  for (let i = headers.length - 2; i >= 0; i -= 2) {
    if (headers[i]!.length > 15 && /^access-control-/i.test(headers[i]!)) headers.splice(i, 2)
  }
  headers.push(...cors)
}

/**
 * Refuses a request before anything of it was looked at, and lets its connection end.
 * @param more - more headers, names and values in turn
 */
export function refuseRequest(
  res: Pick<HttpResponse, 'writeHead' | 'end'>,
  error: GatewayError,
  more: readonly string[] = [],
): void {
  const body = toErrorBody(error.message)
  const own = [...Object.entries(error.headers ?? {}).flat(), ...more]
  const length = ['Content-Length', String(Buffer.byteLength(body))]
  res.writeHead(error.status, ['Content-Type', JSON_TYPE, ...length, ...own, 'Connection', 'close'])
  res.end(body)
}

/**
 * Answers on a connection whose bytes are no request, and closes it after a moment in which the client can read that.
 * @param clock - for the moment
 */
export function rejectConnection(socket: Socket, clock: Clock, error: GatewayError, requestId: string): void {
  const body = toErrorBody(error.message)
  socket.end(
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status] ?? ''}\r\nContent-Type: ${JSON_TYPE}\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\nX-Request-Id: ${requestId}\r\nConnection: close\r\n\r\n${body}`,
  )
  const timer = clock.setTimeout(() => socket.destroy(), LINGER_MS)
  socket.once('close', () => clock.clearTimeout(timer))
}

/** A document that many clients may ask for, made once: bytes with a tag, so that most answers carry neither. */
export interface ConstantAnswer {
  readonly status: number
  readonly body: Buffer
  readonly etag: string
  readonly contentType: string
  /** More headers, names and values in turn. */
  readonly headers: readonly string[]
  /** `Cache-Control`; with `no-cache` caches ask each time, because it may have changed. */
  readonly cache: string
}

/** The head of a whole answer, ready to be sent. */
export type PreparedHead = Readonly<ReplyHead>

/** @param headers - names and values in turn, all of them sendable, without a length */
export function toPreparedHead(status: number, headers: readonly string[]): PreparedHead {
  const head: ReplyHead = { status, headers, hasBody: true, length: null, proxy: null }
  prepareText(head)
  return head
}

export function toContentTag(body: Buffer): string {
  return `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`
}

export function toConstantAnswer(status: number, value: unknown): ConstantAnswer {
  return toConstantBytes(status, Buffer.from(JSON.stringify(value)), JSON_TYPE)
}

export function toConstantBytes(
  status: number,
  body: Buffer,
  contentType: string,
  headers: readonly string[] = [],
  cache = 'no-cache',
): ConstantAnswer {
  return { status, body, etag: toContentTag(body), contentType, headers, cache }
}

/** Sends the document, or 304 to a client that has it. */
export function sendConstant(exchange: Exchange, answer: ConstantAnswer): void {
  const { status, body, etag, contentType, headers: own, cache } = answer
  const headers = ['ETag', etag, 'Cache-Control', cache, ...own]
  const known = headerOf(exchange.req.rawHeaders, 'if-none-match')
  if (status === 200 && known !== null && matchesTag(known, etag, true)) {
    exchange.responder.send(exchange, 304, headers, null)
  } else {
    exchange.responder.send(exchange, status, ['Content-Type', contentType, ...headers], body, true)
  }
}

const pack = promisify(gzip)

/** A file of the package in both forms, made once: most clients take the packed one. */
export interface PackedFile {
  readonly plain: ConstantAnswer
  readonly packed: ConstantAnswer
}

export async function toPackedFile(bytes: Buffer, type: string, cache?: string): Promise<PackedFile> {
  const shared = ['X-Content-Type-Options', 'nosniff', 'Vary', 'Accept-Encoding']
  return {
    plain: toConstantBytes(200, bytes, type, shared, cache),
    packed: toConstantBytes(200, await pack(bytes), type, ['Content-Encoding', 'gzip', ...shared], cache),
  }
}

export function sendPackedFile(exchange: Exchange, { plain, packed }: PackedFile): void {
  const accepted = headerOf(exchange.req.rawHeaders, 'accept-encoding') ?? ''
  sendConstant(exchange, /\bgzip\b(?!;q=0(?:\D|$))/.test(accepted) ? packed : plain)
}
