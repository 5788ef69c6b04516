/**
 * The listening server: node's HTTP parser with this gateway's limits, its errors answered, and a close that finishes
 * what runs. Owner: §4.1.
 */

import { createServer, type Server } from 'node:http'
import { type AddressInfo, Server as NetServer, type Socket } from 'node:net'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { MAX_HEADER_BYTES, MAX_TARGET_BYTES } from '../core/limits.ts'
import type { RequestIds } from '../invocation/request-ids.ts'
import { connectionOf } from './client-connection.ts'
import type { Descriptors } from '../core/host.ts'
import { DirectResponse, toKeepAlive } from './direct-response.ts'
import type { Exchange } from './exchange.ts'
import { LeanRequest } from './lean-request.ts'
import { hasAsked, isIdle, OpenSockets } from './open-sockets.ts'
import type { HttpHandler } from './public.ts'
import { refuseRequest, rejectConnection } from './respond.ts'

/** Milliseconds a client has to send its header block, and the whole request. */
const HEADERS_TIMEOUT_MS = 15_000
const REQUEST_TIMEOUT_MS = 60_000
/**
 * Milliseconds an idle connection is kept: longer than load balancers keep theirs (60 s), which would send a request into
 * a connection that is just being closed. Clients are told less, for the same reason.
 */
const KEEP_ALIVE_TIMEOUT_MS = 65_000
const KEEP_ALIVE_RESERVE_MS = 5000
/** Connections beyond the limit of open files, each for one request for the gateway's health; the oldest makes way for the next. */
const SPARE_CONNECTIONS = 8
/** Path of that request. */
const HEALTH = /^\/_fn\/health(?:\?|$)/
/** Milliseconds between two words about refused connections. */
const REFUSED_NOTE_MS = 10_000
/** Milliseconds between two looks for connections past those limits of time. */
const CONNECTION_CHECK_INTERVAL_MS = 1000
/** Milliseconds a stopping gateway waits for a last request on a kept connection before it closes it, and looks again. */
const DRAIN_SWEEP_MS = 50
/** As long it waits for the first one of a connection: whoever has just connected is about to ask, and was not refused. */
const DRAIN_FIRST_REQUEST_MS = 500

export interface ServerOptions {
  handle: HttpHandler
  clock: Clock
  requestIds: RequestIds
  /** Set to true by close. */
  lifecycle: { draining: boolean }
  /** Flag by which the port is chosen, for messages. */
  portFlag?: string
  /** Told of what goes wrong while listening, such as no descriptors left. */
  onProblem?: (message: string) => void
  /** Of this process; absent for no limit. */
  descriptors?: Descriptors
  headersTimeoutMs?: number
  requestTimeoutMs?: number
  keepAliveTimeoutMs?: number
  checkIntervalMs?: number
}

export interface Listening {
  host: string
  port: number
  url: string
}

/** A port that cannot be listened on; `code` is the system's, such as EADDRINUSE. */
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

export class HttpServer {
  readonly #options: ServerOptions
  readonly #server: Server<typeof LeanRequest, typeof DirectResponse>
  readonly #sockets = new OpenSockets()
  /** Those beyond the limit of open files, oldest first. */
  readonly #spare = new Set<Socket>()
  #sweepTimer: NodeJS.Timeout | null = null
  #closing: Promise<void> | null = null
  #dropped = 0
  #tellDropAt = 0

  constructor(options: ServerOptions) {
    this.#options = options
    const { handle } = options
    const told = toKeepAlive(Math.max(0, (options.keepAliveTimeoutMs ?? KEEP_ALIVE_TIMEOUT_MS) - KEEP_ALIVE_RESERVE_MS))
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
      connectionsCheckingInterval: options.checkIntervalMs ?? CONNECTION_CHECK_INTERVAL_MS,
      requireHostHeader: false,
    })
    // The block's size is limited already; a limit by count would drop late headers without a word.
    this.#server.maxHeadersCount = 0
    const take = (req: LeanRequest, res: DirectResponse, expectsContinue?: boolean): void => {
      const connection = connectionOf(req.socket)
      if (connection.isSpare) {
        if (connection.closing) return
        res.shouldKeepAlive = false
        if (!HEALTH.test(req.url ?? '')) {
          connection.closing = true
          refuseRequest(res, new GatewayError('OVERLOADED', TOO_MANY, { headers: { 'Retry-After': '1' } }))
          return
        }
      }
      res.tellKeepAlive(told)
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

  /** Open ones. */
  get connections(): number {
    return this.#sockets.size
  }

  /** Descriptor of the listening socket, for another process; null while there is none, and where the system has none. */
  get descriptor(): number | null {
    const { _handle: handle } = this.#server as unknown as { _handle: { fd?: number } | null }
    return handle?.fd !== undefined && handle.fd >= 0 ? handle.fd : null
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
   * Listens on a socket that somebody else has opened and keeps open.
   * @param fd - its descriptor in this process
   * @throws ListenError when it is none that connections can be taken from
   */
  async listenOn(fd: number): Promise<Listening> {
    const listening = await this.#listen({ fd }, error => toHandedError(error, fd))
    if (this.#server.address() instanceof Object) return listening
    if (this.#sweepTimer !== null) this.#options.clock.clearTimeout(this.#sweepTimer)
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

  #sweep(): void {
    const { clock, keepAliveTimeoutMs = KEEP_ALIVE_TIMEOUT_MS, checkIntervalMs } = this.#options
    this.#sockets.closeQuiet(clock.monotonic(), keepAliveTimeoutMs)
    this.#sweepTimer = clock.setTimeout(() => this.#sweep(), checkIntervalMs ?? CONNECTION_CHECK_INTERVAL_MS)
    this.#sweepTimer.unref?.()
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
    if (this.#sweepTimer !== null) clock.clearTimeout(this.#sweepTimer)
    const startedAt = clock.monotonic()
    await new Promise<void>(resolve => {
      let timer: NodeJS.Timeout | null = null
      const sweep = () => {
        const waited = clock.monotonic() - startedAt
        const isDone = (socket: Socket) => isIdle(socket) && (waited >= DRAIN_FIRST_REQUEST_MS || hasAsked(socket))
        for (const socket of this.#sockets) if (waited >= timeoutMs || isDone(socket)) socket.destroy()
        timer = clock.setTimeout(sweep, DRAIN_SWEEP_MS)
      }
      timer = clock.setTimeout(sweep, Math.min(DRAIN_SWEEP_MS, timeoutMs))
      // Not http's own close: it cuts kept connections at once, even while a request for them is on its way.
      NetServer.prototype.close.call(this.#server, () => {
        if (timer !== null) clock.clearTimeout(timer)
        resolve()
      })
    })
    // A server counts a connection as gone before its calls have heard of it.
    await Promise.all([...this.#sockets].map(socket => new Promise(resolve => socket.once('close', resolve))))
    // Only now http's own: it ends the timer that looks for connections past their limits.
    this.#server.close(() => {})
  }

  #onConnection(socket: Socket): void {
    const { descriptors } = this.#options
    this.#sockets.add(socket)
    if (descriptors === undefined) return
    if (descriptors.free <= 0) this.#addSpare(socket)
    descriptors.add()
    socket.once('close', () => descriptors.giveBack())
  }

  /** A client that says nothing on all of them must not keep others from asking for the health. */
  #addSpare(socket: Socket): void {
    connectionOf(socket).isSpare = true
    this.#tellDrop()
    this.#spare.add(socket)
    socket.once('close', () => this.#spare.delete(socket))
    if (this.#spare.size <= SPARE_CONNECTIONS) return
    const [oldest] = this.#spare
    this.#spare.delete(oldest!)
    oldest!.destroy()
  }

  #tellDrop(): void {
    const now = this.#options.clock.monotonic()
    this.#dropped += 1
    if (now < this.#tellDropAt) return
    this.#tellDropAt = now + REFUSED_NOTE_MS
    this.#options.onProblem?.(
      `${this.#dropped} connections refused: ${this.#options.descriptors!.limit} connections and files are open, more the limit of open files does not allow (raise it: ulimit -n)`,
    )
    this.#dropped = 0
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

const TOO_MANY = 'too many connections are open; try again later'
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
      // Only when the packet begins with it: behind an earlier request it cannot be told from noise.
      if ((error.bytesParsed ?? 0) <= MAX_METHOD_BYTES && METHOD.test(start)) return notImplemented()
      break
  }
  return new GatewayError('BAD_REQUEST', 'malformed request')
}

function toListenError(error: NodeJS.ErrnoException, port: number, host: string, flag: string): ListenError {
  const code = error.code ?? 'UNKNOWN'
  const reasons: Record<string, string> = {
    EADDRINUSE: `is in use: stop the program that listens there, or choose another port with ${flag}`,
    EACCES: `is not permitted: ports below 1024 need privileges, choose another with ${flag}`,
    EADDRNOTAVAIL: 'is no address of this machine: choose another with --host',
    ENOTFOUND: 'is no known host: choose another with --host',
  }
  const reason = reasons[code] ?? `cannot be listened on: ${error.message}`
  return new ListenError(code, port, `${host}:${port} ${reason}`, error)
}

function toHandedError(error: NodeJS.ErrnoException, fd: number): ListenError {
  const message = `descriptor ${fd} is no TCP socket to listen on (${error.message}): ListenStream= of the socket unit must be a port, or an address and a port`
  return new ListenError(error.code ?? 'UNKNOWN', 0, message, error)
}
