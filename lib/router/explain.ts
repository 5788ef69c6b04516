/** Why a request goes where it goes: for `fngw explain`. Owner: page router/route-table. */

import { GatewayError } from '../core/errors.ts'
import type { Method } from '../core/identity.ts'
import { describeClaim } from './warnings.ts'
import type { RouteLeaf, RouteTable } from './route-table.ts'
import type { RouteEntry } from './settle.ts'

export interface ExplainedClaim {
  file: string
  runtime: string
  name: string
  version: string | null
  pattern: string
  origin: string
}

export interface Explanation {
  winner: (ExplainedClaim & { params: Record<string, string> }) | null
  /** Set when nobody answers. */
  refusal: { status: number; message: string } | null
  /** Claims that match the path and do not answer, with the rule that says why. */
  losers: (ExplainedClaim & { rule: string })[]
}

function toClaim({ claim, pattern }: RouteEntry): ExplainedClaim {
  const { fn, origin } = claim
  return { file: fn.entryFile, runtime: fn.runtime, name: fn.name, version: fn.version, pattern: pattern.text, origin }
}

function whyLost(leaf: RouteLeaf, entry: RouteEntry, method: string, winnerPattern: string | null): string {
  const wanted = method === 'HEAD' ? 'GET' : method
  if (!entry.claim.methods.includes(wanted as Method)) {
    return `method: it allows ${entry.claim.methods.join(', ') || 'none'}`
  }
  const loss = leaf.settlement.losses.find(
    ({ entry: lost, methods }) => lost === entry && methods.includes(wanted as Method),
  )
  if (loss !== undefined) return `taken: ${describeClaim(loss.winner.claim)} has this route`
  const conflict = leaf.settlement.conflicts.find(
    ({ entries, methods }) => entries.includes(entry) && methods.includes(wanted as Method),
  )
  if (conflict !== undefined) {
    const others = conflict.entries.filter(other => other !== entry).map(other => other.claim.fn.entryFile)
    return `conflict: ${others.join(', ')} claims the same route with equal right`
  }
  if (winnerPattern !== null && winnerPattern !== entry.pattern.text)
    return `less specific: ${winnerPattern} comes first`
  return `host: it answers ${entry.claim.hosts.join(', ') || 'every host'} only`
}

/** @param path - path of a request target, without query */
export function explain(table: RouteTable, method: string, path: string, host: string): Explanation {
  const found = table.find(method, path, host)
  const winnerKey = found.kind === 'match' ? `${found.fn.key} ${found.pattern}` : null
  let winner: Explanation['winner'] = null
  const losers: Explanation['losers'] = []
  for (const { leaf, params } of table.candidates(path)) {
    for (const entry of leaf.settlement.entries) {
      const key = `${entry.claim.fn.key} ${entry.pattern.text}`
      if (winner === null && key === winnerKey) winner = { ...toClaim(entry), params: { ...params } }
      else if (key !== winnerKey) {
        losers.push({
          ...toClaim(entry),
          rule: whyLost(leaf, entry, method, found.kind === 'match' ? found.pattern : null),
        })
      }
    }
  }
  const refusal =
    found.kind === 'match' ? null : { status: new GatewayError(found.code, '').status, message: found.message }
  return { winner, refusal, losers }
}
