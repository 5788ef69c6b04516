/**
 * The immutable route table, and the lookup every request makes. Spec: §1, §3, §7, page router/route-table.
 */

import type { ErrorCode, Warning } from '../core/errors.ts'
import { toAllow } from '../core/http-text.ts'
import { METHODS } from '../core/identity.ts'
import { type Pattern, segmentsOf } from '../core/pattern.ts'
import { type HostRule, matchesHost, parseHost } from './hosts.ts'
import { type Acceptor, RadixTree } from './radix-tree.ts'
import type { RouteMatch, RouteParams, Settlement, Owner } from './settle.ts'

export interface RouteRefusal {
  readonly kind: 'refused'
  readonly code: ErrorCode &
    ('BAD_REQUEST' | 'NOT_FOUND' | 'METHOD_NOT_ALLOWED' | 'ROUTE_CONFLICT' | 'HOST_NOT_ALLOWED')
  readonly message: string
  /** Value of the `Allow` header, with METHOD_NOT_ALLOWED only. */
  readonly allow: string | null
}

type RouteResult = RouteMatch | RouteRefusal

/** What stands in the tree at the end of one shape of path. */
export type RouteLeaf = Settlement

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
  readonly leaves: readonly RouteLeaf[]
  readonly warnings: readonly Warning[]
  readonly #tree: RadixTree<RouteLeaf>
  readonly #lookup = new Lookup()

  /**
   * @param leaves - of different shapes, in the order of their patterns
   * @param base - a table that has all these shapes but some of the fresh leaves', and no others
   */
  constructor(
    leaves: readonly RouteLeaf[],
    warnings: readonly Warning[],
    base: { table: RouteTable; fresh: readonly RouteLeaf[] } | null = null,
  ) {
    this.leaves = leaves
    this.warnings = warnings
    const inserted = base === null ? leaves : base.fresh
    const entries = inserted.map(leaf => ({ segments: segmentsOf(leaf.entries[0]!.claim.pattern), value: leaf }))
    this.#tree = new RadixTree(entries, base === null ? null : base.table.#tree)
  }

  /**
   * Who answers a request.
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

  /** The leaf of all patterns of one shape; null when nobody claims it. */
  leafOf(pattern: Pattern): RouteLeaf | null {
    return this.#tree.at(segmentsOf(pattern))
  }

  /** Every leaf that matches a path, most specific first, with the params it would give; for `explain`. */
  candidates(path: string): { leaf: RouteLeaf; params: RouteParams }[] {
    const found: { leaf: RouteLeaf; params: RouteParams }[] = []
    const seen: RouteLeaf[] = []
    const acceptor: Acceptor<RouteLeaf> = {
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
class Lookup implements Acceptor<RouteLeaf> {
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

  accept(leaf: RouteLeaf): boolean {
    const owner = this.#method < 0 ? null : leaf.ownerOf(this.#method)
    if (owner === null || owner.hosts !== null) return this.#acceptForHost(leaf, owner)
    this.owner = owner
    return true
  }

  /** The rare rest of `accept`, apart so that the common case is small enough to be compiled into the search. */
  #acceptForHost(leaf: RouteLeaf, first: Owner | null): boolean {
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
  switch (method) {
    case 'GET':
    case 'HEAD':
      return 0
    case 'POST':
      return 1
    case 'PUT':
      return 2
    case 'PATCH':
      return 3
    case 'DELETE':
      return 4
    default:
      return -1
  }
}

function refusal(code: RouteRefusal['code'], message: string, allow: string | null = null): RouteRefusal {
  return Object.freeze({ kind: 'refused', code, message, allow })
}
