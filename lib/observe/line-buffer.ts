/**
 * The newest lines of one log as bytes. Owner: page observe/log-store.
 *
 * Thousands of lines a second kept as strings would be copied by the garbage collector again and again; as bytes in
 * pieces of LOG_PIECE_BYTES they cost one copy, and the same bytes go to the disk.
 */

import { LOG_MEMORY_BYTES, LOG_PIECE_BYTES, MAX_LOG_PENDING_BYTES } from '../core/limits.ts'

interface Piece {
  bytes: Buffer
  length: number
  /** So many bytes were taken for the disk. */
  taken: number
}

const NEWLINE = 10

export class LineBuffer {
  /** Oldest first; the last one is being filled. */
  readonly #pieces: Piece[] = []
  #pendingBytes = 0
  #dropped = 0
  readonly #isWritten: boolean

  /** @param isWritten - false when nobody takes the bytes */
  constructor(isWritten: boolean) {
    this.#isWritten = isWritten
  }

  /** True when there are bytes to take. */
  get isPending(): boolean {
    return this.#pendingBytes > 0
  }

  /** @param line - without line ends, at most MAX_LOG_LINE_BYTES */
  append(line: string): void {
    if (this.#pendingBytes > MAX_LOG_PENDING_BYTES) {
      this.#dropped += 1
      return
    }
    let piece = this.#pieces.at(-1)
    // A character takes three bytes at most per unit of its string.
    if (piece === undefined || piece.length + line.length * 3 + 1 > piece.bytes.length) piece = this.#nextPiece(line)
    const from = piece.length
    piece.length += piece.bytes.write(line, from)
    piece.bytes[piece.length++] = NEWLINE
    if (this.#isWritten) this.#pendingBytes += piece.length - from
    else piece.taken = piece.length
  }

  /** Puts lines of an earlier run before all others. */
  prepend(bytes: Buffer): void {
    if (bytes.length > 0) this.#pieces.unshift({ bytes, length: bytes.length, taken: bytes.length })
  }

  /** The bytes that were not taken yet, and how many lines found no room since the last time. */
  take(): { bytes: Buffer; dropped: number } {
    const views: Buffer[] = []
    for (const piece of this.#pieces) {
      if (piece.taken < piece.length) views.push(piece.bytes.subarray(piece.taken, piece.length))
      piece.taken = piece.length
    }
    const dropped = this.#dropped
    this.#pendingBytes = 0
    this.#dropped = 0
    this.#forget()
    return { bytes: Buffer.concat(views), dropped }
  }

  *newestFirst(): Generator<string> {
    for (let i = this.#pieces.length - 1; i >= 0; i--) {
      const { bytes, length } = this.#pieces[i]!
      const lines = bytes.toString('utf8', 0, length - 1).split('\n')
      for (let j = lines.length - 1; j >= 0; j--) yield lines[j]!
    }
  }

  #nextPiece(line: string): Piece {
    const bytes = Buffer.allocUnsafeSlow(Math.max(LOG_PIECE_BYTES, line.length * 3 + 1))
    const piece = { bytes, length: 0, taken: 0 }
    this.#pieces.push(piece)
    this.#forget()
    return piece
  }

  #forget(): void {
    let kept = 0
    for (const { length } of this.#pieces) kept += length
    while (this.#pieces.length > 1) {
      const oldest = this.#pieces[0]!
      if (kept <= LOG_MEMORY_BYTES - LOG_PIECE_BYTES || oldest.taken < oldest.length) return
      kept -= oldest.length
      this.#pieces.shift()
    }
  }
}
