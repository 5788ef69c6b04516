/** Many file changes to few calls. Owner: §2.2, page discovery/layouts. */

import type { Clock } from '../core/clock.ts'

/** Milliseconds of one more wait for a file that looks half saved. */
const SETTLE_MS = 100
/** Waits in a row, after which a file that still changes is told all the same. */
const MAX_SETTLES = 20

interface ChangeQueueOptions {
  clock: Clock
  /** From the first change to the call: later changes do not put it off, or a steady stream would for ever. */
  delayMs: number
  /** True when one of the paths looks half saved: all wait a little longer, so that they are still told together. */
  isHalfSaved: (paths: ReadonlySet<string>) => boolean
  /** Must not reject; while its promise is pending, changes wait. */
  tell: (paths: ReadonlySet<string>) => void | Promise<void>
}

/** Collects changed paths and tells them together, one call at a time. */
export class ChangeQueue {
  readonly #options: ChangeQueueOptions
  #paths = new Set<string>()
  #timer: NodeJS.Timeout | null = null
  #settles = 0
  #isTelling = false
  #isClosed = false

  constructor(options: ChangeQueueOptions) {
    this.#options = options
  }

  add(path: string): void {
    this.#paths.add(path)
    this.#schedule()
  }

  /** No call follows. */
  close(): void {
    this.#isClosed = true
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
  }

  #schedule(): void {
    if (this.#timer !== null || this.#isTelling || this.#isClosed || this.#paths.size === 0) return
    this.#wait(this.#options.delayMs)
  }

  #wait(ms: number): void {
    this.#timer = this.#options.clock.setTimeout(() => this.#end(), ms)
  }

  #end(): void {
    if (this.#settles < MAX_SETTLES && this.#options.isHalfSaved(this.#paths)) {
      this.#settles++
      this.#wait(SETTLE_MS)
      return
    }
    this.#settles = 0
    this.#timer = null
    void this.#flush()
  }

  async #flush(): Promise<void> {
    const paths = this.#paths
    this.#paths = new Set()
    this.#isTelling = true
    try {
      await this.#options.tell(paths)
    } finally {
      this.#isTelling = false
      this.#schedule()
    }
  }
}
