/** File changes found by looking, where they cannot be watched. Owner: §2.2, page discovery/layouts. */

import type { Clock } from '../core/clock.ts'
import type { Disk } from './disk.ts'
import { FolderTimes } from './folder-times.ts'
import { type DirNode, readSnapshot, type Snapshot } from './snapshot.ts'
import { toChild } from './tree-path.ts'

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

/** Looks at the tree again and again; the next look begins `everyMs` after the last one ended. */
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
