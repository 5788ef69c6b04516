/**
 * One request and its answer on their way through the public handler, and the little that the gateway needs of node's
 * request and response, so that in-memory ones serve as well (inject, fetch). Owner: §4.1.
 */

import type { ByteBudget, BytePool, Bytes } from '../core/byte-pool.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import type { ReplyHead } from '../invocation/response.ts'
import type { OpenSpan } from '../observe/trace.ts'
import type { Descriptors } from '../core/host.ts'
import type { RequestHead } from '../invocation/forwarded-headers.ts'

/** Declared bytes of a refused body that are read and dropped to keep the connection; with more it closes. */
export const DISCARD_BODY_BYTES = 64 * 1024

export interface HttpSocket {
  remoteAddress?: string | undefined
  localPort?: number | undefined
  /** True for TLS, which only a host application's server can have. */
  encrypted?: boolean
  once(event: 'close', listener: () => void): unknown
  /** Ends a connection on which nothing moves for so many ms; 0 for never. */
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

/** What node's IncomingMessage is to the gateway. */
export interface HttpRequest {
  method?: string | undefined
  url?: string | undefined
  httpVersion: string
  /** Names and values in turn. */
  rawHeaders: string[]
  /** True when the whole message was received. */
  complete: boolean
  /** True when somebody has read the body to its end already; what he made of it may be in `body` and `rawBody`. */
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

/** What node's ServerResponse is to the gateway. */
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
  /** The short way of DirectResponse, which the gateway's own server has. */
  readonly isDirect?: boolean
  /** As `write`, with bytes that stay as they are until `onGone`, which may never be called when the connection breaks. */
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

/** What an exchange and its answer need of the client connection. */
export interface ExchangeConnection {
  /** Plain address of the socket's other end. */
  readonly address: string
  /** The exchange that began last, open or not. */
  readonly latest: Exchange | null
  /** True when requests wait behind that one. */
  readonly hasWaiting: boolean
  /** True once an answer said that it is the last: what the client sends after that is no request. */
  closing: boolean
  /** The exchange is over. */
  remove(exchange: Exchange): void
  /** Bytes of a response that the client has not read are held, until they are released or the connection ends. */
  hold(bytes: number, budget: ByteBudget): void
  release(bytes: number): void
  /** Ends the connection, and calls `onStall`, when its client reads nothing for so long; until as many calls of `unwatch`. */
  watch(ms: number, onStall: () => void): void
  unwatch(): void
}

/** How steps and calls answer; Responder documents each way. */
export interface ExchangeResponder {
  /** Memory for bodies. */
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

/**
 * What a client asked for. Host, path and address are what was received until the check has been through it; then it is
 * frozen (22 ns of a request), and a request that comes again shares it.
 */
export class Asked {
  head: RequestHead
  /** Canonical path. */
  path: string
  /** Path and query as the client wrote them: the target, without scheme and host. */
  rawPath: string
  /** What follows `?`, undecoded; empty when there is none. */
  search = ''
  /** Host that routes see; empty when there is none. */
  host = ''
  /** Address of the client, believed proxies taken off. */
  ip: string

  constructor(head: RequestHead, target: string, address: string) {
    this.head = head
    this.path = target
    this.rawPath = target
    this.ip = address
  }
}

/** One request and how it is answered. */
export class Exchange {
  readonly req: HttpRequest
  readonly res: HttpResponse
  readonly responder: ExchangeResponder
  readonly connection: ExchangeConnection
  readonly asked: Readonly<Asked>
  readonly method: string
  /** Request target as the client wrote it. */
  readonly target: string
  readonly id: string
  /** Monotonic ms. */
  readonly startedAt: number
  /** `traceparent` and `tracestate` of what is done for it. */
  trace = ''
  traceState: string | null = null
  span: OpenSpan | null = null
  /** True while the client waits for `100 Continue` before it sends the body. */
  expectsContinue: boolean

  /** The path that is answered: the one that was asked for, unless a step has changed it, and the walk goes on with the new one. */
  path: string
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
  /** Work to stop when the client leaves. */
  work: Abandonable | null = null
  /** The body, where a host application's parser has read it. */
  parsedBody: Buffer | null = null
  /** Waiting for the rest of the body. */
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

  /** The open ones before and behind it on the connection, which owns these fields. */
  previousOpen: Exchange | null = null
  nextOpen: Exchange | null = null

  constructor(
    req: HttpRequest,
    res: HttpResponse,
    connection: ExchangeConnection,
    responder: ExchangeResponder,
    asked: Readonly<Asked>,
    id: string,
    startedAt: number,
    expectsContinue: boolean,
  ) {
    this.req = req
    this.res = res
    this.responder = responder
    this.asked = asked
    this.id = id
    this.startedAt = startedAt
    this.expectsContinue = expectsContinue
    this.method = req.method ?? 'GET'
    this.target = req.url ?? '/'
    this.path = asked.path
    this.connection = connection
  }

  get head(): RequestHead {
    return this.asked.head
  }

  get search(): string {
    return this.asked.search
  }

  get host(): string {
    return this.asked.host
  }

  get ip(): string {
    return this.asked.ip
  }

  /** True when the message says that it has a body. */
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

  /** Somebody else answers this request: a host application, after nothing here had its route. */
  passOn(): void {
    this.ended = true
    this.connection.remove(this)
  }

  /** The client is gone. */
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
