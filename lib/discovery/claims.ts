/**
 * Claims of the three route sources. Owner: §1, page discovery/layouts; who wins is settled by the router.
 *
 *   file      a file's or folder's own path      users/[id].js        GET /users/:id
 *   manifest  fn.routes.json                     "GET /items": "x.py"  GET /items
 *   config    invoke.routes, or /<name> and /<name>/* of a named function
 */

import type { Claim, ClaimSource, FunctionVersion } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { type Method, RESERVED_PREFIXES } from '../core/identity.ts'
import { isReservedPattern, parsePattern } from '../core/pattern.ts'
import { pathWarning } from './disk.ts'

export interface ClaimRequest {
  fn: FunctionVersion
  /** In any accepted spelling. */
  route: string
  methods: readonly Method[]
  source: ClaimSource
  forced: boolean
  /** File that makes the claim, below the root. */
  origin: string
  implied: boolean
}

/** Makes a claim, or the warning why it cannot be one. */
export function toClaim(request: ClaimRequest): Claim | Warning {
  const { fn, route, methods, source, forced, origin, implied } = request
  const pattern = parsePattern(route)
  if ('problem' in pattern) {
    const hint = 'Routes look like /users/:id, /docs/:slug*, /docs/:slug*? or /files/*.'
    return pathWarning(
      'INVALID_ROUTE',
      origin,
      `cannot have the route ${JSON.stringify(route)}: it ${pattern.problem}`,
      hint,
    )
  }
  if (isReservedPattern(pattern)) {
    const reserved = RESERVED_PREFIXES.join(' and ')
    const hint = 'Rename the file or folder, or list another route in invoke.routes of fn.config.json.'
    return pathWarning(
      'RESERVED_PREFIX',
      origin,
      `cannot have the route ${pattern.text}: ${reserved} are reserved`,
      hint,
    )
  }
  return { pattern, methods, hosts: fn.policy.allowHosts, fn, source, forced, origin, implied }
}

export function isWarning(outcome: Claim | Warning): outcome is Warning {
  return 'code' in outcome
}
