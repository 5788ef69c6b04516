/**
 * Source files that the workers of each function loaded, in any folder: which functions a change of one makes out of date, and
 * the watch of those that the watch of the tree does not cover. Owner: §2.2, page discovery/layouts.
 *
 *   worker ──files──► report ──► folders to watch        changed file ──► revision of each function that loaded it
 */

import { type FSWatcher, realpathSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import { getOrMake } from '../core/collections.ts'
import { Timer } from '../core/clock.ts'
import { orNull } from '../core/errors.ts'
import { RUNTIME_OF_EXTENSION } from '../core/identity.ts'
import { diskStamp, folderId, GONE, isWithin, parentOf, toChild } from './disk.ts'
import { sourcesBelow, stampOf } from './functions.ts'
import { extensionOf, manifestRuntime } from './layouts.ts'
import { type DirNode, type FileEntry, findFolder, type Snapshot } from './snapshot.ts'
import { isWatchLimit, type TreeWatchOptions } from './tree-watcher.ts'

/** Files remembered at most; changes of others are not seen. */
export const MAX_LOADED_FILES = 10_000

/** Full paths of the loaded files of each folder. */
export type LoadedFolders = ReadonlyMap<string, ReadonlySet<string>>

interface LoadedFile {
  /** Size and time when it was last inspected. */
  stamp: string
  /** Keys of the functions that loaded it. */
  keys: Set<string>
}

interface Reported {
  /** Of the function version that reported. */
  signature: string
  files: Set<string>
  /** Paths received, files or not: a handler that sends invalid reports must not keep the gateway busy. */
  reported: number
}

export class LoadedFiles {
  readonly #rootPath: string
  readonly #files = new Map<string, LoadedFile>()
  readonly #folders = new Map<string, Set<string>>()
  readonly #reports = new Map<string, Reported>()
  /** Signatures of the functions in force. */
  #functions: ReadonlyMap<string, FunctionVersion> = new Map()
  #revisions: ReadonlyMap<string, number> = new Map()
  #onFolders: ((folders: LoadedFolders) => void) | null = null

  /** @param rootPath - what relative paths start from */
  constructor(rootPath: string) {
    this.#rootPath = rootPath
  }

  /** By key of a function: how often a file that it had loaded has changed. Another map after each change. */
  get revisions(): ReadonlyMap<string, number> {
    return this.#revisions
  }

  /** Calls back now and after each change with the folders that contain loaded files. */
  follow(onFolders: (folders: LoadedFolders) => void): void {
    this.#onFolders = onFolders
    onFolders(this.#folders)
  }

  /** Takes over the functions in force: reports of others are over. */
  adopt(functions: ReadonlyMap<string, FunctionVersion>): void {
    this.#functions = functions
    const gone = [...this.#reports.keys()].filter(key => !functions.has(key))
    for (const key of gone) this.#forget(key)
    if (gone.length > 0) this.#onFolders?.(this.#folders)
  }

  /**
   * A worker of the function has loaded these files.
   * @param paths - full real paths
   */
  report(fn: FunctionVersion, paths: readonly string[]): void {
    // A worker that still finishes its calls says nothing about the version that serves.
    if (this.#functions.get(fn.key)?.signature !== fn.signature) return
    let known = this.#reports.get(fn.key)
    // Files of the previous version are watched until now: an edit while a worker starts must not be missed.
    if (known !== undefined && known.signature !== fn.signature) {
      this.#forget(fn.key)
      known = undefined
    }
    known ??= { signature: fn.signature, files: new Set(), reported: 0 }
    this.#reports.set(fn.key, known)
    known.reported += paths.length
    if (known.reported > MAX_LOADED_FILES * 2) return
    const fresh = paths.filter(path => !known.files.has(path))
    for (const path of fresh) this.#add(fn.key, known, path)
    if (fresh.length > 0) this.#onFolders?.(this.#folders)
  }

  /**
   * Notes changes: files or folders, full or below the root, `''` for everything.
   * @returns true when a function had loaded one that is different now
   */
  note(paths: Iterable<string>): boolean {
    const bumped = new Set<string>()
    for (const path of paths) {
      for (const file of this.#filesAt(path)) {
        if (!this.isChanged(file)) continue
        const known = this.#files.get(file)!
        known.stamp = diskStamp(file)
        for (const key of known.keys) bumped.add(key)
      }
    }
    if (bumped.size === 0) return false
    const revisions = new Map(this.#revisions)
    for (const key of bumped) revisions.set(key, (revisions.get(key) ?? 0) + 1)
    this.#revisions = revisions
    return true
  }

  /** The loaded files of a function that changed since they were last inspected, as text; empty without changes. */
  changesOf(key: string): string {
    const changed = [...(this.#reports.get(key)?.files ?? [])].filter(file => this.isChanged(file))
    return changed.map(file => `${file}|${diskStamp(file)}`).join('\n')
  }

  /** True when a loaded file is different from what was last known. */
  isChanged(file: string): boolean {
    const known = this.#files.get(file)
    return known !== undefined && known.stamp !== diskStamp(file)
  }

  /** Bytes of a loaded file when it was last inspected, null for other files. */
  sizeOf(file: string): number | null {
    const known = this.#files.get(file)
    return known === undefined || known.stamp === GONE ? null : Number.parseInt(known.stamp, 10)
  }

  #add(key: string, report: Reported, path: string): void {
    let file = this.#files.get(path)
    if (file === undefined) {
      const stamp = diskStamp(path)
      if (stamp === GONE || this.#files.size >= MAX_LOADED_FILES) return
      file = { stamp, keys: new Set() }
      this.#files.set(path, file)
      getOrMake(this.#folders, dirname(path), () => new Set()).add(path)
    }
    file.keys.add(key)
    report.files.add(path)
  }

  #forget(key: string): void {
    for (const path of this.#reports.get(key)?.files ?? []) {
      const file = this.#files.get(path)!
      file.keys.delete(key)
      if (file.keys.size > 0) continue
      this.#files.delete(path)
      const folder = this.#folders.get(dirname(path))!
      folder.delete(path)
      if (folder.size === 0) this.#folders.delete(dirname(path))
    }
    this.#reports.delete(key)
  }

  /** The loaded files that a changed path stands for. */
  #filesAt(path: string): string[] {
    if (path === '') return [...this.#files.keys()]
    const real = realPathOf(resolve(this.#rootPath, path))
    if (this.#files.has(real)) return [real]
    const found: string[] = []
    for (const [folder, files] of this.#folders) {
      if (isWithin(folder, real)) found.push(...files)
    }
    return found
  }
}

/** Without links; of a path that is gone those of its folder are followed. */
export function realPathOf(path: string): string {
  const above = dirname(path)
  return orNull(() => realpathSync(path)) ?? (path === above ? path : join(realPathOf(above), basename(path)))
}

/** Files inspected at most: a caller waits for the result. */
const MAX_INSPECTED = 1000

/**
 * Inspects the files in reach of a function: of its folder and what is below it, of the folders above, and of private
 * folders there.
 * @returns a text that is another one when the files are; null when nothing changed
 */
export function findChange(
  { root, rootPath }: Snapshot,
  { entryFile, runtime }: Pick<FunctionVersion, 'entryFile' | 'runtime'>,
): string | null {
  const changes: string[] = []
  for (const { folder, file } of filesInReach(root, parentOf(entryFile)).slice(0, MAX_INSPECTED)) {
    const owner = RUNTIME_OF_EXTENSION.get(extensionOf(file.name)) ?? manifestRuntime(file.name)
    if (owner !== runtime) continue
    const stamp = `${toChild(folder, file.name)}|${diskStamp(join(rootPath, folder, file.name))}`
    if (stamp !== stampOf(folder, file)) changes.push(stamp)
  }
  return changes.length === 0 ? null : changes.join('\n')
}

/** Nearest first. */
function filesInReach(root: DirNode, folder: string): { folder: string; file: FileEntry }[] {
  const found: { folder: string; file: FileEntry }[] = []
  for (let path = folder; ; path = parentOf(path)) {
    const node = findFolder(root, path)
    if (node !== null) {
      found.push(...node.files.map(file => ({ folder: path, file })))
      const isOwn = path === folder && path !== ''
      found.push(...node.dirs.filter(dir => isOwn || dir.name.startsWith('_')).flatMap(sourcesBelow))
    }
    if (path === '') return found
  }
}

/** Folders that are watched; the files of others are polled instead. */
export const MAX_WATCHED_FOLDERS = 500

/** `mark` gets the full path of each file that may have changed; from the limit on files are polled. */
export interface OutsideWatchOptions extends Pick<TreeWatchOptions, 'clock' | 'watchFolder' | 'mark' | 'onLimit'> {
  /** Milliseconds between two checks of files that cannot be watched, and of the identity of watched folders. */
  everyMs: number
  /** True for a folder whose changes are seen without it. */
  isCovered: (folder: string) => boolean
  /** True when a file is different from what was last known. */
  isChanged: (file: string) => boolean
}

interface Watched {
  watcher: FSWatcher
  /** Device and inode: another folder may come up in its place. */
  id: string
}

export class OutsideWatcher {
  readonly #options: OutsideWatchOptions
  #folders: LoadedFolders = new Map()
  readonly #watched = new Map<string, Watched>()
  readonly #timer: Timer
  #isLimited = false
  #isClosed = false

  constructor(options: OutsideWatchOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock, true)
  }

  /** Watches these folders for these files, and no others any more. */
  readonly follow = (folders: LoadedFolders): void => {
    if (this.#isClosed) return
    this.#folders = new Map([...folders].filter(([folder]) => !this.#options.isCovered(folder)))
    for (const folder of this.#watched.keys()) if (!this.#folders.has(folder)) this.#drop(folder)
    for (const folder of this.#folders.keys()) if (!this.#watched.has(folder)) this.#watch(folder)
    if (this.#folders.size === 0) this.#timer.clear()
    else if (!this.#timer.isSet) this.#timer.repeat(this.#options.everyMs, () => this.#checkAll())
  }

  close(): void {
    this.#isClosed = true
    this.#timer.clear()
    for (const folder of this.#watched.keys()) this.#drop(folder)
  }

  #watch(folder: string): void {
    if (this.#isLimited || this.#watched.size >= MAX_WATCHED_FOLDERS) return
    const id = folderId(folder)
    if (id === '') return
    try {
      const watcher = this.#options.watchFolder(folder, (_event, fileName) => this.#onEvent(folder, fileName))
      watcher.on('error', () => this.#drop(folder))
      this.#watched.set(folder, { watcher, id })
    } catch (error) {
      if (!isWatchLimit(error)) return
      this.#isLimited = true
      this.#options.onLimit(error.code)
    }
  }

  #onEvent(folder: string, fileName: string | null): void {
    if (this.#isClosed) return
    if (fileName === null) this.#look(folder)
    else if (this.#folders.get(folder)?.has(join(folder, fileName))) this.#options.mark(join(folder, fileName))
  }

  #checkAll(): void {
    for (const folder of this.#folders.keys()) this.#check(folder)
  }

  /** A folder that was deleted and created again has lost its watch without an event. */
  #check(folder: string): void {
    const watched = this.#watched.get(folder)
    if (watched !== undefined && watched.id === folderId(folder)) return
    this.#drop(folder)
    this.#watch(folder)
    this.#look(folder)
  }

  #look(folder: string): void {
    for (const file of this.#folders.get(folder) ?? []) if (this.#options.isChanged(file)) this.#options.mark(file)
  }

  #drop(folder: string): void {
    this.#watched.get(folder)?.watcher.close()
    this.#watched.delete(folder)
  }
}
