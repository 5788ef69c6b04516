/** Routes that a request without one may have meant, for the answer in development. Owner: page http/public. */

import { editDistance } from '../config/findings.ts'
import { METHODS } from '../core/identity.ts'
import type { RouteLeaf } from '../router/route-table.ts'

/** Routes that are named, and routes that are looked at: a large tree must not make a wrong address dear. */
const SHOWN = 3
const COMPARED = 5000
/** Characters of a path and of one segment that are compared. */
const MAX_PATH_CHARS = 256
const MAX_SEGMENT_CHARS = 64
/** What a segment too many or too few counts, in characters. */
const SEGMENT_COST = 2

/**
 * @param path - canonical, without query
 * @returns such as `GET /users/:id`, nearest first; empty when none is near
 */
export function nearestRoutes(path: string, leaves: readonly Pick<RouteLeaf, 'pattern' | 'methods'>[]): string[] {
  if (path.length > MAX_PATH_CHARS) return []
  const segments = toSegments(path)
  // A third of the letters may be wrong, as for names in configs.
  const limit = Math.max(2, Math.floor(path.length / 3))
  return leaves
    .slice(0, COMPARED)
    .map(({ pattern, methods }) => ({ pattern, methods, cost: compare(segments, toSegments(pattern)) }))
    .filter(({ cost }) => cost <= limit)
    .sort((a, b) => a.cost - b.cost)
    .slice(0, SHOWN)
    .map(({ pattern, methods }) => `${toMethods(methods)} ${pattern}`)
}

function toSegments(path: string): string[] {
  return path.split('/').filter(segment => segment !== '')
}

function toMethods(bits: number): string {
  return METHODS.filter((_, index) => (bits & (1 << index)) !== 0).join(',')
}

/** Characters that tell a path from a pattern; Infinity when they have nothing in common. */
function compare(path: readonly string[], pattern: readonly string[]): number {
  if (pattern.length === 0 && path.length > 0) return Number.POSITIVE_INFINITY
  let cost = 0
  for (const [index, wanted] of pattern.entries()) {
    if (wanted === '*' || (wanted.startsWith(':') && /\*\??$/.test(wanted))) return cost
    const given = path[index]
    if (given === undefined) cost += SEGMENT_COST
    else if (!wanted.startsWith(':')) cost += compareSegment(given, wanted)
  }
  return cost + Math.max(0, path.length - pattern.length) * SEGMENT_COST
}

function compareSegment(given: string, wanted: string): number {
  const length = Math.max(given.length, wanted.length)
  const distance = length > MAX_SEGMENT_CHARS ? length : editDistance(given.toLowerCase(), wanted.toLowerCase())
  return distance > length / 2 ? Number.POSITIVE_INFINITY : distance
}
