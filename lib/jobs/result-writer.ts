/**
 * The answer of a job on its way into the store: a line of JSON with status and headers, then the bytes of the body.
 * Memory holds one piece at a time. Owner: page jobs/file-store.
 */

import { isUtf8 } from 'node:buffer'
import type { BodySink } from '../invocation/internal-call.ts'
import type { PartWriter } from './job-store.ts'

/** First line of a kept result. */
export interface ResultHead {
  status: number
  /** Names and values in turn. */
  headers: readonly string[]
}

interface ResultWriterOptions {
  open: () => Promise<PartWriter>
  /** Bytes of the body that are kept; 0 keeps all. */
  maxBytes: number
  /** Told when no more is kept: who makes the rest need not go on. */
  onFull: () => void
}

export class ResultWriter implements BodySink {
  readonly #options: ResultWriterOptions
  readonly #text = new TextCheck()
  #part: PartWriter | null = null
  #head: ResultHead | null = null
  bytes = 0
  truncated = false
  /** Why the result cannot be kept, such as a full disk; null while it can. The handler goes on all the same. */
  problem: string | null = null

  constructor(options: ResultWriterOptions) {
    this.#options = options
  }

  /** null while no answer has begun. */
  get status(): number | null {
    return this.#head?.status ?? null
  }

  begin(status: number, headers: readonly string[]): void {
    this.#head = { status, headers }
  }

  async write(piece: Buffer): Promise<void> {
    if (this.truncated || this.problem !== null) return
    const { maxBytes } = this.#options
    const room = maxBytes === 0 ? piece.length : Math.min(piece.length, maxBytes - this.bytes)
    const kept = piece.subarray(0, room)
    this.#text.add(kept)
    if (!(await this.#tryTo(part => part.write(kept)))) return
    this.bytes += room
    if (room === piece.length) return
    this.truncated = true
    this.#options.onFull()
  }

  /** Keeps what was written. @returns whether the body is text; null when there was no answer, or it cannot be kept */
  async end(): Promise<{ isText: boolean } | null> {
    if (this.#head === null) {
      await this.#part?.discard()
      return null
    }
    if (this.problem !== null || !(await this.#tryTo(part => part.end()))) return null
    // A cut may go through a character.
    return { isText: this.#text.isText && (this.truncated || this.#text.isWhole) }
  }

  async discard(): Promise<void> {
    await this.#part?.discard()
    this.#part = null
  }

  async #tryTo(work: (part: PartWriter) => Promise<void>): Promise<boolean> {
    try {
      await work(await this.#open())
      return true
    } catch (error) {
      this.problem = (error as Error).message
      await this.discard()
      return false
    }
  }

  async #open(): Promise<PartWriter> {
    if (this.#part === null) {
      this.#part = await this.#options.open()
      await this.#part.write(Buffer.from(`${JSON.stringify(this.#head)}\n`))
    }
    return this.#part
  }
}

/** Bytes of an unfinished character that a piece may end with. */
const MAX_RESTS = 3

/** Whether bytes that come in pieces are UTF-8, cuts inside characters included. */
export class TextCheck {
  #rest: Buffer = Buffer.alloc(0)
  isText = true

  /** False when the last character is unfinished. */
  get isWhole(): boolean {
    return this.#rest.length === 0
  }

  add(piece: Buffer): void {
    if (!this.isText || piece.length === 0) return
    const bytes = this.#rest.length === 0 ? piece : Buffer.concat([this.#rest, piece])
    const start = lastStart(bytes)
    this.#rest = Buffer.from(bytes.subarray(start))
    this.isText = isUtf8(bytes.subarray(0, start))
  }
}

/** Index of an unfinished character at the end; the length when the last one is whole. */
function lastStart(bytes: Buffer): number {
  for (let back = 1; back <= Math.min(MAX_RESTS, bytes.length); back++) {
    const byte = bytes[bytes.length - back]!
    if (byte < 0x80) return bytes.length
    if (byte < 0xc0) continue
    const wanted = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2
    return wanted > back ? bytes.length - back : bytes.length
  }
  return bytes.length
}
