/** The owners of a route: the claims on one shape of path, settled per method and host. Owner: §3, page router/route-table. */

import type { Claim, FunctionVersion } from '../core/catalog.ts'
import { type Method, METHODS } from '../core/identity.ts'
import { isSameList, getOrMake } from '../core/collections.ts'
import { compareText } from '../core/text.ts'
import { type ClaimStanding, claimStrength, decideClaim } from '../core/transitions.ts'

const NONE: readonly never[] = []
const NONE_BARRED: ReadonlyMap<RouteEntry, RouteEntry> = new Map()
const NO_PARAMS: RouteParams = Object.freeze(Object.create(null))

export interface RouteEntry {
  claim: Claim
  hosts: readonly HostRule[]
  /** `FN_FORCE_URL`. */
  forceUrl: boolean
  /** True for `/<name>@<version>`, which every version has without claiming it. */
  isAddress: boolean
}

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
  methods: Method[]
}

/** Two or more claims of equal strength. */
export interface Conflict {
  entries: readonly RouteEntry[]
  methods: Method[]
}

/** The claims on one shape of path: who has which of its methods, and who lost them. */
export class Settlement {
  /** The first pattern, in text order, that claims of this shape have. */
  readonly pattern: string
  /** Bit per index in METHODS: those that have an owner. */
  readonly methods: number
  /** Strongest first; claims of equal strength in text order. */
  readonly entries: readonly RouteEntry[]
  readonly losses: readonly Loss[]
  readonly conflicts: readonly Conflict[]
  /** Listed routes of versions that another function already has, with its claim. */
  readonly barred: ReadonlyMap<RouteEntry, RouteEntry>
  /** By index in METHODS. */
  readonly owners: readonly (Owner | null)[]

  constructor(
    entries: readonly RouteEntry[],
    owners: readonly (Owner | null)[],
    losses: readonly Loss[],
    conflicts: readonly Conflict[],
    barred: ReadonlyMap<RouteEntry, RouteEntry>,
  ) {
    this.pattern = entries.reduce(
      (least, { claim }) => (compareText(claim.pattern.text, least) < 0 ? claim.pattern.text : least),
      entries[0]!.claim.pattern.text,
    )
    this.methods = owners.reduce((bits, owner, index) => (owner === null ? bits : bits | (1 << index)), 0)
    this.entries = entries
    this.losses = losses
    this.conflicts = conflicts
    this.barred = barred
    this.owners = owners
  }

  /** Methods of an entry that some host reaches: neither lost nor disputed for all of its hosts. */
  ownedMethods(entry: RouteEntry): Method[] {
    return METHODS.filter((_, index) => {
      let owner = this.owners[index] ?? null
      while (owner !== null && owner.entry !== entry) owner = owner.next
      return owner !== null && !owner.rivals.some(rival => hostsCover(rival.hosts, entry.hosts))
    })
  }
}

/** Settles all claims on one shape. The outcome does not depend on their order. */
export function settle(claims: readonly RouteEntry[]): Settlement {
  return claims.length === 1 ? settleLone(claims) : settleRivals([...claims].sort(compareEntries))
}

/** Nearly every route. Without the lists of rivals: in a large table they scatter the routes in memory, which slows each lookup. */
function settleLone(entries: readonly RouteEntry[]): Settlement {
  const entry = entries[0]!
  const owner = makeOwner(entry, NONE, null)
  const owners = METHODS.map(method => (entry.claim.methods.includes(method) ? owner : null))
  return new Settlement([entry], owners, NONE, NONE, NONE_BARRED)
}

/** @param entries - strongest first */
function settleRivals(entries: readonly RouteEntry[]): Settlement {
  const conflicts: Conflict[] = []
  const barred = findBarred(entries)
  const losses: Loss[] = [...barred].map(([entry, winner]) => ({ entry, winner, methods: [...entry.claim.methods] }))
  const lone = new Map<RouteEntry, Owner>()
  const owners = METHODS.map(method => {
    const wanted = entries.filter(entry => entry.claim.methods.includes(method) && !barred.has(entry))
    const owner = toOwners(toContenders(wanted, method, losses), lone)
    const disputed = disputedEntries(owner)
    const conflict = conflicts.find(known => isSameList(known.entries, disputed))
    if (conflict !== undefined) conflict.methods.push(method)
    else if (disputed.length > 0) conflicts.push({ entries: disputed, methods: [method] })
    return owner
  })
  return new Settlement(entries, owners, losses, conflicts, barred)
}

/** Those that have a method for some host, strongest first; adds what the others lost. */
function toContenders(wanted: readonly RouteEntry[], method: Method, losses: Loss[]): RouteEntry[] {
  const live: RouteEntry[] = []
  for (const entry of wanted) {
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
  return live
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

export function isVersioned({ claim }: RouteEntry): boolean {
  return claim.fn.version !== null
}

/** The chain of owners of one method, strongest first. A lone owner has one owner for all its methods. */
function toOwners(live: readonly RouteEntry[], lone: Map<RouteEntry, Owner>): Owner | null {
  const first = live[0]
  if (first !== undefined && live.length === 1) return getOrMake(lone, first, () => makeOwner(first, [], null))
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

// Host rules of a route (`invoke.allow_hosts`).

/** One rule or one request host, taken apart. */
export interface HostRule {
  /** Lower case, no trailing dot; IPv6 in brackets. For `*.suffix` the `.suffix`. */
  name: string
  /** Digits, or empty: any port. */
  port: string
  isSuffix: boolean
}

/**
 * Reads a rule: exact name, `host:port`, `*.suffix` (subdomains only), IPv6 with or without brackets.
 * The same reading serves the `Host` header of a request. Case and one trailing dot do not matter.
 */
export function parseHost(text: string): HostRule {
  let name = text.trim().toLowerCase()
  let port = ''
  const isBareIpv6 = !name.startsWith('[') && name.indexOf(':') !== name.lastIndexOf(':')
  if (isBareIpv6) {
    name = `[${name}]`
  } else {
    const colon = name.lastIndexOf(':')
    if (colon > name.lastIndexOf(']')) {
      port = name.slice(colon + 1)
      name = name.slice(0, colon)
    }
  }
  if (name.endsWith('.')) name = name.slice(0, -1)
  const isSuffix = name.startsWith('*.')
  return { name: isSuffix ? name.slice(1) : name, port, isSuffix }
}

/** True when a request host satisfies one of the rules. A rule with a port wants that port in the `Host` header. */
export function matchesHost(rules: readonly HostRule[], host: HostRule): boolean {
  for (const rule of rules) {
    if (rule.port !== '' && rule.port !== host.port) continue
    if (rule.isSuffix ? isBelow(host.name, rule.name) : rule.name === host.name) return true
  }
  return false
}

/** True when some request host satisfies both lists; an empty list is every host. */
export function hostsOverlap(a: readonly HostRule[], b: readonly HostRule[]): boolean {
  if (a.length === 0 || b.length === 0) return true
  return a.some(x => b.some(y => rulesOverlap(x, y)))
}

/** True when every request host that satisfies `b` satisfies `a`, as far as single rules show it. */
export function hostsCover(a: readonly HostRule[], b: readonly HostRule[]): boolean {
  if (a.length === 0) return true
  return b.length > 0 && b.every(y => a.some(x => ruleCovers(x, y)))
}

function rulesOverlap(x: HostRule, y: HostRule): boolean {
  if (x.port !== '' && y.port !== '' && x.port !== y.port) return false
  if (x.isSuffix && y.isSuffix) return x.name.endsWith(y.name) || y.name.endsWith(x.name)
  if (x.isSuffix) return isBelow(y.name, x.name)
  return y.isSuffix ? isBelow(x.name, y.name) : x.name === y.name
}

function ruleCovers(x: HostRule, y: HostRule): boolean {
  if (x.port !== '' && x.port !== y.port) return false
  if (!x.isSuffix) return !y.isSuffix && x.name === y.name
  return y.isSuffix ? y.name.endsWith(x.name) : isBelow(y.name, x.name)
}

/** True for `api.example.com` below `.example.com`; the suffix itself is not below. */
function isBelow(name: string, suffix: string): boolean {
  return name.length > suffix.length && name.endsWith(suffix)
}
