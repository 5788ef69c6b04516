/**
 * What holds a Lua call to its time and memory inside the thread. The gateway's own timer terminates a thread that is
 * late; these checks end a call that grows, before the engine's heap limit is near: reaching that one is not always
 * survivable for the process. Owner: page runtime/lua-runtime.
 */

import v8 from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Instructions between two looks at clock and memory; a look takes half a microsecond. */
export const HOOK_INSTRUCTIONS = 1000
/** Bytes of large allocations, and table items made by one library call, between two looks. */
const POLL_BYTES = 4 * 1024 * 1024
const POLL_ITEMS = 4096
/** Collections before memory counts as used. */
const COLLECTIONS = 2
const COLLECTOR_TRIES = 100
/** Milliseconds between two times that a call which takes long sends what it has printed. */
const OUTPUT_MS = 20
/** Smaller allocations are left to the instruction hook. */
const LARGE_BYTES = 4096

/** Ends the Lua code that runs. Thrown as a JavaScript error; the state turns it into a Lua error message. */
export class LimitError extends Error {}

/**
 * The engine's garbage collector, to be called in need. The flag that shows it to scripts is one for the whole process,
 * so it is set for the one moment; a thread that starts at the same time may take it away, then it is tried again.
 * @returns {() => void}
 */
function findCollector() {
  for (let i = 0; i < COLLECTOR_TRIES; i++) {
    v8.setFlagsFromString('--expose-gc')
    const collect = runInNewContext('globalThis.gc')
    v8.setFlagsFromString('--no-expose-gc')
    if (typeof collect === 'function') return collect
  }
  return () => {}
}

export class Guard {
  /**
   * @param {number} memoryBytes - most the thread may hold
   * @param {() => void} beforeSlow - sends what waits: work that is about to take long may end with the thread
   */
  constructor(memoryBytes, beforeSlow) {
    this.memoryBytes = memoryBytes
    this.collect = findCollector()
    this.beforeSlow = beforeSlow
    /** Longest string: a copy or two of it still fits. */
    this.maxStringBytes = Math.floor(memoryBytes / 4)
    this.deadline = Number.POSITIVE_INFINITY
    /** Set once the thread must not go on; every later look raises again, so that `pcall` cannot hold it up. */
    this.condemned = ''
    this.bytes = 0
    this.items = 0
    /** Sends what the call has printed: one that hangs is ended from outside, and what it printed tells where. */
    this.sendOutput = () => {}
    /** When to do so next; 0 before the first look of a call. */
    this.outputAt = 0
  }

  /** @param {number} deadline - on `performance.now()` */
  begin(deadline) {
    this.deadline = deadline
    this.bytes = 0
    this.items = 0
    this.outputAt = 0
  }

  end() {
    this.deadline = Number.POSITIVE_INFINITY
  }

  /** Heap and string bytes of the thread, not yet collected ones included. */
  usedBytes() {
    const { used_heap_size: heap, external_memory: external } = v8.getHeapStatistics()
    return heap + external
  }

  /** What is garbage only does not count, but to know that costs a collection. */
  isFull() {
    // Strings are freed beside the collection that finds them dead; the next collection waits for that.
    for (let i = 0; i < COLLECTIONS; i++) {
      if (this.usedBytes() <= this.memoryBytes) return false
      this.collect()
    }
    return this.usedBytes() > this.memoryBytes
  }

  /** Looks at clock and memory. */
  poll() {
    const now = performance.now()
    if (now >= this.outputAt) {
      if (this.outputAt !== 0) this.sendOutput()
      this.outputAt = now + OUTPUT_MS
    }
    this.beforeSlow()
    this.bytes = 0
    this.items = 0
    if (this.condemned === '') {
      if (this.isFull()) {
        this.condemned = `not enough memory: the function used more than ${Math.round(this.memoryBytes / 2 ** 20)} MB`
      } else if (performance.now() <= this.deadline) return
      else throw new LimitError('runtime timeout')
    }
    throw new LimitError(this.condemned)
  }

  /**
   * Before bytes are allocated.
   * @param {number} bytes
   */
  reserve(bytes) {
    if (bytes < LARGE_BYTES) return
    if (bytes > this.maxStringBytes) {
      throw new LimitError(
        `not enough memory: a string of ${bytes} bytes is longer than the limit of ${this.maxStringBytes}`,
      )
    }
    this.bytes += bytes
    if (this.bytes > POLL_BYTES) this.poll()
  }

  /**
   * Before table items or stack slots are made by something that runs no Lua instruction.
   * @param {number} count
   */
  count(count) {
    this.items += count
    if (this.items > POLL_ITEMS) this.poll()
  }
}
