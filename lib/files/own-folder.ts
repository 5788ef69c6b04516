/**
 * Folders the gateway writes to, below folders of the user: `.svc`, `.go-build`, the socket folder.
 * Owner: §1, page files/own-folder.
 *
 *   base (the user's; links on the way to it are the user's choice)
 *    └─ .svc ─ build ─ tmp        each part a real folder: a link here came with a checked-out tree or from another
 *                                 user, and writing or deleting behind it would reach files that are not ours
 */

import { randomBytes } from 'node:crypto'
import {
  chownSync,
  closeSync,
  constants,
  existsSync,
  fchmodSync,
  fchownSync,
  fstatSync,
  fsyncSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  type Stats,
  statSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { type FileHandle, lstat, open } from 'node:fs/promises'
import { basename, dirname, join, relative, sep } from 'node:path'

/** Something that must not be written to has a name that the gateway writes. `path` is its full path. */
export class UnsafePathError extends Error {
  readonly code = 'UNSAFE_PATH'
  readonly path: string

  constructor(path: string, shown: string, what: string, wanted: string) {
    super(`${shown} is ${what}, not ${wanted}: the gateway writes nothing there; remove it`)
    this.path = path
  }
}

const LINK = 'a symbolic link'

const IGNORE_FILE = '.gitignore'
/** Folders of the gateway beside functions; others may hold functions. */
const IGNORED_FOLDERS: ReadonlySet<string> = new Set([
  ...['.svc', '.svc-deps', '.deps', 'node_modules', 'vendor', '.go-build', '.rust-build'],
])
/** Git ignores all files of the folder, this one included. */
const IGNORED = '*\n'
/** Shared packs are sources of the user (§2.16). */
const IGNORED_STATE = '*\n!/packs/\n!/packs/**\n'

/** User and group of a file. */
type FileOwner = Pick<Stats, 'uid' | 'gid'>

/** One entry of a folder, not followed when it is a link. */
interface OwnEntry {
  name: string
  stats: Stats
}

/** Never followed: a link as the last part of a path. Windows knows neither flag. */
export const NOT_THROUGH_LINKS = (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0)

/** A folder that the gateway makes, fills and empties. Nothing is made by the constructor. */
export class OwnFolder {
  /** Full path. */
  readonly path: string
  readonly #base: string
  readonly #names: readonly string[]

  /**
   * @param base - full path of an existing folder
   * @param names - the way from there, one plain name for each folder
   */
  constructor(base: string, ...names: string[]) {
    for (const name of names) checkName(name)
    this.#base = base
    this.#names = names
    this.path = join(base, ...names)
  }

  /** A folder below this one. */
  below(...names: string[]): OwnFolder {
    return new OwnFolder(this.#base, ...this.#names, ...names)
  }

  /** Full path of an entry. */
  pathOf(name: string): string {
    checkName(name)
    return join(this.path, name)
  }

  /**
   * Makes what is missing of it. @returns its full path
   * @throws UnsafePathError when a part is a link or no folder; Error of the file system
   */
  make(): string {
    for (const [at, path] of this.#parts().entries()) {
      try {
        mkdirSync(path)
        this.#give(at)
      } catch (error) {
        if (!hasCode(error, 'EEXIST')) throw error
      }
      this.#checkPart(path, lstatSync(path))
    }
    this.#ignore()
    return this.path
  }

  /** As `make`, without holding up the process where nothing is missing. */
  async ensure(): Promise<string> {
    for (const path of this.#parts()) {
      const stats = await lstat(path).catch(() => null)
      if (stats === null) return this.make()
      this.#checkPart(path, stats)
    }
    this.#ignore()
    return this.path
  }

  /** Gives a folder that root made to the owner of the folder around it, who may then edit and delete it. */
  #give(at: number): void {
    if (process.geteuid?.() !== 0) return
    const names = this.#names.slice(0, at + 1)
    inHeldFolder(this.#base, names, join(this.#base, ...names), held => {
      // Not joined: that would take the link to the open folder for its name.
      const { uid, gid } = statSync(`${held}/..`)
      if (uid !== 0) chownSync(held, uid, gid)
    })
  }

  /** Keeps what the gateway writes out of git. */
  #ignore(): void {
    const [name] = this.#names
    if (name === undefined || !IGNORED_FOLDERS.has(name)) return
    const path = join(this.#base, name)
    const text = name === '.svc' ? IGNORED_STATE : IGNORED
    if (lstatSync(join(path, IGNORE_FILE), { throwIfNoEntry: false }) !== undefined) return
    try {
      inHeldFolder(this.#base, [name], path, held => {
        const file = openSync(join(held, IGNORE_FILE), 'wx', 0o644)
        closing(file, () => {
          writeFileSync(file, text)
          giveFile(file, null, held)
        })
      })
    } catch {
      // Another process wrote it, or it cannot be written: the folder serves all the same.
    }
  }

  /** True when nothing is in it but what `make` put there. */
  isEmpty(): boolean {
    return this.list(/^/).every(({ name }) => name === IGNORE_FILE)
  }

  /**
   * Makes sure that a tool which is about to make or fill it cannot be led elsewhere. Nothing is made.
   * @throws UnsafePathError when a part that is there is a link or no folder
   */
  check(): void {
    for (const path of this.#parts()) {
      const stats = lstatSync(path, { throwIfNoEntry: false })
      if (stats === undefined) return
      this.#checkPart(path, stats)
    }
  }

  /**
   * As `check`, and no entry of it may be a link, because a tool would write through it.
   * @param except - names of links that are right
   */
  checkEntries(except: readonly string[] = []): void {
    this.check()
    for (const { name, stats } of this.list(/^/)) {
      if (stats.isSymbolicLink() && !except.includes(name)) throw this.#toError(this.pathOf(name), LINK, 'a file')
    }
  }

  /** True when it is there and no part of it is a link. */
  isThere(): boolean {
    return this.#parts().every(path => lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true)
  }

  /** Its entries whose names match, links as links; none when it is not there. */
  list(pattern: RegExp): OwnEntry[] {
    if (!this.isThere()) return []
    const entries: OwnEntry[] = []
    for (const name of namesIn(this.path)) {
      if (!pattern.test(name)) continue
      const stats = lstatSync(join(this.path, name), { throwIfNoEntry: false })
      if (stats !== undefined) entries.push({ name, stats })
    }
    return entries
  }

  /**
   * What has the name, null when nothing has.
   * @throws UnsafePathError when it is not a regular file, or a part of the folder is a link
   */
  statFile(name: string): Stats | null {
    this.check()
    const path = this.pathOf(name)
    const stats = lstatSync(path, { throwIfNoEntry: false })
    if (stats === undefined || stats.isFile()) return stats ?? null
    const what = stats.isSymbolicLink() ? LINK : stats.isDirectory() ? 'a folder' : 'a pipe or device'
    throw this.#toError(path, what, 'a regular file')
  }

  /** Content of a regular file, null when there is none or something else has the name. */
  read(name: string): Buffer | null {
    if (!this.isThere()) return null
    const path = this.pathOf(name)
    const file = askDisk(() => openSync(path, constants.O_RDONLY | NOT_THROUGH_LINKS))
    return file === null ? null : closing(file, () => (fstatSync(file).isFile() ? readFileSync(file) : null))
  }

  /**
   * Writes a file atomically: a reader sees the old content or the new, also after a crash. An entry of that name is
   * replaced; a link is, too, and never its target. @returns its full path
   * @param owner - whose file it is to be, where this process may give files away; null: the owner's of the folder
   */
  write(name: string, content: string | Uint8Array, mode = 0o644, owner: FileOwner | null = null): string {
    const path = this.pathOf(name)
    this.make()
    this.hold(folder => {
      const draft = join(folder, `.w-${randomBytes(8).toString('hex')}`)
      const file = openSync(draft, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, mode)
      try {
        writeFileSync(file, content)
        giveFile(file, owner, folder)
        fchmodSync(file, mode)
        fsyncSync(file)
        renameSync(draft, join(folder, name))
      } catch (error) {
        rmSync(draft, { force: true })
        throw error
      } finally {
        closeSync(file)
      }
    })
    return path
  }

  /** Works in the folder by a path that cannot be made to lead elsewhere meanwhile. @throws UnsafePathError */
  hold<T>(work: (folder: string) => T): T {
    try {
      return inHeldFolder(this.#base, this.#names, this.path, work)
    } catch (error) {
      // Names the part that is not a folder.
      if (hasCode(error, 'ENOTDIR', 'ELOOP')) this.check()
      throw error
    }
  }

  /** Gives an entry of this folder another name in it. */
  rename(from: string, to: string): void {
    checkName(from)
    checkName(to)
    this.make()
    this.hold(folder => renameSync(join(folder, from), join(folder, to)))
  }

  /** Moves an entry to another folder of the same disk, under a new name. */
  moveTo(name: string, target: OwnFolder, newName: string): void {
    checkName(name)
    checkName(newName)
    target.make()
    this.hold(from => target.hold(to => renameSync(join(from, name), join(to, newName))))
  }

  /** Makes a folder in it with a new name that begins with `prefix`. */
  makeTemporary(prefix: string): OwnFolder {
    checkName(prefix)
    const folder = this.below(mkdtempSync(join(this.make(), prefix)).slice(this.path.length + 1))
    folder.#give(folder.#names.length - 1)
    return folder
  }

  /** Deletes an entry with everything in it; links are deleted, not followed. One that is gone is fine. */
  remove(name: string): void {
    checkName(name)
    if (this.isThere()) this.hold(folder => removeEntry(folder, name))
  }

  /** Deletes the folder with everything in it. */
  removeAll(): void {
    if (!this.isThere()) return
    const [name] = this.#names.slice(-1)
    if (name === undefined) rmSync(this.path, { recursive: true, force: true })
    else new OwnFolder(this.#base, ...this.#names.slice(0, -1)).remove(name)
  }

  #parts(): string[] {
    const paths: string[] = []
    for (const name of this.#names) paths.push(join(paths.at(-1) ?? this.#base, name))
    return paths
  }

  #checkPart(path: string, stats: Stats): void {
    if (stats.isDirectory()) return
    throw this.#toError(path, stats.isSymbolicLink() ? LINK : 'a file', 'a folder')
  }

  #toError(path: string, what: string, wanted: string): UnsafePathError {
    return new UnsafePathError(path, path.slice(this.#base.length).replace(/^[/\\]+/, ''), what, wanted)
  }
}

/** One name, not a way out of the folder. */
function checkName(name: string): void {
  if (name === '' || name === '.' || name === '..' || /[/\\\0]/.test(name))
    throw new TypeError(`not the name of a file: ${JSON.stringify(name)}`)
}

function giveFile(file: number, owner: FileOwner | null, folder: string): void {
  if (process.geteuid?.() !== 0) return
  const { uid, gid } = owner ?? statSync(folder)
  if (owner !== null || uid !== 0) fchownSync(file, uid, gid)
}

/** The result of a question to the disk, null for any error. */
export function askDisk<T>(ask: () => T): T | null {
  try {
    return ask()
  } catch {
    return null
  }
}

/** Names of a folder's entries, none when it cannot be read. */
export function namesIn(folder: string): string[] {
  return askDisk(() => readdirSync(folder)) ?? []
}

function hasCode(error: unknown, ...codes: string[]): boolean {
  return codes.includes((error as NodeJS.ErrnoException).code ?? '')
}

/** Closes an open file after the work with it. */
export function closing<T>(file: number, work: () => T): T {
  try {
    return work()
  } finally {
    closeSync(file)
  }
}

/** Linux alone names open folders by a path; elsewhere the way is looked at and then walked. */
const HAS_FOLDER_PATHS = process.platform === 'linux' && existsSync('/proc/self/fd')

const FOLDER = constants.O_RDONLY | (constants.O_DIRECTORY ?? 0)

/**
 * Works in a folder that stays the same one, whatever is put in its place meanwhile.
 *
 *   base ─ a ─ b          each part is opened from the one before, never through a link; /proc/self/fd/N is then b itself,
 *    └ 11 ─ 12 ─ 13       also after a or b was renamed or replaced by a link
 *
 * @param base - full path; links on the way to it are followed
 * @param names - plain names of the folders from there
 * @param path - full path of the folder, for messages
 * @throws Error of the file system: ENOTDIR or ELOOP for a part that is a link
 */
export function inHeldFolder<T>(base: string, names: readonly string[], path: string, work: (held: string) => T): T {
  if (!HAS_FOLDER_PATHS) return work(path)
  const open: number[] = [openSync(base, FOLDER)]
  try {
    for (const name of names) open.push(openSync(`${toPath(open.at(-1)!)}/${name}`, FOLDER | constants.O_NOFOLLOW))
    return work(toPath(open.at(-1)!))
  } catch (error) {
    throw withRealPath(error, toPath(open.at(-1)!), path)
  } finally {
    for (const file of open) closeSync(file)
  }
}

/**
 * Deletes an entry of a folder with everything in it. No folder is entered by its name: one that is replaced by a link while this
 * goes on leads nowhere else.
 * @param held - as `inHeldFolder` gives it
 */
export function removeEntry(held: string, name: string): void {
  if (!HAS_FOLDER_PATHS) {
    rmSync(join(held, name), { recursive: true, force: true })
    return
  }
  const path = `${held}/${name}`
  const folder = openFolder(path)
  if (folder === null) {
    ignoreMissing(() => unlinkSync(path))
    return
  }
  closing(folder, () => {
    for (const entry of readdirSync(toPath(folder))) removeEntry(toPath(folder), entry)
  })
  ignoreMissing(() => rmdirSync(path))
}

/** @returns null if it does not exist or is not a folder */
function openFolder(path: string): number | null {
  try {
    return openSync(path, FOLDER | constants.O_NOFOLLOW)
  } catch (error) {
    if (hasCode(error, 'ENOTDIR', 'ELOOP', 'ENOENT')) return null
    throw error
  }
}

function ignoreMissing(remove: () => void): void {
  try {
    remove()
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error
  }
}

/** The path of an open file or folder, whatever its names lead to meanwhile. */
export function toPath(file: number): string {
  return `/proc/self/fd/${file}`
}

/** A message names the folder as people know it. */
function withRealPath(error: unknown, held: string, path: string): unknown {
  if (error instanceof Error) error.message = error.message.replaceAll(`${held}/`, `${path}/`)
  return error
}

/**
 * Opens a regular file to add to its end, made for its owner only when it is missing.
 * @throws UnsafePathError when a link, pipe, device or folder has the name; Error of the file system
 */
export function openToAppend(path: string): Promise<FileHandle> {
  return openRegular(path, constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT)
}

/** Opens a regular file to read it; null when it is missing. @throws as `openToAppend` */
export async function openToRead(path: string): Promise<FileHandle | null> {
  try {
    return await openRegular(path, constants.O_RDONLY)
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error
    return null
  }
}

/** Opens a regular file to read and change it, made for its owner only when it is missing. @throws as `openToAppend` */
export function openToUpdate(path: string): Promise<FileHandle> {
  return openRegular(path, constants.O_RDWR | constants.O_CREAT)
}

/** Makes a file that is not there yet, for its owner only. @throws Error EEXIST when anything has the name */
export function openNew(path: string): Promise<FileHandle> {
  return openRegular(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL)
}

/** Brings to the disk which files a folder has, so that a new name survives a loss of power. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY)
  try {
    await folder.sync()
  } catch (error) {
    // Some file systems keep names safe by themselves and refuse to be asked.
    if (!hasCode(error, 'EINVAL', 'EPERM', 'EISDIR', 'ENOTSUP')) throw error
  } finally {
    await folder.close()
  }
}

async function openRegular(path: string, flags: number): Promise<FileHandle> {
  let file: FileHandle
  try {
    file = await open(path, flags | NOT_THROUGH_LINKS, 0o600)
  } catch (error) {
    const what = UNSAFE[(error as NodeJS.ErrnoException).code ?? '']
    throw what === undefined ? error : toError(path, what)
  }
  if ((await file.stat()).isFile()) return file
  await file.close()
  throw toError(path, 'a pipe, device or folder')
}

/** Error codes of an open that neither follows links nor waits: for a link, a pipe without reader, and a folder. */
const UNSAFE: Readonly<Record<string, string>> = {
  ELOOP: 'a symbolic link',
  ENXIO: 'a pipe or socket',
  EISDIR: 'a folder',
}

function toError(path: string, what: string): UnsafePathError {
  return new UnsafePathError(path, basename(path), what, 'a regular file')
}

/**
 * Makes a folder, gives it with everything in it to a user and follows no link.
 * @param except - names in the folder that stay whose they are
 * @throws UnsafePathError when a link is on the way to it; Error of the file system
 */
export function handOver(folder: OwnFolder, uid: number, except: readonly string[] = [], gid = uid): void {
  const path = folder.make()
  inHeldFolder(dirname(path), [basename(path)], path, held => {
    for (const name of readdirSync(held)) if (!except.includes(name)) give(join(held, name), uid, gid)
    chownSync(held, uid, gid)
  })
}

/**
 * Gives a folder of root's to a user, who may then put things into it; what is in it, its group and its mode stay. Nothing is done
 * about one of another user, or to which a link leads.
 * @param base - full path; links on the way to it are followed
 * @param path - full path below it, or its own
 */
export function giveFolder(base: string, path: string, uid: number): void {
  const names = relative(base, path).split(sep).filter(Boolean)
  try {
    inHeldFolder(base, names, path, held => {
      if (statSync(held).uid === 0) chownSync(held, uid, -1)
    })
  } catch (error) {
    if (!hasCode(error, 'ENOTDIR', 'ELOOP', 'ENOENT')) throw error
  }
}

/** A folder after what is in it: until then its new owner can put nothing else in the place of an entry. */
function give(path: string, uid: number, gid: number): void {
  const stats = lstatSync(path)
  // A second name of a file may belong to another user.
  if (!stats.isDirectory() && stats.nlink > 1) return
  if (stats.isDirectory()) for (const name of readdirSync(path)) give(join(path, name), uid, gid)
  lchownSync(path, uid, gid)
}
