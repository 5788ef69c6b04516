/**
 * The lines behind `/_fn/logs`: the newest ones in memory, all of them in rotated files. Spec: §4.2, page observe/log-store.
 *
 *   append ─► LineBuffer ─► tail
 *                 └─(LOG_FLUSH_MS, one batch)─► <directory>/<file>.log ─► .1 ─► .2 ─► .3 ─► deleted
 *
 * Writing never waits for the disk and never fails: lines that cannot be written stay in memory, and the problem is reported once.
 */

import { access, constants, rename } from 'node:fs/promises'
import type { Clock } from '../core/clock.ts'
import { openToAppend, openToRead, type OwnFolder } from '../files/own-folder.ts'
import { eachLine, LineBatches, LineBuffer, type LineWriter, type WrittenLine } from './line-buffer.ts'
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
class LogWriter extends LineBatches {
  readonly #file: LogFile
  readonly #options: LogStoreOptions
  readonly #path: string | null
  readonly #followers = new Set<(line: string) => void>()
  #fileBytes = 0
  #isFailing = false
  #isClosed = false

  constructor(file: LogFile, options: LogStoreOptions) {
    const path = options.directory?.pathOf(`${file}.log`) ?? null
    super({
      clock: options.clock,
      lines: new LineBuffer(path !== null),
      isBackground: false,
      toDropLine: count => `... ${count} lines were dropped: the disk is too slow`,
    })
    this.#file = file
    this.#options = options
    this.#path = path
  }

  protected get isOpen(): boolean {
    return !this.#isClosed && this.#path !== null
  }

  /** @returns why the file cannot be written */
  async open(): Promise<string | null> {
    if (this.#path === null) return null
    try {
      await access(await this.#options.directory!.ensure(), constants.W_OK)
      const { bytes, fileBytes } = await readTail(this.#path)
      this.#fileBytes = fileBytes
      this.lines.prepend(bytes)
      return null
    } catch (error) {
      return this.#report(error as Error)
    }
  }

  override append(line: string): void {
    super.append(line)
    for (const follower of this.#followers) follower(line)
  }

  override appendRecord<T>(writer: LineWriter<T>, record: T): WrittenLine | null {
    const line = super.appendRecord(writer, record)
    if (this.#followers.size > 0 && line !== null) this.#pass(line)
    return line
  }

  override appendLines(lines: Buffer): void {
    super.appendLines(lines)
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

  newestFirst(): Iterable<string> {
    return this.lines.newestFirst()
  }

  override async flush(): Promise<void> {
    if (!this.#isClosed) await super.flush()
  }

  async close(): Promise<void> {
    while (this.lines.pendingBytes > 0 && !this.#isClosed) await this.flush()
    this.#isClosed = true
  }

  protected async write(views: readonly Buffer[]): Promise<void> {
    const { directory, maxFileBytes = MAX_LOG_FILE_BYTES } = this.#options
    const path = this.#path!
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
