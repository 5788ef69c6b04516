/** Route patterns: read once from any accepted spelling, carried by claims, walked by the router. Owner: §2.2, page discovery/layouts. */

import { decodePercent } from './http-text.ts'
import { isReservedPath } from './identity.ts'
import { MAX_PATTERN_CHARS, MAX_PATTERN_SEGMENTS } from './limits.ts'

export interface Segment {
  kind: 'static' | 'param' | 'catch-all' | 'optional-catch-all' | 'wildcard'
  /** Static: decoded, then escaped as in a canonical path (`escapeSegment`). Else the param's name. */
  text: string
  /** As in `Pattern.text`: `users`, `:id`, `:slug*`, `:slug*?`, `*`. */
  canonical: string
}

/** Fields only: other processes of a gateway get a copy. */
export interface Pattern {
  /** Canonical text: `/users/:id`, `/docs/:slug*`, `/docs/:slug*?`, `/hello/*`. */
  readonly text: string
  /** Names of the params in path order. */
  readonly paramNames: readonly string[]
  /** Equal for two patterns that match the same paths: the names of params are left out. */
  readonly shape: string
}

/** A broken rule, which continues the sentence "the route ...". */
export interface PatternProblem {
  problem: string
}

/** The param for a trailing `*`. */
const WILDCARD_PARAM = 'wildcard'
const NAME = '([a-zA-Z0-9_-]+)'
/** `:id {id} [id]`, then the same for the two catch-alls. */
const DYNAMIC = [
  { kind: 'param', suffix: '', form: new RegExp(`^(?::${NAME}|\\{${NAME}\\}|\\[${NAME}\\])$`) },
  { kind: 'catch-all', suffix: '*', form: new RegExp(`^(?::${NAME}\\*|\\{${NAME}\\*\\}|\\[\\.\\.\\.${NAME}\\])$`) },
  {
    kind: 'optional-catch-all',
    suffix: '*?',
    form: new RegExp(`^(?::${NAME}\\*\\?|\\{${NAME}\\*\\?\\}|\\[\\[\\.\\.\\.${NAME}\\]\\])$`),
  },
] as const
/** RFC 3986 path characters without those that mark params. */
const STATIC = /^(?:[a-zA-Z0-9._~!$&'()+,;=@-]|%[0-9a-fA-F]{2})+$/
/** Static text without escapes and marks. */
const PLAIN = /^[a-zA-Z0-9_-]+$/
/** Cannot occur in static text, so a shape is never ambiguous. */
const MARK = '\0'

/**
 * Reads a route. Params may be written `:id`, `{id}` or `[id]`, catch-alls (one or more segments) `:slug*` or
 * `[...slug]`, optional ones (zero or more) `:slug*?` or `[[...slug]]`; a trailing `*` takes one or more segments as the
 * param `wildcard`. Doubled and trailing slashes are dropped.
 * @param text - from `invoke.routes`, `fn.routes.json` or file names
 */
export function parsePattern(text: string): Pattern | PatternProblem {
  if (!text.startsWith('/')) return { problem: 'must start with "/"' }
  if (text.length > MAX_PATTERN_CHARS) return { problem: `must have at most ${MAX_PATTERN_CHARS} characters` }
  const parts = toParts(text)
  if (parts.length > MAX_PATTERN_SEGMENTS) return { problem: `must have at most ${MAX_PATTERN_SEGMENTS} segments` }
  const segments: Segment[] = []
  const paramNames: string[] = []
  for (const part of parts) {
    const last = segments.at(-1)
    if (last !== undefined && last.kind !== 'static' && last.kind !== 'param')
      return { problem: `must have "${last.canonical}" as its last segment` }
    const segment = parseSegment(part)
    if ('problem' in segment) return segment
    segments.push(segment)
    if (segment.kind === 'static') continue
    if (paramNames.includes(segment.text)) return { problem: `must not have the param "${segment.text}" twice` }
    paramNames.push(segment.text)
  }
  const shape = `/${segments.map(({ kind, text }) => (kind === 'static' ? text : MARK + kind)).join('/')}`
  const canonical = `/${segments.map(segment => segment.canonical).join('/')}`
  // Usually all three are equal, and ten thousand routes keep one text each.
  return { text: canonical === text ? text : canonical, paramNames, shape: shape === text ? text : shape }
}

/** Parsed each time: segments are needed once a route, and would take 200 bytes for each of ten thousand. */
export function segmentsOf({ text }: Pattern): readonly Segment[] {
  return toParts(text).map(part => parseSegment(part) as Segment)
}

function toParts(text: string): string[] {
  return text.split('/').filter(part => part !== '')
}

/** Reads one segment in any accepted spelling. */
export function parseSegment(part: string): Segment | PatternProblem {
  // Nearly every segment, and each is read twice.
  if (PLAIN.test(part)) return { kind: 'static', text: part, canonical: part }
  if (part === '*') return { kind: 'wildcard', text: WILDCARD_PARAM, canonical: part }
  for (const { kind, suffix, form } of DYNAMIC) {
    const names = form.exec(part)?.slice(1) ?? []
    const name = names.find(group => group !== undefined)
    if (name !== undefined) return { kind, text: name, canonical: `:${name}${suffix}` }
  }
  if (/[:{}[\]*]/.test(part)) return { problem: `has a malformed param "${part}"` }
  if (!STATIC.test(part)) return { problem: `has characters outside the supported ASCII set in "${part}"` }
  const decoded = decodePercent(part)
  if (decoded === null) return { problem: `has a malformed percent escape in "${part}"` }
  if (decoded === '.' || decoded === '..') return { problem: `must not contain the segment "${part}"` }
  if (decoded.includes('\0')) return { problem: `has a NUL character in "${part}"` }
  return { kind: 'static', text: escapeSegment(decoded), canonical: part }
}

/** True when every path of a pattern lies at or below a reserved prefix. */
export function isReservedPattern(pattern: Pattern): boolean {
  const first = segmentsOf(pattern)[0]
  return first?.kind === 'static' && isReservedPath(`/${decodePercent(first.canonical)}`)
}

/** A decoded segment in canonical form: only the two characters that would be misread stay escaped. */
export function escapeSegment(text: string): string {
  return text.replaceAll('%', '%25').replaceAll('/', '%2F')
}
