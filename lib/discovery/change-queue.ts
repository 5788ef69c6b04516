/** Many file changes to few calls. Owner: §2.2, page discovery/layouts. */

import { readFileSync, statSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import { parseJsonText } from '../config/json-text.ts'
import type { Clock } from '../core/clock.ts'
import { extensionOf } from './file-name.ts'

/** Milliseconds of one more wait for a file that looks half saved. */
const SETTLE_MS = 100
/** Waits in a row, after which a file that still changes is reported anyway. */
const MAX_SETTLES = 20

interface ChangeQueueOptions {
  clock: Clock
  /** From the first change to the call: later changes do not put it off, or a steady stream would for ever. */
  delayMs: number
  /** True when one of the paths looks half saved: all wait a little longer, so that they are reported together. */
  isHalfSaved: (paths: ReadonlySet<string>) => boolean
  /** Must not reject; while its promise is pending, changes wait. */
  onChange: (paths: ReadonlySet<string>) => void | Promise<void>
}

/** Collects changed paths and reports them together, one call at a time. */
export class ChangeQueue {
  readonly #options: ChangeQueueOptions
  #paths = new Set<string>()
  #timer: NodeJS.Timeout | null = null
  #settles = 0
  #isBusy = false
  #isClosed = false

  constructor(options: ChangeQueueOptions) {
    this.#options = options
  }

  add(path: string): void {
    this.#paths.add(path)
    this.#schedule()
  }

  /** No call follows. */
  close(): void {
    this.#isClosed = true
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
  }

  #schedule(): void {
    if (this.#timer !== null || this.#isBusy || this.#isClosed || this.#paths.size === 0) return
    this.#wait(this.#options.delayMs)
  }

  #wait(ms: number): void {
    this.#timer = this.#options.clock.setTimeout(() => this.#end(), ms)
  }

  #end(): void {
    if (this.#settles < MAX_SETTLES && this.#options.isHalfSaved(this.#paths)) {
      this.#settles++
      this.#wait(SETTLE_MS)
      return
    }
    this.#settles = 0
    this.#timer = null
    void this.#flush()
  }

  async #flush(): Promise<void> {
    const paths = this.#paths
    this.#paths = new Set()
    this.#isBusy = true
    try {
      await this.#options.onChange(paths)
    } finally {
      this.#isBusy = false
      this.#schedule()
    }
  }
}

/** A file with less than this share of its bytes before is much shorter. */
const SHORTER_SHARE = 0.5
/** Larger files are not read to see how they end. */
const MAX_LOOKED_AT_BYTES = 256 * 1024

interface WriteSettlerOptions {
  /** Base of relative paths. */
  rootPath: string
  /** Bytes of the file that serves, null when there is none. */
  sizeOf: (path: string) => number | null
}

/**
 * Judges changed files. One that became empty or much shorter, or that ends in the middle, is half saved, until a second
 * look finds it unchanged: then it was meant so.
 */
export class WriteSettler {
  readonly #options: WriteSettlerOptions
  /** Size and time of the files that were half saved at the last look. */
  #seen = new Map<string, string>()
  /** Files that look cut and were meant so, or are broken: they are not waited for again. */
  readonly #odd = new Set<string>()

  constructor(options: WriteSettlerOptions) {
    this.#options = options
  }

  /** True when one of the files has to be inspected again before it is used. */
  mustWait(paths: Iterable<string>): boolean {
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

interface Lexis {
  /** Marks that begin a comment up to the end of the line. */
  line: readonly string[]
  /** Pairs that take everything between them, lines too: comments and raw strings. */
  blocks: readonly (readonly [open: string, close: string])[]
  /** Quotes of strings with backslash escapes; such a string is taken to end with its line. */
  quotes: string
}

/** @param blocks - beginning and end of each, one after the other */
function toLexis(line: string, blocks: string, quotes = `'"`): Lexis {
  const marks = blocks.split(' ')
  const pairs = marks.flatMap((open, at) => (at % 2 === 0 ? [[open, marks[at + 1]!] as const] : []))
  return { line: line.split(' '), blocks: pairs, quotes }
}

const SCRIPT = toLexis('//', '/* */ ` `')
const LEXIS: ReadonlyMap<string, Lexis> = new Map([
  ...['.js', '.ts', '.mjs', '.cjs', '.mts', '.cts'].map(extension => [extension, SCRIPT] as const),
  ['.py', toLexis('#', `""" """ ''' '''`)],
  ['.php', toLexis('// #', '/* */')],
  ['.lua', toLexis('--', '--[[ ]] [[ ]]')],
  ['.go', toLexis('//', '/* */ ` `')],
  // An apostrophe begins a lifetime more often than a character.
  ['.rs', toLexis('//', '/* */', '"')],
])

/**
 * True for a text whose brackets, blocks or strings are open at its end, or that ends with an operator. A guess, made in
 * one walk over the text: literals of regular expressions and the like are not understood.
 * @returns false for files of other kinds
 */
export function looksCut(fileName: string, text: string): boolean {
  // A tsconfig.json may hold comments.
  if (fileName.endsWith('.json')) return fileName !== 'tsconfig.json' && !parseJsonText(text).ok
  const extension = extensionOf(fileName)
  const lexis = LEXIS.get(extension)
  if (lexis === undefined) return false
  const code = stripLiterals(text, lexis)
  if (code === null || countOf(code, /[([{]/g) > countOf(code, /[)\]}]/g)) return true
  if (extension === '.lua' && countOf(code, /\b(?:function|do|if|repeat)\b/g) > countOf(code, /\b(?:end|until)\b/g))
    return true
  return /[,:=+*&|^%<([{\\-]\s*$/.test(code)
}

/** The text without comments and with empty strings; null when a comment or string is open at the end. */
function stripLiterals(text: string, { line, blocks, quotes }: Lexis): string | null {
  const begins = new RegExp([...blocks.map(([open]) => open), ...line, ...quotes].map(escapeRegExp).join('|'), 'g')
  let code = ''
  for (let at = 0; ; ) {
    begins.lastIndex = at
    const found = begins.exec(text)
    if (found === null) return code + text.slice(at)
    const [mark] = found
    // A literal counts as the operand of the operator before it; a comment does not.
    const isComment = line.includes(mark) || mark === '/*' || mark === '--[['
    code += text.slice(at, found.index) + (isComment ? ' ' : '_')
    const close = blocks.find(([open]) => open === mark)?.[1]
    if (close !== undefined) {
      const end = text.indexOf(close, begins.lastIndex)
      if (end < 0) return null
      at = end + close.length
    } else at = line.includes(mark) ? endOfLine(text, found.index) : endOfString(text, found.index)
  }
}

function escapeRegExp(text: string): string {
  return text.replace(/[[\]*/]/g, '\\$&')
}

function endOfLine(text: string, at: number): number {
  const end = text.indexOf('\n', at)
  return end < 0 ? text.length : end
}

/** Behind the closing quote, or at the end of the line without one. */
function endOfString(text: string, start: number): number {
  const quote = text.charAt(start)
  for (let at = start + 1; at < text.length; at++) {
    const char = text.charAt(at)
    if (char === '\\') at++
    else if (char === quote) return at + 1
    else if (char === '\n') return at
  }
  return text.length
}

function countOf(text: string, pattern: RegExp): number {
  return text.match(pattern)?.length ?? 0
}
