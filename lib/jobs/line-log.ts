/**
 * A file of lines that only grows, each with its checksum; what was added is on the disk when `append` resolves.
 * Owner: page jobs/file-store.
 *
 *   fngw-jobs 1
 *   <crc32, 8 hex digits> <JSON>      one write and one sync for all lines that came while the last ones were written
 *
 * A process that is killed leaves at most a torn end that was never acknowledged; it is overwritten.
 */

import { type FileHandle, stat } from 'node:fs/promises'
import { crc32 } from 'node:zlib'
import { openToRead, openToUpdate } from '../files/own-folder.ts'

const LOG_FORMAT = 1
export const LOG_HEADER = `fngw-jobs ${LOG_FORMAT}\n`
const READ_BYTES = 256 * 1024
/** Bytes of one line; a request of the control plane is far smaller. */
const MAX_LINE_BYTES = 64 * 1024 * 1024
const NEWLINE = 10
/** Checksum and space before the JSON. */
const START_CHARS = 9

/** Where a line's JSON stands. */
export interface LinePlace {
  at: number
  bytes: number
}

/** The file was not written by a gateway. */
export class ForeignLogError extends Error {}

/** The file was written by a newer gateway: it is not touched. */
class NewerLogError extends Error {}

interface Batch {
  lines: readonly Buffer[]
  onKept: (places: LinePlace[]) => void
  resolve: () => void
  reject: (error: unknown) => void
}

export function toLine(json: string): Buffer {
  return Buffer.from(`${crc32(json).toString(16).padStart(8, '0')} ${json}\n`)
}

/** Where the JSON of a line stands that begins at `at`. */
function placeOf(line: Buffer, at: number): LinePlace {
  return { at: at + START_CHARS, bytes: line.length - START_CHARS - 1 }
}

export class LineLog {
  readonly #path: string
  readonly #file: FileHandle
  #size: number
  #pending: Batch[] = []
  #working: Promise<void> | null = null

  private constructor(path: string, file: FileHandle, size: number) {
    this.#path = path
    this.#file = file
    this.#size = size
  }

  /**
   * Reads what is there; a new file gets its header.
   * @param onLine - gets every line in order; returns false for one that it cannot use
   * @param finalPath - the path that the file will be renamed to
   * @returns the log, and how many lines in the midst of it were damaged or of no use
   * @throws ForeignLogError; NewerLogError; UnsafePathError; Error of the file system
   */
  static async open(
    path: string,
    onLine: (json: string, place: LinePlace) => boolean,
    finalPath = path,
  ): Promise<{ log: LineLog; damaged: number }> {
    const file = await openToUpdate(path)
    try {
      const { size, damaged } = await readLines(file, onLine)
      const log = new LineLog(finalPath, file, size)
      // A torn end must not be read together with what is written over it.
      await file.truncate(size)
      if (size === 0) await log.#writeAt(Buffer.from(LOG_HEADER))
      return { log, damaged }
    } catch (error) {
      await file.close()
      throw error
    }
  }

  /** Reads a log that cannot be written; `append` fails. @returns null when there is none */
  static async openToRead(path: string, onLine: (json: string, place: LinePlace) => boolean): Promise<LineLog | null> {
    const file = await openToRead(path)
    if (file === null) return null
    try {
      const { size } = await readLines(file, onLine)
      return new LineLog(path, file, size)
    } catch (error) {
      await file.close()
      throw error
    }
  }

  /** Bytes of the file. */
  get size(): number {
    return this.#size
  }

  /**
   * Adds lines; they are kept together or not at all.
   * @param onKept - called with their places as soon as they are, before anything else is written
   */
  append(lines: readonly Buffer[], onKept: (places: LinePlace[]) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#pending.push({ lines, onKept, resolve, reject })
      this.#working ??= this.#work()
    })
  }

  async read({ at, bytes }: LinePlace): Promise<string> {
    const buffer = Buffer.allocUnsafe(bytes)
    const { bytesRead } = await this.#file.read(buffer, 0, bytes, at)
    if (bytesRead < bytes) throw new Error('the file of jobs became shorter: something else has written to it')
    return buffer.toString('utf8')
  }

  /** False when the file has no name any more or its path leads elsewhere: what is written to it is lost with the process. */
  async isInPlace(): Promise<boolean> {
    const [open, named] = await Promise.all([this.#file.stat(), stat(this.#path).catch(() => null)])
    return named !== null && named.ino === open.ino && named.dev === open.dev
  }

  /** Resolves when nothing is being written. */
  async idle(): Promise<void> {
    while (this.#working !== null) await this.#working
  }

  async close(): Promise<void> {
    await this.idle()
    await this.#file.close()
  }

  async #work(): Promise<void> {
    while (this.#pending.length > 0) {
      const batches = this.#pending
      this.#pending = []
      const start = this.#size
      try {
        await this.#writeAt(Buffer.concat(batches.flatMap(({ lines }) => lines)))
      } catch (error) {
        // A restart would read these bytes as kept, although they were never acknowledged.
        await this.#file.truncate(start).catch(() => {})
        this.#size = start
        for (const { reject } of batches) reject(error)
        continue
      }
      let at = start
      for (const { lines, onKept, resolve } of batches) {
        const places = lines.map(line => {
          const place = placeOf(line, at)
          at += line.length
          return place
        })
        onKept(places)
        resolve()
      }
    }
    this.#working = null
  }

  async #writeAt(bytes: Buffer): Promise<void> {
    for (let done = 0; done < bytes.length; ) {
      const { bytesWritten } = await this.#file.write(bytes, done, bytes.length - done, this.#size + done)
      done += bytesWritten
    }
    await this.#file.datasync()
    this.#size += bytes.length
  }
}

/** @returns the bytes that are good, and damaged lines before the last good one */
async function readLines(
  file: FileHandle,
  onLine: (json: string, place: LinePlace) => boolean,
): Promise<{ size: number; damaged: number }> {
  const header = Buffer.alloc(LOG_HEADER.length)
  const { bytesRead } = await file.read(header, 0, header.length, 0)
  const isOurs = LOG_HEADER.startsWith(header.toString('latin1', 0, bytesRead))
  if (!isOurs) throw toForeignError(header.toString('latin1', 0, bytesRead))
  if (bytesRead < header.length) return { size: 0, damaged: 0 }
  let size = LOG_HEADER.length
  let damaged = 0
  let doubtful = 0
  for await (const { line, at } of splitLines(file, size)) {
    const json = checkLine(line)
    if (json === null || !onLine(json, { at: at + START_CHARS, bytes: line.length - START_CHARS })) {
      doubtful += 1
      continue
    }
    damaged += doubtful
    doubtful = 0
    size = at + line.length + 1
  }
  return { size, damaged }
}

/** Whole lines without their ends; a torn last one is left out. One that is too long for a line of ours comes as an empty one. */
async function* splitLines(file: FileHandle, from: number): AsyncGenerator<{ line: Buffer; at: number }> {
  let pieces: Buffer[] = []
  let length = 0
  let at = from
  const add = (piece: Buffer): void => {
    length += piece.length
    if (length > MAX_LINE_BYTES) pieces = []
    else pieces.push(piece)
  }
  for (let position = from; ; ) {
    const buffer = Buffer.allocUnsafe(READ_BYTES)
    const { bytesRead } = await file.read(buffer, 0, READ_BYTES, position)
    if (bytesRead === 0) return
    position += bytesRead
    const read = buffer.subarray(0, bytesRead)
    let start = 0
    for (let end = read.indexOf(NEWLINE); end !== -1; end = read.indexOf(NEWLINE, start)) {
      add(read.subarray(start, end))
      yield { line: pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces), at }
      at += length + 1
      pieces = []
      length = 0
      start = end + 1
    }
    add(read.subarray(start))
  }
}

function checkLine(line: Buffer): string | null {
  if (line.length <= START_CHARS) return null
  const json = line.subarray(START_CHARS)
  const sum = crc32(json).toString(16).padStart(8, '0')
  return line.toString('latin1', 0, START_CHARS) === `${sum} ` ? json.toString('utf8') : null
}

function toForeignError(start: string): Error {
  const format = Number(/^fngw-jobs (\d+)/.exec(start)?.[1] ?? 0)
  if (format <= LOG_FORMAT) return new ForeignLogError('it is not a file of jobs')
  const remedy = 'start the newer fngw again, or move the file away'
  return new NewerLogError(
    `.svc/jobs/log has format ${format} of a newer fngw, this one reads format ${LOG_FORMAT}: ${remedy}`,
  )
}
