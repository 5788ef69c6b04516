/**
 * A watch for each folder that discovery reads. Owner: §2.2, page discovery/layouts.
 *
 *   fs.watch of each folder ──► relevant? ──► mark(path)
 *   root gone or replaced ──► start over             no watches left ──► onLimit
 *
 * A recursive watch would cover `node_modules` too, and on Linux Node builds it from one watch for every single file.
 */

import { type Dirent, type FSWatcher, lstatSync, readdirSync, realpathSync, type Stats, statSync, watch } from 'node:fs'
import { basename, join } from 'node:path'
import { orNull } from '../core/errors.ts'
import type { Clock } from '../core/clock.ts'
import { below, leadsBack, MAX_TREE_FOLDERS, parentOf, toChild } from './disk.ts'
import { isConfigName, isSchemaName, isSourceName, manifestRuntime } from './file-name.ts'
import { skippedReason } from './layouts.ts'
import { MAX_TREE_DEPTH } from './snapshot.ts'

/** Milliseconds between two looks whether the functions root still is the folder that is watched. */
const ROOT_CHECK_MS = 500
const FOLDERS_PER_TURN = 50

/** The part of `fs.watch` that is used. */
export type WatchFolder = (path: string, listener: (event: string, fileName: string | null) => void) => FSWatcher

export const watchPlain: WatchFolder = (path, listener) => watch(path, { persistent: false }, listener)

/** True for what the system says when it has no watches or descriptors left. */
export function isWatchLimit(error: unknown): error is Error & { code: string } {
  return error instanceof Error && 'code' in error && /^(?:ENOSPC|EMFILE|ENFILE)$/.test(String(error.code))
}

export interface TreeWatchOptions {
  clock: Clock
  rootPath: string
  /** Folders below the root that need no watch: those of the snapshot in use. */
  excluded: () => ReadonlySet<string>
  watchFolder: WatchFolder
  /** Gets each changed file or folder below the root, `''` for the root itself. */
  mark: (path: string) => void
  /** Called when every folder is watched. */
  onReady: () => void
  /** The system has nothing left to watch with; the watcher is closed. */
  onLimit: (code: string) => void
}

interface Folder {
  /** Below the root. */
  path: string
  /** True for a folder that came up while watching: what is in it counts as changed. */
  isNew: boolean
}

/** Watches the functions root, also while it does not exist. Keeps no process alive. */
export class TreeWatcher {
  readonly #options: TreeWatchOptions
  readonly #folders = new Map<string, FSWatcher>()
  /** Linked source files: a change of the target causes no event in the folder that holds the link. */
  readonly #links = new Map<string, FSWatcher>()
  #rootRealPath = ''
  /** Of linked folders; of all others it follows from the folder above. */
  readonly #realPaths = new Map<string, string>()
  readonly #queue: Folder[] = []
  #rootTimer: NodeJS.Timeout | null = null
  /** Device and inode of the root that is watched; empty while there is none. */
  #rootId = ''
  #isDraining = false
  #isClosed = false

  constructor(options: TreeWatchOptions) {
    this.#options = options
    this.#checkRootLater()
    this.#start(false)
  }

  close(): void {
    this.#isClosed = true
    if (this.#rootTimer !== null) this.#options.clock.clearTimeout(this.#rootTimer)
    this.#dropAll()
  }

  /** Looks for folders that are not watched yet: other ones may be excluded than before. */
  rescan(): void {
    if (!this.#folders.has('')) return
    this.#queue.push({ path: '', isNew: false })
    this.#drain()
  }

  #checkRootLater(): void {
    this.#rootTimer = this.#options.clock.setTimeout(() => {
      this.#checkRoot(false)
      if (!this.#isClosed) this.#checkRootLater()
    }, ROOT_CHECK_MS)
    this.#rootTimer.unref?.()
  }

  #start(isNew: boolean): void {
    const { rootPath } = this.#options
    this.#rootId = idOf(rootPath)
    const realPath = realPathOf(rootPath)
    if (this.#rootId !== '' && realPath !== null) {
      this.#rootRealPath = realPath
      this.#queue.push({ path: '', isNew })
    }
    this.#drain()
  }

  /** Begins again when the root is gone, has come back, or is another folder; a suspect one may be new with an old inode. */
  #checkRoot(isSuspect: boolean): void {
    if (this.#isClosed) return
    if (idOf(this.#options.rootPath) === this.#rootId && !isSuspect) return
    this.#dropAll()
    this.#options.mark('')
    this.#start(true)
  }

  /** Works off the queue in slices, so that requests go on meanwhile. */
  #drain(): void {
    if (this.#isDraining) return
    this.#isDraining = true
    const step = (): void => {
      for (let count = 0; count < FOLDERS_PER_TURN; count++) {
        const folder = this.#queue.pop()
        if (folder === undefined) {
          this.#isDraining = false
          if (!this.#isClosed) this.#options.onReady()
          return
        }
        this.#scan(folder)
      }
      setImmediate(step)
    }
    step()
  }

  #scan({ path, isNew }: Folder): void {
    if (this.#isClosed || this.#folders.size >= MAX_TREE_FOLDERS) return
    if (!this.#folders.has(path) && !this.#watch(path, this.#folders, this.#onEvent)) return
    if (isNew) this.#options.mark(path)
    // Listed after the watch began, so that nothing falls between the two.
    for (const entry of list(this.#fullPath(path))) {
      if (entry.isDirectory() || entry.isSymbolicLink()) this.#enter(toChild(path, entry.name), entry, isNew)
    }
  }

  /** Takes up a folder, or a link to a folder or source file. */
  #enter(path: string, entry: Pick<Dirent, 'isDirectory' | 'isSymbolicLink'>, isNew: boolean): void {
    if (this.#folders.has(path) || this.#links.has(path) || skippedReason(basename(path)) !== null) return
    const realPath = realPathOf(this.#fullPath(path))
    if (realPath === null) return
    if (entry.isSymbolicLink() && idOf(realPath) === '') {
      if (isRelevant(path)) this.#watch(path, this.#links, this.#onLinkEvent)
      return
    }
    const above = parentOf(path)
    // As the reader of the snapshot decides.
    if (path.split('/').length > MAX_TREE_DEPTH || this.#options.excluded().has(path) || isConfigName(basename(path)))
      return
    if (leadsBack(realPath, this.#wayTo(above))) return
    if (realPath === below(this.#realPathAt(above), basename(path))) this.#realPaths.delete(path)
    else this.#realPaths.set(path, realPath)
    this.#queue.push({ path, isNew })
  }

  /** Real paths of a folder and of all above it. */
  #wayTo(folder: string): string[] {
    const above = folder === '' ? [] : this.#wayTo(parentOf(folder))
    return [...above, this.#realPathAt(folder)]
  }

  #realPathAt(path: string): string {
    if (path === '') return this.#rootRealPath
    return this.#realPaths.get(path) ?? below(this.#realPathAt(parentOf(path)), basename(path))
  }

  /** False when it cannot be watched: it is gone, or there are no watches left. */
  #watch(
    path: string,
    into: Map<string, FSWatcher>,
    onEvent: (path: string, event: string, fileName: string | null) => void,
  ): boolean {
    try {
      const watcher = this.#options.watchFolder(this.#fullPath(path), (event, fileName) => {
        // A closed watch may still report an event.
        if (into.get(path) === watcher) onEvent.call(this, path, event, fileName)
      })
      watcher.on('error', () => {
        if (into.get(path) === watcher) this.#dropBelow(path)
      })
      into.set(path, watcher)
      return true
    } catch (error) {
      if (isWatchLimit(error)) {
        this.close()
        this.#options.onLimit(error.code)
      }
      return false
    }
  }

  #onEvent(folder: string, event: string, fileName: string | null): void {
    if (this.#isClosed) return
    const path = fileName === null ? folder : toChild(folder, fileName)
    if (fileName === null || isRelevant(fileName)) this.#options.mark(path)
    if (fileName === null || event !== 'rename') return
    const entry = lstatOf(this.#fullPath(path))
    // The root reports its own end under its own name.
    if (folder === '' && fileName === basename(this.#options.rootPath)) this.#checkRoot(entry === null)
    if (this.#dropBelow(path)) this.#options.mark(path)
    if (!this.#folders.has(folder) || entry === null || !(entry.isDirectory() || entry.isSymbolicLink())) return
    this.#enter(path, entry, true)
    this.#drain()
  }

  /** An editor may replace the target of a link by another file: its watch then has to begin again. */
  #onLinkEvent(path: string, event: string): void {
    if (this.#isClosed) return
    this.#options.mark(path)
    if (event !== 'rename') return
    this.#dropBelow(path)
    const entry = lstatOf(this.#fullPath(path))
    if (entry?.isSymbolicLink() && this.#folders.has(parentOf(path))) this.#enter(path, entry, true)
  }

  /** True when something was watched there. */
  #dropBelow(path: string): boolean {
    if (!this.#folders.has(path) && !this.#links.has(path)) return false
    const isBelow = (other: string) => other === path || other.startsWith(`${path}/`)
    for (const watches of [this.#folders, this.#links]) {
      for (const [other, watcher] of watches) {
        if (!isBelow(other)) continue
        watcher.close()
        watches.delete(other)
        this.#realPaths.delete(other)
      }
    }
    return true
  }

  #dropAll(): void {
    for (const watches of [this.#folders, this.#links]) {
      for (const watcher of watches.values()) watcher.close()
      watches.clear()
    }
    this.#realPaths.clear()
    this.#queue.length = 0
  }

  #fullPath(path: string): string {
    return join(this.#options.rootPath, path)
  }
}

function isRelevant(path: string): boolean {
  const fileName = basename(path)
  if (isSourceName(fileName) || isConfigName(fileName) || isSchemaName(fileName)) return true
  // Decides how sources are read.
  return manifestRuntime(fileName) !== undefined || fileName === 'tsconfig.json'
}

// Deleted and unreadable files are not watched; discovery has the warning.

/** Device and inode; empty when the folder does not exist. */
export function idOf(path: string): string {
  const stats = orNull(() => statSync(path))
  return stats?.isDirectory() ? `${stats.dev}:${stats.ino}` : ''
}

function realPathOf(path: string): string | null {
  return orNull(() => realpathSync(path))
}

function lstatOf(path: string): Stats | null {
  return orNull(() => lstatSync(path))
}

function list(path: string): Dirent[] {
  return orNull(() => readdirSync(path, { withFileTypes: true })) ?? []
}
