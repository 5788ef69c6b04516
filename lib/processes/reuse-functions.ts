/** A tree from another process, with the objects of the tree before where nothing changed: what is remembered of them stays. Owner: page processes/processes. */

import { isDeepStrictEqual } from 'node:util'
import type { Claim, FunctionVersion } from '../core/catalog.ts'
import type { Discovery } from '../discovery/discover.ts'

export function reuseFunctions(discovery: Discovery, known: ReadonlyMap<string, FunctionVersion>): Discovery {
  const kept = new Map<FunctionVersion, FunctionVersion>()
  for (const fn of discovery.functions) {
    const before = known.get(fn.key)
    if (before !== undefined && isDeepStrictEqual(before, fn)) kept.set(fn, before)
  }
  const keep = (fn: FunctionVersion): FunctionVersion => kept.get(fn) ?? fn
  const functions = discovery.functions.map(keep)
  const claims = discovery.claims.map((claim): Claim => ({ ...claim, fn: keep(claim.fn) }))
  return { ...discovery, functions, claims, byKey: new Map(functions.map(fn => [fn.key, fn])) }
}
