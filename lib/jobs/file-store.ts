/**
 * Jobs in `.svc/jobs` of the functions root. Spec: page jobs/file-store.
 *
 *   log                each step of each job, see LineLog; rewritten when most of it is outdated
 *   bodies/<id>        a request body that is too long for a line
 *   results/<id>       the response of a job: a line of JSON (status, headers), then the bytes of its body
 *   log.set-aside-*    a file in the place of the log that could not be used
 */

import { copyFile, type FileHandle, link, rename, rm, stat } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { crc32 } from 'node:zlib'
import type { Warning } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { openNew, openToRead, openToUpdate, type OwnFolder, syncFolder, UnsafePathError } from '../files/own-folder.ts'
import type { LockHolder, RootLock } from '../files/root-lock.ts'
import {
  isJobId,
  type Job,
  JOB_STATES,
  type JobChange,
  type JobPart,
  type JobRequest,
  type JobStore,
  type PartWriter,
} from './job.ts'

const LOG_NAME = 'log'
const DRAFT_NAME = 'log.new'
/** Outdated bytes from which on the log is rewritten, if the rest is less than that. */
const OUTDATED_BYTES = 4 * 1024 * 1024
/** Bytes written and synced at once while that is done. */
const REWRITE_BYTES = 4 * 1024 * 1024

/** Of a step that is not written. */
const NO_PLACE: LinePlace = { at: 0, bytes: 0 }

/** A job in memory. */
interface Entry {
  job: Job
  /** The line with its request, and bytes of the line with its last step. */
  request: LinePlace
  stepBytes: number
}

interface FileStoreOptions {
  /** `.svc/jobs`. */
  folder: OwnFolder
  /** Of the functions root; taken by `open`, released by its creator. */
  lock: RootLock
  /** Wall clock, ms. */
  now: () => number
  /** Gets warnings: the log cannot be rewritten, or was deleted. */
  onProblem: (message: string) => void
  outdatedBytes?: number
}

export class FileStore implements JobStore {
  readonly #options: FileStoreOptions
  readonly #parts: Readonly<Record<'body' | 'result', PartFiles>>
  readonly #entries = new Map<string, Entry>()
  #log: LineLog | null = null
  /** Resolves when the log is written again: nothing is added or read meanwhile. */
  #rewriting: Promise<void> | null = null
  /** The gateway that took the lock after the folder was deleted or moved: existing jobs then go on in memory alone. */
  #rival: LockHolder | null = null
  #stopWatching: () => void = () => {}

  constructor(options: FileStoreOptions) {
    this.#options = options
    const { folder } = options
    this.#parts = { body: new PartFiles(folder.below('bodies')), result: new PartFiles(folder.below('results')) }
  }

  async open(): Promise<{ jobs: Job[]; warnings: Warning[] }> {
    const { folder, lock, now, onProblem } = this.#options
    await this.#closeLog()
    const holder = lock.acquire()
    if (holder !== null) throw new Error(toHeldText(holder))
    this.#stopWatching()
    this.#stopWatching = lock.onReplaced(rival => {
      this.#rival = rival
      if (rival !== null) onProblem(toRivalText(rival, this.#entries.size))
      else this.#ensureInPlace().catch(error => onProblem(toMovedText(error)))
    })
    await folder.ensure()
    await rm(folder.pathOf(DRAFT_NAME), { force: true, recursive: true })
    const path = folder.pathOf(LOG_NAME)
    const aside = `log.set-aside-${now()}`
    const warnings: Warning[] = []
    const { log, damaged } = await LineLog.open(path, this.#load).catch(async error => {
      if (!(error instanceof ForeignLogError) && !(error instanceof UnsafePathError)) throw error
      await rename(path, folder.pathOf(aside))
      warnings.push(toWarning(`.svc/jobs/log could not be used (${error.message}) and is now ${aside}`))
      this.#entries.clear()
      return LineLog.open(path, this.#load)
    })
    this.#log = log
    if (damaged > 0) {
      // Where the file system has no second names it is copied.
      await link(path, folder.pathOf(aside)).catch(() => copyFile(path, folder.pathOf(aside)))
      await this.#rewrite()
      warnings.push(toWarning(`${damaged} lines of .svc/jobs/log were damaged and left out; it is kept as ${aside}`))
    }
    await syncFolder(folder.path)
    this.#parts.body.sweep(id => this.#entries.has(id))
    this.#parts.result.sweep(id => this.#entries.get(id)?.job.result != null)
    return { jobs: this.#listJobs(), warnings }
  }

  async peek(): Promise<Job[]> {
    await this.#closeLog()
    this.#log = await LineLog.openToRead(this.#options.folder.pathOf(LOG_NAME), this.#load)
    return this.#listJobs()
  }

  #listJobs(): Job[] {
    return [...this.#entries.values()].map(({ job }) => job).sort((a, b) => a.seq - b.seq)
  }

  async save(changes: readonly JobChange[]): Promise<void> {
    const lines = changes.map(change => toLine(JSON.stringify(change)))
    while (this.#rewriting !== null) await this.#rewriting
    if (this.#log === null) throw new Error('the store of jobs is closed')
    const takeAll = (places: readonly LinePlace[]): void => {
      for (const [index, change] of changes.entries()) this.#take(change, places[index] ?? NO_PLACE)
    }
    if (this.#rival === null) {
      await this.#log.append(lines, takeAll)
      await this.#ensureInPlace()
    } else {
      if (changes.some(change => 'request' in change)) throw new Error(toHeldText(this.#rival))
      takeAll([])
    }
    for (const change of changes) {
      if (!('gone' in change)) continue
      await Promise.all([this.#parts.body.remove(change.gone), this.#parts.result.remove(change.gone)])
    }
    if (this.#rival === null) this.#rewriteIfDue()
  }

  async read(id: string, part: JobPart): Promise<Readable | null> {
    if (part !== 'request') return this.#parts[part].read(id)
    while (this.#rewriting !== null) await this.#rewriting
    const entry = this.#entries.get(id)
    if (entry === undefined || this.#log === null) return null
    const { request } = JSON.parse(await this.#log.read(entry.request)) as { request: JobRequest }
    return Readable.from([Buffer.from(JSON.stringify(request))])
  }

  write(id: string, part: 'body' | 'result'): Promise<PartWriter> {
    if (!isJobId(id)) throw new TypeError(`not the id of a job: ${JSON.stringify(id)}`)
    return this.#parts[part].write(id)
  }

  async close(): Promise<void> {
    this.#stopWatching()
    await this.#rewriting
    await this.#closeLog()
  }

  async #closeLog(): Promise<void> {
    const log = this.#log
    this.#log = null
    this.#entries.clear()
    await log?.close()
  }

  /** Takes a line of the log. @returns false for one that says nothing */
  readonly #load = (json: string, place: LinePlace): boolean => {
    const change: unknown = JSON.parse(json)
    if (!isChange(change)) return false
    // Lines of version 0.2 have no attempts.
    if ('job' in change && change.job.attempts === undefined) Object.assign(change.job, { attempts: [] })
    this.#take(change, place)
    return true
  }

  #take(change: JobChange, place: LinePlace): void {
    if ('gone' in change) {
      this.#entries.delete(change.gone)
      return
    }
    const { job, request } = change
    const known = this.#entries.get(job.id)
    if (request !== undefined) this.#entries.set(job.id, { job, request: place, stepBytes: 0 })
    else if (known !== undefined) Object.assign(known, { job, stepBytes: place.bytes })
  }

  /** Holds up all other work on the log. @returns as `work` ends */
  #hold(work: Promise<void>): Promise<void> {
    const end = (): void => {
      this.#rewriting = null
    }
    this.#rewriting = work.then(end, end)
    return work
  }

  /** A folder that was deleted or moved is made again, with all that counts in it. @throws Error when that cannot be */
  async #ensureInPlace(): Promise<void> {
    while (this.#rewriting !== null) await this.#rewriting
    if (this.#log === null || (await this.#log.isInPlace())) return
    if (this.#rewriting !== null) return this.#ensureInPlace()
    await this.#hold(this.#putBack())
  }

  async #putBack(): Promise<void> {
    const { folder, lock } = this.#options
    const holder = lock.check()
    if (holder !== null) throw new Error(toHeldText(holder))
    await folder.ensure()
    await this.#rewrite()
    this.#options.onProblem('.svc/jobs was deleted or moved while the gateway ran: its jobs are written there again')
  }

  #rewriteIfDue(): void {
    const { outdatedBytes: limit = OUTDATED_BYTES, onProblem } = this.#options
    if (this.#rewriting !== null || this.#log === null || this.#log.size < limit) return
    let needed = 0
    for (const { request, stepBytes } of this.#entries.values()) needed += request.bytes + stepBytes
    if (this.#log.size - needed < Math.max(limit, needed)) return
    this.#hold(this.#rewrite()).catch(error =>
      onProblem(`.svc/jobs/log cannot be rewritten and keeps growing: ${String(error)}`),
    )
  }

  /** Writes the current state of every job to a new file, which then replaces the log. */
  async #rewrite(): Promise<void> {
    const { folder } = this.#options
    const old = this.#log!
    await old.idle()
    const draft = folder.pathOf(DRAFT_NAME)
    await rm(draft, { force: true })
    const { log } = await LineLog.open(draft, () => false, folder.pathOf(LOG_NAME))
    const entries = [...this.#entries.values()]
    const places: LinePlace[] = []
    try {
      let lines: Buffer[] = []
      let bytes = 0
      for (const [index, { job, request }] of entries.entries()) {
        const line = toLine(JSON.stringify({ ...JSON.parse(await old.read(request)), job }))
        lines.push(line)
        bytes += line.length
        if (bytes < REWRITE_BYTES && index < entries.length - 1) continue
        await log.append(lines, written => places.push(...written))
        lines = []
        bytes = 0
      }
      await rename(draft, folder.pathOf(LOG_NAME))
      await syncFolder(folder.path)
    } catch (error) {
      await log.close()
      throw error
    }
    this.#log = log
    for (const [index, entry] of entries.entries()) Object.assign(entry, { request: places[index], stepBytes: 0 })
    await old.close()
  }
}

function toHeldText({ pid, host, since }: LockHolder): string {
  const who =
    pid === 0 ? 'another gateway' : `the gateway with process ${pid} on ${host}, since ${new Date(since).toISOString()}`
  return `.svc of this functions root is kept by ${who}: it runs the jobs`
}

function toRivalText(holder: LockHolder, count: number): string {
  return `.svc was deleted or moved while this gateway ran, and ${toHeldText(holder)}; the ${count} jobs of this one go on in its memory alone`
}

function toMovedText(error: unknown): string {
  return `.svc/jobs was deleted or moved while the gateway ran, and cannot be written: ${(error as Error).message}`
}

function toWarning(message: string): Warning {
  const hint = 'Look whether it holds jobs that are missed; delete it when not.'
  return { code: 'JOBS_SET_ASIDE', path: '.svc/jobs', message, hint }
}

/** Its checksum was right: the line is ours, of this version or of an earlier one. */
function isChange(value: unknown): value is JobChange {
  if (!isObject(value)) return false
  if ('gone' in value) return typeof value.gone === 'string'
  const { job, request } = value
  if (!isObject(job) || (request !== undefined && !isObject(request))) return false
  return (
    isJobId(String(job.id)) && typeof job.key === 'string' && (JOB_STATES as readonly unknown[]).includes(job.state)
  )
}

const DRAFT = '.part'

/** Bodies or results of jobs, each in a file; a file that is being written has another name until it is whole. */
export class PartFiles {
  readonly #folder: OwnFolder

  constructor(folder: OwnFolder) {
    this.#folder = folder
  }

  async read(id: string): Promise<Readable | null> {
    const file = await openToRead(this.#folder.pathOf(id))
    return file === null ? null : file.createReadStream()
  }

  async write(id: string): Promise<PartWriter> {
    await this.#folder.ensure()
    const path = this.#folder.pathOf(id)
    const draft = `${path}${DRAFT}`
    // A killed process may have left one.
    await rm(draft, { force: true, recursive: true })
    const file = await openNew(draft)
    const discard = async (): Promise<void> => {
      await file.close().catch(() => {})
      await rm(draft, { force: true }).catch(() => {})
    }
    return {
      write: bytes => file.appendFile(bytes),
      end: async () => {
        try {
          await file.sync()
          await file.close()
          await rename(draft, path)
          await syncFolder(this.#folder.path)
        } catch (error) {
          await discard()
          throw error
        }
      },
      discard,
    }
  }

  async remove(id: string): Promise<void> {
    await rm(this.#folder.pathOf(id), { force: true, recursive: true })
  }

  /** Deletes drafts and parts that belong to nothing; names that are not ours stay. */
  sweep(isKept: (id: string) => boolean): void {
    for (const { name } of this.#folder.list(/^job-/)) {
      const id = name.endsWith(DRAFT) ? name.slice(0, -DRAFT.length) : name
      if (isJobId(id) && (id !== name || !isKept(id))) this.#folder.remove(name)
    }
  }
}

/*
 * The log is a file of lines that only grows, each with its checksum; what was added is on the disk when `append` resolves.
 *
 *   fngw-jobs 1
 *   <crc32, 8 hex digits> <JSON>      one write and one sync for all lines that came while the last ones were written
 *
 * A process that is killed leaves at most a torn end that was never acknowledged; it is overwritten.
 */

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

interface Batch {
  lines: readonly Buffer[]
  onKept: (places: LinePlace[]) => void
  resolve: () => void
  reject: (error: unknown) => void
}

type OnLine = (json: string, place: LinePlace) => boolean

function toStart(json: string | Buffer): string {
  return `${crc32(json).toString(16).padStart(8, '0')} `
}

export function toLine(json: string): Buffer {
  return Buffer.from(`${toStart(json)}${json}\n`)
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
   * @throws ForeignLogError; UnsafePathError; Error for a newer format, which is not touched, and of the file system
   */
  static async open(path: string, onLine: OnLine, finalPath = path): Promise<{ log: LineLog; damaged: number }> {
    const file = await openToUpdate(path)
    return closingOnError(file, async () => {
      const { size, damaged } = await readLines(file, onLine)
      const log = new LineLog(finalPath, file, size)
      // A torn end must not be read together with what is written over it.
      await file.truncate(size)
      if (size === 0) await log.#writeAt(Buffer.from(LOG_HEADER))
      return { log, damaged }
    })
  }

  /** Reads a log that cannot be written; `append` fails. @returns null when there is none */
  static async openToRead(path: string, onLine: OnLine): Promise<LineLog | null> {
    const file = await openToRead(path)
    if (file === null) return null
    return closingOnError(file, async () => new LineLog(path, file, (await readLines(file, onLine)).size))
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
          at += line.length
          return { at: at - line.length + START_CHARS, bytes: line.length - START_CHARS - 1 }
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

async function closingOnError<T>(file: FileHandle, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    await file.close()
    throw error
  }
}

/** @returns the bytes that are good, and damaged lines before the last good one */
async function readLines(file: FileHandle, onLine: OnLine): Promise<{ size: number; damaged: number }> {
  const header = Buffer.alloc(LOG_HEADER.length)
  const { bytesRead } = await file.read(header, 0, header.length, 0)
  const start = header.toString('latin1', 0, bytesRead)
  if (!LOG_HEADER.startsWith(start)) throw toForeignError(start)
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
  return line.toString('latin1', 0, START_CHARS) === toStart(json) ? json.toString('utf8') : null
}

function toForeignError(start: string): Error {
  const format = Number(/^fngw-jobs (\d+)/.exec(start)?.[1] ?? 0)
  if (format <= LOG_FORMAT) return new ForeignLogError('it is not a file of jobs')
  const remedy = 'start the newer fngw again, or move the file away'
  return new Error(`.svc/jobs/log has format ${format} of a newer fngw, this one reads format ${LOG_FORMAT}: ${remedy}`)
}
