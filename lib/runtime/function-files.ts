/**
 * Which files of a function other functions could read. Owner: page runtime/isolation.
 *
 *   /srv/functions        0755   everybody enters
 *    ├─ orders            0750   group 20001: only its function and the gateway enter: all in it is closed
 *    └─ users             0755   two functions in one folder: each file is looked at by itself
 *        ├─ get.js        0640   group 20002: closed
 *        └─ post.js       0644   open: every function can read it
 */

import { orNull } from '../core/errors.ts'
import {
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  realpathSync,
  type Stats,
  statSync,
} from 'node:fs'
import { dirname, join, relative, sep } from 'node:path'
import type { UidRange } from '../config/texts.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { toShellWord } from '../core/text.ts'
import { closing, NOT_THROUGH_LINKS } from '../files/own-folder.ts'

/** A file or folder that functions of other users can read. */
export interface OpenPath {
  path: string
  mode: number
}

/** Files beside a handler that set its environment. */
export const SECRET_FILES = ['fn.env.json', '.env', '.env.local']
/** In the folder of a function, and not its own: packages, and what the gateway keeps closed itself. */
const SHARED_FOLDERS: ReadonlySet<string> = new Set([
  ...['node_modules', 'vendor', '__pycache__', '.deps', '.svc', '.go-build', '.rust-build'],
])
/** Helpers that functions share have names that begin so. */
const SHARED_PREFIX = '_'
const OTHERS = { read: 0o004, enter: 0o001 } as const
const GROUP = { read: 0o040, enter: 0o010 } as const

/** One inspection of the files of a catalog: each file is read once. */
export class FunctionFiles {
  readonly #users: UidRange
  readonly #root: string
  readonly #entries = new Set<string>()
  /** Functions in or below each folder on the way to one. */
  readonly #counts = new Map<string, number>()
  readonly #seen = new Map<string, Stats | null>()

  /**
   * @param users - ids that are functions'
   * @param root - full path of the functions root
   */
  constructor(users: UidRange, root: string, functions: Iterable<FunctionVersion>) {
    this.#users = users
    this.#root = root
    for (const { entryPath, fnDir } of functions) {
      this.#entries.add(entryPath)
      for (const folder of foldersTo(fnDir, root)) this.#counts.set(folder, (this.#counts.get(folder) ?? 0) + 1)
    }
  }

  /** Files of a function that users of other functions can read. @param uid - its own user */
  findOpen(fn: FunctionVersion, uid: number): OpenPath[] {
    if (this.#isClosed(fn.fnDir, uid)) return []
    return this.#listOwn(fn).flatMap(path => {
      const stats = this.#look(path)
      if (stats === null || !this.#isOpen(stats, uid) || this.#isClosed(path, uid)) return []
      return [{ path, mode: stats.mode & 0o777 }]
    })
  }

  /** The first path on the way to a function's handler that its user cannot pass or read; null when there is none. */
  findUnreadable(fn: FunctionVersion, uid: number): OpenPath | null {
    for (const path of [...foldersTo(fn.fnDir, this.#root).reverse(), fn.entryPath]) {
      const stats = this.#look(path)
      if (stats === null) return null
      const needed = stats.isDirectory() ? OTHERS.enter : OTHERS.read
      const shift = stats.uid === uid ? 6 : stats.gid === uid ? 3 : 0
      if (((stats.mode >> shift) & needed) === 0) return { path, mode: stats.mode & 0o777 }
    }
    return null
  }

  /**
   * Closes it to all but its owner and the function. Links, which may lead out of the tree, are not followed.
   * @throws Error with a message for people, or of the file system
   */
  close({ path }: OpenPath, uid: number): void {
    if (!toReal(path).startsWith(toReal(this.#root) + sep)) throw new Error(`${path} is not in the functions root`)
    const file = openSync(path, constants.O_RDONLY | NOT_THROUGH_LINKS)
    this.#seen.clear()
    closing(file, () => {
      const stats = fstatSync(file)
      // A second name of a file may belong to another user.
      if (!stats.isDirectory() && (!stats.isFile() || stats.nlink > 1)) throw new Error(`${path} is not a regular file`)
      const isEntered = stats.isDirectory() || (stats.mode & 0o111) !== 0
      fchownSync(file, -1, uid)
      fchmodSync(file, (stats.mode & 0o700) | GROUP.read | (isEntered ? GROUP.enter : 0))
    })
  }

  /** The folder as a whole where all in it is the function's, else each of its files; its secrets in any case. */
  #listOwn(fn: FunctionVersion): string[] {
    const secrets = SECRET_FILES.map(name => join(fn.fnDir, name)).filter(path => this.#look(path) !== null)
    if (fn.kind === 'file') return [fn.entryPath, ...secrets]
    if (fn.fnDir !== this.#root && this.#counts.get(fn.fnDir) === 1) return [fn.fnDir]
    const names = readdirSync(fn.fnDir).filter(name => !name.startsWith(SHARED_PREFIX) && !SHARED_FOLDERS.has(name))
    const paths = names.map(name => join(fn.fnDir, name)).filter(path => !this.#counts.has(path))
    return paths.filter(path => path === fn.entryPath || !this.#entries.has(path))
  }

  /** True when a folder on the real way to a path lets no other function in. */
  #isClosed(path: string, uid: number): boolean {
    const real = toReal(path)
    const folder = this.#look(path)?.isDirectory() === true ? real : dirname(real)
    return foldersTo(folder).some(one => {
      const way = this.#look(one)
      return way !== null && (way.mode & OTHERS.enter) === 0 && !this.#isGivenToOther(way, GROUP.enter, uid)
    })
  }

  #isOpen(stats: Stats, uid: number): boolean {
    const others = stats.isDirectory() ? OTHERS.read | OTHERS.enter : OTHERS.read
    const group = stats.isDirectory() ? GROUP.read | GROUP.enter : GROUP.read
    return (stats.mode & others) !== 0 || this.#isGivenToOther(stats, group, uid)
  }

  /** True when another function owns it, or gets in by its group. */
  #isGivenToOther(stats: Stats, bits: number, uid: number): boolean {
    const isOther = (id: number): boolean => id !== uid && id >= this.#users.first && id <= this.#users.last
    return isOther(stats.uid) || (isOther(stats.gid) && (stats.mode & bits) !== 0)
  }

  #look(path: string): Stats | null {
    let stats = this.#seen.get(path)
    if (stats === undefined) {
      stats = statSync(path, { throwIfNoEntry: false }) ?? null
      this.#seen.set(path, stats)
    }
    return stats
  }
}

/** The command after which only its owner and the function read it. @param shown - paths below the functions root */
export function toCloseCommand(shown: readonly string[], uid: number): string {
  const names = shown.map(toShellWord).join(' ')
  return `chgrp ${uid} ${names} && chmod g=rX,o= ${names}`
}

/** A path as the operator sees it. */
export function toShown(path: string, root: string): string {
  return relative(root, path).split(sep).join('/') || '.'
}

function toReal(path: string): string {
  return orNull(() => realpathSync(path)) ?? path
}

/** A folder and those around it, up to `root`, as full paths. */
function foldersTo(folder: string, root = '/'): string[] {
  const folders = [folder]
  for (let at = folder; dirname(at) !== at; folders.push(at)) at = dirname(at)
  return folders.filter(one => one.startsWith(root))
}

// Whether other users can reach a path at all.

/**
 * @param paths - full paths
 * @param who - who needs them, as the message begins
 * @throws Error that names the closed folder and how to open it
 */
export function checkReachable(paths: readonly string[], who = 'users of functions'): void {
  for (const path of paths) {
    const closed = findClosedFolder(realpathSync(path))
    if (closed !== null)
      throw new Error(`${who} cannot reach ${path}: ${closed} is closed to them; chmod o+x ${closed}`)
  }
}

/** The folder on the way to a path that other users may not enter; null when there is none. */
export function findClosedFolder(path: string): string | null {
  const isClosed = (folder: string): boolean => {
    const stats = lstatSync(folder, { throwIfNoEntry: false })
    return stats?.isDirectory() === true && (stats.mode & OTHERS.enter) === 0
  }
  return foldersTo(path).find(isClosed) ?? null
}
