/**
 * Request paths in one canonical form. Spec: §4.1, page router/radix-tree.
 *
 *   raw        /a//b%2Fc/./%41%25/      as the client sent it, query cut off
 *   canonical  /a/b%2Fc/A%25            every segment decoded once; only `/` and `%` inside a segment stay escaped
 *
 * A canonical path is its own canonical path, so nothing is ever decoded twice, however often it passes through here.
 */

import { decodePercent } from '../core/http-text.ts'
import { escapeSegment } from '../core/pattern.ts'

const SLASH = 47
const DOT = 46

/** Why a path is answered 400. */
export interface PathProblem {
  problem: string
}

const NOT_ABSOLUTE: PathProblem = Object.freeze({ problem: 'path must start with a slash' })
const MALFORMED: PathProblem = Object.freeze({ problem: 'malformed percent escape in path' })
const NUL: PathProblem = Object.freeze({ problem: 'NUL in path' })
const LEAVES_ROOT: PathProblem = Object.freeze({ problem: 'path leaves the root' })

/** True when the path holds nothing to decode, resolve or collapse; then it is canonical as it stands. */
export function isCleanPath(path: string): boolean {
  if (path.charCodeAt(0) !== SLASH) return false
  if (path.length === 1) return true
  return path.indexOf('%') < 0 && path.indexOf('\0') < 0 && hasCleanSegments(path, 1)
}

/**
 * True when no segment from `at` on is empty or starts with a dot. Such a segment may be `.` or `..`, or as harmless as
 * `.well-known`: it is rare, so the slow form decides. Searching slash by slash is quicker than looking at each character.
 */
export function hasCleanSegments(path: string, at: number): boolean {
  const length = path.length
  for (let start = at; start < length; ) {
    const code = path.charCodeAt(start)
    if (code === SLASH || code === DOT) return false
    const slash = path.indexOf('/', start)
    if (slash < 0) return true
    start = slash + 1
  }
  return false
}

/**
 * Brings a raw path into canonical form: decodes each segment once, collapses slashes, drops a trailing one, resolves
 * `.` and `..`, also when they arrive as `%2e`. A backslash is data.
 * @param rawPath - the request target without query
 * @returns the same string when it was clean; a problem means 400
 */
export function normalizePath(rawPath: string): string | PathProblem {
  if (isCleanPath(rawPath)) return rawPath
  if (rawPath.charCodeAt(0) !== SLASH) return NOT_ABSOLUTE
  const simple = decodeSimple(rawPath)
  if (simple !== null) return simple
  const segments: string[] = []
  for (const raw of rawPath.split('/')) {
    if (raw === '') continue
    const text = decodePercent(raw)
    if (text === null) return MALFORMED
    if (text.includes('\0')) return NUL
    if (text === '.') continue
    if (text === '..') {
      if (segments.length === 0) return LEAVES_ROOT
      segments.pop()
      continue
    }
    segments.push(escapeSegment(text))
  }
  return `/${segments.join('/')}`
}

/** The common case: escapes of printable ASCII in a path with nothing else to mend. Null when it is another case. */
function decodeSimple(rawPath: string): string | null {
  let percent = rawPath.indexOf('%')
  if (percent < 0 || rawPath.indexOf('\0') >= 0 || !hasCleanSegments(rawPath, 1)) return null
  let path = ''
  let from = 0
  while (percent >= 0) {
    const code = hexDigit(rawPath.charCodeAt(percent + 1)) * 16 + hexDigit(rawPath.charCodeAt(percent + 2))
    const char = SIMPLE[code]
    if (char === undefined) return null
    path += rawPath.slice(from, percent) + char
    from = percent + 3
    percent = rawPath.indexOf('%', from)
  }
  return from === rawPath.length ? path : path + rawPath.slice(from)
}

/** By code: printable ASCII as canonical text. A dot is left out: it may make a dot segment. */
const SIMPLE: readonly (string | undefined)[] = Array.from({ length: 127 }, (_, code) => {
  if (code < 32 || code === DOT) return undefined
  return escapeSegment(String.fromCharCode(code))
})

/** The value of a hexadecimal digit; NaN for anything else. */
function hexDigit(code: number): number {
  if (code >= 48 && code <= 57) return code - 48
  const upper = code & ~32
  return upper >= 65 && upper <= 70 ? upper - 55 : Number.NaN
}

/** The text that a piece of a canonical path stands for. */
export function unescapeCanonical(text: string): string {
  if (!text.includes('%')) return text
  return text.replaceAll('%2F', '/').replaceAll('%25', '%')
}
