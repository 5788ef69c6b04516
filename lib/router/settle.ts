/** Who owns a route: the claims on one shape of path, settled per method and host. Owner: §3, page router/route-table. */

import type { Claim, FunctionVersion } from '../core/catalog.ts'
import { EMPTY, exact } from '../core/exact-list.ts'
import { METHODS, type Method } from '../core/identity.ts'
import { isSameList } from '../core/list-change.ts'
import { compareText } from '../core/text.ts'
import { type ClaimStanding, claimStrength, decideClaim } from '../core/transitions.ts'
import { type HostRule, hostsCover, hostsOverlap } from './hosts.ts'

const NONE_BARRED: ReadonlyMap<RouteEntry, RouteEntry> = new Map()
const NO_PARAMS: RouteParams = Object.freeze(Object.create(null))

/** A claim ready to be compared. */
export interface RouteEntry {
  claim: Claim
  hosts: readonly HostRule[]
  /** `FN_FORCE_URL`. */
  forceUrl: boolean
  /** True for `/<name>@<version>`, which every version has without claiming it. */
  isAddress: boolean
}

/** What decides between a claim and others. Made when it is asked for: most routes are wanted by one function. */
export function standingOf({ claim, forceUrl }: RouteEntry): ClaimStanding {
  const { fn, source, forced } = claim
  return { fnKey: fn.key, source, forced, versioned: fn.version !== null, forceUrl }
}

export function strengthOf(entry: RouteEntry): number {
  return claimStrength(standingOf(entry))
}

/** Text params by name, without a prototype: `__proto__` and `constructor` are names like any other. */
export type RouteParams = Readonly<Record<string, string>>

export interface RouteMatch {
  readonly kind: 'match'
  readonly fn: FunctionVersion
  readonly params: RouteParams
  /** As claimed: `/users/:id`, or `/<name>@<version>`. */
  readonly pattern: string
}

/** One owner of a method; `next` holds for other hosts. */
export interface Owner {
  entry: RouteEntry
  /** Claims of equal strength that want some of the same hosts: there the answer is 409. */
  rivals: readonly RouteEntry[]
  /** Null when every host may come. */
  hosts: readonly HostRule[] | null
  next: Owner | null
  /** Names of the params, in path order; null when there are none. */
  names: readonly string[] | null
  /** The answer, complete when there are no params. */
  match: RouteMatch
}

/** A claim that lost methods to a stronger one, wherever their hosts overlap. */
export interface Loss {
  entry: RouteEntry
  winner: RouteEntry
  methods: readonly Method[]
}

/** Two or more claims of equal strength. */
export interface Conflict {
  entries: readonly RouteEntry[]
  methods: readonly Method[]
}

export interface Settlement {
  /** The first pattern, in text order, that claims of this shape have. */
  readonly pattern: string
  /** Bit per index in METHODS: those that have an owner. */
  readonly methods: number
  /** Strongest first; what is equal in strength in text order. */
  readonly entries: readonly RouteEntry[]
  readonly losses: readonly Loss[]
  readonly conflicts: readonly Conflict[]
  /** Listed routes of versions that are somebody's already, and whose. */
  readonly barred: ReadonlyMap<RouteEntry, RouteEntry>
  /** @param index - in METHODS */
  ownerOf(index: number): Owner | null
  /** True when some host reaches the entry by a method. @param index - in METHODS */
  isOwned(entry: RouteEntry, index: number): boolean
}

/** Nearly every route: nobody else wants it. Of ten thousand only the entry is kept: all else follows from it. */
class LoneSettlement implements Settlement {
  readonly methods: number
  readonly #entry: RouteEntry
  /** Made at the first request. */
  #owner: Owner | null = null

  constructor(entry: RouteEntry) {
    this.#entry = entry
    this.methods = toBits(METHODS.map(method => entry.claim.methods.includes(method)))
  }

  get pattern(): string {
    return this.#entry.claim.pattern.text
  }

  get entries(): readonly RouteEntry[] {
    return [this.#entry]
  }

  get losses(): readonly Loss[] {
    return EMPTY
  }

  get conflicts(): readonly Conflict[] {
    return EMPTY
  }

  get barred(): ReadonlyMap<RouteEntry, RouteEntry> {
    return NONE_BARRED
  }

  ownerOf(index: number): Owner | null {
    if ((this.methods & (1 << index)) === 0) return null
    this.#owner ??= makeOwner(this.#entry, EMPTY, null)
    return this.#owner
  }

  isOwned(entry: RouteEntry, index: number): boolean {
    return entry === this.#entry && (this.methods & (1 << index)) !== 0
  }
}

class SharedSettlement implements Settlement {
  readonly pattern: string
  readonly methods: number
  readonly entries: readonly RouteEntry[]
  readonly losses: readonly Loss[]
  readonly conflicts: readonly Conflict[]
  readonly barred: ReadonlyMap<RouteEntry, RouteEntry>
  readonly #owners: readonly (Owner | null)[]

  /** @param owners - by index in METHODS */
  constructor(
    owners: readonly (Owner | null)[],
    { entries, losses, conflicts, barred }: Pick<Settlement, 'entries' | 'losses' | 'conflicts' | 'barred'>,
  ) {
    this.pattern = entries.map(({ claim }) => claim.pattern.text).sort(compareText)[0]!
    this.methods = toBits(owners.map(owner => owner !== null))
    this.entries = entries
    this.losses = losses
    this.conflicts = conflicts
    this.barred = barred
    this.#owners = owners
  }

  ownerOf(index: number): Owner | null {
    return this.#owners[index] ?? null
  }

  /** Not lost whole, not disputed whole. */
  isOwned(entry: RouteEntry, index: number): boolean {
    for (let owner = this.ownerOf(index); owner !== null; owner = owner.next) {
      if (owner.entry === entry) return !owner.rivals.some(rival => hostsCover(rival.hosts, entry.hosts))
    }
    return false
  }
}

function toBits(flags: readonly boolean[]): number {
  return flags.reduce((bits, flag, index) => (flag ? bits | (1 << index) : bits), 0)
}

/** Settles all claims on one shape. The outcome does not depend on their order. */
export function settle(claims: readonly RouteEntry[]): Settlement {
  return claims.length === 1 ? new LoneSettlement(claims[0]!) : settleRivals(claims)
}

function settleRivals(claims: readonly RouteEntry[]): Settlement {
  const entries = [...claims].sort(compareEntries)
  const losses: (Loss & { methods: Method[] })[] = []
  const conflicts: (Conflict & { methods: Method[] })[] = []
  const lone = new Map<RouteEntry, Owner>()
  const barred = findBarred(entries)
  for (const [entry, winner] of barred) losses.push({ entry, winner, methods: [...entry.claim.methods] })
  const owners = METHODS.map(method => {
    const live: RouteEntry[] = []
    for (const entry of entries) {
      if (!entry.claim.methods.includes(method) || barred.has(entry)) continue
      let isCovered = false
      for (const winner of live) {
        if (!hostsOverlap(winner.hosts, entry.hosts)) continue
        const decision = decideClaim(standingOf(winner), standingOf(entry))
        if (decision === 'conflict') continue
        isCovered ||= hostsCover(winner.hosts, entry.hosts)
        if (decision === 'merge') continue
        const loss = losses.find(known => known.entry === entry && known.winner === winner)
        if (loss === undefined) losses.push({ entry, winner, methods: [method] })
        else loss.methods.push(method)
      }
      if (!isCovered) live.push(entry)
    }
    const owner = toOwners(live, lone)
    const disputed = disputedEntries(owner)
    if (disputed.length > 0) {
      const conflict = conflicts.find(known => isSameList(known.entries, disputed))
      if (conflict === undefined) conflicts.push({ entries: disputed, methods: [method] })
      else conflict.methods.push(method)
    }
    return owner
  })
  return new SharedSettlement(owners, { entries, losses: exact(losses), conflicts: exact(conflicts), barred })
}

/** A URL that is there is not free for a version, whatever methods it answers (§9). */
function findBarred(entries: readonly RouteEntry[]): ReadonlyMap<RouteEntry, RouteEntry> {
  if (!entries.some(isVersioned)) return NONE_BARRED
  const barred = new Map<RouteEntry, RouteEntry>()
  const owners = entries.filter(entry => !isVersioned(entry))
  for (const entry of entries) {
    if (!isVersioned(entry) || entry.forceUrl || entry.isAddress) continue
    const owner = owners.find(other => hostsOverlap(other.hosts, entry.hosts))
    if (owner !== undefined) barred.set(entry, owner)
  }
  return barred
}

/** True for the claim of a pinned version. */
export function isVersioned({ claim }: RouteEntry): boolean {
  return claim.fn.version !== null
}

/** Methods of an entry that some host really reaches: not lost whole, not disputed whole. */
export function ownedMethods(settlement: Settlement, entry: RouteEntry): Method[] {
  return METHODS.filter((_, index) => settlement.isOwned(entry, index))
}

/** True when there is such a method. */
export function ownsSome(settlement: Settlement, entry: RouteEntry): boolean {
  return METHODS.some((_, index) => settlement.isOwned(entry, index))
}

/** The chain of owners of one method, strongest first. A lone owner has one owner for all its methods. */
function toOwners(live: readonly RouteEntry[], lone: Map<RouteEntry, Owner>): Owner | null {
  const first = live[0]
  if (first !== undefined && live.length === 1) {
    const known = lone.get(first) ?? makeOwner(first, EMPTY, null)
    lone.set(first, known)
    return known
  }
  return live.reduceRight<Owner | null>((next, entry) => makeOwner(entry, rivalsOf(entry, live), next), null)
}

function makeOwner(entry: RouteEntry, rivals: readonly RouteEntry[], next: Owner | null): Owner {
  const { text, paramNames } = entry.claim.pattern
  const match: RouteMatch = Object.freeze({ kind: 'match', fn: entry.claim.fn, params: NO_PARAMS, pattern: text })
  const hosts = entry.hosts.length === 0 ? null : entry.hosts
  const names = paramNames.length === 0 ? null : paramNames
  return { entry, rivals, hosts, next, names, match }
}

function rivalsOf(entry: RouteEntry, live: readonly RouteEntry[]): RouteEntry[] {
  const rivals = live.filter(
    other => hostsOverlap(other.hosts, entry.hosts) && decideClaim(standingOf(other), standingOf(entry)) === 'conflict',
  )
  // One that wants every host settles the matter; keeping them all would grow with the square of the claims.
  const everywhere = rivals.find(rival => rival.hosts.length === 0)
  return everywhere === undefined ? rivals : [everywhere]
}

function disputedEntries(owner: Owner | null): RouteEntry[] {
  const disputed: RouteEntry[] = []
  for (let at = owner; at !== null; at = at.next) {
    if (at.rivals.length > 0) disputed.push(at.entry)
  }
  return disputed
}

function compareEntries(a: RouteEntry, b: RouteEntry): number {
  return strengthOf(b) - strengthOf(a) || compareText(sortKey(a), sortKey(b))
}

function sortKey({ claim }: RouteEntry): string {
  return [claim.pattern.text, claim.fn.key, claim.origin, claim.source, claim.hosts.join(), claim.methods.join()].join(
    '\0',
  )
}
