/** The route table as the catalog shows it. Owner: §2.17; rules on page router/route-table. */

import type { Claim, ClaimSource, FunctionVersion } from '../core/catalog.ts'
import { getOrMake } from '../core/collections.ts'
import type { Warning } from '../core/errors.ts'
import type { Method, RuntimeName } from '../core/identity.ts'
import type { RouteTable } from './route-table.ts'

/** One owner of a route, or one side of a conflict. */
interface RouteRecord {
  runtime: RuntimeName
  name: string
  /** Same as `name`. */
  fn_name: string
  version: string | null
  methods: Method[]
  source: ClaimSource
  /** 1 file, 2 manifest, 3 config. */
  source_rank: number
  /** Handler file below the functions root. */
  file: string
  /** File that makes the claim. */
  origin: string
  allow_hosts: string[]
  force_url: boolean
}

/** A side of a conflict names its own spelling of the route: `/users/:id` and `/users/:name` match the same paths. */
interface ConflictRecord extends RouteRecord {
  route: string
}

export interface RouteRecords {
  mapped_routes: Record<string, RouteRecord[]>
  mapped_route_conflicts: Record<string, ConflictRecord[]>
  warnings: readonly Warning[]
}

/** How many records there are. */
export interface RouteCounts {
  routes: number
  conflicts: number
}

const SOURCE_RANK: Readonly<Record<ClaimSource, number>> = { file: 1, manifest: 2, config: 3 }

/** Routes and conflicts in text order; the same table gives the same text. Version addresses are not listed as routes. */
export function toRecords(table: RouteTable): RouteRecords {
  const routes = new Map<string, RouteRecord[]>()
  const conflicts = new Map<string, ConflictRecord[]>()
  for (const leaf of table.leaves) {
    for (const entry of leaf.entries) {
      if (entry.isAddress) continue
      const methods = leaf.ownedMethods(entry)
      if (methods.length > 0) getOrMake(routes, entry.claim.pattern.text, () => []).push(toRecord(entry.claim, methods))
    }
    for (const { entries, methods } of leaf.conflicts) {
      const sides = entries.map(({ claim }) => ({ route: claim.pattern.text, ...toRecord(claim, methods) }))
      getOrMake(conflicts, leaf.pattern, () => []).push(...sides)
    }
  }
  return {
    mapped_routes: toSortedObject(routes),
    mapped_route_conflicts: toSortedObject(conflicts),
    warnings: table.warnings,
  }
}

/** As many as there are keys in the records, which need not be made for it. */
export function countRecords(table: RouteTable): RouteCounts {
  let routes = 0
  let conflicts = 0
  for (const leaf of table.leaves) {
    const owners = leaf.entries.filter(entry => !entry.isAddress && leaf.ownedMethods(entry).length > 0)
    routes += owners.length < 2 ? owners.length : new Set(owners.map(({ claim }) => claim.pattern.text)).size
    if (leaf.conflicts.length > 0) conflicts += 1
  }
  return { routes, conflicts }
}

function toRecord(claim: Claim, methods: readonly Method[]): RouteRecord {
  const { runtime, name, version, entryFile } = claim.fn
  return {
    runtime,
    name,
    fn_name: name,
    version,
    methods: [...methods],
    source: claim.source,
    source_rank: SOURCE_RANK[claim.source],
    file: entryFile,
    origin: claim.origin,
    allow_hosts: [...claim.hosts],
    force_url: claim.forced,
  }
}

/** Keys are routes, which begin with a slash, so none is special to an object. */
function toSortedObject<T>(lists: Map<string, T[]>): Record<string, T[]> {
  return Object.fromEntries([...lists].sort(([a], [b]) => (a < b ? -1 : 1)))
}

/** Owners by pattern for the OpenAPI document, in text order. Version addresses are not among them. */
export function toDocumentedRoutes(
  table: RouteTable,
): { pattern: string; owners: { fn: FunctionVersion; methods: Method[]; pattern: string }[] }[] {
  return table.leaves.flatMap(leaf => {
    const owners = leaf.entries.flatMap(entry => {
      const methods = entry.isAddress ? [] : leaf.ownedMethods(entry)
      return methods.length === 0 ? [] : [{ fn: entry.claim.fn, methods, pattern: entry.claim.pattern.text }]
    })
    return owners.length === 0 ? [] : [{ pattern: leaf.pattern, owners }]
  })
}
