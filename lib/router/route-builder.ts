/**
 * Claims to a route table. What a claim says, and who owns a shape of path, is worked out once: a reload builds a new
 * table of the old parts and the few new ones. Spec: §3, page router/route-table.
 */

import type { Claim, FunctionVersion } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { exact } from '../core/exact-list.ts'
import { isFunctionName, isVersion } from '../core/identity.ts'
import { compareLists, type ListChange, mergeSorted } from '../core/list-change.ts'
import { type Pattern, parsePattern } from '../core/pattern.ts'
import { toVersionPath } from '../core/versions.ts'
import { parseHost } from './hosts.ts'
import { type RouteLeaf, RouteTable } from './route-table.ts'
import { compareText } from '../core/text.ts'
import { type RouteEntry, settle } from './settle.ts'
import { toRouteWarnings } from './warnings.ts'

interface RouteTableOptions {
  /** Every function version of the catalog: those with a version get their address `/<name>@<version>`. */
  functions: readonly FunctionVersion[]
  /** `FN_FORCE_URL`. */
  forceUrl: boolean
}

/** A shape of path that is settled anew. */
interface Touched {
  /** Of the last table; null when it has no such path. */
  readonly known: RouteLeaf | null
  /** All that want it now. */
  entries: RouteEntry[]
}

/** Builds one table. Same claims in any order, same table. Nothing is thrown: what cannot be used is a warning. */
export function buildRouteTable(claims: readonly Claim[], options: RouteTableOptions): RouteTable {
  return new RouteTableBuilder(options.forceUrl).build(claims, options.functions)
}

/** Builds tables of claims that are mostly the ones of the table before; what it remembers never changes the outcome. */
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
    const dropped = new Set<RouteLeaf>()
    const fresh: RouteLeaf[] = []
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

  /** The shapes that something is gone from or new in. */
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

  #settle(shape: string, entries: RouteEntry[]): RouteLeaf {
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

/** What a pinned version answers without any claim of its own (§9); null for what has no version. */
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
  return { claim, hosts: exact(claim.hosts.map(parseHost)), forceUrl, isAddress }
}

function compareLeaves(a: RouteLeaf, b: RouteLeaf): number {
  return compareText(a.pattern, b.pattern)
}
