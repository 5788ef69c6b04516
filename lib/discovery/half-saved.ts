/** Files that look half written, which wait a little before they replace what serves. Owner: §2.2, page discovery/layouts. */

import { readFileSync, statSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import { looksCut } from './cut-source.ts'

/** A file with less than this share of its bytes before is much shorter. */
const SHORTER_SHARE = 0.5
/** Larger files are not read to see how they end. */
const MAX_LOOKED_AT_BYTES = 256 * 1024

interface HalfSavedOptions {
  /** What relative paths start from. */
  rootPath: string
  /** Bytes of the file that serves, null when there is none. */
  sizeOf: (path: string) => number | null
}

/**
 * Judges changed files. One that became empty or much shorter, or that ends in the middle, is half saved, until a second
 * look finds it unchanged: then it was meant so.
 */
export class HalfSaved {
  readonly #options: HalfSavedOptions
  /** Size and time of the files that were half saved at the last look. */
  #seen = new Map<string, string>()
  /** Files that look cut and were meant so, or are broken: they are not waited for again. */
  readonly #odd = new Set<string>()

  constructor(options: HalfSavedOptions) {
    this.#options = options
  }

  /** True when one of the files should be looked at again before it is used. */
  look(paths: Iterable<string>): boolean {
    const seen = new Map<string, string>()
    const cut: string[] = []
    let isHalfSaved = false
    for (const path of paths) {
      const look = this.#lookAt(path)
      if (look === null) continue
      const { stamp, isCut } = look
      if (isCut) cut.push(path)
      seen.set(path, stamp)
      if (this.#seen.get(path) !== stamp) isHalfSaved = true
    }
    this.#seen = isHalfSaved ? seen : new Map()
    if (!isHalfSaved) for (const path of cut) this.#odd.add(path)
    return isHalfSaved
  }

  /** A file that looks half saved; null for any other. */
  #lookAt(path: string): { stamp: string; isCut: boolean } | null {
    const fullPath = resolve(this.#options.rootPath, path)
    try {
      const stats = statSync(fullPath)
      if (!stats.isFile()) return null
      const { size, mtimeMs } = stats
      const before = this.#options.sizeOf(path)
      const isShort = (size === 0 && before !== 0) || (before !== null && size < before * SHORTER_SHARE)
      const looksOdd =
        size > 0 && size <= MAX_LOOKED_AT_BYTES && looksCut(basename(path), readFileSync(fullPath, 'utf8'))
      if (!looksOdd) this.#odd.delete(path)
      const isCut = looksOdd && !this.#odd.has(path)
      return isShort || isCut ? { stamp: `${size}|${mtimeMs}`, isCut } : null
    } catch {
      // A file that is gone is whole in its way, and discovery has the warning for one that cannot be read.
      return null
    }
  }
}
