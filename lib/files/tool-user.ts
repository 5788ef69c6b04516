/**
 * Folders in which package tools work as a function's user. Owner: page files/tool-user.
 *
 *   <root>/.svc/users           0711  the gateway's
 *    └─ 20001                   0710  the gateway's, entered by group 20001: the user cannot rename what is in it
 *        ├─ home                      the user's: caches of tools
 *        └─ d-Xy12Ab                  a draft: staged by the gateway, given to the user, its result copied back
 */

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
  type Stats,
} from 'node:fs'
import { chmod, copyFile, mkdir, readdir, readlink, symlink } from 'node:fs/promises'
import { basename, dirname, isAbsolute, join, normalize } from 'node:path'
import { orNull } from '../core/errors.ts'
import { closing, NOT_THROUGH_LINKS, nullFor, type OwnFolder, toPath } from './own-folder.ts'
import { runAsUser, runAsUserSync, type UserSignals } from './user-signals.ts'

/** Folder of `.svc` with the folders of users. */
export const USERS = 'users'
const HOME = 'home'
const DWELLER = 'dweller'
/** A user may have closed its folders to itself. */
const EMPTY = 'chmod -R u+rwx "$0"; rm -rf "$0"'

/** The user that the tools of one function, or of one shared pack, run as. */
export class ToolUser {
  /** User and group id. */
  readonly uid: number
  readonly gid: number
  readonly sharesFiles = true
  /** The gateway's; this user enters it and changes nothing in it. */
  readonly folder: OwnFolder
  readonly #signals: UserSignals

  /** @param state - `.svc` of the functions root */
  constructor(state: OwnFolder, uid: number, signals: UserSignals) {
    this.#signals = signals
    this.uid = uid
    this.gid = uid
    this.folder = state.below(USERS, String(uid))
  }

  /** The function or pack that used the folder last; null for a new one. */
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
    closing(openHeld(folder), file => this.#give(file))
  }

  /** By open files: the user may exchange names meanwhile. */
  #give(file: number): void {
    const stats = fstatSync(file)
    // A second name of a file may belong to another user.
    if (isOwn(stats) && (stats.isDirectory() || (stats.isFile() && stats.nlink === 1))) {
      if (process.geteuid?.() === 0) fchownSync(file, this.uid, this.uid)
      else {
        fchownSync(file, stats.uid, this.uid)
        fchmodSync(file, (stats.mode & 0o777) | ((stats.mode & 0o700) >> 3))
      }
    }
    if (!stats.isDirectory()) return
    for (const name of readdirSync(toPath(file))) {
      const entry = tryOpen(join(toPath(file), name))
      if (entry !== null) closing(entry, () => this.#give(entry))
    }
  }

  /**
   * Copies what tools left in a folder. Files of other users and links that lead out of the folder are refused, also when
   * they are exchanged at the same moment: the gateway may read more than this user.
   * @param to - an empty folder of the gateway
   * @throws Error with the name of the refused file
   */
  async take(from: OwnFolder, to: OwnFolder): Promise<void> {
    await this.#take(openHeld(from), to.path, '')
  }

  /** Copies an open file or folder, and closes it. @param shown - its path below the folder that is taken */
  async #take(file: number, place: string, shown: string): Promise<void> {
    try {
      const stats = fstatSync(file)
      if (!stats.isDirectory()) return await this.#copy(file, stats, place, shown)
      if (shown !== '') await mkdir(place)
      for (const name of await readdir(toPath(file))) {
        const entryPath = join(toPath(file), name)
        const entryShown = join(shown, name)
        const entry = tryOpen(entryPath)
        if (entry === null) await symlink(await readInnerLink(entryPath, entryShown), join(place, name))
        else await this.#take(entry, join(place, name), entryShown)
      }
    } finally {
      closeSync(file)
    }
  }

  /** Copies one file that a tool left. It is the user's own, whatever links lead to it. @param place - full path of the copy */
  async takeFile(path: string, place: string): Promise<void> {
    const name = basename(path)
    const file = tryOpen(path)
    if (file === null) throw new Error(`${name} is missing, or is a link`)
    try {
      const stats = fstatSync(file)
      if (stats.uid !== this.uid) throw new Error(`${name} belongs to user ${stats.uid}`)
      await this.#copy(file, stats, place, name)
    } finally {
      closeSync(file)
    }
  }

  async #copy(file: number, stats: Stats, place: string, shown: string): Promise<void> {
    const isOfUser = stats.uid === this.uid || (isOwn(stats) && stats.nlink === 1)
    if (!stats.isFile()) throw new Error(`${shown} is not a regular file`)
    if (!isOfUser) throw new Error(`${shown} belongs to user ${stats.uid}`)
    await copyFile(toPath(file), place)
    // Neither set-user-id nor closed to the function, whatever the tool chose.
    await chmod(place, (stats.mode & 0o100) === 0 ? 0o644 : 0o755)
  }

  /** Deletes a folder below `folder`, as the user: through a link it can delete only what the user could delete itself. */
  async remove(folder: OwnFolder): Promise<void> {
    if (!folder.isThere()) return
    await runAsUser(this.uid, EMPTY, [folder.path])
    removeRest(folder)
  }

  /** Kills a process group of the user. A gateway that is not root may not do so as itself. */
  killGroup(pid: number | undefined): void {
    this.#signals.killGroup(this.uid, pid)
  }

  /** Kills what tools of the user detached. Never rejects. */
  killStrays(): Promise<void> {
    return this.#signals.endOrphans(this.uid)
  }
}

/** Deletes a folder with everything in it as a user, then what only the gateway may delete. Never throws. */
export function removeAsUser(folder: OwnFolder, uid: number): void {
  if (!folder.isThere()) return
  runAsUserSync(uid, EMPTY, [folder.path])
  removeRest(folder)
}

/** Files that are closed to the gateway stay. */
function removeRest(folder: OwnFolder): void {
  orNull(() => folder.removeAll())
}

function openHeld(folder: OwnFolder): number {
  return folder.hold(held => openSync(held, constants.O_RDONLY))
}

/** @returns null for a link, and for a missing file */
function tryOpen(path: string): number | null {
  return nullFor(['ELOOP', 'ENOENT'], () => openSync(path, constants.O_RDONLY | NOT_THROUGH_LINKS))
}

async function readInnerLink(path: string, shown: string): Promise<string> {
  const target = await readlink(path)
  const end = normalize(join(dirname(shown), target))
  if (isAbsolute(target) || end === '..' || end.startsWith('../'))
    throw new Error(`${shown} is a link that leads out of the packages`)
  return target
}

function isOwn({ uid }: Stats): boolean {
  return uid === process.geteuid?.()
}
