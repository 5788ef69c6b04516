/**
 * Folders that the gateway writes to, below folders of the user: `.svc`, `.go-build`, the socket folder. Owner: §1, page files/own-folder.
 *
 *   base (the user's; links on the way to it are the user's choice)
 *    └─ .svc ─ build ─ tmp        each part is a real folder: a link here came with a checked-out tree or from another
 *                                 user, and writing or deleting behind it would reach files that are not the gateway's
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
import { basename, join, relative, sep } from 'node:path'
import { orNull } from '../core/errors.ts'

/** A link, folder or device has a name that the gateway writes to. `path` is its full path. */
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
const IGNORED_FOLDERS = ['.svc', '.svc-deps', '.deps', 'node_modules', 'vendor', '.go-build', '.rust-build']
/** Git ignores all files of the folder, this one included. */
const IGNORED = '*\n'
/** Shared packs are sources of the user (§2.16). */
const IGNORED_STATE = '*\n!/packs/\n!/packs/**\n'

/** Opens neither a link nor a pipe that has no writer. Windows knows neither flag. */
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

  below(...names: string[]): OwnFolder {
    return new OwnFolder(this.#base, ...this.#names, ...names)
  }

  /** Full path of an entry. */
  pathOf(name: string): string {
    checkName(name)
    return join(this.path, name)
  }

  /**
   * Makes the missing parts. @returns its full path
   * @throws UnsafePathError when a part is a link or not a folder; Error of the file system
   */
  make(): string {
    for (const [at, path] of this.#parts().entries()) {
      const isNew = nullFor(['EEXIST'], () => mkdirSync(path)) !== null
      if (isNew) this.#giveToOwner(at + 1)
      this.#checkPart(path, lstatSync(path))
    }
    this.#ignore()
    return this.path
  }

  /** As `make`, without blocking the event loop when nothing is missing. */
  async ensure(): Promise<string> {
    for (const path of this.#parts()) {
      const stats = await lstat(path).catch(() => null)
      if (stats === null) return this.make()
      this.#checkPart(path, stats)
    }
    this.#ignore()
    return this.path
  }

  /** Gives a new folder of root to the owner of the folder around it, who may then edit and delete it. @param depth - names on the way to it */
  #giveToOwner(depth: number): void {
    if (process.geteuid?.() !== 0) return
    const names = this.#names.slice(0, depth)
    inHeldFolder(this.#base, names, join(this.#base, ...names), held => {
      // Not joined: `join` would remove the link to the open folder together with `..`.
      const { uid, gid } = statSync(`${held}/..`)
      if (uid !== 0) chownSync(held, uid, gid)
    })
  }

  #ignore(): void {
    const [name = ''] = this.#names
    const path = join(this.#base, name)
    if (!IGNORED_FOLDERS.includes(name)) return
    if (lstatSync(join(path, IGNORE_FILE), { throwIfNoEntry: false }) !== undefined) return
    // When another process wrote it, or it cannot be written, the folder can still be used.
    orNull(() =>
      inHeldFolder(this.#base, [name], path, held =>
        closing(openSync(join(held, IGNORE_FILE), 'wx', 0o644), file => {
          writeFileSync(file, name === '.svc' ? IGNORED_STATE : IGNORED)
          giveFile(file, null, held)
        }),
      ),
    )
  }

  /** True when it contains nothing but what `make` wrote. */
  isEmpty(): boolean {
    return this.list().every(({ name }) => name === IGNORE_FILE)
  }

  /** For a folder that a tool makes or fills. @throws UnsafePathError when an existing part is a link or not a folder */
  check(): void {
    for (const path of this.#parts()) {
      const stats = lstatSync(path, { throwIfNoEntry: false })
      if (stats === undefined) return
      this.#checkPart(path, stats)
    }
  }

  /** As `check`, and no entry may be a link: a tool would write through it. @param except - names of allowed links */
  checkEntries(except: readonly string[] = []): void {
    this.check()
    for (const { name, stats } of this.list()) {
      if (stats.isSymbolicLink() && !except.includes(name)) throw this.#toError(this.pathOf(name), LINK, 'a file')
    }
  }

  /** True when it exists and no part of it is a link. */
  isThere(): boolean {
    return this.#parts().every(path => lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true)
  }

  /** Its entries whose names match, with the stats of links themselves; none when it does not exist. */
  list(pattern = /^/): { name: string; stats: Stats }[] {
    if (!this.isThere()) return []
    return namesIn(this.path).flatMap(name => {
      const stats = pattern.test(name) ? lstatSync(join(this.path, name), { throwIfNoEntry: false }) : undefined
      return stats === undefined ? [] : [{ name, stats }]
    })
  }

  /**
   * @returns null when nothing has the name
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

  /** Content of a regular file; null when there is none or the name is that of something else. */
  read(name: string): Buffer | null {
    if (!this.isThere()) return null
    const path = this.pathOf(name)
    const file = orNull(() => openSync(path, constants.O_RDONLY | NOT_THROUGH_LINKS))
    return file === null ? null : closing(file, () => (fstatSync(file).isFile() ? readFileSync(file) : null))
  }

  /**
   * Writes a file atomically: a reader sees the old content or the new, also after a crash. An entry with that name is
   * replaced; of a link never the target. @returns its full path
   * @param owner - of the new file, where this process may give files away; null: the owner of the folder
   */
  write(name: string, content: string | Uint8Array, mode = 0o644, owner: FileOwner | null = null): string {
    const path = this.pathOf(name)
    this.make()
    this.hold(folder => {
      const draft = join(folder, `.w-${randomBytes(8).toString('hex')}`)
      try {
        closing(openSync(draft, 'wx', mode), file => {
          writeFileSync(file, content)
          giveFile(file, owner, folder)
          fchmodSync(file, mode)
          fsyncSync(file)
        })
        renameSync(draft, join(folder, name))
      } catch (error) {
        rmSync(draft, { force: true })
        throw error
      }
    })
    return path
  }

  /** Works in the folder by a path that stays the same folder, whatever replaces its names. @throws UnsafePathError */
  hold<T>(work: (folder: string) => T): T {
    try {
      return inHeldFolder(this.#base, this.#names, this.path, work)
    } catch (error) {
      // Names the part that is not a folder.
      if (hasCode(error, ['ENOTDIR', 'ELOOP'])) this.check()
      throw error
    }
  }

  rename(from: string, to: string): void {
    this.moveTo(from, this, to)
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
    const folder = this.below(basename(mkdtempSync(join(this.make(), prefix))))
    folder.#giveToOwner(folder.#names.length)
    return folder
  }

  /** Deletes an entry with everything in it; links are not followed. A missing entry is not an error. */
  remove(name: string): void {
    checkName(name)
    if (this.isThere()) this.hold(folder => removeEntry(folder, name))
  }

  /** Deletes the folder with everything in it. */
  removeAll(): void {
    const [name] = this.#names.slice(-1)
    if (name !== undefined && this.isThere()) new OwnFolder(this.#base, ...this.#names.slice(0, -1)).remove(name)
  }

  #parts(): string[] {
    return this.#names.map((_, at) => join(this.#base, ...this.#names.slice(0, at + 1)))
  }

  #checkPart(path: string, stats: Stats): void {
    if (stats.isDirectory()) return
    throw this.#toError(path, stats.isSymbolicLink() ? LINK : 'a file', 'a folder')
  }

  #toError(path: string, what: string, wanted: string): UnsafePathError {
    return new UnsafePathError(path, path.slice(this.#base.length).replace(/^[/\\]+/, ''), what, wanted)
  }
}

/** A single name that does not lead out of the folder. */
function checkName(name: string): void {
  if (name === '' || name === '.' || name === '..' || /[/\\\0]/.test(name))
    throw new TypeError(`not the name of a file: ${JSON.stringify(name)}`)
}

type FileOwner = Pick<Stats, 'uid' | 'gid'>

function giveFile(file: number, owner: FileOwner | null, folder: string): void {
  if (process.geteuid?.() !== 0) return
  const { uid, gid } = owner ?? statSync(folder)
  if (owner !== null || uid !== 0) fchownSync(file, uid, gid)
}

/** True for a regular file, or a link to one. */
export function isFile(path: string): boolean {
  return orNull(() => statSync(path))?.isFile() === true
}

/** Names of a folder's entries; none when it cannot be read. */
export function namesIn(folder: string): string[] {
  return orNull(() => readdirSync(folder)) ?? []
}

function hasCode(error: unknown, codes: readonly string[]): boolean {
  return codes.includes((error as NodeJS.ErrnoException).code ?? '')
}

/** The result of work with the disk; null when it fails with one of these error codes. */
export function nullFor<T>(codes: readonly string[], work: () => T): T | null {
  try {
    return work()
  } catch (error) {
    if (hasCode(error, codes)) return null
    throw error
  }
}

/** Closes an open file after the work with it. */
export function closing<T>(file: number, work: (file: number) => T): T {
  try {
    return work(file)
  } finally {
    closeSync(file)
  }
}

/** Only Linux has paths of open folders; elsewhere the way is checked and then walked. */
const HAS_FOLDER_PATHS = process.platform === 'linux' && existsSync('/proc/self/fd')

const FOLDER = constants.O_RDONLY | (constants.O_DIRECTORY ?? 0)

/** The path of an open file or folder, whatever replaces its names. */
export function toPath(file: number): string {
  return `/proc/self/fd/${file}`
}

/**
 * Works in a folder that stays the same one, whatever replaces it meanwhile.
 *
 *   base ─ a ─ b          each part is opened from the one before, never through a link; /proc/self/fd/13 is then b itself,
 *    └ 11 ─ 12 ─ 13       also after a or b was renamed or replaced by a link
 *
 * @param base - full path; links on the way to it are followed
 * @param names - plain names of the folders from there
 * @param path - full path of the folder, for messages
 * @throws Error of the file system: ENOTDIR or ELOOP for a part that is a link
 */
export function inHeldFolder<T>(base: string, names: readonly string[], path: string, work: (held: string) => T): T {
  if (!HAS_FOLDER_PATHS) return work(path)
  const open = [openSync(base, FOLDER)]
  const held = (): string => toPath(open.at(-1)!)
  try {
    for (const name of names) open.push(openSync(`${held()}/${name}`, FOLDER | constants.O_NOFOLLOW))
    return work(held())
  } catch (error) {
    if (error instanceof Error) error.message = error.message.replaceAll(`${held()}/`, `${path}/`)
    throw error
  } finally {
    for (const file of open) closeSync(file)
  }
}

/**
 * Deletes an entry of a folder with everything in it. No folder is entered by its name: a link that replaces it meanwhile is not
 * followed.
 * @param held - from `inHeldFolder`
 */
export function removeEntry(held: string, name: string): void {
  const path = `${held}/${name}`
  if (!HAS_FOLDER_PATHS) {
    rmSync(path, { recursive: true, force: true })
    return
  }
  const folder = nullFor(['ENOTDIR', 'ELOOP', 'ENOENT'], () => openSync(path, FOLDER | constants.O_NOFOLLOW))
  if (folder !== null)
    closing(folder, () => {
      for (const entry of readdirSync(toPath(folder))) removeEntry(toPath(folder), entry)
    })
  nullFor(['ENOENT'], () => (folder === null ? unlinkSync(path) : rmdirSync(path)))
}

/**
 * Opens a regular file to append to it; a missing one is made for its owner only.
 * @throws UnsafePathError when the name is that of a link, pipe, device or folder; Error of the file system
 */
export const openToAppend = toOpener(constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT)

/** Opens a regular file to read and change it; a missing one is made for its owner only. @throws as `openToAppend` */
export const openToUpdate = toOpener(constants.O_RDWR | constants.O_CREAT)

/** Makes a new file for its owner only. @throws Error EEXIST when the name is taken */
export const openNew = toOpener(constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL)

/** Opens a regular file to read it; null when it is missing. @throws as `openToAppend` */
export async function openToRead(path: string): Promise<FileHandle | null> {
  try {
    return await openExisting(path)
  } catch (error) {
    if (!hasCode(error, ['ENOENT'])) throw error
    return null
  }
}

const openExisting = toOpener(constants.O_RDONLY)

function toOpener(flags: number): (path: string) => Promise<FileHandle> {
  return async path => {
    const refuse = (what: string) => new UnsafePathError(path, basename(path), what, 'a regular file')
    const file = await open(path, flags | NOT_THROUGH_LINKS, 0o600).catch((error: NodeJS.ErrnoException) => {
      const what = UNSAFE_CODES[error.code ?? '']
      throw what === undefined ? error : refuse(what)
    })
    if ((await file.stat()).isFile()) return file
    await file.close()
    throw refuse('a pipe, device or folder')
  }
}

/** Error codes of opening without following links or waiting: for a link, a pipe without reader, and a folder. */
const UNSAFE_CODES: Readonly<Record<string, string>> = { ELOOP: LINK, ENXIO: 'a pipe or socket', EISDIR: 'a folder' }

/** Writes the names in a folder to the disk, so that a new name survives a loss of power. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY)
  try {
    await folder.sync()
  } catch (error) {
    // Some file systems keep names safe by themselves and refuse the call.
    if (!hasCode(error, ['EINVAL', 'EPERM', 'EISDIR', 'ENOTSUP'])) throw error
  } finally {
    await folder.close()
  }
}

/**
 * Makes a folder and gives it with everything in it to a user. Links are given, not followed.
 * @param except - names in the folder that keep their owner
 * @throws UnsafePathError when a link is on the way to it; Error of the file system
 */
export function handOver(folder: OwnFolder, uid: number, except: readonly string[] = [], gid = uid): void {
  folder.make()
  folder.hold(held => {
    for (const name of readdirSync(held)) if (!except.includes(name)) give(join(held, name), uid, gid)
    chownSync(held, uid, gid)
  })
}

/** A folder after its content: until then its new owner cannot replace an entry. */
function give(path: string, uid: number, gid: number): void {
  const stats = lstatSync(path)
  // A second name of a file may belong to another user.
  if (!stats.isDirectory() && stats.nlink > 1) return
  if (stats.isDirectory()) for (const name of readdirSync(path)) give(join(path, name), uid, gid)
  lchownSync(path, uid, gid)
}

/**
 * Gives a folder of root to a user, who may then put things into it; its content, group and mode stay. Does nothing when it
 * belongs to another user, is missing, or a link leads to it.
 * @param base - full path; links on the way to it are followed
 * @param path - full path of the base or of a folder below it
 */
export function giveFolder(base: string, path: string, uid: number): void {
  const names = relative(base, path).split(sep).filter(Boolean)
  nullFor(['ENOTDIR', 'ELOOP', 'ENOENT'], () =>
    inHeldFolder(base, names, path, held => {
      if (statSync(held).uid === 0) chownSync(held, uid, -1)
    }),
  )
}
