/**
 * Which user each function runs as, with `FN_ISOLATION=user`. Owner: page runtime/isolation.
 *
 *   file or folder belongs to a user or group of the range  -> that one, the nearest
 *   otherwise  .svc/isolation.json knows the function       -> the same user as ever: it may own files elsewhere
 *              not yet                                      -> the next free one, by a digest of its key
 */

import { createHash } from 'node:crypto'
import { chmodSync, chownSync, lchownSync, lstatSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Settings } from '../config/settings.ts'
import type { UidRange } from '../config/texts.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, Timer, within } from '../core/clock.ts'
import { orNull, type Warning } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { DEFAULT_FUNCTION_PROCESSES } from '../core/limits.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { removeAsUser, ToolUser } from '../files/tool-user.ts'
import { runAsUser, type UserSignals } from '../files/user-signals.ts'
import { FunctionFiles, type OpenPath, toCloseCommand, toShown } from './function-files.ts'

/** As it stands in a `start` for a daemon. */
export interface FunctionUser {
  uid: number
  /** Full path of a folder that only this user enters; temporary files are in `tmp` below it. */
  folder: string
  /** Resource limits of each process, as `prlimit` names them. */
  limits: ResourceLimits
}

interface FunctionUsersOptions {
  range: UidRange
  /** `.svc` in it remembers who is who. */
  functionsRoot: string
  /** The treatment of functions whose files others can read. */
  files: Settings['isolationFiles']
  limits: ResourceLimits
  signals: UserSignals
  /** True while workers of a function that is gone may still run. */
  isServed(key: string): boolean
}

const STATE_FILE = 'isolation.json'
const MAX_NAMED = 5

export class FunctionUsers {
  readonly #options: FunctionUsersOptions
  readonly #state: OwnFolder
  /** By function key, of this run and earlier ones. */
  readonly #uids: Map<string, number>
  /** Why functions are not served, by key. */
  readonly #refused = new Map<string, string>()
  /** Folders of users that were made in this run, by id. */
  readonly folders = new Map<number, string>()
  /** Which function had the folder of an id last. */
  readonly #dwellers = new Map<number, string>()
  #functions: ReadonlyMap<string, FunctionVersion> = new Map()

  constructor(options: FunctionUsersOptions) {
    this.#options = options
    this.#state = new OwnFolder(options.functionsRoot, '.svc')
    this.#uids = readState(this.#state)
  }

  /**
   * Gives every function its user and looks whether its files are closed to the others. Those of Lua have one too, as the
   * group that their files are closed with: they run in the gateway.
   * @returns warnings about what functions cannot read, or others can
   */
  retain(functions: ReadonlyMap<string, FunctionVersion>): Warning[] {
    const before = JSON.stringify([...this.#uids])
    this.#closeOwnFolders()
    this.#functions = functions
    const held = new Set<number>()
    const others: string[] = []
    // Owners first: an id that owns a folder must not be chosen for another function.
    for (const fn of functions.values()) {
      const owner = this.#findOwner(fn)
      if (owner === null) others.push(fn.key)
      else this.#assign(fn.key, owner, held)
    }
    for (const key of others) this.#settle(key, held)
    const warnings = this.#checkFiles()
    if (JSON.stringify([...this.#uids]) !== before) warnings.push(...this.#write())
    return warnings
  }

  /** Why a function is not served; null when it is. */
  refusalOf({ key }: FunctionVersion): string | null {
    return this.#refused.get(key) ?? null
  }

  /** User and group id of a function. @throws Error when none is left */
  idOf(key: string): number {
    const known = this.#uids.get(key)
    if (known !== undefined) return known
    // One may be free since the files were read: the last worker of a function that is gone has ended.
    const held = new Set([...this.#functions.keys()].flatMap(one => this.#uids.get(one) ?? []))
    const uid = this.#settle(key, held)
    if (uid !== null) return uid
    const { first, last } = this.#options.range
    throw new Error(`no user id is left for this function: FN_ISOLATION_UIDS gives functions ${first}-${last}`)
  }

  keysOf(uid: number): string[] {
    return [...this.#functions.keys()].filter(key => this.#uids.get(key) === uid)
  }

  /** Text that differs when workers started before must not serve a function any more. */
  stampOf({ key }: FunctionVersion): string {
    return String(this.#uids.get(key))
  }

  /**
   * The user of a function, with its folder made and its program let be run by it.
   * @param sockets - full path of the gateway's folder for sockets
   * @param program - full path of a compiled function's program; null for others
   * @throws Error with a message for people
   */
  userOf({ key }: FunctionVersion, sockets: string, program: string | null = null): FunctionUser {
    const uid = this.idOf(key)
    const own = userFolder(sockets, uid)
    const dweller = this.#dwellers.get(uid) ?? key
    this.#dwellers.set(uid, key)
    // It has its id from a function that is gone, and must find nothing of that one.
    if (dweller !== key && !this.#functions.has(dweller)) removeAsUser(own, uid)
    if (!this.folders.has(uid) || !own.isThere()) {
      makeUserFolder(own, uid)
      this.folders.set(uid, own.path)
    }
    if (program !== null) openBuild(program, uid)
    return { uid, folder: own.path, limits: this.#options.limits }
  }

  /**
   * Whom package tools run as.
   * @param key - of a function, or `pack <folder>` for a shared pack, which functions cannot change
   * @throws Error when no id is left
   */
  toolUserOf(key: string): ToolUser {
    const user = new ToolUser(this.#state, this.idOf(key), this.#options.signals)
    const before = user.dweller
    // Caches of a function that is gone; functions of one closed folder share a user.
    if (before !== null && this.#uids.get(before) !== user.uid) user.remove(user.folder)
    user.prepare(key)
    return user
  }

  /** Functions have no access to `.svc`, such as its builds, except to shared packs and to folders of users. */
  #closeOwnFolders(): void {
    for (const { name, stats } of this.#state.list(/^(?!(?:packs|users)$)/)) {
      if (stats.isDirectory() && (stats.mode & 0o077) !== 0) chmodSync(this.#state.pathOf(name), 0o700)
    }
  }

  /** The user or group of the range that its files belong to. */
  #findOwner({ entryPath }: FunctionVersion): number | null {
    for (let path = entryPath; path.startsWith(this.#options.functionsRoot); path = dirname(path)) {
      const stats = lstatSync(path, { throwIfNoEntry: false })
      if (stats === undefined) continue
      if (this.#isInRange(stats.uid)) return stats.uid
      if (this.#isInRange(stats.gid)) return stats.gid
    }
    return null
  }

  #assign(key: string, uid: number, held: Set<number>): number {
    this.#uids.set(key, uid)
    held.add(uid)
    return uid
  }

  /** @param held - ids that are another function's already; the one chosen is added */
  #settle(key: string, held: Set<number>): number | null {
    const known = this.#uids.get(key)
    if (known !== undefined && this.#isInRange(known) && !held.has(known)) return this.#assign(key, known, held)
    this.#uids.delete(key)
    const uid = this.#findFree(key) ?? this.#reclaim(held)
    return uid === null ? null : this.#assign(key, uid, held)
  }

  #isInRange(uid: number): boolean {
    const { first, last } = this.#options.range
    return uid >= first && uid <= last
  }

  #findFree(key: string): number | null {
    const { first, last } = this.#options.range
    const size = last - first + 1
    const taken = new Set(this.#uids.values())
    if (taken.size >= size) return null
    const start = createHash('sha256').update(key).digest().readUInt32BE(0) % size
    for (let step = 0; step < size; step++) {
      const uid = first + ((start + step) % size)
      if (!taken.has(uid)) return uid
    }
    return null
  }

  /** All are taken: one of a function that is gone, with its last worker, is used again. */
  #reclaim(held: ReadonlySet<number>): number | null {
    for (const [key, uid] of this.#uids) {
      const isNeeded = this.#functions.has(key) || held.has(uid) || this.#options.isServed(key)
      if (isNeeded || !this.#isInRange(uid)) continue
      this.#uids.delete(key)
      return uid
    }
    return null
  }

  #checkFiles(): Warning[] {
    const { functionsRoot, range } = this.#options
    const files = new FunctionFiles(range, functionsRoot, this.#functions.values())
    const warnings: Warning[] = []
    this.#refused.clear()
    for (const fn of this.#functions.values()) {
      const uid = this.#uids.get(fn.key)
      if (uid === undefined) continue
      const open = this.#closeFiles(files, fn, uid)
      if (open.length > 0) warnings.push(this.#toOpenWarning(fn, uid, open))
      const closed = fn.runtime === 'lua' ? null : files.findUnreadable(fn, uid)
      if (closed === null) continue
      const shown = toShown(closed.path, functionsRoot)
      warnings.push({
        code: 'ISOLATION_UNREADABLE',
        path: fn.entryFile,
        message: `${shown} (${toOctal(closed.mode)}) is closed to user ${uid}, as whom ${fn.entryFile} runs`,
        hint: toCloseCommand([shown], uid),
      })
    }
    return warnings
  }

  /** @returns what is open to other functions, after closing it where that was asked for */
  #closeFiles(files: FunctionFiles, fn: FunctionVersion, uid: number): OpenPath[] {
    const open = files.findOpen(fn, uid)
    if (open.length === 0 || this.#options.files !== 'close') return open
    try {
      for (const path of open) files.close(path, uid)
    } catch {
      // Not ours to change: the warning names the command for their owner.
    }
    return files.findOpen(fn, uid)
  }

  #toOpenWarning(fn: FunctionVersion, uid: number, open: readonly OpenPath[]): Warning {
    const { functionsRoot, files } = this.#options
    const shown = open.map(({ path }) => toShown(path, functionsRoot))
    const named = open.slice(0, MAX_NAMED).map(({ mode }, at) => `${shown[at]} (${toOctal(mode)})`)
    const more = open.length > MAX_NAMED ? ` and ${open.length - MAX_NAMED} more` : ''
    const what = `other functions can read ${named.join(', ')}${more}`
    const hint = `in the functions root: ${toCloseCommand(shown, uid)}`
    const warning = { code: 'ISOLATION_READABLE', path: shown[0]!, hint }
    if (files === 'warn') return { ...warning, message: what }
    this.#refused.set(fn.key, `not served with FN_ISOLATION=user: ${what}; ${hint}`)
    return { ...warning, message: `${what}: ${fn.entryFile} is not served` }
  }

  #write(): Warning[] {
    const users = Object.fromEntries([...this.#uids].sort(([a], [b]) => (a < b ? -1 : 1)))
    try {
      this.#state.write(STATE_FILE, `${JSON.stringify({ version: 1, users }, null, 2)}\n`, 0o600)
      return []
    } catch (error) {
      const message = `.svc/${STATE_FILE} cannot be written, users of functions may change: ${(error as Error).message}`
      return [{ code: 'ISOLATION_STATE', path: `.svc/${STATE_FILE}`, message, hint: 'Make .svc writable.' }]
    }
  }
}

/** `<function>/.go-build/<handler>/bin/<program>`: the handler's folder is for its user and for the build. */
function openBuild(program: string, uid: number): void {
  const folder = dirname(dirname(program))
  const { gid, mode } = lstatSync(folder)
  if (gid === uid && (mode & 0o777) === 0o750) return
  lchownSync(folder, -1, uid)
  chmodSync(folder, 0o750)
}

function toOctal(mode: number): string {
  return mode.toString(8).padStart(3, '0')
}

/** Where it is missing, or not the gateway's, users are assigned again, by the same rule. */
function readState(folder: OwnFolder): Map<string, number> {
  const value: unknown = orNull(() => JSON.parse(String(folder.read(STATE_FILE))))
  const users = isObject(value) && isObject(value.users) ? Object.entries(value.users) : []
  return new Map(users.filter((entry): entry is [string, number] => Number.isInteger(entry[1])))
}

// The folders of functions' users, made and removed by root or by a gateway that is in their groups.
//   <socket folder>/u        0711  the gateway's: a way, and nothing to see
//    └─ 20001                0700  the user's; for a gateway that is not root its own, 0770 with the user's group
//        ├─ tmp                    likewise
//        └─ w-1f0c.sock            of a compiled function

/** Name of the folder of users' folders, short because paths of sockets must be. */
export const USERS_FOLDER = 'u'
const TEMPORARY = 'tmp'
const USER_NAME = /^\d{1,10}$/

/** The folder of one user, not made yet. @param sockets - full path of the gateway's folder for sockets */
export function userFolder(sockets: string, uid: number): OwnFolder {
  return new OwnFolder(sockets, USERS_FOLDER, String(uid))
}

/** @throws Error with a message for people, or of the file system */
export function makeUserFolder(folder: OwnFolder, uid: number): void {
  folder.make()
  chmodSync(dirname(folder.path), 0o711)
  const temporary = folder.below(TEMPORARY)
  temporary.make()
  // Only root gives files away: those of another gateway stay its own, and the user has them by its group.
  const isRoot = process.geteuid?.() === 0
  for (const { path } of [temporary, folder]) {
    chownSync(path, isRoot ? uid : -1, uid)
    chmodSync(path, isRoot ? 0o700 : 0o770)
  }
}

/** Deletes all of them. @param sockets - folder of a gateway, this one's or one's that is gone */
export function removeUserFolders(sockets: OwnFolder): void {
  const users = sockets.below(USERS_FOLDER)
  for (const { name, stats } of users.list(USER_NAME)) {
    // The group was given with the folder; nothing is done as another user.
    if (stats.isDirectory() && stats.gid === Number(name)) removeAsUser(users.below(name), stats.gid)
  }
}

/** Ends what users of functions left behind when one of their workers has ended. */
export class UserProcesses {
  readonly #signals: Pick<UserSignals, 'endOrphans'>
  /** Users of workers that have ended since the last turn for them began. */
  readonly #left = new Set<number>()
  readonly #turns = new Map<number, Promise<void>>()

  constructor(signals: Pick<UserSignals, 'endOrphans'>) {
    this.#signals = signals
  }

  /** A worker has ended. Those that end while it goes on share one more turn. */
  leave(uid: number): void {
    this.#left.add(uid)
    if (!this.#turns.has(uid)) this.#turns.set(uid, this.#run(uid))
  }

  async #run(uid: number): Promise<void> {
    while (this.#left.delete(uid)) await this.#signals.endOrphans(uid)
    this.#turns.delete(uid)
  }

  /** Resolves when nothing is being ended. */
  async settle(): Promise<void> {
    await Promise.all(this.#turns.values())
  }
}

// Limits of a function with a separate user.

type QuotaSettings = Pick<Settings, 'functionProcesses' | 'functionOpenFiles' | 'functionTempMb'>

/** Limits of a process, as `prlimit` names them: `nproc` counts all processes and threads of the user. */
interface ResourceLimits {
  nproc: number
  nofile?: number
  /** Bytes of one file. */
  fsize?: number
}

const MIB = 1024 * 1024

export function toLimits({ functionProcesses, functionOpenFiles, functionTempMb }: QuotaSettings): ResourceLimits {
  return {
    nproc: functionProcesses ?? DEFAULT_FUNCTION_PROCESSES,
    ...(functionOpenFiles !== null && { nofile: functionOpenFiles }),
    ...(functionTempMb !== null && { fsize: functionTempMb * MIB }),
  }
}

/** Milliseconds between two measurements of temporary files. */
export const TEMP_LOOK_MS = 5000
/** Longest measurement: a function's processes could stop the one that measures. */
export const MEASURE_LIMIT_MS = 30_000
/** In KiB, with what the user has closed to itself. */
const MEASURE = `find "$0" -type d ! -perm -700 -exec chmod u+rwx {} \\; 2>/dev/null
du -skx "$0" 2>/dev/null | cut -f1`
const EMPTY = 'find "$0" -mindepth 1 -delete'

interface TempQuotaOptions {
  clock: Pick<Clock, 'setTimeout' | 'clearTimeout'>
  limitMb: number
  signals: Pick<UserSignals, 'signal'>
  /** Users with a folder, by id; the folder's full path. */
  folders: ReadonlyMap<number, string>
  /** @param usedMb - null when they could not be measured in time */
  onExceeded(uid: number, usedMb: number | null): void
  /** Runs a script on a folder as its user. @returns what it writes; null when it cannot run */
  run?(uid: number, script: string, args: readonly string[]): Promise<string | null>
}

/** Measures the temporary files of functions, one after the other, for as long as the gateway runs. */
export class TempQuota {
  readonly #options: Required<TempQuotaOptions>
  readonly #timer: Timer
  #isClosed = false

  constructor(options: TempQuotaOptions) {
    this.#options = { run: runAsUser, ...options }
    this.#timer = new Timer(options.clock, true)
    this.#plan()
  }

  close(): void {
    this.#isClosed = true
    this.#timer.clear()
  }

  #plan(): void {
    if (!this.#isClosed) this.#timer.set(TEMP_LOOK_MS, () => void this.#look().then(() => this.#plan()))
  }

  async #look(): Promise<void> {
    for (const [uid, folder] of [...this.#options.folders]) {
      if (this.#isClosed) return
      await this.#check(uid, join(folder, 'tmp'))
    }
  }

  async #check(uid: number, folder: string): Promise<void> {
    const { clock, limitMb, signals, run, onExceeded } = this.#options
    const measuring = run(uid, MEASURE, [folder]).then(text => ({ usedMb: Number(text ?? 0) / 1024 }))
    const measured = await within(clock, MEASURE_LIMIT_MS, measuring)
    // One that cannot be measured is within its limit, and one that takes too long is not.
    if (this.#isClosed || (measured !== null && measured.usedMb <= limitMb)) return
    // Deleted files that are open take up space as well.
    await signals.signal(uid, [['KILL', -1]])
    await run(uid, EMPTY, [folder])
    onExceeded(uid, measured && Math.ceil(measured.usedMb))
  }
}
