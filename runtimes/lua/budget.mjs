/**
 * The memory that all Lua threads of the process hold together, counted where each of them sees it. The limit of one
 * thread would allow as many times that much as there are threads. Owner: page runtime/lua-runtime.
 *
 *   shared: [ KiB of all threads, threads, KiB they may hold ]   own: [ calls begun, KiB of this thread ]
 *
 * The gateway counts the threads, and subtracts what one held that has ended: a thread can be ended anywhere and cannot do it.
 */

const TOTAL = 0
const THREADS = 1
const LIMIT = 2
const OWN_KIB = 1

export class Budget {
  #shared
  #own

  /**
   * @param {SharedArrayBuffer} shared
   * @param {Int32Array} own - of this thread, shared with the gateway
   */
  constructor(shared, own) {
    this.#shared = new Int32Array(shared)
    this.#own = own
  }

  get limitMb() {
    return Math.round(/** @type {number} */ (this.#shared[LIMIT]) / 1024)
  }

  /**
   * Says what this thread holds.
   * @param {number} bytes
   * @returns {boolean} true when all hold too much together and this one more than its share, which at least one then does
   */
  isExceededWith(bytes) {
    const kib = Math.ceil(bytes / 1024)
    const before = Atomics.exchange(this.#own, OWN_KIB, kib)
    const total = Atomics.add(this.#shared, TOTAL, kib - before) + kib - before
    const limit = /** @type {number} */ (this.#shared[LIMIT])
    return total > limit && kib > limit / Math.max(1, Atomics.load(this.#shared, THREADS))
  }
}
