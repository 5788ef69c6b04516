/**
 * Lines for a stream, such as standard output: in batches, and never more in memory than a fixed amount.
 * Owner: page observe/log-store.
 *
 * One write per request would cost more than the line, and a stream whose reader has stopped keeps all that is written.
 */

import type { Writable } from 'node:stream'
import type { Clock } from '../core/clock.ts'
import { LineBuffer, type LineWriter, type WrittenLine } from './line-buffer.ts'
import { LOG_FLUSH_BYTES, LOG_FLUSH_MS } from './log-store.ts'

interface LineStreamOptions {
  clock: Clock
  stream: Writable
  /** The line that stands for so many that found no room. */
  toDropLine: (count: number) => string
}

export class LineStream {
  readonly #options: LineStreamOptions
  /** Nobody asks for lines that the stream has. */
  readonly #lines = new LineBuffer(true, 0)
  #timer: NodeJS.Timeout | null = null
  #writing: Promise<void> | null = null
  #isGone = false

  constructor(options: LineStreamOptions) {
    this.#options = options
    // A reader that went away is no reason to stop serving.
    options.stream.on('error', () => {})
    options.stream.once('close', () => {
      this.#isGone = true
    })
  }

  /** @param line - without line ends, at most MAX_LOG_LINE_BYTES */
  append(line: string): void {
    this.#lines.append(line)
    this.#flushSoon()
  }

  appendRecord<T>(writer: LineWriter<T>, record: T): void {
    this.#lines.appendRecord(writer, record)
    this.#flushSoon()
  }

  appendCopy(line: WrittenLine): void {
    this.#lines.appendCopy(line)
    this.#flushSoon()
  }

  /** @param lines - each with its end */
  appendLines(lines: Buffer): void {
    this.#lines.appendLines(lines)
    this.#flushSoon()
  }

  /** Resolves when everything appended so far is with the system, or the reader is gone. */
  async flush(): Promise<void> {
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    this.#timer = null
    while (this.#writing !== null) await this.#writing
    if (this.#lines.pendingBytes === 0) return
    this.#writing = this.#write()
    await this.#writing
    this.#writing = null
  }

  #flushSoon(): void {
    if (this.#writing !== null || this.#isGone) return
    if (this.#timer === null) {
      this.#timer = this.#options.clock.setTimeout(() => void this.flush(), LOG_FLUSH_MS)
      this.#timer.unref?.()
    } else if (this.#lines.pendingBytes >= LOG_FLUSH_BYTES) void this.flush()
  }

  async #write(): Promise<void> {
    const { views, dropped } = this.#lines.take()
    if (dropped > 0) views.push(Buffer.from(`${this.#options.toDropLine(dropped)}\n`))
    // The bytes are lent until the stream has them: while it has not, new lines wait in the buffer, up to its limit.
    for (const view of views) await this.#put(view)
    this.#lines.giveBack()
    if (this.#lines.pendingBytes > 0 && !this.#isGone) {
      this.#timer ??= this.#options.clock.setTimeout(() => void this.flush(), LOG_FLUSH_MS)
      this.#timer.unref?.()
    }
  }

  #put(bytes: Buffer): Promise<void> {
    const { stream } = this.#options
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
