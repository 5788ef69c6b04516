/**
 * The lines behind `/_fn/logs`: the newest ones in memory, all of them in rotated files. Spec: §4.2, page observe/log-store.
 *
 *   append ─► LineBuffer ─► tail
 *                 └─(LOG_FLUSH_MS, one batch)─► <directory>/<file>.log ─► .1 ─► .2 ─► .3 ─► gone
 *
 * Writing never waits for the disk and never fails: what cannot be written stays in memory and is told once.
 */

import { access, constants, rename } from 'node:fs/promises'
import type { Clock } from '../core/clock.ts'
import { openToAppend, openToRead, type OwnFolder } from '../files/own-folder.ts'
import {
  eachLine,
  LineBuffer,
  type LineWriter,
  LOG_FLUSH_BYTES,
  LOG_FLUSH_MS,
  type WrittenLine,
} from './line-buffer.ts'
import {
  createLineFilter,
  LOG_FILES,
  type LogFile,
  type LogFilter,
  type LogOrigin,
  toLogLine,
  toOriginText,
} from './log-line.ts'

/** A log file of this many bytes is set aside, and so many old ones are kept. */
const MAX_LOG_FILE_BYTES = 16 * 1024 * 1024
const KEPT_LOG_FILES = 3
/** Bytes of a log file read to show what an earlier run left. */
const LOG_TAIL_BYTES = 256 * 1024

const NEWLINE = 10

export interface LogStoreOptions {
  clock: Clock
  /** Folder of the files, made when missing; null keeps lines in memory only. */
  directory: OwnFolder | null
  maxFileBytes?: number
  keptFiles?: number
  /** Told when the files cannot be written, once until they can be again. */
  onProblem: (message: string) => void
}

/** What a handler or worker wrote. */
interface RuntimeOutput extends LogOrigin {
  text: string
}

export interface LogQuery extends LogFilter {
  file: LogFile
}

interface TailQuery extends LogQuery {
  /** The newest so many lines. */
  lines: number
}

export class LogStore {
  readonly #options: LogStoreOptions
  readonly #writers: Record<LogFile, LogWriter>

  constructor(options: LogStoreOptions) {
    this.#options = options
    this.#writers = {
      error: new LogWriter('error', options),
      access: new LogWriter('access', options),
      runtime: new LogWriter('runtime', options),
    }
  }

  /**
   * Reads what earlier runs left. Never rejects.
   * @returns why the files cannot be written; null when they can
   */
  async open(): Promise<string | null> {
    const problems = await Promise.all(LOG_FILES.map(file => this.#writers[file].open()))
    return problems.find(problem => problem !== null) ?? null
  }

  /** Adds one line; time and form are the caller's. */
  append(file: LogFile, text: string): void {
    this.#writers[file].append(toLogLine(text))
  }

  /** Adds an access line; AccessLogFormat makes it printable and bounded. @returns where it is; null when it found no room */
  access<T>(format: LineWriter<T>, record: T): WrittenLine | null {
    return this.#writers.access.appendRecord(format, record)
  }

  /** Adds access lines that another process has made, each with its end. */
  accessLines(lines: Buffer): void {
    this.#writers.access.appendLines(lines)
  }

  /** Adds a word of the gateway itself to the error log. */
  error(level: 'info' | 'warn' | 'error', message: string): void {
    this.append('error', `${this.#now()} ${level} ${message}`)
  }

  /** Adds the lines of one failure. They have one time: a reader sees by it that they belong together. */
  failure(lines: readonly string[], origin: LogOrigin): void {
    const start = `${this.#now()} error ${toOriginText(origin)}`
    for (const line of lines) this.append('error', start + line)
  }

  /** Adds captured output, one line per line. */
  output({ text, ...origin }: RuntimeOutput): void {
    const start = `${this.#now()} ${toOriginText(origin)}`
    const isEnded = text.endsWith('\n')
    for (const line of (isEnded ? text.slice(0, -1) : text).split('\n'))
      this.append('runtime', start + (line.endsWith('\r') ? line.slice(0, -1) : line))
  }

  /** The newest lines that match, oldest first. */
  tail({ file, lines, ...filter }: TailQuery): string[] {
    const isWanted = createLineFilter(file, filter)
    const found: string[] = []
    if (lines === 0) return found
    for (const line of this.#writers[file].newestFirst()) {
      if (isWanted !== null && !isWanted(line)) continue
      found.push(line)
      if (found.length >= lines) break
    }
    return found.reverse()
  }

  /**
   * Tells every line that matches and comes from now on.
   * @returns a function that ends it
   */
  follow({ file, ...filter }: LogQuery, onLine: (line: string) => void): () => void {
    const isWanted = createLineFilter(file, filter)
    return this.#writers[file].follow(isWanted === null ? onLine : line => isWanted(line) && onLine(line))
  }

  /** Resolves when everything appended so far is in the files, or cannot be. */
  async flush(): Promise<void> {
    await Promise.all(LOG_FILES.map(file => this.#writers[file].flush()))
  }

  /** Flushes; lines after that stay in memory. */
  async close(): Promise<void> {
    await Promise.all(LOG_FILES.map(file => this.#writers[file].close()))
  }

  #now(): string {
    return new Date(this.#options.clock.wall()).toISOString()
  }
}

/** One log file and its newest lines. */
class LogWriter {
  readonly #file: LogFile
  readonly #options: LogStoreOptions
  readonly #path: string | null
  readonly #lines: LineBuffer
  readonly #followers = new Set<(line: string) => void>()
  #timer: NodeJS.Timeout | null = null
  #writing: Promise<void> | null = null
  #fileBytes = 0
  #isFailing = false
  #isClosed = false

  constructor(file: LogFile, options: LogStoreOptions) {
    this.#file = file
    this.#options = options
    this.#path = options.directory?.pathOf(`${file}.log`) ?? null
    this.#lines = new LineBuffer(this.#path !== null)
  }

  /** @returns why the file cannot be written */
  async open(): Promise<string | null> {
    if (this.#path === null) return null
    try {
      await access(await this.#options.directory!.ensure(), constants.W_OK)
      const { bytes, fileBytes } = await readTail(this.#path)
      this.#fileBytes = fileBytes
      this.#lines.prepend(bytes)
      return null
    } catch (error) {
      this.#report(error)
      return toReason(error)
    }
  }

  append(line: string): void {
    this.#lines.append(line)
    this.#flushSoon()
    for (const tell of this.#followers) tell(line)
  }

  appendRecord<T>(writer: LineWriter<T>, record: T): WrittenLine | null {
    const line = this.#lines.appendRecord(writer, record)
    this.#flushSoon()
    if (this.#followers.size > 0 && line !== null) {
      const text = line.bytes.toString('utf8', line.from, line.to)
      for (const tell of this.#followers) tell(text)
    }
    return line
  }

  appendLines(lines: Buffer): void {
    this.#lines.appendLines(lines)
    this.#flushSoon()
    if (this.#followers.size === 0) return
    eachLine(lines, ({ bytes, from, to }) => {
      const text = bytes.toString('utf8', from, to)
      for (const tell of this.#followers) tell(text)
    })
  }

  follow(onLine: (line: string) => void): () => void {
    // One of its own, so that a listener that comes twice is two followers.
    const tell = (line: string): void => onLine(line)
    this.#followers.add(tell)
    return () => this.#followers.delete(tell)
  }

  #flushSoon(): void {
    if (this.#timer === null) {
      if (this.#isClosed || this.#path === null) return
      this.#timer = this.#options.clock.setTimeout(this.#onTimer, LOG_FLUSH_MS)
    } else if (this.#writing === null && this.#lines.pendingBytes >= LOG_FLUSH_BYTES) {
      // Written early rather than at the next tick of the clock: the bytes are still in the processor's cache, and few wait.
      void this.flush()
    }
  }

  readonly #onTimer = (): void => void this.flush()

  newestFirst(): Iterable<string> {
    return this.#lines.newestFirst()
  }

  /** One batch at a time; lines that come meanwhile make the next. */
  async flush(): Promise<void> {
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    this.#timer = null
    while (this.#writing !== null) await this.#writing
    if (this.#lines.pendingBytes === 0 || this.#isClosed) return
    this.#writing = this.#write()
    await this.#writing
    this.#writing = null
  }

  async close(): Promise<void> {
    while (this.#lines.pendingBytes > 0 && !this.#isClosed) await this.flush()
    this.#isClosed = true
  }

  async #write(): Promise<void> {
    const { views, dropped } = this.#lines.take()
    if (dropped > 0) views.push(Buffer.from(`... ${dropped} lines were dropped: the disk is too slow\n`))
    let bytes = 0
    for (const view of views) bytes += view.length
    const path = this.#path!
    try {
      const limit = this.#options.maxFileBytes ?? MAX_LOG_FILE_BYTES
      await this.#options.directory!.ensure()
      if (this.#fileBytes > 0 && this.#fileBytes + bytes > limit) await this.#rotate(path)
      const file = await openToAppend(path)
      try {
        for (const view of views) await file.appendFile(view)
      } finally {
        await file.close()
      }
      this.#fileBytes += bytes
      this.#isFailing = false
    } catch (error) {
      this.#report(error)
    } finally {
      this.#lines.giveBack()
    }
  }

  async #rotate(path: string): Promise<void> {
    const kept = this.#options.keptFiles ?? KEPT_LOG_FILES
    for (let age = kept; age >= 1; age--) {
      await rename(age === 1 ? path : `${path}.${age - 1}`, `${path}.${age}`).catch(ignoreMissing)
    }
    this.#fileBytes = 0
  }

  #report(error: unknown): void {
    if (this.#isFailing) return
    this.#isFailing = true
    this.#options.onProblem(
      `${this.#file} log cannot be written, its lines are kept in memory only: ${toReason(error)}`,
    )
  }
}

function toReason(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error
}

/** The last LOG_TAIL_BYTES of a file as whole lines, and its size. */
async function readTail(path: string): Promise<{ bytes: Buffer; fileBytes: number }> {
  const handle = await openToRead(path)
  if (handle === null) return { bytes: Buffer.alloc(0), fileBytes: 0 }
  try {
    const fileBytes = (await handle.stat()).size
    const from = Math.max(0, fileBytes - LOG_TAIL_BYTES)
    const buffer = Buffer.alloc(fileBytes - from)
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, from)
    const end = buffer.lastIndexOf(NEWLINE, bytesRead - 1) + 1
    return { bytes: buffer.subarray(from > 0 ? buffer.indexOf(NEWLINE) + 1 : 0, end), fileBytes }
  } finally {
    await handle.close()
  }
}
