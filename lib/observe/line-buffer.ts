/**
 * The newest lines of one log as bytes. Owner: page observe/log-store.
 *
 * Thousands of lines a second kept as strings would be copied by the garbage collector again and again; as bytes in
 * pieces of LOG_PIECE_BYTES they cost one copy, the same bytes go to the disk, and their memory is used again.
 */

import type { Writable } from 'node:stream'
import { type Clock, Timer } from '../core/clock.ts'

/** Bytes of one log line. */
export const MAX_LOG_LINE_BYTES = 8 * 1024
/** Milliseconds log lines may wait for the disk or a stream. */
export const LOG_FLUSH_MS = 100
/** Bytes of a log that go there without waiting for that. */
export const LOG_FLUSH_BYTES = 256 * 1024
/** Newest lines kept in memory, bytes per file, and bytes of one piece. */
export const LOG_MEMORY_BYTES = 1024 * 1024
const LOG_PIECE_BYTES = 64 * 1024
/** Bytes of log lines that may wait for the disk. */
const MAX_LOG_PENDING_BYTES = 4 * 1024 * 1024

interface Piece {
  bytes: Buffer
  length: number
  /** Bytes that were taken for the disk. */
  taken: number
}

/** Writes a line straight into a piece. */
export interface LineWriter<T> {
  /**
   * @param bytes - with room for MAX_LOG_LINE_BYTES behind `from`
   * @returns where the line ends
   */
  write(record: T, bytes: Buffer, from: number): number
}

/** A line in the memory where it was written: valid until the next one is. */
export interface WrittenLine {
  readonly bytes: Buffer
  readonly from: number
  readonly to: number
}

const NEWLINE = 10

/** The lines of many, each with its end; each is valid during the call only. */
export function eachLine(bytes: Buffer, onLine: (line: WrittenLine) => void): void {
  for (let from = 0; from < bytes.length; ) {
    const end = bytes.indexOf(NEWLINE, from)
    const to = end === -1 ? bytes.length : end
    onLine({ bytes, from, to })
    from = to + 1
  }
}

/** Pieces whose memory waits to be used again. */
const SPARE_PIECES = 8

export class LineBuffer {
  /** Oldest first; the last one is being filled. */
  readonly #pieces: Piece[] = []
  readonly #spare: Buffer[] = []
  #pendingBytes = 0
  #dropped = 0
  /** True while the disk reads what was taken. */
  #isLent = false
  readonly #isWritten: boolean
  readonly #keptBytes: number
  /** One object for all lines: it is made for each request. */
  readonly #newest: { -readonly [Field in keyof WrittenLine]: WrittenLine[Field] } = {
    bytes: Buffer.alloc(0),
    from: 0,
    to: 0,
  }

  /**
   * @param isWritten - false when the bytes are never taken
   * @param keptBytes - bytes of taken lines that are kept
   */
  constructor(isWritten: boolean, keptBytes = LOG_MEMORY_BYTES) {
    this.#isWritten = isWritten
    this.#keptBytes = keptBytes
  }

  /** Bytes to take. */
  get pendingBytes(): number {
    return this.#pendingBytes
  }

  /** @param line - without line ends, at most MAX_LOG_LINE_BYTES */
  append(line: string): void {
    if (this.#isFull()) return
    // A character takes three bytes at most per unit of its string.
    const piece = this.#pieceWith(line.length * 3 + 1)
    this.#end(piece, piece.length + piece.bytes.write(line, piece.length))
  }

  /** Adds the line that `writer` makes of a record. @returns null when it found no room */
  appendRecord<T>(writer: LineWriter<T>, record: T): WrittenLine | null {
    if (this.#isFull()) return null
    const piece = this.#pieceWith(MAX_LOG_LINE_BYTES + 1)
    const newest = this.#newest
    newest.bytes = piece.bytes
    newest.from = piece.length
    newest.to = writer.write(record, piece.bytes, piece.length)
    this.#end(piece, newest.to)
    return newest
  }

  /** Adds a line that was written elsewhere. */
  appendCopy({ bytes, from, to }: WrittenLine): void {
    if (this.#isFull()) return
    const piece = this.#pieceWith(to - from + 1)
    bytes.copy(piece.bytes, piece.length, from, to)
    this.#end(piece, piece.length + to - from)
  }

  /**
   * Adds lines that were written elsewhere, each with its end and at most MAX_LOG_LINE_BYTES: copied as few pieces.
   * @throws Error for another kind of line
   */
  appendLines(bytes: Buffer): void {
    if (bytes.length > 0 && bytes.at(-1) !== NEWLINE)
      throw new Error('lines of another process: the last one has no end')
    for (let from = 0; from < bytes.length; ) {
      if (this.#isFull()) {
        // One was counted.
        eachLine(bytes.subarray(bytes.indexOf(NEWLINE, from) + 1), () => (this.#dropped += 1))
        return
      }
      const piece = this.#pieceWith(MAX_LOG_LINE_BYTES + 1)
      const room = piece.bytes.length - piece.length
      const to = bytes.length - from <= room ? bytes.length : bytes.lastIndexOf(NEWLINE, from + room - 1) + 1
      if (to <= from) throw new Error(`lines of another process: one is longer than ${MAX_LOG_LINE_BYTES} bytes`)
      this.#end(piece, piece.length + bytes.copy(piece.bytes, piece.length, from, to - 1))
      from = to
    }
  }

  /** Puts lines of an earlier run before all others. */
  prepend(bytes: Buffer): void {
    if (bytes.length > 0) this.#pieces.unshift({ bytes, length: bytes.length, taken: bytes.length })
  }

  /** The bytes that were not taken yet, lent until `giveBack`, and how many lines found no room since the last time. */
  take(): { views: Buffer[]; dropped: number } {
    const views: Buffer[] = []
    for (const piece of this.#pieces) {
      if (piece.taken < piece.length) views.push(piece.bytes.subarray(piece.taken, piece.length))
      piece.taken = piece.length
    }
    const dropped = this.#dropped
    this.#pendingBytes = 0
    this.#dropped = 0
    this.#isLent = true
    return { views, dropped }
  }

  giveBack(): void {
    this.#isLent = false
    this.#forget()
  }

  *newestFirst(): Generator<string> {
    for (let i = this.#pieces.length - 1; i >= 0; i--) {
      const { bytes, length } = this.#pieces[i]!
      const lines = bytes.toString('utf8', 0, length - 1).split('\n')
      for (let j = lines.length - 1; j >= 0; j--) yield lines[j]!
    }
  }

  #isFull(): boolean {
    if (this.#pendingBytes <= MAX_LOG_PENDING_BYTES) return false
    this.#dropped += 1
    return true
  }

  #end(piece: Piece, at: number): void {
    const from = piece.length
    piece.bytes[at] = NEWLINE
    piece.length = at + 1
    if (this.#isWritten) this.#pendingBytes += piece.length - from
    else piece.taken = piece.length
  }

  #pieceWith(room: number): Piece {
    const last = this.#pieces.at(-1)
    if (last !== undefined && last.length + room <= last.bytes.length) return last
    this.#forget()
    const bytes =
      room <= LOG_PIECE_BYTES
        ? (this.#spare.pop() ?? Buffer.allocUnsafeSlow(LOG_PIECE_BYTES))
        : Buffer.allocUnsafe(room)
    const piece = { bytes, length: 0, taken: 0 }
    this.#pieces.push(piece)
    return piece
  }

  /** Lets the oldest pieces go when the newer ones are enough, unless the disk still reads or waits for them. */
  #forget(): void {
    if (this.#isLent) return
    let kept = 0
    for (const { length } of this.#pieces) kept += length
    while (this.#pieces.length > 1) {
      const oldest = this.#pieces[0]!
      if (kept <= Math.max(0, this.#keptBytes - LOG_PIECE_BYTES) || oldest.taken < oldest.length) return
      kept -= oldest.length
      this.#pieces.shift()
      if (oldest.bytes.length === LOG_PIECE_BYTES && this.#spare.length < SPARE_PIECES) this.#spare.push(oldest.bytes)
    }
  }
}

interface LineBatchesOptions {
  clock: Clock
  lines: LineBuffer
  /** True: lines that wait do not keep the process running. */
  isBackground: boolean
  /** The line that replaces a number of dropped lines. */
  toDropLine: (count: number) => string
}

/**
 * Lines that leave in batches, one at a time: LOG_FLUSH_MS after the first of them, or earlier when many wait. Lines that come during a
 * batch make the next one.
 */
export abstract class LineBatches {
  protected readonly lines: LineBuffer
  readonly #timer: Timer
  readonly #toDropLine: (count: number) => string
  #writing: Promise<void> | null = null

  constructor({ clock, lines, isBackground, toDropLine }: LineBatchesOptions) {
    this.lines = lines
    this.#timer = new Timer(clock, isBackground)
    this.#toDropLine = toDropLine
  }

  /** False when nothing is written any more by itself. */
  protected abstract get isOpen(): boolean

  /** Never rejects. @param views - lent until this resolves: new lines wait in the buffer meanwhile, up to its limit */
  protected abstract write(views: readonly Buffer[]): Promise<void>

  /** @param line - without line ends, at most MAX_LOG_LINE_BYTES */
  append(line: string): void {
    this.lines.append(line)
    this.#flushSoon()
  }

  appendRecord<T>(writer: LineWriter<T>, record: T): WrittenLine | null {
    const line = this.lines.appendRecord(writer, record)
    this.#flushSoon()
    return line
  }

  appendCopy(line: WrittenLine): void {
    this.lines.appendCopy(line)
    this.#flushSoon()
  }

  /** @param lines - each with its end */
  appendLines(lines: Buffer): void {
    this.lines.appendLines(lines)
    this.#flushSoon()
  }

  /** Resolves when everything appended so far is written, or cannot be. */
  async flush(): Promise<void> {
    while (this.#writing !== null) await this.#writing
    this.#timer.clear()
    if (this.lines.pendingBytes === 0) return
    this.#writing = this.#writeBatch()
    await this.#writing
    this.#writing = null
    if (this.lines.pendingBytes > 0) this.#flushSoon()
  }

  async #writeBatch(): Promise<void> {
    const { views, dropped } = this.lines.take()
    if (dropped > 0) views.push(Buffer.from(`${this.#toDropLine(dropped)}\n`))
    await this.write(views)
    this.lines.giveBack()
  }

  #flushSoon(): void {
    if (this.#writing !== null || !this.isOpen) return
    if (!this.#timer.isSet) this.#timer.set(LOG_FLUSH_MS, () => void this.flush())
    // Before the timer: the bytes are still in the processor's cache, and few wait.
    else if (this.lines.pendingBytes >= LOG_FLUSH_BYTES) void this.flush()
  }
}

interface LineStreamOptions extends Pick<LineBatchesOptions, 'clock' | 'toDropLine'> {
  stream: Writable
}

/**
 * Lines for a stream, such as standard output, in batches and in a bounded amount of memory: one write per request would cost
 * more than the line, and a stream whose reader has stopped keeps everything that is written.
 */
export class LineStream extends LineBatches {
  readonly #stream: Writable
  #isGone = false

  constructor({ stream, ...options }: LineStreamOptions) {
    // Lines that the stream has are not kept.
    super({ ...options, lines: new LineBuffer(true, 0), isBackground: true })
    this.#stream = stream
    // A reader that is gone does not stop the gateway.
    stream.on('error', () => {})
    stream.once('close', () => {
      this.#isGone = true
    })
  }

  protected get isOpen(): boolean {
    return !this.#isGone
  }

  protected async write(views: readonly Buffer[]): Promise<void> {
    for (const view of views) await this.#put(view)
  }

  #put(bytes: Buffer): Promise<void> {
    const stream = this.#stream
    if (this.#isGone || stream.destroyed) return Promise.resolve()
    return new Promise(resolve => {
      const done = () => {
        stream.off('close', done)
        resolve()
      }
      // A reader that goes away while it is waited for never takes the bytes.
      stream.once('close', done)
      stream.write(bytes, done)
    })
  }
}
