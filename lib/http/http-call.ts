/** A call that came over public HTTP: the request's body goes in, the answer goes to the exchange. Owner: §4.1. */

import { type Bytes, joined } from '../core/bytes.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import { Call, type CallReceiver, type Invoker } from '../invocation/invoke.ts'
import type { ReplyHead } from '../invocation/response.ts'
import { headerOf } from '../invocation/forwarded-headers.ts'
import type { DebugHeaders } from './debug-headers.ts'
import type { BodyReceiver, Exchange } from './exchange.ts'
import { PieceWriter } from './piece-writer.ts'

export class HttpCall implements CallReceiver, BodyReceiver {
  readonly call: Call
  readonly #invoker: Invoker
  readonly #exchange: Exchange
  readonly #debug: DebugHeaders | null
  /** Of a streamed answer; null before it begins. */
  #pieces: PieceWriter | null = null

  /** @param debug - null when the function wants no debug headers */
  constructor(fn: FunctionVersion, invoker: Invoker, exchange: Exchange, debug: DebugHeaders | null) {
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
    if (!stream && this.#debug === null && exchange.responder.sendDirectly(exchange, head, body, this.call.endedAt))
      return
    const headers = head.headers.slice()
    if (this.#debug !== null) this.#addDebugHeaders(headers)
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
    addEventStreamHeaders(headers)
    exchange.responder.openStream(exchange, head.status, headers, head.length)
    if (body.length > 0) this.onChunk(body)
  }

  onChunk(body: Buffer): void {
    this.#pieces ??= new PieceWriter(this.#exchange, bytes => this.call.grant(bytes))
    this.#pieces.add(body)
  }

  onEnd(error: GatewayError | null): void {
    if (error === null) this.#pieces?.flush()
    this.#exchange.responder.closeStream(this.#exchange, error)
  }

  onError(error: GatewayError): void {
    this.#exchange.queuedMs = this.call.queuedMs
    const headers: string[] = []
    if (this.#debug !== null) this.#addDebugHeaders(headers)
    this.#exchange.responder.sendError(this.#exchange, error, headers)
  }

  #addDebugHeaders(headers: string[]): void {
    const latencyMs = this.#invoker.clock.monotonic() - this.#exchange.startedAt
    for (const text of this.#debug!.of(this.call, latencyMs)) headers.push(text)
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
