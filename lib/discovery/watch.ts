/**
 * File changes to one reload. Owner: §2.2, page discovery/layouts.
 *
 *   tree-watcher, or polling without watches ─┐
 *   files elsewhere that functions loaded ────┴► changed paths ──wait──► half saved? ──► onChange(paths)
 */

import { readFileSync, statSync } from 'node:fs'
import { basename, isAbsolute, join, resolve } from 'node:path'
import { parseJsonText } from '../config/json-text.ts'
import { type Clock, systemClock, Timer } from '../core/clock.ts'
import { orNull, type Warning } from '../core/errors.ts'
import { diskStamp, isWithin, pathWarning } from './disk.ts'
import { extensionOf } from './layouts.ts'
import { type LoadedFiles, OutsideWatcher, realPathOf } from './loaded-files.ts'
import { findFile, findFolder, type Snapshot } from './snapshot.ts'
import { TreeWatcher, type WatchFolder, watchPlain } from './tree-watcher.ts'

/** Milliseconds between the first change and the reload it causes. */
const DEBOUNCE_MS = 25
/** Milliseconds between two checks where changes cannot be watched. */
const POLL_MS = 1000

/** The functions root as its reader knows it. */
export interface WatchedTree {
  /** As it was read last: its folders are watched, and a file much shorter than in it may be half saved. Null before it was read. */
  readonly snapshot: Snapshot | null
  /** Files and folders that changed since then; null when that may be anything. Asked where there are no watches. */
  findChanged(): Promise<readonly string[] | null>
}

export interface WatchOptions {
  clock?: Clock
  rootPath: string
  tree: WatchedTree
  /**
   * Reads the tree again, before its promise resolves. Gets the changed files and folders below the root, `''` for the root itself,
   * and null when anything may have changed. Calls do not overlap: changes during a pending promise are reported after it. The set
   * is empty when only files elsewhere changed that functions had loaded. Must not reject.
   */
  onChange: (paths: ReadonlySet<string> | null) => void | Promise<void>
  onWarning: (warning: Warning) => void
  /** Files that functions loaded: they are watched in any folder, and every change is noted before `onChange`. */
  loaded?: LoadedFiles | null
  debounceMs?: number
  pollMs?: number
  watchFolder?: WatchFolder
}

export type Watcher = Pick<FileWatcher, 'ready' | 'close'>

/** Watches the functions root, also while it does not exist. Keeps no process alive. */
export class FileWatcher {
  /** Resolves when every folder is watched, or the first check of polling is done. */
  readonly ready: Promise<void>
  readonly #options: WatchOptions
  readonly #clock: Clock
  readonly #pollMs: number
  readonly #changes: ChangeQueue
  readonly #tree: TreeWatcher
  readonly #outside: OutsideWatcher | null
  readonly #pollTimer: Timer
  /** Polling could not find out which files changed. */
  #isAllChanged = false
  #isLimited = false
  #isClosed = false
  #setReady: () => void = () => {}

  constructor(options: WatchOptions) {
    const { clock = systemClock, rootPath, tree, loaded, debounceMs = DEBOUNCE_MS, pollMs = POLL_MS } = options
    const { watchFolder = watchPlain } = options
    this.#options = options
    this.#clock = clock
    this.#pollMs = pollMs
    this.#pollTimer = new Timer(clock, true)
    this.ready = new Promise(resolve => {
      this.#setReady = resolve
    })
    const sizeOf = (path: string): number | null =>
      isAbsolute(path) ? (loaded?.sizeOf(path) ?? null) : (findFile(tree.snapshot?.root ?? null, path)?.size ?? null)
    const settler = new WriteSettler(rootPath, sizeOf)
    this.#changes = new ChangeQueue({
      clock,
      delayMs: debounceMs,
      isHalfSaved: paths => settler.mustWait(paths),
      onChange: paths => this.#report(paths),
    })
    const mark = (path: string): void => this.#changes.add(path)
    this.#tree = new TreeWatcher({
      ...{ clock, rootPath, watchFolder, mark },
      snapshot: () => tree.snapshot,
      onReady: this.#setReady,
      onLimit: code => {
        this.#warnLimit(code)
        void this.#poll()
      },
    })
    this.#outside = loaded ? this.#watchOutside(loaded, watchFolder) : null
  }

  /** Ends all watching; no call follows. */
  close(): void {
    this.#isClosed = true
    this.#changes.close()
    this.#tree.close()
    this.#pollTimer.clear()
    this.#outside?.close()
    this.#setReady()
  }

  /** The tree cannot be watched any more: it is checked, and checked again some time after that. */
  async #poll(): Promise<void> {
    const changed = await this.#options.tree.findChanged()
    if (this.#isClosed) return
    this.#isAllChanged ||= changed === null
    for (const path of changed ?? ['']) this.#changes.add(path)
    this.#setReady()
    this.#pollTimer.set(this.#pollMs, () => void this.#poll())
  }

  #watchOutside(loaded: LoadedFiles, watchFolder: WatchFolder): OutsideWatcher {
    const { rootPath, tree } = this.#options
    const realRoot = realPathOf(rootPath)
    /** True for a folder of the tree that discovery reads. */
    const isCovered = (folder: string): boolean => {
      if (!isWithin(folder, realRoot)) return false
      return findFolder(tree.snapshot?.root ?? null, folder.slice(realRoot.length + 1))?.skipped === null
    }
    const watcher = new OutsideWatcher({
      clock: this.#clock,
      everyMs: this.#pollMs,
      isCovered,
      isChanged: file => loaded.isChanged(file),
      watchFolder,
      mark: path => this.#changes.add(path),
      onLimit: code => this.#warnLimit(code),
    })
    loaded.follow(watcher.follow)
    return watcher
  }

  /** Once, although the tree and the files elsewhere may both run out of watches. */
  #warnLimit(code: string): void {
    if (this.#isLimited) return
    this.#isLimited = true
    const text = `cannot be watched for changes (${code}): it is scanned every ${this.#pollMs} ms instead`
    const hint = 'Raise fs.inotify.max_user_watches and the limit of open files.'
    this.#options.onWarning(pathWarning('WATCH_LIMITED', '', text, hint))
  }

  async #report(changed: ReadonlySet<string>): Promise<void> {
    const isLoaded = this.#options.loaded?.note(changed) === true
    const paths = new Set([...changed].filter(path => !isAbsolute(path)))
    const isAll = this.#isAllChanged
    this.#isAllChanged = false
    if (paths.size > 0 || isLoaded) await this.#options.onChange(isAll ? null : paths)
    this.#tree.sync()
  }
}

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
  const changes = new ChangeQueue({ clock, delayMs: DEBOUNCE_MS, isHalfSaved: () => false, onChange })
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

/** Milliseconds of one more wait for a file that looks half saved. */
const SETTLE_MS = 100
/** Waits in a row, after which a file that still changes is reported anyway. */
const MAX_SETTLES = 20

interface ChangeQueueOptions {
  clock: Clock
  /** From the first change to the call: later changes do not put it off, or a steady stream would for ever. */
  delayMs: number
  /** True when one of the paths looks half saved: all wait a little longer, so that they are reported together. */
  isHalfSaved: (paths: ReadonlySet<string>) => boolean
  /** Must not reject; while its promise is pending, changes wait. */
  onChange: (paths: ReadonlySet<string>) => void | Promise<void>
}

/** Collects changed paths and reports them together, one call at a time. */
export class ChangeQueue {
  readonly #options: ChangeQueueOptions
  #paths = new Set<string>()
  readonly #timer: Timer
  #settles = 0
  #isBusy = false
  #isClosed = false

  constructor(options: ChangeQueueOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock)
  }

  add(path: string): void {
    this.#paths.add(path)
    this.#schedule()
  }

  /** No call follows. */
  close(): void {
    this.#isClosed = true
    this.#timer.clear()
  }

  #schedule(): void {
    if (this.#timer.isSet || this.#isBusy || this.#isClosed || this.#paths.size === 0) return
    this.#timer.set(this.#options.delayMs, () => this.#end())
  }

  #end(): void {
    if (this.#settles < MAX_SETTLES && this.#options.isHalfSaved(this.#paths)) {
      this.#settles++
      this.#timer.set(SETTLE_MS, () => this.#end())
      return
    }
    this.#settles = 0
    void this.#flush()
  }

  async #flush(): Promise<void> {
    const paths = this.#paths
    this.#paths = new Set()
    this.#isBusy = true
    try {
      await this.#options.onChange(paths)
    } finally {
      this.#isBusy = false
      this.#schedule()
    }
  }
}

/** A file with less than this share of its bytes before is much shorter. */
const SHORTER_SHARE = 0.5
/** Larger files are not read to see how they end. */
const MAX_READ_BYTES = 256 * 1024

/**
 * Judges changed files. One that became empty or much shorter, or that ends in the middle, is half saved, until a second
 * look finds it unchanged: then it was meant so.
 */
export class WriteSettler {
  readonly #rootPath: string
  readonly #sizeOf: (path: string) => number | null
  /** Size and time of the files that were half saved at the last look. */
  #seen = new Map<string, string>()
  /** Files that look cut and were meant so, or are broken: they are not waited for again. */
  readonly #odd = new Set<string>()

  /**
   * @param rootPath - base of relative paths
   * @param sizeOf - bytes of the file that serves, null when there is none
   */
  constructor(rootPath: string, sizeOf: (path: string) => number | null) {
    this.#rootPath = rootPath
    this.#sizeOf = sizeOf
  }

  /** True when one of the files has to be inspected again before it is used. */
  mustWait(paths: Iterable<string>): boolean {
    const seen = new Map<string, string>()
    const cut: string[] = []
    let isHalfSaved = false
    for (const path of paths) {
      // A deleted file is whole in its way, and discovery has the warning for one that cannot be read.
      const look = orNull(() => this.#lookAt(path))
      if (look === null) continue
      const { stamp, isCut } = look
      if (isCut) cut.push(path)
      seen.set(path, stamp)
      if (this.#seen.get(path) !== stamp) isHalfSaved = true
    }
    this.#seen = isHalfSaved ? seen : new Map()
    if (!isHalfSaved) for (const path of cut) this.#odd.add(path)
    return isHalfSaved
  }

  /** A file that looks half saved; null for any other. @throws for a file that was deleted or cannot be read */
  #lookAt(path: string): { stamp: string; isCut: boolean } | null {
    const fullPath = resolve(this.#rootPath, path)
    const stats = statSync(fullPath)
    if (!stats.isFile()) return null
    const { size, mtimeMs } = stats
    const before = this.#sizeOf(path)
    const isShort = (size === 0 && before !== 0) || (before !== null && size < before * SHORTER_SHARE)
    const isRead = size > 0 && size <= MAX_READ_BYTES
    const looksOdd = isRead && looksCut(basename(path), readFileSync(fullPath, 'utf8'))
    if (!looksOdd) this.#odd.delete(path)
    const isCut = looksOdd && !this.#odd.has(path)
    return isShort || isCut ? { stamp: `${size}|${mtimeMs}`, isCut } : null
  }
}

/**
 * A pattern that finds comments (first group) and strings. Its parts are patterns too.
 * @param rawStrings - without escapes, over several lines
 * @param opening - begins a comment or raw string that has no end (second group)
 * @param quotes - of strings with backslash escapes; such a string is taken to end with its line
 */
function toLexis(comments: string, rawStrings: string[], opening: string, quotes = `'"`): RegExp {
  const strings = [...quotes].map(quote => String.raw`${quote}(?:\\[^]?|[^${quote}\\\n])*${quote}?`)
  return new RegExp([`(${comments})`, ...rawStrings, `((?:${opening})[^]*)`, ...strings].join('|'), 'g')
}

const C_COMMENTS = String.raw`/\*[^]*?\*/|//[^\n]*`
const C_STYLE = toLexis(C_COMMENTS, ['`[^`]*`'], '/\\*|`')
const LEXIS: ReadonlyMap<string, RegExp> = new Map([
  ...['.js', '.ts', '.mjs', '.cjs', '.mts', '.cts', '.go'].map(extension => [extension, C_STYLE] as const),
  ['.py', toLexis(String.raw`#[^\n]*`, ['"""[^]*?"""', "'''[^]*?'''"], `"""|'''`)],
  ['.php', toLexis(String.raw`${C_COMMENTS}|#[^\n]*`, [], String.raw`/\*`)],
  ['.lua', toLexis(String.raw`--\[\[[^]*?\]\]|--(?!\[\[)[^\n]*`, [String.raw`\[\[[^]*?\]\]`], String.raw`(?:--)?\[\[`)],
  // An apostrophe begins a lifetime more often than a character.
  ['.rs', toLexis(C_COMMENTS, [], String.raw`/\*`, '"')],
])

/**
 * True for a text whose brackets, blocks or strings are open at its end, or that ends with an operator. A guess, made in
 * one walk over the text: literals of regular expressions and the like are not understood.
 * @returns false for files of other kinds
 */
export function looksCut(fileName: string, text: string): boolean {
  // A tsconfig.json may hold comments.
  if (fileName.endsWith('.json')) return fileName !== 'tsconfig.json' && !parseJsonText(text).ok
  const extension = extensionOf(fileName)
  const lexis = LEXIS.get(extension)
  if (lexis === undefined) return false
  const code = stripLiterals(text, lexis)
  if (code === null || countOf(code, /[([{]/g) > countOf(code, /[)\]}]/g)) return true
  if (extension === '.lua' && countOf(code, /\b(?:function|do|if|repeat)\b/g) > countOf(code, /\b(?:end|until)\b/g))
    return true
  return /[,:=+*&|^%<([{\\-]\s*$/.test(code)
}

/** The text without comments and with empty strings; null when a comment or string is open at the end. */
function stripLiterals(text: string, lexis: RegExp): string | null {
  let isOpen = false
  const code = text.replace(lexis, (_, comment?: string, open?: string) => {
    isOpen ||= open !== undefined
    // A literal counts as the operand of the operator before it; a comment does not.
    return comment === undefined ? '_' : ' '
  })
  return isOpen ? null : code
}

function countOf(text: string, pattern: RegExp): number {
  return text.match(pattern)?.length ?? 0
}
