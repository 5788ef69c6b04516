/**
 * One request and its answer on their way through the public handler, the connection that they belong to, and the little that the
 * gateway needs of node's request and response, so that in-memory ones serve as well (inject, fetch). Owner: §4.1; records: §6.
 */

import type { ByteBudget, BytePool, Bytes } from '../core/byte-pool.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, WallTime } from '../core/clock.ts'
import { type GatewayError, isThrottled } from '../core/errors.ts'
import type { Descriptors } from '../core/host.ts'
import { MAX_UNREAD_BYTES } from '../core/limits.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import { type RequestHead, toPlainAddress } from '../invocation/forwarded-headers.ts'
import type { ReplyHead } from '../invocation/response.ts'
import type { RequestRecord } from '../observe/events.ts'
import type { Journal } from '../observe/journal.ts'
import type { Metrics } from '../observe/metrics.ts'
import { type OpenSpan, traceIdOf } from '../observe/trace.ts'

/** Declared bytes of a refused body that are read and dropped to keep the connection; with more it closes. */
export const DISCARD_BODY_BYTES = 64 * 1024

export interface HttpSocket {
  remoteAddress?: string | undefined
  localPort?: number | undefined
  /** True for TLS, which only a host application's server can have. */
  encrypted?: boolean
  once(event: 'close', listener: () => void): unknown
  /** Ends a connection on which nothing moves for that many ms; 0 for never. */
  setTimeout(ms: number): unknown
  /** Nothing more will be written; reading goes on. */
  end(): unknown
  /** A socket that is none of the system's has nothing to read. */
  pause?(): unknown
  resume?(): unknown
  on?(event: 'resume' | 'timeout' | 'drain', listener: () => void): unknown
  /** Bytes that were written and are not with the system. */
  readonly writableLength?: number
}

/** node's IncomingMessage, as far as the gateway uses it. */
export interface HttpRequest {
  method?: string | undefined
  url?: string | undefined
  httpVersion: string
  /** Names and values in turn. */
  rawHeaders: string[]
  /** True when the whole message was received. */
  complete: boolean
  /** True when the body was read to its end before; the result may be in `body` and `rawBody`. */
  readonly readableEnded: boolean
  readonly body?: unknown
  readonly rawBody?: unknown
  socket: HttpSocket
  on(event: 'data', listener: (chunk: Buffer) => void): unknown
  on(event: 'end', listener: () => void): unknown
  on(event: 'error', listener: (error: Error) => void): unknown
  resume(): unknown
  /** Of LeanRequest, which the gateway's own server has. */
  leaveBody?(): void
  awaitEnd?(): void
}

/** node's ServerResponse, as far as the gateway uses it. */
export interface HttpResponse {
  /** Null while earlier answers of the connection are not written. */
  readonly socket: HttpSocket | null
  shouldKeepAlive: boolean
  readonly headersSent: boolean
  /** True when every byte was handed to the system. */
  readonly writableFinished: boolean
  writeContinue(): void
  writeHead(status: number, headers: string[]): unknown
  /** Sends the head before there is a body. */
  flushHeaders(): void
  write(chunk: Buffer | string, encoding?: BufferEncoding): boolean
  end(): unknown
  end(chunk: Buffer | string, encoding?: BufferEncoding): unknown
  once(event: 'drain' | 'finish' | 'close' | 'socket', listener: () => void): unknown
  destroy(): unknown
  // Of DirectResponse, which the gateway's own server has and documents.
  readonly isDirect?: boolean
  writeKept?(bytes: Buffer, onGone: () => void): boolean
  sendWhole?(status: number, head: string, body: string | Buffer, onGone?: () => void): void
  writePieces?(pieces: readonly Buffer[], bytes: number, onGone: () => void): boolean
}

/**
 * Takes part in the walk of a request: true when it has answered or will; false when the walk goes on; `later` when it
 * does not know yet: it then answers, or calls `exchange.resume` once, after it has returned.
 */
export type Step = (exchange: Exchange) => boolean | 'later'

/** Waits for a request's body. Exactly one of the two is called, or none when the client leaves. */
export interface BodyReceiver {
  /** @param body - in the pieces it came in */
  onBody(body: Bytes | null): void
  onBodyError(error: GatewayError): void
}

/** Something that works for the client of an exchange and stops when the client leaves. */
export interface Abandonable {
  abandon(): void
}

/** How steps and calls answer; Responder documents each way. */
export interface ExchangeResponder {
  readonly pool: BytePool
  readonly descriptors: Descriptors
  send(exchange: Exchange, status: number, headers: string[], body: Buffer | string | null, isConstant?: boolean): void
  sendDirectly(exchange: Exchange, head: ReplyHead, body: Buffer, answeredAt: number): boolean
  sendPrepared(exchange: Exchange, head: ReplyHead, body: Buffer): boolean
  sendJson(exchange: Exchange, status: number, value: unknown, headers?: string[]): void
  sendError(exchange: Exchange, error: GatewayError, extra?: readonly string[], facts?: object): void
  refuseIfFull(exchange: Exchange): boolean
  openStream(exchange: Exchange, status: number, headers: string[], length: number | null): void
  writeStream(exchange: Exchange, chunk: Buffer, isConstant?: boolean, onTaken?: (() => void) | null): boolean
  writePieces(exchange: Exchange, pieces: readonly Buffer[], bytes: number, onTaken: () => void): boolean
  watchClient(exchange: Exchange, isSlow: boolean): void
  onDrain(exchange: Exchange, callback: () => void): void
  closeStream(exchange: Exchange, error: GatewayError | null): void
  onDisconnect(exchange: Exchange): void
}

export class Exchange {
  readonly req: HttpRequest
  readonly res: HttpResponse
  readonly responder: ExchangeResponder
  readonly connection: ClientConnection
  head: RequestHead
  readonly method: string
  /** Request target as the client wrote it. */
  readonly target: string
  readonly id: string
  /** Monotonic ms. */
  readonly startedAt: number
  /** `traceparent` and `tracestate` of the work for it. */
  trace = ''
  traceState: string | null = null
  span: OpenSpan | null = null
  /** True while the client waits for `100 Continue` before it sends the body. */
  expectsContinue: boolean

  // The request of the client: as received until the check has been through it.
  /** The path that is answered, canonical: the one that was asked for, unless a step has changed it, and the walk goes on with the new one. */
  path: string
  /** Path and query as the client wrote them: the target, without scheme and host. */
  rawPath: string
  /** The part behind `?`, undecoded; empty when there is none. */
  search = ''
  /** Host that routes see; empty when there is none. */
  host = ''
  /** Address of the client, believed proxies taken off. */
  ip: string
  /** Extra response headers, names and values in turn: go out with whatever is answered. */
  extraHeaders: string[] | null = null

  /** The function that answers, and the route it answers at. */
  fn: FunctionVersion | null = null
  route: string | null = null
  /** It is for `/_fn` or `/console`. */
  isControl = false
  /** Goes on with a walk that a step holds up. */
  resume: (() => void) | null = null
  /** Cross-origin headers of the answer, names and values in turn; a handler's own are dropped for them. */
  cors: readonly string[] | null = null
  work: Abandonable | null = null
  /** The body, where a host application's parser has read it. */
  parsedBody: Buffer | null = null
  bodyReceiver: BodyReceiver | null = null
  /** The memory of its body, which is free when the exchange is over. */
  upload: { free(): void } | null = null

  status = 0
  bytesIn = 0
  bytesOut = 0
  /** Bytes that a streamed answer still owes its Content-Length; -1 when it has none. */
  bytesLeft = -1
  /** Monotonic ms when the answer came that went out the short way; 0 for any other. */
  answeredAt = 0
  /** Ms the call waited for a place. */
  queuedMs = 0
  error: GatewayError | null = null
  /** True once the answer is complete from the gateway's side, or the client is gone. */
  ended = false
  /** True when the client left before that. */
  aborted = false

  // Owned by the connection: the open ones before and behind it.
  previousOpen: Exchange | null = null
  nextOpen: Exchange | null = null

  constructor(
    req: HttpRequest,
    res: HttpResponse,
    connection: ClientConnection,
    responder: ExchangeResponder,
    head: RequestHead,
    id: string,
    startedAt: number,
    expectsContinue: boolean,
  ) {
    this.req = req
    this.res = res
    this.responder = responder
    this.head = head
    this.id = id
    this.startedAt = startedAt
    this.expectsContinue = expectsContinue
    this.method = req.method ?? 'GET'
    this.target = req.url ?? '/'
    this.path = this.target
    this.rawPath = this.target
    this.ip = connection.address
    this.connection = connection
  }

  get hasBody(): boolean {
    const { contentLength, transferEncoding } = this.head
    return transferEncoding !== null || (contentLength !== null && contentLength !== '0')
  }

  /** Bytes of the body by its header; -1 when it does not say. */
  get declaredLength(): number {
    const { contentLength, transferEncoding } = this.head
    if (transferEncoding !== null || contentLength === null) return -1
    return /^\d+$/.test(contentLength) ? Number(contentLength) : -1
  }

  /** A host application answers this request: nothing here has its route. */
  passOn(): void {
    this.ended = true
    this.connection.remove(this)
  }

  onDisconnect(): void {
    if (this.ended) return
    this.aborted = true
    this.bodyReceiver = null
    const work = this.work
    this.work = null
    work?.abandon()
    this.responder.onDisconnect(this)
  }
}

/** Unanswered requests of one connection from which on nothing more is read from it, until half of them are answered. */
export const MAX_OPEN_EXCHANGES = 64
/** Requests of one connection after which the others get their turn. */
export const REQUESTS_PER_TURN = 256

/** Bytes that a request without a response counts as: those of the response before it, with a minimum. */
const EXPECTED_BYTES = { min: 1024, first: 32 * 1024 } as const

/** Unanswered requests of a connection until its first response shows its size. */
export const FIRST_OPEN_EXCHANGES = MAX_UNREAD_BYTES / EXPECTED_BYTES.first

const CONNECTION = Symbol('fngw.connection')

/** A client's connection and its open exchanges, oldest first. Kept on the socket, so that it costs no lookup and ends with it. */
export class ClientConnection {
  /** Plain address of the socket's other end. */
  readonly address: string
  /** Oldest open exchange; more than one when the client pipelines. */
  first: Exchange | null = null
  /** The one that began last, open or not: a broken connection closes after its answer. */
  latest: Exchange | null = null
  /** True once an answer said that it is the last: bytes that the client sends after that are not a request. */
  closing = false
  /** True for a connection beyond the limit of open files: it serves one request for the gateway's health. */
  isSpare = false

  readonly #socket: HttpSocket
  #last: Exchange | null = null
  #open = 0
  /** Requests begun since others had a turn. */
  #begun = 0
  /** Nothing is read: a client that sends on without waiting for answers would fill memory and keep the gateway from other clients. */
  #isHeld = false
  #isGuarded = false
  /** Begin requests that came in the same packet as the one that filled the connection: a packet is always parsed whole. */
  #waiting: (() => void)[] = []
  #isTurnPlanned = false
  /** Bytes of responses that are held for the client, and the budget in which they count. */
  #unread = 0
  #budget: ByteBudget | null = null
  /** Bytes of the last response. */
  #expected: number = EXPECTED_BYTES.first
  /** Waits for the client to read something, and the callback for when it does not. */
  #watches = 0
  #onStall: (() => void) | null = null
  #isClosed = false

  constructor(socket: HttpSocket) {
    this.#socket = socket
    this.address = toPlainAddress(socket.remoteAddress)
    // One listener per connection instead of one per request.
    socket.once('close', () => this.#onClose())
  }

  /** True when it takes no further request: give it to `wait`. */
  get isFull(): boolean {
    if (!this.#isHeld && this.#isBehind) this.#hold()
    return this.#isHeld
  }

  /**
   * True when the client sends requests without reading the responses before. Open requests count too: their responses come
   * when others that the client has not read may already be here. One whose body is still coming does not: held, it would never
   * have a response.
   */
  get #isBehind(): boolean {
    const written = this.#socket.writableLength ?? 0
    const received = this.#last === null || this.#last.req.complete ? this.#open : this.#open - 1
    const open = received * Math.max(this.#expected, EXPECTED_BYTES.min)
    return open + Math.max(this.#unread, written) >= MAX_UNREAD_BYTES
  }

  get hasWaiting(): boolean {
    return this.#waiting.length > 0
  }

  /** @param begin - called when others were answered, in order; never when the connection ends before */
  wait(begin: () => void): void {
    this.#waiting.push(begin)
  }

  dropWaiting(): void {
    this.#waiting = []
  }

  add(exchange: Exchange): void {
    this.latest = exchange
    const last = this.#last
    exchange.previousOpen = last
    if (last === null) this.first = exchange
    else last.nextOpen = exchange
    this.#last = exchange
    this.#open += 1
    this.#begun += 1
    if (this.#begun === REQUESTS_PER_TURN) this.#giveTurn()
    if (this.#open >= MAX_OPEN_EXCHANGES) this.#hold()
  }

  remove(exchange: Exchange): void {
    const { previousOpen, nextOpen } = exchange
    if (previousOpen === null && this.first !== exchange) return
    if (previousOpen === null) this.first = nextOpen
    else previousOpen.nextOpen = nextOpen
    if (nextOpen === null) this.#last = previousOpen
    else nextOpen.previousOpen = previousOpen
    exchange.previousOpen = null
    exchange.nextOpen = null
    this.#open -= 1
    this.#expected = exchange.bytesOut
    if (this.#isHeld) this.#letGo()
  }

  /** Bytes of a response that the client has not read are held, until they are released or the connection ends. */
  hold(bytes: number, budget: ByteBudget): void {
    if (this.#isClosed) return
    this.#budget = budget
    this.#unread += bytes
    budget.used += bytes
  }

  release(bytes: number): void {
    if (this.#isClosed || this.#budget === null) return
    this.#unread -= bytes
    this.#budget.used -= bytes
    if (this.#isHeld) this.#letGo()
  }

  /** Ends the connection, and calls `onStall`, when its client reads nothing for so long; until as many calls of `unwatch`. */
  watch(ms: number, onStall: () => void): void {
    if (this.#onStall === null) this.#socket.on?.('timeout', () => this.#watches > 0 && this.#onStall?.())
    this.#onStall = onStall
    this.#watches += 1
    this.#socket.setTimeout(ms)
  }

  unwatch(): void {
    if (this.#watches === 0) return
    this.#watches -= 1
    if (this.#watches === 0) this.#socket.setTimeout(0)
  }

  /** Bytes that the client has sent already wait in its system's buffers and ours. */
  #hold(): void {
    this.#isHeld = true
    if (!this.#isGuarded) {
      this.#isGuarded = true
      // Reading a request's body resumes the socket.
      this.#socket.on?.('resume', () => this.#isHeld && this.#socket.pause?.())
      this.#socket.on?.('drain', () => this.#isHeld && this.#letGo())
    }
    this.#socket.pause?.()
  }

  #letGo(): void {
    if (this.#open > MAX_OPEN_EXCHANGES / 2 || this.#begun >= REQUESTS_PER_TURN || this.#isBehind) return
    if (this.#waiting.length > 0) {
      // Not at once: the exchange that is just being answered is not through yet.
      if (!this.#isTurnPlanned) setImmediate(() => this.#beginWaiting())
      this.#isTurnPlanned = true
      return
    }
    this.#isHeld = false
    this.#socket.resume?.()
  }

  #beginWaiting(): void {
    this.#isTurnPlanned = false
    const waiting = this.#waiting
    this.#isHeld = false
    let begun = 0
    while (begun < waiting.length && !this.isFull) waiting[begun++]!()
    // One that ended the connection has dropped the others.
    if (this.#waiting === waiting) this.#waiting = waiting.slice(begun)
    if (!this.#isHeld) {
      this.#isHeld = true
      this.#letGo()
    }
  }

  /** Answers that are at hand at once leave nothing open, so a lot of them would still take a whole turn of the loop. */
  #giveTurn(): void {
    this.#hold()
    setImmediate(() => {
      this.#begun = 0
      this.#letGo()
    })
  }

  #onClose(): void {
    this.dropWaiting()
    this.release(this.#unread)
    this.#isClosed = true
    while (this.first !== null) {
      const exchange = this.first
      this.remove(exchange)
      exchange.onDisconnect()
    }
  }
}

/** The open exchanges of a socket; attached at its first request. */
export function connectionOf(socket: HttpSocket): ClientConnection {
  const carrier = socket as HttpSocket & { [CONNECTION]?: ClientConnection }
  carrier[CONNECTION] ??= new ClientConnection(socket)
  return carrier[CONNECTION]
}

// An ended exchange is counted, logged and traced.

/** Status in records of a client that left before its answer, after nginx's. */
const CLIENT_LEFT_STATUS = 499

function statusOf({ aborted, status }: Exchange): number {
  return aborted && status === 0 ? CLIENT_LEFT_STATUS : status
}

/**
 * @param time - wall clock at the end, ms
 * @param monotonic - monotonic clock at the end, ms
 */
export function toRequestRecord(exchange: Exchange, time: number, monotonic: number): RequestRecord {
  const { fn, error } = exchange
  return {
    time,
    id: exchange.id,
    method: exchange.method,
    path: exchange.path,
    route: exchange.route,
    fn: fn === null ? null : fn.name,
    version: fn === null ? null : (fn.version ?? DEFAULT_VERSION_LABEL),
    runtime: fn === null ? null : fn.runtime,
    entryFile: fn === null ? null : fn.entryFile,
    status: statusOf(exchange),
    durationMs: monotonic - exchange.startedAt,
    queuedMs: exchange.queuedMs,
    bytesIn: exchange.bytesIn,
    bytesOut: exchange.bytesOut,
    ip: exchange.ip,
    userAgent: exchange.head.userAgent,
    traceId: traceIdOf(exchange.trace),
    error: error === null ? null : error.message,
  }
}

/** Counts every exchange that ended, and logs it where requests are listened to, and every failure. */
export function createRequestListener(
  journal: Pick<Journal, 'wantsRequests' | 'request' | 'callFailed'>,
  clock: Clock,
  metrics: Pick<Metrics, 'request'>,
): (exchange: Exchange) => void {
  const wall = new WallTime(clock)
  return exchange => {
    const now = exchange.answeredAt || clock.monotonic()
    const { method, fn, startedAt, queuedMs, isControl, error } = exchange
    metrics.request(method, statusOf(exchange), fn, now - startedAt, queuedMs, isControl, isThrottled(error))
    if (journal.wantsRequests) journal.request(toRequestRecord(exchange, wall.at(now), now))
    if (exchange.span !== null) endRequestSpan(exchange.span, exchange)
    if (error !== null) journal.callFailed(exchange, error)
  }
}

/** Ends the span of an exchange under the name of its route, as tracers group requests. */
function endRequestSpan(span: OpenSpan, exchange: Exchange): void {
  const { method, route, fn, id } = exchange
  const attributes = {
    'fngw.request_id': id,
    ...(route !== null && { 'http.route': route }),
    ...(fn !== null && { 'faas.name': fn.key }),
  }
  span.end({ status: statusOf(exchange), attributes, ...(route !== null && { name: `${method} ${route}` }) })
}
