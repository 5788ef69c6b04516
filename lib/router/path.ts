/**
 * Request paths in one canonical form. Spec: §4.1, page router/radix-tree.
 *
 *   raw        /a//b%2Fc/./%41%25/      as the client sent it, query cut off
 *   canonical  /a/b%2Fc/A%25            every segment decoded once; only `/` and `%` inside a segment stay escaped
 *
 * A canonical path is its own canonical path, so nothing is ever decoded twice, however often it passes through here.
 */

const SLASH = 47
const DOT = 46
const PERCENT = 37

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
  const length = path.length
  if (path.charCodeAt(0) !== SLASH) return false
  if (length > 1 && path.charCodeAt(length - 1) === SLASH) return false
  let previous = 0
  for (let i = 0; i < length; i++) {
    const code = path.charCodeAt(i)
    if (code === PERCENT || code === 0) return false
    // A segment that starts with a dot may be `.` or `..`: rare, so the slow form decides.
    if (previous === SLASH && (code === SLASH || code === DOT)) return false
    previous = code
  }
  return true
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
  const segments: string[] = []
  for (const raw of rawPath.split('/')) {
    if (raw === '') continue
    const text = decodeSegment(raw)
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

/** Decodes the escapes of one raw segment once; null when one is malformed or not UTF-8 (`%zz`, `%c0%ae`). */
export function decodeSegment(raw: string): string | null {
  if (!raw.includes('%')) return raw
  try {
    return decodeURIComponent(raw)
  } catch {
    return null
  }
}

/** A decoded segment in canonical form: only the two characters that would be misread stay escaped. */
export function escapeSegment(text: string): string {
  if (!text.includes('%') && !text.includes('/')) return text
  return text.replaceAll('%', '%25').replaceAll('/', '%2F')
}

/** The text that a piece of a canonical path stands for. */
export function unescapeCanonical(text: string): string {
  if (!text.includes('%')) return text
  return text.replaceAll('%2F', '/').replaceAll('%25', '%')
}
