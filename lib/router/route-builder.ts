/**
 * Claims to a route table. What a claim says, and who owns a shape of path, is worked out once: a reload builds a new
 * table of the old parts and the few new ones. Spec: §3, page router/route-table.
 */

import type { Claim, FunctionVersion } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { isFunctionName, isVersion } from '../core/identity.ts'
import { parsePattern } from '../core/pattern.ts'
import { type ClaimStanding, claimStrength } from '../core/transitions.ts'
import { toVersionPath } from '../core/versions.ts'
import { parseHost } from './hosts.ts'
import { type RouteLeaf, RouteTable } from './route-table.ts'
import { compareText } from '../core/text.ts'
import { isSameList, type RouteEntry, settle } from './settle.ts'
import { toRouteWarnings } from './warnings.ts'

interface RouteTableOptions {
  /** Every function version of the catalog: those with a version get their address `/<name>@<version>`. */
  functions: readonly FunctionVersion[]
  /** `FN_FORCE_URL`. */
  forceUrl: boolean
}

/** Builds one table. Same claims in any order, same table. Nothing is thrown: what cannot be used is a warning. */
export function buildRouteTable(claims: readonly Claim[], options: RouteTableOptions): RouteTable {
  return new RouteTableBuilder(options.forceUrl).build(claims, options.functions)
}

/** All claims on one shape, and the leaf they make. */
interface Shape {
  entries: RouteEntry[]
  leaf: RouteLeaf
  warnings: readonly Warning[]
}

/** Builds tables of claims that are mostly the ones of the table before; what it remembers never changes the outcome. */
export class RouteTableBuilder {
  readonly #forceUrl: boolean
  readonly #entries = new WeakMap<Claim, RouteEntry>()
  readonly #addresses = new WeakMap<FunctionVersion, RouteEntry | Warning>()
  /** Of the last table, in the order of its leaves. */
  #shapes: ReadonlyMap<string, Shape> = new Map()

  /** @param forceUrl - `FN_FORCE_URL` */
  constructor(forceUrl: boolean) {
    this.#forceUrl = forceUrl
  }

  build(claims: readonly Claim[], functions: readonly FunctionVersion[]): RouteTable {
    const warnings: Warning[] = []
    const claimed = new Map<string, RouteEntry[]>()
    const add = (entry: RouteEntry): void => {
      const { shape } = entry.claim.pattern
      const known = claimed.get(shape)
      if (known === undefined) claimed.set(shape, [entry])
      else known.push(entry)
    }
    for (const claim of claims) add(this.#entryOf(claim))
    for (const fn of functions) {
      if (fn.version === null || !isFunctionName(fn.name) || !isVersion(fn.version)) continue
      const address = this.#addressOf(fn, fn.version)
      if ('code' in address) warnings.push(address)
      else add(address)
    }
    const shapes = this.#settleShapes(claimed)
    this.#shapes = shapes
    const leaves: RouteLeaf[] = []
    for (const shape of shapes.values()) {
      leaves.push(shape.leaf)
      for (const warning of shape.warnings) warnings.push(warning)
    }
    warnings.sort((a, b) => compareText(a.path, b.path) || compareText(a.message, b.message))
    return new RouteTable(leaves, warnings)
  }

  /** The shapes in the order of their leaves' patterns; those of the last table are nearly in order already. */
  #settleShapes(claimed: Map<string, RouteEntry[]>): Map<string, Shape> {
    const found: [string, Shape][] = []
    for (const [name, last] of this.#shapes) {
      const entries = claimed.get(name)
      if (entries === undefined) continue
      claimed.delete(name)
      found.push([name, isSameList(entries, last.entries) ? last : toShape(entries)])
    }
    for (const [name, entries] of claimed) found.push([name, toShape(entries)])
    found.sort(([, a], [, b]) => compareText(a.leaf.pattern, b.leaf.pattern))
    return new Map(found)
  }

  #entryOf(claim: Claim): RouteEntry {
    let entry = this.#entries.get(claim)
    if (entry === undefined) {
      entry = toEntry(claim, false, this.#forceUrl)
      this.#entries.set(claim, entry)
    }
    return entry
  }

  /** What a pinned version answers without any claim of its own (§9). */
  #addressOf(fn: FunctionVersion, version: string): RouteEntry | Warning {
    let address = this.#addresses.get(fn)
    if (address === undefined) {
      address = toAddress(fn, toVersionPath(fn.name, version))
      this.#addresses.set(fn, address)
    }
    return address
  }
}

function toAddress(fn: FunctionVersion, path: string): RouteEntry | Warning {
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
  const { fn, source, forced } = claim
  const standing: ClaimStanding = { fnKey: fn.key, source, forced, versioned: fn.version !== null, forceUrl }
  return { claim, hosts: claim.hosts.map(parseHost), standing, strength: claimStrength(standing), isAddress }
}

function toShape(entries: RouteEntry[]): Shape {
  const settlement = settle(entries)
  let methods = 0
  for (const [index, owner] of settlement.owners.entries()) if (owner !== null) methods |= 1 << index
  const pattern = settlement.entries.map(({ claim }) => claim.pattern.text).sort(compareText)[0]!
  const { segments } = settlement.entries[0]!.claim.pattern
  const leaf = { pattern, segments, settlement, owners: settlement.owners, methods }
  return { entries, leaf, warnings: toRouteWarnings(settlement) }
}
