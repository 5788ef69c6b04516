/**
 * What an upstream path may mean to whoever reads it: this gateway, or a server on the way that unescapes, lower-cases or
 * resolves once more than its neighbour. Spec: §2.10.
 */

import { RESERVED_PREFIXES } from '../core/identity.ts'

/** Times a path is unescaped to see what it may mean to a server behind the upstream. */
const MAX_PATH_DECODINGS = 8

const RESERVED: ReadonlySet<string> = new Set(RESERVED_PREFIXES.map(prefix => prefix.slice(1)))

/**
 * The segments of a path as written and after each round of unescaping, until nothing changes: lower case, backslashes as
 * slashes, without empty and `.` segments, parameters (`;x`) and control characters.
 * @param path - without query
 * @returns null when it is still escaped after MAX_PATH_DECODINGS rounds: nobody means such a path
 */
export function readSpellings(path: string): string[][] | null {
  const spellings: string[][] = []
  let text = path.toLowerCase()
  for (let round = 0; round <= MAX_PATH_DECODINGS; round += 1) {
    spellings.push(toSegments(text))
    const next = text.replace(ESCAPE, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
    if (next === text) return spellings
    text = next.toLowerCase()
  }
  return null
}

/** Escapes of ASCII: the only ones that can hide a slash, a dot or a letter of a reserved word. */
const ESCAPE = /%([0-7][0-9a-f])/g
const PARAMETERS = /[;?#].*$/s
const CONTROL = /[\u0000-\u0020\u007f]/g

function toSegments(text: string): string[] {
  return text
    .split(/[/\\]/)
    .map(segment => segment.replace(PARAMETERS, '').replace(CONTROL, ''))
    .filter(segment => segment !== '' && segment !== '.')
}

/** True when some reading of the path has a `..` segment. */
export function climbs(spellings: readonly string[][]): boolean {
  return spellings.some(segments => segments.includes('..'))
}

/** True when some reading of the path lies at or below a reserved prefix, with `..` resolved or not. */
export function isControlPath(spellings: readonly string[][]): boolean {
  return spellings.some(segments => RESERVED.has(segments[0] ?? '') || RESERVED.has(resolve(segments)[0] ?? ''))
}

/** True when a reserved word is any segment: behind a prefix that a host application or a home takes off. */
export function namesControl(spellings: readonly string[][]): boolean {
  return spellings.some(segments => segments.some(segment => RESERVED.has(segment)))
}

function resolve(segments: readonly string[]): string[] {
  const resolved: string[] = []
  for (const segment of segments) {
    if (segment === '..') resolved.pop()
    else resolved.push(segment)
  }
  return resolved
}
