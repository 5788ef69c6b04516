/** The path of a call that names its function instead of a URL. Owner: page control/invoke. */

import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import { isReservedPath } from '../core/identity.ts'
import { parsePattern, type Segment, segmentsOf } from '../core/pattern.ts'
import { normalizePath, unescapeCanonical } from './radix-tree.ts'
import type { RouteTable } from './route-table.ts'

interface CallRoute {
  /** Decoded. */
  path: string
  /** As a URL would have it. */
  rawPath: string
  params: Readonly<Record<string, string>>
  /** The route that was matched. */
  pattern: string
}

interface AskedRoute {
  method: string
  /** A path, or a route with params in any spelling; null takes the function's route that has exactly these params. */
  route: string | null
  params: Readonly<Record<string, string>>
  /** For functions with `allow_hosts`; empty when there is none. */
  host: string
}

/**
 * Finds where a call goes, and checks that this is the function's place.
 * @throws GatewayError BAD_REQUEST that names `route` or `params`; what a client would get there else
 */
export function findCallRoute(table: RouteTable, fn: FunctionVersion, asked: AskedRoute): CallRoute {
  const { method, route, params, host } = asked
  const path = /[:{[*]/.test(route ?? ':') ? fillRoute(route ?? findOwn(table, fn, params), params) : route!
  if (route !== null && path === route && Object.keys(params).length > 0)
    throw refuse(`params must be absent: route ${JSON.stringify(route)} has none`)
  const canonical = normalizePath(path)
  if (typeof canonical !== 'string') throw refuse(`route ${JSON.stringify(path)}: ${canonical.problem}`)
  const found = isReservedPath(canonical) ? null : table.find(method, canonical, host)
  if (found === null || (found.kind === 'refused' && found.code === 'NOT_FOUND'))
    throw refuse(`route ${JSON.stringify(path)} does not lead to a function`)
  if (found.kind === 'refused') {
    throw new GatewayError(found.code, found.message, found.allow === null ? {} : { headers: { Allow: found.allow } })
  }
  if (found.fn.key !== fn.key) throw refuse(`route ${JSON.stringify(path)} leads to ${found.fn.key}, not to ${fn.key}`)
  return { path: unescapeCanonical(canonical), rawPath: path, params: found.params, pattern: found.pattern }
}

/** The route of a function that has exactly these params. */
function findOwn(table: RouteTable, fn: FunctionVersion, params: Readonly<Record<string, string>>): string {
  const own = table.leaves
    .flatMap(leaf => leaf.entries)
    .filter(entry => entry.claim.fn.key === fn.key)
    .map(entry => entry.claim.pattern)
  const names = Object.keys(params)
  const fitting = own.find(
    ({ paramNames }) => paramNames.length === names.length && names.every(name => paramNames.includes(name)),
  )
  if (fitting !== undefined) return fitting.text
  const routes = [...new Set(own.map(({ text }) => text))].slice(0, 5).join(', ') || 'none'
  throw refuse(`params must be those of a route of ${fn.key} (${routes}), got ${names.join(', ') || 'none'}`)
}

/**
 * A route with values in the place of its params.
 * @returns a path, percent-encoded, that a client could have asked for
 * @throws GatewayError BAD_REQUEST that names the param
 */
export function fillRoute(route: string, params: Readonly<Record<string, string>>): string {
  const pattern = parsePattern(route)
  if ('problem' in pattern) throw refuse(`route ${JSON.stringify(route)} ${pattern.problem}`)
  const unknown = Object.keys(params).find(name => !pattern.paramNames.includes(name))
  if (unknown !== undefined) throw refuse(`params.${unknown} is not a param of the route ${pattern.text}`)
  return `/${segmentsOf(pattern)
    .flatMap(segment => toTexts(segment, params, pattern.text))
    .join('/')}`
}

function toTexts(
  { kind, text, canonical }: Segment,
  params: Readonly<Record<string, string>>,
  route: string,
): string[] {
  if (kind === 'static') return [canonical]
  const value = params[text] ?? ''
  // A param of several segments keeps their slashes.
  const parts = kind === 'param' ? [value] : value.split('/').filter(part => part !== '')
  if (value === '' || parts.length === 0) {
    if (kind === 'optional-catch-all') return []
    throw refuse(`params.${text} is missing: the route is ${route}`)
  }
  return parts.map(part => encodeSegment(part, text))
}

/** Dots alone would lead to another path, and half a character has no escape: no URL can have them there. */
function encodeSegment(part: string, name: string): string {
  if (part === '.' || part === '..' || /\p{Surrogate}|\0/u.test(part))
    throw refuse(`params.${name} must be text that a segment of a path can hold, and not . or ..`)
  return encodeURIComponent(part)
}

function refuse(message: string): GatewayError {
  return new GatewayError('BAD_REQUEST', message)
}
