/** TypeScript functions compiled in the background, by a separate program. Owner: page runtime/compile-ahead. */

import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, Timer } from '../core/clock.ts'

/** Milliseconds without a reload before it begins: starts, first calls after them and answers after a save come first. */
export const QUIET_MS = 100
/** Functions compiled ahead at most: with more of them few are ever called. */
export const MAX_AHEAD_FUNCTIONS = 1000
/** Functions of one program, and characters of their paths: an argument list has bounds. */
const MAX_FILES = 200
const MAX_PATH_CHARS = 64 * 1024

const TYPESCRIPT = /\.[mc]?ts$/

/** Compiles entry files, full paths. Aborting the signal ends it. */
type Compile = (files: readonly string[], signal: AbortSignal) => Promise<void>

export class CompileAhead {
  readonly #compile: Compile
  /** By full path of the entry file: the signature of the function that was compiled, or is about to be. */
  #known = new Map<string, string>()
  /** Full paths of entry files to compile, in order. */
  readonly #waiting = new Set<string>()
  readonly #abort = new AbortController()
  readonly #timer: Timer
  #running: Promise<void> | null = null

  constructor(clock: Clock, compile: Compile) {
    this.#compile = compile
    this.#timer = new Timer(clock, true)
  }

  /** Takes over a new catalog's functions: those that are new or changed are compiled once it is quiet. */
  retain(functions: ReadonlyMap<string, FunctionVersion>): void {
    const before = this.#known
    this.#known = new Map()
    for (const { runtime, entryPath, signature } of functions.values()) {
      // The last letters decide for most of ten thousand functions.
      if (runtime !== 'node' || !entryPath.endsWith('ts') || !TYPESCRIPT.test(entryPath)) continue
      if (this.#known.size === MAX_AHEAD_FUNCTIONS) break
      if (before.get(entryPath) !== signature) this.#waiting.add(entryPath)
      this.#known.set(entryPath, signature)
    }
    for (const path of this.#waiting) if (!this.#known.has(path)) this.#waiting.delete(path)
    this.#plan()
  }

  /** Resolves when nothing of it runs. */
  async close(): Promise<void> {
    this.#abort.abort()
    this.#waiting.clear()
    this.#timer.clear()
    await this.#running
  }

  #plan(): void {
    if (this.#waiting.size === 0) this.#timer.clear()
    else if (this.#running === null) this.#timer.set(QUIET_MS, () => this.#run())
  }

  #run(): void {
    const next = () => {
      this.#running = null
      this.#plan()
    }
    // The rest is compiled when it is called.
    this.#running = this.#compile(this.#takeFiles(), this.#abort.signal).then(next, next)
  }

  /** As many as one program takes. */
  #takeFiles(): string[] {
    const files: string[] = []
    let chars = 0
    for (const file of this.#waiting) {
      chars += file.length
      if (files.length === MAX_FILES || (chars > MAX_PATH_CHARS && files.length > 0)) break
      this.#waiting.delete(file)
      files.push(file)
    }
    return files
  }
}
