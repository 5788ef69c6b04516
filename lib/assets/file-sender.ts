/**
 * Sends a part of an open file as fast as the client takes it. Owner: §2.11.
 *
 *   read ─► ready ─► write        the next piece is read while this one is written
 *    ▲ ahead  │ client slow: waits for it
 *    └────────┘
 */

import { close, read } from 'node:fs'
import { GatewayError } from '../core/errors.ts'
import type { Semaphore } from '../core/semaphore.ts'
import type { Abandonable, Exchange } from '../http/exchange.ts'

/**
 * Bytes of a file that are read at once. A reading thread that sleeps is woken for each piece, which costs more than to read
 * 128 KiB: a client that has taken one piece before the next one is read gets large ones. Two of them still lie in a
 * processor's own cache.
 */
const PIECE_BYTES = { small: 128 * 1024, large: 512 * 1024 } as const
/** Transfers with large pieces at once: all others hold two small ones, however many clients stop to read. */
export const LARGE_TRANSFERS = 16

export class FileSender implements Abandonable {
  readonly #exchange: Exchange
  readonly #fd: number
  #position: number
  readonly #end: number
  readonly #large: Semaphore
  /** It may send large pieces, to its end: what the client has not taken of one is held until then. */
  #mayBeLarge = false
  #pieceBytes: number = PIECE_BYTES.small
  #hasWritten = false
  /** Read and not written. */
  #ready: Buffer | null = null
  #isReading = false
  /** The client is waited for. */
  #isBlocked = false
  #isOver = false

  /**
   * @param fd - open file, counted in `descriptors`; closed by the sender, whatever happens
   * @param start - first byte
   * @param end - byte after the last
   * @param large - shared by all transfers
   */
  constructor(exchange: Exchange, fd: number, start: number, end: number, large: Semaphore) {
    this.#exchange = exchange
    this.#large = large
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
    const length = Math.min(this.#pieceBytes, this.#end - this.#position)
    if (length === 0) return
    this.#isReading = true
    const memory = this.#exchange.responder.pool.take(length)
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
    if (this.#hasWritten) this.#adapt()
    if (!this.#isBlocked) this.#write(this.#ready)
  }

  /** Large pieces while the client waits for the disk, small ones while it is waited for. */
  #adapt(): void {
    this.#mayBeLarge ||= !this.#isBlocked && this.#large.tryTake()
    this.#pieceBytes = this.#mayBeLarge && !this.#isBlocked ? PIECE_BYTES.large : PIECE_BYTES.small
  }

  #write(piece: Buffer): void {
    this.#ready = null
    this.#hasWritten = true
    this.#read()
    const { responder } = this.#exchange
    // Only now that the system has its bytes may the memory be written over.
    const onTaken = () => responder.pool.free(piece)
    if (responder.writeStream(this.#exchange, piece, true, onTaken)) {
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
    if (this.#mayBeLarge) this.#large.release()
    this.#mayBeLarge = false
    close(this.#fd, () => {})
    this.#exchange.responder.descriptors.giveBack()
  }
}
