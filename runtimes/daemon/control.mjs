/**
 * A control connection of the daemon: a gateway that starts and stops workers. Page: runtime/wire-protocol.
 */

import {
  cutLog,
  encodeFrame,
  FrameReader,
  FrameWriter,
  KIND,
  PROTOCOL_VERSION,
  parseHeader,
  toWrite,
} from '../node/wire.mjs'

/** Output waiting on a control connection above which further output is dropped, bytes. */
const MAX_WAITING_OUTPUT_BYTES = 1024 * 1024

/** One gateway's control connection. */
export class Control {
  #workers
  #runtime
  #greeted = false
  /** It takes workers that wait for their function. */
  takesReady = false
  /** It tells such a worker its program. */
  takesPrograms = false
  #dropped = 0
  #socket
  #reader
  #writer

  /**
   * @param {import('node:net').Socket} socket
   * @param {import('./workers.mjs').Workers} workers
   * @param {string} runtime - as the daemon calls itself
   */
  constructor(socket, workers, runtime) {
    this.#workers = workers
    this.#runtime = runtime
    this.#socket = socket
    this.#writer = new FrameWriter(toWrite(socket))
    const reader = new FrameReader((kind, id, header, body) => this.#onFrame(kind, id, header, body), KIND.hello)
    this.#reader = reader
    socket.setNoDelay(true)
    socket.on('data', chunk => {
      if (socket.destroyed) return
      try {
        reader.push(chunk)
      } catch (error) {
        this.#refuse(/** @type {Error} */ (error).message)
      }
    })
    socket.on('error', () => {})
    socket.once('close', () => {
      workers.troubleListeners.delete(this.#tellTrouble)
      workers.leave(this)
    })
  }

  #tellTrouble = () => this.#pong(0)

  /** @param {number} id */
  #pong(id) {
    const { trouble } = this.#workers
    this.send(KIND.pong, id, trouble === null ? {} : { trouble })
  }

  /**
   * @param {number} kind
   * @param {number} id
   * @param {object} header
   */
  send(kind, id, header) {
    if (!this.#socket.destroyed) this.#writer.add(kind, id, JSON.stringify(header))
  }

  /**
   * @param {string} worker
   * @param {string} stream
   * @param {string} text
   */
  sendLog(worker, stream, text) {
    if (text === '' || this.#socket.destroyed) return
    if (this.#socket.writableLength > MAX_WAITING_OUTPUT_BYTES) {
      this.#dropped += Buffer.byteLength(text)
      return
    }
    const note = this.#dropped > 0 ? `[${this.#dropped} bytes of output dropped]\n` : ''
    this.#dropped = 0
    const header = JSON.stringify({ worker, stream })
    for (const piece of cutLog(Buffer.from(note + text))) this.#writer.add(KIND.log, 0, header, piece)
  }

  /**
   * @param {number} kind
   * @param {number} id
   * @param {string} header
   * @param {Buffer} body
   */
  #onFrame(kind, id, header, body) {
    if (!this.#greeted) this.#greet(header, body)
    else if (kind === KIND.start) this.#start(id, parseHeader(header))
    else if (kind === KIND.stop) this.#stop(parseHeader(header))
    else if (kind === KIND.ping) this.#pong(id)
  }

  /** @param {string} header @param {Buffer} body */
  #greet(header, body) {
    const fields = parseHeader(header)
    if (body[0] !== PROTOCOL_VERSION) this.#refuse(`protocol version ${body[0]} is not spoken here`)
    else if (fields.role !== 'control') this.#refuse('this socket serves the role control only')
    else {
      this.#greeted = true
      this.takesReady = fields.ready_workers === true
      this.takesPrograms = this.takesReady && fields.ready_programs === true
      this.#reader.acceptAll()
      this.send(KIND.ready, 0, { runtime: this.#runtime, version: process.version.slice(1), pid: process.pid })
      this.#workers.troubleListeners.add(this.#tellTrouble)
      this.#workers.meet(this)
    }
  }

  /**
   * @param {number} id
   * @param {Record<string, any>} header
   */
  async #start(id, header) {
    try {
      const worker = await this.#workers.take(this, header)
      if (worker.owner === this)
        this.send(KIND.started, id, {
          worker: worker.id,
          uri: worker.process.uri || `unix:${worker.socket}`,
          pid: worker.process.pid,
        })
    } catch (error) {
      this.send(KIND.error, id, { code: 'start', message: /** @type {Error} */ (error).message })
    }
  }

  /** @param {Record<string, any>} header */
  #stop(header) {
    this.#workers.stop(this, String(header.worker), Number(header.grace_ms) || 0)
  }

  /** @param {string} message */
  #refuse(message) {
    this.#socket.end(encodeFrame(KIND.error, 0, JSON.stringify({ code: 'protocol', message })))
    this.#socket.destroySoon()
  }
}
