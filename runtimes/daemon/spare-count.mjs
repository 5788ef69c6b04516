/** How many spare workers of a style are worth their memory. Page: runtimes/node. */

/** Milliseconds for which a start counts: after as long without one the additional spares are stopped. */
export const QUIET_MS = 5000
/** Spares beyond those that are always ready. */
const MAX_ADDITIONAL = 2
/** Bytes that must be free for additional spares. */
const MIN_FREE_BYTES = 1024 ** 3

export class SpareCount {
  #base
  #freeBytes
  /** Monotonic ms of the latest starts by style. @type {Map<string, number[]>} */
  #starts = new Map()

  /**
   * @param {number} base - spares of a style that are always ready
   * @param {() => number} [freeBytes] - memory that this process and its children may still use
   */
  constructor(base, freeBytes = () => process.availableMemory()) {
    this.#base = base
    this.#freeBytes = freeBytes
  }

  /** A worker of the style was started. @param {string} style @param {number} now - monotonic ms */
  noteStart(style, now) {
    const latest = this.#starts.get(style) ?? []
    this.#starts.set(style, [...latest.slice(-MAX_ADDITIONAL), now])
  }

  /** One more for each start that followed another within a few seconds. @param {string} style @param {number} now - monotonic ms */
  wanted(style, now) {
    const recent = (this.#starts.get(style) ?? []).filter(at => now - at < QUIET_MS).length
    if (this.#base === 0 || recent < 2 || this.#freeBytes() < MIN_FREE_BYTES) return this.#base
    return this.#base + recent - 1
  }
}
