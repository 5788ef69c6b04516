/**
 * The listening server: node's HTTP parser with this gateway's limits, its errors answered, and a close that finishes
 * what runs. Owner: §4.1.
 */

import { createServer, type Server } from 'node:http'
import { type AddressInfo, Server as NetServer, type Socket } from 'node:net'
import { type Clock, Timer } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import type { Descriptors } from '../core/host.ts'
import { headerOf } from '../core/http-text.ts'
import { MAX_HEADER_BYTES, MAX_TARGET_BYTES } from '../core/limits.ts'
import type { Lifecycle } from '../core/transitions.ts'
import type { RequestIds } from '../invocation/event.ts'
import { connectionOf, type Exchange, type HttpRequest, type HttpResponse, type HttpSocket } from './exchange.ts'
import { DirectResponse, LeanRequest, listeningDescriptor, toKeepAlive } from './node-http.ts'
import type { HttpHandler } from './public.ts'
import { refuseRequest, rejectConnection } from './respond.ts'

/** Milliseconds a client has to send its header block, and the whole request. */
const HEADERS_TIMEOUT_MS = 15_000
const REQUEST_TIMEOUT_MS = 60_000
/**
 * Milliseconds an idle connection is kept: longer than load balancers keep theirs (60 s), which would send a request into
 * a connection that is just being closed. Answers announce less, for the same reason.
 */
const KEEP_ALIVE_TIMEOUT_MS = 65_000
const KEEP_ALIVE_RESERVE_MS = 5000
/** Connections beyond the limit of open files, each for one request for the gateway's health; the oldest makes way for the next. */
const SPARE_CONNECTIONS = 8
/** Milliseconds that each of them has for its request. */
const SPARE_MS = 2000
/** Path of probes; in another spelling it is a path as every other. */
const HEALTH = /^\/_fn\/health(?:\?|$)/
/** Milliseconds between two messages about refused connections. */
const REFUSED_NOTE_MS = 10_000
/** Milliseconds between two looks for connections past those limits of time. */
const CONNECTION_CHECK_INTERVAL_MS = 1000
/** Milliseconds a stopping gateway waits for a last request on a kept connection before it closes it, and looks again. */
const DRAIN_SWEEP_MS = 50
/** So long it waits for the first one of a connection: a client that has just connected is about to ask, and was not refused. */
const DRAIN_FIRST_REQUEST_MS = 500

export interface ServerOptions {
  handle: HttpHandler
  clock: Clock
  requestIds: RequestIds
  /** Set to true by close. */
  lifecycle: { draining: boolean }
  /** Flag by which the port is chosen, for messages. */
  portFlag?: string
  /** Gets what goes wrong while listening, such as no descriptors left. */
  onProblem?: (message: string) => void
  /** Of this process; absent for no limit. */
  descriptors?: Descriptors
  headersTimeoutMs?: number
  requestTimeoutMs?: number
  keepAliveTimeoutMs?: number
  checkIntervalMs?: number
}

/** An address that a server listens on. */
export interface Listening {
  host: string
  port: number
  /** Such as `http://127.0.0.1:8080`. */
  url: string
}

/** Thrown when the gateway cannot listen. `code` is the system error, such as `EADDRINUSE`. */
export class ListenError extends Error {
  readonly code: string
  readonly port: number

  constructor(code: string, port: number, message: string, cause: unknown) {
    super(message, { cause })
    this.name = 'ListenError'
    this.code = code
    this.port = port
  }
}

/** The last news of a connection: bytes read, and the monotonic ms of the first look that saw as many. */
interface LastNews {
  bytesRead: number
  at: number
}

export class HttpServer {
  readonly #options: ServerOptions
  readonly #keepAliveMs: number
  readonly #checkMs: number
  readonly #server: Server<typeof LeanRequest, typeof DirectResponse>
  readonly #sockets = new Map<Socket, LastNews>()
  /** Those beyond the limit of open files, oldest first. */
  readonly #spare = new Set<Socket>()
  readonly #sweepTimer: Timer
  #closing: Promise<void> | null = null
  #dropped = 0
  #dropReportAt = 0

  constructor(options: ServerOptions) {
    this.#options = options
    this.#keepAliveMs = options.keepAliveTimeoutMs ?? KEEP_ALIVE_TIMEOUT_MS
    this.#checkMs = options.checkIntervalMs ?? CONNECTION_CHECK_INTERVAL_MS
    this.#sweepTimer = new Timer(options.clock, true)
    this.#server = createServer({
      IncomingMessage: LeanRequest,
      ServerResponse: DirectResponse,
      // A lenient parser would let two servers read one byte stream as different requests.
      insecureHTTPParser: false,
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: options.headersTimeoutMs ?? HEADERS_TIMEOUT_MS,
      requestTimeout: options.requestTimeoutMs ?? REQUEST_TIMEOUT_MS,
      // The sweep closes quiet connections.
      keepAliveTimeout: 0,
      connectionsCheckingInterval: this.#checkMs,
      requireHostHeader: false,
    })
    // The block's size is limited already; a limit by count would drop late headers without a word.
    this.#server.maxHeadersCount = 0
    const keepAlive = toKeepAlive(Math.max(0, this.#keepAliveMs - KEEP_ALIVE_RESERVE_MS))
    const { handle } = options
    const take = (req: LeanRequest, res: DirectResponse, expectsContinue?: boolean): void => {
      const connection = connectionOf(req.socket)
      if (connection.isSpare) {
        if (connection.closing) return
        res.shouldKeepAlive = false
        if (!HEALTH.test(req.url ?? '')) {
          connection.closing = true
          refuseRequest(res, TOO_MANY)
          return
        }
      }
      res.announceKeepAlive(keepAlive)
      handle(req, res, expectsContinue)
    }
    this.#server.on('request', take)
    this.#server.on('checkContinue', (req, res) => take(req, res, true))
    // Any other expectation: the handler's check refuses it.
    this.#server.on('checkExpectation', (req, res) => take(req, res, true))
    this.#server.on('connect', (_req, socket) => this.#refuse(socket as Socket, notImplemented()))
    this.#server.on('clientError', (error: NodeJS.ErrnoException, socket) =>
      this.#onClientError(error, socket as Socket),
    )
    // Without a listener an accept that fails (no descriptors left) would end the process.
    this.#server.on('error', error => {
      if (this.#server.listening) options.onProblem?.(`connections cannot be accepted: ${error.message}`)
    })
    this.#server.on('connection', socket => this.#onConnection(socket))
  }

  get isListening(): boolean {
    return this.#server.listening
  }

  get connections(): number {
    return this.#sockets.size
  }

  /** Descriptor of the listening socket, for another process; null while there is none, and where the system has none. */
  get descriptor(): number | null {
    return listeningDescriptor(this.#server)
  }

  /**
   * @param port - 0 for any free one
   * @throws ListenError with what to do, when the address cannot be used
   */
  listen(port: number, host: string): Promise<Listening> {
    const { portFlag = '--port' } = this.#options
    return this.#listen({ port, host }, error => toListenError(error, port, host, portFlag))
  }

  /**
   * Listens on a socket that another process has opened and keeps open.
   * @param fd - its descriptor in this process
   * @throws ListenError when it is none that connections can be taken from
   */
  async listenOn(fd: number): Promise<Listening> {
    const listening = await this.#listen({ fd }, error => toHandedError(error, fd))
    if (this.#server.address() instanceof Object) return listening
    this.#sweepTimer.clear()
    this.#server.close()
    throw toHandedError(Object.assign(new Error('it has no port'), { code: 'EAFNOSUPPORT' }), fd)
  }

  #listen(
    place: { port: number; host: string } | { fd: number },
    toError: (error: NodeJS.ErrnoException) => ListenError,
  ): Promise<Listening> {
    return new Promise((resolve, reject) => {
      const onError = (error: NodeJS.ErrnoException) => reject(toError(error))
      this.#server.once('error', onError)
      this.#server.listen(place, () => {
        this.#server.removeListener('error', onError)
        this.#sweep()
        const { address = '', port = 0, family } = (this.#server.address() ?? {}) as Partial<AddressInfo>
        const name = family === 'IPv6' ? `[${address}]` : address
        resolve({ host: address, port, url: `http://${name}:${port}` })
      })
    })
  }

  /**
   * Closes connections on which nothing came for so long; those that had no request yet only beyond the limit of open files. A timer for
   * each connection, set and cleared with every answer as node does it, costs more than a tenth of a request.
   */
  #sweep(): void {
    const now = this.#options.clock.monotonic()
    for (const [socket, news] of this.#sockets) {
      const { bytesRead } = socket
      const { isSpare } = connectionOf(socket)
      if (bytesRead !== news.bytesRead || !isIdle(socket)) {
        news.bytesRead = bytesRead
        news.at = now
      } else if ((isSpare || bytesRead > 0) && now - news.at >= (isSpare ? SPARE_MS : this.#keepAliveMs)) {
        socket.destroy()
      }
    }
    this.#sweepTimer.set(this.#checkMs, () => this.#sweep())
  }

  /**
   * Stops accepting, answers what was received, and closes. Kept connections get a moment for a request that is already
   * under way; its answer says `Connection: close`.
   * @param timeoutMs - after that the rest is cut
   */
  close(timeoutMs: number): Promise<void> {
    this.#closing ??= this.#drain(timeoutMs)
    return this.#closing
  }

  async #drain(timeoutMs: number): Promise<void> {
    const { clock, lifecycle } = this.#options
    lifecycle.draining = true
    if (!this.#server.listening) return
    this.#sweepTimer.clear()
    const startedAt = clock.monotonic()
    const timer = new Timer(clock)
    const sweep = () => {
      const waited = clock.monotonic() - startedAt
      const isDone = (socket: Socket) =>
        isIdle(socket) && (waited >= DRAIN_FIRST_REQUEST_MS || connectionOf(socket).latest !== null)
      for (const socket of this.#sockets.keys()) if (waited >= timeoutMs || isDone(socket)) socket.destroy()
      timer.set(DRAIN_SWEEP_MS, sweep)
    }
    timer.set(Math.min(DRAIN_SWEEP_MS, timeoutMs), sweep)
    // Not http's own close: it cuts kept connections at once, even while a request for them is on its way.
    await new Promise<void>(resolve => NetServer.prototype.close.call(this.#server, () => resolve()))
    timer.clear()
    // A server counts a connection as gone before its calls have heard of it.
    await Promise.all([...this.#sockets.keys()].map(socket => new Promise(resolve => socket.once('close', resolve))))
    // Only now http's own: it ends the timer that looks for connections past their limits.
    this.#server.close(() => {})
  }

  #onConnection(socket: Socket): void {
    const { descriptors } = this.#options
    this.#sockets.set(socket, { bytesRead: -1, at: 0 })
    socket.once('close', () => this.#sockets.delete(socket))
    if (descriptors === undefined) return
    if (descriptors.free <= 0) this.#addSpare(socket, descriptors)
    descriptors.add()
    socket.once('close', () => descriptors.giveBack())
  }

  /** A client that says nothing on all of them must not keep others from asking for the health. */
  #addSpare(socket: Socket, { limit }: Descriptors): void {
    connectionOf(socket).isSpare = true
    const now = this.#options.clock.monotonic()
    this.#dropped += 1
    if (now >= this.#dropReportAt) {
      this.#dropReportAt = now + REFUSED_NOTE_MS
      this.#options.onProblem?.(
        `refused ${this.#dropped} connections: the open-file limit allows ${limit} connections and files (raise it: ulimit -n)`,
      )
      this.#dropped = 0
    }
    this.#spare.add(socket)
    socket.once('close', () => this.#spare.delete(socket))
    if (this.#spare.size <= SPARE_CONNECTIONS) return
    const [oldest] = this.#spare
    this.#spare.delete(oldest!)
    oldest!.destroy()
  }

  #onClientError(error: NodeJS.ErrnoException, socket: Socket): void {
    // Not a message of the client's but the end of its connection.
    if (socket.destroyed || !socket.writable || !PARSER_ERROR.test(error.code ?? '')) {
      socket.destroy()
      return
    }
    const connection = connectionOf(socket)
    if (connection.closing) {
      // Behind its last request a client may send anything; when it has closed its side too, nothing is left to wait for.
      if (error.code === 'HPE_INVALID_EOF_STATE' && isWritten(connection.latest)) socket.destroySoon()
      return
    }
    this.#refuse(socket, toRefusal(error))
  }

  /** Answers what cannot be a request, unless that would get in the way of an earlier answer, and lets the connection end. */
  #refuse(socket: Socket, refusal: GatewayError): void {
    const connection = connectionOf(socket)
    if (connection.closing) return
    connection.closing = true
    const { latest } = connection
    if (connection.hasWaiting && latest !== null) {
      // Its answer would be taken for that of one that waits: those are not begun, and the connection ends.
      connection.dropWaiting()
      if (latest.res.writableFinished) socket.destroySoon()
      else closeAfter(latest, socket)
    } else if (latest === null || latest.res.writableFinished) {
      rejectConnection(socket, this.#options.clock, refusal, this.#options.requestIds.next())
    } else if (latest.bodyReceiver !== null && !latest.req.complete) {
      latest.res.shouldKeepAlive = false
      latest.bodyReceiver.onBodyError(refusal)
    } else {
      // An earlier request of this connection is not answered yet: an answer to this one would be taken for its.
      closeAfter(latest, socket)
    }
  }
}

/** True when no request is open and every answer is with the system. */
function isIdle(socket: Socket): boolean {
  const connection = connectionOf(socket)
  return connection.first === null && !connection.hasWaiting && socket.writableLength === 0
}

/** True when an answer is with the socket or beyond. */
function isWritten(exchange: Exchange | null): boolean {
  return exchange === null || (exchange.ended && (exchange.res.writableFinished || exchange.res.socket !== null))
}

function closeAfter(exchange: Exchange, socket: Socket): void {
  if (exchange.res.headersSent) exchange.res.once('finish', () => socket.destroySoon())
  else exchange.res.shouldKeepAlive = false
}

function notImplemented(): GatewayError {
  return new GatewayError('NOT_IMPLEMENTED', 'method not implemented')
}

const TOO_MANY = new GatewayError('OVERLOADED', 'too many connections are open; try again later', {
  headers: { 'Retry-After': '1' },
})
const PARSER_ERROR = /^(?:HPE_|ERR_HTTP_)/
/** A request line that ends nowhere within the limit. */
const METHOD_AND_TARGET = /^[A-Z-]+ [^\r\n]*$/
const MAX_METHOD_BYTES = 32
const METHOD = /^[A-Za-z-]{1,32} /

function toRefusal(error: NodeJS.ErrnoException & { rawPacket?: Buffer; bytesParsed?: number }): GatewayError {
  const start = error.rawPacket?.subarray(0, MAX_TARGET_BYTES).toString('latin1') ?? ''
  switch (error.code) {
    case 'HPE_HEADER_OVERFLOW':
      if (METHOD_AND_TARGET.test(start)) return new GatewayError('TARGET_TOO_LONG', 'request target is too long')
      return new GatewayError('HEADERS_TOO_LARGE', `request headers are larger than ${MAX_HEADER_BYTES} bytes`)
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return new GatewayError('BODY_TOO_LARGE', 'chunk extensions are too large')
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new GatewayError('BAD_REQUEST', 'request took too long to arrive', { status: 408 })
    case 'HPE_INVALID_EOF_STATE':
      return new GatewayError('BAD_REQUEST', 'request was cut off')
    case 'HPE_INVALID_METHOD':
      // Only when the packet begins with it: behind an earlier request it cannot be distinguished from noise.
      if ((error.bytesParsed ?? 0) <= MAX_METHOD_BYTES && METHOD.test(start)) return notImplemented()
      break
    case 'HPE_INVALID_URL':
      return new GatewayError(
        'BAD_REQUEST',
        'malformed request: non-ASCII characters in the URL must be percent-encoded',
      )
  }
  return new GatewayError('BAD_REQUEST', 'malformed request')
}

function toListenError(error: NodeJS.ErrnoException, port: number, host: string, flag: string): ListenError {
  const code = error.code ?? 'UNKNOWN'
  const reasons: Record<string, string> = {
    EADDRINUSE: `is in use: stop the program that listens there, or choose another port with ${flag}`,
    EACCES: `is not permitted: ports below 1024 need privileges, choose another with ${flag}`,
    EADDRNOTAVAIL: 'is not an address of this machine: choose another with --host',
    ENOTFOUND: 'is an unknown host: choose another with --host',
  }
  const reason = reasons[code] ?? `cannot be listened on: ${error.message}`
  return new ListenError(code, port, `${host}:${port} ${reason}`, error)
}

function toHandedError(error: NodeJS.ErrnoException, fd: number): ListenError {
  const message = `descriptor ${fd} is not a TCP socket to listen on (${error.message}): ListenStream= of the socket unit must be a port, or an address and a port`
  return new ListenError(error.code ?? 'UNKNOWN', 0, message, error)
}

/** Requests that may wait for the start, and the milliseconds that one may wait. */
export const MAX_HELD_REQUESTS = 1000
export const MAX_HOLD_MS = 30_000

const STARTING = new GatewayError('SHUTTING_DOWN', 'gateway is starting', { headers: { 'Retry-After': '1' } })

interface StartGateOptions {
  clock: Clock
  requestIds: RequestIds
  lifecycle: Readonly<Lifecycle>
}

interface Held {
  req: HttpRequest
  res: HttpResponse
  begin: () => void
}

/**
 * Holds requests that come before the gateway serves: it listens first, so that a restart refuses no client and a probe gets an
 * answer from the first moment on.
 */
export class StartGate {
  readonly #options: StartGateOptions
  /** Oldest first. */
  readonly #held = new Set<Held>()
  /** Connections with a request that waits: what comes behind it on the same one must not overtake it. */
  readonly #waiting = new WeakSet<HttpSocket>()
  readonly #timer: Timer

  constructor(options: StartGateOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock)
  }

  /** The same handler, which begins to get requests when the gate opens. */
  wrap(handle: HttpHandler): HttpHandler {
    const { lifecycle } = this.#options
    return (req, res, expectsContinue, next) => {
      const passes = !lifecycle.starting || (HEALTH.test(req.url ?? '') && !this.#waiting.has(req.socket))
      if (passes) handle(req, res, expectsContinue, next)
      else this.#hold({ req, res, begin: () => handle(req, res, expectsContinue, next) })
    }
  }

  open(): void {
    for (const { begin } of this.#empty()) begin()
  }

  /** Refuses what waits: the gateway ends before it served. */
  refuse(error: GatewayError): void {
    for (const held of this.#empty()) this.#refuse(held, error)
  }

  #hold(held: Held): void {
    if (this.#held.size >= MAX_HELD_REQUESTS) {
      this.#refuse(held, STARTING)
      return
    }
    this.#held.add(held)
    const { socket } = held.req
    if (!this.#waiting.has(socket)) {
      this.#waiting.add(socket)
      // Requests of a client that leaves are forgotten.
      socket.once('close', () => {
        for (const one of this.#held) if (one.req.socket === socket) this.#held.delete(one)
      })
    }
    if (!this.#timer.isSet) this.#timer.set(MAX_HOLD_MS, () => this.refuse(STARTING))
  }

  #empty(): readonly Held[] {
    this.#timer.clear()
    const held = [...this.#held]
    this.#held.clear()
    return held
  }

  #refuse({ req, res }: Held, error: GatewayError): void {
    const id = this.#options.requestIds.take(headerOf(req.rawHeaders, 'x-request-id'))
    refuseRequest(res, error, ['X-Request-Id', id])
  }
}
