/**
 * Which folders of a tree may be other ones than they were when they were listed: two looks at times for a folder with one file
 * take a tenth of the time of listing it. Owner: §2.2, page discovery/layouts.
 *
 *   listed ─► times of the folder, kept ─► reload of everything ─► same times, and its files of the same size and time ─► kept
 *                                                               └► listed again, by the reader of the snapshot
 */

import { type Stats, statSync } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { exactNumber } from '../core/exact-list.ts'
import { type ListingTimes, MAX_TREE_FOLDERS, NODE_DISK } from './disk.ts'
import { CONFIG_FILES } from './file-name.ts'
import { type ConfigKind, type DirNode, NO_TEXTS, type Snapshot } from './snapshot.ts'

/**
 * Milliseconds since its last change after which a folder's times tell of every later one: some file systems count in steps of two
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
  /** Nobody can set it back, as they can the other. */
  readonly ctimeMs: number
  /** Null when it is the other: of most folders one number is kept. */
  readonly mtimeMs: number | null
}

/** What is asked; undefined for what is gone. */
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
   * @returns its times; null when they would not tell of a change that comes right after the listing
   */
  look(path: string): Times | null {
    const now = this.#now()
    const stats = this.#stat(path)
    if (stats === undefined) return null
    const { dev, ino, mtimeMs, ctimeMs } = stats
    // A clock of another machine that is ahead of ours never settles, which costs time and no change.
    return now - Math.max(mtimeMs, ctimeMs) < SETTLED_MS
      ? null
      : { dev: exactNumber(dev), ino: exactNumber(ino), ctimeMs, mtimeMs: mtimeMs === ctimeMs ? null : mtimeMs }
  }

  /** What was listed after `look`; null when the times alone do not tell whether it is still the same. */
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
    if (shortage !== null || root.skipped !== null || !this.#isRoot(root, rootPath)) return null
    const changed: string[] = []
    const left = [root]
    let count = 0
    for (let node = left.pop(); node !== undefined; node = left.pop()) {
      // A name that is never read, or a folder that could not be.
      if (node.skipped !== null && node.problems.length === 0) continue
      // Which folders are beyond the limit only a whole reading tells.
      if (++count > MAX_TREE_FOLDERS) return null
      if (node.skipped !== null || !this.#isSame(node)) changed.push(node.path)
      for (const dir of node.dirs) left.push(dir)
      if (count % FOLDERS_PER_TURN === 0) await setImmediate()
    }
    // Each of them is looked up in the tree: more than half is sooner read as a whole.
    return changed.length * 2 > count ? null : changed
  }

  #isRoot(root: DirNode, rootPath: string): boolean {
    try {
      return this.#disk.realpath(rootPath) === root.realPath
    } catch {
      return false
    }
  }

  #isSame(node: DirNode): boolean {
    const times = this.#known.get(node)
    if (times === undefined) return false
    // Kept as one piece of text. A link on the way to it that leads elsewhere now is found where the link lies.
    const path = node.realPath
    const now = this.#stat(path)
    if (now === undefined || now.ctimeMs !== times.ctimeMs) return false
    if (now.mtimeMs !== (times.mtimeMs ?? times.ctimeMs)) return false
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
      if (text.text === null || !this.#isText(`${path}/${CONFIG_FILES[kind as ConfigKind]}`, text.text)) return false
    }
    return true
  }

  #isText(path: string, text: string): boolean {
    try {
      return Buffer.from(text).equals(this.#disk.readFile(path))
    } catch {
      return false
    }
  }

  /** Undefined too for what cannot be looked at: the reader has the warning for it. */
  #stat(path: string): Stats | undefined {
    try {
      return this.#disk.stat(path)
    } catch {
      return undefined
    }
  }
}
