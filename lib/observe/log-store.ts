/**
 * The lines behind `/_fn/logs`: the newest ones in memory, all of them in rotated files. Spec: §4.2, page observe/log-store.
 *
 *   append ─► LineBuffer ─► tail
 *                 └─(LOG_FLUSH_MS, one batch)─► <directory>/<file>.log ─► .1 ─► .2 ─► .3 ─► deleted
 *
 * Writing never waits for the disk and never fails: lines that cannot be written stay in memory, and the problem is reported once.
 */

import { access, constants, rename } from 'node:fs/promises'
import { type Clock, Timer } from '../core/clock.ts'
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
  toLines,
  toLogLine,
  toOriginText,
} from './log-line.ts'

/** Bytes after which a log file is rotated, and the number of old ones. */
const MAX_LOG_FILE_BYTES = 16 * 1024 * 1024
const KEPT_LOG_FILES = 3
/** Bytes of a log file that are read to show the lines of an earlier run. */
const LOG_TAIL_BYTES = 256 * 1024

const NEWLINE = 10

export interface LogStoreOptions {
  clock: Clock
  /** Folder of the files, made when missing; null keeps lines in memory only. */
  directory: OwnFolder | null
  maxFileBytes?: number
  keptFiles?: number
  /** Called when a file cannot be written, once until it can be again. */
  onProblem: (message: string) => void
}

export interface LogQuery extends LogFilter {
  file: LogFile
}

export class LogStore {
  readonly #clock: Clock
  readonly #writers: Record<LogFile, LogWriter>

  constructor(options: LogStoreOptions) {
    this.#clock = options.clock
    this.#writers = {
      error: new LogWriter('error', options),
      access: new LogWriter('access', options),
      runtime: new LogWriter('runtime', options),
    }
  }

  /**
   * Reads the lines of earlier runs. Never rejects.
   * @returns why the files cannot be written; null when they can
   */
  async open(): Promise<string | null> {
    const problems = await Promise.all(LOG_FILES.map(file => this.#writers[file].open()))
    return problems.find(problem => problem !== null) ?? null
  }

  /** Adds one line; its time and form are up to the caller. */
  append(file: LogFile, text: string): void {
    this.#writers[file].append(toLogLine(text))
  }

  /** Adds an access line; AccessLogFormat makes it printable and bounded. @returns its place; null when there is no room */
  access<T>(format: LineWriter<T>, record: T): WrittenLine | null {
    return this.#writers.access.appendRecord(format, record)
  }

  /** Adds access lines that another process has made, each with its line end. */
  accessLines(lines: Buffer): void {
    this.#writers.access.appendLines(lines)
  }

  /** Adds a message of the gateway itself to the error log. */
  error(level: 'info' | 'warn' | 'error', message: string): void {
    this.append('error', `${this.#now()} ${level} ${message}`)
  }

  /** Adds the lines of one failure, all with the same time: it shows that they belong together. */
  failure(lines: readonly string[], origin: LogOrigin): void {
    const start = `${this.#now()} error ${toOriginText(origin)}`
    for (const line of lines) this.append('error', start + line)
  }

  /** Adds output of a function line by line. */
  output({ text, ...origin }: LogOrigin & { text: string }): void {
    const start = `${this.#now()} ${toOriginText(origin)}`
    for (const line of toLines(text)) this.append('runtime', start + (line.endsWith('\r') ? line.slice(0, -1) : line))
  }

  /** The newest lines that match, oldest first. @param lines - their maximum */
  tail({ file, lines, ...filter }: LogQuery & { lines: number }): string[] {
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

  /** Passes on every matching line from now on. @returns a function that ends it */
  follow({ file, ...filter }: LogQuery, onLine: (line: string) => void): () => void {
    const isWanted = createLineFilter(file, filter)
    return this.#writers[file].follow(isWanted === null ? onLine : line => isWanted(line) && onLine(line))
  }

  /** Resolves when all lines so far are in the files, or cannot be. */
  async flush(): Promise<void> {
    await Promise.all(LOG_FILES.map(file => this.#writers[file].flush()))
  }

  /** Flushes; later lines stay in memory. */
  async close(): Promise<void> {
    await Promise.all(LOG_FILES.map(file => this.#writers[file].close()))
  }

  #now(): string {
    return new Date(this.#clock.wall()).toISOString()
  }
}

/** One log file and its newest lines. */
class LogWriter {
  readonly #file: LogFile
  readonly #options: LogStoreOptions
  readonly #path: string | null
  readonly #lines: LineBuffer
  readonly #followers = new Set<(line: string) => void>()
  readonly #timer: Timer
  #writing: Promise<void> | null = null
  #fileBytes = 0
  #isFailing = false
  #isClosed = false

  constructor(file: LogFile, options: LogStoreOptions) {
    this.#file = file
    this.#options = options
    this.#path = options.directory?.pathOf(`${file}.log`) ?? null
    this.#lines = new LineBuffer(this.#path !== null)
    this.#timer = new Timer(options.clock)
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
      return this.#report(error as Error)
    }
  }

  append(line: string): void {
    this.#lines.append(line)
    this.#flushSoon()
    for (const follower of this.#followers) follower(line)
  }

  appendRecord<T>(writer: LineWriter<T>, record: T): WrittenLine | null {
    const line = this.#lines.appendRecord(writer, record)
    this.#flushSoon()
    if (this.#followers.size > 0 && line !== null) this.#pass(line)
    return line
  }

  appendLines(lines: Buffer): void {
    this.#lines.appendLines(lines)
    this.#flushSoon()
    if (this.#followers.size > 0) eachLine(lines, line => this.#pass(line))
  }

  #pass({ bytes, from, to }: WrittenLine): void {
    const text = bytes.toString('utf8', from, to)
    for (const follower of this.#followers) follower(text)
  }

  follow(onLine: (line: string) => void): () => void {
    // A new function, so that a listener that is added twice is two followers.
    const follower = (line: string): void => onLine(line)
    this.#followers.add(follower)
    return () => this.#followers.delete(follower)
  }

  #flushSoon(): void {
    if (!this.#timer.isSet) {
      if (!this.#isClosed && this.#path !== null) this.#timer.set(LOG_FLUSH_MS, () => void this.flush())
    } else if (this.#writing === null && this.#lines.pendingBytes >= LOG_FLUSH_BYTES) {
      // Before the timer: the bytes are still in the processor's cache, and few wait.
      void this.flush()
    }
  }

  newestFirst(): Iterable<string> {
    return this.#lines.newestFirst()
  }

  /** One batch at a time; later lines make the next. */
  async flush(): Promise<void> {
    this.#timer.clear()
    while (this.#writing !== null) await this.#writing
    if (this.#lines.pendingBytes === 0 || this.#isClosed) return
    this.#writing = this.#write(this.#path!)
    await this.#writing
    this.#writing = null
  }

  async close(): Promise<void> {
    while (this.#lines.pendingBytes > 0 && !this.#isClosed) await this.flush()
    this.#isClosed = true
  }

  async #write(path: string): Promise<void> {
    const { directory, maxFileBytes = MAX_LOG_FILE_BYTES } = this.#options
    const { views, dropped } = this.#lines.take()
    if (dropped > 0) views.push(Buffer.from(`... ${dropped} lines were dropped: the disk is too slow\n`))
    const bytes = views.reduce((sum, view) => sum + view.length, 0)
    try {
      await directory!.ensure()
      if (this.#fileBytes > 0 && this.#fileBytes + bytes > maxFileBytes) await this.#rotate(path)
      const file = await openToAppend(path)
      try {
        for (const view of views) await file.appendFile(view)
      } finally {
        await file.close()
      }
      this.#fileBytes += bytes
      this.#isFailing = false
    } catch (error) {
      this.#report(error as Error)
    } finally {
      this.#lines.giveBack()
    }
  }

  async #rotate(path: string): Promise<void> {
    for (let age = this.#options.keptFiles ?? KEPT_LOG_FILES; age >= 1; age--) {
      await rename(age === 1 ? path : `${path}.${age - 1}`, `${path}.${age}`).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error
      })
    }
    this.#fileBytes = 0
  }

  /** @returns the reason */
  #report({ message }: Error): string {
    if (!this.#isFailing)
      this.#options.onProblem(`${this.#file} log cannot be written, its lines are kept in memory only: ${message}`)
    this.#isFailing = true
    return message
  }
}

/** The last LOG_TAIL_BYTES of a file as whole lines, and its size. */
async function readTail(path: string): Promise<{ bytes: Buffer; fileBytes: number }> {
  const file = await openToRead(path)
  if (file === null) return { bytes: Buffer.alloc(0), fileBytes: 0 }
  try {
    const { size: fileBytes } = await file.stat()
    const from = Math.max(0, fileBytes - LOG_TAIL_BYTES)
    const { buffer, bytesRead } = await file.read(Buffer.alloc(fileBytes - from), 0, fileBytes - from, from)
    const end = buffer.lastIndexOf(NEWLINE, bytesRead - 1) + 1
    return { bytes: buffer.subarray(from > 0 ? buffer.indexOf(NEWLINE) + 1 : 0, end), fileBytes }
  } finally {
    await file.close()
  }
}
