/**
 * Memory for bodies on their way through the gateway, used again and again. Page: core/byte-pool.
 *
 * A buffer of its own for each body is memory outside the engine's heap that only its collector gives back: every 64 MiB of
 * them start a collection of everything, which takes longer than passing the bodies on.
 *
 *   take ─► [1 user] ─ hold ─► [2 users] ─ free ─► [1] ─ free ─► on its shelf ─► taken again, or given back to the system
 */

import { availableParallelism, totalmem } from 'node:os'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { MessageChannel, type MessagePort } from 'node:worker_threads'
import type { Clock } from './clock.ts'
import { BODY_MEMORY_SHARE, MAX_STREAM_LEADS } from './limits.ts'
import { Semaphore } from './semaphore.ts'

const KIB = 1024
const MIB = 1024 * KIB
/** Bytes of the smallest and the largest slab; each shelf has slabs of twice the bytes of the one before. */
const SMALLEST_BYTES = 16 * KIB
const LARGEST_BYTES = 32 * MIB
/** Bytes that may lie on the shelves. */
const MAX_FREE_BYTES = 64 * MIB
/** What was not needed for so long goes back to the system, milliseconds. */
const TRIM_INTERVAL_MS = 1000

/** One piece of memory. */
interface Slab {
  readonly bytes: Buffer
  readonly shelf: Shelf
  /** Holders of views of it; 0 on the shelf. */
  users: number
}

/** Slabs of one size that nobody uses. */
interface Shelf {
  readonly slabBytes: number
  readonly free: Slab[]
  /** The fewest that lay here since the last trim: so many were not needed. */
  fewest: number
}

/** Bytes that are held for one purpose. What has begun may go beyond the limit; nothing more begins while it is reached. */
export class ByteBudget {
  readonly limit: number
  used = 0

  constructor(limit: number) {
    this.limit = limit
  }

  /** @param own - bytes of the asker: one alone may have more than the limit */
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
  /** Of the streams at most so many may have more under way than their window: memory for slow clients stays bounded. */
  readonly leads = new Semaphore(MAX_STREAM_LEADS)
  readonly #clock: Clock
  readonly #onFree: (bytes: Buffer) => void
  readonly #shelves: Shelf[] = []
  /** Weak: a slab that was lost, as by a connection that broke, is collected as any buffer is. */
  readonly #slabs = new WeakMap<object, Slab>()
  #freeBytes = 0
  #timer: NodeJS.Timeout | null = null

  /**
   * @param onFree - gets memory that is no longer used: a test overwrites it to catch code that still reads it
   * @param budgetBytes - of each budget
   */
  constructor(clock: Clock, onFree: (bytes: Buffer) => void = () => {}, budgetBytes = Number.POSITIVE_INFINITY) {
    this.received = new ByteBudget(budgetBytes)
    this.unread = new ByteBudget(budgetBytes)
    this.#clock = clock
    this.#onFree = onFree
    for (let slabBytes = SMALLEST_BYTES; slabBytes <= LARGEST_BYTES; slabBytes *= 2)
      this.#shelves.push({ slabBytes, free: [], fewest: 0 })
  }

  /** Bytes that lie unused. */
  get freeBytes(): number {
    return this.#freeBytes
  }

  /** So many bytes, of any content, for one user. More than the largest slab has are plain memory. */
  take(bytes: number): Buffer {
    // 16 KiB are 2^14: the shelf of what needs no more than that is the first one.
    const shelf = this.#shelves[Math.max(0, 18 - Math.clz32(bytes - 1))]
    if (shelf === undefined) return Buffer.allocUnsafeSlow(bytes)
    const slab = this.#unshelve(shelf) ?? this.#make(shelf)
    slab.users = 1
    return slab.bytes.subarray(0, bytes)
  }

  /** One user more of the memory that `view` lies in. @returns false for memory of somebody else, which may change after this call */
  hold(view: Buffer): boolean {
    const slab = this.#slabs.get(view.buffer)
    if (slab === undefined) return false
    slab.users += 1
    return true
  }

  /** The same bytes for as long as the caller wants, until it frees them: held where they lie in the pool, else copied. */
  keep(view: Buffer): Buffer {
    if (this.hold(view)) return view
    const copy = this.take(view.length)
    view.copy(copy)
    return copy
  }

  /** One user less of the memory that `view` lies in; nothing for memory of somebody else. */
  free(view: Buffer): void {
    const slab = this.#slabs.get(view.buffer)
    if (slab === undefined || slab.users === 0) return
    slab.users -= 1
    if (slab.users === 0) this.#shelve(slab)
  }

  #make(shelf: Shelf): Slab {
    const slab = { bytes: Buffer.allocUnsafeSlow(shelf.slabBytes), shelf, users: 0 }
    this.#slabs.set(slab.bytes.buffer, slab)
    return slab
  }

  #unshelve(shelf: Shelf): Slab | undefined {
    const slab = shelf.free.pop()
    if (slab === undefined) return undefined
    this.#freeBytes -= shelf.slabBytes
    if (shelf.free.length < shelf.fewest) shelf.fewest = shelf.free.length
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
    if (this.#timer === null) this.#planTrim()
  }

  #planTrim(): void {
    this.#timer = this.#clock.setTimeout(() => this.#trim(), TRIM_INTERVAL_MS)
    this.#timer.unref?.()
  }

  #trim(): void {
    for (const shelf of this.#shelves) {
      for (const slab of shelf.free.splice(0, shelf.fewest)) {
        this.#freeBytes -= shelf.slabBytes
        giveBack(slab.bytes)
      }
      shelf.fewest = shelf.free.length
    }
    this.#timer = null
    if (this.#freeBytes > 0) this.#planTrim()
  }
}

/** A port that is closed, as is its other end: a message that it is given is gone at once. */
function toNowhere(): MessagePort {
  const { port1 } = new MessageChannel()
  port1.close()
  return port1
}

const NOWHERE = toNowhere()

/**
 * Gives memory back now and not when the engine collects it next: what is sent away is gone with its message. The view must
 * have its memory for itself, and nobody may look into it any more.
 */
export function giveBack({ buffer }: Uint8Array): void {
  NOWHERE.postMessage(null, [buffer as ArrayBuffer])
}

// Bytes in one piece, or in the pieces they came in: joining them would copy them.

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

/** In one piece that is nobody else's. */
export function copyOf(bytes: Bytes): Buffer {
  return Buffer.isBuffer(bytes) ? Buffer.from(bytes) : Buffer.concat(bytes)
}

// Collects what is young and dead after so many bytes of request bodies.
// Node gives each piece of a request's body memory of its own outside the engine's heap. The engine counts it against the
// limit of what is old: every 20 MiB of bodies or so start a collection of everything, which takes tens of milliseconds. The
// pieces are young and mostly dead by then; a collection of the young alone takes one, and gives their memory back.

/** Bytes of bodies between two collections. */
const COLLECT_BYTES = 4 * 1024 * 1024

export class YoungGarbage {
  readonly #find: () => () => void
  #collect: (() => void) | null = null
  #bytes = 0

  /** @param find - finds the collector when it is needed first */
  constructor(find: () => () => void = findCollector) {
    this.#find = find
  }

  /** So many bytes came in buffers of their own. */
  note(bytes: number): void {
    this.#bytes += bytes
    if (this.#bytes < COLLECT_BYTES) return
    this.#bytes = 0
    this.#collect ??= this.#find()
    this.#collect()
  }
}

/** The engine's own collector, which it shows to contexts that are made while a flag is set; nothing where it does not. */
export function findCollector(): () => void {
  setFlagsFromString('--expose-gc')
  const collect: unknown = runInNewContext('globalThis.gc')
  setFlagsFromString('--no-expose-gc')
  return typeof collect === 'function' ? () => collect({ type: 'minor' }) : () => {}
}
