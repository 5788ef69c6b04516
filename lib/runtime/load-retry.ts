/**
 * A function that cannot be loaded while its files are being saved has done nothing wrong: its calls, none of which has
 * begun, wait a moment instead of failing. Owner: page runtime/worker-set.
 *
 *   load fails ─► files are as they were discovered, or as they were when this worker started ─► the function's failure
 *              └► files differ ─► 100 ms, or until the reload ─► another worker loads them
 */

import type { Clock } from '../core/clock.ts'

/** Milliseconds that a save is given to end. */
const SETTLE_MS = 100
/** Waits of one version of a function; beyond them its files change for ever. */
const MAX_WAITS = 20

interface LoadRetryOptions {
  clock: Clock
  /** What of the function's files on disk is not as it was discovered, as text; null when nothing is. */
  changeOf(): string | null
  /** The wait is over. */
  onDue(): void
}

export class LoadRetry {
  readonly #options: LoadRetryOptions
  #timer: NodeJS.Timeout | null = null
  #waits = 0
  /** What differed at the last look, and when that was. */
  #change: string | null = null
  #lookedAt = 0

  constructor(options: LoadRetryOptions) {
    this.#options = options
  }

  get isWaiting(): boolean {
    return this.#timer !== null
  }

  /**
   * Something could not be loaded or built.
   * @param startedAt - monotonic ms when that began
   * @returns true when it is worth another try, after `onDue`
   */
  wait(startedAt: number): boolean {
    if (this.#timer !== null) return true
    const { clock, changeOf, onDue } = this.#options
    const change = changeOf()
    // Nothing changed between that look and this one: what started in between has loaded just these files.
    const isMeantSo = change === this.#change && startedAt >= this.#lookedAt
    if (change === null || isMeantSo || this.#waits >= MAX_WAITS) return false
    this.#change = change
    this.#lookedAt = clock.monotonic()
    this.#waits++
    this.#timer = clock.setTimeout(() => {
      this.#timer = null
      onDue()
    }, SETTLE_MS)
    return true
  }

  /** `onDue` does not follow. */
  stop(): void {
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    this.#timer = null
  }
}
