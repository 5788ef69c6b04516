/** File changes found by looking, where they cannot be watched. Owner: §2.2, page discovery/layouts. */

import { type DirNode, readSnapshot, type Snapshot } from './snapshot.ts'

export interface PollOptions {
  rootPath: string
  everyMs: number
  excluded: () => ReadonlySet<string>
  /** Gets each folder whose files changed. */
  mark: (path: string) => void
  /** Called once, after the first look. */
  onReady: () => void
}

/** Looks at the tree again and again; the next look begins `everyMs` after the last one ended. */
export class Poller {
  readonly #options: PollOptions
  #snapshot: Snapshot | null = null
  #timer: NodeJS.Timeout | null = null
  #isClosed = false

  constructor(options: PollOptions) {
    this.#options = options
    void this.#look()
  }

  close(): void {
    this.#isClosed = true
    if (this.#timer !== null) clearTimeout(this.#timer)
  }

  async #look(): Promise<void> {
    const { rootPath, everyMs, excluded, mark, onReady } = this.#options
    const before = this.#snapshot
    const after = await readSnapshot({ rootPath, previous: before, isGood: () => true, excluded })
    if (this.#isClosed) return
    this.#snapshot = after
    if (before === null) onReady()
    else markChanges(before.root, after.root, mark)
    this.#timer = setTimeout(() => void this.#look(), everyMs)
    this.#timer.unref()
  }
}

/** Tells each folder that holds something else than before; unchanged ones are the same object. */
function markChanges(before: DirNode, after: DirNode, mark: (path: string) => void): void {
  if (before === after) return
  const known = new Map(before.dirs.map(dir => [dir.name, dir]))
  let isOwn = before.dirs.length !== after.dirs.length || before.skipped !== after.skipped
  isOwn ||= before.files !== after.files && JSON.stringify(before.files) !== JSON.stringify(after.files)
  isOwn ||= before.texts !== after.texts || JSON.stringify(before.otherFiles) !== JSON.stringify(after.otherFiles)
  for (const dir of after.dirs) {
    const old = known.get(dir.name)
    if (old === undefined) isOwn = true
    else markChanges(old, dir, mark)
  }
  if (isOwn) mark(after.path)
}
