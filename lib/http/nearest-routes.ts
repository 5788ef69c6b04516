/** Routes that a request without one may have meant, for the answer in development. Owner: page http/public. */

import { editDistance } from '../config/findings.ts'
import type { Clock } from '../core/clock.ts'
import { METHODS } from '../core/identity.ts'
import type { Settlement } from '../router/settle.ts'

/** Routes that are named, and routes that are looked at: a large tree must not make a wrong address dear. */
const SHOWN = 3
const COMPARED = 5000
/** Characters of a path and of one segment that are compared. */
const MAX_PATH_CHARS = 256
const MAX_SEGMENT_CHARS = 64
/** What a segment too many or too few counts, in characters. */
const SEGMENT_COST = 2

/** Of the time that passes so much may go into looking: who asks for nonsense again and again must not slow others. */
const SHARE = 1 / 20

type Leaf = Pick<Settlement, 'pattern' | 'methods'>

/** Looks for near routes as long as that takes a small part of the time; one per gateway. */
export class NearestRoutes {
  readonly #clock: Clock
  #restsUntil = Number.NEGATIVE_INFINITY

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** As `nearestRoutes`; empty, too, while the last looks took more than their share. */
  find(path: string, leaves: readonly Leaf[]): string[] {
    const startedAt = this.#clock.monotonic()
    if (startedAt < this.#restsUntil) return []
    const found = nearestRoutes(path, leaves)
    const endedAt = this.#clock.monotonic()
    this.#restsUntil = endedAt + (endedAt - startedAt) / SHARE
    return found
  }
}

/**
 * @param path - canonical, without query
 * @returns such as `GET /users/:id`, nearest first; empty when none is near
 */
export function nearestRoutes(path: string, leaves: readonly Leaf[]): string[] {
  if (path.length > MAX_PATH_CHARS) return []
  const segments = toSegments(path)
  // A third of the letters may be wrong, as for names in configs.
  const limit = Math.max(2, Math.floor(path.length / 3))
  return leaves
    .slice(0, COMPARED)
    .map(({ pattern, methods }) => ({ pattern, methods, cost: compare(segments, toSegments(pattern), limit) }))
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

/** Characters that tell a path from a pattern; Infinity when they have nothing in common, or more than `limit`. */
function compare(path: readonly string[], pattern: readonly string[], limit: number): number {
  if (pattern.length === 0 && path.length > 0) return Number.POSITIVE_INFINITY
  let cost = 0
  for (const [index, wanted] of pattern.entries()) {
    if (wanted === '*' || (wanted.startsWith(':') && /\*\??$/.test(wanted))) return cost
    const given = path[index]
    if (given === undefined) cost += SEGMENT_COST
    else if (!wanted.startsWith(':')) cost += compareSegment(given, wanted)
    if (cost > limit) return Number.POSITIVE_INFINITY
  }
  return cost + Math.max(0, path.length - pattern.length) * SEGMENT_COST
}

function compareSegment(given: string, wanted: string): number {
  const length = Math.max(given.length, wanted.length)
  // As many letters at least must be put in or left out.
  if (Math.abs(given.length - wanted.length) > length / 2) return Number.POSITIVE_INFINITY
  const distance = length > MAX_SEGMENT_CHARS ? length : editDistance(given.toLowerCase(), wanted.toLowerCase())
  return distance > length / 2 ? Number.POSITIVE_INFINITY : distance
}
