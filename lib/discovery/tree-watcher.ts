/**
 * A watch for each folder that discovery reads. Owner: §2.2, page discovery/layouts.
 *
 *   snapshot ──sync──► fs.watch of each folder in it ──► relevant? ──► mark(path)
 *   root gone or replaced ──► start over             no watches left ──► onLimit
 *
 * A recursive watch would cover `node_modules` too, and on Linux Node builds it from one watch for every single file.
 */

import { existsSync, type FSWatcher, readdirSync, statSync, watch } from 'node:fs'
import { basename, join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { type Clock, Timer } from '../core/clock.ts'
import { orNull } from '../core/errors.ts'
import { folderId, isWithin, toChild } from './disk.ts'
import { isReadName, skippedReason } from './layouts.ts'
import { type DirNode, findFile, findFolder, type Snapshot } from './snapshot.ts'

/** Milliseconds between two checks whether the functions root still is the folder that is watched. */
const ROOT_CHECK_MS = 500
const FOLDERS_PER_TURN = 50

/** The part of `fs.watch` that is used. */
export type WatchFolder = (path: string, listener: (event: string, fileName: string | null) => void) => FSWatcher

export const watchPlain: WatchFolder = (path, listener) => watch(path, { persistent: false }, listener)

/** True for the error of a system that has no watches or descriptors left. */
export function isWatchLimit(error: unknown): error is Error & { code: string } {
  return error instanceof Error && 'code' in error && /^(?:ENOSPC|EMFILE|ENFILE)$/.test(String(error.code))
}

export interface TreeWatchOptions {
  clock: Clock
  rootPath: string
  /** The tree as it was read last. */
  snapshot: () => Snapshot | null
  watchFolder: WatchFolder
  /** Gets each changed file or folder below the root, `''` for the root itself. */
  mark: (path: string) => void
  /** Called when every folder of the first snapshot is watched. */
  onReady: () => void
  /** The system has nothing left to watch with; the watcher is closed. */
  onLimit: (code: string) => void
}

/** Watches the functions root, also while it does not exist. Keeps no process alive. */
export class TreeWatcher {
  readonly #options: TreeWatchOptions
  /** By path below the root: folders, and linked files, whose targets change without an event in the folder of the link. */
  readonly #watches = new Map<string, FSWatcher>()
  /** The tree that is watched, or will be when the queue is empty. */
  #root: DirNode | null = null
  /** What has lost its watch: it is watched again if it is still there when the tree was read. */
  readonly #lost = new Set<string>()
  readonly #queue: DirNode[] = []
  readonly #rootTimer: Timer
  /** Device and inode of the root that is watched; empty while there is none. */
  #rootId: string
  #isDraining = false
  #isReady = false
  #isClosed = false

  constructor(options: TreeWatchOptions) {
    this.#options = options
    this.#rootTimer = new Timer(options.clock, true)
    this.#rootId = folderId(options.rootPath)
    this.#checkRootLater()
    this.sync()
  }

  close(): void {
    this.#isClosed = true
    this.#rootTimer.clear()
    this.#dropAll()
  }

  /** Watches what was found when the tree was read last, and nothing else any more. */
  sync(): void {
    if (this.#isClosed) return
    const root = this.#options.snapshot()?.root ?? null
    this.#follow(this.#root, root)
    this.#root = root
    for (const path of this.#lost) {
      const folder = findFolder(root, path)
      if (folder !== null) this.#queue.push(folder)
      else if (findFile(root, path)?.isLink) this.#watch(path)
    }
    this.#lost.clear()
    void this.#drain()
  }

  /** Goes through what is different in a folder: an unchanged one is the same object. */
  #follow(before: DirNode | null, after: DirNode | null): void {
    if (before === after) return
    const isSame = before?.realPath === after?.realPath && before?.skipped === null && after?.skipped === null
    if (before === null || after === null || !isSame) {
      if (before !== null) this.#drop(before.path)
      if (after !== null) this.#queue.push(after)
      return
    }
    const links = new Set(linksOf(after))
    for (const path of linksOf(before)) if (!links.has(path)) this.#drop(path)
    for (const path of links) this.#watch(path)
    const left = new Map(before.dirs.map(dir => [dir.name, dir]))
    for (const dir of after.dirs) {
      this.#follow(left.get(dir.name) ?? null, dir)
      left.delete(dir.name)
    }
    for (const { path } of left.values()) this.#drop(path)
  }

  /** Works off the queue in slices, so that requests go on meanwhile. */
  async #drain(): Promise<void> {
    if (this.#isDraining) return
    this.#isDraining = true
    for (let count = 1; this.#queue.length > 0; count++) {
      this.#enter(this.#queue.pop()!)
      if (count % FOLDERS_PER_TURN === 0) await setImmediate()
    }
    this.#isDraining = false
    if (this.#isReady || this.#isClosed) return
    this.#isReady = true
    this.#options.onReady()
  }

  #enter(node: DirNode): void {
    if (this.#isClosed || node.skipped !== null) return
    const isNew = this.#watch(node.path)
    // It may have changed between the reading and the watch. Before the watcher is ready this does not matter: its caller reads the tree again.
    if (isNew && this.#isReady && !isAsRead(this.#fullPath(node.path), node)) this.#options.mark(node.path)
    for (const path of linksOf(node)) this.#watch(path)
    for (const dir of node.dirs) this.#queue.push(dir)
  }

  /** True when a watch began: false for what is watched already, and for what is gone. */
  #watch(path: string): boolean {
    const watches = this.#watches
    if (watches.has(path) || this.#isClosed) return false
    try {
      const watcher = this.#options.watchFolder(this.#fullPath(path), (event, fileName) => {
        // A closed watch may still report an event.
        if (watches.get(path) === watcher) this.#onEvent(path, event, fileName)
      })
      watcher.on('error', () => {
        if (watches.get(path) === watcher) this.#lose(path)
      })
      watches.set(path, watcher)
      return true
    } catch (error) {
      if (isWatchLimit(error)) {
        this.close()
        this.#options.onLimit(error.code)
      }
      return false
    }
  }

  #onEvent(watched: string, event: string, fileName: string | null): void {
    const { mark, rootPath } = this.#options
    if (findFile(this.#root, watched)?.isLink) {
      mark(watched)
      // An editor may replace the target of a link by another file.
      if (event === 'rename') this.#lose(watched)
      return
    }
    const path = fileName === null ? watched : toChild(watched, fileName)
    if (fileName === null || isRelevant(fileName)) mark(path)
    if (fileName === null || event !== 'rename') return
    const fullPath = this.#fullPath(path)
    // The root reports its own end under its own name.
    if (watched === '' && fileName === basename(rootPath)) this.#checkRoot(!existsSync(fullPath))
    const isFolder = skippedReason(fileName) === null && folderId(fullPath) !== ''
    const isExcluded = this.#options.snapshot()?.excluded.has(path) === true
    if (this.#lose(path) || (isFolder && !isExcluded)) mark(path)
  }

  #checkRootLater(): void {
    this.#rootTimer.set(ROOT_CHECK_MS, () => {
      this.#checkRoot(false)
      if (!this.#isClosed) this.#checkRootLater()
    })
  }

  /** Begins again when the root is gone, has come back, or is another folder; a suspect one may be new with an old inode. */
  #checkRoot(isSuspect: boolean): void {
    const id = folderId(this.#options.rootPath)
    if (this.#isClosed || (id === this.#rootId && !isSuspect)) return
    this.#rootId = id
    this.#dropAll()
    this.#options.mark('')
  }

  /** Ends the watches at and below a path, until the tree is read again; true when there were any. */
  #lose(path: string): boolean {
    if (!this.#watches.has(path)) return false
    for (const lost of this.#drop(path)) this.#lost.add(lost)
    return true
  }

  /** Ends the watches at and below a path. */
  #drop(path: string): string[] {
    const dropped = [...this.#watches.keys()].filter(watched => path === '' || isWithin(watched, path))
    for (const one of dropped) {
      this.#watches.get(one)!.close()
      this.#watches.delete(one)
    }
    return dropped
  }

  #dropAll(): void {
    this.#drop('')
    this.#lost.clear()
    this.#queue.length = 0
    this.#root = null
  }

  #fullPath(path: string): string {
    return join(this.#options.rootPath, path)
  }
}

function isRelevant(fileName: string): boolean {
  // The last one decides how sources are read.
  return isReadName(fileName) || fileName === 'tsconfig.json'
}

function linksOf({ path, files }: DirNode): string[] {
  return files.flatMap(file => (file.isLink ? [toChild(path, file.name)] : []))
}

/** True when a folder still holds what was found in it. */
function isAsRead(fullPath: string, { files, otherFiles, dirs }: DirNode): boolean {
  const names = orNull(() => readdirSync(fullPath))
  if (names?.length !== files.length + otherFiles.length + dirs.length) return false
  return files.every(({ name, size, mtimeMs }) => {
    const stats = orNull(() => statSync(join(fullPath, name)))
    return stats?.size === size && stats.mtimeMs === mtimeMs
  })
}
