/**
 * Jobs in `.svc/jobs` of the functions root. Spec: page jobs/file-store.
 *
 *   log                each step of each job, see LineLog; rewritten when most of it is outdated
 *   bodies/<id>        a request body that is too long for a line
 *   results/<id>       the answer of a job: a line of JSON (status, headers), then the bytes of its body
 *   log.set-aside-*    what was found in the place of the log and could not be used
 */

import { copyFile, link, rename, rm } from 'node:fs/promises'
import { Readable } from 'node:stream'
import type { Warning } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { openNew, openToRead, type OwnFolder, syncFolder, UnsafePathError } from '../files/own-folder.ts'
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
import { ForeignLogError, LineLog, type LinePlace, toLine } from './line-log.ts'

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
  /** Everything that changes the log, in its order; a rewriting of it stands between two others. */
  #turn: Promise<unknown> = Promise.resolve()
  #isRewriting = false
  /** The gateway that took the lock after the folder was deleted or moved: existing jobs then go on in memory alone. */
  #rival: LockHolder | null = null
  #stopWatching: () => void = () => {}

  constructor(options: FileStoreOptions) {
    this.#options = options
    const { folder } = options
    this.#parts = { body: new PartFiles(folder.below('bodies')), result: new PartFiles(folder.below('results')) }
  }

  async open(): Promise<{ jobs: Job[]; warnings: Warning[] }> {
    const { folder, lock } = this.#options
    await this.#closeLog()
    const holder = lock.acquire()
    if (holder !== null) throw new Error(toHeldText(holder))
    this.#stopWatching()
    this.#stopWatching = lock.onReplaced(rival => {
      this.#rival = rival
      if (rival !== null) this.#options.onProblem(toRivalText(rival, this.#entries.size))
      else this.#ensureInPlace().catch(error => this.#options.onProblem(toMovedText(error)))
    })
    await folder.ensure()
    await rm(folder.pathOf(DRAFT_NAME), { force: true, recursive: true })
    const warnings: Warning[] = []
    const { log, damaged } = await this.#openLog(warnings)
    this.#log = log
    if (damaged > 0) {
      const aside = this.#asideName()
      await keepBeside(folder.pathOf(LOG_NAME), folder.pathOf(aside))
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
    const path = this.#options.folder.pathOf(LOG_NAME)
    this.#log = await LineLog.openToRead(path, (json, place) => this.#load(json, place))
    return this.#listJobs()
  }

  #listJobs(): Job[] {
    return [...this.#entries.values()].map(({ job }) => job).sort((a, b) => a.seq - b.seq)
  }

  /** A log that cannot be used is set aside, and a new one begun. */
  async #openLog(warnings: Warning[]): Promise<{ log: LineLog; damaged: number }> {
    const { folder } = this.#options
    const path = folder.pathOf(LOG_NAME)
    try {
      return await LineLog.open(path, (json, place) => this.#load(json, place))
    } catch (error) {
      if (!(error instanceof ForeignLogError) && !(error instanceof UnsafePathError)) throw error
      const aside = this.#asideName()
      await rename(path, folder.pathOf(aside))
      warnings.push(toWarning(`.svc/jobs/log could not be used (${error.message}) and is now ${aside}`))
      this.#entries.clear()
      return LineLog.open(path, () => false)
    }
  }

  #asideName(): string {
    return `log.set-aside-${this.#options.now()}`
  }

  async save(changes: readonly JobChange[]): Promise<void> {
    const lines = changes.map(change => toLine(JSON.stringify(change)))
    while (this.#isRewriting) await this.#turn
    if (this.#log === null) throw new Error('the store of jobs is closed')
    if (this.#rival === null) {
      await this.#log.append(lines, places => {
        for (const [index, change] of changes.entries()) this.#take(change, places[index]!)
      })
      await this.#ensureInPlace()
    } else {
      if (changes.some(change => 'request' in change)) throw new Error(toHeldText(this.#rival))
      for (const change of changes) this.#take(change, NO_PLACE)
    }
    for (const change of changes) if ('gone' in change) await this.#removeParts(change.gone)
    if (this.#rival === null) this.#rewriteIfDue()
  }

  async read(id: string, part: JobPart): Promise<Readable | null> {
    if (part !== 'request') return this.#parts[part].read(id)
    while (this.#isRewriting) await this.#turn
    const entry = this.#entries.get(id)
    if (entry === undefined || this.#log === null) return null
    const { request } = JSON.parse(await this.#log.read(entry.request)) as { request: JobRequest }
    return Readable.from([Buffer.from(JSON.stringify(request))])
  }

  write(id: string, part: 'body' | 'result'): Promise<PartWriter> {
    if (!isJobId(id)) throw new TypeError(`not the id of a job: ${JSON.stringify(id)}`)
    return this.#parts[part].write(id)
  }

  /** A folder that was deleted or moved is made again, with all that counts in it. @throws Error when that cannot be */
  async #ensureInPlace(): Promise<void> {
    while (this.#isRewriting) await this.#turn
    if (this.#log === null || (await this.#log.isInPlace())) return
    if (this.#isRewriting) return this.#ensureInPlace()
    this.#isRewriting = true
    const work = this.#putBack().finally(() => {
      this.#isRewriting = false
    })
    this.#turn = work.catch(() => {})
    await work
  }

  async #putBack(): Promise<void> {
    const { folder, lock } = this.#options
    const holder = lock.check()
    if (holder !== null) throw new Error(toHeldText(holder))
    await folder.ensure()
    await this.#rewrite()
    this.#options.onProblem('.svc/jobs was deleted or moved while the gateway ran: its jobs are written there again')
  }

  async close(): Promise<void> {
    this.#stopWatching()
    await this.#turn
    await this.#closeLog()
  }

  async #closeLog(): Promise<void> {
    const log = this.#log
    this.#log = null
    this.#entries.clear()
    await log?.close()
  }

  async #removeParts(id: string): Promise<void> {
    await Promise.all([this.#parts.body.remove(id), this.#parts.result.remove(id)])
  }

  /** @returns false for a line that says nothing */
  #load(json: string, place: LinePlace): boolean {
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
    const known = this.#entries.get(change.job.id)
    if (change.request !== undefined)
      this.#entries.set(change.job.id, { job: change.job, request: place, stepBytes: 0 })
    else if (known !== undefined) {
      known.job = change.job
      known.stepBytes = place.bytes
    }
  }

  #rewriteIfDue(): void {
    if (this.#isRewriting || this.#log === null) return
    const limit = this.#options.outdatedBytes ?? OUTDATED_BYTES
    if (this.#log.size < limit) return
    let needed = 0
    for (const { request, stepBytes } of this.#entries.values()) needed += request.bytes + stepBytes
    if (this.#log.size - needed < Math.max(limit, needed)) return
    this.#isRewriting = true
    this.#turn = this.#rewrite()
      .catch(error => this.#options.onProblem(`.svc/jobs/log cannot be rewritten and keeps growing: ${String(error)}`))
      .finally(() => {
        this.#isRewriting = false
      })
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
    for (const [index, entry] of entries.entries()) {
      entry.request = places[index]!
      entry.stepBytes = 0
    }
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

/** Gives a file a second name, or makes a copy where there are no second names. */
async function keepBeside(path: string, other: string): Promise<void> {
  await link(path, other).catch(() => copyFile(path, other))
}

function toWarning(message: string): Warning {
  const hint = 'Look whether it holds jobs that are missed; delete it when not.'
  return { code: 'JOBS_SET_ASIDE', path: '.svc/jobs', message, hint }
}

function isChange(value: unknown): value is JobChange {
  if (!isObject(value)) return false
  if ('gone' in value) return typeof value.gone === 'string'
  const { job, request } = value
  return isJob(job) && (request === undefined || isObject(request))
}

function isJob(value: unknown): value is Job {
  if (!isObject(value)) return false
  const { id, key, seq, state, attempt, retry, createdAt, dueAt } = value
  return (
    typeof id === 'string' &&
    isJobId(id) &&
    typeof key === 'string' &&
    [seq, attempt, createdAt, dueAt].every(Number.isFinite) &&
    (JOB_STATES as readonly unknown[]).includes(state) &&
    isObject(retry)
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
    // Of an attempt that was cut off.
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
