/**
 * How much memory workers may take, where the system's own limit does not fit, and how to tell that it was the cause of an
 * end. Page: runtimes/node.
 *
 * Node reserves address space for compiled code. From version 24 on that is half a gigabyte for each thread, writable from
 * the beginning, so that the system counts all of it: a limit on data that fits one thread stops the next one, and one
 * that lets threads start bounds nothing. There a worker's memory is looked at instead, the more often the less is left.
 */

import { readFileSync } from 'node:fs'
import { listChildren } from './children.mjs'

/** Megabytes of private memory a process needs beside what its function may allocate: code, stacks, reserved heap. */
export const BASE_MEMORY_MB = 256
/** Reserved megabytes above which a limit on data makes no sense. */
const RESERVED_MB = 256
/** How fast a process is taken to fill memory, megabytes a millisecond. */
const FILL_MB_PER_MS = 1
const LOOK_MS = { least: 20, most: 1000 }
/** Milliseconds after which a worker's children are listed again. */
const CHILDREN_MS = 1000
/** Processes of one worker that are looked at: one that starts thousands must not keep the daemon busy. */
const MAX_PROCESSES = 64
/**
 * Last words of a process that finds no memory. Go tells the cause itself only where its own process reads it; what comes
 * here begins with the functions that asked the system in vain.
 */
const OUT_OF_MEMORY =
  /out of memory|cannot allocate memory|std::bad_alloc|memory allocation of \d+ bytes failed|^runtime\.(?:sysMapOS|sysUsedOS|sysAllocOS|\(\*mcache\)\.(?:refill|allocLarge))\(/im
/** How such a process ends: by its own hand. Go exits with 2. */
const OWN_ENDS = new Set(['SIGABRT', 'SIGTRAP', 'SIGILL', 2])
/** Milliseconds between the words and the end. */
const LAST_WORDS_MS = 5000
/** Longest phrase that may be cut in two by a read, bytes. */
const PHRASE_BYTES = 64
/** Kept for the last line, bytes. */
const LINE_BYTES = 300

/** True when a node of this version reserves so much that its data cannot be limited. */
export function isDataReserved() {
  const own = readStatus(process.pid)
  return own !== null && own.dataMb - own.privateMb > RESERVED_MB
}

/** @param {number} memoryMb */
export function toOutOfMemory(memoryMb) {
  return memoryMb > 0 ? `out of memory: limit ${memoryMb} MB, FN_WORKER_MEMORY_MB` : 'out of memory'
}

/** Listens to what a worker writes to standard error, for the cause of its end. */
export class LastWords {
  #rest = ''
  #tail = ''
  #spokenAt = Number.NEGATIVE_INFINITY

  /** The last line, empty for none. */
  get line() {
    const lines = Buffer.from(this.#tail, 'latin1').toString().trim().split('\n')
    return /** @type {string} */ (lines.at(-1)).trim()
  }

  /** @param {Buffer} bytes */
  add(bytes) {
    this.#tail = (this.#tail + bytes.subarray(-LINE_BYTES).toString('latin1')).slice(-LINE_BYTES)
    const text = this.#rest + bytes.toString('latin1')
    if (OUT_OF_MEMORY.test(text)) this.#spokenAt = performance.now()
    this.#rest = text.slice(-PHRASE_BYTES)
  }

  /** @param {string | number | null} end - signal or exit code */
  tellOutOfMemory(end) {
    return end !== null && OWN_ENDS.has(end) && performance.now() - this.#spokenAt < LAST_WORDS_MS
  }
}

/** Looks at the memory of one worker and of the processes it started. */
export class MemoryWatch {
  #pid
  #limitMb
  #onExceeded
  /** @type {number[]} */
  #pids = []
  #listedAt = Number.NEGATIVE_INFINITY
  /** @type {NodeJS.Timeout | null} */
  #timer = null

  /**
   * @param {number} pid - of the process that leads the worker's group
   * @param {number} limitMb - megabytes of private memory
   * @param {() => void} onExceeded - called once
   */
  constructor(pid, limitMb, onExceeded) {
    this.#pid = pid
    this.#limitMb = limitMb
    this.#onExceeded = onExceeded
    this.#plan(LOOK_MS.most)
  }

  stop() {
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#timer = null
  }

  /** @param {number} ms */
  #plan(ms) {
    this.#timer = setTimeout(() => this.#look(), ms)
  }

  #look() {
    const now = performance.now()
    if (now - this.#listedAt > CHILDREN_MS) {
      this.#pids = listTree(this.#pid)
      this.#listedAt = now
    }
    let usedMb = 0
    for (const pid of this.#pids) usedMb += readStatus(pid)?.privateMb ?? 0
    const left = this.#limitMb - usedMb
    if (left < 0) this.#onExceeded()
    else this.#plan(Math.min(LOOK_MS.most, Math.max(LOOK_MS.least, left / FILL_MB_PER_MS)))
  }
}

/** @param {number} root @returns {number[]} a process and all that it started, directly or not */
export function listTree(root) {
  const pids = [root]
  for (const pid of pids) {
    if (pids.length >= MAX_PROCESSES) break
    pids.push(...listChildren(pid).slice(0, MAX_PROCESSES - pids.length))
  }
  return pids
}

/** @param {number} pid @returns {{ dataMb: number, privateMb: number } | null} null when it has ended */
function readStatus(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/status`, 'utf8')
    return { dataMb: toMb(text, 'VmData'), privateMb: toMb(text, 'RssAnon') + toMb(text, 'VmSwap') }
  } catch {
    return null
  }
}

/** @param {string} text @param {string} field */
function toMb(text, field) {
  const at = text.indexOf(`${field}:`)
  return at === -1 ? 0 : Number.parseInt(text.slice(at + field.length + 1, at + 40), 10) / 1024
}
