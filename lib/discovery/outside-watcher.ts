/** Watches files that functions loaded and that the watch of the tree does not cover. Owner: §2.2, page discovery/layouts. */

import type { FSWatcher } from 'node:fs'
import { join } from 'node:path'
import type { Clock } from '../core/clock.ts'
import { ChangeQueue } from './change-queue.ts'
import { diskStamp } from './disk.ts'
import type { LoadedFolders } from './loaded-files.ts'
import { idOf, isWatchLimit, type WatchFolder, watchPlain } from './tree-watcher.ts'

/** Folders that are watched; the files of others are polled instead. */
export const MAX_WATCHED_FOLDERS = 500

export interface OutsideWatchOptions {
  clock: Clock
  /** Milliseconds between two looks at what cannot be watched, and whether folders still are those that are watched. */
  everyMs: number
  /** True for a folder whose changes are seen anyway. */
  isCovered: (folder: string) => boolean
  /** True when a file is different from what was last known. */
  isChanged: (file: string) => boolean
  watchFolder: WatchFolder
  /** Gets the full path of each file that may have changed. */
  mark: (file: string) => void
  /** The system has no watches left: from now on files are looked at. Called once. */
  onLimit: (code: string) => void
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
  #timer: NodeJS.Timeout | null = null
  #isLimited = false
  #isClosed = false

  constructor(options: OutsideWatchOptions) {
    this.#options = options
  }

  /** Watches these folders for these files, and no others any more. */
  readonly follow = (folders: LoadedFolders): void => {
    if (this.#isClosed) return
    this.#folders = new Map([...folders].filter(([folder]) => !this.#options.isCovered(folder)))
    for (const folder of this.#watched.keys()) if (!this.#folders.has(folder)) this.#drop(folder)
    for (const folder of this.#folders.keys()) if (!this.#watched.has(folder)) this.#watch(folder)
    if (this.#folders.size > 0) this.#lookLater()
  }

  close(): void {
    this.#isClosed = true
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    for (const folder of this.#watched.keys()) this.#drop(folder)
  }

  #watch(folder: string): void {
    if (this.#isLimited || this.#watched.size >= MAX_WATCHED_FOLDERS) return
    const id = idOf(folder)
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

  #lookLater(): void {
    if (this.#timer !== null) return
    const { clock, everyMs } = this.#options
    this.#timer = clock.setTimeout(() => {
      this.#timer = null
      this.#lookAtAll()
      if (this.#folders.size > 0) this.#lookLater()
    }, everyMs)
    this.#timer.unref?.()
  }

  /** A folder that was deleted and created again has lost its watch without an event. */
  #lookAtAll(): void {
    for (const folder of this.#folders.keys()) {
      const watched = this.#watched.get(folder)
      if (watched !== undefined && watched.id === idOf(folder)) continue
      this.#drop(folder)
      this.#watch(folder)
      this.#look(folder)
    }
  }

  #look(folder: string): void {
    for (const file of this.#folders.get(folder) ?? []) if (this.#options.isChanged(file)) this.#options.mark(file)
  }

  #drop(folder: string): void {
    this.#watched.get(folder)?.watcher.close()
    this.#watched.delete(folder)
  }
}

/** Milliseconds between the first change and the reload it causes. */
export const DEBOUNCE_MS = 25
/** Milliseconds between two scans where changes cannot be watched. */
export const POLL_MS = 1000

interface EnvWatchOptions {
  clock: Clock
  /** Full path of the folder. */
  folder: string
  /** Names of the files; they need not exist. */
  names: readonly string[]
  /** Must not reject; calls do not overlap. */
  onChange: () => Promise<void>
  watchFolder?: WatchFolder
}

/**
 * Watches the env files of the project, which are beside the functions root or above it.
 * @returns a function that ends the watch
 */
export function watchEnvFiles({
  clock,
  folder,
  names,
  onChange,
  watchFolder = watchPlain,
}: EnvWatchOptions): () => void {
  const stamps = new Map(names.map(name => [join(folder, name), diskStamp(join(folder, name))]))
  const changes = new ChangeQueue({ clock, delayMs: DEBOUNCE_MS, isHalfSaved: () => false, onChange: () => onChange() })
  const watcher = new OutsideWatcher({
    clock,
    everyMs: POLL_MS,
    isCovered: () => false,
    isChanged: file => {
      const stamp = diskStamp(file)
      const isNew = stamps.get(file) !== stamp
      stamps.set(file, stamp)
      return isNew
    },
    watchFolder,
    mark: file => changes.add(file),
    // From then on the files are polled; the watch of the tree reports the same limit.
    onLimit: () => {},
  })
  watcher.follow(new Map([[folder, new Set(stamps.keys())]]))
  return () => {
    watcher.close()
    changes.close()
  }
}
