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
import type { Clock } from '../core/clock.ts'
import { MAX_TREE_FOLDERS } from './disk.ts'
import { isConfigName, isSchemaName, isSourceName } from './file-name.ts'
import { skippedReason } from './layouts.ts'
import { MAX_TREE_DEPTH } from './snapshot.ts'
import { parentOf, toChild } from './tree-path.ts'

/** Milliseconds between two looks whether the functions root still is the folder that is watched. */
const ROOT_CHECK_MS = 500
const FOLDERS_PER_TURN = 50

/** Files that decide which packages a function has, or how its source is read. */
const DEPENDENCY_NAMES: ReadonlySet<string> = new Set(
  'package.json package-lock.json requirements.txt composer.json composer.lock go.mod go.sum Cargo.toml Cargo.lock tsconfig.json'.split(
    ' ',
  ),
)

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

/** Real path of a folder, and of those above it: a link back to one of them is not followed. */
interface Chain {
  readonly realPath: string
  readonly above: Chain | null
}

interface Folder {
  path: string
  chain: Chain
  /** True for a folder that came up while watching: what is in it counts as changed. */
  isNew: boolean
}

/** Watches the functions root, also while it does not exist. Keeps no process alive. */
export class TreeWatcher {
  readonly #options: TreeWatchOptions
  readonly #folders = new Map<string, { watcher: FSWatcher; chain: Chain }>()
  /** Linked source files: a change of the target is no event of the folder that holds the link. */
  readonly #links = new Map<string, FSWatcher>()
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
    const root = this.#folders.get('')
    if (root === undefined) return
    this.#queue.push({ path: '', chain: root.chain, isNew: false })
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
    if (this.#rootId !== '' && realPath !== null)
      this.#queue.push({ path: '', chain: { realPath, above: null }, isNew })
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

  #scan(folder: Folder): void {
    const { path, chain, isNew } = folder
    if (this.#isClosed || this.#folders.size >= MAX_TREE_FOLDERS) return
    if (!this.#folders.has(path)) {
      const watcher = this.#watch(path, (event, fileName) => this.#onEvent(path, event, fileName))
      if (watcher === null) return
      this.#folders.set(path, { watcher, chain })
    }
    if (isNew) this.#options.mark(path)
    // Listed after the watch began, so that nothing falls between the two.
    for (const entry of list(this.#fullPath(path))) {
      if (entry.isDirectory() || entry.isSymbolicLink()) this.#enter(toChild(path, entry.name), entry, folder)
    }
  }

  /** Takes up a folder, or a link to a folder or source file. */
  #enter(
    path: string,
    entry: Pick<Dirent, 'isDirectory' | 'isSymbolicLink'>,
    above: Pick<Folder, 'chain' | 'isNew'>,
  ): void {
    if (this.#folders.has(path) || this.#links.has(path) || skippedReason(basename(path)) !== null) return
    const realPath = realPathOf(this.#fullPath(path))
    if (realPath === null) return
    if (entry.isSymbolicLink() && idOf(realPath) === '') {
      const watcher = isRelevant(path) ? this.#watch(path, event => this.#onLinkEvent(path, event)) : null
      if (watcher !== null) this.#links.set(path, watcher)
      return
    }
    const isLoop = leadsUp(above.chain, realPath)
    const isClosed = path.split('/').length > MAX_TREE_DEPTH || this.#options.excluded().has(path)
    if (!isLoop && !isClosed) this.#queue.push({ path, chain: { realPath, above: above.chain }, isNew: above.isNew })
  }

  /** null when it cannot be watched: it is gone, or there are no watches left. */
  #watch(path: string, listener: (event: string, fileName: string | null) => void): FSWatcher | null {
    try {
      const watcher = this.#options.watchFolder(this.#fullPath(path), listener)
      watcher.on('error', () => this.#dropBelow(path))
      return watcher
    } catch (error) {
      if (isWatchLimit(error)) {
        this.close()
        this.#options.onLimit(error.code)
      }
      return null
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
    const above = this.#folders.get(folder)
    if (above === undefined || entry === null || !(entry.isDirectory() || entry.isSymbolicLink())) return
    this.#enter(path, entry, { chain: above.chain, isNew: true })
    this.#drain()
  }

  /** An editor may replace the target of a link by another file: its watch then has to begin again. */
  #onLinkEvent(path: string, event: string): void {
    if (this.#isClosed) return
    this.#options.mark(path)
    if (event !== 'rename') return
    this.#dropBelow(path)
    const entry = lstatOf(this.#fullPath(path))
    const above = this.#folders.get(parentOf(path))
    if (entry?.isSymbolicLink() && above !== undefined) this.#enter(path, entry, { chain: above.chain, isNew: true })
  }

  /** True when something was watched there. */
  #dropBelow(path: string): boolean {
    if (!this.#folders.has(path) && !this.#links.has(path)) return false
    const isBelow = (other: string) => other === path || other.startsWith(`${path}/`)
    for (const [other, { watcher }] of this.#folders) {
      if (!isBelow(other)) continue
      watcher.close()
      this.#folders.delete(other)
    }
    for (const [other, watcher] of this.#links) {
      if (!isBelow(other)) continue
      watcher.close()
      this.#links.delete(other)
    }
    return true
  }

  #dropAll(): void {
    for (const { watcher } of this.#folders.values()) watcher.close()
    for (const watcher of this.#links.values()) watcher.close()
    this.#folders.clear()
    this.#links.clear()
    this.#queue.length = 0
  }

  #fullPath(path: string): string {
    return join(this.#options.rootPath, path)
  }
}

/** True for one of these folders, and for one above them. */
function leadsUp(chain: Chain, realPath: string): boolean {
  for (let at: Chain | null = chain; at !== null; at = at.above)
    if (at.realPath === realPath || at.realPath.startsWith(`${realPath}/`)) return true
  return false
}

function isRelevant(path: string): boolean {
  const fileName = basename(path)
  return isSourceName(fileName) || isConfigName(fileName) || isSchemaName(fileName) || DEPENDENCY_NAMES.has(fileName)
}

/** Device and inode; empty when there is no folder. */
function idOf(path: string): string {
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

/** What is gone or closed is not watched; discovery has the warning for it. */
function orNull<T>(ask: () => T): T | null {
  try {
    return ask()
  } catch {
    return null
  }
}
