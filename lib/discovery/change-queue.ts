/** Many file changes to few calls. Owner: §2.2, page discovery/layouts. */

/** Collects changed paths and tells them together, one call at a time. */
export class ChangeQueue {
  readonly #delayMs: number
  readonly #tell: (paths: ReadonlySet<string>) => void | Promise<void>
  #paths = new Set<string>()
  #timer: NodeJS.Timeout | null = null
  #isTelling = false
  #isClosed = false

  /**
   * @param delayMs - from the first change to the call: later changes do not put it off, or a steady stream would for ever
   * @param tell - must not reject; while its promise is pending, changes wait
   */
  constructor(delayMs: number, tell: (paths: ReadonlySet<string>) => void | Promise<void>) {
    this.#delayMs = delayMs
    this.#tell = tell
  }

  add(path: string): void {
    this.#paths.add(path)
    this.#schedule()
  }

  /** No call follows. */
  close(): void {
    this.#isClosed = true
    if (this.#timer !== null) clearTimeout(this.#timer)
  }

  #schedule(): void {
    if (this.#timer !== null || this.#isTelling || this.#isClosed || this.#paths.size === 0) return
    this.#timer = setTimeout(() => void this.#flush(), this.#delayMs)
  }

  async #flush(): Promise<void> {
    const paths = this.#paths
    this.#timer = null
    this.#paths = new Set()
    this.#isTelling = true
    try {
      await this.#tell(paths)
    } finally {
      this.#isTelling = false
      this.#schedule()
    }
  }
}
