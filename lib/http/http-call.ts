/**
 * A call that came over public HTTP: the request's body goes in, the answer goes to the exchange, whole or in pieces, with debug headers
 * where the function asks for them. Owner: §4.1.
 */

import { type Bytes, joined } from '../core/byte-pool.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import { headerOf } from '../core/http-text.ts'
import { MAX_AHEAD_BYTES } from '../core/limits.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import { toAdmissionLimits } from '../invocation/policy.ts'
import { Call, type Invoker } from '../invocation/invoke.ts'
import type { ReplyHead } from '../invocation/response.ts'
import { toFailureText } from '../observe/log-line.ts'
import type { BodyReceiver, Exchange } from './exchange.ts'

export class HttpCall extends Call implements BodyReceiver {
  readonly #exchange: Exchange
  readonly #debug: DebugHeaders
  /** Of a streamed answer; null before it begins. */
  #pieces: PieceWriter | null = null
  /** True for a body that its handler has returned whole, and of it the bytes that the worker has sent ahead of the client. */
  #isWhole = false
  #ahead = 0

  constructor(fn: FunctionVersion, invoker: Invoker, exchange: Exchange, debug: DebugHeaders) {
    super(fn, invoker)
    this.id = exchange.id
    this.method = exchange.method
    this.trace = exchange.trace
    this.traceState = exchange.traceState
    this.span = exchange.span
    this.#exchange = exchange
    this.#debug = debug
  }

  onBody(body: Bytes | null): void {
    this.body = body
    const wrong = this.checkedAs === null ? null : this.#checkBody(body && joined(body))
    if (wrong === null) this.invoker.start(this)
    else this.fail(wrong)
  }

  #checkBody(body: Buffer | null): GatewayError | null {
    const { method, req } = this.#exchange
    this.body = body
    return this.invoker.schemas!.checkBody(this.fn, method, headerOf(req.rawHeaders, 'content-type'), body)
  }

  onBodyError(error: GatewayError): void {
    this.fail(error)
  }

  override onHead(head: ReplyHead, body: Buffer, stream: boolean): void {
    const exchange = this.#exchange
    const { responder } = exchange
    exchange.queuedMs = this.queuedMs
    if (!stream && !this.#hasDebugHeaders && responder.sendDirectly(exchange, head, body, this.endedAt)) return
    const headers = head.headers.slice()
    if (this.#hasDebugHeaders) this.#addDebugHeaders(headers)
    if (!stream) {
      responder.send(exchange, head.status, headers, body)
      return
    }
    if (exchange.method === 'HEAD' || !head.hasBody) {
      // The client reads no stream: it is stopped instead of thrown away piece by piece.
      this.abandon()
      responder.send(exchange, head.status, headers, null)
      return
    }
    if (responder.refuseIfFull(exchange)) {
      this.abandon()
      return
    }
    addEventStreamHeaders(headers)
    this.#isWhole = head.length !== null && this.grantEdge === null
    responder.openStream(exchange, head.status, headers, head.length)
    if (body.length > 0) this.onPiece(body)
  }

  override onPiece(body: Buffer): void {
    this.#pieces ??= new PieceWriter(this.#exchange, bytes => this.#handleTaken(bytes))
    this.#pieces.add(body)
    if (!this.#mayBeAhead) return
    this.#ahead += body.length
    this.grant(body.length)
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
    this.grant(bytes - known)
  }

  override onDone(error: GatewayError | null): void {
    if (error === null) this.#pieces?.flush()
    this.#exchange.responder.closeStream(this.#exchange, error)
  }

  override onFailed(error: GatewayError): void {
    this.#exchange.queuedMs = this.queuedMs
    const headers: string[] = []
    if (this.#hasDebugHeaders) this.#addDebugHeaders(headers)
    this.#exchange.responder.sendError(this.#exchange, error, headers)
  }

  get #hasDebugHeaders(): boolean {
    return this.fn.policy.includeDebugHeaders || this.loadError !== null
  }

  #addDebugHeaders(headers: string[]): void {
    const { fn, loadError, invoker } = this
    const latencyMs = invoker.clock.monotonic() - this.#exchange.startedAt
    if (fn.policy.includeDebugHeaders) headers.push(...this.#debug.of(this, latencyMs))
    if (loadError !== null) headers.push(...this.#debug.ofLoadError(fn, invoker.secrets.hideIn(fn, loadError)))
  }
}

/** Server-sent events must reach the client as they happen, through caches and buffering proxies too. */
function addEventStreamHeaders(headers: string[]): void {
  if (headerOf(headers, 'content-type')?.startsWith('text/event-stream') !== true) return
  if (headerOf(headers, 'cache-control') === null) headers.push('Cache-Control', 'no-cache')
  if (headerOf(headers, 'x-accel-buffering') === null) headers.push('X-Accel-Buffering', 'no')
}

/**
 * A function's streamed answer on its way to the client. One read of a worker leaves in one write, and one write is under way at a time:
 * pieces that come meanwhile are gathered behind it.
 *
 *   piece ─► copied behind what is gathered ─ end of the tick, nothing under way ─► written ─ taken ─► granted to the worker
 *                        ▲                                                            │
 *                        └──────────────── what came meanwhile is written next ◄──────┘
 */
export class PieceWriter {
  readonly #exchange: Exchange
  readonly #onTaken: (bytes: number) => void
  /** Memory of the pool: what is gathered, in order, and what of it is filled. */
  #slabs: Buffer[] = []
  #pieces: Buffer[] = []
  #bytes = 0
  /** Writes that the system has not taken: two at the end. */
  #underWay = 0
  #isWatched = false
  #isPlanned = false
  readonly #flushLater = (): void => {
    this.#isPlanned = false
    if (this.#underWay === 0) this.flush()
  }

  /** @param onTaken - gets the number of bytes that the system has taken */
  constructor(exchange: Exchange, onTaken: (bytes: number) => void) {
    this.#exchange = exchange
    this.#onTaken = onTaken
  }

  /** @param piece - copied: the caller may use its memory again */
  add(piece: Buffer): void {
    if (piece.length === 0) return
    const { connection, responder } = this.#exchange
    this.#copy(piece)
    this.#bytes += piece.length
    connection.hold(piece.length, responder.pool.unread)
    if (this.#underWay > 0 || this.#isPlanned) return
    this.#isPlanned = true
    process.nextTick(this.#flushLater)
  }

  /** Writes what is gathered, behind what is under way. */
  flush(): void {
    const [slabs, pieces, bytes] = [this.#slabs, this.#pieces, this.#bytes]
    if (bytes === 0) return
    this.#slabs = []
    this.#pieces = []
    this.#bytes = 0
    if (this.#exchange.ended) {
      this.#free(slabs, bytes)
      return
    }
    this.#underWay += 1
    const { responder } = this.#exchange
    const isTaken = responder.writePieces(this.#exchange, pieces, bytes, () => this.#handleTaken(slabs, bytes))
    if (isTaken || this.#isWatched) return
    this.#isWatched = true
    responder.watchClient(this.#exchange, true)
  }

  #handleTaken(slabs: readonly Buffer[], bytes: number): void {
    this.#underWay -= 1
    if (this.#isWatched && this.#underWay === 0) {
      this.#isWatched = false
      this.#exchange.responder.watchClient(this.#exchange, false)
    }
    this.#free(slabs, bytes)
    this.#onTaken(bytes)
    if (this.#underWay === 0 && !this.#isPlanned) this.flush()
  }

  /** Small pieces share memory: a slow client would have many of them waiting. */
  #copy(piece: Buffer): void {
    const last = this.#pieces.length - 1
    const slab = this.#slabs[last]
    const filled = slab === undefined ? 0 : this.#pieces[last]!.length
    if (slab !== undefined && piece.length <= slab.length - filled) {
      piece.copy(slab, filled)
      this.#pieces[last] = slab.subarray(0, filled + piece.length)
      return
    }
    const taken = this.#exchange.responder.pool.take(Math.max(piece.length, SMALLEST_BYTES))
    piece.copy(taken)
    this.#slabs.push(taken)
    this.#pieces.push(taken.subarray(0, piece.length))
  }

  #free(slabs: readonly Buffer[], bytes: number): void {
    for (const slab of slabs) this.#exchange.responder.pool.free(slab)
    this.#exchange.connection.release(bytes)
  }
}

/** Bytes of the pool's smallest memory: less costs as much. */
const SMALLEST_BYTES = 16 * 1024

/** Longest `X-Fn-Stdout`, `X-Fn-Stderr` or `X-Fn-Load-Error`, bytes. */
const OUTPUT_PREVIEW_BYTES = 1024

/** How a call reached its worker: `socketIndex` from 1, null when it reached none; `cold` when it had to wait for the worker's start. */
interface RoutingInfo {
  routing: 'single' | 'round_robin'
  socketIndex: number | null
  cold: boolean
}

/**
 * Makes the debug headers of a function that asks for them, and in development the one of a function whose newest version cannot be loaded.
 * Rule 3 of §4.1.
 */
export class DebugHeaders {
  readonly #describe: (call: Call) => RoutingInfo
  readonly #production: boolean

  /** @param production - true shows no load errors to clients */
  constructor(describe: (call: Call) => RoutingInfo, production = true) {
    this.#describe = describe
    this.#production = production
  }

  /** @returns names and values in turn */
  of(call: Call, latencyMs: number): string[] {
    const { fn, id, loadError, stdout, stderr } = call
    const { routing, socketIndex, cold } = this.#describe(call)
    const { maxWorkers, maxQueue } = toAdmissionLimits(fn.policy)
    const state = loadError !== null ? 'stale' : cold ? 'cold' : 'warm'
    const headers = [
      ...['X-Fn-Runtime', fn.runtime, 'X-Fn-Function', fn.name, 'X-Fn-Version', fn.version ?? DEFAULT_VERSION_LABEL],
      ...['X-Fn-Worker-Pool-Max-Workers', String(maxWorkers), 'X-Fn-Worker-Pool-Max-Queue', String(maxQueue)],
      ...['X-Fn-Request-Id', id, 'X-Fn-Runtime-Routing', routing],
      ...['X-Fn-Latency-Ms', latencyMs.toFixed(1), 'X-Fn-Function-State', state],
    ]
    if (socketIndex !== null) headers.push('X-Fn-Runtime-Socket-Index', String(socketIndex))
    if (stdout !== '') headers.push('X-Fn-Stdout', toPreview(stdout))
    if (stderr !== '') headers.push('X-Fn-Stderr', toPreview(stderr))
    return headers
  }

  /** Says in development that the previous version has served the call. @returns names and values in turn */
  ofLoadError({ entryFile }: FunctionVersion, { message, detail }: GatewayError): string[] {
    if (this.#production) return []
    return ['X-Fn-Load-Error', toPreview(toFailureText(message, entryFile, detail ?? {}).headline)]
  }
}

/** Captured output as one line of at most OUTPUT_PREVIEW_BYTES: a header carries no line ends and no other alphabet. */
function toPreview(text: string): string {
  const head = text.slice(0, OUTPUT_PREVIEW_BYTES + 1).trimEnd()
  const line = head.replace(/\s+/g, ' ').replace(/[^\x20-\x7e]/g, '?')
  const isCut = text.trimEnd().length > OUTPUT_PREVIEW_BYTES
  return isCut ? `${line.slice(0, OUTPUT_PREVIEW_BYTES - 3)}...` : line
}
