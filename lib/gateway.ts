/**
 * The composition: builds every part once, in order, and takes them down again. Spec: §1.
 *
 *   settings ─► catalog ─► runtimes ─► invoker ─► public handler ─► listen
 *                  ▲ reload: a new catalog beside the old one, then one reference is swapped
 */

import { type CallParts, createCallParts } from './call-parts.ts'
import type { Catalog, CatalogLoader } from './catalog-loader.ts'
import type { ResolvedSettings, SettingSource, Settings } from './config/settings.ts'
import { toAccessWarnings } from './control/access.ts'
import { type ControlParts, createControlParts } from './control-parts.ts'
import { toEndpointPaths } from './control/endpoint-table.ts'
import { OpenStreams } from './control/open-streams.ts'
import { type GatewayState, toCatalogRecord, toHealthRecord } from './control/records.ts'
import { GatewayError, type Warning } from './core/errors.ts'
import type { Lifecycle } from './core/transitions.ts'
import { Descriptors, keepTickShape, readDescriptorLimit } from './core/host.ts'
import type { Dependencies } from './dependencies/dependencies.ts'
import { SharedPacks } from './dependencies/shared-packs.ts'
import { LoadedFiles } from './discovery/loaded-files.ts'
import { explainRequest } from './gateway-explain.ts'
import { type Host, readGatewayInputs } from './gateway-inputs.ts'
import { countdown, pause, startOrClose } from './gateway-life.ts'
import { toGatewayState } from './gateway-state.ts'
import type {
  CloseOptions,
  Gateway,
  GatewayExplanation,
  GatewayOptions,
  InvokeRequest,
  InvokeResult,
} from './gateway-types.ts'
import { createHttpHandlers } from './http-handlers.ts'
import type { HttpRequest, HttpResponse } from './http/exchange.ts'
import { fetchWith, inject, type InjectRequest, type InjectResponse, toWebRequest } from './http/inject.ts'
import { unwrap } from './http/body.ts'
import type { PublicHandler } from './http/public.ts'
import { refuseRequest } from './http/respond.ts'
import type { EventName, LinesTaker, Listener } from './observe/events.ts'
import type { Jobs } from './jobs/jobs.ts'
import { createJobs } from './jobs-parts.ts'
import { OwnFolder } from './files/own-folder.ts'
import { RootLock } from './files/root-lock.ts'
import { Journal } from './observe/journal.ts'
import { findSpans } from './observe/trace.ts'
import { type GatewayListening, type ListenAddress, Listeners, STOPPING } from './listeners.ts'
import type { Processes } from './processes/processes.ts'
import { createProcesses } from './processes-parts.ts'
import { createCatalogLoader, createReloader } from './reload-parts.ts'
import type { Changed, Reloader } from './reloader.ts'
import { createRuntimeParts } from './runtime-parts.ts'
import { createSchemaParts } from './schema-parts.ts'
import type { Runtimes } from './runtime/runtimes.ts'
import type { Scheduler } from './scheduler/scheduler.ts'
import { createScheduler } from './scheduler-parts.ts'

/**
 * Builds a gateway: reads the tree, starts the runtimes that have functions. It prints nothing, sets no signal handler and
 * no variable, and shares nothing with other gateways of the process but one small object kept for speed (`keepTickShape`).
 * @throws SettingsError with every problem at once
 */
export async function createGateway(options: GatewayOptions = {}): Promise<Gateway> {
  keepTickShape()
  const { resolved, host } = readGatewayInputs(options)
  const gateway = new FunctionGateway(resolved, host)
  await startOrClose(gateway, options.beforeStart)
  return gateway
}

class FunctionGateway implements Gateway {
  readonly settings: Settings
  readonly sources: Readonly<Record<string, SettingSource>>
  readonly #host: Host
  readonly #settingWarnings: readonly Warning[]
  readonly #journal: Journal
  readonly dependencies: Dependencies
  readonly #runtimes: Runtimes
  readonly #lock: RootLock
  readonly jobs: Jobs
  readonly #scheduler: Scheduler
  readonly #call: CallParts
  readonly #public: PublicHandler
  readonly #listeners: Listeners
  readonly #loader: CatalogLoader
  readonly #reloader: Reloader
  readonly #createProcesses: () => Promise<Processes | null>
  /** Null where this is the only process. */
  #processes: Processes | null = null
  readonly #packs: SharedPacks
  /** Null where nobody edits the files. */
  readonly #loaded: LoadedFiles | null
  readonly #controlParts: ControlParts
  readonly #lifecycle: Lifecycle = { starting: true, draining: false }
  readonly #configLoadedAt: number
  #catalog!: Catalog
  #logWarnings: readonly Warning[] = []
  #runtimeWarnings: readonly Warning[] = []
  #closing: Promise<void> | null = null

  constructor({ settings, sources, warnings, configFile }: ResolvedSettings, host: Host) {
    const { clock } = host
    this.settings = settings
    this.sources = sources
    this.#host = host
    this.#settingWarnings = [...warnings, ...toAccessWarnings(settings)]
    this.#configLoadedAt = clock.wall()
    const functionsRoot = settings.logFiles ? settings.functionsRoot : null
    this.#journal = new Journal({ clock, functionsRoot, accessLog: settings.accessLog })
    this.#packs = new SharedPacks(settings.functionsRoot)
    this.#loaded = settings.hotReload ? new LoadedFiles(settings.functionsRoot) : null
    const parts = createRuntimeParts({
      ...host,
      settings,
      journal: this.#journal,
      packs: this.#packs,
      loaded: this.#loaded,
      snapshot: () => this.#catalog.snapshot,
    })
    this.dependencies = parts.dependencies
    this.#runtimes = parts.runtimes
    const schemas = createSchemaParts(settings, this.#journal)
    const descriptors = new Descriptors(readDescriptorLimit())
    this.#call = createCallParts({
      descriptors,
      sharesOrigin: settings.controlPort === null,
      clock,
      journal: this.#journal,
      runtimes: this.#runtimes,
      schemas: schemas.gate,
      listening: () => this.#listeners.all,
      catalog: () => this.#catalog,
    })
    this.#lock = new RootLock(new OwnFolder(settings.functionsRoot, '.svc'), clock)
    this.#lock.onReplaced(holder => {
      const outcome =
        holder === null ? 'jobs and schedules are written there again' : 'another gateway has the folder now'
      this.#journal.log('warn', `.svc was deleted or moved while the gateway ran: ${outcome}`)
    })
    const kept = { settings, journal: this.#journal, lock: this.#lock, catalog: () => this.#catalog }
    const later = { ...host, ...this.#call, ...kept, lifecycle: this.#lifecycle }
    this.jobs = createJobs(later)
    this.#scheduler = createScheduler(later)
    this.#controlParts = createControlParts({
      ...later,
      sources,
      configFile,
      streams: new OpenStreams(),
      jobs: this.jobs,
      state: details => this.#state(details),
      runtimes: this.#runtimes.byName,
      dispatcher: this.#runtimes.dispatcher,
      scheduler: this.#scheduler,
      reload: () => this.reload(),
      processes: () => this.#processes,
      packs: this.#packs,
      dependencies: this.dependencies,
      explain: (method, path, host) => this.explain(method, path, host),
    })
    const handlers = createHttpHandlers({
      ...later,
      runtimes: this.#runtimes,
      descriptors,
      controlParts: this.#controlParts,
    })
    this.#public = handlers.public
    this.#listeners = new Listeners({
      public: handlers.public.handle,
      control: handlers.control?.handle ?? null,
      clock,
      requestIds: this.#call.requestIds,
      lifecycle: this.#lifecycle,
      onProblem: message => this.#journal.log('warn', message),
      descriptors,
    })
    this.#loader = createCatalogLoader({
      ...host,
      settings,
      loaded: this.#loaded,
      controlPaths: toEndpointPaths(this.#controlParts.endpoints),
      schemas: schemas.store,
    })
    this.#reloader = createReloader({
      ...host,
      settings,
      journal: this.#journal,
      metrics: this.#call.metrics,
      loaded: this.#loaded,
      load: (changed, cause) => this.#load(changed, cause),
      snapshot: () => this.#loader.snapshot,
    })
    this.#createProcesses = () =>
      createProcesses({
        ...later,
        runtimes: this.#runtimes,
        controlParts: this.#controlParts,
        public: handlers.public,
        listeners: this.#listeners,
      })
  }

  /** Reads the tree and starts what it needs. */
  async start(): Promise<void> {
    this.#call.invoker.spans = await findSpans()
    this.#logWarnings = await this.#journal.open()
    this.#processes = await this.#createProcesses()
    await this.#reloader.reload(null, 'start')
    if (!this.#host.inspect) {
      await this.#runtimes.start()
      await this.jobs.start()
      await this.#scheduler.start()
      if (this.settings.hotReload) await this.#reloader.watch()
    }
    this.#lifecycle.starting = false
    this.#listeners.open()
    this.#processes?.open(this.#listeners.descriptors)
  }

  /** Reads the tree and puts it in force; false when not all of it could be read. */
  async #load(changed: Changed, cause: string): Promise<boolean> {
    const { clock } = this.#host
    const startedAt = clock.monotonic()
    const catalog = await this.#loader.load(changed)
    this.#catalog = catalog
    this.#call.admission.adopt(catalog.functions)
    this.#scheduler.adopt(catalog.functions)
    this.#call.metrics.functions.adopt(catalog.functions)
    this.#loaded?.adopt(catalog.functions)
    this.dependencies.retain(catalog.functions)
    this.#runtimeWarnings = this.#runtimes.retain(catalog.functions)
    if (this.#processes !== null) await this.#processes.adopt(catalog.discovery)
    this.#journal.warnNew(this.warnings)
    this.#journal.reloaded({
      time: clock.wall(),
      cause,
      functions: catalog.functions.size,
      routes: catalog.routes.leaves.length,
      warnings: this.warnings.length,
      durationMs: clock.monotonic() - startedAt,
    })
    return catalog.isRead
  }

  get warnings(): readonly Warning[] {
    const own = [...this.#settingWarnings, ...this.#logWarnings, ...this.#runtimeWarnings]
    return [...own, ...this.jobs.warnings, ...this.#scheduler.warnings, ...this.#catalog.warnings]
  }

  async listen(address: ListenAddress = {}): Promise<GatewayListening> {
    this.#assertOpen()
    const listening = await this.#listeners.listen(this.settings, address)
    if (!this.#lifecycle.starting) this.#processes?.open(this.#listeners.descriptors)
    return listening
  }

  readonly handle: Gateway['handle'] = (request, response, next) => {
    const { req, res } = unwrap(request, response)
    // A host application may still pass requests on after close.
    if (this.#closing === null) this.#public.handle(req as HttpRequest, res as HttpResponse, false, next ?? null)
    else refuseRequest(res as HttpResponse, STOPPING)
  }

  async fetch(request: Request | string | URL, init?: RequestInit): Promise<Response> {
    this.#assertOpen()
    return fetchWith(this.#public.handle, toWebRequest(request, init))
  }

  async inject(request: InjectRequest | string): Promise<InjectResponse> {
    this.#assertOpen()
    return inject(this.#public.handle, typeof request === 'string' ? { url: request } : request)
  }

  async invoke(name: string, request: InvokeRequest = {}): Promise<InvokeResult> {
    this.#assertOpen()
    return this.#call.calls.byName(name, request)
  }

  reload(): Promise<void> {
    return this.#reloader.reload(null, 'api')
  }

  catalog(): Record<string, unknown> {
    return toCatalogRecord(this.#state(true))
  }

  health(): Record<string, unknown> {
    return toHealthRecord(this.#state(true)).body
  }

  explain(method: string, path: string, host = ''): GatewayExplanation {
    return explainRequest(this.#catalog, this.settings, method, path, host)
  }

  on<Name extends EventName>(name: Name, listener: Listener<Name>, takeLines?: LinesTaker): () => void {
    return this.#journal.on(name, listener, takeLines)
  }

  close({ timeoutMs, delayMs }: CloseOptions = {}): Promise<void> {
    const { shutdownTimeoutMs, shutdownDelayMs } = this.settings
    this.#closing ??= this.#close(timeoutMs ?? shutdownTimeoutMs, delayMs ?? shutdownDelayMs)
    return this.#closing
  }

  readonly [Symbol.asyncDispose] = (): Promise<void> => this.close()
  readonly counts = (): ReturnType<Catalog['counts']> => this.#catalog.counts()

  async #close(timeoutMs: number, delayMs: number): Promise<void> {
    this.#lifecycle.draining = true
    const reloading = this.#reloader.close()
    this.#scheduler.stop()
    this.#processes?.drain()
    await pause(this.#host.clock, delayMs)
    const left = countdown(this.#host.clock, timeoutMs)
    this.#controlParts.close()
    await Promise.all([this.#listeners.close(left()), this.#processes?.close(left())])
    await reloading
    await Promise.all([this.jobs.close(left()), this.#scheduler.close(left())])
    await this.dependencies.close()
    await this.#runtimes.close(left())
    await this.#call.edge.close(left())
    this.#lock.release()
    await this.#journal.close()
  }

  #assertOpen(): void {
    if (this.#closing !== null) throw new GatewayError('SHUTTING_DOWN', 'gateway is closed')
  }

  #state(details: boolean): GatewayState {
    return toGatewayState({
      settings: this.settings,
      catalog: this.#catalog,
      warnings: this.warnings,
      runtimes: this.#runtimes,
      admission: this.#call.admission,
      secrets: this.#journal.secrets,
      configLoadedAt: this.#configLoadedAt,
      watching: this.#reloader.isWatching,
      details,
    })
  }
}
