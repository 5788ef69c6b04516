/**
 * Looks at a folder that many share: while it is as it was, no name has come to it or gone from it. Owner: §2.11, page assets/static-assets.
 *
 *   ask ─► no look under way ─► one begins ─► all who asked before it began
 *       └► one under way ─────► the next one, which begins when it has ended
 *
 * So whoever asks gets what the disk said after he asked, and one folder never has more than one look under way.
 */

import { type Stats, stat } from 'node:fs'
import { type FileState, toState } from './file.ts'

/**
 * Milliseconds since its last change after which a folder's times tell of every later one: some file systems count in steps of two
 * seconds, and a name that comes in the step of the look would leave the same times.
 */
export const FOLDER_SETTLE_MS = 2000

/**
 * Takes what was seen; null when the folder could not be looked at.
 * @param isSettled - whatever changes in the folder after this look leaves other times
 */
type OnState = (state: FileState | null, isSettled: boolean) => void

/** `fs.stat`, which follows links. */
type Look = (path: string, onStats: (error: Error | null, stats: Stats) => void) => void

export class FolderLook {
  readonly #path: string
  readonly #now: () => number
  readonly #stat: Look
  #waiting: OnState[] = []
  #isLooking = false

  /**
   * @param path - full path of the folder; links are followed
   * @param now - wall clock, ms
   */
  constructor(path: string, now: () => number, look: Look = stat) {
    this.#path = path
    this.#now = now
    this.#stat = look
  }

  /** Never answers before it has returned. */
  ask(onState: OnState): void {
    this.#waiting.push(onState)
    if (!this.#isLooking) this.#look()
  }

  #look(): void {
    this.#isLooking = true
    const asked = this.#waiting
    this.#waiting = []
    const startedAt = this.#now()
    this.#stat(this.#path, (error, stats) => {
      this.#isLooking = false
      if (this.#waiting.length > 0) this.#look()
      const state = error === null ? toState(stats) : null
      const isSettled = state !== null && startedAt - Math.max(state.mtimeMs, state.ctimeMs) >= FOLDER_SETTLE_MS
      for (const onState of asked) onState(state, isSettled)
    })
  }
}

/** True when it is the same folder, and no name came or went. */
export function isSameFolder(a: FileState, b: FileState): boolean {
  return a.mtimeMs === b.mtimeMs && a.ctimeMs === b.ctimeMs && a.ino === b.ino && a.dev === b.dev
}
