/** Whether a source text ends in the middle, as a file does while it is being written. Owner: §2.2, page discovery/layouts. */

import { parseJsonText } from '../config/json-text.ts'
import { extensionOf } from './file-name.ts'

interface Lexis {
  /** What begins a comment that ends with its line. */
  line: readonly string[]
  /** Pairs that take everything between them, lines too: comments and raw strings. */
  blocks: readonly (readonly [open: string, close: string])[]
  /** Quotes of strings with backslash escapes; such a string is taken to end with its line. */
  quotes: string
}

const C_BLOCK = ['/*', '*/'] as const
const SCRIPT: Lexis = { line: ['//'], blocks: [C_BLOCK, ['`', '`']], quotes: `'"` }
const LEXIS: ReadonlyMap<string, Lexis> = new Map<string, Lexis>([
  ...['.js', '.ts', '.mjs', '.cjs', '.mts', '.cts'].map(extension => [extension, SCRIPT] as const),
  [
    '.py',
    {
      line: ['#'],
      blocks: [
        ['"""', '"""'],
        ["'''", "'''"],
      ],
      quotes: `'"`,
    },
  ],
  ['.php', { line: ['//', '#'], blocks: [C_BLOCK], quotes: `'"` }],
  [
    '.lua',
    {
      line: ['--'],
      blocks: [
        ['--[[', ']]'],
        ['[[', ']]'],
      ],
      quotes: `'"`,
    },
  ],
  ['.go', { line: ['//'], blocks: [C_BLOCK, ['`', '`']], quotes: `'"` }],
  // An apostrophe begins a lifetime more often than a character.
  ['.rs', { line: ['//'], blocks: [C_BLOCK], quotes: '"' }],
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
    // What stands for a value keeps the operator before it company; a comment does not.
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
