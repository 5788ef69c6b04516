/**
 * A request's body on its way in: the pieces as node read them, and of a large one copies in memory that is used again.
 * Node's own pieces are given back as soon as they are copied, so that the engine never has to look for them, however long
 * the body waits for its worker. Owner: page core/byte-pool.
 */

import { type BytePool, type Bytes, giveBack, YoungGarbage } from '../core/byte-pool.ts'

const KIB = 1024
/** A longer body is copied. */
const GATHER_BYTES = 16 * KIB
/** Memory for the next part of it: as much as has come, so that a length that is a lie takes little. */
const MIN_PART_BYTES = 128 * KIB
const MAX_PART_BYTES = 1024 * KIB

class Upload {
  readonly #memory: UploadMemory
  readonly #declared: number
  readonly #isOurs: boolean
  #pieces: Buffer[] = []
  #bytes = 0
  #isGathered: boolean
  /** The part that is being filled, and how far it is. */
  #part: Buffer | null = null
  #filled = 0
  /** Bytes of its parts, which count in the budget. */
  #charged = 0

  constructor(memory: UploadMemory, declared: number, isOurs: boolean) {
    this.#memory = memory
    this.#declared = declared
    this.#isOurs = isOurs
    this.#isGathered = declared > GATHER_BYTES
  }

  /** @returns false when request bodies hold too much memory: this one is refused, and nothing of it is kept */
  add(piece: Buffer): boolean {
    if (!this.#isGathered && this.#bytes + piece.length > GATHER_BYTES) {
      this.#isGathered = true
      const early = this.#pieces
      this.#pieces = []
      this.#bytes = 0
      for (const one of early) if (!this.#copy(one)) return false
    }
    if (this.#isGathered) return this.#copy(piece)
    this.#memory.garbage.note(piece.length)
    this.#pieces.push(piece)
    this.#bytes += piece.length
    return true
  }

  /** All of it; until `free`. */
  take(): Bytes {
    this.#closePart()
    return this.#pieces.length === 1 ? this.#pieces[0]! : this.#pieces
  }

  /** Nobody needs it any more. Who still writes it holds it in the pool. */
  free(): void {
    this.#closePart()
    const { pool } = this.#memory
    for (const piece of this.#pieces) pool.free(piece)
    this.#pieces = []
    pool.received.used -= this.#charged
    this.#charged = 0
  }

  #copy(piece: Buffer): boolean {
    for (let at = 0; at < piece.length; ) {
      if ((this.#part === null || this.#filled === this.#part.length) && !this.#openPart()) {
        this.free()
        return false
      }
      const copied = piece.copy(this.#part!, this.#filled, at)
      this.#filled += copied
      this.#bytes += copied
      at += copied
    }
    // Node's parser makes each piece memory of its own. Where it should not, others lie beside it.
    if (this.#isOurs && piece.length === piece.buffer.byteLength) giveBack(piece)
    else this.#memory.garbage.note(piece.length)
    return true
  }

  #openPart(): boolean {
    this.#closePart()
    const { pool } = this.#memory
    if (pool.received.isFull(this.#charged)) return false
    const left = this.#declared - this.#bytes
    const wanted = Math.max(MIN_PART_BYTES, Math.min(MAX_PART_BYTES, this.#bytes))
    this.#part = pool.take(left > 0 ? Math.min(left, wanted) : wanted)
    this.#filled = 0
    pool.received.used += this.#part.length
    this.#charged += this.#part.length
    return true
  }

  #closePart(): void {
    if (this.#part !== null) this.#pieces.push(this.#part.subarray(0, this.#filled))
    this.#part = null
  }
}

/** Where the bodies of requests lie. */
export class UploadMemory {
  readonly pool: BytePool
  readonly garbage = new YoungGarbage()

  constructor(pool: BytePool) {
    this.pool = pool
  }

  /**
   * @param declared - bytes that the request says it has; -1 when it does not
   * @param isOurs - nobody else has the pieces
   */
  begin(declared: number, isOurs: boolean): Upload {
    return new Upload(this, declared, isOurs)
  }
}
