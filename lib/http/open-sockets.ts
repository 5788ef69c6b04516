/**
 * The connections of a server. A quiet one is closed by a look at all of them now and then: a timer for each, set and
 * cleared with every answer as node does it, costs more than a tenth of what the gateway itself does for a request.
 * Owner: §4.1.
 */

import type { Socket } from 'node:net'
import { connectionOf } from './client-connection.ts'

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

  /**
   * Closes connections without a request on which nothing came for so long. Of one that never had a request the server
   * itself takes care.
   * @param now - monotonic ms
   */
  closeQuiet(now: number, limitMs: number): void {
    for (const [socket, look] of this.#looks) {
      const { bytesRead } = socket
      if (bytesRead !== look.bytesRead || !isIdle(socket)) {
        look.bytesRead = bytesRead
        look.at = now
      } else if (bytesRead > 0 && now - look.at >= limitMs) {
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
