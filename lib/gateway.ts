/**
 * The composition: builds every part once, in order, and takes them down again. Spec: §1.
 *
 *   settings ─► catalog ─► runtimes ─► invoker ─► public handler ─► listen
 *                  ▲ reload: a new catalog beside the old one, then one reference is swapped
 */

import { randomBytes } from 'node:crypto'
import { readFileSync, statSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join } from 'node:path'
import { type Catalog, CatalogLoader } from './catalog.ts'
import { loadSettings } from './config/project-file.ts'
import {
  type Problem,
  resolveSettings,
  type SettingSource,
  type Settings,
  type SettingsInput,
} from './config/settings.ts'
import { CONTROL_PATHS, ControlPlane } from './control/control-plane.ts'
import { type GatewayState, toCatalogRecord, toHealthRecord } from './control/records.ts'
import type { FunctionVersion } from './core/catalog.ts'
import { type Clock, systemClock, WallTime } from './core/clock.ts'
import { GatewayError, type Warning } from './core/errors.ts'
import { toFunctionKey } from './core/identity.ts'
import { TREE_RETRY_MS } from './core/limits.ts'
import { keepTickShape } from './core/tick-shape.ts'
import { DEFAULT_VERSION_LABEL, toVersionPath } from './core/versions.ts'
import { explainIgnored } from './discovery/explain.ts'
import { type Builds, createBuilds } from './dependencies/resolve.ts'
import { type Watcher, watchTree } from './discovery/watch.ts'
import { DebugHeaders } from './http/debug-headers.ts'
import type { HttpRequest, HttpResponse, Step } from './http/exchange.ts'
import { fetchWith } from './http/fetch.ts'
import { toHomeSteps } from './http/home.ts'
import { type InjectRequest, type InjectResponse, inject } from './http/inject.ts'
import { createOpenApiStep } from './http/openapi-step.ts'
import { PublicHandler } from './http/public.ts'
import { toRequestRecord } from './http/request-record.ts'
import { Responder } from './http/respond.ts'
import { HttpServer, type Listening } from './http/server.ts'
import { isAsset, toAssetSteps } from './assets/static-assets.ts'
import { TrustedProxies } from './invocation/client-address.ts'
import { EdgeProxy } from './edge/passthrough.ts'
import { toStaticContext } from './invocation/event.ts'
import { type InternalResult, invokeInternal } from './invocation/internal-call.ts'
import { Invoker } from './invocation/invoke.ts'
import { RequestIds } from './invocation/request-ids.ts'
import { WorkerPool } from './invocation/admission.ts'
import { AccessLogFormat } from './observe/access-log.ts'
import { type EventName, GatewayEvents, type Listener } from './observe/events.ts'
import { LogStore } from './observe/log-store.ts'
import { OutputBudget } from './observe/output-budget.ts'
import { type Explanation, explain } from './router/explain.ts'
import { findProgram } from './runtime/binaries.ts'
import { createLuaRuntime } from './runtime/lua-runtime.ts'
import { runtimeFile } from './runtime/package-files.ts'
import { toDocumentedRoutes } from './router/records.ts'
import type { RouteTable } from './router/route-table.ts'
import { Runtimes } from './runtime/runtimes.ts'
import { KeepWarm, type PingOutcome, pingMethod } from './scheduler/keep-warm.ts'

export interface GatewayOptions extends SettingsInput {
  /** Variables to read settings from; none by default, `process.env` on the command line. */
  env?: Readonly<Record<string, string | undefined>>
  /** Reads the project file and env files: the one named, or with `explicit: null` the one found. None is read by default. */
  project?: { explicit: string | null } | null
  /** Full path that relative paths start from; the working directory by default. */
  cwd?: string
  /** Writes logs to `<functionsRoot>/.svc/logs`; false keeps the newest lines in memory. */
  logFiles?: boolean
  clock?: Clock
  /** Reads the tree and starts no runtime: for looking at routes. Calls then answer 503. */
  inspect?: boolean
  /** Parsed command-line flags by setting name; stronger than the environment. */
  flags?: Readonly<Record<string, unknown>>
  /** Replaces defaults: the command line serves development with hot reload. */
  defaults?: Readonly<Record<string, unknown>>
}

export interface InvokeRequest {
  version?: string | null
  runtime?: string
  method?: string
  query?: Readonly<Record<string, unknown>>
  headers?: Readonly<Record<string, string>>
  body?: string | Buffer | null
  /** Becomes `event.context.user`. */
  context?: Readonly<Record<string, unknown>> | null
  /** Stops the call, wherever it is; the result then has status 0. */
  signal?: AbortSignal
}

/** Who answers a request, who lost and why, and which files might have been meant and are not used. */
export type GatewayExplanation = Explanation & ReturnType<typeof explainIgnored>

export interface Gateway extends AsyncDisposable {
  readonly settings: Settings
  /** Where each setting comes from. */
  readonly sources: Readonly<Record<string, SettingSource>>
  /** Problems of settings, tree and programs that do not keep the gateway from serving. */
  readonly warnings: readonly Warning[]
  /** Serves HTTP. @throws ListenError */
  listen(address?: { port?: number; host?: string }): Promise<Listening>
  /** Serves one request of a host application; `next` gets what has no route here. */
  handle(req: IncomingMessage, res: ServerResponse, next?: () => void): void
  /** Serves a web request. */
  fetch(request: Request): Promise<Response>
  /** Serves a request without a port. */
  inject(request: InjectRequest | string): Promise<InjectResponse>
  /** Runs a function by name through the same admission as HTTP. @throws GatewayError NOT_FOUND, ROUTE_CONFLICT */
  invoke(name: string, request?: InvokeRequest): Promise<InternalResult>
  /** Reads the tree again; resolves when the new catalog is in force. */
  reload(): Promise<void>
  /** As `GET /_fn/catalog`. */
  catalog(): Record<string, unknown>
  /** As `GET /_fn/health`. */
  health(): Record<string, unknown>
  /** Who answers a request and who lost. */
  explain(method: string, path: string, host?: string): GatewayExplanation
  /** Listens to `request reload warning log schedule`. @returns a function that stops listening */
  on<Name extends EventName>(name: Name, listener: Listener<Name>): () => void
  /** Stops accepting, finishes what runs up to the limit, ends every process. Later calls get the same promise. */
  close(options?: { timeoutMs?: number }): Promise<void>
}

/** Settings that break their rules; every problem is in `problems` and in the message. */
export class SettingsError extends Error {
  readonly problems: readonly Problem[]
  constructor(problems: readonly Problem[]) {
    super(problems.map(problem => problem.message).join('\n'))
    this.name = 'SettingsError'
    this.problems = problems
  }
}

/**
 * Builds a gateway: reads the tree, starts the runtimes that have functions. Nothing global is touched, nothing printed.
 * @throws SettingsError with every problem at once
 */
export async function createGateway(options: GatewayOptions = {}): Promise<Gateway> {
  keepTickShape()
  const {
    env = {},
    project = null,
    cwd = process.cwd(),
    logFiles = false,
    inspect = false,
    clock,
    flags = {},
    defaults,
    ...given
  } = options
  const inputs = { options: given, env, cwd, flags, defaults: { hotReload: false, ...defaults } }
  const resolved = project === null ? resolveSettings(inputs) : loadSettings({ ...inputs, explicit: project.explicit })
  const problems = [...resolved.problems, ...checkRoot(resolved)]
  if (problems.length > 0) throw new SettingsError(problems)
  const gateway = new FunctionGateway(resolved, clock ?? systemClock, logFiles, env)
  await gateway.start(inspect)
  return gateway
}

/** The path a call without a route shows to its handler. */
function toFunctionPath({ name, version }: FunctionVersion): string {
  return version === null ? `/${name}` : toVersionPath(name, version)
}

/** Files this process may have open; null where the system does not tell. */
function readDescriptorLimit(): number | null {
  try {
    const limit = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1'))?.[1]
    return limit === undefined ? null : Number(limit)
  } catch {
    return null
  }
}

/** A mistyped folder is refused; one that goes away later is waited for. */
function checkRoot({ settings, sources }: ResolvedParts): Problem[] {
  const { functionsRoot } = settings
  if (statSync(functionsRoot, { throwIfNoEntry: false })?.isDirectory() === true) return []
  const { source, name } = sources.functionsRoot ?? { source: 'default', name: 'functions root' }
  const rule = 'a folder that exists'
  const value = `${JSON.stringify(functionsRoot)} (string)`
  const hint = 'make the folder, or name the one that holds the handler files'
  return [
    {
      code: 'CONFIG_VALUE',
      file: null,
      name,
      rule,
      value,
      message: `${name} must be ${rule}, got ${value}`,
      hint,
      source,
    },
  ]
}

interface ResolvedParts {
  settings: Settings
  sources: Readonly<Record<string, SettingSource>>
  warnings: readonly Warning[]
}

class FunctionGateway implements Gateway {
  readonly settings: Settings
  readonly sources: Readonly<Record<string, SettingSource>>
  readonly #clock: Clock
  readonly #settingWarnings: readonly Warning[]
  readonly #events: GatewayEvents
  readonly #logs: LogStore
  readonly #outputBudget: OutputBudget
  readonly #pool: WorkerPool
  readonly #builds: Builds
  readonly #runtimes: Runtimes
  readonly #edge: EdgeProxy
  readonly #invoker: Invoker
  readonly #ids = new RequestIds(randomBytes(6).toString('hex'))
  readonly #public: PublicHandler
  readonly #loader: CatalogLoader
  readonly #keepWarm: KeepWarm
  readonly #lifecycle = { draining: false }
  readonly #configLoadedAt: number
  #catalog!: Catalog
  #runtimeWarnings: readonly Warning[] = []
  #known = new Set<string>()
  #watcher: Watcher | null = null
  #server: HttpServer | null = null
  #listening: Listening | null = null
  #reloading: Promise<void> | null = null
  #waiting: { changed: Set<string> | null; done: Promise<void> } | null = null
  #closing: Promise<void> | null = null
  /** Set while the tree waits to be read again. */
  #retryTimer: NodeJS.Timeout | null = null

  constructor(
    resolved: ResolvedParts,
    clock: Clock,
    logFiles: boolean,
    env: Readonly<Record<string, string | undefined>>,
  ) {
    const { settings } = resolved
    this.settings = settings
    this.sources = resolved.sources
    this.#settingWarnings = resolved.warnings
    this.#clock = clock
    this.#configLoadedAt = clock.wall()
    this.#events = new GatewayEvents((name, error) =>
      this.#log('error', `listener of "${name}" threw: ${String(error)}`),
    )
    this.#logs = new LogStore({
      clock,
      directory: logFiles ? join(settings.functionsRoot, '.svc', 'logs') : null,
      onProblem: message => this.#emitLog('warn', message),
    })
    this.#outputBudget = new OutputBudget(clock)
    this.#pool = new WorkerPool(clock)
    const hostEnv = { ...process.env, ...env }
    this.#builds = createBuilds({
      clock,
      functionsRoot: settings.functionsRoot,
      goBuildTimeoutSeconds: settings.goBuildTimeoutSeconds,
      hostEnv,
      workerFolder: runtime => runtimeFile(`${runtime}/worker`),
      findProgram: runtime => findProgram(runtime, settings.binaries, hostEnv.PATH ?? ''),
      onBuilt: (fn, durationMs) => this.#log('info', `built ${fn.key} in ${(durationMs / 1000).toFixed(1)} s`),
      onFailure: (fn, error) => this.#failure(fn, error),
    })
    this.#runtimes = new Runtimes({
      settings,
      clock,
      hostEnv,
      toContext: fn => toStaticContext(fn, process.pid),
      toPackDirs: () => [],
      preparerOf: name => (name === 'go' || name === 'rust' ? this.#builds : null),
      createLua: () =>
        createLuaRuntime({
          clock,
          workerMemoryMb: settings.workerMemoryMb,
          functionsRoot: settings.functionsRoot,
          production: settings.production,
          toContext: fn => toStaticContext(fn, process.pid),
          toPackDirs: () => [],
          onLog: (fn, stream, text) => this.#output(fn, stream, text),
          onFailure: (fn, error) => this.#failure(fn, error),
        }),
      onLog: (fn, stream, text) => this.#output(fn, stream, text),
      onFailure: (fn, error) => this.#failure(fn, error),
      onEvent: event =>
        this.#log(event.kind === 'up' ? 'debug' : 'warn', `${event.runtime} daemon ${event.index}: ${event.text}`),
    })
    this.#edge = new EdgeProxy({ clock, listening: () => (this.#listening === null ? [] : [this.#listening]) })
    this.#invoker = new Invoker({
      clock,
      runtimes: this.#runtimes.byName,
      pool: this.#pool,
      edge: this.#edge.handle,
      onLog: (call, stream, text) => this.#output(call.fn, stream, text, call.id),
    })
    this.#keepWarm = new KeepWarm({
      clock,
      tickMs: settings.schedulerIntervalSeconds * 1000,
      functions: () => this.#catalog.functions,
      ping: fn => this.#ping(fn),
    })
    const responder = new Responder({
      clock,
      production: settings.production,
      lifecycle: this.#lifecycle,
      onFinished: this.#toRequestListener(),
    })
    const proxies = new TrustedProxies(settings.trustedProxyCidrs)
    const control = new ControlPlane({
      settings,
      responder,
      state: details => this.#state(details),
      keepWarm: () => this.#keepWarm.rows(),
      reload: () => this.reload(),
      isTrustedProxy: address => proxies.isTrusted(address),
      now: () => clock.wall(),
    })
    this.#public = new PublicHandler({
      clock,
      invoker: this.#invoker,
      responder,
      requestIds: this.#ids,
      debug: new DebugHeaders(call => ({
        routing: this.#runtimes.byName.get(call.fn.runtime)?.health().routing ?? 'single',
        socketIndex: call.worker?.socketIndex ?? null,
        cold: call.cold,
      })),
      trustedProxyCidrs: settings.trustedProxyCidrs,
      catalog: () => this.#catalog,
      control: control.handle,
    })
    this.#loader = new CatalogLoader({
      rootPath: settings.functionsRoot,
      runtimes: settings.runtimes,
      namespaceDepth: settings.namespaceDepth,
      forceUrl: settings.forceUrl,
      defaults: {
        defaultTimeoutMs: settings.defaultTimeoutMs,
        defaultMaxConcurrency: settings.defaultMaxConcurrency,
        defaultMaxBodyBytes: settings.defaultMaxBodyBytes,
      },
      now: () => clock.wall(),
      steps: ({ homes, assets, functions }, routes) => {
        const { homeFunction, homeRedirect } = settings
        const home = toHomeSteps({ homes, homeFunction, homeRedirect, routes, isAsset: path => isAsset(path, assets) })
        const files = toAssetSteps(assets, routes, clock)
        const openApi = settings.docsEnabled ? [this.#toOpenApiStep(functions, routes)] : []
        return { before: [...openApi, ...home.before, ...files.before], after: files.after, warnings: home.warnings }
      },
    })
  }

  /** Reads the tree and starts what it needs. */
  async start(inspect: boolean): Promise<void> {
    await this.#logs.open()
    await this.#load(null, 'start', inspect)
    if (inspect) return
    await this.#runtimes.start()
    if (this.settings.schedulerEnabled) {
      this.#keepWarm.tick()
      this.#keepWarm.start()
    }
    if (!this.settings.hotReload || this.#closing !== null) return
    this.#watch()
    await this.#watcher?.ready
    // What was saved between the first look and the first watch.
    await this.#reload(null, 'watch')
  }

  get warnings(): readonly Warning[] {
    return [...this.#settingWarnings, ...this.#runtimeWarnings, ...this.#catalog.warnings]
  }

  async listen(address: { port?: number; host?: string } = {}): Promise<Listening> {
    if (this.#closing !== null) throw new GatewayError('SHUTTING_DOWN', 'gateway is closed')
    if (this.#server !== null) throw new GatewayError('INTERNAL', 'gateway is already listening')
    const server = new HttpServer({
      handle: this.#public.handle,
      clock: this.#clock,
      requestIds: this.#ids,
      lifecycle: this.#lifecycle,
      onProblem: message => this.#log('warn', message),
      descriptorLimit: readDescriptorLimit(),
    })
    this.#server = server
    try {
      this.#listening = await server.listen(address.port ?? this.settings.port, address.host ?? this.settings.host)
      return this.#listening
    } catch (error) {
      this.#server = null
      throw error
    }
  }

  readonly handle = (req: IncomingMessage, res: ServerResponse, next?: () => void): void => {
    if (this.#refusesNew(res)) return
    this.#public.handle(req as HttpRequest, res as HttpResponse, false, next ?? null)
  }

  async fetch(request: Request): Promise<Response> {
    this.#assertOpen()
    return fetchWith(this.#public.handle, request)
  }

  async inject(request: InjectRequest | string): Promise<InjectResponse> {
    this.#assertOpen()
    return inject(this.#public.handle, typeof request === 'string' ? { url: request } : request)
  }

  async invoke(name: string, request: InvokeRequest = {}): Promise<InternalResult> {
    this.#assertOpen()
    const fn = this.#findFunction(name, request.version ?? null, request.runtime ?? null)
    return invokeInternal(this.#invoker, {
      fn,
      id: this.#ids.next(),
      method: request.method ?? fn.policy.methods[0] ?? 'GET',
      path: toFunctionPath(fn),
      query: request.query ?? {},
      headers: request.headers ?? {},
      body: request.body ?? null,
      user: request.context ?? null,
      ...(request.signal !== undefined && { signal: request.signal }),
    })
  }

  reload(): Promise<void> {
    return this.#reload(null, 'api')
  }

  catalog(): Record<string, unknown> {
    return toCatalogRecord(this.#state(true))
  }

  health(): Record<string, unknown> {
    return toHealthRecord(this.#state(true)).body
  }

  explain(method: string, path: string, host = ''): GatewayExplanation {
    const { routes, discovery } = this.#catalog
    return { ...explain(routes, method, path, host), ...explainIgnored(discovery, path) }
  }

  on<Name extends EventName>(name: Name, listener: Listener<Name>): () => void {
    return this.#events.on(name, listener)
  }

  close({ timeoutMs = this.settings.shutdownTimeoutMs }: { timeoutMs?: number } = {}): Promise<void> {
    this.#closing ??= this.#close(timeoutMs)
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #close(timeoutMs: number): Promise<void> {
    const deadline = this.#clock.monotonic() + timeoutMs
    const left = (): number => Math.max(0, deadline - this.#clock.monotonic())
    this.#lifecycle.draining = true
    this.#watcher?.close()
    if (this.#retryTimer !== null) this.#clock.clearTimeout(this.#retryTimer)
    this.#keepWarm.stop()
    await this.#server?.close(timeoutMs)
    await this.#reloading?.catch(() => {})
    await this.#builds.close()
    await this.#runtimes.close(left())
    await this.#edge.close(left())
    await this.#logs.close()
  }

  #assertOpen(): void {
    if (this.#closing !== null) throw new GatewayError('SHUTTING_DOWN', 'gateway is closed')
  }

  /** A host application may still pass requests on after close. */
  #refusesNew(res: ServerResponse): boolean {
    if (this.#closing === null) return false
    res.writeHead(503, { 'Content-Type': 'application/json', 'Retry-After': '1', Connection: 'close' })
    res.end('{"error":"gateway is shutting down"}')
    return true
  }

  #toOpenApiStep(functions: readonly FunctionVersion[], routes: RouteTable): Step {
    return createOpenApiStep({
      functions,
      routes: () => toDocumentedRoutes(routes),
      publicBaseUrl: this.settings.publicBaseUrl,
      internal: this.settings.openapiIncludeInternal ? CONTROL_PATHS : [],
    })
  }

  async #ping(fn: FunctionVersion): Promise<PingOutcome> {
    const { status, error } = await invokeInternal(this.#invoker, {
      fn,
      id: this.#ids.next(),
      method: pingMethod(fn),
      path: toFunctionPath(fn),
      query: { __fn_keep_warm: '1' },
      headers: { 'x-fn-trigger': 'keep_warm', 'user-agent': 'fngw-keep-warm' },
      trigger: { type: 'keep_warm' },
    })
    return { status, error: error?.message ?? null }
  }

  #findFunction(name: string, version: string | null, runtime: string | null): FunctionVersion {
    const found = this.#catalog.discovery.functions.filter(
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
    if (found[0] === undefined) throw new GatewayError('NOT_FOUND', 'unknown function or version')
    return found[0]
  }

  #watch(): void {
    this.#watcher = watchTree({
      rootPath: this.settings.functionsRoot,
      onChange: paths => this.#reloadQuietly(paths, 'watch'),
      onWarning: warning => this.#warn(warning),
      excluded: () => this.#loader.excluded,
    })
  }

  /** A reload that nobody waits for: what was in force stays when it fails. */
  #reloadQuietly(changed: ReadonlySet<string> | null, cause: string): Promise<void> {
    return this.#reload(changed, cause).catch(error => this.#log('error', `reload failed: ${String(error)}`))
  }

  /** One reload at a time; those asked for meanwhile are one more after it. */
  #reload(changed: ReadonlySet<string> | null, cause: string): Promise<void> {
    if (this.#closing !== null) return Promise.resolve()
    if (this.#reloading === null) {
      this.#reloading = this.#load(changed, cause).finally(() => {
        this.#reloading = null
      })
      return this.#reloading
    }
    if (this.#waiting !== null) {
      if (changed === null || this.#waiting.changed === null) this.#waiting.changed = null
      else for (const path of changed) this.#waiting.changed.add(path)
      return this.#waiting.done
    }
    const waiting = { changed: changed === null ? null : new Set(changed), done: Promise.resolve() }
    const next = () => {
      this.#waiting = null
      return this.#reload(waiting.changed, cause)
    }
    waiting.done = this.#reloading.then(next, next)
    this.#waiting = waiting
    return waiting.done
  }

  async #load(changed: ReadonlySet<string> | null, cause: string, inspect = false): Promise<void> {
    const startedAt = this.#clock.monotonic()
    const catalog = await this.#loader.load(changed)
    this.#catalog = catalog
    if (!catalog.isRead && !inspect) this.#retryLoad()
    this.#pool.adopt(catalog.functions)
    this.#builds.retain(catalog.functions)
    if (!inspect) this.#runtimeWarnings = this.#runtimes.retain(catalog.functions)
    const known = new Set<string>()
    for (const warning of this.warnings) {
      const text = `${warning.code} ${warning.message}`
      known.add(text)
      if (!this.#known.has(text)) this.#warn(warning)
    }
    this.#known = known
    this.#events.emit('reload', {
      time: this.#clock.wall(),
      cause,
      functions: catalog.functions.size,
      routes: catalog.routes.leaves.length,
      warnings: this.warnings.length,
      durationMs: this.#clock.monotonic() - startedAt,
    })
  }

  #retryLoad(): void {
    if (this.#retryTimer !== null || this.#closing !== null) return
    this.#retryTimer = this.#clock.setTimeout(() => {
      this.#retryTimer = null
      void this.#reloadQuietly(null, 'retry')
    }, TREE_RETRY_MS)
    this.#retryTimer.unref?.()
  }

  #state(details: boolean): GatewayState {
    const catalog = this.#catalog
    return {
      settings: this.settings,
      functions: catalog.discovery.functions,
      routes: catalog.records(),
      warnings: this.warnings,
      ignored: catalog.discovery.ignored,
      runtimes: this.#runtimes.byName,
      admission: this.#pool.snapshot(),
      configLoadedAt: this.#configLoadedAt,
      catalogGeneratedAt: catalog.generatedAt,
      watching: this.#watcher !== null,
      details,
    }
  }

  #toRequestListener(): ConstructorParameters<typeof Responder>[0]['onFinished'] {
    const format = new AccessLogFormat()
    const wall = new WallTime(this.#clock)
    const { accessLog } = this.settings
    return exchange => {
      const isListened = this.#events.has('request')
      if (!accessLog && !isListened) return
      const now = exchange.answeredAt || this.#clock.monotonic()
      const record = toRequestRecord(exchange, wall.at(now), now)
      if (accessLog) this.#logs.access(format, record)
      if (isListened) this.#events.emit('request', record)
    }
  }

  #output(fn: FunctionVersion, stream: 'stdout' | 'stderr', written: string, requestId?: string): void {
    const text = this.#outputBudget.take(fn.key, written)
    if (text === '') return
    const version = fn.version ?? DEFAULT_VERSION_LABEL
    this.#logs.output({ runtime: fn.runtime, fn: fn.name, version, stream, text })
    if (!this.#events.has('log')) return
    this.#events.emit('log', {
      time: this.#clock.wall(),
      level: stream === 'stderr' ? 'warn' : 'info',
      message: text,
      runtime: fn.runtime,
      fn: fn.name,
      version,
      stream,
      ...(requestId !== undefined && { requestId }),
    })
  }

  #failure(fn: FunctionVersion, error: GatewayError): void {
    const { file, line, hint } = error.detail ?? {}
    const where = file === undefined ? fn.entryFile : line === undefined ? file : `${file}:${line}`
    this.#log('error', `${fn.key}: ${where}: ${error.message}${hint === undefined ? '' : ` (${hint})`}`)
  }

  #warn(warning: Warning): void {
    this.#logs.error('warn', `${warning.code} ${warning.message} (${warning.hint})`)
    this.#events.emit('warning', warning)
  }

  #log(level: 'debug' | 'info' | 'warn' | 'error', message: string): void {
    if (level !== 'debug') this.#logs.error(level, message)
    this.#emitLog(level, message)
  }

  #emitLog(level: 'debug' | 'info' | 'warn' | 'error', message: string): void {
    this.#events.emit('log', { time: this.#clock.wall(), level, message })
  }
}
