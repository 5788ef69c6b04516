/**
 * Memory for large frames of a worker, used again and again. Page: runtimes/node.
 *
 * New memory of a mebibyte for each call costs a few hundred page faults, and makes the engine collect everything each
 * twenty calls or so, because it counts what lies outside its heap.
 */

const KIB = 1024
/** Most memory that is kept for later frames, bytes. */
const KEPT_BYTES = 4 * KIB * KIB
/** Sizes are whole steps, so that a header of a few bytes more finds the memory of the frame before. */
const STEP_BYTES = 16 * KIB
/** A frame takes no memory that is more times as large as itself. */
const MOST_TIMES = 2
// Captured before user code can patch it.
const { allocUnsafeSlow, from } = Buffer

export class FrameMemory {
  /** Oldest first. @type {ArrayBuffer[]} */
  #free = []
  #freeBytes = 0
  /** What was taken and not given back. Weak: most of it is left to the collector. @type {WeakSet<ArrayBufferLike>} */
  #taken = new WeakSet()

  /** Bytes that lie unused. */
  get freeBytes() {
    return this.#freeBytes
  }

  /** @param {number} bytes @returns {Buffer<ArrayBuffer>} so many, of any content */
  take(bytes) {
    const memory = this.#find(bytes) ?? allocUnsafeSlow(Math.ceil(bytes / STEP_BYTES) * STEP_BYTES).buffer
    this.#taken.add(memory)
    return from(memory, 0, bytes)
  }

  /** A copy of a view that may change. @param {Uint8Array} view */
  copy(view) {
    const copy = this.take(view.length)
    copy.set(view)
    return copy
  }

  /** Nobody looks into it any more. Memory that is not from here is left alone. @param {Uint8Array} view */
  giveBack(view) {
    const buffer = /** @type {ArrayBuffer} */ (view.buffer)
    if (!this.#taken.delete(buffer) || buffer.byteLength > KEPT_BYTES) return
    this.#free.push(buffer)
    this.#freeBytes += buffer.byteLength
    while (this.#freeBytes > KEPT_BYTES) this.#freeBytes -= this.#free.shift()?.byteLength ?? 0
  }

  /** @param {number} bytes @returns {ArrayBuffer | null} */
  #find(bytes) {
    for (let at = this.#free.length - 1; at >= 0; at--) {
      const memory = /** @type {ArrayBuffer} */ (this.#free[at])
      if (memory.byteLength < bytes || memory.byteLength > bytes * MOST_TIMES) continue
      this.#free.splice(at, 1)
      this.#freeBytes -= memory.byteLength
      return memory
    }
    return null
  }
}
