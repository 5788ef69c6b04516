/**
 * The states of schedules, kept over a restart in `.svc/scheduler-state.json`. Spec: page scheduler/schedule-store.
 *
 *   scheduler-state.json        all of them, rewritten every FN_SCHEDULER_PERSIST_INTERVAL and at the end
 *   scheduler-state.json.log    changes since then, one per line: a run is noted here before it begins
 *   *.set-aside-<time>          a file that had one of these names and could not be used
 */

import { mkdirSync } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { basename, dirname } from 'node:path'
import type { Warning } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { Semaphore } from '../core/semaphore.ts'
import { openToAppend, OwnFolder } from '../files/own-folder.ts'
import type { LockHolder, RootLock } from '../files/root-lock.ts'

/** The facts of one schedule. Times are wall clock, ms. */
export interface ScheduleState {
  /** Text of the rule that `next` was made by. */
  rule: string
  /** When it is due; null when it never is. */
  next: number | null
  retryDue: number | null
  /** Number of the run that is due then. */
  retryAttempt: number | null
  last: number | null
  lastStatus: number | null
  lastError: string | null
  /** Every due time up to here has had its run. */
  doneUpTo: number | null
  /** Number of the run that goes on; 0 for one by hand, null between runs. */
  running: number | null
  /** When that run was due. */
  runningDue: number | null
}

/** Of a schedule that has never been due. */
export const NEW_STATE: Readonly<ScheduleState> = {
  rule: '',
  next: null,
  retryDue: null,
  retryAttempt: null,
  last: null,
  lastStatus: null,
  lastError: null,
  doneUpTo: null,
  running: null,
  runningDue: null,
}

/** null: the schedule is gone. */
export type KeptStates = ReadonlyMap<string, ScheduleState | null>

interface OpenedSchedules {
  states: Map<string, ScheduleState>
  elsewhere?: ReadonlySet<string>
  warnings: Warning[]
}

/** The gateway that holds the store of a root is the one that runs its schedules. */
export interface ScheduleStore {
  /** Called when the right to run the schedules is lost: another gateway has it, or may have it. */
  onLost: (() => void) | null
  /** True where other gateways may believe to have that right: a run that could not be noted does not begin. */
  readonly isShared: boolean
  /**
   * Takes the right to run the schedules, and reads what was kept.
   * @returns the gateway that has that right, in words, or why none can have it now, instead of the states; `elsewhere`: keys of schedules that
   * another gateway runs all the same
   */
  open(): Promise<OpenedSchedules | { heldBy: string } | { problem: string }>
  /** The kept states, for a gateway that runs no schedules: takes no right and writes nothing. Never rejects. */
  peek(): Promise<ReadonlyMap<string, ScheduleState>>
  /** Keeps changes; they survive the end of the process when this resolves. @throws Error when they cannot be kept */
  save(changes: KeptStates): Promise<void>
  /** Rewrites everything, if anything changed. @throws Error as `save` */
  flush(): Promise<void>
  close(): Promise<void>
}

/** Characters of an error that are kept. */
export const MAX_ERROR_CHARS = 2000

/** The names and units of the state file: times are seconds. */
export function toStateRecord(state: ScheduleState): Record<string, unknown> {
  const record: Record<string, unknown> = { rule: state.rule }
  for (const { name, key, unit } of NUMBERS) record[name] = state[key] === null ? null : state[key] / unit
  return { ...record, last_error: state.lastError?.slice(0, MAX_ERROR_CHARS) ?? null }
}

const NUMBERS = [
  { name: 'next', key: 'next', unit: 1000 },
  { name: 'retry_due', key: 'retryDue', unit: 1000 },
  { name: 'retry_attempt', key: 'retryAttempt', unit: 1 },
  { name: 'last', key: 'last', unit: 1000 },
  { name: 'last_status', key: 'lastStatus', unit: 1 },
  { name: 'done_up_to', key: 'doneUpTo', unit: 1000 },
  { name: 'running', key: 'running', unit: 1 },
  { name: 'running_due', key: 'runningDue', unit: 1000 },
] as const

/** @returns null for what `toStateRecord` has not written */
export function toScheduleState(value: unknown): ScheduleState | null {
  const record = (value ?? {}) as Record<string, unknown>
  const { rule, last_error: lastError } = record
  if (typeof rule !== 'string' || (lastError !== null && typeof lastError !== 'string')) return null
  const state: ScheduleState = { ...NEW_STATE, rule, lastError }
  for (const { name, key, unit } of NUMBERS) {
    // Earlier versions lack the last one.
    const number = record[name] ?? null
    if (number !== null && !Number.isFinite(number)) return null
    state[key] = number === null ? null : unit === 1 ? (number as number) : Math.round((number as number) * unit)
  }
  return state
}

const VERSION = 1
const FILE_NAME = 'scheduler-state.json'
/** Bytes of the log from which on everything is rewritten without waiting for its time. */
const MAX_LOG_BYTES = 4 * 1024 * 1024

interface FileScheduleStoreOptions {
  /** `.svc` of the functions root. */
  folder: OwnFolder
  /** Full path of another file to keep them in; null for the usual one. */
  path: string | null
  /** False keeps nothing; the lock is taken all the same. */
  persists: boolean
  /** Of the functions root; taken by `open`, released by its creator. */
  lock: RootLock
  /** Wall clock, ms. */
  now: () => number
  maxLogBytes?: number
}

export class FileScheduleStore implements ScheduleStore {
  readonly #options: FileScheduleStoreOptions
  readonly isShared = false
  onLost: (() => void) | null = null
  readonly #folder: OwnFolder
  readonly #name: string
  readonly #logName: string
  /** JSON of each state, so that writing all of them costs little more than the writing. */
  readonly #texts = new Map<string, string>()
  /** Number of the last change. */
  #seq = 0
  #flushedSeq = 0
  #logBytes = 0
  /** A line could not be written whole: whatever followed it in the log would be lost with it. */
  #isTorn = false
  #log: FileHandle | null = null
  #isOpen = false
  #stopWatching: () => void = () => {}
  /** One writes at a time. */
  readonly #writes = new Semaphore(1)

  constructor(options: FileScheduleStoreOptions) {
    this.#options = options
    const { path, folder } = options
    this.#folder = path === null ? folder : new OwnFolder(dirname(path))
    this.#name = path === null ? FILE_NAME : basename(path)
    this.#logName = `${this.#name}.log`
  }

  async open(): Promise<{ states: Map<string, ScheduleState>; warnings: Warning[] } | { heldBy: string }> {
    const warnings: Warning[] = []
    const states = new Map<string, ScheduleState>()
    const { lock, persists, path } = this.#options
    try {
      const holder = lock.acquire()
      if (holder !== null) return { heldBy: toHolderText(holder) }
      this.#stopWatching()
      this.#stopWatching = lock.onReplaced(rival => this.#handleReplaced(rival))
      if (!persists) return { states, warnings }
      if (path !== null) mkdirSync(this.#folder.path, { recursive: true })
      this.#readStates(states, warnings)
      for (const [key, state] of states) this.#texts.set(key, JSON.stringify(toStateRecord(state)))
      this.#log = await openToAppend(this.#folder.pathOf(this.#logName))
      this.#isOpen = true
      // Two files were read; they become one file again.
      await this.#writeAll()
    } catch (error) {
      // Schedules that are not kept are better than none that run.
      await this.#closeLog()
      this.#isOpen = false
      warnings.push({
        code: 'SCHEDULES_NOT_KEPT',
        path: '.svc',
        message: `schedules run, but their state is not kept: ${(error as Error).message}`,
        hint: 'Make .svc of the functions root writable, or set FN_SCHEDULER_STATE_PATH.',
      })
    }
    return { states, warnings }
  }

  async peek(): Promise<ReadonlyMap<string, ScheduleState>> {
    const states = new Map<string, ScheduleState>()
    try {
      if (this.#options.persists) this.#readStates(states, null)
    } catch {
      // Shown without what was kept.
    }
    return states
  }

  save(changes: KeptStates): Promise<void> {
    if (!this.#isOpen) return Promise.resolve()
    let lines = ''
    for (const [key, state] of changes) {
      const text = state === null ? 'null' : JSON.stringify(toStateRecord(state))
      if (state === null) this.#texts.delete(key)
      else this.#texts.set(key, text)
      lines += `{"seq":${++this.#seq},"key":${JSON.stringify(key)},"state":${text}}\n`
    }
    return this.#writes.run(() => this.#append(lines))
  }

  flush(): Promise<void> {
    if (!this.#isOpen || (this.#seq === this.#flushedSeq && !this.#isTorn)) return Promise.resolve()
    return this.#writes.run(() => this.#writeAll())
  }

  /** The folder was deleted or moved: everything is written again, unless another gateway has taken it. */
  #handleReplaced(rival: LockHolder | null): void {
    if (rival !== null) {
      // Its files are there now.
      this.#isOpen = false
      void this.close().then(() => this.onLost?.())
      return
    }
    if (!this.#isOpen) return
    this.#isTorn = true
    void this.#writes
      .run(async () => {
        await this.#closeLog()
        await this.#writeAll()
      })
      .catch(() => {})
  }

  async close(): Promise<void> {
    this.#stopWatching()
    await this.flush().catch(() => {})
    this.#isOpen = false
    await this.#writes.run(() => this.#closeLog())
  }

  async #closeLog(): Promise<void> {
    await this.#log?.close().catch(() => {})
    this.#log = null
  }

  async #append(lines: string): Promise<void> {
    const { maxLogBytes = MAX_LOG_BYTES } = this.#options
    // The added states are among all states already.
    if (this.#isTorn || this.#logBytes + lines.length > maxLogBytes) return this.#writeAll()
    this.#isTorn = true
    await this.#log?.appendFile(lines)
    await this.#log?.datasync()
    this.#isTorn = false
    this.#logBytes += lines.length
  }

  /** The whole file, then the log is empty: cut off in between, its lines are known by their numbers. */
  async #writeAll(): Promise<void> {
    const seq = this.#seq
    const savedAt = this.#options.now() / 1000
    const states = [...this.#texts].map(([key, text]) => `${JSON.stringify(key)}:${text}`).join(',\n')
    const head = `{"version":${VERSION},"saved_at":${savedAt},"seq":${seq},"schedules":{`
    this.#folder.write(this.#name, `${head}\n${states}\n}}\n`, 0o600)
    this.#log ??= await openToAppend(this.#folder.pathOf(this.#logName))
    await this.#log.truncate(0)
    this.#flushedSeq = seq
    this.#logBytes = 0
    this.#isTorn = false
  }

  /** @param warnings - null leaves files that cannot be used where they are */
  #readStates(states: Map<string, ScheduleState>, warnings: Warning[] | null): void {
    const records = new Map<string, unknown>()
    const whole = this.#readFile(this.#name, warnings, toWhole)
    for (const [key, record] of Object.entries(whole?.schedules ?? {})) records.set(key, record)
    this.#seq = whole?.seq ?? 0
    this.#readFile(this.#logName, warnings, text => this.#readLog(text, records))
    for (const [key, record] of records) {
      const state = toScheduleState(record)
      if (state !== null) states.set(key, state)
    }
  }

  /** @throws Error for a line that was cut off, when those before it are taken */
  #readLog(text: string, records: Map<string, unknown>): void {
    for (const line of text.split('\n').filter(one => one !== '')) {
      const { seq, key, state } = JSON.parse(line) as { seq?: unknown; key?: unknown; state?: unknown }
      if (typeof seq !== 'number' || typeof key !== 'string') throw new Error('it has lines of something else')
      if (seq <= this.#seq) continue
      this.#seq = seq
      if (state === null) records.delete(key)
      else records.set(key, state)
    }
  }

  /** Renames a file that cannot be used and adds a warning. @returns null for such a file, and for a missing one */
  #readFile<T>(name: string, warnings: Warning[] | null, parse: (text: string) => T): T | null {
    const folder = this.#folder
    const isThere = folder.list(/^/).some(entry => entry.name === name)
    if (!isThere) return null
    try {
      folder.statFile(name)
      const bytes = folder.read(name)
      if (bytes === null) throw new Error('it cannot be read')
      return parse(bytes.toString('utf8'))
    } catch (error) {
      if (warnings === null) return null
      if (error instanceof NewerStateError) throw error
      const aside = `${name}.set-aside-${this.#options.now()}`
      folder.rename(name, aside)
      warnings.push({
        code: 'SCHEDULES_SET_ASIDE',
        path: this.#options.path === null ? `.svc/${name}` : name,
        message: `${name} could not be used (${(error as Error).message}) and is now ${aside}`,
        hint: 'Schedules start again from the remaining state. Delete the file when it is not needed.',
      })
      return null
    }
  }
}

interface Whole {
  seq: number
  schedules: Readonly<Record<string, unknown>>
}

/** The file was written by a newer gateway: it is not touched. */
class NewerStateError extends Error {
  constructor(version: number) {
    const remedy = 'start the newer fngw again, or move the file away'
    super(`the state file has version ${version} of a newer fngw, this one reads version ${VERSION}: ${remedy}`)
  }
}

/** @throws Error with the reason why it is not a state file */
function toWhole(text: string): Whole {
  if (text.trim() === '') throw new Error('it is empty')
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new Error('it is not JSON: cut off, or of something else')
  }
  if (!isObject(value) || typeof value.version !== 'number') throw new Error('it is not a state of schedules')
  if (value.version > VERSION) throw new NewerStateError(value.version)
  if (value.version !== VERSION) throw new Error(`it has version ${value.version}`)
  if (!isObject(value.schedules)) throw new Error('it has no schedules')
  return { seq: typeof value.seq === 'number' ? value.seq : 0, schedules: value.schedules }
}

function toHolderText({ pid, host, since }: LockHolder): string {
  const where = host === '' ? '' : ` on ${host}`
  return `process ${pid}${where}, since ${new Date(since).toISOString()}`
}
