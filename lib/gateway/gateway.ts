/**
 * A gateway from its start to its end: the parts come from compose.ts. Spec: §1.
 *
 *   start ─► read the tree ─► start runtimes, jobs, scheduler ─► serve ─► close, in the opposite order
 *                ▲ reload: a new catalog beside the old one, then one reference is swapped
 */

import { availableParallelism, loadavg } from 'node:os'
import type { ResolvedSettings, Settings, SettingSource } from '../config/settings.ts'
import { toAccessWarnings } from '../control/access.ts'
import { type GatewayState, toCatalogRecord, toHealthRecord } from '../control/records.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError, type Warning } from '../core/errors.ts'
import { Descriptors, keepTickShape, readDescriptorLimit } from '../core/host.ts'
import { type Dependencies, SharedPacks } from '../dependencies/dependencies.ts'
import { isReadName } from '../discovery/layouts.ts'
import { LoadedFiles } from '../discovery/loaded-files.ts'
import { unwrap } from '../http/body.ts'
import type { HttpRequest, HttpResponse } from '../http/exchange.ts'
import { fetchWith, inject, type InjectRequest, type InjectResponse, toWebRequest } from '../http/inject.ts'
import { refuseRequest } from '../http/respond.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { MemberReport } from '../fleet/members.ts'
import type { JobsPart } from '../jobs/jobs.ts'
import type { EventName, LinesTaker, Listener } from '../observe/events.ts'
import { HISTORY_FORMAT } from '../observe/history-report.ts'
import { Journal } from '../observe/journal.ts'
import { findSpans } from '../observe/trace.ts'
import { Debuggers } from '../runtime/debuggers.ts'
import type { Processes } from '../processes/processes.ts'
import type { Catalog, Changed, InvokeRequest, InvokeResult } from './catalog-loader.ts'
import { type DoctorCheck, examine } from './doctor.ts'
import type { TestProblem, TestRequest, TestRun } from './test-runs.ts'
import { compose, type GatewayContext, type GatewayParts } from './compose.ts'
import { explainRequest } from './explain-request.ts'
import { type GatewayListening, type ListenAddress, STOPPING } from './listeners.ts'
import {
  type CloseOptions,
  type Gateway,
  type GatewayExplanation,
  type GatewayOptions,
  type Host,
  readGatewayInputs,
} from './options.ts'
import { countdown } from './serving.ts'

/**
 * Creates a gateway: reads the tree and starts the runtimes that have functions. It prints nothing and installs no signal handlers.
 * @throws SettingsError with every invalid setting
 */
export async function createGateway(options: GatewayOptions = {}): Promise<Gateway> {
  keepTickShape()
  const { resolved, host } = readGatewayInputs(options)
  const { settings } = resolved
  const isAlone = settings.storeUrl === null || host.inspect || options.isAlone === true
  const open = async (): Promise<Fleet> => {
    const { Fleet } = await import('../fleet/fleet.ts')
    return Fleet.open({ settings, clock: host.clock, isSource: isReadName })
  }
  const fleet = isAlone ? null : await open()
  const gateway = new FunctionGateway(resolved, host, fleet)
  try {
    await options.beforeStart?.(gateway)
    await gateway.start()
  } catch (error) {
    // A start that fails leaves nothing behind.
    await gateway.close({ timeoutMs: 0, delayMs: 0 })
    throw error
  }
  return gateway
}

class FunctionGateway implements Gateway {
  readonly settings: Settings
  readonly sources: Readonly<Record<string, SettingSource>>
  readonly dependencies: Dependencies
  readonly jobs: JobsPart
  readonly #context: GatewayContext
  readonly #parts: GatewayParts
  /** Null where this is the only process. */
  #processes: Processes | null = null
  readonly #configLoadedAt: number
  #catalog!: Catalog
  readonly #settingWarnings: readonly Warning[]
  #logWarnings: readonly Warning[] = []
  #runtimeWarnings: readonly Warning[] = []
  #closing: Promise<void> | null = null

  constructor(resolved: ResolvedSettings, host: Host, fleet: Fleet | null) {
    const { settings, sources, warnings } = resolved
    const { functionsRoot } = settings
    const { clock } = host
    this.settings = settings
    this.sources = sources
    this.#settingWarnings = [...warnings, ...toAccessWarnings(settings)]
    this.#configLoadedAt = clock.wall()
    const journal = new Journal({
      clock,
      functionsRoot: settings.logFiles ? functionsRoot : null,
      accessLog: settings.accessLog,
    })
    this.#context = {
      ...host,
      settings,
      fleet,
      journal,
      packs: new SharedPacks(functionsRoot),
      debuggers: host.debug === null || host.inspect ? null : new Debuggers(host.debug, journal),
      loaded: settings.hotReload ? new LoadedFiles(functionsRoot) : null,
      descriptors: new Descriptors(readDescriptorLimit()),
      lifecycle: { starting: true, draining: false },
      catalog: () => this.#catalog,
    }
    this.#parts = compose(this.#context, resolved, {
      state: details => this.#state(details),
      reload: () => this.reload(),
      explain: (method, path, host) => this.explain(method, path, host),
      doctor: () => this.doctor(),
      processes: () => this.#processes,
      load: (changed, cause) => this.#load(changed, cause),
    })
    fleet?.logTo((level, message) => this.#context.journal.log(level, message))
    this.dependencies = this.#parts.dependencies
    this.jobs = this.#parts.jobs
  }

  /** Reads the tree and starts what it needs. */
  async start(): Promise<void> {
    const { fleet, journal, inspect, lifecycle } = this.#context
    const { calls, runtimes, jobs, scheduler, runs, reloader, listeners, createOthers } = this.#parts
    calls.invoker.spans = await findSpans()
    this.#logWarnings = await journal.open()
    this.#processes = await createOthers()
    await fleet?.follow(() => reloader.reload(null, 'fleet'))
    await reloader.reload(null, 'start')
    if (!inspect) {
      await runtimes.start()
      await fleet?.adoptTree()
      await fleet?.join(() => this.#report())
      await jobs.start()
      runs?.start()
      await scheduler.start()
      if (this.settings.hotReload) await reloader.watch()
    }
    lifecycle.starting = false
    listeners.open()
    this.#processes?.open(listeners.descriptors)
  }

  /** Reads the tree and puts it in force; false when not all of it could be read. */
  async #load(changed: Changed, cause: string): Promise<boolean> {
    const { clock, journal, loaded, fleet } = this.#context
    const { loader, calls, scheduler, dependencies, runtimes } = this.#parts
    const startedAt = clock.monotonic()
    const catalog = await loader.load(changed)
    this.#catalog = catalog
    void fleet?.adoptTree()
    calls.admission.adopt(catalog.functions)
    scheduler.adopt(catalog.functions)
    calls.metrics.functions.adopt(catalog.functions)
    loaded?.adopt(catalog.functions)
    dependencies.retain(catalog.functions)
    this.#runtimeWarnings = runtimes.retain(catalog.functions)
    if (this.#processes !== null) await this.#processes.adopt(catalog.discovery)
    journal.warnNew(this.warnings)
    journal.reloaded({
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
    return [
      ...own,
      ...(this.#context.fleet?.warnings ?? []),
      ...this.jobs.warnings,
      ...this.#parts.scheduler.warnings,
      ...this.#catalog.warnings,
    ]
  }

  async listen(address: ListenAddress = {}): Promise<GatewayListening> {
    this.#assertOpen()
    const { listeners } = this.#parts
    const listening = await listeners.listen(this.settings, address)
    if (!this.#context.lifecycle.starting) this.#processes?.open(listeners.descriptors)
    return listening
  }

  readonly handle: Gateway['handle'] = (request, response, next) => {
    const { req, res } = unwrap(request, response)
    // A host application may still pass requests on after close.
    if (this.#closing === null) this.#parts.public.handle(req as HttpRequest, res as HttpResponse, false, next ?? null)
    else refuseRequest(res as HttpResponse, STOPPING)
  }

  async fetch(request: Request | string | URL, init?: RequestInit): Promise<Response> {
    this.#assertOpen()
    return fetchWith(this.#parts.public.handle, toWebRequest(request, init))
  }

  async inject(request: InjectRequest | string): Promise<InjectResponse> {
    this.#assertOpen()
    return inject(this.#parts.public.handle, typeof request === 'string' ? { url: request } : request)
  }

  async invoke(name: string, request: InvokeRequest = {}): Promise<InvokeResult> {
    this.#assertOpen()
    return this.#parts.calls.calls.byName(name, request)
  }

  reload(): Promise<void> {
    return this.#parts.reloader.reload(null, 'api')
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

  doctor({ loads = false }: { loads?: boolean } = {}): Promise<DoctorCheck[]> {
    const { settings, warnings } = this
    const { runtimes } = this.#parts
    return examine({ settings, warnings, runtimes, host: this.#context, catalog: this.#catalog }, loads)
  }

  async tests(request: TestRequest): Promise<(TestRun | TestProblem)[]> {
    const { settings } = this
    const { hostEnv, packs, journal } = this.#context
    const prepare = async (fn: FunctionVersion): Promise<void> => {
      const [outcome] = await this.dependencies.prepare([fn], () => {})
      if (outcome?.error != null) throw outcome.error
    }
    const { planTests } = await import('./test-runs.ts')
    return planTests({ settings, hostEnv, packs, prepare, secrets: journal.secrets, catalog: this.#catalog }, request)
  }

  on<Name extends EventName>(name: Name, listener: Listener<Name>, takeLines?: LinesTaker): () => void {
    return this.#context.journal.on(name, listener, takeLines)
  }

  close({ timeoutMs, delayMs }: CloseOptions = {}): Promise<void> {
    const { shutdownTimeoutMs, shutdownDelayMs } = this.settings
    this.#closing ??= this.#close(timeoutMs ?? shutdownTimeoutMs, delayMs ?? shutdownDelayMs)
    return this.#closing
  }

  readonly [Symbol.asyncDispose] = (): Promise<void> => this.close()
  readonly counts = (): ReturnType<Catalog['counts']> => this.#catalog.counts()

  async #close(timeoutMs: number, delayMs: number): Promise<void> {
    const { clock, fleet, journal, lifecycle, debuggers } = this.#context
    const { calls, dependencies, runtimes, lock, jobs, scheduler, runs, control, listeners, reloader } = this.#parts
    lifecycle.draining = true
    // Code that a debugger has stopped goes on, and its request ends.
    debuggers?.close()
    const reloading = reloader.close()
    scheduler.stop()
    this.#processes?.drain()
    if (delayMs > 0) await new Promise<void>(resolve => clock.setTimeout(resolve, delayMs))
    const left = countdown(clock, timeoutMs)
    control.close()
    await Promise.all([listeners.close(left()), this.#processes?.close(left())])
    await reloading
    await Promise.all([jobs.close(left()), scheduler.close(left()), runs?.close(left())])
    await fleet?.close()
    await dependencies.close()
    await runtimes.close(left())
    await calls.edge.close(left())
    lock.release()
    await journal.close()
  }

  #assertOpen(): void {
    if (this.#closing !== null) throw new GatewayError('SHUTTING_DOWN', 'gateway is closed')
  }

  /** What the other gateways of a fleet see of this one. */
  #report(): Omit<MemberReport, 'version' | 'release' | 'leads'> {
    const { lifecycle } = this.#context
    const { calls, listeners } = this.#parts
    const slots = calls.admission.snapshot()
    return {
      addresses: listeners.all.map(({ url }) => url),
      state: lifecycle.draining ? 'draining' : lifecycle.starting ? 'starting' : 'ready',
      startedAt: this.#configLoadedAt,
      runningCalls: slots.reduce((sum, { active }) => sum + active, 0),
      queuedCalls: slots.reduce((sum, { queued }) => sum + queued, 0),
      loadAverage: Math.round(loadavg()[0]! * 100) / 100,
      cpus: availableParallelism(),
      canLead: this.settings.schedulerEnabled,
      historyFormat: calls.history.isOn ? HISTORY_FORMAT : 0,
    }
  }

  /** The gateway of now, as records show it. */
  #state(details: boolean): GatewayState {
    const { runtimes, calls, reloader } = this.#parts
    const { dispatcher } = runtimes
    const { secrets } = this.#context.journal
    const catalog = this.#catalog
    return {
      settings: this.settings,
      warnings: this.warnings,
      configLoadedAt: this.#configLoadedAt,
      watching: reloader.isWatching,
      fleet: this.#context.fleet,
      details,
      functions: catalog.discovery.functions,
      // Records of ten thousand routes take 10 ms to make: only for those who read them.
      get routes() {
        return catalog.records()
      },
      routeCounts: catalog.counts(),
      homes: catalog.homes,
      ignored: catalog.discovery.ignored,
      runtimes: runtimes.byName,
      workerCount: key => dispatcher.workerCount(key),
      isWarm: key => dispatcher.isWarm(key),
      loadErrorOf: fn => {
        const error = dispatcher.loadErrorOf(fn.key)
        return error && secrets.hideIn(fn, error)
      },
      isStale: key => dispatcher.isStale(key),
      get admission() {
        return calls.admission.snapshot()
      },
      catalogGeneratedAt: catalog.generatedAt,
    }
  }
}
