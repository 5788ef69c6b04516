/**
 * Refusals of routes: prepared once, and sent several at a time. An error for each would be made with its stack, and a
 * body would be read before it is thrown away. Owner: §4.1.
 */

import { editDistance } from '../config/fields.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, toErrorBody } from '../core/errors.ts'
import { METHODS } from '../core/identity.ts'
import type { RouteRefusal } from '../router/route-table.ts'
import type { Settlement } from '../router/settle.ts'
import { type PreparedHead, toPreparedHead } from './respond.ts'
import { DISCARD_BODY_BYTES, type Exchange } from './exchange.ts'

/** Different refusals that are remembered; there are as many as lists of methods. */
const KNOWN_REFUSALS = 256
/** Refusals that leave together. */
const REFUSALS_AT_ONCE = 8

interface Refusal {
  readonly error: GatewayError
  readonly head: PreparedHead
  readonly body: Buffer
}

export class Refusals {
  readonly #known = new Map<string, Refusal>()
  #due: { exchange: Exchange; refusal: Refusal }[] = []

  /** Answers at once, or at the end of the poll phase, when a short body has come and was dropped. */
  send(exchange: Exchange, found: RouteRefusal): void {
    const refusal = this.#of(found)
    const { hasBody, declaredLength, req } = exchange
    const isShort = hasBody && declaredLength >= 0 && declaredLength <= DISCARD_BODY_BYTES
    if (hasBody && (!isShort || exchange.expectsContinue || req.leaveBody === undefined)) {
      exchange.responder.sendError(exchange, refusal.error)
      return
    }
    if (hasBody) req.leaveBody!()
    this.#due.push({ exchange, refusal })
    if (this.#due.length === 1) setImmediate(this.#sendDue)
    // The parser has not reached the end of its body yet.
    else if (this.#due.length >= REFUSALS_AT_ONCE && !hasBody) this.#sendDue()
  }

  readonly #sendDue = (): void => {
    const due = this.#due
    this.#due = []
    for (const { exchange, refusal } of due) {
      if (exchange.ended) continue
      const { req, responder } = exchange
      const { error, head, body } = refusal
      exchange.error = error
      if (responder.sendPrepared(exchange, head, body)) continue
      // The error lets the rest of the body pass and waits for its end.
      if (!req.complete) req.awaitEnd?.()
      responder.sendError(exchange, error)
    }
  }

  #of({ code, message, allow }: RouteRefusal): Refusal {
    const key = `${code} ${allow ?? ''} ${message}`
    let refusal = this.#known.get(key)
    if (refusal === undefined) {
      const error = new GatewayError(code, message, allow === null ? {} : { headers: { Allow: allow } })
      const headers = ['Content-Type', 'application/json', ...(allow === null ? [] : ['Allow', allow])]
      refusal = { error, head: toPreparedHead(error.status, headers), body: Buffer.from(toErrorBody(message)) }
      if (this.#known.size >= KNOWN_REFUSALS) this.#known.clear()
      this.#known.set(key, refusal)
    }
    return refusal
  }
}

/** Routes that are named, and routes that are looked at: a wrong address must not cost much in a large tree. */
const SHOWN = 3
const COMPARED = 5000
/** Characters of a path and of one segment that are compared. */
const MAX_PATH_CHARS = 256
const MAX_SEGMENT_CHARS = 64
/** What a segment too many or too few counts, in characters. */
const SEGMENT_COST = 2

/** Share of the time that may go into looking: a client that asks for nonsense again and again must not slow others. */
const SHARE = 1 / 20

type Leaf = Pick<Settlement, 'pattern' | 'methods'>

/** Looks for routes that a request without one may have meant, as long as that takes a small part of the time; one per gateway. */
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

/** Characters by which a path differs from a pattern; Infinity when they have nothing in common, or more than `limit`. */
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
