/**
 * The connections of a server. A quiet one is closed by a look at all of them now and then: a timer for each, set and
 * cleared with every answer as node does it, costs more than a tenth of a request. Owner: §4.1.
 */

import type { Socket } from 'node:net'
import { connectionOf } from './client-connection.ts'

/** Milliseconds that a connection beyond the limit of open files has for its request. */
const SPARE_MS = 2000

/** What the last look saw. */
interface Look {
  bytesRead: number
  /** Monotonic ms of the first look that saw this. */
  at: number
}

export class OpenSockets implements Iterable<Socket> {
  readonly #looks = new Map<Socket, Look>()

  add(socket: Socket): void {
    this.#looks.set(socket, { bytesRead: -1, at: 0 })
    socket.once('close', () => this.#looks.delete(socket))
  }

  get size(): number {
    return this.#looks.size
  }

  [Symbol.iterator](): Iterator<Socket> {
    return this.#looks.keys()
  }

  /** Closes connections on which nothing came for so long; those that had no request yet only beyond the limit of open files. */
  closeQuiet(now: number, limitMs: number): void {
    for (const [socket, look] of this.#looks) {
      const { bytesRead } = socket
      const { isSpare } = connectionOf(socket)
      if (bytesRead !== look.bytesRead || !isIdle(socket)) {
        look.bytesRead = bytesRead
        look.at = now
      } else if ((isSpare || bytesRead > 0) && now - look.at >= (isSpare ? SPARE_MS : limitMs)) {
        socket.destroy()
      }
    }
  }
}

/** True when no request is open and every answer is with the system. */
export function isIdle(socket: Socket): boolean {
  const connection = connectionOf(socket)
  return connection.first === null && !connection.hasWaiting && socket.writableLength === 0
}

/** True when a request came on the connection. */
export function hasAsked(socket: Socket): boolean {
  return connectionOf(socket).latest !== null
}
