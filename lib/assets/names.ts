/**
 * The names at the top of the assets directory: what spares a route's request a look at the disk of its own. Owner: §2.11.
 *
 * A list is good for a moment, and only to say that a name is not there; whoever asks after that moment looks for himself
 * and has a new list made. So it is used under load alone, where it matters.
 */

import { readdir, stat } from 'node:fs/promises'
import type { Clock } from '../core/clock.ts'
import { type FileState, isSameState, toState } from './file.ts'

/** A file changed less than so many milliseconds ago is not kept: its next change may bear the same time. */
export const ASSET_SETTLE_MS = 50
/** Milliseconds for which a list of the names in the assets directory may stand for a look at the disk. */
export const ASSET_LISTING_MS = 50

export class AssetNames {
  readonly #directory: string
  readonly #clock: Clock
  #names: ReadonlySet<string> = new Set()
  /** Of the directory when it was listed; null when it may have changed since without a trace. */
  #state: FileState | null = null
  /** When the last look began, monotonic ms. */
  #seenAt = Number.NEGATIVE_INFINITY
  #isLooking = false

  constructor(directory: string, clock: Clock) {
    this.#directory = directory
    this.#clock = clock
  }

  /** @returns true when nothing of that name lay in the directory a moment ago; false means nothing */
  isAbsent(name: string): boolean {
    const age = this.#clock.monotonic() - this.#seenAt
    // Renewed halfway, so that steady traffic never waits for it.
    if (age > ASSET_LISTING_MS / 2 && !this.#isLooking) void this.#look()
    if (age > ASSET_LISTING_MS) return false
    const slash = name.indexOf('/')
    return !this.#names.has(slash < 0 ? name : name.slice(0, slash))
  }

  async #look(): Promise<void> {
    this.#isLooking = true
    const startedAt = this.#clock.monotonic()
    try {
      const state = toState(await stat(this.#directory))
      if (this.#state === null || !isSameState(state, this.#state)) {
        this.#names = new Set(await readdir(this.#directory))
        // File times are coarse: a name made in the same instant would leave the same time.
        this.#state = this.#clock.wall() - state.ctimeMs < ASSET_SETTLE_MS ? null : state
      }
      this.#seenAt = startedAt
    } catch {
      // Whoever needs the directory meets the error himself.
      this.#state = null
      this.#seenAt = Number.NEGATIVE_INFINITY
    } finally {
      this.#isLooking = false
    }
  }
}
