/** The functions root as one immutable catalog: what every request of one moment is answered from. Owner: §1. */

import type { OuterEnv } from './config/function-env.ts'
import type { FunctionVersion } from './core/catalog.ts'
import { GatewayError, type Warning } from './core/errors.ts'
import { toFunctionKey } from './core/identity.ts'
import { DEFAULT_VERSION_LABEL } from './core/versions.ts'
import { NODE_DISK } from './discovery/disk.ts'
import { SNAPSHOT_RULES } from './discovery/folder.ts'
import { createDiscoverer, type Discoverer, type DiscoverOptions, type Discovery } from './discovery/discover.ts'
import { FolderTimes } from './discovery/folder-times.ts'
import type { Revisions } from './discovery/functions.ts'
import { LuaChecks } from './discovery/callable.ts'
import { readSnapshot, type Snapshot } from './discovery/snapshot.ts'
import type { FileReader } from './files/function-file.ts'
import type { Step } from './http/exchange.ts'
import type { ChosenHome } from './http/home.ts'
import type { PublicCatalog } from './http/public.ts'
import { countRecords, type RouteCounts, type RouteRecords, toRecords } from './router/route-records.ts'
import { type RouteTable, RouteTableBuilder } from './router/route-table.ts'
import type { SchemaStore } from './validation/schema-store.ts'

export interface Catalog extends PublicCatalog {
  readonly discovery: Discovery
  /** The tree it was made from. */
  readonly snapshot: Snapshot
  /** By key. */
  readonly functions: ReadonlyMap<string, FunctionVersion>
  readonly routes: RouteTable
  /** What answers for folders. */
  readonly homes: readonly ChosenHome[]
  /** What is wrong in the tree. */
  readonly warnings: readonly Warning[]
  /** False when the machine had not enough left to read the tree: it has to be read again. */
  readonly isRead: boolean
  /** Wall clock, ms. */
  readonly generatedAt: number
  /** Routes as the control plane shows them; made when asked for, and kept while somebody holds them. */
  readonly records: () => RouteRecords
  /** How many those are, without making them. */
  readonly counts: () => RouteCounts
}

/**
 * The function of that name.
 * @param version - null for the one without a version, which records call `default`; a folder of that name comes first
 * @param runtime - null for any
 * @throws GatewayError NOT_FOUND; ROUTE_CONFLICT when several runtimes have it
 */
export function findFunction(
  functions: readonly FunctionVersion[],
  name: string,
  version: string | null,
  runtime: string | null,
): FunctionVersion {
  const found = functions.filter(
    fn =>
      fn.name === name &&
      fn.version === version &&
      (runtime === null || fn.runtime === runtime) &&
      // A second one of that name in its runtime has a longer key, and a warning that says so.
      fn.key === toFunctionKey(fn.runtime, name, version),
  )
  if (found.length > 1) {
    const names = found.map(fn => fn.runtime).join(', ')
    throw new GatewayError('ROUTE_CONFLICT', `ambiguous function: "${name}" exists in ${names}; name the runtime`)
  }
  if (found[0] === undefined && version === DEFAULT_VERSION_LABEL) return findFunction(functions, name, null, runtime)
  if (found[0] === undefined) throw new GatewayError('NOT_FOUND', 'unknown function or version')
  return found[0]
}

export interface CatalogSteps {
  before: readonly Step[]
  after: readonly Step[]
  homes: readonly ChosenHome[]
  warnings: readonly Warning[]
}

interface CatalogOptions extends DiscoverOptions {
  rootPath: string
  /** How often files changed that functions had loaded; without it no such file matters. */
  revisions?: () => Revisions
  /** True where somebody edits the files: mistakes that a look at the sources shows are told before a call meets them. */
  checksSources: boolean
  /** Reads configs and environments of functions; null: links are followed. */
  readFile?: FileReader | null
  /** True where changed functions are loaded at once: then their sources are checked at the start alone. */
  loadsChanged?: boolean
  /** Wall clock, ms. */
  now: () => number
  /** Reads what functions say of their requests. */
  schemas?: SchemaStore
  /** What functions get from outside the root, read at each load. */
  outerEnv: () => OuterEnv
  /** The steps around routing that a tree brings along: homes, assets. */
  steps: (discovery: Discovery, routes: RouteTable) => CatalogSteps
}

/** The routes of a discovery. */
interface Routing {
  readonly discovery: Discovery
  readonly routes: RouteTable
  readonly records: () => RouteRecords
  /** How many those are, without making them. */
  readonly counts: () => RouteCounts
}

/** Reads and re-reads the root; what did not change is reused. */
export class CatalogLoader {
  readonly #options: CatalogOptions
  readonly #discoverer: Discoverer
  readonly #routes: RouteTableBuilder
  readonly #lua: LuaChecks | null
  readonly #times: FolderTimes
  #snapshot: Snapshot | null = null
  /** Made of the last discovery: the same one has the same routes. */
  #last: Routing | null = null

  constructor(options: CatalogOptions) {
    this.#options = options
    this.#lua = options.checksSources ? new LuaChecks(options.loadsChanged) : null
    this.#discoverer = createDiscoverer(options)
    this.#routes = new RouteTableBuilder(options.forceUrl)
    this.#times = new FolderTimes(options.now)
  }

  /** The tree of the last catalog; null before the first. */
  get snapshot(): Snapshot | null {
    return this.#snapshot
  }

  /** @param changed - files and folders below the root that may have changed; null looks at all of them */
  async load(changed: Iterable<string> | null): Promise<Catalog> {
    const { rootPath, now, outerEnv, revisions, steps, readFile } = this.#options
    const disk = { ...NODE_DISK, ...(readFile && { readFile }) }
    const previous = this.#snapshot
    const suspects = changed === null && previous !== null ? await this.#times.findChanged(previous) : changed
    const times = this.#times
    this.#snapshot = await readSnapshot({ rootPath, previous, changed: suspects, times, disk, ...SNAPSHOT_RULES })
    const { shortage } = this.#snapshot
    const discovery = this.#discoverer.discover(this.#snapshot, outerEnv(), revisions?.())
    const sourceWarnings = (await this.#lua?.check(discovery.functions)) ?? []
    const schemaWarnings = (await this.#options.schemas?.load(discovery.functions)) ?? []
    const { routes, records, counts } = this.#routingOf(discovery)
    const { before, after, homes, warnings } = steps(discovery, routes)
    return {
      discovery,
      snapshot: this.#snapshot,
      functions: discovery.byKey,
      routes,
      before,
      after,
      homes,
      warnings: [
        ...(shortage === null ? [] : [shortage]),
        ...discovery.warnings,
        ...sourceWarnings,
        ...schemaWarnings,
        ...routes.warnings,
        ...warnings,
      ],
      isRead: shortage === null,
      generatedAt: now(),
      records,
      counts,
    }
  }

  #routingOf(discovery: Discovery): Routing {
    if (this.#last?.discovery === discovery) return this.#last
    const routes = this.#routes.build(discovery.claims, discovery.functions)
    // Kept by who uses them: of ten thousand routes they are 4 MB, which most gateways never need again.
    let made: WeakRef<RouteRecords> | null = null
    let counted: RouteCounts | null = null
    const records = (): RouteRecords => {
      const known = made?.deref()
      if (known !== undefined) return known
      const fresh = toRecords(routes)
      made = new WeakRef(fresh)
      return fresh
    }
    this.#last = { discovery, routes, records, counts: () => (counted ??= countRecords(routes)) }
    return this.#last
  }
}
