/**
 * How a worker and its gateway find each other, and the connection between them. The first peer that greets is the
 * gateway, and nobody gets in after it; a peer that does not greet is dropped, and the worker waits on. Page: runtime/wire-protocol.
 */

import { connect, createServer, Socket } from 'node:net'
import {
  encodeFrame,
  FrameReader,
  FrameWriter,
  KIND,
  PROTOCOL_VERSION,
  ProtocolError,
  parseHeader,
  toWaitWritten,
  toWrite,
} from './wire.mjs'

/** Milliseconds between two checks whether a gateway that sends nothing more is still there to read. */
const PROBE_INTERVAL_MS = 50
/** Bytes of one read, beside the rest of a large frame: as much as a unix socket holds. Memory is taken by what is read only. */
const READ_BYTES = 256 * 1024
/** A socket is its owner's alone from the moment it has a name. */
const SOCKET_UMASK = 0o177
// Captured before user code can patch it.
const { stringify } = JSON

/**
 * @typedef {object} LinkEvents
 * @property {(kind: number, id: number, header: string, body: Buffer, isOwn: boolean) => void} onFrame - `body` is a view to copy
 *   if kept, unless it is the frame's own memory
 * @property {() => void} onLastFrame - the gateway sends nothing more
 * @property {() => void} onClose
 */

export class Link {
  #events
  #memory
  #server
  /** @type {Socket | null} */
  #connection = null
  /** Of that connection. @type {FrameReader | null} */
  #reader = null
  #writer = new FrameWriter(() => {})

  /** @param {LinkEvents} events @param {import('./frame-memory.mjs').FrameMemory} memory - for large frames */
  constructor(events, memory) {
    this.#events = events
    this.#memory = memory
    this.#server = createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect: true }, socket =>
      this.#meet(socket),
    )
  }

  get isConnected() {
    return this.#connection !== null
  }

  /**
   * @param {string} address - a path, or `tcp://host:port`
   * @returns {Promise<string>} the uri it listens on
   */
  listen(address) {
    const server = this.#server
    const tcp = address.startsWith('tcp://') ? new URL(address) : null
    return new Promise((resolve, reject) => {
      server.once('error', reject)
      const onListening = () => {
        server.off('error', reject)
        const bound = server.address()
        const isTcp = typeof bound === 'object' && bound !== null
        resolve(isTcp ? `tcp://${tcp?.hostname}:${bound.port}` : `unix:${address}`)
      }
      if (tcp !== null) server.listen(Number(tcp.port), tcp.hostname.replace(/^\[|\]$/g, ''), onListening)
      else {
        // `listen` makes the socket's file before it returns, so the mask has to hold for this call only.
        const before = process.umask(SOCKET_UMASK)
        try {
          server.listen({ path: address }, onListening)
        } finally {
          process.umask(before)
        }
      }
    })
  }

  /**
   * Connects to itself as a gateway would, is refused, and listens no more: the real greeting then finds everything
   * loaded and compiled.
   * @param {string} address
   */
  async practise(address) {
    const uri = await this.listen(address)
    const { hostname, port } = new URL(uri)
    const socket = uri.startsWith('tcp://')
      ? connect(Number(port), hostname.replace(/^\[|\]$/g, ''))
      : connect({ path: address })
    socket.on('error', () => {})
    socket.resume()
    socket.end(encodeFrame(KIND.hello, 0, '{"role":"practice"}', Buffer.from([PROTOCOL_VERSION])))
    await new Promise(resolve => socket.once('close', resolve))
    await new Promise(resolve => this.#server.close(resolve))
  }

  /**
   * @param {number} kind
   * @param {number} id
   * @param {string} header - JSON text, '' for no fields
   * @param {Uint8Array | string | null} [body]
   * @returns {Promise<void> | null} until when the body's bytes must stay as they are; null when they may change at once
   */
  send(kind, id, header, body = null) {
    return this.#writer.add(kind, id, header, body)
  }

  flush() {
    this.#writer.flush()
  }

  /** @param {number} bytes - what bodies of calls may have beyond the protocol's own limit */
  allowBodies(bytes) {
    if (this.#reader !== null) this.#reader.maxBodyBytes = bytes
  }

  /** Says what is left to say, then hangs up. @param {() => void} then */
  end(then) {
    this.flush()
    this.#connection?.end(then)
  }

  /** Hangs up at once. */
  destroy() {
    this.flush()
    this.#connection?.destroy()
  }

  /** @param {Socket} accepted - nothing of it was read */
  #meet(accepted) {
    /** @type {ConstructorParameters<typeof FrameReader>[0]} */
    const onFrame = (kind, id, header, body, isOwn) => {
      if (this.#connection === socket) this.#events.onFrame(kind, id, header, body, isOwn)
      else this.#greet(socket, reader, header, body)
    }
    const reader = new FrameReader(onFrame, KIND.hello, this.#memory)
    const socket = readFrames(accepted, reader, message => this.#refuse(socket, message))
    socket.on('error', () => {})
    socket.on('end', () => this.#handleLastFrame(socket))
    socket.on('close', () => {
      if (this.#connection === socket) this.#events.onClose()
    })
  }

  /**
   * @param {Socket} socket
   * @param {FrameReader} reader - of the socket
   * @param {string} header
   * @param {Buffer} body
   * @throws {ProtocolError}
   */
  #greet(socket, reader, header, body) {
    if (this.#connection !== null || parseHeader(header).role !== 'worker') {
      throw new ProtocolError('this socket serves one gateway, which begins with hello in the role worker')
    }
    if (body[0] !== PROTOCOL_VERSION) throw new ProtocolError(`protocol version ${body[0]} is not spoken here`)
    this.#server.close()
    this.#connection = socket
    this.#reader = reader
    reader.acceptAll()
    this.#writer = new FrameWriter(toWrite(socket), toWaitWritten(socket))
  }

  /** @param {Socket} socket */
  #handleLastFrame(socket) {
    if (this.#connection !== socket) {
      socket.end()
      return
    }
    this.#events.onLastFrame()
    // A gateway that closed for good cannot be told from one that still listens, unless by writing to it.
    setInterval(() => this.send(KIND.pong, 0, ''), PROBE_INTERVAL_MS)
  }

  /**
   * @param {Socket} socket
   * @param {string} message
   */
  #refuse(socket, message) {
    this.flush()
    socket.end(encodeFrame(KIND.error, 0, stringify({ code: 'protocol', message })))
    socket.destroySoon()
  }
}

/**
 * Reads a connection's frames. Node makes a buffer of 64 KiB for each read of a connection that was accepted, and there is no
 * option against it as there is for one that is opened; so the accepted one's handle goes to a socket with that option.
 * @param {Socket} accepted - paused
 * @param {FrameReader} reader
 * @param {(message: string) => void} onProblem
 * @returns {Socket}
 */
function readFrames(accepted, reader, onProblem) {
  /** @param {() => void} read */
  const guarded = read => {
    try {
      read()
    } catch (error) {
      onProblem(/** @type {Error} */ (error).message)
    }
  }
  const handle = /** @type {any} */ (accepted)._handle
  if (typeof handle?.useUserBuffer !== 'function') {
    accepted.on('data', chunk => guarded(() => reader.push(/** @type {Buffer} */ (chunk))))
    accepted.resume()
    return accepted
  }
  const shared = Buffer.allocUnsafeSlow(READ_BYTES)
  /** @type {Uint8Array} */
  let into = shared
  /** @type {any} */
  const options = {
    handle,
    allowHalfOpen: true,
    onread: {
      buffer: () => {
        into = reader.room ?? shared
        return into
      },
      /** @param {number} length */
      callback: length => {
        guarded(() => (into === shared ? reader.push(shared, length) : reader.fill(length)))
        return true
      },
    },
  }
  Object.assign(accepted, { _handle: null })
  accepted.destroy()
  return new Socket(options)
}
