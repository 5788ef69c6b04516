/**
 * Memory of long bodies and strings, which lies outside the engine's heap: the engine would let some 60 MiB of it die in each
 * thread before it looks, and a thread that waits looks never. Page: runtime/lua-runtime.
 *
 *   calls ─ note ─► so many bytes ─ tidy ─► the young are collected ─ a second without the next such time ─► everything is
 */

/** Bytes of bodies and long strings between two collections of the young. */
const YOUNG_BYTES = 4 * 1024 * 1024
/** Milliseconds without so many bytes after which everything is collected. */
const REST_MS = 1000
/** What a collection finds dead is freed beside it; the next one waits for that. */
const COLLECTIONS = 2

export class Garbage {
  #collect
  #setTimer
  #bytes = 0
  #isPlanned = false
  /** The young were collected since the last look. */
  #isUsed = false

  /**
   * @param {(options?: { type: 'minor' }) => void} collect - the engine's collector
   * @param {(look: () => void, ms: number) => unknown} setTimer
   */
  constructor(collect, setTimer) {
    this.#collect = collect
    this.#setTimer = setTimer
  }

  /** So many bytes were made outside the heap. @param {number} bytes */
  note(bytes) {
    this.#bytes += bytes
  }

  /** Between two calls: nothing of the last one is on the stack. */
  tidy() {
    if (this.#bytes < YOUNG_BYTES) return
    this.#bytes = 0
    this.#collect({ type: 'minor' })
    this.#isUsed = true
    if (this.#isPlanned) return
    this.#isPlanned = true
    this.#plan()
  }

  #plan() {
    this.#isUsed = false
    this.#setTimer(() => this.#look(), REST_MS)
  }

  #look() {
    if (this.#isUsed) {
      this.#plan()
      return
    }
    this.#isPlanned = false
    for (let i = 0; i < COLLECTIONS; i++) this.#collect()
  }
}
