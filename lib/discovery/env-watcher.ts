/** Watches the env files of the project, which lie beside the functions root or above it. Owner: §2.14, page config/function-env. */

import { statSync } from 'node:fs'
import { join } from 'node:path'
import type { Clock } from '../core/clock.ts'
import { ChangeQueue } from './change-queue.ts'
import { OutsideWatcher } from './outside-watcher.ts'
import { type WatchFolder, watchPlain } from './tree-watcher.ts'

/** Milliseconds between the first change and the call. */
const DEBOUNCE_MS = 25
/** Milliseconds between two looks where changes cannot be watched. */
const POLL_MS = 1000

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

/** @returns a function that ends the watch */
export function watchEnvFiles({
  clock,
  folder,
  names,
  onChange,
  watchFolder = watchPlain,
}: EnvWatchOptions): () => void {
  const stamps = new Map(names.map(name => [join(folder, name), stampOf(join(folder, name))]))
  const changes = new ChangeQueue({ clock, delayMs: DEBOUNCE_MS, isHalfSaved: () => false, tell: () => onChange() })
  const watcher = new OutsideWatcher({
    clock,
    everyMs: POLL_MS,
    isCovered: () => false,
    isChanged: file => {
      const stamp = stampOf(file)
      const isNew = stamps.get(file) !== stamp
      stamps.set(file, stamp)
      return isNew
    },
    watchFolder,
    mark: file => changes.add(file),
    // From then on the files are looked at; the watch of the tree tells of the same limit.
    onLimit: () => {},
  })
  watcher.follow(new Map([[folder, new Set(stamps.keys())]]))
  return () => {
    watcher.close()
    changes.close()
  }
}

/** Empty for a file that is not there. */
function stampOf(file: string): string {
  const stats = statSync(file, { throwIfNoEntry: false })
  return stats === undefined ? '' : `${stats.size}|${stats.mtimeMs}`
}
