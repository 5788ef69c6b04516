/** Lost and disputed claims as warnings. Owner: §3, page router/route-table. */

import type { Claim } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import type { Method } from '../core/identity.ts'
import { FORCED_STRENGTH } from '../core/transitions.ts'
import { type Conflict, isVersioned, type Loss, type Settlement, strengthOf } from './settle.ts'

/** What a developer has to know about one route. A manifest or a forced claim that wins was asked to: no warning. */
export function toRouteWarnings({ losses, conflicts }: Settlement): Warning[] {
  return [...losses.filter(isWorthWarning).map(toTakenWarning), ...conflicts.map(toConflictWarning)]
}

/** The kind of file or setting a claim comes from, in words. */
export function describeClaim(claim: Claim): string {
  if (claim.source === 'file') return `the file route ${claim.origin}`
  return `${claim.origin} (function ${claim.fn.key})`
}

function isWorthWarning({ entry, winner }: Loss): boolean {
  if (entry.isAddress || strengthOf(winner) >= FORCED_STRENGTH) return false
  if (!isVersioned(entry) && entry.claim.source !== 'config') return false
  // A `get.*` beside the function of its folder takes GET from it by design.
  return !(entry.claim.implied && entry.claim.fn.fnDir === winner.claim.fn.fnDir)
}

function toTakenWarning({ entry, winner, methods }: Loss): Warning {
  const { claim } = entry
  return {
    code: 'ROUTE_TAKEN',
    path: claim.origin,
    message: `${claim.origin}: ${routeText(methods, claim.pattern.text)} already belongs to ${describeClaim(winner.claim)}; it keeps the route`,
    hint: isVersioned(entry)
      ? `a version does not take a route that another function has: call ${claim.fn.name}@${claim.fn.version}, or set FN_FORCE_URL=1`
      : `set "invoke": { "force-url": true } in ${claim.origin} to take the route, or give one of the two another route`,
  }
}

function toConflictWarning({ entries, methods }: Conflict): Warning {
  const first = entries[0]!.claim
  const names = entries.map(entry => describeClaim(entry.claim)).join(', ')
  return {
    code: 'ROUTE_CONFLICT',
    path: first.origin,
    message: `${routeText(methods, first.pattern.text)} is claimed with the same priority by ${names}; requests to it return 409`,
    hint: 'remove or rename all but one, give them different methods or hosts, or force one of them',
  }
}

function routeText(methods: readonly Method[], pattern: string): string {
  return `${methods.join(',')} ${pattern}`
}
