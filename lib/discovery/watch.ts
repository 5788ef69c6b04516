/**
 * File changes to one reload. Owner: §2.2, page discovery/layouts.
 *
 *   fs.watch of each folder ──► relevant? ──► changed paths ──debounce──► onChange(paths)
 *   root gone or replaced ──► start over             no watches left ──► poll.ts
 *
 * Each folder that discovery reads has a watch of its own. A recursive watch would cover `node_modules` too, and on
 * Linux Node builds it from one watch for every single file.
 */

import { type Dirent, type FSWatcher, lstatSync, readdirSync, realpathSync, type Stats, statSync, watch } from 'node:fs'
import { basename, join } from 'node:path'
import type { Warning } from '../core/errors.ts'
import { ChangeQueue } from './change-queue.ts'
import { pathWarning, MAX_TREE_FOLDERS } from './disk.ts'
import { isConfigName, isSourceName } from './file-name.ts'
import { skippedReason } from './layouts.ts'
import { Poller } from './poll.ts'
import { toChild, MAX_TREE_DEPTH } from './snapshot.ts'

/** Milliseconds between the first file change and the reload it causes. */
const WATCH_DEBOUNCE_MS = 25
/** Milliseconds between two looks at the tree where file changes cannot be watched. */
const WATCH_POLL_MS = 1000
/** Milliseconds between two looks whether the functions root still is the folder that is watched. */
const WATCH_ROOT_CHECK_MS = 500

/** Files that decide which packages a function has, or how its source is read. */
const DEPENDENCY_NAMES: ReadonlySet<string> = new Set(
  'package.json package-lock.json requirements.txt composer.json composer.lock go.mod go.sum Cargo.toml Cargo.lock tsconfig.json'.split(
    ' ',
  ),
)
const FOLDERS_PER_TURN = 50

/** The part of `fs.watch` that is used. */
export type WatchFolder = (path: string, listener: (event: string, fileName: string | null) => void) => FSWatcher

export interface WatchOptions {
  rootPath: string
  /**
   * Gets the changed files and folders below the root, `''` for the root itself: what `readSnapshot` takes as `changed`.
   * Calls do not overlap: changes during a pending promise are told after it. Must not reject.
   */
  onChange: (paths: ReadonlySet<string>) => void | Promise<void>
  onWarning: (warning: Warning) => void
  /** Folders below the root that need no watch: those of the snapshot in use. */
  excluded?: () => ReadonlySet<string>
  debounceMs?: number
  pollMs?: number
  /** True looks at the tree every `pollMs` from the start, for file systems that report no changes. */
  poll?: boolean
  watchFolder?: WatchFolder
}

export interface Watcher {
  /** Resolves when every folder is watched, or the first look of polling is done. */
  readonly ready: Promise<void>
  /** Ends all watching; no call follows. */
  close: () => void
}

/** Watches the functions root, also while it does not exist. Keeps no process alive. */
export function watchTree(options: WatchOptions): Watcher {
  return new TreeWatcher(options)
}

interface Folder {
  path: string
  /** Real paths of the folder, last, and of those above it: a link back to one of them is not followed. */
  chain: readonly string[]
  /** True for a folder that came up while watching: what is in it counts as changed. */
  isNew: boolean
}

const NO_FOLDERS: ReadonlySet<string> = new Set()
const watchPlain: WatchFolder = (path, listener) => watch(path, { persistent: false }, listener)

class TreeWatcher implements Watcher {
  readonly ready: Promise<void>
  readonly #options: WatchOptions
  readonly #folders = new Map<string, { watcher: FSWatcher; chain: readonly string[] }>()
  /** Linked source files: a change of the target is no event of the folder that holds the link. */
  readonly #links = new Map<string, FSWatcher>()
  readonly #queue: Folder[] = []
  readonly #rootTimer: NodeJS.Timeout
  readonly #changes: ChangeQueue
  /** Device and inode of the root that is watched; empty while there is none. */
  #rootId = ''
  #isDraining = false
  #isClosed = false
  #poller: Poller | null = null
  #setReady: () => void = () => {}

  constructor(options: WatchOptions) {
    this.#options = options
    this.ready = new Promise(resolve => {
      this.#setReady = resolve
    })
    this.#changes = new ChangeQueue(options.debounceMs ?? WATCH_DEBOUNCE_MS, paths => this.#tell(paths))
    this.#rootTimer = setInterval(() => this.#checkRoot(false), WATCH_ROOT_CHECK_MS)
    this.#rootTimer.unref()
    if (options.poll === true) this.#poll()
    else this.#start(false)
  }

  close(): void {
    this.#isClosed = true
    clearInterval(this.#rootTimer)
    this.#changes.close()
    this.#poller?.close()
    this.#dropAll()
    this.#setReady()
  }

  #start(isNew: boolean): void {
    const { rootPath } = this.#options
    this.#rootId = idOf(rootPath)
    const realPath = realPathOf(rootPath)
    if (this.#rootId !== '' && realPath !== null) this.#queue.push({ path: '', chain: [realPath], isNew })
    this.#drain()
  }

  /** Begins again when the root is gone, has come back, or is another folder; a suspect one may be new with an old inode. */
  #checkRoot(isSuspect: boolean): void {
    if (this.#isClosed || this.#poller !== null) return
    if (idOf(this.#options.rootPath) === this.#rootId && !isSuspect) return
    this.#dropAll()
    this.#changes.add('')
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
          if (this.#poller === null) this.#setReady()
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
    if (this.#isClosed || this.#poller !== null || this.#folders.size >= MAX_TREE_FOLDERS) return
    if (!this.#folders.has(path)) {
      const watcher = this.#watch(path, (event, fileName) => this.#onEvent(path, event, fileName))
      if (watcher === null) return
      this.#folders.set(path, { watcher, chain })
    }
    if (isNew) this.#changes.add(path)
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
    const isLoop = above.chain.some(real => real === realPath || real.startsWith(`${realPath}/`))
    const isClosed = path.split('/').length > MAX_TREE_DEPTH || this.#options.excluded?.().has(path) === true
    if (!isLoop && !isClosed) this.#queue.push({ path, chain: [...above.chain, realPath], isNew: above.isNew })
  }

  /** null when it cannot be watched: it is gone, or there are no watches left and polling begins. */
  #watch(path: string, listener: (event: string, fileName: string | null) => void): FSWatcher | null {
    try {
      const watcher = (this.#options.watchFolder ?? watchPlain)(this.#fullPath(path), listener)
      watcher.on('error', () => this.#dropBelow(path))
      return watcher
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? String(error.code) : ''
      if (code === 'ENOSPC' || code === 'EMFILE' || code === 'ENFILE') this.#poll(code)
      return null
    }
  }

  #onEvent(folder: string, event: string, fileName: string | null): void {
    if (this.#isClosed) return
    const path = fileName === null ? folder : toChild(folder, fileName)
    if (fileName === null || isRelevant(fileName)) this.#changes.add(path)
    if (fileName === null || event !== 'rename') return
    const entry = lstatOf(this.#fullPath(path))
    // The root reports its own end under its own name.
    if (folder === '' && fileName === basename(this.#options.rootPath)) this.#checkRoot(entry === null)
    if (this.#dropBelow(path)) this.#changes.add(path)
    const above = this.#folders.get(folder)
    if (above === undefined || entry === null || !(entry.isDirectory() || entry.isSymbolicLink())) return
    this.#enter(path, entry, { chain: above.chain, isNew: true })
    this.#drain()
  }

  /** An editor may replace the target of a link by another file: its watch then has to begin again. */
  #onLinkEvent(path: string, event: string): void {
    if (this.#isClosed) return
    this.#changes.add(path)
    if (event !== 'rename') return
    this.#dropBelow(path)
    const entry = lstatOf(this.#fullPath(path))
    const above = this.#folders.get(path.slice(0, Math.max(0, path.lastIndexOf('/'))))
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

  #poll(code: string | null = null): void {
    if (this.#poller !== null || this.#isClosed) return
    const { rootPath, pollMs = WATCH_POLL_MS, excluded = () => NO_FOLDERS, onWarning } = this.#options
    this.#dropAll()
    if (code !== null) {
      const text = `cannot be watched for changes (${code}): it is looked at every ${pollMs} ms instead`
      const hint = 'Raise fs.inotify.max_user_watches and the limit of open files.'
      onWarning(pathWarning('WATCH_LIMITED', '', text, hint))
    }
    const mark = (path: string): void => this.#changes.add(path)
    const onReady = (): void => {
      // What changed between the last watch and the first look is unknown.
      if (code !== null) this.#changes.add('')
      this.#setReady()
    }
    this.#poller = new Poller({ rootPath, everyMs: pollMs, excluded, mark, onReady })
  }

  async #tell(paths: ReadonlySet<string>): Promise<void> {
    await this.#options.onChange(paths)
    // A new root config may exclude other folders than before.
    const root = this.#folders.get('')
    if (!paths.has('fn.config.json') || root === undefined) return
    this.#queue.push({ path: '', chain: root.chain, isNew: false })
    this.#drain()
  }

  #fullPath(path: string): string {
    return join(this.#options.rootPath, path)
  }
}

function isRelevant(path: string): boolean {
  const fileName = basename(path)
  return isSourceName(fileName) || isConfigName(fileName) || DEPENDENCY_NAMES.has(fileName)
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
