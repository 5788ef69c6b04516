/**
 * File changes to one reload. Owner: §2.2, page discovery/layouts.
 *
 *   tree-watcher.ts, or poll.ts without watches ─┐
 *   outside-watcher.ts ──────────────────────────┴► changed paths ──wait──► half saved? ──► onChange(paths)
 */

import { basename, isAbsolute } from 'node:path'
import { type Clock, systemClock } from '../core/clock.ts'
import type { Warning } from '../core/errors.ts'
import { ChangeQueue, WriteSettler } from './change-queue.ts'
import { parentOf, pathWarning } from './disk.ts'
import { skippedReason } from './layouts.ts'
import { type LoadedFiles, realPathOf } from './loaded-files.ts'
import { DEBOUNCE_MS, OutsideWatcher, POLL_MS } from './outside-watcher.ts'
import { Poller } from './folder-times.ts'
import { findFile, type Snapshot } from './snapshot.ts'
import { TreeWatcher, type WatchFolder, watchPlain } from './tree-watcher.ts'

export interface WatchOptions {
  clock?: Clock
  rootPath: string
  /**
   * Gets the changed files and folders below the root, `''` for the root itself: what `readSnapshot` takes as `changed`.
   * Calls do not overlap: changes during a pending promise are reported after it. The set is empty when only files
   * elsewhere changed that functions had loaded. Must not reject.
   */
  onChange: (paths: ReadonlySet<string>) => void | Promise<void>
  onWarning: (warning: Warning) => void
  /** The tree that serves: its excluded folders need no watch, and a file much shorter than in it may be half saved. */
  snapshot?: () => Snapshot | null
  /** Files that functions loaded: they are watched in any folder, and every change is noted before `onChange`. */
  loaded?: LoadedFiles | null
  debounceMs?: number
  pollMs?: number
  watchFolder?: WatchFolder
}

export interface Watcher {
  /** Resolves when every folder is watched, or the first scan of polling is done. */
  readonly ready: Promise<void>
  /** Ends all watching; no call follows. */
  close: () => void
}

const NO_FOLDERS: ReadonlySet<string> = new Set()

/** Watches the functions root, also while it does not exist. Keeps no process alive. */
export class FileWatcher implements Watcher {
  readonly ready: Promise<void>
  readonly #options: WatchOptions
  readonly #clock: Clock
  readonly #changes: ChangeQueue
  readonly #tree: TreeWatcher
  #poller: Poller | null = null
  readonly #outside: OutsideWatcher | null
  #isLimited = false
  #isClosed = false
  #setReady: () => void = () => {}

  constructor(options: WatchOptions) {
    const { clock = systemClock, rootPath, snapshot = () => null, debounceMs = DEBOUNCE_MS } = options
    this.#options = options
    this.#clock = clock
    this.ready = new Promise(resolve => {
      this.#setReady = resolve
    })
    const sizeOf = (path: string): number | null =>
      isAbsolute(path)
        ? (options.loaded?.sizeOf(path) ?? null)
        : (findFile(snapshot()?.root ?? null, path)?.size ?? null)
    const settler = new WriteSettler({ rootPath, sizeOf })
    this.#changes = new ChangeQueue({
      clock,
      delayMs: debounceMs,
      isHalfSaved: paths => settler.mustWait(paths),
      onChange: paths => this.#report(paths),
    })
    this.#tree = new TreeWatcher({
      clock,
      rootPath,
      excluded: this.#excluded,
      watchFolder: options.watchFolder ?? watchPlain,
      mark: this.#mark,
      onReady: this.#setReady,
      onLimit: code => this.#poll(code),
    })
    this.#outside = options.loaded ? this.#watchOutside(options.loaded) : null
  }

  close(): void {
    this.#isClosed = true
    this.#changes.close()
    this.#tree.close()
    this.#poller?.close()
    this.#outside?.close()
    this.#setReady()
  }

  /** The tree cannot be watched any more. */
  #poll(code: string): void {
    this.#warnLimit(code)
    if (this.#isClosed) return
    const { rootPath, pollMs = POLL_MS } = this.#options
    const onReady = (): void => {
      // Changes between the last watch and the first scan are unknown.
      this.#mark('')
      this.#setReady()
    }
    this.#poller = new Poller({
      clock: this.#clock,
      rootPath,
      everyMs: pollMs,
      excluded: this.#excluded,
      mark: this.#mark,
      onReady,
    })
  }

  readonly #mark = (path: string): void => this.#changes.add(path)

  readonly #excluded = (): ReadonlySet<string> => this.#options.snapshot?.()?.excluded ?? NO_FOLDERS

  #watchOutside(loaded: LoadedFiles): OutsideWatcher {
    const { rootPath, pollMs = POLL_MS, watchFolder = watchPlain } = this.#options
    const realRoot = realPathOf(rootPath)
    const watcher = new OutsideWatcher({
      clock: this.#clock,
      everyMs: pollMs,
      isCovered: folder =>
        folder === realRoot || (folder.startsWith(`${realRoot}/`) && this.#isRead(folder.slice(realRoot.length + 1))),
      isChanged: file => loaded.isChanged(file),
      watchFolder,
      mark: this.#mark,
      onLimit: code => this.#warnLimit(code),
    })
    loaded.follow(watcher.follow)
    return watcher
  }

  /** True for a folder below the root that discovery reads. */
  #isRead(folder: string): boolean {
    const excluded = this.#excluded()
    for (let path = folder; path !== ''; path = parentOf(path)) {
      if (excluded.has(path) || skippedReason(basename(path)) !== null) return false
    }
    return true
  }

  /** Once, although the tree and the files elsewhere may both run out of watches. */
  #warnLimit(code: string): void {
    if (this.#isLimited) return
    this.#isLimited = true
    const { onWarning, pollMs = POLL_MS } = this.#options
    const text = `cannot be watched for changes (${code}): it is scanned every ${pollMs} ms instead`
    const hint = 'Raise fs.inotify.max_user_watches and the limit of open files.'
    onWarning(pathWarning('WATCH_LIMITED', '', text, hint))
  }

  async #report(changed: ReadonlySet<string>): Promise<void> {
    const isLoaded = this.#options.loaded?.note(changed) === true
    const paths = new Set([...changed].filter(path => !isAbsolute(path)))
    if (paths.size > 0 || isLoaded) await this.#options.onChange(paths)
    if (paths.has('fn.config.json')) this.#tree.rescan()
  }
}
