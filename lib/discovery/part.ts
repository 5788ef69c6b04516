/**
 * What one folder and all below it contribute to a discovery. Claims come from three sources; who wins is settled by the
 * router. Owner: §1, page discovery/layouts.
 *
 *   file      a file's or folder's own path      users/[id].js         GET /users/:id
 *   manifest  fn.routes.json                     "GET /items": "x.py"  GET /items
 *   config    invoke.routes, or /<name> and /<name>/* of a named function
 */

import type {
  AssetsMount,
  Claim,
  ClaimSource,
  FunctionVersion,
  HomeAction,
  IgnoredPath,
  PackageManifest,
} from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { EMPTY, exact } from '../core/exact-list.ts'
import { type Method, RESERVED_PREFIXES } from '../core/identity.ts'
import { isSameList } from '../core/list-change.ts'
import { isReservedPattern, parsePattern } from '../core/pattern.ts'
import { pathWarning } from './disk.ts'

/** The outcome of a discovery: data, deeply equal for equal trees. */
export interface Discovery {
  /** By key. */
  readonly functions: readonly FunctionVersion[]
  readonly byKey: ReadonlyMap<string, FunctionVersion>
  /** In the order of the tree. */
  readonly claims: readonly Claim[]
  readonly homes: readonly HomeAction[]
  readonly assets: AssetsMount | null
  readonly warnings: readonly Warning[]
  readonly ignored: readonly IgnoredPath[]
  /** Of functions; one folder may come up several times. */
  readonly manifests: readonly PackageManifest[]
}

interface ClaimRequest {
  fn: FunctionVersion
  /** In any accepted spelling. */
  route: string
  methods: readonly Method[]
  source: ClaimSource
  forced: boolean
  /** File that makes the claim, below the root. */
  origin: string
  implied: boolean
}

/** Of a folder and all below it. */
interface PartOutcome {
  readonly functions: readonly FunctionVersion[]
  readonly targets: readonly FunctionVersion[]
  readonly claims: readonly Claim[]
  readonly homes: readonly HomeAction[]
  readonly warnings: readonly Warning[]
  readonly ignored: readonly IgnoredPath[]
  readonly manifests: readonly PackageManifest[]
}

/** What is kept of a folder instead of seven lists: where its claims tell of all its functions these alone, and of most the one that there is. */
export type KeptPart = PartOutcome | readonly Claim[] | Claim

export function toPartOutcome(kept: KeptPart): PartOutcome {
  if ('pattern' in kept) return { ...NOTHING, functions: [kept.fn], claims: [kept] }
  return isClaims(kept) ? { ...NOTHING, functions: functionsOf(kept), claims: kept } : kept
}

function isClaims(kept: KeptPart): kept is readonly Claim[] {
  return Array.isArray(kept)
}

/** Claims of one function follow each other. */
function functionsOf(claims: readonly Claim[]): FunctionVersion[] {
  const functions: FunctionVersion[] = []
  for (const { fn } of claims) if (functions.at(-1) !== fn) functions.push(fn)
  return functions
}

const NOTHING: PartOutcome = {
  functions: EMPTY,
  targets: EMPTY,
  claims: EMPTY,
  homes: EMPTY,
  warnings: EMPTY,
  ignored: EMPTY,
  manifests: EMPTY,
}

export class Part {
  readonly functions: FunctionVersion[] = []
  /** Handlers that a manifest names; they may be functions already. */
  readonly targets: FunctionVersion[] = []
  readonly claims: Claim[] = []
  readonly homes: HomeAction[] = []
  readonly warnings: Warning[] = []
  readonly ignored: IgnoredPath[] = []
  readonly manifests: PackageManifest[] = []

  /** The same to be kept. */
  toKept(): KeptPart {
    const others = [this.targets, this.homes, this.warnings, this.ignored, this.manifests]
    const isAll = others.every(list => list.length === 0) && isSameList(functionsOf(this.claims), this.functions)
    if (isAll && this.claims.length > 0) return this.claims.length === 1 ? this.claims[0]! : exact(this.claims)
    return {
      functions: exact(this.functions),
      targets: exact(this.targets),
      claims: exact(this.claims),
      homes: exact(this.homes),
      warnings: exact(this.warnings),
      ignored: exact(this.ignored),
      manifests: exact(this.manifests),
    }
  }

  /** Adds the outcome of a folder below. */
  add(kept: KeptPart): void {
    if ('pattern' in kept) {
      this.functions.push(kept.fn)
      this.claims.push(kept)
      return
    }
    const part = toPartOutcome(kept)
    for (const fn of part.functions) this.functions.push(fn)
    for (const fn of part.targets) this.targets.push(fn)
    for (const claim of part.claims) this.claims.push(claim)
    for (const home of part.homes) this.homes.push(home)
    this.warn(part.warnings)
    for (const ignored of part.ignored) this.ignored.push(ignored)
    for (const manifest of part.manifests) this.manifests.push(manifest)
  }

  /** Adds a claim, or the warning why it is none; true for a claim, and for a private function, which needs none. */
  claim(request: ClaimRequest): boolean {
    if (request.fn.policy.isPrivate) return true
    const outcome = toClaim(request)
    if ('code' in outcome) {
      this.warnings.push(outcome)
      return false
    }
    this.claims.push(outcome)
    return true
  }

  ignore(path: string, reason: string): void {
    this.ignored.push({ path, reason })
  }

  warn(warnings: readonly Warning[]): void {
    for (const warning of warnings) this.warnings.push(warning)
  }
}

/** Makes a claim, or the warning why it cannot be one. */
function toClaim(request: ClaimRequest): Claim | Warning {
  const { fn, route, methods, source, forced, origin, implied } = request
  const pattern = parsePattern(route)
  if ('problem' in pattern) {
    const hint = 'Routes look like /users/:id, /docs/:slug*, /docs/:slug*? or /files/*.'
    return pathWarning(
      'INVALID_ROUTE',
      origin,
      `cannot have the route ${JSON.stringify(route)}: it ${pattern.problem}`,
      hint,
    )
  }
  if (isReservedPattern(pattern)) {
    const reserved = RESERVED_PREFIXES.join(' and ')
    const hint = 'Rename the file or folder, or list another route in invoke.routes of fn.config.json.'
    return pathWarning(
      'RESERVED_PREFIX',
      origin,
      `cannot have the route ${pattern.text}: ${reserved} are reserved`,
      hint,
    )
  }
  return { pattern, methods, hosts: fn.policy.allowHosts, fn, source, forced, origin, implied }
}
