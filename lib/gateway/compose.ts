/**
 * The object graph of a gateway: every part is built here, once, and in order. Owner: §1.
 *
 *   settings ─► runtimes ─► calls ─► jobs, scheduler ─► control plane ─► handlers ─► listeners
 *                                                                         catalog loader ─► reloader
 */

import { randomBytes } from 'node:crypto'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { toPolicyDefaults } from '../config/function-config.ts'
import { ENV_FILES } from '../config/project-file.ts'
import { readPowers } from '../config/setting-checks.ts'
import type { ResolvedSettings, Settings } from '../config/settings.ts'
import { type ControlPlane, createControlPlane, type EndpointPath, toEndpointPaths } from '../control/control-plane.ts'
import type { ControlContext } from '../control/endpoint.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import { type Descriptors, toPythonHostEnv } from '../core/host.ts'
import { type Method, toFunctionLabels } from '../core/identity.ts'
import type { Lifecycle } from '../core/transitions.ts'
import { toFunctionPath } from '../core/versions.ts'
import { toResultText } from '../dependencies/build.ts'
import { Dependencies, findUnmet, SharedPacks } from '../dependencies/dependencies.ts'
import { Installer } from '../dependencies/install.ts'
import { createNodeStep } from '../dependencies/node.ts'
import { createPhpStep } from '../dependencies/php.ts'
import { PythonImports } from '../dependencies/python-imports.ts'
import { createPythonStep } from '../dependencies/python.ts'
import { type Builds, type BuildsOptions, createBuilds } from '../dependencies/resolve.ts'
import { runTool, ToolOwner } from '../dependencies/run-tool.ts'
import { toOffWarnings, unservedReason } from '../discovery/layouts.ts'
import { findChange, type LoadedFiles } from '../discovery/loaded-files.ts'
import { FileWatcher, watchEnvFiles, type Watcher, type WatchOptions } from '../discovery/watch.ts'
import { EdgeProxy } from '../edge/passthrough.ts'
import { createFileReader } from '../files/function-file.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { RootLock } from '../files/root-lock.ts'
import { createRequestListener, type Exchange } from '../http/exchange.ts'
import { type PublicCatalog, PublicHandler } from '../http/public.ts'
import { Admission } from '../invocation/admission.ts'
import { RequestIds, toStaticContext } from '../invocation/event.ts'
import { Invoker, type InvokerOptions } from '../invocation/invoke.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { FleetJobsOptions } from '../fleet/fleet-jobs.ts'
import type { FleetRuns } from '../fleet/fleet-runs.ts'
import { CallbackSender } from '../jobs/callback-sender.ts'
import { FileStore } from '../jobs/file-store.ts'
import type { JobParts } from '../jobs/job.ts'
import { Jobs, type JobsPart } from '../jobs/jobs.ts'
import { History } from '../observe/history.ts'
import type { Journal } from '../observe/journal.ts'
import { Metrics, toFamily, toLabels } from '../observe/metrics.ts'
import type { Processes } from '../processes/processes.ts'
import { buildRouteTable } from '../router/route-table.ts'
import { findProgram, findTool, toInstallHint } from '../runtime/binaries.ts'
import type { Debuggers } from '../runtime/debuggers.ts'
import { packageFile, runtimeFile } from '../runtime/package-files.ts'
import { Runtimes } from '../runtime/runtimes.ts'
import { pickPath, type ScheduleRunnerOptions, toScheduledRequest } from '../scheduler/schedule-runner.ts'
import { FileScheduleStore } from '../scheduler/schedule-store.ts'
import { Scheduler } from '../scheduler/scheduler.ts'
import type { SchemaStore } from '../validation/schema-store.ts'
import {
  type Catalog,
  CatalogLoader,
  createRoutesOf,
  findFunction,
  FunctionCalls,
  Reloader,
  type ReloaderOptions,
} from './catalog-loader.ts'
import { toPolicySources } from './explain-request.ts'
import { Listeners } from './listeners.ts'
import type { Host } from './options.ts'
import { createCatalogSteps, createHandlerParts, createSchemas, type HandlerOptions } from './serving.ts'

/** What every part of a gateway shares. */
export interface GatewayContext extends Host {
  readonly settings: Settings
  readonly journal: Journal
  readonly packs: SharedPacks
  /** Null where the files are not edited. */
  readonly loaded: LoadedFiles | null
  readonly descriptors: Descriptors
  /** Null where handlers are not debugged. */
  readonly debuggers: Debuggers | null
  readonly lifecycle: Lifecycle
  /** Null for a gateway that is not one of a fleet. */
  readonly fleet: Fleet | null
  /** The catalog in force now. */
  readonly catalog: () => Catalog
}

/** Answers of the gateway that holds the parts. */
interface GatewayCallbacks extends Pick<ControlContext, 'state' | 'reload' | 'explain' | 'doctor'> {
  processes: () => Processes | null
  load: ReloaderOptions['load']
}

/** Every part of a gateway. */
export type GatewayParts = ReturnType<typeof compose>

/** Builds every part once, in order. Nothing is started. */
export function compose(
  context: GatewayContext,
  { sources, configFile }: Pick<ResolvedSettings, 'sources' | 'configFile'>,
  gateway: GatewayCallbacks,
) {
  const { settings, clock, journal, lifecycle, descriptors, catalog } = context
  const { dependencies, runtimes } = createRuntimes(context)
  const schemas = createSchemas(settings, journal)
  const calls = createCalls(context, { runtimes, schemas: schemas.gate, listening: () => listeners.all })
  const lock = createLock(context)
  const parts: CallingParts = {
    ...context,
    ...calls,
    runtimes,
    lock,
    routesOf: createRoutesOf(() => catalog().records()),
  }
  const jobs = createJobs(parts)
  const { scheduler, runs } = createScheduler(parts)
  const control = createControlPlane({
    ...parts,
    ...gateway,
    ...{ sources, configFile, jobs, scheduler, dependencies },
    find: (name, version, runtime) => findFunction(catalog().discovery.functions, name, version, runtime),
    unservedReason,
    policySourcesOf: fn => toPolicySources(fn, catalog().snapshot, toPolicyDefaults(settings)),
    runtimes: runtimes.byName,
    dispatcher: runtimes.dispatcher,
  })
  const handlers = createHttpHandlers(parts, control.handle)
  const listeners = new Listeners({
    public: handlers.public.handle,
    control: handlers.control?.handle ?? null,
    ...{ clock, lifecycle, descriptors, requestIds: calls.requestIds },
    onProblem: message => journal.log('warn', message),
  })
  const loader = createCatalogLoader(context, toEndpointPaths(control.endpoints), schemas.store)
  const reloader = createReloader(context, calls.metrics, gateway.load, loader)
  /** @returns null for a gateway of one process */
  const createOthers = () => createProcesses(parts, control, handlers.public, listeners)
  return {
    ...{
      calls,
      dependencies,
      runtimes,
      lock,
      jobs,
      scheduler,
      runs,
      control,
      listeners,
      loader,
      reloader,
      createOthers,
    },
    public: handlers.public,
  }
}

/** What calls functions without a client of HTTP: jobs, schedules, the control plane. */
interface CallingParts extends GatewayContext, ReturnType<typeof createCalls> {
  runtimes: Runtimes
  lock: RootLock
  routesOf: (fn: FunctionVersion, method: Method) => readonly string[]
}

/** What runs calls, from whatever door they come, and what counts them. */
export function createCalls(
  { settings, clock, descriptors, journal, catalog }: GatewayContext,
  {
    runtimes,
    schemas,
    listening,
  }: { runtimes: Runtimes; schemas: InvokerOptions['schemas']; listening: () => Listeners['all'] },
) {
  const requestIds = new RequestIds(randomBytes(6).toString('hex'))
  const admission = new Admission(clock)
  const edge = new EdgeProxy({ clock, listening, descriptors })
  const metrics = createMetrics({ admission, runtimes, edge, journal, functions: () => catalog().functions })
  const history = new History({
    ...{ clock, metrics },
    waiting: () => admission.waiting(),
    workers: () => runtimes.dispatcher.liveWorkers(),
    onProblem: message => journal.log('warn', message),
  })
  journal.onFailure = (fn, message) => history.failed(fn.key, message)
  const invoker = new Invoker({
    ...{ clock, admission, schemas },
    // Pages of functions have the origin of the console.
    sharesOrigin: settings.controlPort === null,
    dispatcher: runtimes.dispatcher,
    edge: edge.handle,
    secrets: journal.secrets,
    onLog: (call, stream, text) => journal.output(call.fn, stream, text, call),
    onCold: fn => metrics.functions.coldStart(fn),
  })
  const calls = new FunctionCalls({ invoker, requestIds, journal, metrics, catalog })
  return { requestIds, admission, edge, metrics, history, invoker, calls }
}

function createLock({ settings, clock, journal }: GatewayContext): RootLock {
  const lock = new RootLock(new OwnFolder(settings.functionsRoot, '.svc'), clock)
  lock.onReplaced(holder => {
    const outcome =
      holder === null ? 'jobs and schedules are written there again' : 'another gateway has the folder now'
    journal.log('warn', `.svc was deleted or moved while the gateway ran: ${outcome}`)
  })
  return lock
}

/** What a gateway counts, joined with what its parts know: slots, workers, runtimes, upstream requests. */
interface Counted {
  admission: Admission
  runtimes: Runtimes
  edge: EdgeProxy
  journal: Journal
  /** Functions of the catalog in force, by key. */
  functions: () => ReadonlyMap<string, FunctionVersion>
}

function createMetrics(counted: Counted): Metrics {
  const metrics = new Metrics()
  counted.journal.events.on('reload', () => metrics.reload('ok'))
  counted.journal.events.on('schedule', ({ error }) => metrics.scheduleRun(error === null ? 'ok' : 'failed'))
  metrics.register(() => toAdmissionText(counted))
  metrics.register(() => toOthersText(counted))
  return metrics
}

function* toAdmissionText({ admission, functions }: Counted): Generator<string> {
  const known = functions()
  const rows = admission.snapshot().flatMap(row => {
    const fn = known.get(row.key)
    return fn === undefined ? [] : [{ ...row, labels: toLabels(toFunctionLabels(fn)) }]
  })
  const active = rows.map(row => [row.labels, row.active] as const)
  yield* toFamily('fn_calls_in_flight', 'gauge', 'Calls that have a slot.', active)
  const queued = rows.map(row => [row.labels, row.queued] as const)
  yield* toFamily('fn_queue_depth', 'gauge', 'Calls that wait for a slot.', queued)
  const refused = rows.flatMap(({ labels, overflows, queue_timeouts }) => [
    [`${labels},reason="overflow"`, overflows] as const,
    [`${labels},reason="queue_timeout"`, queue_timeouts] as const,
  ])
  yield* toFamily('fn_refused_total', 'counter', 'Calls that got no slot, by why.', refused)
}

const STATES = ['starting', 'idle', 'busy', 'ending', 'lent'] as const

function* toOthersText({ runtimes, edge }: Counted): Generator<string> {
  const workers = [...runtimes.dispatcher.workerStates()].flatMap(({ fn, counts }) => {
    const labels = toLabels(toFunctionLabels(fn))
    return STATES.map(state => [`${labels},state="${state}"`, counts[state]] as const)
  })
  yield* toFamily('fn_workers', 'gauge', 'Workers by what they do.', workers)
  const up = [...runtimes.byName].map(([name, runtime]) => [{ runtime: name }, runtime.health().up ? 1 : 0] as const)
  yield* toFamily('fn_runtime_up', 'gauge', 'Whether a runtime can serve: 1 or 0.', up)
  const results = Object.entries(edge.results).map(([result, count]) => [{ result }, count] as const)
  yield* toFamily(
    'fn_edge_requests_total',
    'counter',
    'Upstream requests that functions asked for, by result.',
    results,
  )
  yield* toFamily('fn_edge_in_flight', 'gauge', 'Upstream requests under way.', [[{}, edge.active]])
}

function createJobs(parts: CallingParts): JobsPart {
  const { settings, inspect, clock, fleet, journal, lock, admission, edge, calls, metrics, catalog, routesOf } = parts
  const folder = new OwnFolder(settings.functionsRoot, '.svc', 'jobs')
  const onLog = (level: 'warn' | 'error', message: string): void => journal.log(level, message)
  const functionOf = (key: string): FunctionVersion | null => catalog().functions.get(key) ?? null
  const createCallbacks = (store: Pick<JobParts, 'read'>): CallbackSender =>
    new CallbackSender({ network: edge, secret: settings.jobsCallbackSecret, store, functionOf, onLog })
  const shared: Omit<FleetJobsOptions, 'store' | 'id' | 'hasOthers' | 'callbacks'> = {
    ...{ clock, functionOf, admission, routesOf, onLog },
    enabled: settings.jobsEnabled && !inspect,
    maxConcurrency: settings.jobsMaxConcurrency,
    maxResultBytes: settings.jobsMaxResultBytes,
    call: request => calls.run(request),
    find: (name, version, runtime) => findFunction(catalog().discovery.functions, name, version, runtime),
    onEvent: record => journal.events.emit('job', record),
  }
  const createOwn = (): Jobs => {
    const onProblem = (message: string): void => onLog('warn', message)
    const store = new FileStore({ ...{ folder, lock, onProblem }, now: () => clock.wall() })
    return new Jobs({ ...shared, store, callbacks: createCallbacks(store), hasStored: () => folder.isThere() })
  }
  const jobs = fleet === null ? createOwn() : fleet.createJobs({ ...shared, callbacks: createCallbacks })
  metrics.register(() => {
    const rows = Object.entries(jobs.counts()).map(([state, count]) => [{ state }, count] as const)
    return toFamily('fn_jobs', 'gauge', 'Jobs that are kept, by state.', rows)
  })
  return jobs
}

/** `runs` is null without a fleet, and where schedules are switched off. */
function createScheduler(parts: CallingParts): { scheduler: Scheduler; runs: FleetRuns | null } {
  const { settings, inspect, clock, fleet, journal, lock, admission, calls, catalog, requestIds, routesOf } = parts
  const enabled = settings.schedulerEnabled && !inspect
  const shared: Omit<ScheduleRunnerOptions, 'store' | 'share'> = {
    clock,
    call: run => {
      const { fn, policy } = run
      const path = pickPath(fn, routesOf(fn, policy.method), toFunctionPath(fn.name, fn.version))
      return calls.run(toScheduledRequest(run, `schedule-${requestIds.next()}`, path))
    },
    onEvent: record => journal.events.emit('schedule', record),
    onLog: (level, message) => journal.log(level, message),
  }
  const functionOf = (key: string): FunctionVersion | null => catalog().functions.get(key) ?? null
  const runs = enabled ? (fleet?.createRuns({ ...shared, functionOf, admission }) ?? null) : null
  const scheduler = new Scheduler({
    ...shared,
    ...{ enabled, share: runs?.share ?? null },
    tickMs: settings.schedulerIntervalSeconds * 1000,
    persistMs: settings.schedulerPersistIntervalSeconds * 1000,
    store:
      fleet?.lease ??
      new FileScheduleStore({
        folder: new OwnFolder(settings.functionsRoot, '.svc'),
        path: settings.schedulerStatePath,
        persists: settings.schedulerPersistEnabled,
        lock,
        now: () => clock.wall(),
      }),
    ping: fn => calls.ping(fn),
  })
  return { scheduler, runs }
}

/** Milliseconds for which a program may run that no caller waits for. */
const ASIDE_TIMEOUT_MS = 120_000

/** The runtimes of a gateway, and the builds and installs that prepare functions for them. */
export function createRuntimes(context: GatewayContext): {
  builds: Builds
  dependencies: Dependencies
  runtimes: Runtimes
} {
  const { settings, clock, hostEnv, inspect, journal, packs, loaded } = context
  const installers = createInstallers(context)
  // Builds prepare functions for runtimes, which know the users.
  const builds = createBuildsOf(context, installers, key => runtimes.toolUserOf(key))
  const prepared: ReadonlySet<string> = new Set(['go', 'rust', ...installers.map(({ runtime }) => runtime)])
  const dependencies = new Dependencies({ functionsRoot: settings.functionsRoot, clock, builds, packs })
  const runtimes = new Runtimes({
    settings,
    clock,
    hostEnv,
    inspect,
    preparerOf: name => (prepared.has(name) ? builds : null),
    runAside: async run => {
      const { code, output, problem } = await runTool({ ...run, timeoutMs: ASIDE_TIMEOUT_MS, isPlain: false }, clock)
      if (code !== 0) journal.log('debug', `${run.args[0]}: ${problem ?? output.trim() ?? 'ended in time'}`)
    },
    toContext: fn => toStaticContext(fn),
    changeOf: changesOf(context),
    toPackDirs: fn => packs.dirsOf(fn),
    onLog: (fn, stream, text) => journal.output(fn, stream, journal.secrets.hide(fn, text)),
    ...(loaded && { onFiles: (fn, files) => loaded.report(fn, files) }),
    onFailure: (fn, error) => journal.failure(fn, journal.secrets.hideIn(fn, error)),
    onStandIn: ({ entryFile }) =>
      journal.log('warn', `${entryFile}: the previous version keeps serving until this is fixed`),
    onFixed: ({ entryFile }) => journal.log('info', `${entryFile}: fixed, the new version serves`),
    loadsChanged: settings.hotReload,
    debuggers: context.debuggers,
    onEvent: ({ kind, runtime, index, text }) =>
      journal.log(kind === 'up' ? 'debug' : 'warn', `${runtime}${index === 0 ? '' : ` daemon ${index}`}: ${text}`),
  })
  return { builds, dependencies, runtimes }
}

function createBuildsOf(
  context: GatewayContext,
  installers: readonly Installer[],
  toolUserOf: BuildsOptions['toolUserOf'],
): Builds {
  const { settings, clock, hostEnv, inspect, journal } = context
  const { functionsRoot, binaries, depsWaitMs, workerNice, goBuildTimeoutSeconds, rustBuildTimeoutSeconds } = settings
  const isPrivate = settings.isolation === 'user'
  // Functions with separate users share packages that no user may write: there nothing belongs to the owner of the root.
  const toolOwner =
    inspect || isPrivate
      ? null
      : ToolOwner.find({
          functionsRoot,
          powers: readPowers(),
          reached: [process.execPath, packageFile('package.json')],
          onRefused: why => journal.log('warn', why),
        })
  return createBuilds({
    ...{ clock, functionsRoot, isPrivate, toolOwner, toolUserOf, hostEnv, installers },
    ...{ goBuildTimeoutSeconds, rustBuildTimeoutSeconds, nice: workerNice, waitMs: depsWaitMs },
    readFile: createFileReader(settings),
    workerFolder: runtime => runtimeFile(`${runtime}/worker`),
    changeOf: changesOf(context),
    findProgram: runtime => findProgram(runtime, binaries, hostEnv.PATH ?? ''),
    onBegin: (fn, action) => journal.buildBegan(fn, action),
    onEnd: (fn, action) => journal.buildEnded(fn, action),
    onBuilt: ({ fn, durationMs, made }) => journal.log('info', toResultText(fn.key, durationMs, made)),
    onFailure: (fn, error, others) => journal.failure(fn, error, others),
  })
}

/** What a function's files are on disk, where that is not what was discovered or loaded. */
function changesOf({ catalog, loaded }: GatewayContext): (fn: FunctionVersion) => string | null {
  return fn => [findChange(catalog().snapshot, fn), loaded?.changesOf(fn.key)].filter(Boolean).join('\n') || null
}

export function createInstallers(context: GatewayContext): Installer[] {
  const { settings, clock, packs, hostEnv, journal } = context
  const { functionsRoot, binaries } = settings
  const shared = {
    functionsRoot,
    readFile: createFileReader(settings),
    onNote: (text: string): void => journal.log('warn', text),
    onInfer: (text: string): void => journal.log('info', text),
  }
  const toolFinder = (tool: 'uv' | 'npm' | 'composer') => () => findTool(tool, binaries, hostEnv.PATH ?? '')
  const python = createPythonStep({
    ...{ ...shared, settings, findUv: toolFinder('uv') },
    imports: new PythonImports({ script: runtimeFile('python/infer.py'), env: toPythonHostEnv(hostEnv) }),
  })
  const node = createNodeStep({
    ...shared,
    isOn: settings.autoNodeDeps,
    infers: settings.autoInferNodeDeps,
    backend: settings.nodeInferBackend,
    writesManifest: settings.autoInferWriteManifest,
    isStrict: settings.autoInferStrict,
    isAhead: settings.preinstallNodeDepsOnStart,
    concurrency: settings.preinstallNodeDepsConcurrency,
    allowSources: settings.nodePackageSources,
    importsScript: runtimeFile('node/find-imports.mjs'),
    findNpm: toolFinder('npm'),
  })
  const { composer } = binaries
  const php = createPhpStep({
    ...shared,
    isOn: settings.autoPhpDeps,
    isAhead: settings.preinstallPhpDepsOnStart,
    allowSources: settings.phpPackageSources,
    findComposer: toolFinder('composer'),
    composerProblem:
      composer === undefined ? 'composer is not on PATH' : `FN_COMPOSER_BIN is ${composer}, which cannot be run`,
    composerHint: toInstallHint('composer'),
  })
  const isPrivate = settings.isolation === 'user'
  const options = { functionsRoot, clock, isPrivate, packsOf: (fn: FunctionVersion) => packs.require(fn) }
  return [python, node, php].map(step => new Installer(step, options))
}

/** Runtimes whose packages the gateway installs: a missing package is installed instead of reported. */
export function installedRuntimes({ autoRequirements, autoNodeDeps, autoPhpDeps }: Settings): ReadonlySet<string> {
  const isOn = { python: autoRequirements, node: autoNodeDeps, php: autoPhpDeps }
  return new Set(Object.entries(isOn).flatMap(([runtime, on]) => (on ? runtime : [])))
}

/** From the sources as well as from the built package, whose joined files lie in folders beside `lib`. */
const ENTRY = import.meta.url.endsWith('.ts') ? '../processes/acceptor-main.ts' : '../lib/acceptor-main.js'

/** @returns null for a gateway of one process, which loads nothing of this */
export async function createProcesses(
  parts: CallingParts,
  control: Pick<ControlPlane, 'endpoints'>,
  handler: PublicHandler,
  listeners: Listeners,
): Promise<Processes | null> {
  const { settings, clock, inspect, journal, runtimes, invoker, admission, edge, metrics, lifecycle } = parts
  const { gatewayWorkers } = settings
  const count = gatewayWorkers === 'auto' ? availableParallelism() : gatewayWorkers
  if (count <= 1 || inspect) return null
  const { dispatcher } = runtimes
  const { Processes } = await import('../processes/processes.ts')
  return new Processes({
    ...{ clock, settings, admission, dispatcher, journal, metrics, lifecycle },
    controlPaths: toEndpointPaths(control.endpoints),
    count: count - 1,
    entry: fileURLToPath(new URL(ENTRY, import.meta.url)),
    door: { invoker, admission, dispatcher, control: handler.handle },
    prepare: fn => prepareLease(parts, fn),
    sourceOf: (fn, program) => runtimes.byName.get(fn.runtime)?.prepareStart?.(fn, program).source ?? null,
    edgeResults: edge.results,
    addresses: () => listeners.all,
    connections: () => listeners.connections,
  })
}

/**
 * What an acceptor needs to run calls of a function itself; null where only this process can: in Lua, with a separate user, behind
 * an external daemon, while its files may be edited, and before it has run here.
 */
export async function prepareLease(
  { settings, runtimes }: Pick<CallingParts, 'settings' | 'runtimes'>,
  fn: FunctionVersion,
): Promise<{ program: string | null; header: string } | null> {
  const runtime = runtimes.byName.get(fn.runtime)
  const isElsewhere = (settings.runtimeSockets[fn.runtime]?.length ?? 0) > 0
  if (settings.hotReload || settings.isolation === 'user' || isElsewhere) return null
  if (runtime?.prepareStart === undefined) return null
  const { dispatcher } = runtimes
  if (!dispatcher.isWarm(fn.key) || dispatcher.loadErrorOf(fn.key) !== null) return null
  const program = (await runtime.preparer?.prepare(fn)) ?? null
  return { program, header: runtime.prepareStart(fn, program).header }
}

export function createCatalogLoader(
  context: GatewayContext,
  controlPaths: readonly EndpointPath[],
  schemas: SchemaStore,
): CatalogLoader {
  const { settings, clock, outerEnv, loaded } = context
  const toSteps = createCatalogSteps({ settings, clock, schemas, controlPaths })
  const isInstalling = (runtime: string): boolean => installedRuntimes(settings).has(runtime)
  const { functionsRoot, runtimes, namespaceDepth, forceUrl } = settings
  return new CatalogLoader({
    ...{ rootPath: functionsRoot, runtimes, namespaceDepth, forceUrl, outerEnv, schemas },
    ...(loaded && { revisions: () => loaded.revisions }),
    checksSources: !settings.production,
    readFile: createFileReader(settings),
    loadsChanged: settings.hotReload,
    defaults: toPolicyDefaults(settings),
    now: () => clock.wall(),
    steps: (discovery, routes) => {
      const steps = toSteps(discovery, routes)
      const off = settings.runtimesExplicit ? [] : toOffWarnings(discovery.ignored, settings.runtimes)
      const packs = new SharedPacks(functionsRoot).check(discovery.functions, isInstalling)
      const missing = [...packs, ...findUnmet(discovery.manifests, functionsRoot, isInstalling)]
      return { ...steps, warnings: [...off, ...steps.warnings, ...missing] }
    },
  })
}

/** Watches the tree, and the project's env files, which are beside it: a change of those asks for a reload without paths. */
export function watchProject(
  { settings, clock, envDir, journal, loaded }: GatewayContext,
  root: WatchOptions['tree'],
  onChange: WatchOptions['onChange'],
): Watcher {
  const onWarning: WatchOptions['onWarning'] = warning => journal.warn(warning)
  const tree = new FileWatcher({ rootPath: settings.functionsRoot, onChange, onWarning, clock, tree: root, loaded })
  if (envDir === null) return tree
  const onEnvChange = async (): Promise<void> => onChange(new Set())
  const closeEnv = watchEnvFiles({ clock, folder: envDir, names: ENV_FILES, onChange: onEnvChange })
  const close = (): void => {
    tree.close()
    closeEnv()
  }
  return { ready: tree.ready, close }
}

/** Reads the tree again when it is asked for or a file changes. */
export function createReloader(
  context: GatewayContext,
  metrics: Metrics,
  load: ReloaderOptions['load'],
  tree: WatchOptions['tree'],
): Reloader {
  return new Reloader({
    ...{ clock: context.clock, load },
    watch: onChange => watchProject(context, tree, onChange),
    onFailure: error => {
      metrics.reload('failed')
      context.journal.log('error', `reload failed: ${String(error)}`)
    },
  })
}

/** @param control - answers everything at or below `/_fn` and `/console` */
export function createHttpHandlers(
  parts: Omit<HandlerOptions, 'pool' | 'onFinished' | 'onProblem' | 'routingOf'> & {
    journal: Journal
    metrics: Metrics
    runtimes: Runtimes
    /** Null or absent where handlers are not debugged. */
    debuggers?: Debuggers | null
    catalog: () => PublicCatalog
  },
  control: (exchange: Exchange) => void,
): { public: PublicHandler; control: PublicHandler | null } {
  const { settings, clock, journal, metrics, runtimes, debuggers, catalog } = parts
  const shared = createHandlerParts({
    ...parts,
    pool: runtimes.pool,
    onFinished: createRequestListener(debuggers?.noting(journal) ?? journal, clock, metrics),
    onProblem: message => journal.log('warn', message),
    routingOf: name => runtimes.byName.get(name)?.health().routing ?? 'single',
  })
  if (settings.controlPort === null)
    return { public: new PublicHandler({ ...shared, catalog, control }), control: null }
  // Reserved paths stay reserved where they have no handler.
  const refuse = (exchange: Exchange): void =>
    shared.responder.sendError(exchange, new GatewayError('NOT_FOUND', 'not found'))
  const nothing = { routes: buildRouteTable([], { functions: [], forceUrl: false }), before: [], after: [] }
  return {
    public: new PublicHandler({ ...shared, catalog, control: refuse }),
    control: new PublicHandler({ ...shared, catalog: () => nothing, control }),
  }
}
