/**
 * node's response with a short way for whole answers. `writeHead` and `end` check and put together a head anew for each
 * answer and hand two pieces to the socket; here a head that was checked before leaves with its body as one text, in one
 * plain write. Owner: §4.1.
 */

import { ServerResponse } from 'node:http'
import type { LeanRequest } from './lean-request.ts'

/** What node keeps about a response under these names; without them the short way is not taken. */
interface Internals {
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
      (this as unknown as Internals)._header === null &&
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
    const internals = this as unknown as Internals
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
    const internals = this as unknown as Internals
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
    const internals = this as unknown as Internals
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
