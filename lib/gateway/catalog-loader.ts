/** The functions root as one immutable catalog: how it is read, read again, searched, and called by name. Owner: §1. */

import type { OuterEnv } from '../config/function-env.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, Timer } from '../core/clock.ts'
import { getOrMake } from '../core/collections.ts'
import { GatewayError, isThrottled, type Warning } from '../core/errors.ts'
import { type Method, toFunctionKey } from '../core/identity.ts'
import { DEFAULT_VERSION_LABEL, toFunctionPath } from '../core/versions.ts'
import { LuaChecks } from '../discovery/callable.ts'
import { createDiscoverer, type Discoverer, type DiscoverOptions, type Discovery } from '../discovery/discover.ts'
import { NODE_DISK } from '../discovery/disk.ts'
import type { Revisions } from '../discovery/functions.ts'
import { FolderTimes, readSnapshot, type Snapshot } from '../discovery/snapshot.ts'
import type { Watcher, WatchOptions } from '../discovery/watch.ts'
import type { FileReader } from '../files/function-file.ts'
import type { ChosenHome } from '../http/home.ts'
import type { PublicCatalog } from '../http/public.ts'
import type { RequestIds } from '../invocation/event.ts'
import { type InternalRequest, type InternalResult, invokeInternal } from '../invocation/internal-call.ts'
import type { Invoker } from '../invocation/invoke.ts'
import type { Journal } from '../observe/journal.ts'
import type { Metrics } from '../observe/metrics.ts'
import { findCallRoute } from '../router/call-route.ts'
import { countRecords, type RouteCounts, type RouteRecords, toRecords } from '../router/route-records.ts'
import { type RouteTable, RouteTableBuilder } from '../router/route-table.ts'
import { ping, type PingOutcome } from '../scheduler/keep-warm.ts'
import type { SchemaStore } from '../validation/schema-store.ts'

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
  /** Routes as the control plane shows them; made when asked for, and kept while a caller holds them. */
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

/** Looks routes up by function and method; the index is built once per catalog, since every job asks. */
export function createRoutesOf(
  records: () => Pick<RouteRecords, 'mapped_routes'>,
): (fn: FunctionVersion, method: Method) => readonly string[] {
  // Holds the records: nothing else does, and they would be built again for each job.
  let known: { of: object; routes: Map<string, string[]> } | null = null
  return ({ runtime, name, version }, method) => {
    const made = records()
    if (known?.of !== made) known = { of: made, routes: toRoutes(made.mapped_routes) }
    return known.routes.get(`${runtime} ${name} ${version} ${method}`) ?? []
  }
}

function toRoutes(mapped: RouteRecords['mapped_routes']): Map<string, string[]> {
  const routes = new Map<string, string[]>()
  for (const [route, owners] of Object.entries(mapped)) {
    for (const { runtime, name, version, methods } of owners) {
      for (const method of methods)
        getOrMake(routes, `${runtime} ${name} ${version} ${method}`, (): string[] => []).push(route)
    }
  }
  return routes
}

/** The steps around routing that a tree brings along: homes, assets. */
export type CatalogSteps = Pick<Catalog, 'before' | 'after' | 'homes' | 'warnings'>

interface CatalogOptions extends DiscoverOptions {
  rootPath: string
  /** How often files changed that functions had loaded; without it no such file matters. */
  revisions?: () => Revisions
  /** True where the files are edited: mistakes in the sources are reported before a call meets them. */
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
  steps: (discovery: Discovery, routes: RouteTable) => CatalogSteps
}

/** Reads and re-reads the root; what did not change is reused. */
export class CatalogLoader {
  readonly #options: CatalogOptions
  readonly #discoverer: Discoverer
  readonly #routes: RouteTableBuilder
  readonly #lua: LuaChecks | null
  readonly #times: FolderTimes
  #snapshot: Snapshot | null = null
  #last: Pick<Catalog, 'discovery' | 'routes' | 'records' | 'counts'> | null = null

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
    const { now, outerEnv, revisions, steps, schemas } = this.#options
    const previous = this.#snapshot
    const suspects = changed === null && previous !== null ? await this.#times.findChanged(previous) : changed
    const snapshot = await this.#read(suspects)
    this.#snapshot = snapshot
    const { shortage } = snapshot
    const discovery = this.#discoverer.discover(snapshot, outerEnv(), revisions?.())
    const sourceWarnings = (await this.#lua?.check(discovery.functions)) ?? []
    const schemaWarnings = (await schemas?.load(discovery.functions)) ?? []
    // The same discovery has the same routes.
    if (this.#last?.discovery !== discovery) this.#last = toRouting(discovery, this.#routes)
    const { routes } = this.#last
    const added = steps(discovery, routes)
    const found = [...discovery.warnings, ...sourceWarnings, ...schemaWarnings, ...routes.warnings, ...added.warnings]
    return {
      ...this.#last,
      ...added,
      snapshot,
      functions: discovery.byKey,
      warnings: shortage === null ? found : [shortage, ...found],
      isRead: shortage === null,
      generatedAt: now(),
    }
  }

  /** Files and folders that changed since the tree was read last; null when that may be anything. */
  async findChanged(): Promise<readonly string[] | null> {
    const previous = this.#snapshot
    const changed = previous === null ? null : await this.#times.findChanged(previous)
    // Folders whose times say nothing, such as those with links, are listed each time, and mostly are as they were.
    return changed?.length === 0 || (await this.#read(changed)) === previous ? [] : changed
  }

  #read(changed: Iterable<string> | null): Promise<Snapshot> {
    const { rootPath, readFile } = this.#options
    const disk = { ...NODE_DISK, ...(readFile && { readFile }) }
    const times = this.#times
    return readSnapshot({ rootPath, previous: this.#snapshot, changed, times, disk })
  }
}

function toRouting(discovery: Discovery, builder: RouteTableBuilder) {
  const routes = builder.build(discovery.claims, discovery.functions)
  // Kept by their users: of ten thousand routes they are 4 MB, which most gateways never need again.
  let made: WeakRef<RouteRecords> | null = null
  let counted: RouteCounts | null = null
  const records = (): RouteRecords => {
    const known = made?.deref()
    if (known !== undefined) return known
    const fresh = toRecords(routes)
    made = new WeakRef(fresh)
    return fresh
  }
  return { discovery, routes, records, counts: () => (counted ??= countRecords(routes)) }
}

// The tree is read again on request, after a change that the watcher saw, and when the last reading was not whole.
//   reload ─► nothing runs ─► load
//          └► one runs ─────► one more after it, which covers everything asked for meanwhile

/** Milliseconds after which a tree that could not be read for want of descriptors or memory is read again. */
export const TREE_RETRY_MS = 1000

/** Files and folders below the root that may have changed; null for all of them. */
export type Changed = ReadonlySet<string> | null

export interface ReloaderOptions {
  clock: Clock
  /**
   * Reads the tree and puts it in force; what was in force stays when it rejects.
   * @param cause - `watch`, `api`, `start`, `retry`
   * @returns false when the machine had not enough left to read all of it: it is read again later
   */
  load: (changed: Changed, cause: string) => Promise<boolean>
  /** Starts watching the tree. */
  watch: (onChange: WatchOptions['onChange']) => Watcher
  /** Called when a reload fails that no caller waits for. */
  onFailure: (error: unknown) => void
}

export class Reloader {
  readonly #options: ReloaderOptions
  readonly #retryTimer: Timer
  #running: Promise<void> | null = null
  #waiting: { changed: Set<string> | null; done: Promise<void> } | null = null
  #watcher: Watcher | null = null
  #isClosed = false

  constructor(options: ReloaderOptions) {
    this.#options = options
    this.#retryTimer = new Timer(options.clock, true)
  }

  get isWatching(): boolean {
    return this.#watcher !== null
  }

  /** Watches the tree; resolves when every change from now on is seen and what changed before is in force. */
  async watch(): Promise<void> {
    if (this.#isClosed || this.#watcher !== null) return
    this.#watcher = this.#options.watch(paths => this.#reloadQuietly(paths, 'watch'))
    await this.#watcher.ready
    // What was saved between the first look and the first watch.
    await this.reload(null, 'watch')
  }

  /**
   * Reads the tree again: one reload at a time, and those asked for meanwhile are one more after it. Does nothing when closed.
   * @returns a promise that rejects when this reload failed
   */
  reload(changed: Changed, cause: string): Promise<void> {
    if (this.#isClosed) return Promise.resolve()
    if (this.#running === null) {
      this.#running = this.#load(changed, cause).finally(() => {
        this.#running = null
      })
      return this.#running
    }
    if (this.#waiting === null) {
      const waiting = { changed: changed === null ? null : new Set(changed), done: Promise.resolve() }
      const next = (): Promise<void> => {
        this.#waiting = null
        return this.reload(waiting.changed, cause)
      }
      waiting.done = this.#running.then(next, next)
      this.#waiting = waiting
    } else if (changed === null) this.#waiting.changed = null
    else for (const path of changed) this.#waiting.changed?.add(path)
    return this.#waiting.done
  }

  /** No reload begins any more; resolves when the one that runs has ended. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#watcher?.close()
    this.#retryTimer.clear()
    await this.#running?.catch(() => {})
  }

  async #load(changed: Changed, cause: string): Promise<void> {
    const isWhole = await this.#options.load(changed, cause)
    if (isWhole || this.#isClosed || this.#retryTimer.isSet) return
    this.#retryTimer.set(TREE_RETRY_MS, () => void this.#reloadQuietly(null, 'retry'))
  }

  /** A reload that no caller waits for. */
  #reloadQuietly(changed: Changed, cause: string): Promise<void> {
    return this.reload(changed, cause).catch(error => this.#options.onFailure(error))
  }
}

// Calls of functions by name: those of a host program, of the control plane, of jobs and schedules.

/** A request for `gateway.invoke()`. */
export interface InvokeRequest {
  /** Version of the function; the one without a version by default. */
  version?: string | null
  /** Runtime of the function, when several have one of this name. */
  runtime?: string
  /** `GET` by default. */
  method?: string
  query?: Readonly<Record<string, unknown>>
  headers?: Readonly<Record<string, string>>
  body?: string | Buffer | null
  /** Becomes `event.context.user`. */
  context?: Readonly<Record<string, unknown>> | null
  /** A path of the function (`/users/7`), or one of its routes (`/users/:id`) to fill with `params`; the path of its name by default. */
  route?: string | null
  /** Values for the params of `route`, or of the function's route with these params. */
  params?: Readonly<Record<string, string>> | null
  /** Stops the call. The result then has status 0. */
  signal?: AbortSignal
}

/** The result of `gateway.invoke()`. */
export interface InvokeResult extends InternalResult {
  /** The path that the handler saw. */
  path: string
  /** The route that matched; null for a call by name alone. */
  route: string | null
}

interface FunctionCallsOptions {
  invoker: Invoker
  requestIds: RequestIds
  journal: Pick<Journal, 'callFailed'>
  metrics: Pick<Metrics, 'functions'>
  /** The catalog in force now. */
  catalog: () => Pick<Catalog, 'discovery' | 'routes'>
}

/** The request that a call was asked for with: its id and trace, and the address that it came from. */
interface Asker {
  id?: string
  ip?: string
  trace?: string
  traceState?: string | null
}

/** A call by name, ready to run. */
interface NamedCall extends InternalRequest {
  /** The route that was asked for; null for the name alone. */
  pattern: string | null
}

export class FunctionCalls {
  readonly #options: FunctionCallsOptions

  constructor(options: FunctionCallsOptions) {
    this.#options = options
  }

  /** Runs a call through the same admission as public HTTP. Never rejects; only the log would show its failure. */
  async run(request: InternalRequest): Promise<InternalResult> {
    const { invoker, journal, metrics } = this.#options
    const result = await invokeInternal(invoker, request)
    metrics.functions.count(request.fn, result.status, result.latencyMs, result.queuedMs, isThrottled(result.error))
    if (result.error !== null) journal.callFailed({ ...request, trace: result.trace }, result.error)
    return result
  }

  /** @throws GatewayError as `prepare` does */
  async byName(name: string, request: InvokeRequest): Promise<InvokeResult> {
    const call = this.prepare(name, request)
    return { ...(await this.run(call)), path: call.path, route: call.pattern }
  }

  /**
   * What `run` takes, for a function by its name.
   * @throws GatewayError NOT_FOUND; ROUTE_CONFLICT when several runtimes have that name; BAD_REQUEST for a route or params that are not its own
   */
  prepare(name: string, request: InvokeRequest, { id, ip = '', trace, traceState }: Asker = {}): NamedCall {
    const { discovery, routes } = this.#options.catalog()
    const fn = findFunction(discovery.functions, name, request.version ?? null, request.runtime ?? null)
    const method = request.method ?? fn.policy.methods[0] ?? 'GET'
    return {
      fn,
      id: id ?? this.#options.requestIds.next(),
      method,
      ...toTarget(routes, fn, method, request),
      query: request.query ?? {},
      headers: request.headers ?? {},
      body: request.body ?? null,
      user: request.context ?? null,
      ip,
      trace: trace ?? null,
      traceState: traceState ?? null,
      ...(request.signal !== undefined && { signal: request.signal }),
    }
  }

  /** Keeps a function warm. Never rejects. */
  ping(fn: FunctionVersion): Promise<PingOutcome> {
    return ping(request => this.run(request), this.#options.requestIds, fn)
  }
}

/** The path of a call by name: that of the route that was asked for, else that of the function's own name. */
function toTarget(
  routes: RouteTable,
  fn: FunctionVersion,
  method: string,
  { route = null, params = null, headers = {} }: InvokeRequest,
): Pick<NamedCall, 'path' | 'params' | 'pattern'> {
  if (route === null && params === null) return { path: toFunctionPath(fn.name, fn.version), params: {}, pattern: null }
  const host = Object.entries(headers).find(([name]) => name.toLowerCase() === 'host')?.[1] ?? ''
  return findCallRoute(routes, fn, { method, route, params: params ?? {}, host })
}
