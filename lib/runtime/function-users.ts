/**
 * Which user each function runs as, with `FN_ISOLATION=user`. Owner: page runtime/isolation.
 *
 *   function's folder belongs to a user of the range  -> that user
 *   otherwise  .svc/isolation.json knows the function -> the same user as ever: it may own files elsewhere
 *              not yet                                -> the next free one, by a digest of its key
 */

import { createHash } from 'node:crypto'
import { chmodSync, chownSync, lstatSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { UidRange } from '../config/uid-range.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { OwnFolder } from '../files/own-folder.ts'

/** As it stands in a `start` for a daemon. */
export interface FunctionUser {
  /** User and group id. */
  uid: number
  /** Full path of a folder that only this user enters; temporary files are in `tmp` below it. */
  folder: string
}

const STATE_FILE = 'isolation.json'
/** Name of the folder of users' folders, short because paths of sockets must be. */
export const USERS_FOLDER = 'u'
const SECRET_FILES = ['fn.env.json', '.env', '.env.local']
const OTHERS_READ = 0o004
const OTHERS_ENTER = 0o001

export class FunctionUsers {
  readonly #range: UidRange
  readonly #state: OwnFolder
  /** By function key, of this run and earlier ones. */
  readonly #uids: Map<string, number>
  readonly #made = new Set<string>()

  /** @param functionsRoot - `.svc` in it remembers who is who */
  constructor(range: UidRange, functionsRoot: string) {
    this.#range = range
    this.#state = new OwnFolder(functionsRoot, '.svc')
    this.#uids = readState(this.#state)
  }

  /**
   * Gives every function its user.
   * @returns warnings about what functions cannot read, or others can
   */
  retain(functions: ReadonlyMap<string, FunctionVersion>): Warning[] {
    const before = JSON.stringify([...this.#uids])
    const warnings: Warning[] = []
    const started = [...functions.values()].filter(fn => fn.runtime !== 'lua')
    // Owners first: an id that somebody gave a folder to must not be chosen for another function.
    const held = new Set<number>()
    const rest = started.filter(fn => !this.#takeOwner(fn, held))
    for (const fn of rest) this.#settle(fn, held, functions)
    for (const fn of started) warnings.push(...this.#checkFiles(fn))
    if (JSON.stringify([...this.#uids]) !== before) warnings.push(...this.#write())
    return warnings
  }

  /**
   * The user of a function, with its folder made.
   * @param sockets - full path of the gateway's folder for sockets
   * @throws Error with a message for people
   */
  userOf(fn: FunctionVersion, sockets: string): FunctionUser {
    const uid = this.#uids.get(fn.key)
    if (uid === undefined) {
      const { first, last } = this.#range
      throw new Error(`no user id is left for this function: FN_ISOLATION_UIDS is ${first}-${last}`)
    }
    const own = new OwnFolder(sockets, USERS_FOLDER, String(uid))
    if (!this.#made.has(own.path) || !own.isThere()) {
      own.below('tmp').make()
      // The parent is entered by all and read by nobody; each folder below it is its user's alone.
      chmodSync(dirname(own.path), 0o711)
      for (const path of [join(own.path, 'tmp'), own.path]) {
        chmodSync(path, 0o700)
        chownSync(path, uid, uid)
      }
      this.#made.add(own.path)
    }
    return { uid, folder: own.path }
  }

  /** True for a function whose folder belongs to a user of the range: it runs as that one, whose id is added to `held`. */
  #takeOwner(fn: FunctionVersion, held: Set<number>): boolean {
    const owner = lstatSync(fn.fnDir, { throwIfNoEntry: false })?.uid ?? 0
    if (!this.#isInRange(owner)) return false
    this.#uids.set(fn.key, owner)
    held.add(owner)
    return true
  }

  /** @param held - ids that are another function's already; the one chosen is added */
  #settle(fn: FunctionVersion, held: Set<number>, functions: ReadonlyMap<string, FunctionVersion>): void {
    let uid = this.#uids.get(fn.key) ?? null
    if (uid === null || !this.#isInRange(uid) || held.has(uid)) {
      this.#uids.delete(fn.key)
      uid = this.#free(fn.key) ?? this.#reclaim(functions, held)
    }
    if (uid === null) return
    this.#uids.set(fn.key, uid)
    held.add(uid)
  }

  #isInRange(uid: number): boolean {
    return uid >= this.#range.first && uid <= this.#range.last
  }

  #free(key: string): number | null {
    const { first, last } = this.#range
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

  /** All are taken: one of a function that is gone is used again. */
  #reclaim(functions: ReadonlyMap<string, FunctionVersion>, held: ReadonlySet<number>): number | null {
    for (const [key, uid] of this.#uids) {
      if (functions.has(key) || held.has(uid) || !this.#isInRange(uid)) continue
      this.#uids.delete(key)
      return uid
    }
    return null
  }

  #checkFiles(fn: FunctionVersion): Warning[] {
    const uid = this.#uids.get(fn.key)
    const folder = dirname(fn.entryFile)
    const warnings: Warning[] = []
    for (const name of SECRET_FILES) {
      const stats = lstatSync(join(fn.fnDir, name), { throwIfNoEntry: false })
      if (stats === undefined || (stats.mode & OTHERS_READ) === 0) continue
      warnings.push({
        code: 'ISOLATION_READABLE',
        path: join(folder, name),
        message: `${join(folder, name)} can be read by every user, and so by every function`,
        hint: `chmod o-r ${join(folder, name)}; the gateway reads it as root`,
      })
    }
    const stats = lstatSync(fn.entryPath, { throwIfNoEntry: false })
    if (stats?.isFile() === true && uid !== undefined && stats.uid !== uid && (stats.mode & OTHERS_READ) === 0) {
      warnings.push({
        code: 'ISOLATION_UNREADABLE',
        path: fn.entryFile,
        message: `${fn.entryFile} cannot be read by user ${uid}, as whom it runs`,
        hint: `chown -R ${uid}:${uid} ${folder}, or chmod o+r ${fn.entryFile}`,
      })
    }
    return warnings
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

/** The folder on the way to a path that other users may not enter; null when there is none. */
export function findClosedFolder(path: string): string | null {
  for (let folder = path; ; folder = dirname(folder)) {
    const stats = lstatSync(folder, { throwIfNoEntry: false })
    if (stats?.isDirectory() === true && (stats.mode & OTHERS_ENTER) === 0) return folder
    if (dirname(folder) === folder) return null
  }
}

function readState(folder: OwnFolder): Map<string, number> {
  try {
    const value: unknown = JSON.parse(String(folder.read(STATE_FILE)))
    if (!isObject(value) || !isObject(value.users)) return new Map()
    return new Map(Object.entries(value.users).filter((entry): entry is [string, number] => Number.isInteger(entry[1])))
  } catch {
    // Missing, or not ours: users are given anew, by the same rule.
    return new Map()
  }
}
