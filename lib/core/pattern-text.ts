/** One spelling of route patterns, whatever the file they come from. Owner: §2.2, page discovery/layouts. */

import { isReservedPath } from './identity.ts'
import { MAX_PATTERN_CHARS, MAX_PATTERN_SEGMENTS } from './limits.ts'

/** Param names are kept as they are written, case included. */
const PARAM_NAME = '[a-zA-Z0-9_-]+'
const PARAM = new RegExp(`^(?::(${PARAM_NAME})|\\{(${PARAM_NAME})\\}|\\[(${PARAM_NAME})\\])$`)
const CATCH_ALL = new RegExp(`^(?::(${PARAM_NAME})\\*|\\{(${PARAM_NAME})\\*\\}|\\[\\.\\.\\.(${PARAM_NAME})\\])$`)
const OPTIONAL = new RegExp(
  `^(?::(${PARAM_NAME})\\*\\?|\\{(${PARAM_NAME})\\*\\?\\}|\\[\\[\\.\\.\\.(${PARAM_NAME})\\]\\])$`,
)
/** RFC 3986 path characters without those that mark params. */
const STATIC = /^(?:[a-zA-Z0-9._~!$&'()+,;=@-]|%[0-9a-fA-F]{2})+$/
const WILDCARD_PARAM = 'wildcard'

export type PatternText = { ok: true; pattern: string } | { ok: false; problem: string }

/**
 * Brings a listed route into canonical text: `/users/:id`, `/docs/:slug*`, `/docs/:slug*?`, `/hello/*`.
 * Params may be written `:id`, `{id}` or `[id]`, catch-alls also `[...slug]` and `[[...slug]]`. Doubled and trailing
 * slashes are dropped.
 * @param text - as it stands in `invoke.routes` or `fn.routes.json`
 * @returns the pattern, or the rule it breaks
 */
export function canonicalPattern(text: string): PatternText {
  if (!text.startsWith('/')) return { ok: false, problem: 'must start with "/"' }
  if (text.length > MAX_PATTERN_CHARS) {
    return { ok: false, problem: `must have at most ${MAX_PATTERN_CHARS} characters` }
  }
  const parts = text.split('/').filter(part => part !== '')
  return joinSegments(parts.map(canonicalSegment))
}

/** One segment in canonical text, or what is wrong with it. */
export function canonicalSegment(part: string): PatternText {
  if (part === '*') return { ok: true, pattern: part }
  const param = firstGroup(PARAM.exec(part))
  if (param !== null) return { ok: true, pattern: `:${param}` }
  const catchAll = firstGroup(CATCH_ALL.exec(part))
  if (catchAll !== null) return { ok: true, pattern: `:${catchAll}*` }
  const optional = firstGroup(OPTIONAL.exec(part))
  if (optional !== null) return { ok: true, pattern: `:${optional}*?` }
  if (/[:{}[\]*]/.test(part)) return { ok: false, problem: `has a malformed param "${part}"` }
  if (!STATIC.test(part)) return { ok: false, problem: `has characters outside the supported ASCII set in "${part}"` }
  const plain = decode(part)
  if (plain === null) return { ok: false, problem: `has a malformed percent escape in "${part}"` }
  if (plain === '.' || plain === '..') return { ok: false, problem: `must not contain the segment "${part}"` }
  return { ok: true, pattern: part }
}

/** Joins canonical segments into a pattern and checks what no segment shows alone. */
export function joinSegments(segments: readonly PatternText[]): PatternText {
  if (segments.length > MAX_PATTERN_SEGMENTS) {
    return { ok: false, problem: `must have at most ${MAX_PATTERN_SEGMENTS} segments` }
  }
  const names = new Set<string>()
  for (const [index, segment] of segments.entries()) {
    if (!segment.ok) return segment
    const text = segment.pattern
    const name = paramName(text)
    if (name === null) continue
    const takesTheRest = text.endsWith('*') || text.endsWith('*?')
    if (takesTheRest && index < segments.length - 1) {
      return { ok: false, problem: `must have "${text}" as its last segment` }
    }
    if (names.has(name)) return { ok: false, problem: `must not have the param "${name}" twice` }
    names.add(name)
  }
  return { ok: true, pattern: `/${segments.map(segment => (segment.ok ? segment.pattern : '')).join('/')}` }
}

/** True when every path of a canonical pattern lies at or below a reserved prefix. */
export function isReservedPattern(pattern: string): boolean {
  const end = pattern.indexOf('/', 1)
  const first = end < 0 ? pattern.slice(1) : pattern.slice(1, end)
  return isReservedPath(`/${decode(first) ?? first}`)
}

function paramName(segment: string): string | null {
  if (segment === '*') return WILDCARD_PARAM
  return segment.startsWith(':') ? segment.slice(1).replace(/\*\??$/, '') : null
}

function firstGroup(match: RegExpExecArray | null): string | null {
  return match === null ? null : (match[1] ?? match[2] ?? match[3] ?? null)
}

function decode(text: string): string | null {
  if (!text.includes('%')) return text
  try {
    return decodeURIComponent(text)
  } catch {
    return null
  }
}
