/**
 * Sends a part of an open file as fast as the client takes it. Owner: §2.11.
 *
 *   read ─► ready ─► write        the next piece is read while this one is written
 *    ▲ ahead  │ client slow: waits for it
 *    └────────┘
 */

import { close, read } from 'node:fs'
import { GatewayError } from '../core/errors.ts'
import type { Abandonable, Exchange } from '../http/exchange.ts'

/** Bytes of a file that are read at once: two pieces lie in a processor's own cache, and are all that a slow client holds. */
const ASSET_CHUNK_BYTES = 128 * 1024

export class FileSender implements Abandonable {
  readonly #exchange: Exchange
  readonly #fd: number
  #position: number
  readonly #end: number
  /** Memory of pieces that the client has. */
  readonly #free: Buffer[] = []
  /** Read and not written. */
  #ready: Buffer | null = null
  #isReading = false
  /** The client is waited for. */
  #isBlocked = false
  #isOver = false

  /**
   * @param fd - open file; closed by the sender, whatever happens
   * @param start - first byte
   * @param end - byte after the last
   */
  constructor(exchange: Exchange, fd: number, start: number, end: number) {
    this.#exchange = exchange
    this.#fd = fd
    this.#position = start
    this.#end = end
  }

  /** The answer must be open, with the length of the part. */
  start(): void {
    this.#exchange.work = this
    if (this.#position === this.#end) this.#finish(null)
    else this.#read()
  }

  /** The client is gone. */
  abandon(): void {
    if (this.#isOver) return
    this.#isOver = true
    if (!this.#isReading) this.#close()
  }

  #read(): void {
    const length = Math.min(ASSET_CHUNK_BYTES, this.#end - this.#position)
    if (length === 0) return
    this.#isReading = true
    const memory = this.#free.pop() ?? Buffer.allocUnsafeSlow(length)
    read(this.#fd, memory, 0, length, this.#position, (error, bytes) => {
      this.#isReading = false
      if (this.#isOver) this.#close()
      else if (error !== null) this.#finish(new GatewayError('INTERNAL', 'file cannot be read', { cause: error }))
      else if (bytes === 0) this.#finish(new GatewayError('INTERNAL', 'file became shorter while it was sent'))
      else this.#take(memory, bytes)
    })
  }

  #take(memory: Buffer, bytes: number): void {
    this.#position += bytes
    this.#ready = bytes === memory.length ? memory : memory.subarray(0, bytes)
    if (!this.#isBlocked) this.#write(this.#ready)
  }

  #write(piece: Buffer): void {
    this.#ready = null
    this.#read()
    const { responder } = this.#exchange
    // Only now that the system has its bytes may the memory be written over.
    const onTaken = () => this.#free.push(piece)
    if (responder.writeStream(this.#exchange, piece, true, piece.length === ASSET_CHUNK_BYTES ? onTaken : null)) {
      this.#goOn()
      return
    }
    this.#isBlocked = true
    responder.onDrain(this.#exchange, () => {
      this.#isBlocked = false
      if (!this.#isOver) this.#goOn()
    })
  }

  /** The client took what was written. */
  #goOn(): void {
    if (this.#ready !== null) this.#write(this.#ready)
    else if (!this.#isReading) this.#finish(null)
  }

  #finish(error: GatewayError | null): void {
    this.#isOver = true
    this.#close()
    // With an error the connection is cut: the client must not take a part for the whole.
    this.#exchange.responder.closeStream(this.#exchange, error)
  }

  #close(): void {
    close(this.#fd, () => {})
  }
}
