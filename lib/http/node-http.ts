/**
 * node's request without the end of a body that nobody reads: to tell of it costs four ticks and a walk through a stream's
 * machinery, on most requests for nothing. Owner: §4.1.
 */

import { IncomingMessage, ServerResponse } from 'node:http'

/** What node keeps under these names. Where it should not, a request is only told of its end as before. */
interface Internals {
  /** The parser drops what comes of the body. */
  _dumped: boolean
}

export class LeanRequest extends IncomingMessage {
  #isUnread = false
  #hasPieces = false
  #isOver = false

  /** Nobody will read the body, or wait for its end. What comes of it is dropped. */
  leaveBody(): void {
    this.#isUnread = true
    ;(this as unknown as Internals)._dumped = true
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
    return this.#isOver || streamEnded.call(this)
  }
}

const streamEnded = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(IncomingMessage.prototype), 'readableEnded')!
  .get!

// A property by its type, which a class may not make an accessor of.
Object.defineProperty(LeanRequest.prototype, 'readableEnded', {
  configurable: true,
  get(this: LeanRequest): boolean {
    return this.isRead()
  },
})

// // node's response with a short way for whole answers. `writeHead` and `end` check and put together a head anew for each
// answer and hand two pieces to the socket; here a head that was checked before leaves with its body as one text, in one
// plain write.

/** What node keeps about a response under these names; without them the short way is not taken. */
interface ResponseInternals {
  _header: string | null
  _headerSent: boolean
  readonly outputData: readonly unknown[]
  _keepAliveTimeout: number
}

export class DirectResponse extends ServerResponse<LeanRequest> {
  #connectionLines = '\r\n'

  /** True when the next thing the connection carries may be this answer, and more may follow on the connection. */
  get isDirect(): boolean {
    return (
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
      socket.write(head + this.#connectionLines + body, 'latin1')
    } else {
      // Both in one write.
      socket.cork()
      socket.write(head + this.#connectionLines, 'latin1')
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
   * in four writes to the socket, and tells of its room by an event.
   * @param bytes - of all of them
   * @param onGone - as of `sendWhole`
   * @returns true when the system has all of it
   */
  writePieces(pieces: readonly Buffer[], bytes: number, onGone: () => void): boolean {
    const { socket } = this
    const internals = this as unknown as ResponseInternals
    const last = pieces.length - 1
    if (socket === null || !internals._headerSent || internals.outputData.length > 0) {
      // Earlier answers of the connection are not written yet.
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

  /** Tells the client to give its idle connection up before the server does. */
  tellKeepAlive({ ms, lines }: KeepAlive): void {
    const internals = this as unknown as ResponseInternals
    internals._keepAliveTimeout = ms
    this.#connectionLines = lines
  }
}

/** How long an idle connection is kept, as answers tell it; made once for a server. */
interface KeepAlive {
  readonly ms: number
  /** The header lines of the connection, with the end of the head. */
  readonly lines: string
}

export function toKeepAlive(ms: number): KeepAlive {
  const seconds = Math.floor(ms / 1000)
  const lines = `Connection: keep-alive\r\n${seconds > 0 ? `Keep-Alive: timeout=${seconds}\r\n` : ''}\r\n`
  return { ms, lines }
}
