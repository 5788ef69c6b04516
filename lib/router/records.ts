/** The route table as the control plane shows it: owners and conflicts by route, in a fixed order. Owner: page router/route-table. */

import type { ClaimSource } from '../core/catalog.ts'
import type { Method, RuntimeName } from '../core/identity.ts'
import type { RouteLeaf, RouteTable } from './route-table.ts'
import { ownedMethods, type RouteEntry } from './settle.ts'

export interface RouteRecord {
  runtime: RuntimeName
  fn_name: string
  name: string
  version: string | null
  methods: Method[]
  source: ClaimSource
  /** 1 file, 2 manifest, 3 config. */
  source_rank: number
  allow_hosts: string[]
  force_url: boolean
  /** File that makes the claim, and the handler that answers. */
  origin: string
  file: string
}

export interface RouteRecords {
  mapped_routes: Record<string, RouteRecord[]>
  mapped_route_conflicts: Record<string, RouteRecord[]>
}

const RANKS: Readonly<Record<ClaimSource, number>> = { file: 1, manifest: 2, config: 3 }

function toRecord(entry: RouteEntry, methods: Method[]): RouteRecord {
  const { claim } = entry
  return {
    runtime: claim.fn.runtime,
    fn_name: claim.fn.name,
    name: claim.fn.name,
    version: claim.fn.version,
    methods,
    source: claim.source,
    source_rank: RANKS[claim.source],
    allow_hosts: [...claim.hosts],
    force_url: claim.forced,
    origin: claim.origin,
    file: claim.fn.entryFile,
  }
}

function toOwners({ settlement }: RouteLeaf): RouteRecord[] {
  return settlement.entries.flatMap(entry => {
    const methods = ownedMethods(settlement, entry)
    return methods.length === 0 ? [] : [toRecord(entry, methods)]
  })
}

/** Empty lists are never shown: a route stands under `mapped_routes` when somebody answers it. */
export function toRecords(table: RouteTable): RouteRecords {
  const mapped: Record<string, RouteRecord[]> = Object.create(null)
  const conflicts: Record<string, RouteRecord[]> = Object.create(null)
  for (const leaf of table.leaves) {
    const owners = toOwners(leaf)
    if (owners.length > 0) mapped[leaf.pattern] = owners
    const disputed = leaf.settlement.conflicts.flatMap(conflict =>
      conflict.entries.map(entry => toRecord(entry, [...conflict.methods])),
    )
    if (disputed.length > 0) conflicts[leaf.pattern] = disputed
  }
  return { mapped_routes: mapped, mapped_route_conflicts: conflicts }
}
