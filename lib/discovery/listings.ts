/**
 * Lists folders, and lists one again only when it has changed: a look at its times takes a fifth of the time. Owner: §2.2, page
 * discovery/layouts.
 */

import { type Stats, statSync } from 'node:fs'
import { type Disk, type DiskEntry, MAX_TREE_FOLDERS, NODE_DISK } from './disk.ts'

/**
 * Milliseconds since its last change after which a folder's times tell of every later one: some file systems count in steps of two
 * seconds, and a change in the step of the listing would not be seen.
 */
const SETTLED_MS = 2000

type Kind = 'file' | 'folder' | 'link' | 'other'

/** What an entry of a folder is, without the rest that the system's own keep. */
class Entry implements DiskEntry {
  readonly name: string
  readonly kind: Kind

  constructor(entry: DiskEntry) {
    this.name = entry.name
    if (entry.isFile()) this.kind = 'file'
    else if (entry.isDirectory()) this.kind = 'folder'
    else this.kind = entry.isSymbolicLink() ? 'link' : 'other'
  }

  isFile(): boolean {
    return this.kind === 'file'
  }

  isDirectory(): boolean {
    return this.kind === 'folder'
  }

  isSymbolicLink(): boolean {
    return this.kind === 'link'
  }
}

interface Listing {
  readonly dev: number
  readonly ino: number
  readonly mtimeMs: number
  /** Nobody can set it back, as they can the other. */
  readonly ctimeMs: number
  readonly entries: readonly DiskEntry[]
}

export class Listings {
  readonly #now: () => number
  readonly #disk: Disk
  #kept = new Map<string, Listing>()
  /** Of the pass before: folders that are gone are forgotten with it. */
  #before: ReadonlyMap<string, Listing> = new Map()

  /**
   * @param now - wall clock, ms
   * @param disk - what is asked when a folder has changed
   */
  constructor(now: () => number, disk: Disk = NODE_DISK) {
    this.#now = now
    this.#disk = disk
  }

  /** The disk with listings that are remembered; what is in files, and what links lead to, is asked each time. */
  get disk(): Disk {
    return { ...this.#disk, readdir: path => this.#list(path) }
  }

  /** All folders are about to be listed. */
  beginPass(): void {
    this.#before = this.#kept
    this.#kept = new Map()
  }

  #list(path: string): readonly DiskEntry[] {
    const listedAt = this.#now()
    const stats = statSync(path)
    const known = this.#kept.get(path) ?? this.#before.get(path)
    if (known !== undefined && isSame(known, stats)) {
      this.#keep(path, known)
      return known.entries
    }
    this.#kept.delete(path)
    const entries = this.#disk.readdir(path).map(entry => new Entry(entry))
    const { dev, ino, mtimeMs, ctimeMs } = stats
    // A clock of another machine that is ahead of ours never settles, which costs time and no change.
    if (listedAt - Math.max(mtimeMs, ctimeMs) >= SETTLED_MS) this.#keep(path, { dev, ino, mtimeMs, ctimeMs, entries })
    return entries
  }

  #keep(path: string, listing: Listing): void {
    if (this.#kept.size >= MAX_TREE_FOLDERS) this.#kept.clear()
    this.#kept.set(path, listing)
  }
}

function isSame(known: Listing, stats: Stats): boolean {
  return (
    known.mtimeMs === stats.mtimeMs &&
    known.ctimeMs === stats.ctimeMs &&
    known.ino === stats.ino &&
    known.dev === stats.dev
  )
}
