/**
 * A function's streamed answer on its way to the client. What comes in one read of a worker leaves in one write, and one write is under
 * way at a time: what comes meanwhile is gathered behind it. Owner: §4.1.
 *
 *   piece ─► copied behind what is gathered ─ end of the tick, nothing under way ─► written ─ taken ─► granted to the worker
 *                        ▲                                                            │
 *                        └──────────────── what came meanwhile is written next ◄──────┘
 */

import type { Exchange } from './exchange.ts'

export class PieceWriter {
  readonly #exchange: Exchange
  readonly #onTaken: (bytes: number) => void
  /** Memory of the pool: what is gathered, in order, and what of it is filled. */
  #slabs: Buffer[] = []
  #pieces: Buffer[] = []
  #bytes = 0
  /** Writes that the system has not taken: two at the end. */
  #underWay = 0
  #isWatched = false
  #isPlanned = false
  readonly #flushLater = (): void => {
    this.#isPlanned = false
    if (this.#underWay === 0) this.flush()
  }

  /** @param onTaken - told of bytes that the system has */
  constructor(exchange: Exchange, onTaken: (bytes: number) => void) {
    this.#exchange = exchange
    this.#onTaken = onTaken
  }

  /** @param piece - copied: the caller may use its memory again */
  add(piece: Buffer): void {
    if (piece.length === 0) return
    const { connection, responder } = this.#exchange
    this.#copy(piece)
    this.#bytes += piece.length
    connection.hold(piece.length, responder.pool.unread)
    if (this.#underWay > 0 || this.#isPlanned) return
    this.#isPlanned = true
    process.nextTick(this.#flushLater)
  }

  /** Writes what is gathered, behind what is under way. */
  flush(): void {
    const [slabs, pieces, bytes] = [this.#slabs, this.#pieces, this.#bytes]
    if (bytes === 0) return
    this.#slabs = []
    this.#pieces = []
    this.#bytes = 0
    if (this.#exchange.ended) {
      this.#free(slabs, bytes)
      return
    }
    this.#underWay += 1
    const { responder } = this.#exchange
    const isTaken = responder.writePieces(this.#exchange, pieces, bytes, () => this.#handleTaken(slabs, bytes))
    if (isTaken || this.#isWatched) return
    this.#isWatched = true
    responder.watchClient(this.#exchange, true)
  }

  #handleTaken(slabs: readonly Buffer[], bytes: number): void {
    this.#underWay -= 1
    if (this.#isWatched && this.#underWay === 0) {
      this.#isWatched = false
      this.#exchange.responder.watchClient(this.#exchange, false)
    }
    this.#free(slabs, bytes)
    this.#onTaken(bytes)
    if (this.#underWay === 0 && !this.#isPlanned) this.flush()
  }

  /** Small pieces share memory: a slow client would have many of them waiting. */
  #copy(piece: Buffer): void {
    const last = this.#pieces.length - 1
    const slab = this.#slabs[last]
    const filled = slab === undefined ? 0 : this.#pieces[last]!.length
    if (slab !== undefined && piece.length <= slab.length - filled) {
      piece.copy(slab, filled)
      this.#pieces[last] = slab.subarray(0, filled + piece.length)
      return
    }
    const taken = this.#exchange.responder.pool.take(Math.max(piece.length, SMALLEST_BYTES))
    piece.copy(taken)
    this.#slabs.push(taken)
    this.#pieces.push(taken.subarray(0, piece.length))
  }

  #free(slabs: readonly Buffer[], bytes: number): void {
    for (const slab of slabs) this.#exchange.responder.pool.free(slab)
    this.#exchange.connection.release(bytes)
  }
}

/** Bytes of the pool's smallest memory: less costs as much. */
const SMALLEST_BYTES = 16 * 1024
