/**
 * Memory for bodies on their way through the gateway, used repeatedly. Page: core/byte-pool.
 *
 * A separate buffer for each body is memory outside the V8 heap that only a garbage collection frees: every 64 MiB of
 * them start a full collection, which takes longer than passing the bodies on.
 *
 *   take ─► [1 user] ─ hold ─► [2 users] ─ free ─► [1] ─ free ─► on its shelf ─► taken again, or given back to the system
 */

import { availableParallelism, totalmem } from 'node:os'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { MessageChannel } from 'node:worker_threads'
import { type Clock, Timer } from './clock.ts'
import { BODY_MEMORY_SHARE, MAX_STREAM_LEADS } from './limits.ts'
import { Semaphore } from './semaphore.ts'

const KIB = 1024
const MIB = 1024 * KIB
/** Bytes of the smallest and the largest slab; the slabs of each shelf are twice as large as those of the one before. */
const SMALLEST_BYTES = 16 * KIB
const LARGEST_BYTES = 32 * MIB
/** Bytes on all shelves. */
const MAX_FREE_BYTES = 64 * MIB
/** Milliseconds after which unused memory goes back to the system. */
const TRIM_INTERVAL_MS = 1000

interface Slab {
  readonly bytes: Buffer
  readonly shelf: Shelf
  /** Holders of views of it; 0 on the shelf. */
  users: number
}

/** Unused slabs of one size. */
interface Shelf {
  readonly slabBytes: number
  readonly free: Slab[]
  /** The minimum of free slabs since the last trim: that number was not needed. */
  fewest: number
}

/** Bytes that are held for one purpose. Work that has begun may exceed the limit; no more work begins while it is reached. */
export class ByteBudget {
  readonly limit: number
  used = 0

  constructor(limit: number) {
    this.limit = limit
  }

  /** @param own - bytes of the caller: one alone may have more than the limit */
  isFull(own = 0): boolean {
    return this.used - own >= this.limit
  }
}

/**
 * Bytes of a budget of one process.
 * @param megabytes - of the gateway; null for a share of the memory of its machine or cgroup
 * @param processes - of the gateway
 */
export function toBudgetBytes(megabytes: number | null, processes: number | 'auto'): number {
  const memory = Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY)
  const count = processes === 'auto' ? availableParallelism() : processes
  return Math.floor((megabytes === null ? memory * BODY_MEMORY_SHARE : megabytes * MIB) / count)
}

export class BytePool {
  /** Of request bodies, and of responses that clients have not read. */
  readonly received: ByteBudget
  readonly unread: ByteBudget
  /** Limits the streams with more bytes under way than their window: memory for slow clients stays bounded. */
  readonly leads = new Semaphore(MAX_STREAM_LEADS)
  readonly #timer: Timer
  readonly #onFree: (bytes: Buffer) => void
  readonly #shelves: Shelf[] = []
  /** Weak: a slab that was lost, such as by a broken connection, is collected as any buffer. */
  readonly #slabs = new WeakMap<object, Slab>()
  #freeBytes = 0

  /**
   * @param onFree - gets memory that is no longer used: a test overwrites it to catch code that still reads it
   * @param budgetBytes - of each budget
   */
  constructor(clock: Clock, onFree: (bytes: Buffer) => void = () => {}, budgetBytes = Number.POSITIVE_INFINITY) {
    this.received = new ByteBudget(budgetBytes)
    this.unread = new ByteBudget(budgetBytes)
    this.#timer = new Timer(clock, true)
    this.#onFree = onFree
    for (let slabBytes = SMALLEST_BYTES; slabBytes <= LARGEST_BYTES; slabBytes *= 2)
      this.#shelves.push({ slabBytes, free: [], fewest: 0 })
  }

  /** Bytes on the shelves. */
  get freeBytes(): number {
    return this.#freeBytes
  }

  /** A number of bytes with any content for one user. More than the largest slab has is plain memory. */
  take(bytes: number): Buffer {
    // 16 KiB are 2^14: the first shelf is for all that need no more.
    const shelf = this.#shelves[Math.max(0, 18 - Math.clz32(bytes - 1))]
    if (shelf === undefined) return Buffer.allocUnsafeSlow(bytes)
    const slab = this.#unshelve(shelf)
    slab.users = 1
    return slab.bytes.subarray(0, bytes)
  }

  /** Adds a user to the memory of `view`. @returns false for foreign memory, which may change after this call */
  hold(view: Buffer): boolean {
    const slab = this.#slabs.get(view.buffer)
    if (slab === undefined) return false
    slab.users += 1
    return true
  }

  /** The same bytes until the caller frees them: held in place in the pool, else copied. */
  keep(view: Buffer): Buffer {
    if (this.hold(view)) return view
    const copy = this.take(view.length)
    view.copy(copy)
    return copy
  }

  /** Removes a user from the memory of `view`; does nothing for foreign memory. */
  free(view: Buffer): void {
    const slab = this.#slabs.get(view.buffer)
    if (slab === undefined || slab.users === 0) return
    slab.users -= 1
    if (slab.users === 0) this.#shelve(slab)
  }

  #unshelve(shelf: Shelf): Slab {
    const free = shelf.free.pop()
    if (free !== undefined) {
      this.#freeBytes -= shelf.slabBytes
      if (shelf.free.length < shelf.fewest) shelf.fewest = shelf.free.length
      return free
    }
    const slab = { bytes: Buffer.allocUnsafeSlow(shelf.slabBytes), shelf, users: 0 }
    this.#slabs.set(slab.bytes.buffer, slab)
    return slab
  }

  #shelve(slab: Slab): void {
    const { shelf } = slab
    this.#onFree(slab.bytes)
    if (this.#freeBytes + shelf.slabBytes > MAX_FREE_BYTES) {
      giveBack(slab.bytes)
      return
    }
    shelf.free.push(slab)
    this.#freeBytes += shelf.slabBytes
    if (!this.#timer.isSet) this.#planTrim()
  }

  #planTrim(): void {
    this.#timer.set(TRIM_INTERVAL_MS, () => this.#trim())
  }

  #trim(): void {
    for (const shelf of this.#shelves) {
      for (const slab of shelf.free.splice(0, shelf.fewest)) {
        this.#freeBytes -= shelf.slabBytes
        giveBack(slab.bytes)
      }
      shelf.fewest = shelf.free.length
    }
    if (this.#freeBytes > 0) this.#planTrim()
  }
}

/** A closed port with a closed other end: it drops every message at once. */
const NOWHERE = new MessageChannel().port1
NOWHERE.close()

/**
 * Gives memory back now and not at the next garbage collection: memory that is transferred is freed with its message. The view must
 * have its memory for itself, and must not be read afterwards.
 */
export function giveBack({ buffer }: Uint8Array): void {
  NOWHERE.postMessage(null, [buffer as ArrayBuffer])
}

/** Bytes in one piece, or in the pieces that arrived: joining them would copy them. */
export type Bytes = Buffer | readonly Buffer[]

export function lengthOf(bytes: Bytes): number {
  if (Buffer.isBuffer(bytes)) return bytes.length
  let length = 0
  for (const piece of bytes) length += piece.length
  return length
}

/** In one piece; a copy where there are several. */
export function joined(bytes: Bytes): Buffer {
  if (Buffer.isBuffer(bytes)) return bytes
  return bytes.length === 1 ? bytes[0]! : Buffer.concat(bytes)
}

/** A copy in one piece. */
export function copyOf(bytes: Bytes): Buffer {
  return Buffer.isBuffer(bytes) ? Buffer.from(bytes) : Buffer.concat(bytes)
}

/** Bytes of bodies between two collections. */
const COLLECT_BYTES = 4 * MIB

/** Does nothing in a host application: its heap and the flags of its V8 are not the gateway's. */
let collectYoung: () => void = () => {}

/** For processes that run nothing but a gateway. */
export function enableYoungCollection(): void {
  collectYoung = findCollector()
}

/**
 * Collects young garbage after a number of bytes of request bodies. Node allocates each piece of a request's body outside the V8
 * heap. V8 counts it against the limit of the old generation, so that every 20 MiB of bodies or so start a full collection of tens
 * of milliseconds. The pieces are young and mostly dead by then: a young collection takes one millisecond and frees them.
 */
export class YoungGarbage {
  readonly #collect: () => void
  #bytes = 0

  constructor(collect = () => collectYoung()) {
    this.#collect = collect
  }

  /** Counts bytes that arrived in separate buffers. */
  note(bytes: number): void {
    this.#bytes += bytes
    if (this.#bytes < COLLECT_BYTES) return
    this.#bytes = 0
    this.#collect()
  }
}

/**
 * V8's own garbage collector, which new contexts can see while a flag is set. The flag stays: Lua threads that begin later find
 * the collector too.
 */
export function findCollector(): () => void {
  setFlagsFromString('--expose-gc')
  const collect: unknown = runInNewContext('globalThis.gc')
  return typeof collect === 'function' ? () => collect({ type: 'minor' }) : () => {}
}
