/**
 * Finds the folders of a tree that may have changed since they were listed: two checks of times for a folder with one file
 * take a tenth of the time of listing it. Owner: §2.2, page discovery/layouts.
 *
 *   listed ─► times of the folder, kept ─► reload of everything ─► same times, and its files of the same size and time ─► kept
 *                                                               └► listed again, by the reader of the snapshot
 */

import { type Stats, statSync } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { orNull } from '../core/errors.ts'
import type { Clock } from '../core/clock.ts'
import { type Disk, type ListingTimes, MAX_TREE_FOLDERS, NODE_DISK, toChild } from './disk.ts'
import { CONFIG_FILES } from './file-name.ts'
import { type ConfigKind, type DirNode, NO_TEXTS, readSnapshot, type Snapshot } from './snapshot.ts'

/**
 * Milliseconds since its last change after which a folder's times show every later one: some file systems count in steps of two
 * seconds, and a change in the step of the listing would not be seen.
 */
const SETTLED_MS = 2000
/** Folders looked at before other work of the process gets its turn: about a millisecond. */
const FOLDERS_PER_TURN = 200
const GONE_IS_NOTHING = { throwIfNoEntry: false } as const

/** Of a folder, from before it was listed. */
interface Times {
  readonly dev: number
  readonly ino: number
  /** Unlike the other, it cannot be set back. */
  readonly ctimeMs: number
  readonly mtimeMs: number
}

/** The calls that are used; `stat` gives undefined for a deleted file. */
interface TimesDisk {
  stat: (path: string) => Stats | undefined
  readFile: (path: string) => Uint8Array
  realpath: (path: string) => string
}

const SYSTEM: TimesDisk = { ...NODE_DISK, stat: path => statSync(path, GONE_IS_NOTHING) }

export class FolderTimes implements ListingTimes {
  readonly #now: () => number
  readonly #disk: TimesDisk
  readonly #known = new WeakMap<DirNode, Times>()

  /** @param now - wall clock, ms */
  constructor(now: () => number, disk: TimesDisk = SYSTEM) {
    this.#now = now
    this.#disk = disk
  }

  /**
   * To be called before a folder is listed.
   * @param path - full path
   * @returns its times; null when they would not show a change right after the listing
   */
  look(path: string): Times | null {
    const now = this.#now()
    const stats = this.#stat(path)
    if (stats === undefined) return null
    const { dev, ino, mtimeMs, ctimeMs } = stats
    // A clock of another machine that is ahead of ours never settles, which costs time and no change.
    return now - Math.max(mtimeMs, ctimeMs) < SETTLED_MS ? null : { dev, ino, ctimeMs, mtimeMs }
  }

  /** A folder as it was listed after `look`; null when the times alone do not show whether it is still the same. */
  keep(node: DirNode, times: Times | null): void {
    if (times === null) this.#known.delete(node)
    else this.#known.set(node, times)
  }

  /** The same listing, another object. */
  carry(from: DirNode, to: DirNode): void {
    this.keep(to, this.#known.get(from) ?? null)
  }

  /**
   * Looks at every folder of a tree and at every file that matters.
   * @returns folders below the root that have to be read again; null when that is all of them
   */
  async findChanged({ root, rootPath, shortage }: Snapshot): Promise<string[] | null> {
    const isRoot = orNull(() => this.#disk.realpath(rootPath)) === root.realPath
    if (shortage !== null || root.skipped !== null || !isRoot) return null
    const changed: string[] = []
    const left = [root]
    let count = 0
    for (let node = left.pop(); node !== undefined; node = left.pop()) {
      // A name that is never read, or a folder that could not be.
      if (node.skipped !== null && node.problems.length === 0) continue
      // Only a full scan knows which folders are beyond the limit.
      if (++count > MAX_TREE_FOLDERS) return null
      if (node.skipped !== null || !this.#isSame(node)) changed.push(node.path)
      for (const dir of node.dirs) left.push(dir)
      if (count % FOLDERS_PER_TURN === 0) await setImmediate()
    }
    // Each of them is looked up in the tree: more than half is sooner read as a whole.
    return changed.length * 2 > count ? null : changed
  }

  #isSame(node: DirNode): boolean {
    const times = this.#known.get(node)
    if (times === undefined) return false
    // A link on the way to it that leads elsewhere now is found in the folder that holds the link.
    const path = node.realPath
    const now = this.#stat(path)
    if (now === undefined || now.ctimeMs !== times.ctimeMs || now.mtimeMs !== times.mtimeMs) return false
    if (now.ino !== times.ino || now.dev !== times.dev) return false
    for (const { name, size, mtimeMs } of node.files) {
      const file = this.#stat(`${path}/${name}`)
      if (file === undefined || file.size !== size || file.mtimeMs !== mtimeMs) return false
    }
    return node.texts === NO_TEXTS || this.#hasSameTexts(node, path)
  }

  /** Configs are compared by what is in them, as they always are. */
  #hasSameTexts({ texts }: DirNode, path: string): boolean {
    for (const kind in texts) {
      const text = texts[kind as ConfigKind]
      if (text === null) continue
      const bytes = orNull(() => this.#disk.readFile(`${path}/${CONFIG_FILES[kind as ConfigKind]}`))
      if (text.text === null || bytes === null || !Buffer.from(text.text).equals(bytes)) return false
    }
    return true
  }

  /** Undefined too for what cannot be looked at: the reader has the warning for it. */
  #stat(path: string): Stats | undefined {
    return orNull(() => this.#disk.stat(path)) ?? undefined
  }
}

interface PollOptions {
  clock: Clock
  rootPath: string
  everyMs: number
  excluded: () => ReadonlySet<string>
  /** Gets each changed file, and each folder in which something came or went. */
  mark: (path: string) => void
  /** Called once, after the first look. */
  onReady: () => void
  disk?: Disk
}

/** Finds file changes by scanning the tree, where they cannot be watched; a scan begins `everyMs` after the last one ended. */
export class Poller {
  readonly #options: PollOptions
  readonly #times: FolderTimes
  #snapshot: Snapshot | null = null
  /** Of the last look: other ones may have to be read without a change in them. */
  #excluded: ReadonlySet<string> = new Set()
  #timer: NodeJS.Timeout | null = null
  #isClosed = false

  constructor(options: PollOptions) {
    this.#options = options
    this.#times = new FolderTimes(() => options.clock.wall())
    void this.#look()
  }

  close(): void {
    this.#isClosed = true
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
  }

  async #look(): Promise<void> {
    const { clock, everyMs, mark, onReady } = this.#options
    const before = this.#snapshot
    const after = await this.#read(before)
    if (this.#isClosed) return
    this.#snapshot = after
    if (before === null) onReady()
    else markChanges(before.root, after.root, mark)
    this.#timer = clock.setTimeout(() => void this.#look(), everyMs)
    this.#timer.unref?.()
  }

  /** Lists only folders that may have changed, as a reload of everything does. */
  async #read(previous: Snapshot | null): Promise<Snapshot> {
    const { rootPath, excluded, disk } = this.#options
    const times = this.#times
    const before = this.#excluded
    this.#excluded = excluded()
    const isKnown = previous !== null && before === this.#excluded
    const changed = isKnown ? await times.findChanged(previous) : null
    return readSnapshot({ rootPath, previous, changed, times, isGood: () => true, excluded, ...(disk && { disk }) })
  }
}

/** Marks changed files, and folders in which something else came, went or changed. Unchanged folders are the same object. */
function markChanges(before: DirNode, after: DirNode, mark: (path: string) => void): void {
  if (before === after) return
  for (const name of changedFiles(before, after)) mark(toChild(after.path, name))
  const known = new Map(before.dirs.map(dir => [dir.name, dir]))
  let isOwn = before.dirs.length !== after.dirs.length || before.skipped !== after.skipped
  isOwn ||= before.texts !== after.texts || before.otherFiles.join('/') !== after.otherFiles.join('/')
  for (const dir of after.dirs) {
    const old = known.get(dir.name)
    if (old === undefined) isOwn = true
    else markChanges(old, dir, mark)
  }
  if (isOwn) mark(after.path)
}

function changedFiles(before: DirNode, after: DirNode): Set<string> {
  const stamps = new Map(before.files.map(({ name, size, mtimeMs }) => [name, `${size}|${mtimeMs}`]))
  const changed = new Set<string>()
  for (const { name, size, mtimeMs } of after.files) {
    if (stamps.get(name) !== `${size}|${mtimeMs}`) changed.add(name)
    stamps.delete(name)
  }
  for (const name of stamps.keys()) changed.add(name)
  return changed
}
