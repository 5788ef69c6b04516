/** A call that came over public HTTP: the request's body goes in, the answer goes to the exchange. Owner: §4.1. */

import { type Bytes, joined } from '../core/byte-pool.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import { Call, type CallReceiver, type Invoker } from '../invocation/invoke.ts'
import type { ReplyHead } from '../invocation/response.ts'
import { MAX_AHEAD_BYTES } from '../core/limits.ts'
import { headerOf } from '../invocation/forwarded-headers.ts'
import type { DebugHeaders } from './debug-headers.ts'
import type { BodyReceiver, Exchange } from './exchange.ts'
import { PieceWriter } from './piece-writer.ts'

export class HttpCall implements CallReceiver, BodyReceiver {
  readonly call: Call
  readonly #invoker: Invoker
  readonly #exchange: Exchange
  readonly #debug: DebugHeaders
  /** Of a streamed answer; null before it begins. */
  #pieces: PieceWriter | null = null
  /** True for a body that its handler has returned whole, and of it the bytes that the worker has sent ahead of the client. */
  #isWhole = false
  #ahead = 0

  constructor(fn: FunctionVersion, invoker: Invoker, exchange: Exchange, debug: DebugHeaders) {
    this.call = new Call(fn, invoker, this)
    this.call.id = exchange.id
    this.call.method = exchange.method
    this.call.trace = exchange.trace
    this.call.traceState = exchange.traceState
    this.call.span = exchange.span
    this.#invoker = invoker
    this.#exchange = exchange
    this.#debug = debug
  }

  onBody(body: Bytes | null): void {
    this.call.body = body
    const wrong = this.call.checkedAs === null ? null : this.#checkBody(body && joined(body))
    if (wrong !== null) {
      this.call.fail(wrong)
      return
    }
    this.#invoker.start(this.call)
  }

  #checkBody(body: Buffer | null): GatewayError | null {
    const { method, req } = this.#exchange
    this.call.body = body
    const type = headerOf(req.rawHeaders, 'content-type')
    return this.#invoker.schemas!.checkBody(this.call.fn, method, type, body)
  }

  onBodyError(error: GatewayError): void {
    this.call.fail(error)
  }

  onHead(head: ReplyHead, body: Buffer, stream: boolean): void {
    const exchange = this.#exchange
    exchange.queuedMs = this.call.queuedMs
    if (!stream && !this.#hasDebugHeaders && exchange.responder.sendDirectly(exchange, head, body, this.call.endedAt))
      return
    const headers = head.headers.slice()
    if (this.#hasDebugHeaders) this.#addDebugHeaders(headers)
    if (!stream) {
      exchange.responder.send(exchange, head.status, headers, body)
      return
    }
    if (exchange.method === 'HEAD' || !head.hasBody) {
      // Nobody will read the stream: it is stopped instead of thrown away piece by piece.
      this.call.abandon()
      exchange.responder.send(exchange, head.status, headers, null)
      return
    }
    if (exchange.responder.refuseIfFull(exchange)) {
      this.call.abandon()
      return
    }
    addEventStreamHeaders(headers)
    this.#isWhole = head.length !== null && this.call.grantEdge === null
    exchange.responder.openStream(exchange, head.status, headers, head.length)
    if (body.length > 0) this.onChunk(body)
  }

  onChunk(body: Buffer): void {
    this.#pieces ??= new PieceWriter(this.#exchange, bytes => this.#handleTaken(bytes))
    this.#pieces.add(body)
    if (!this.#mayBeAhead) return
    this.#ahead += body.length
    this.call.grant(body.length)
  }

  /** A handler that has returned is over: its worker need not wait for a slow client, as far as there is memory for the body. */
  get #mayBeAhead(): boolean {
    if (!this.#isWhole || this.#ahead >= MAX_AHEAD_BYTES || this.#exchange.res.socket === null) return false
    const { used, limit } = this.#exchange.responder.pool.unread
    return used < limit / 2
  }

  #handleTaken(bytes: number): void {
    const known = Math.min(this.#ahead, bytes)
    this.#ahead -= known
    this.call.grant(bytes - known)
  }

  onEnd(error: GatewayError | null): void {
    if (error === null) this.#pieces?.flush()
    this.#exchange.responder.closeStream(this.#exchange, error)
  }

  onError(error: GatewayError): void {
    this.#exchange.queuedMs = this.call.queuedMs
    const headers: string[] = []
    if (this.#hasDebugHeaders) this.#addDebugHeaders(headers)
    this.#exchange.responder.sendError(this.#exchange, error, headers)
  }

  get #hasDebugHeaders(): boolean {
    return this.call.fn.policy.includeDebugHeaders || this.call.loadError !== null
  }

  #addDebugHeaders(headers: string[]): void {
    const { fn, loadError } = this.call
    const { clock, secrets } = this.#invoker
    const latencyMs = clock.monotonic() - this.#exchange.startedAt
    if (fn.policy.includeDebugHeaders) headers.push(...this.#debug.of(this.call, latencyMs))
    if (loadError !== null) headers.push(...this.#debug.ofLoadError(fn, secrets.hideIn(fn, loadError)))
  }
}

/** Server-sent events must reach the client as they happen, through caches and buffering proxies too. */
function addEventStreamHeaders(headers: string[]): void {
  let isEventStream = false
  let hasCacheControl = false
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i]!.toLowerCase()
    if (name === 'content-type') isEventStream = headers[i + 1]!.startsWith('text/event-stream')
    if (name === 'cache-control') hasCacheControl = true
  }
  if (!isEventStream) return
  if (!hasCacheControl) headers.push('Cache-Control', 'no-cache')
  headers.push('X-Accel-Buffering', 'no')
}
