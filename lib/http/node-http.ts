/**
 * The parts of node's HTTP server that are not public, in this file alone: a request without the end of a body that is not read,
 * a response with a short way for whole answers, and the descriptor of a listening socket. Where node keeps them otherwise, and with
 * FNGW_PUBLIC_HTTP_ONLY=1 (for tests), the public API does the same with more work. Owner: §4.1.
 */

import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { IncomingMessage, ServerResponse } from 'node:http'
import { type AddressInfo, type Server, Socket } from 'node:net'
import { orNull } from '../core/errors.ts'

interface RequestInternals {
  /** The parser drops the rest of the body. */
  _dumped: boolean
}

interface ResponseInternals {
  _header: string | null
  _headerSent: boolean
  readonly outputData: readonly unknown[]
  _keepAliveTimeout: number
}

/** True when node keeps what is used here under the names that are used here. */
function hasInternals(): boolean {
  const req = new IncomingMessage(new Socket())
  const { _dumped } = req as unknown as RequestInternals
  const res = new ServerResponse(req) as unknown as ResponseInternals
  const isKnown = res._header === null && res._headerSent === false && Array.isArray(res.outputData)
  return _dumped === false && isKnown && res._keepAliveTimeout === 0 && getReadableEnded !== undefined
}

const getReadableEnded = Object.getOwnPropertyDescriptor(
  Object.getPrototypeOf(IncomingMessage.prototype),
  'readableEnded',
)?.get

/** True when the short ways are taken. */
export const USES_INTERNALS = process.env.FNGW_PUBLIC_HTTP_ONLY !== '1' && hasInternals()

/** node announces the end of a body in four ticks and a walk through a stream's machinery, on most requests for nothing. */
export class LeanRequest extends IncomingMessage {
  #isUnread = false
  #hasPieces = false
  #isOver = false

  /** Drops the body: nothing will read it, or wait for its end. */
  leaveBody(): void {
    if (!USES_INTERNALS) {
      this.resume()
      return
    }
    this.#isUnread = true
    ;(this as unknown as RequestInternals)._dumped = true
  }

  /** Its end is waited for after all. */
  awaitEnd(): void {
    this.#isUnread = false
  }

  override push(chunk: unknown, encoding?: BufferEncoding): boolean {
    if (chunk !== null) {
      this.#hasPieces = true
    } else if (this.#isUnread && !this.#hasPieces) {
      this.#isOver = true
      return false
    }
    return super.push(chunk, encoding)
  }

  /** Asked by node before the next request of the connection is taken up. */
  isRead(): boolean {
    return this.#isOver || getReadableEnded!.call(this)
  }
}

if (USES_INTERNALS) {
  // A property by its type, which a class may not make an accessor of.
  Object.defineProperty(LeanRequest.prototype, 'readableEnded', {
    configurable: true,
    get(this: LeanRequest): boolean {
      return this.isRead()
    },
  })
}

/**
 * `writeHead` and `end` check and put together a head for each answer and hand two pieces to the socket; here a head that was checked
 * before leaves with its body as one text, in one plain write.
 */
export class DirectResponse extends ServerResponse<LeanRequest> {
  #keepAlive: KeepAlive = NO_KEEP_ALIVE

  /** True when the next thing the connection carries may be this answer, and more may follow on the connection. */
  get isDirect(): boolean {
    return (
      USES_INTERNALS &&
      this.socket?.writable === true &&
      this.shouldKeepAlive &&
      (this as unknown as ResponseInternals)._header === null &&
      this.req.httpVersionMinor === 1
    )
  }

  /**
   * Sends a whole answer; only while `isDirect`.
   * @param head - status line and header lines, checked, without those of the connection
   * @param body - latin1 text, one character per byte; or bytes that stay as they are until `onGone`
   * @param onGone - the bytes are not needed any more; may never be called when the connection breaks
   */
  sendWhole(status: number, head: string, body: string | Buffer, onGone?: () => void): void {
    const internals = this as unknown as ResponseInternals
    this.statusCode = status
    internals._header = head
    internals._headerSent = true
    const socket = this.socket!
    if (typeof body === 'string') {
      socket.write(head + this.#keepAlive.lines + body, 'latin1')
    } else {
      // Both in one write.
      socket.cork()
      socket.write(head + this.#keepAlive.lines, 'latin1')
      socket.write(body, onGone)
      socket.uncork()
    }
    this.end()
  }

  /**
   * Writes a piece of a body.
   * @param onGone - as of `sendWhole`
   * @returns false when the client is slow
   */
  writeKept(bytes: Buffer, onGone: () => void): boolean {
    return this.write(bytes, onGone)
  }

  /**
   * Writes pieces of a body that has begun: in one write, and where it is chunked as one chunk. `write` makes a chunk of each,
   * in four writes to the socket, and reports its room by an event.
   * @param bytes - of all of them
   * @param onGone - as of `sendWhole`
   * @returns true when the system has all of it
   */
  writePieces(pieces: readonly Buffer[], bytes: number, onGone: () => void): boolean {
    const { socket } = this
    const internals = this as unknown as ResponseInternals
    const last = pieces.length - 1
    // While earlier answers of the connection are not written yet, node keeps the pieces.
    if (socket === null || !USES_INTERNALS || !internals._headerSent || internals.outputData.length > 0) {
      for (const [index, piece] of pieces.entries()) this.write(piece, index === last ? onGone : undefined)
      return false
    }
    const isChunked = this.chunkedEncoding
    socket.cork()
    if (isChunked) socket.write(`${bytes.toString(16)}\r\n`, 'latin1')
    for (const [index, piece] of pieces.entries())
      socket.write(piece, index === last && !isChunked ? onGone : undefined)
    if (isChunked) socket.write('\r\n', 'latin1', onGone)
    socket.uncork()
    return socket.writableLength === 0
  }

  /** Asks the client to give its idle connection up before the server does. */
  announceKeepAlive(keepAlive: KeepAlive): void {
    this.#keepAlive = keepAlive
    if (USES_INTERNALS) (this as unknown as ResponseInternals)._keepAliveTimeout = keepAlive.seconds * 1000
  }

  /** @param first - headers, or the text of the status in front of them */
  override writeHead(status: number, first?: unknown, second?: unknown): this {
    const headers = second ?? first
    const { seconds } = this.#keepAlive
    if (!USES_INTERNALS && this.shouldKeepAlive && seconds > 0 && Array.isArray(headers))
      if (!headers.includes('Connection')) headers.push('Keep-Alive', `timeout=${seconds}`)
    return super.writeHead(status, first as never, second as never)
  }
}

/** How long an idle connection is kept, as answers announce it; made once for a server. */
interface KeepAlive {
  /** 0 announces nothing. */
  readonly seconds: number
  /** The header lines of the connection, with the end of the head. */
  readonly lines: string
}

const NO_KEEP_ALIVE: KeepAlive = { seconds: 0, lines: '\r\n' }

export function toKeepAlive(ms: number): KeepAlive {
  const seconds = Math.floor(ms / 1000)
  return { seconds, lines: `Connection: keep-alive\r\n${seconds > 0 ? `Keep-Alive: timeout=${seconds}\r\n` : ''}\r\n` }
}

/** Descriptor of a listening socket, for another process; null while it does not listen, and where the system has none. */
export function listeningDescriptor(server: Server): number | null {
  const { _handle: handle } = server as unknown as { _handle?: { fd?: number } | null }
  if (USES_INTERNALS && typeof handle?.fd === 'number') return handle.fd >= 0 ? handle.fd : null
  const address = server.address()
  return address instanceof Object ? findListener(address) : null
}

/** Of Linux: the descriptor whose socket listens at the port, by the system's own tables. */
function findListener({ port, family }: AddressInfo): number | null {
  const LISTENS = '0A'
  const wanted = port.toString(16).toUpperCase().padStart(4, '0')
  try {
    const rows = readFileSync(`/proc/self/net/${family === 'IPv6' ? 'tcp6' : 'tcp'}`, 'latin1')
      .split('\n')
      .slice(1)
    const sockets = rows.flatMap(row => {
      const [, local = '', , state, , , , , , inode] = row.trim().split(/\s+/)
      return state === LISTENS && local.endsWith(`:${wanted}`) ? [`socket:[${inode}]`] : []
    })
    return Number(readdirSync('/proc/self/fd').find(fd => sockets.includes(targetOf(fd))) ?? Number.NaN) || null
  } catch {
    return null
  }
}

/** Empty for one that is closed meanwhile: the one by which the list was read. */
function targetOf(fd: string): string {
  return orNull(() => readlinkSync(`/proc/self/fd/${fd}`)) ?? ''
}
