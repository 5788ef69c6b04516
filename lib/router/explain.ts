/** Which file answers a request, and by which rule every other claim on its path lost. Owner: §3, page router/route-table. */

import type { Claim, ClaimSource } from '../core/catalog.ts'
import { ERROR_STATUS, type ErrorCode } from '../core/errors.ts'
import type { Method, RuntimeName } from '../core/identity.ts'
import { decideClaim, FORCED_STRENGTH } from '../core/transitions.ts'
import { normalizePath } from './radix-tree.ts'
import type { RouteRefusal, RouteTable } from './route-table.ts'
import {
  isVersioned,
  matchesHost,
  parseHost,
  type RouteEntry,
  type RouteMatch,
  type RouteParams,
  type Settlement,
  standingOf,
  strengthOf,
} from './settle.ts'

const EQUAL_RIGHT = 'another claim has the same priority'

/**
 * taken: a stronger kind of claim has the route. replaced: it was taken from this claim by force or by a manifest.
 * conflict: another claim has equal right. method, host: the claim is not for this request.
 * less-specific: a more specific pattern answers. same-function: another claim of the same function answers.
 */
type LossRule = 'taken' | 'replaced' | 'conflict' | 'method' | 'host' | 'less-specific' | 'same-function'

interface ExplainedClaim {
  runtime: RuntimeName
  name: string
  version: string | null
  /** Handler file below the functions root. */
  file: string
  pattern: string
  methods: readonly Method[]
  hosts: readonly string[]
  source: ClaimSource
  /** File that makes the claim. */
  origin: string
  forced: boolean
}

interface ExplainedLoser extends ExplainedClaim {
  rule: LossRule
  /** The file that has the route instead, or as much right to it; null where there is none. */
  by: string | null
  /** The rule in words. */
  reason: string
}

export interface Explanation {
  method: string
  path: string
  host: string
  winner: (ExplainedClaim & { params: RouteParams }) | null
  /** The response when no function answers, or instead of the winner's response. */
  refusal: { status: number; code: ErrorCode; message: string; allow: string | null } | null
  /** Most specific first. */
  losers: ExplainedLoser[]
}

/**
 * Explains one request without running it.
 * @param path - in any spelling
 */
export function explain(
  table: Pick<RouteTable, 'find' | 'candidates'>,
  method: string,
  path: string,
  host: string,
): Explanation {
  const canonical = normalizePath(path)
  if (typeof canonical !== 'string') {
    const refusal = {
      status: ERROR_STATUS.BAD_REQUEST,
      code: 'BAD_REQUEST',
      message: canonical.problem,
      allow: null,
    } as const
    return { method, path, host, winner: null, refusal, losers: [] }
  }
  const result = table.find(method, canonical, host)
  const wanted = method === 'HEAD' ? 'GET' : method
  const requestHost = parseHost(host)
  const losers: ExplainedLoser[] = []
  let holder: RouteEntry | null = null
  let winner: Explanation['winner'] = null
  for (const leaf of table.candidates(canonical)) {
    // The holder of this leaf; a holder found before stands on a more specific pattern.
    const before = holder
    for (const entry of leaf.entries) {
      const { claim } = entry
      if (!claim.methods.some(name => name === wanted)) {
        losers.push(toLoser(entry, 'method', null, `it handles ${claim.methods.join(', ')} only`))
      } else if (entry.hosts.length > 0 && !matchesHost(entry.hosts, requestHost)) {
        losers.push(toLoser(entry, 'host', null, `it handles ${claim.hosts.join(', ')} only`))
      } else if (leaf.barred.has(entry)) {
        losers.push(toLoserOf(entry, leaf.barred.get(entry)!))
      } else if (before !== null) {
        losers.push(toLoser(entry, 'less-specific', before, `${before.claim.pattern.text} is more specific`))
      } else if (holder !== null) {
        losers.push(toLoserOf(entry, holder))
      } else {
        holder = entry
        if (result.kind === 'match') winner = { ...toExplained(claim), params: result.params }
        else losers.push(toLoser(entry, 'conflict', findRival(leaf, entry, wanted, requestHost), EQUAL_RIGHT))
      }
    }
  }
  return { method, path, host, winner, refusal: toRefusal(result), losers }
}

function toRefusal(result: RouteMatch | RouteRefusal): Explanation['refusal'] {
  if (result.kind === 'refused') {
    const { code, message, allow } = result
    return { status: ERROR_STATUS[code], code, message, allow }
  }
  const { configProblem: message } = result.fn.policy
  return message === null ? null : { status: ERROR_STATUS.CONFIG_BROKEN, code: 'CONFIG_BROKEN', message, allow: null }
}

/** The first of the claims that keep an entry from having its route for this request. */
function findRival(
  { entries }: Settlement,
  entry: RouteEntry,
  method: string,
  host: ReturnType<typeof parseHost>,
): RouteEntry | null {
  const isRival = (other: RouteEntry): boolean =>
    other !== entry &&
    other.claim.methods.some(name => name === method) &&
    (other.hosts.length === 0 || matchesHost(other.hosts, host)) &&
    decideClaim(standingOf(entry), standingOf(other)) === 'conflict'
  return entries.find(isRival) ?? null
}

/** A claim on the same pattern, beside the one that holds it. */
function toLoserOf(entry: RouteEntry, holder: RouteEntry): ExplainedLoser {
  const { source } = holder.claim
  switch (decideClaim(standingOf(holder), standingOf(entry))) {
    case 'conflict':
      return toLoser(entry, 'conflict', holder, EQUAL_RIGHT)
    case 'merge':
      return toLoser(entry, 'same-function', holder, 'another claim of the same function is used')
    default:
      if (strengthOf(holder) >= FORCED_STRENGTH)
        return toLoser(entry, 'replaced', holder, 'a forced claim took the route')
      if (entry.claim.source === 'file' && source === 'manifest') {
        return toLoser(entry, 'replaced', holder, 'fn.routes.json replaces a file route')
      }
      if (isVersioned(entry))
        return toLoser(entry, 'taken', holder, 'a version does not take a route that another function has')
      return toLoser(entry, 'taken', holder, `an unforced config route never takes a route from a ${source}`)
  }
}

function toLoser(entry: RouteEntry, rule: LossRule, by: RouteEntry | null, reason: string): ExplainedLoser {
  return { ...toExplained(entry.claim), rule, by: by === null ? null : by.claim.fn.entryFile, reason }
}

function toExplained(claim: Claim): ExplainedClaim {
  const { runtime, name, version, entryFile } = claim.fn
  const { methods, hosts, source, origin, forced } = claim
  const pattern = claim.pattern.text
  return { runtime, name, version, file: entryFile, pattern, methods, hosts, source, origin, forced }
}
