/**
 * The immutable route table, and the lookup every request makes. Spec: §1, §3, §7, page router/route-table.
 */

import type { Claim, FunctionVersion } from '../core/catalog.ts'
import type { ErrorCode, Warning } from '../core/errors.ts'
import { toAllow } from '../core/http-text.ts'
import { isFunctionName, isVersion, type Method, METHODS } from '../core/identity.ts'
import { compareLists, type ListChange, mergeSorted } from '../core/collections.ts'
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
  type RouteParams,
  settle,
  type Settlement,
  strengthOf,
} from './settle.ts'

export interface RouteRefusal {
  readonly kind: 'refused'
  readonly code: ErrorCode &
    ('BAD_REQUEST' | 'NOT_FOUND' | 'METHOD_NOT_ALLOWED' | 'ROUTE_CONFLICT' | 'HOST_NOT_ALLOWED')
  readonly message: string
  /** Value of the `Allow` header, with METHOD_NOT_ALLOWED only. */
  readonly allow: string | null
}

type RouteResult = RouteMatch | RouteRefusal

const NOT_FOUND = refusal('NOT_FOUND', 'not found')
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
   * @param path - the request target without query, raw or canonical
   * @param host - the `Host` header, or what a trusted proxy forwarded; empty when there is none
   * @returns a match, or the refusal: 400, 404, 405 with `allow`, 409, 421
   */
  find(method: string, path: string, host: string): RouteResult {
    const lookup = this.#lookup
    lookup.begin(methodIndex(method), host)
    const leaf = this.#tree.find(path, lookup)
    if (leaf === null) {
      const problem = this.#tree.problem
      return problem === null ? lookup.refusal() : refusal('BAD_REQUEST', problem.problem)
    }
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

  /** Every leaf that matches a path, most specific first, with the params it would give; for `explain`. */
  candidates(path: string): { leaf: Settlement; params: RouteParams }[] {
    const found: { leaf: Settlement; params: RouteParams }[] = []
    const seen: Settlement[] = []
    const acceptor: Acceptor<Settlement> = {
      accept: leaf => !seen.includes(leaf),
      restart: () => {},
    }
    for (;;) {
      const leaf = this.#tree.find(path, acceptor)
      if (leaf === null) return found
      seen.push(leaf)
      const params = new Params()
      this.#tree.capture(leaf.entries[0]!.claim.pattern.paramNames, params)
      found.push({ leaf, params })
    }
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
    this.restart()
  }

  restart(): void {
    this.#otherMethods = 0
    this.#isOtherHost = false
  }

  accept(leaf: Settlement): boolean {
    const owner = this.#method < 0 ? null : leaf.ownerOf(this.#method)
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

interface RouteTableOptions {
  /** Every function version of the catalog: those with a version get their address `/<name>@<version>`. */
  functions: readonly FunctionVersion[]
  /** `FN_FORCE_URL`. */
  forceUrl: boolean
}

/** A shape of path that has to be settled again. */
interface Touched {
  /** Of the last table; null when it has no such path. */
  readonly known: Settlement | null
  /** All that want it now. */
  entries: RouteEntry[]
}

/** Builds one table. Same claims in any order, same table. Nothing is thrown: an unusable claim is a warning. */
export function buildRouteTable(claims: readonly Claim[], options: RouteTableOptions): RouteTable {
  return new RouteTableBuilder(options.forceUrl).build(claims, options.functions)
}

/**
 * Builds tables from claims. Each shape of path is settled once: a reload builds a new table of the old parts and the few new ones.
 * The remembered parts never change the outcome.
 */
export class RouteTableBuilder {
  readonly #forceUrl: boolean
  /** Of the last table: what it was made of, and the shapes that have warnings. */
  #claims: readonly Claim[] = []
  #functions: readonly FunctionVersion[] = []
  readonly #warned = new Map<string, readonly Warning[]>()
  /** Versions that cannot have an address. */
  readonly #unaddressed = new Map<FunctionVersion, Warning>()
  #last: RouteTable | null = null

  /** @param forceUrl - `FN_FORCE_URL` */
  constructor(forceUrl: boolean) {
    this.#forceUrl = forceUrl
  }

  build(claims: readonly Claim[], functions: readonly FunctionVersion[]): RouteTable {
    const touched = this.#findTouched(compareLists(this.#claims, claims), compareLists(this.#functions, functions))
    this.#claims = claims
    this.#functions = functions
    const dropped = new Set<Settlement>()
    const fresh: Settlement[] = []
    let isSmaller = false
    for (const [shape, { known, entries }] of touched) {
      if (known !== null) dropped.add(known)
      this.#warned.delete(shape)
      if (entries.length > 0) fresh.push(this.#settle(shape, entries))
      else if (known !== null) isSmaller = true
    }
    const kept = this.#last?.leaves.filter(leaf => !dropped.has(leaf)) ?? []
    const leaves = mergeSorted(kept, fresh.sort(compareLeaves), compareLeaves)
    // A tree can be added to, not taken from.
    const base = this.#last === null || isSmaller ? null : { table: this.#last, fresh }
    this.#last = new RouteTable(leaves, this.#listWarnings(), base)
    return this.#last
  }

  /** The shapes that lost or gained a claim. */
  #findTouched(claims: ListChange<Claim>, functions: ListChange<FunctionVersion>): Map<string, Touched> {
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

  #settle(shape: string, entries: RouteEntry[]): Settlement {
    const leaf = settle(entries)
    const warnings = toRouteWarnings(leaf)
    if (warnings.length > 0) this.#warned.set(shape, warnings)
    return leaf
  }

  #listWarnings(): Warning[] {
    const warnings = [...this.#unaddressed.values(), ...[...this.#warned.values()].flat()]
    return warnings.sort((a, b) => compareText(a.path, b.path) || compareText(a.message, b.message))
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
  const { methods, allowHosts } = fn.policy
  const origin = fn.entryFile
  const claim: Claim = {
    pattern,
    methods,
    hosts: allowHosts,
    fn,
    source: 'config',
    forced: false,
    origin,
    implied: true,
  }
  return toEntry(claim, true, false)
}

function toEntry(claim: Claim, isAddress: boolean, forceUrl: boolean): RouteEntry {
  return { claim, hosts: claim.hosts.map(parseHost), forceUrl, isAddress }
}

function compareLeaves(a: Settlement, b: Settlement): number {
  return compareText(a.pattern, b.pattern)
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
