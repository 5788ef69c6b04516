/**
 * Refusals of routes, each prepared once and sent several at a time: an error made for every one would cost more than the rest of it, and
 * a client that is woken once has several to read. In development they name the routes that may have been meant. Owner: §4.1.
 */

import { editDistance } from '../config/fields.ts'
import type { Clock } from '../core/clock.ts'
import { getOrMake } from '../core/collections.ts'
import { GatewayError, toErrorBody } from '../core/errors.ts'
import { METHODS } from '../core/identity.ts'
import { explain } from '../router/explain.ts'
import type { RouteRefusal, RouteTable } from '../router/route-table.ts'
import type { Settlement } from '../router/settle.ts'
import { DISCARD_BODY_BYTES, type Exchange } from './exchange.ts'
import { type PreparedHead, toPreparedHead } from './respond.ts'

/** Refusals that leave together. */
const REFUSALS_AT_ONCE = 8
/** Claims that a refusal names in development. */
const MAX_CLAIMS = 5

type Routes = Pick<RouteTable, 'find' | 'candidates' | 'leaves'>

interface Refusal {
  readonly error: GatewayError
  readonly head: PreparedHead
  readonly body: Buffer
}

export class Refusals {
  /** There are as many as lists of methods. */
  readonly #prepared = new Map<RouteRefusal, Refusal>()
  /** Null in production. */
  readonly #nearest: NearestRoutes | null
  #due: { exchange: Exchange; refusal: Refusal }[] = []

  /** @param clock - of a gateway that names routes; null for one that does not */
  constructor(clock: Clock | null) {
    this.#nearest = clock === null ? null : new NearestRoutes(clock)
  }

  send(exchange: Exchange, found: RouteRefusal, routes: Routes): void {
    const hint = this.#nearest === null ? null : this.#hintOf(exchange, found, routes, this.#nearest)
    if (hint !== null) {
      exchange.responder.sendError(exchange, toError(found, hint))
      return
    }
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
    // The parser has not reached the end of a short body before the end of the poll phase.
    else if (this.#due.length >= REFUSALS_AT_ONCE && !hasBody) this.#sendDue()
  }

  readonly #sendDue = (): void => {
    const due = this.#due
    this.#due = []
    for (const { exchange, refusal } of due) if (!exchange.ended) answer(exchange, refusal)
  }

  #of(found: RouteRefusal): Refusal {
    return getOrMake(this.#prepared, found, () => {
      const error = toError(found, null)
      const headers = ['Content-Type', 'application/json', ...Object.entries(error.headers ?? {}).flat()]
      return { error, head: toPreparedHead(error.status, headers), body: Buffer.from(toErrorBody(found.message)) }
    })
  }

  /** The routes near a path without one, or the claims of the path, as `fngw explain` shows them; null when there are none. */
  #hintOf({ method, path, host }: Exchange, { code }: RouteRefusal, routes: Routes, nearest: NearestRoutes) {
    if (code === 'NOT_FOUND') {
      const near = nearest.find(path, routes.leaves)
      return near.length === 0 ? null : `nearest routes: ${near.join(', ')}`
    }
    const claims = explain(routes, method, path, host).losers.map(
      ({ methods, pattern, runtime, name, file }) => `${methods.join(',')} ${pattern} is ${runtime}/${name} (${file})`,
    )
    const more = claims.length - MAX_CLAIMS
    const shown = more > 0 ? [...claims.slice(0, MAX_CLAIMS), `${more} more`] : claims
    return shown.length === 0 ? null : `claims of this path: ${shown.join('; ')}`
  }
}

function answer(exchange: Exchange, { error, head, body }: Refusal): void {
  const { req, responder } = exchange
  exchange.error = error
  if (responder.sendPrepared(exchange, head, body)) return
  // The error lets the rest of the body pass and waits for its end.
  if (!req.complete) req.awaitEnd?.()
  responder.sendError(exchange, error)
}

function toError({ code, message, allow }: RouteRefusal, hint: string | null): GatewayError {
  return new GatewayError(code, message, {
    ...(allow !== null && { headers: { Allow: allow } }),
    ...(hint !== null && { detail: { hint } }),
  })
}

/** Routes that are named, and routes that are looked at: a wrong address must not cost much in a large tree. */
const SHOWN = 3
const COMPARED = 5000
/** Characters of a path and of one segment that are compared. */
const MAX_PATH_CHARS = 256
const MAX_SEGMENT_CHARS = 64
/** The cost of a segment too many or too few, in characters. */
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
  const compared = leaves.slice(0, COMPARED).map(leaf => ({ leaf, cost: compare(segments, leaf.pattern, limit) }))
  const near = compared.filter(({ cost }) => cost <= limit).sort((a, b) => a.cost - b.cost)
  return near.slice(0, SHOWN).map(({ leaf: { pattern, methods } }) => {
    const names = METHODS.filter((_, index) => (methods & (1 << index)) !== 0)
    return `${names.join(',')} ${pattern}`
  })
}

function toSegments(path: string): string[] {
  return path.split('/').filter(segment => segment !== '')
}

/** Characters by which a path differs from a pattern; Infinity when they have nothing in common, or more than `limit`. */
function compare(path: readonly string[], text: string, limit: number): number {
  const pattern = toSegments(text)
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
