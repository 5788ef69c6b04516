/**
 * Where the daemon waits for a gateway in place of a worker that cannot: what becomes another program by one `exec` has nobody who could
 * accept a connection, and begins with it. Page: runtime/ready-workers.
 */

import { createServer } from 'node:net'

/** A socket is its owner's alone from the moment it has a name. */
const SOCKET_UMASK = 0o177

export class Meeting {
  /** Resolves when somebody can connect; rejects when nobody ever can. @type {Promise<void>} */
  open
  /** Resolves with the connection, of which nothing was read, and with null when nobody comes any more. @type {Promise<import('node:net').Socket | null>} */
  connection
  #server = createServer({ pauseOnConnect: true, allowHalfOpen: true })

  /** @param {string} path - of a socket, which is there until one has connected */
  constructor(path) {
    const server = this.#server
    this.open = new Promise((resolve, reject) => {
      server.once('listening', resolve)
      server.on('error', reject)
    })
    this.connection = new Promise(resolve => {
      server.on('connection', socket => {
        // Two may have come at once.
        if (!server.listening) socket.destroy()
        server.close()
        // A program of its own reads from a connection that waits, which node's do not.
        const { _handle: handle } = /** @type {any} */ (socket)
        handle?.setBlocking?.(true)
        resolve(socket)
      })
      server.on('close', () => resolve(null))
      server.on('error', () => resolve(null))
    })
    // `listen` makes the socket's file before it returns, so the mask has to hold for this call only.
    const before = process.umask(SOCKET_UMASK)
    try {
      server.listen({ path })
    } finally {
      process.umask(before)
    }
  }

  /** Nobody shall come any more. */
  close() {
    this.#server.close()
  }
}
