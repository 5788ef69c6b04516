/** Where the files of this package and of this process lie: daemons, and the private folder for sockets. Owner: §1, page runtime/daemon. */

import { chmodSync, lstatSync, lutimesSync, mkdirSync, mkdtempSync, readdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, isAbsolute, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { orNull } from '../core/errors.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { removeUserFolders, USERS_FOLDER } from './function-users.ts'
import { isAnswered } from './worker-socket.ts'

/** Longest socket path of every system, bytes (sockaddr_un), and what a file name in the folder may take of it. */
const MAX_SOCKET_PATH_BYTES = 100
const SOCKET_NAME_BYTES = 24
/** Milliseconds after which a folder without sockets counts as left behind. */
const EMPTY_FOLDER_AGE_MS = 60_000
const FOLDER_PREFIX = 'fngw-'
const FOLDER_NAME = /^fngw-[A-Za-z0-9]{6}$/
const DAEMON_SOCKET = /^[a-z]+-\d+\.sock$/
const SOCKET_NAME = /^[a-z]+-\d+(?:-w\d+)?\.sock$/
/** Folders below a folder of sockets that are looked through. */
const MAX_FOLDER_DEPTH = 2
const OWN_FOLDERS: ReadonlySet<string> = new Set(['cache', USERS_FOLDER])

/** The package. Sources (`lib/runtime/x.ts`) and built files (`dist/shared/x.js`) are equally deep in it: see build/bundle.mjs. */
const PACKAGE = new URL('../../', import.meta.url)

/**
 * Full path of a file of this package, in a checkout and when it is installed.
 * @param relative - such as `package.json`; files that the build makes are in `dist/`
 */
export function packageFile(relative: string): string {
  return fileURLToPath(new URL(relative, PACKAGE))
}

/** Full path of a file below `runtimes/`, such as `daemon/daemon.mjs`. */
export function runtimeFile(relative: string): string {
  return packageFile(`runtimes/${relative}`)
}

/**
 * Parents for the folder of sockets, best first: `RuntimeDirectory=` of systemd and the user's own run-time folder are not cleaned
 * while the service or the session lives, temporary folders may be.
 * @param isEntered - other users have folders in it
 */
export function socketBases(env: Readonly<Record<string, string | undefined>>, isEntered: boolean): string[] {
  const named = [env.RUNTIME_DIRECTORY?.split(':')[0], env.XDG_RUNTIME_DIR]
  const usable = named.filter(path => path !== undefined && isAbsolute(path) && isOwnParent(path, isEntered))
  return [...(usable as string[]), tmpdir()]
}

function isOwnParent(path: string, isEntered: boolean): boolean {
  const stats = lstatSync(path, { throwIfNoEntry: false })
  return stats?.isDirectory() === true && stats.uid === process.getuid?.() && (!isEntered || (stats.mode & 0o001) !== 0)
}

/** The private folder for the sockets of one gateway: made when first needed, readable only by the gateway. */
export class SocketFolder {
  readonly #bases: readonly string[]
  readonly #mode: number
  #made: OwnFolder | null = null

  /**
   * @param bases - parents, best first
   * @param short - parent that serves when paths below the others would be too long for a socket, or none can be written
   * @param isEntered - other users have folders in it: they may enter it, and see nothing of it
   */
  constructor(bases: readonly string[] = [tmpdir()], short = '/tmp', isEntered = false) {
    this.#mode = isEntered ? 0o711 : 0o700
    const fitting = bases.filter(
      base => Buffer.byteLength(base) + FOLDER_PREFIX.length + 7 + SOCKET_NAME_BYTES <= MAX_SOCKET_PATH_BYTES,
    )
    this.#bases = [...new Set([...fitting, short])]
  }

  /**
   * A folder that was deleted is made again under its name, because daemons go on putting sockets there.
   * @throws Error with a message for people when no parent is writable
   */
  path(): string {
    if (this.#made !== null && this.#isKept(this.#made.path)) return this.#made.path
    const problems: string[] = []
    for (const base of this.#bases) {
      try {
        // Made with a name that cannot be guessed, for its owner only.
        const path = mkdtempSync(join(base, FOLDER_PREFIX))
        chmodSync(path, this.#mode)
        this.#made = new OwnFolder(base, basename(path))
        return path
      } catch (error) {
        problems.push((error as Error).message)
      }
    }
    throw new Error(`no folder for sockets: ${problems.join('; ')}; set TMPDIR to a folder that can be written`)
  }

  /** True when the folder is there, or could be made again; false where something else has its name now. */
  #isKept(path: string): boolean {
    const stats = lstatSync(path, { throwIfNoEntry: false })
    if (stats !== undefined)
      return stats.isDirectory() && (process.getuid === undefined || stats.uid === process.getuid())
    try {
      mkdirSync(path, { mode: 0o700 })
      chmodSync(path, this.#mode)
      return true
    } catch {
      return false
    }
  }

  /** Shows other gateways and cleaners of temporary folders that it is in use, and makes it again when it is gone. Never throws. */
  keep(): void {
    const now = new Date()
    // The start of the next worker reports a failure.
    if (this.#made !== null) orNull(() => lutimesSync(this.path(), now, now))
  }

  /** Deletes the folder with everything in it. */
  remove(): void {
    const made = this.#made
    // Where a function left something in the way, the next gateway tries again.
    if (made !== null) orNull(() => removeAll(made))
    this.#made = null
  }

  /**
   * Deletes folders that gateways left behind when they were killed: ours by owner, nothing in them but sockets, none of
   * which answers. Never rejects: another gateway may be deleting the same ones.
   */
  async removeStale(): Promise<void> {
    for (const base of this.#bases) {
      const parent = new OwnFolder(base)
      for (const { name, stats } of parent.list(FOLDER_NAME)) {
        const folder = parent.below(name)
        const isOurs = stats.isDirectory() && stats.uid === process.getuid?.() && (stats.mode & 0o066) === 0
        if (!isOurs || folder.path === this.#made?.path || !isOfSockets(folder.path)) continue
        // One that is gone meanwhile, or cannot be deleted, does no harm.
        if (await isDead(folder, stats.mtimeMs).catch(() => false)) orNull(() => removeAll(folder))
      }
    }
  }
}

function removeAll(folder: OwnFolder): void {
  removeUserFolders(folder)
  folder.removeAll()
}

/** True when a folder holds nothing but what gateways and their daemons put there. */
function isOfSockets(folder: string, depth = MAX_FOLDER_DEPTH): boolean {
  const isOfSocket = (name: string): boolean => {
    const stats = lstatSync(join(folder, name))
    if (!stats.isDirectory()) return stats.isSocket() || SOCKET_NAME.test(name)
    // Functions and compilers choose the names in these.
    const isOurs = depth === MAX_FOLDER_DEPTH && OWN_FOLDERS.has(name)
    return isOurs || (depth > 1 && isOfSockets(join(folder, name), depth - 1))
  }
  return orNull(() => readdirSync(folder).every(isOfSocket)) ?? false
}

/** True when none of the folder's daemon sockets answers; one without any may be just being filled. */
async function isDead(folder: OwnFolder, mtimeMs: number): Promise<boolean> {
  const sockets = folder.list(DAEMON_SOCKET)
  if (sockets.length === 0) return Date.now() - mtimeMs > EMPTY_FOLDER_AGE_MS
  const answers = await Promise.all(sockets.map(({ name }) => isAnswered(folder.pathOf(name))))
  return answers.every(answered => !answered)
}
