/**
 * Folders in which package tools work as a function's user. Owner: page files/tool-user.
 *
 *   <root>/.svc/users           0711  the gateway's
 *    └─ 20001                   0710  the gateway's, entered by group 20001: the user cannot rename what is in it
 *        ├─ home                      the user's: caches of tools
 *        └─ d-Xy12Ab                  a draft: staged by the gateway, given to the user, its result copied back
 */

import { spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  type Stats,
} from 'node:fs'
import { chmod, copyFile, mkdir, readdir, readlink, symlink } from 'node:fs/promises'
import { basename, dirname, isAbsolute, join, normalize } from 'node:path'
import { NOT_THROUGH_LINKS, type OwnFolder } from './own-folder.ts'

/** Folder of `.svc` with the folders of users. */
export const USERS = 'users'
const HOME = 'home'
/** Looks for orphans of a user. */
const MAX_ROUNDS = 20
const DWELLER = 'dweller'
/** A user may have closed its folders to itself. */
const EMPTY = 'chmod -R u+rwx "$0"; rm -rf "$0"'
const READ = constants.O_RDONLY | NOT_THROUGH_LINKS

/** The user that the tools of one function, or of one shared pack, run as. */
export class ToolUser {
  /** User and group id. */
  readonly uid: number
  readonly gid: number
  readonly sharesFiles = true
  /** The gateway's; this user enters it and changes nothing in it. */
  readonly folder: OwnFolder

  /** @param state - `.svc` of the functions root */
  constructor(state: OwnFolder, uid: number) {
    this.uid = uid
    this.gid = uid
    this.folder = state.below(USERS, String(uid))
  }

  /** Whose the folder was last; null for a new one. */
  get dweller(): string | null {
    return this.folder.read(DWELLER)?.toString('utf8') ?? null
  }

  /** Makes the folders. @param dweller - the function or pack that has this user */
  prepare(dweller: string): void {
    const home = this.folder.below(HOME)
    const isNew = !home.isThere()
    home.make()
    chmodSync(dirname(this.folder.path), 0o711)
    chownSync(this.folder.path, -1, this.uid)
    chmodSync(this.folder.path, 0o710)
    if (isNew) this.give(home)
    if (this.dweller !== dweller) this.folder.write(DWELLER, dweller, 0o600)
  }

  /** Full path of the user's home. */
  get home(): string {
    return this.folder.pathOf(HOME)
  }

  /** Lets the user change what the gateway put into a folder below `folder`. */
  give(folder: OwnFolder): void {
    folder.hold(held => {
      const file = openSync(held, constants.O_RDONLY)
      try {
        this.#give(file)
      } finally {
        closeSync(file)
      }
    })
  }

  /** By open files: the user may exchange names meanwhile. */
  #give(file: number): void {
    const stats = fstatSync(file)
    // A second name of a file may belong to another user.
    if (isOwn(stats) && (stats.isDirectory() || (stats.isFile() && stats.nlink === 1))) {
      if (isRoot()) fchownSync(file, this.uid, this.uid)
      else {
        fchownSync(file, stats.uid, this.uid)
        fchmodSync(file, (stats.mode & 0o777) | ((stats.mode & 0o700) >> 3))
      }
    }
    if (!stats.isDirectory()) return
    const held = toPath(file)
    for (const name of readdirSync(held)) {
      const entry = tryOpen(join(held, name))
      if (entry === null) continue
      try {
        this.#give(entry)
      } finally {
        closeSync(entry)
      }
    }
  }

  /**
   * Copies what tools left in a folder. Files of other users and links that lead out of the folder are refused, also when
   * they are exchanged at the same moment: the gateway may read more than this user.
   * @param to - an empty folder of the gateway
   * @throws Error with the name of what is refused
   */
  async take(from: OwnFolder, to: OwnFolder): Promise<void> {
    const file = from.hold(held => openSync(held, constants.O_RDONLY))
    try {
      await this.#take(file, to.path, '')
    } finally {
      closeSync(file)
    }
  }

  async #take(folder: number, to: string, way: string): Promise<void> {
    for (const name of await readdir(toPath(folder))) {
      const path = join(toPath(folder), name)
      const shown = way === '' ? name : `${way}/${name}`
      const place = join(to, name)
      const file = tryOpen(path)
      if (file === null) {
        await symlink(await readInnerLink(path, shown), place)
        continue
      }
      try {
        const stats = fstatSync(file)
        if (stats.isDirectory()) {
          await mkdir(place)
          await this.#take(file, place, shown)
        } else await this.#takeFile(file, stats, place, shown)
      } finally {
        closeSync(file)
      }
    }
  }

  /** Copies one file that a tool left. It is the user's own, whatever links lead to it. @param place - full path of the copy */
  async takeFile(path: string, place: string): Promise<void> {
    const file = tryOpen(path)
    if (file === null) throw new Error(`${basename(path)} is missing, or is a link`)
    try {
      const stats = fstatSync(file)
      if (stats.uid !== this.uid) throw new Error(`${basename(path)} belongs to user ${stats.uid}`)
      await this.#takeFile(file, stats, place, basename(path))
    } finally {
      closeSync(file)
    }
  }

  async #takeFile(file: number, stats: Stats, place: string, shown: string): Promise<void> {
    const isOfUser = stats.uid === this.uid || (isOwn(stats) && stats.nlink === 1)
    if (!stats.isFile()) throw new Error(`${shown} is not a regular file`)
    if (!isOfUser) throw new Error(`${shown} belongs to user ${stats.uid}`)
    await copyFile(toPath(file), place)
    // Neither set-user-id nor closed to the function, whatever the tool chose.
    await chmod(place, (stats.mode & 0o100) === 0 ? 0o644 : 0o755)
  }

  /** Deletes a folder below `folder`, as the user: links that it puts in the way lead to nothing it could not delete itself. */
  remove(folder: OwnFolder): void {
    removeAsUser(folder, this.uid)
  }

  /** Kills a process group of the user. A gateway that is not root may not do so as itself. */
  killGroup(pid: number | undefined): void {
    if (!isRoot() && pid !== undefined && pid > 1) runAsUser(this.uid, 'kill -KILL "-$0"', [String(pid)])
  }

  /** Kills what tools of the user detached. Never rejects. */
  killStrays(): Promise<void> {
    return endOrphans(this.uid)
  }
}

/**
 * Kills processes of a user that came to an ancestor of this process, as orphans do. All of its processes stop for that moment: one that
 * forks and exits without pause is not found by looking, because its id is another one each time. Never rejects.
 */
export async function endOrphans(uid: number): Promise<void> {
  let kill = ''
  try {
    // A process that was about to exit is not stopped, and its end lets others go on: until a look finds none.
    for (let round = 0; round < MAX_ROUNDS; round++) {
      await startAsUser(uid, `${kill}kill -STOP -1`)
      const orphans = listOrphans(uid)
      if (orphans.length === 0) break
      kill = `kill -KILL ${orphans.join(' ')}; `
    }
  } finally {
    await startAsUser(uid, 'kill -CONT -1')
  }
}

/** Deletes a folder with everything in it as a user, then what only the gateway may delete. Never throws. */
export function removeAsUser(folder: OwnFolder, uid: number): void {
  if (!folder.isThere()) return
  runAsUser(uid, EMPTY, [folder.path])
  try {
    folder.removeAll()
  } catch {
    // What is left is closed to the gateway.
  }
}

/** Programs of the system alone: they keep the gateway's capabilities. */
function runAsUser(uid: number, script: string, args: readonly string[]): void {
  spawnSync('/bin/sh', ['-c', script, ...args], { uid, gid: uid, stdio: 'ignore' })
}

/** As `runAsUser`, without holding up this process. */
function startAsUser(uid: number, script: string): Promise<void> {
  return new Promise(resolve => {
    const child = spawn('/bin/sh', ['-c', script], { uid, gid: uid, stdio: 'ignore' })
    child.once('error', () => resolve())
    child.once('exit', () => resolve())
  })
}

/** @returns null for a link, and for what is gone */
function tryOpen(path: string): number | null {
  try {
    return openSync(path, READ)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ELOOP' || code === 'ENOENT') return null
    throw error
  }
}

async function readInnerLink(path: string, shown: string): Promise<string> {
  const target = await readlink(path)
  const end = normalize(join(dirname(shown), target))
  if (isAbsolute(target) || end === '..' || end.startsWith('../'))
    throw new Error(`${shown} is a link that leads out of the packages`)
  return target
}

/** Processes of workers, tools, and of another gateway that gives out the same ids are below processes that are none of the user's. */
function listOrphans(uid: number): number[] {
  const parents = new Map<number, number>()
  const own = new Set<number>()
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    try {
      const status = readFileSync(`/proc/${name}/status`, 'latin1')
      if (/^State:\s+[ZX]/m.test(status)) continue
      parents.set(Number(name), Number(/^PPid:\s+(\d+)/m.exec(status)?.[1]))
      if (Number(/^Uid:\s+(\d+)/m.exec(status)?.[1]) === uid) own.add(Number(name))
    } catch {
      // It ended meanwhile.
    }
  }
  const above = new Set<number>()
  for (let at = parents.get(process.pid); at !== undefined; at = parents.get(at)) above.add(at)
  const parentOf = (pid: number): number => {
    const parent = parents.get(pid) ?? 0
    return own.has(parent) ? parentOf(parent) : parent
  }
  // A parent that is not there ended during this look; that of a worker does not.
  return [...own].filter(pid => above.has(parentOf(pid)) || !parents.has(parentOf(pid)))
}

function toPath(file: number): string {
  return `/proc/self/fd/${file}`
}

function isOwn({ uid }: Stats): boolean {
  return uid === process.geteuid?.()
}

function isRoot(): boolean {
  return process.geteuid?.() === 0
}
