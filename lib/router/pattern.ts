/** Pattern text to segments, once per claim when the catalog is built. Owner: §4.1, page router/radix-tree. */

import { MAX_PATTERN_CHARS, MAX_PATTERN_SEGMENTS } from '../core/limits.ts'
import { decodeSegment, escapeSegment } from './path.ts'

/** Segment kinds in the order they are tried. */
export const SEGMENT_KINDS = ['static', 'param', 'catch-all', 'optional-catch-all', 'wildcard'] as const
export type SegmentKind = (typeof SEGMENT_KINDS)[number]

/** The param that holds what a trailing `*` matched. */
export const WILDCARD_PARAM = 'wildcard'

export interface Segment {
  kind: SegmentKind
  /** Static: the text in canonical form (path.ts). Else the param's name. */
  text: string
}

export interface Pattern {
  /** As it was claimed, such as `/users/:id`. */
  text: string
  segments: readonly Segment[]
  /** Names of the params in path order. */
  paramNames: readonly string[]
  /** Equal for two patterns that match the same paths: the names of params are left out. */
  shape: string
}

export interface PatternProblem {
  problem: string
}

const PARAM_NAME = /^[a-zA-Z0-9_-]+$/
/** Cannot occur in static text, so a shape is never ambiguous. */
const MARK = '\0'

/**
 * Reads a pattern: `/users/:id`, `/docs/:slug*` (one or more segments), `/docs/:slug*?` (zero or more), `/hello/*`
 * (one or more, as param `wildcard`). The last three end a pattern. Static text may carry percent escapes.
 * @returns the pattern, or what is wrong with it
 */
export function parsePattern(text: string): Pattern | PatternProblem {
  if (!text.startsWith('/')) return { problem: 'a route must start with "/"' }
  if (text.length > MAX_PATTERN_CHARS) return { problem: `a route must have at most ${MAX_PATTERN_CHARS} characters` }
  const parts = text === '/' ? [] : text.slice(1).split('/')
  if (parts.length > MAX_PATTERN_SEGMENTS) {
    return { problem: `a route must have at most ${MAX_PATTERN_SEGMENTS} segments` }
  }
  const segments: Segment[] = []
  const paramNames: string[] = []
  for (const [index, part] of parts.entries()) {
    const segment = parseSegment(part)
    if ('problem' in segment) return segment
    const isLast = index === parts.length - 1
    if (segment.kind !== 'static') {
      if (segment.kind !== 'param' && !isLast) return { problem: `"${part}" may only be the last segment of a route` }
      if (paramNames.includes(segment.text)) return { problem: `param "${segment.text}" occurs twice` }
      paramNames.push(segment.text)
    }
    segments.push(segment)
  }
  return { text, segments, paramNames, shape: segments.map(toShape).join('/') }
}

function parseSegment(part: string): Segment | PatternProblem {
  if (part === '') return { problem: 'a route must not have empty segments' }
  if (part === '*') return { kind: 'wildcard', text: WILDCARD_PARAM }
  if (part.startsWith(':')) {
    const suffix = part.endsWith('*?') ? '*?' : part.endsWith('*') ? '*' : ''
    const name = part.slice(1, part.length - suffix.length)
    if (!PARAM_NAME.test(name)) {
      return { problem: `param name "${name}" must consist of letters, digits, "_" and "-"` }
    }
    return { kind: suffix === '' ? 'param' : suffix === '*' ? 'catch-all' : 'optional-catch-all', text: name }
  }
  const plain = part.search(/[*?#]/)
  if (plain >= 0) {
    const char = part.charAt(plain)
    return { problem: `"${char}" in "${part}" must be written as ${encodeChar(char)}` }
  }
  const decoded = decodeSegment(part)
  if (decoded === null) return { problem: `"${part}" has a malformed percent escape` }
  if (decoded === '.' || decoded === '..') return { problem: `"${part}" is not a segment a request can reach` }
  if (decoded.includes('\0')) return { problem: `"${part}" has a NUL character` }
  return { kind: 'static', text: escapeSegment(decoded) }
}

function encodeChar(char: string): string {
  return `%${char.charCodeAt(0).toString(16).toUpperCase()}`
}

function toShape(segment: Segment): string {
  return segment.kind === 'static' ? segment.text : MARK + segment.kind
}
