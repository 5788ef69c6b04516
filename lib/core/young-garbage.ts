/**
 * Collects what is young and dead after so many bytes of request bodies. Owner: page core/byte-pool.
 *
 * Node gives each piece of a request's body memory of its own outside the engine's heap. The engine counts it against the
 * limit of what is old: every 20 MiB of bodies or so start a collection of everything, which takes tens of milliseconds. The
 * pieces are young and mostly dead by then; a collection of the young alone takes one, and gives their memory back.
 */

import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

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
