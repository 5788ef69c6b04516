/** Sends a part of an open file as fast as the client takes it. Owner: §2.11. */

import { close, read } from 'node:fs'
import { GatewayError } from '../core/errors.ts'
import type { Abandonable, Exchange } from '../http/exchange.ts'

/** Bytes of a file that are read at once. */
const ASSET_CHUNK_BYTES = 256 * 1024

export class FileSender implements Abandonable {
  readonly #exchange: Exchange
  readonly #fd: number
  #position: number
  readonly #end: number
  #isReading = false
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
    this.#read()
  }

  /** The client is gone. */
  abandon(): void {
    if (this.#isOver) return
    this.#isOver = true
    if (!this.#isReading) this.#close()
  }

  #read(): void {
    if (this.#isOver) return
    const length = Math.min(ASSET_CHUNK_BYTES, this.#end - this.#position)
    if (length === 0) {
      this.#finish(null)
      return
    }
    this.#isReading = true
    // Memory of its own per piece: the last one may still be on its way to the client.
    const piece = Buffer.allocUnsafeSlow(length)
    read(this.#fd, piece, 0, length, this.#position, (error, bytes) => {
      this.#isReading = false
      if (this.#isOver) this.#close()
      else if (error !== null) this.#finish(new GatewayError('INTERNAL', 'file cannot be read', { cause: error }))
      else if (bytes === 0) this.#finish(new GatewayError('INTERNAL', 'file became shorter while it was sent'))
      else this.#write(bytes === length ? piece : piece.subarray(0, bytes))
    })
  }

  #write(piece: Buffer): void {
    const { responder } = this.#exchange
    this.#position += piece.length
    if (responder.writeStream(this.#exchange, piece, true)) this.#read()
    else responder.onDrain(this.#exchange, () => this.#read())
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
