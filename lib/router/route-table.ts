/**
 * The immutable route table, and the lookup every request makes. Spec: §1, §3, §7, page router/route-table.
 */

import type { Claim, FunctionVersion } from '../core/catalog.ts'
import { compareLists, mergeSorted } from '../core/collections.ts'
import type { ErrorCode, Warning } from '../core/errors.ts'
import { toAllow } from '../core/http-text.ts'
import { isFunctionName, isVersion, type Method, METHODS } from '../core/identity.ts'
import { parsePattern, type Pattern, segmentsOf } from '../core/pattern.ts'
import { compareText } from '../core/text.ts'
import { FORCED_STRENGTH } from '../core/transitions.ts'
import { toVersionPath } from '../core/versions.ts'
import { type Acceptor, RadixTree } from './radix-tree.ts'
import {
  type Conflict,
  type HostRule,
  isVersioned,
  type Loss,
  matchesHost,
  type Owner,
  parseHost,
  type RouteEntry,
  type RouteMatch,
  settle,
  type Settlement,
  strengthOf,
} from './settle.ts'

/** One of a few constants. */
export interface RouteRefusal {
  readonly kind: 'refused'
  readonly code: ErrorCode & ('NOT_FOUND' | 'METHOD_NOT_ALLOWED' | 'ROUTE_CONFLICT' | 'HOST_NOT_ALLOWED')
  readonly message: string
  /** Value of the `Allow` header, with METHOD_NOT_ALLOWED only. */
  readonly allow: string | null
}

export const NOT_FOUND = refusal('NOT_FOUND', 'not found')
const CONFLICT = refusal('ROUTE_CONFLICT', 'ambiguous route')
const WRONG_HOST = refusal('HOST_NOT_ALLOWED', 'host not allowed')
/** By bits of methods. */
const WRONG_METHOD = Array.from({ length: 1 << METHODS.length }, (_, bits) =>
  refusal('METHOD_NOT_ALLOWED', 'method not allowed', toAllow(METHODS.filter((_, i) => (bits & (1 << i)) !== 0))),
)

/**
 * Params inherit nothing, so no name can meet a method of Object. A class, because its instances stay plain objects of
 * the engine; Object.create(null) makes a hash table, which costs a lookup more than all the rest.
 */
class Params {
  [name: string]: string
}
Object.setPrototypeOf(Params.prototype, null)
Reflect.deleteProperty(Params.prototype, 'constructor')

/** The routes of one catalog. Never changes; a reload builds another. */
export class RouteTable {
  /** By pattern text, then what is in it; version addresses included. */
  readonly leaves: readonly Settlement[]
  readonly warnings: readonly Warning[]
  readonly #tree: RadixTree<Settlement>
  readonly #lookup = new Lookup()

  /**
   * @param leaves - of different shapes, in the order of their patterns
   * @param base - a table that has all these shapes but some of the fresh leaves', and no others
   */
  constructor(
    leaves: readonly Settlement[],
    warnings: readonly Warning[],
    base: { table: RouteTable; fresh: readonly Settlement[] } | null = null,
  ) {
    this.leaves = leaves
    this.warnings = warnings
    const inserted = base === null ? leaves : base.fresh
    const entries = inserted.map(leaf => ({ segments: segmentsOf(leaf.entries[0]!.claim.pattern), value: leaf }))
    this.#tree = new RadixTree(entries, base === null ? null : base.table.#tree)
  }

  /**
   * The function that answers a request.
   * @param method - as received; HEAD is looked up as GET
   * @param path - canonical
   * @param host - the `Host` header, or what a trusted proxy forwarded; empty when there is none
   * @returns a match, or the refusal: 404, 405 with `allow`, 409, 421
   */
  find(method: string, path: string, host: string): RouteMatch | RouteRefusal {
    const lookup = this.#lookup
    lookup.begin(methodIndex(method), host)
    if (this.#tree.find(path, lookup) === null) return lookup.refusal()
    const owner = lookup.owner!
    if (owner.rivals.length > 0 && lookup.isDisputed(owner)) return CONFLICT
    const { match, names } = owner
    if (names === null) return match
    const params = new Params()
    this.#tree.capture(names, params)
    return { kind: 'match', fn: match.fn, params, pattern: match.pattern }
  }

  /** The leaf of all patterns of one shape; null without a claim. */
  leafOf(pattern: Pattern): Settlement | null {
    return this.#tree.at(segmentsOf(pattern))
  }

  /** Every leaf that matches a canonical path, most specific first. */
  candidates(path: string): Settlement[] {
    const found: Settlement[] = []
    const collect = (leaf: Settlement): boolean => {
      found.push(leaf)
      return false
    }
    this.#tree.find(path, { accept: collect })
    return found
  }
}

/** Takes the first leaf that has the method for the host, and remembers why the others would not do. */
class Lookup implements Acceptor<Settlement> {
  /** The owner, after a leaf was taken. */
  owner: Owner | null = null
  #method = -1
  #host = ''
  #parsedHost: HostRule | null = null
  #otherMethods = 0
  #isOtherHost = false

  begin(method: number, host: string): void {
    this.#method = method
    this.#host = host
    this.#parsedHost = null
    this.#otherMethods = 0
    this.#isOtherHost = false
  }

  accept(leaf: Settlement): boolean {
    const owner = this.#method < 0 ? null : leaf.owners[this.#method]!
    if (owner === null || owner.hosts !== null) return this.#acceptForHost(leaf, owner)
    this.owner = owner
    return true
  }

  /** The rare rest of `accept`, apart so that the common case is small enough to be compiled into the search. */
  #acceptForHost(leaf: Settlement, first: Owner | null): boolean {
    if (first === null) this.#otherMethods |= leaf.methods
    else this.#isOtherHost = true
    for (let owner = first; owner !== null; owner = owner.next) {
      if (owner.hosts === null || this.#isHostOf(owner.hosts)) {
        this.owner = owner
        return true
      }
    }
    return false
  }

  isDisputed(owner: Owner): boolean {
    return owner.rivals.some(rival => rival.hosts.length === 0 || this.#isHostOf(rival.hosts))
  }

  refusal(): RouteRefusal {
    if (this.#isOtherHost) return WRONG_HOST
    return this.#otherMethods === 0 ? NOT_FOUND : WRONG_METHOD[this.#otherMethods]!
  }

  #isHostOf(rules: readonly HostRule[]): boolean {
    this.#parsedHost ??= parseHost(this.#host)
    return matchesHost(rules, this.#parsedHost)
  }
}

/** Index in METHODS; -1 for a method no function can allow. */
function methodIndex(method: string): number {
  return (METHODS as readonly string[]).indexOf(method === 'HEAD' ? 'GET' : method)
}

function refusal(code: RouteRefusal['code'], message: string, allow: string | null = null): RouteRefusal {
  return Object.freeze({ kind: 'refused', code, message, allow })
}

/** A shape of path that has to be settled again. */
interface Touched {
  /** Of the last table; null when it has no such path. */
  readonly known: Settlement | null
  /** All that want it now. */
  entries: RouteEntry[]
}

export function buildRouteTable(
  claims: readonly Claim[],
  { functions, forceUrl }: { functions: readonly FunctionVersion[]; forceUrl: boolean },
): RouteTable {
  return new RouteTableBuilder(forceUrl).build(claims, functions)
}

/**
 * Builds tables from claims: the same claims in any order give the same table. Nothing is thrown: an unusable claim is a warning. Each
 * shape of path is settled once: a reload builds a new table of the old parts and the few new ones.
 */
export class RouteTableBuilder {
  readonly #forceUrl: boolean
  // What the last table was made of.
  #claims: readonly Claim[] = []
  #functions: readonly FunctionVersion[] = []
  /** Versions that cannot have an address. */
  readonly #unaddressed = new Map<FunctionVersion, Warning>()
  #last: RouteTable | null = null

  /** @param forceUrl - `FN_FORCE_URL` */
  constructor(forceUrl: boolean) {
    this.#forceUrl = forceUrl
  }

  /** @param functions - all of the catalog: those with a version get their address `/<name>@<version>` */
  build(claims: readonly Claim[], functions: readonly FunctionVersion[]): RouteTable {
    const touched = this.#findTouched(claims, functions)
    this.#claims = claims
    this.#functions = functions
    const dropped = new Set<Settlement>()
    const fresh: Settlement[] = []
    let isSmaller = false
    for (const { known, entries } of touched.values()) {
      if (known !== null) dropped.add(known)
      if (entries.length > 0) fresh.push(settle(entries))
      else if (known !== null) isSmaller = true
    }
    const kept = this.#last?.leaves.filter(leaf => !dropped.has(leaf)) ?? []
    const leaves = mergeSorted(kept, fresh.sort(compareLeaves), compareLeaves)
    // A tree can be added to, not taken from.
    const base = this.#last === null || isSmaller ? null : { table: this.#last, fresh }
    const warnings = [...this.#unaddressed.values(), ...leaves.filter(isDisputed).flatMap(toRouteWarnings)]
    warnings.sort((a, b) => compareText(a.path, b.path) || compareText(a.message, b.message))
    this.#last = new RouteTable(leaves, warnings, base)
    return this.#last
  }

  /** The shapes that lost or gained a claim. */
  #findTouched(nextClaims: readonly Claim[], nextFunctions: readonly FunctionVersion[]): Map<string, Touched> {
    const claims = compareLists(this.#claims, nextClaims)
    const functions = compareLists(this.#functions, nextFunctions)
    const touched = new Map<string, Touched>()
    const entriesOf = (pattern: Pattern): RouteEntry[] => {
      let shape = touched.get(pattern.shape)
      if (shape === undefined) {
        const known = this.#last?.leafOf(pattern) ?? null
        shape = { known, entries: known === null ? [] : [...known.entries] }
        touched.set(pattern.shape, shape)
      }
      return shape.entries
    }
    for (const { pattern } of claims.gone) entriesOf(pattern)
    for (const fn of functions.gone) {
      this.#unaddressed.delete(fn)
      const address = toAddress(fn)
      if (address !== null && !('code' in address)) entriesOf(address.claim.pattern)
    }
    const gone = new Set<Claim | FunctionVersion>([...claims.gone, ...functions.gone])
    for (const shape of touched.values())
      shape.entries = shape.entries.filter(({ claim, isAddress }) => !gone.has(isAddress ? claim.fn : claim))
    for (const claim of claims.fresh) entriesOf(claim.pattern).push(toEntry(claim, false, this.#forceUrl))
    for (const fn of functions.fresh) {
      const address = toAddress(fn)
      if (address === null) continue
      if ('code' in address) this.#unaddressed.set(fn, address)
      else entriesOf(address.claim.pattern).push(address)
    }
    return touched
  }
}

/** The route of a pinned version, which needs no claim (§9); null without a version. */
function toAddress(fn: FunctionVersion): RouteEntry | Warning | null {
  if (fn.version === null || fn.policy.isPrivate || !isFunctionName(fn.name) || !isVersion(fn.version)) return null
  const path = toVersionPath(fn.name, fn.version)
  const pattern = parsePattern(path)
  if ('problem' in pattern) {
    const message = `${fn.entryFile}: cannot have the address ${path}: it ${pattern.problem}`
    return { code: 'INVALID_ROUTE', path: fn.entryFile, message, hint: 'Give the function a shorter name.' }
  }
  const { methods, allowHosts: hosts } = fn.policy
  const made = { source: 'config', origin: fn.entryFile, forced: false, implied: true } as const
  return toEntry({ pattern, methods, hosts, fn, ...made }, true, false)
}

function toEntry(claim: Claim, isAddress: boolean, forceUrl: boolean): RouteEntry {
  return { claim, hosts: claim.hosts.map(parseHost), forceUrl, isAddress }
}

function compareLeaves(a: Settlement, b: Settlement): number {
  return compareText(a.pattern, b.pattern)
}

function isDisputed({ losses, conflicts }: Settlement): boolean {
  return losses.length > 0 || conflicts.length > 0
}

/** Warnings about one route. A manifest or a forced claim that wins does so on request: no warning. */
function toRouteWarnings({ losses, conflicts }: Settlement): Warning[] {
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
