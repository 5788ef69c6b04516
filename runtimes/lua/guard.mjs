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
/** Collections after which what is still there counts as used. */
const COLLECTIONS = 2
/** Milliseconds between two times that a call which takes long sends what it has printed. */
const OUTPUT_MS = 20
/** Milliseconds after a look at the memory in which a thread that has run nothing of size since need not look again. */
const REST_MS = 5
/** Smaller allocations are left to the instruction hook. */
const LARGE_BYTES = 4096

/** Ends the Lua code that runs. Thrown as a JavaScript error; the state turns it into a Lua error message. */
export class LimitError extends Error {}

/** Bytes of an allocation for which the engine collects everything first. Nothing touches them, so the system gives no memory for them. */
const PRESSURE_BYTES = 256 * 1024 * 1024

/**
 * The engine's garbage collector, to be called in need. `fngw dev` and `fngw run` show it to scripts by a flag of the process. The flags of a
 * process that embeds the gateway are not ours: there a large allocation, which is given back at once, makes the engine collect, and the
 * young are left to it.
 * @returns {(options?: { type: 'minor' }) => void}
 */
function findCollector() {
  const collect = runInNewContext('globalThis.gc')
  if (typeof collect === 'function') return collect
  const { port1: nowhere } = new MessageChannel()
  nowhere.close()
  return options => {
    if (options?.type === 'minor') return
    try {
      nowhere.postMessage(null, [new ArrayBuffer(PRESSURE_BYTES)])
    } catch {
      // The process may not have so much address space. The engine has collected before it said so.
    }
  }
}

export class Guard {
  /**
   * @param {number} memoryBytes - most the thread may hold
   * @param {import('./budget.mjs').Budget} budget - what all threads may hold together
   * @param {() => void} beforeSlow - sends what waits: work that is about to take long may end with the thread
   */
  constructor(memoryBytes, budget, beforeSlow) {
    this.memoryBytes = memoryBytes
    this.budget = budget
    this.collect = findCollector()
    this.beforeSlow = beforeSlow
    /** Longest string: a copy or two of it still fits. */
    this.maxStringBytes = Math.floor(memoryBytes / 4)
    this.deadline = Number.POSITIVE_INFINITY
    /** Set once the thread must not go on; every later look raises again, so that `pcall` cannot hold it up. */
    this.condemned = ''
    this.bytes = 0
    /** Bytes of large allocations since somebody asked. */
    this.made = 0
    this.items = 0
    /** When the memory was looked at between calls; long ago when a call has looked since. */
    this.lookedAt = Number.NEGATIVE_INFINITY
    /** Sends what the call has printed: one that hangs is ended from outside, and what it printed tells where. */
    this.sendOutput = () => {}
    /** When to do so next; 0 before the first look of a call. */
    this.outputAt = 0
  }

  /** @param {number} deadline - on `performance.now()` */
  begin(deadline) {
    // What was allocated since the last look still counts: many small calls fill the memory as one large one does.
    this.deadline = deadline
    this.outputAt = 0
  }

  /**
   * No call runs. While memory is short a thread that waits keeps no garbage.
   * @param {number} now - on `performance.now()`
   */
  end(now) {
    this.deadline = Number.POSITIVE_INFINITY
    if (now - this.lookedAt < REST_MS) return
    this.lookedAt = now
    if (!this.budget.isExceededWith(this.usedBytes())) return
    this.collect()
    this.budget.isExceededWith(this.usedBytes())
  }

  /** Heap and string bytes of the thread, not yet collected ones included. */
  usedBytes() {
    const { used_heap_size: heap, external_memory: external } = v8.getHeapStatistics()
    return heap + external
  }

  /**
   * Garbage does not count as used memory, but only a collection shows how much of it is garbage.
   * @returns {string} why the thread must end, '' when it may go on
   */
  findShortage() {
    // Strings are freed beside the collection that finds them dead; the next collection waits for that.
    for (let i = 0; i < COLLECTIONS; i++) {
      if (this.#problem() === '') return ''
      this.collect()
    }
    return this.#problem()
  }

  #problem() {
    const used = this.usedBytes()
    const isExceeded = this.budget.isExceededWith(used)
    if (used > this.memoryBytes) return `out of memory: limit ${toMb(this.memoryBytes)} MB, FN_WORKER_MEMORY_MB`
    if (!isExceeded) return ''
    return `out of memory: limit ${this.budget.limitMb} MB for all Lua functions, FN_LUA_MEMORY_MB; this one holds ${toMb(used)} MB`
  }

  /** Looks at clock and memory. */
  poll() {
    const now = performance.now()
    this.lookedAt = Number.NEGATIVE_INFINITY
    if (now >= this.outputAt) {
      if (this.outputAt !== 0) this.sendOutput()
      this.outputAt = now + OUTPUT_MS
    }
    this.beforeSlow()
    this.bytes = 0
    this.items = 0
    if (this.condemned === '') {
      this.condemned = this.findShortage()
      if (this.condemned === '') {
        if (performance.now() <= this.deadline) return
        throw new LimitError('runtime timeout')
      }
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
    this.made += bytes
    this.bytes += bytes
    if (this.bytes > POLL_BYTES) this.poll()
  }

  /** Bytes of large allocations since it was asked last. */
  takeMade() {
    const { made } = this
    this.made = 0
    return made
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

/** @param {number} bytes */
function toMb(bytes) {
  return Math.round(bytes / 2 ** 20)
}
