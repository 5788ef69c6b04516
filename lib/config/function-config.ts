/** `fn.config.json` and `fn.routes.json`: text to checked values, and the configs down to a handler to its policy. Spec: §2.7 to §2.10, §2.13. */

import type {
  AssetsMount,
  CorsPolicy,
  EdgePolicy,
  KeepWarmPolicy,
  Policy,
  QueuePolicy,
  RetryPolicy,
  SchedulePolicy,
  WorkerPoolPolicy,
} from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { isMethod, METHODS, type Method } from '../core/identity.ts'
import { isObject } from '../core/json.ts'
import * as limits from '../core/limits.ts'
import {
  type Finding,
  keyOf,
  type ObjectOf,
  type Parsed,
  type Place,
  readJsonFile,
  report,
  reportUnknownKey,
  reportWrong,
  showText,
  toPlace,
  toWarnings,
} from './fields.ts'
import { FUNCTION_CONFIG, type INVOKE_FIELDS, type SCHEDULE_FIELDS } from './function-config-fields.ts'
import type { Settings } from './settings.ts'
import { isPublicPath, NO_HOST, parseRelativePath } from './texts.ts'

/** Fields that other ones stand for, that say nothing about calls, or that get their defaults here. */
type Resolved =
  | ('$schema' | 'version' | 'methods' | 'routes' | 'forceUrl' | 'includeDebugHeaders')
  | ('invoke' | 'response' | 'home' | 'assets' | 'keepWarm' | 'edge' | 'schedule' | 'cors')

/** One `fn.config.json`, checked. A field that is absent or wrong is undefined. */
export interface FunctionConfig extends Omit<RawConfig, Resolved> {
  /** True when it declares `runtime`, `name` or `entrypoint`: the folder is one function, no overlay. */
  identity: boolean
  /** `routes` are pattern texts, not compiled; an empty list means no public path. */
  invoke: Omit<ObjectOf<typeof INVOKE_FIELDS>, 'route' | 'home' | 'homeRoute' | 'defaultMethod'>
  response: { includeDebugHeaders?: boolean | undefined }
  /** `route` is absolute or relative to the folder. */
  home?: { route?: string | undefined; redirect?: string | undefined } | undefined
  /** `directory` is below the functions root, posix separators; discovery checks whether it exists. */
  assets?: AssetsMount | undefined
  keepWarm?: KeepWarmPolicy | undefined
  edge?: EdgePolicy | undefined
  schedule?: SchedulePolicy | undefined
  /** Why the schedule that is written down is not used. */
  scheduleProblem?: string | undefined
  /** null: switched off here although a parent folder has it. */
  cors?: CorsPolicy | null | undefined
  /** Why every call under this config is refused: it cannot be read, or a field that restricts access is wrong. */
  problem?: string | undefined
}

/** A config that sets nothing. */
export function emptyConfig(): FunctionConfig {
  return { identity: false, invoke: {}, response: {} }
}

/** A config that cannot be used: it refuses every call, because the file may have restricted access. */
function closedConfig(problem: string): FunctionConfig {
  return { ...emptyConfig(), scheduleProblem: problem, problem }
}

/**
 * Reads one `fn.config.json`. Every wrong field is a warning and counts as absent; nothing is thrown.
 * @param source - text or bytes of the file; null when it cannot be read
 * @param fileLabel - path below the functions root, for messages
 */
export function parseFunctionConfig(source: string | Uint8Array | null, fileLabel: string): Parsed<FunctionConfig> {
  const findings: Finding[] = []
  const value = readJsonFile(source, fileLabel, findings)
  if (value !== undefined) return parseFunctionConfigValue(value, fileLabel)
  const problem = findings[0]?.message ?? `${fileLabel} cannot be read`
  return { value: closedConfig(problem), warnings: toWarnings(findings) }
}

/** Reads an already parsed `fn.config.json`, such as the body of `PUT /_fn/function-config`. */
export function parseFunctionConfigValue(value: unknown, fileLabel: string): Parsed<FunctionConfig> {
  const findings: Finding[] = []
  const at = toPlace(fileLabel, '', findings)
  const raw = FUNCTION_CONFIG.read(value, at)
  const config = raw === undefined ? closedConfig(findings[0]!.message) : readConfig(raw, at)
  return { value: config, warnings: toWarnings(findings) }
}

type RawConfig = NonNullable<ReturnType<typeof FUNCTION_CONFIG.read>>

function readConfig(raw: RawConfig, at: Place): FunctionConfig {
  const { $schema, version, methods, routes: topRoutes, forceUrl, includeDebugHeaders, ...blocks } = raw
  const { invoke: rawInvoke, response, home: topHome, assets, keepWarm, edge, schedule, cors, ...plain } = blocks
  const { route, home: invokeHome, homeRoute, ...invoke } = rawInvoke ?? {}
  const listed = invoke.routes ?? (route === undefined ? topRoutes : [])
  const routes = route === undefined ? listed : [...new Set([...(listed ?? []), route])]
  const home = topHome ?? invokeHome ?? (homeRoute === undefined ? undefined : { route: homeRoute })
  return {
    ...plain,
    identity: raw.runtime !== undefined || raw.name !== undefined || raw.entrypoint !== undefined,
    invoke: { ...invoke, routes, methods: invoke.methods ?? methods, forceUrl: invoke.forceUrl ?? forceUrl },
    response: { includeDebugHeaders: response?.includeDebugHeaders ?? includeDebugHeaders },
    home: home?.route === undefined && home?.redirect === undefined ? undefined : home,
    assets: toAssets(assets),
    keepWarm: keepWarm && { ...KEEP_WARM, ...keepWarm },
    edge: readEdge(edge, keyOf(at, 'edge')),
    ...readSchedule(schedule, keyOf(at, 'schedule')),
    cors: cors === false ? null : readCors(cors, keyOf(at, 'cors')),
    problem: findRestrictionProblem(raw, at),
  }
}

/** Fields that restrict who reaches a function: a wrong value must not open what a right one closes. */
const RESTRICTIONS: ReadonlySet<string> = new Set(
  ['runtime', 'name', 'entrypoint', 'invoke', 'private', 'methods', 'routes', 'validate'].flatMap(name => [
    name,
    `invoke.${name}`,
  ]),
)

function findRestrictionProblem(raw: RawConfig, { findings }: Place): string | undefined {
  const found = findings.find(({ code, name }) => {
    // Of a list with right items those are used, which is more restrictive than what was written.
    const [field = ''] = name.split('[')
    const [first, second] = field.split('.')
    const block = (second === undefined ? raw : raw.invoke) as Readonly<Record<string, unknown>> | undefined
    return code === 'CONFIG_VALUE' && RESTRICTIONS.has(field) && block?.[second ?? first ?? ''] === undefined
  })
  return found?.message
}

/** Notes a block that is not used at all because of its content. */
function reportUnused(at: Place, why: string, hint: string): undefined {
  report(at, 'CONFIG_VALUE', `is not used: ${why}`, hint)
}

// The defaults of the blocks. A field that was absent or wrong is no key of what was read.

const KEEP_WARM: KeepWarmPolicy = {
  enabled: true,
  minWarm: limits.DEFAULT_KEEP_WARM_MIN_WARM,
  pingEverySeconds: limits.DEFAULT_PING_EVERY_SECONDS,
  idleTtlSeconds: limits.DEFAULT_IDLE_TTL_SECONDS,
}
const EDGE: EdgePolicy = {
  baseUrl: null,
  allowHosts: [],
  allowPrivate: false,
  maxResponseBytes: limits.DEFAULT_EDGE_MAX_RESPONSE_BYTES,
}
const SCHEDULE: SchedulePolicy = {
  ...{ enabled: true, everySeconds: null, cron: null, timezone: 'local' },
  ...{ method: 'GET', query: {}, headers: {}, body: null, context: null, retry: null },
}
const RETRY: RetryPolicy = {
  maxAttempts: limits.RETRY_MAX_ATTEMPTS.default,
  baseDelaySeconds: limits.RETRY_BASE_DELAY_SECONDS.default,
  maxDelaySeconds: limits.RETRY_MAX_DELAY_SECONDS.default,
  jitter: limits.RETRY_JITTER.default,
}
const WORKER_POOL: Omit<WorkerPoolPolicy, 'maxWorkers'> = {
  enabled: true,
  minWarm: 0,
  maxQueue: limits.DEFAULT_MAX_QUEUE,
  queueTimeoutMs: limits.DEFAULT_QUEUE_TIMEOUT_MS,
  queuePollMs: limits.DEFAULT_QUEUE_POLL_MS,
  idleTtlSeconds: limits.DEFAULT_IDLE_TTL_SECONDS,
  overflowStatus: limits.DEFAULT_OVERFLOW_STATUS,
}

function toAssets(raw: RawConfig['assets']): AssetsMount | undefined {
  if (raw?.directory === undefined) return undefined
  const { directory, notFoundHandling = '404', runWorkerFirst = false } = raw
  return { directory, notFoundHandling, runWorkerFirst }
}

function readEdge(raw: RawConfig['edge'], at: Place): EdgePolicy | undefined {
  if (raw === undefined) return undefined
  const edge = { ...EDGE, ...raw }
  // A broken list must not open the whole network to the proxy (§2.10).
  if (edge.allowHosts.includes(NO_HOST)) return reportUnused(at, 'allow_hosts is wrong', 'Fix edge.allow_hosts.')
  const isSet = edge.baseUrl !== null || edge.allowHosts.length > 0 || edge.allowPrivate
  return isSet || raw.maxResponseBytes !== undefined ? edge : undefined
}

type RawSchedule = ObjectOf<typeof SCHEDULE_FIELDS>

function readSchedule(raw: RawSchedule | undefined, at: Place): Pick<FunctionConfig, 'schedule' | 'scheduleProblem'> {
  // A run at the wrong time or with the wrong input is worse than none; only `retry` may be wrong and fall back.
  const broken = at.findings.find(
    ({ code, name }) =>
      code === 'CONFIG_VALUE' &&
      (name === at.name || (name.startsWith(`${at.name}.`) && !name.startsWith(`${at.name}.retry`))),
  )
  if (raw === undefined) return broken === undefined ? {} : { scheduleProblem: broken.message }
  if (broken !== undefined) {
    reportUnused(at, `${broken.name} is wrong`, `Fix ${broken.name}.`)
    return { scheduleProblem: broken.message }
  }
  if (raw.everySeconds === undefined && raw.cron === undefined) {
    reportUnused(at, 'it has neither every_seconds nor cron', 'Add "every_seconds": 60 or "cron": "* * * * *".')
    return { scheduleProblem: at.findings.at(-1)!.message }
  }
  return { schedule: { ...SCHEDULE, ...raw, retry: toRetry(raw.retry) } }
}

function toRetry(raw: RawSchedule['retry']): RetryPolicy | null {
  if (raw === undefined || raw === false) return null
  const { enabled = true, ...given } = raw === true ? {} : raw
  return enabled ? { ...RETRY, ...given } : null
}

function readCors(raw: Exclude<RawConfig['cors'], boolean>, at: Place): CorsPolicy | undefined {
  if (raw === undefined) return undefined
  const { origins = [], methods = [], headers = [], expose = [], credentials = false } = raw
  if (origins.length === 0) return reportUnused(at, 'it has no origins', 'Add "origins": ["https://example.com"].')
  // Any site could read answers made with its visitor's cookies; browsers refuse the pair too.
  const unsafe = credentials && origins.includes('*')
  if (unsafe) {
    const text = 'has no effect with the origin *'
    report(keyOf(at, 'credentials'), 'CONFIG_VALUE', text, 'List the origins that may send credentials.')
  }
  const maxAgeSeconds = raw.maxAge ?? limits.DEFAULT_CORS_MAX_AGE_SECONDS
  return { origins, methods, headers, expose, credentials: credentials && !unsafe, maxAgeSeconds }
}

/** Policy values where no config sets one: the settings of the same name. */
export interface PolicyDefaults
  extends Pick<Settings, 'defaultTimeoutMs' | 'defaultMaxConcurrency' | 'defaultMaxBodyBytes'> {
  /** Of functions that set no `max_concurrency`. */
  defaultQueue: QueuePolicy
}

export function toPolicyDefaults(settings: Settings): PolicyDefaults {
  const { defaultTimeoutMs, defaultMaxConcurrency, defaultMaxBodyBytes } = settings
  const defaultQueue = {
    maxQueue: settings.defaultMaxQueue,
    timeoutMs: settings.defaultQueueTimeoutMs,
    maxWaitMs: settings.defaultQueueWaitMs,
  }
  return { defaultTimeoutMs, defaultMaxConcurrency, defaultQueue, defaultMaxBodyBytes }
}

export interface PolicyTarget {
  /**
   * `file`: a file route, its last layer is the overlay of the same folder. `function`: a function folder, the last layer is its
   * config. `version`: the last layer is the version's config, the one before it the function's. Other layers are overlays
   * of parent folders.
   */
  kind: 'file' | 'function' | 'version'
  /** Methods that the file's name fixes; they win over every config. */
  methods?: readonly Method[] | undefined
  /** Handler file for messages, and where they go. */
  label?: string
  warnings?: Warning[]
  /** Gets the layer that each field comes from; a field that no layer sets is not there. */
  givenBy?: Map<keyof Policy, FunctionConfig>
}

/**
 * The policy of one function version: nearest layer wins, `invoke` and `response` key by key, other blocks whole (§2.7).
 * Callable, adapter, packs, methods and OpenAPI texts belong to the function's own layers; schedule and keep_warm to the
 * last one alone, so that a version is not run on its function's schedule.
 * @param layers - configs from the functions root down; null for a folder without one. The own layer is always the last.
 */
export function mergePolicies(
  layers: readonly (FunctionConfig | null)[],
  defaults: PolicyDefaults,
  target: PolicyTarget,
): Policy {
  const nearestFirst = layers.flatMap(layer => layer ?? []).reverse()
  const last = [layers.at(-1) ?? []].flat()
  const own = target.kind === 'version' ? [last, layers.at(-2) ?? []].flat() : last
  const first = <T>(
    among: readonly FunctionConfig[],
    field: keyof Policy,
    pick: (layer: FunctionConfig) => T | undefined,
  ): T | undefined => {
    for (const layer of among) {
      const value = pick(layer)
      if (value === undefined) continue
      target.givenBy?.set(field, layer)
      return value
    }
    return undefined
  }
  const givenConcurrency = first(nearestFirst, 'maxConcurrency', layer => layer.maxConcurrency)
  const maxConcurrency = givenConcurrency ?? defaults.defaultMaxConcurrency
  const configProblem = first(nearestFirst, 'configProblem', layer => layer.problem) ?? null
  const adapter = first(own, 'adapter', layer => layer.invoke.adapter)
  const pool = first(nearestFirst, 'workerPool', layer => layer.workerPool)
  return {
    timeoutMs: first(nearestFirst, 'timeoutMs', layer => layer.timeoutMs) ?? defaults.defaultTimeoutMs,
    maxConcurrency,
    defaultQueue: givenConcurrency === undefined ? defaults.defaultQueue : null,
    maxBodyBytes: first(nearestFirst, 'maxBodyBytes', layer => layer.maxBodyBytes) ?? defaults.defaultMaxBodyBytes,
    methods:
      target.methods ??
      first(own, 'methods', layer => layer.invoke.methods) ??
      (configProblem === null && (target.kind === 'file' || own.length === 0) ? ['GET'] : METHODS),
    allowHosts: first(nearestFirst, 'allowHosts', layer => layer.invoke.allowHosts) ?? [],
    isPrivate: first(nearestFirst, 'isPrivate', layer => layer.private) ?? false,
    handler: first(own, 'handler', layer => layer.invoke.handler) ?? null,
    adapter: adapter === undefined ? 'native' : adapter.name,
    adapterName: adapter?.name ?? adapter?.given ?? 'native',
    workerPool: pool === undefined ? null : toWorkerPool(pool, maxConcurrency, target),
    keepWarm: first(last, 'keepWarm', layer => layer.keepWarm) ?? null,
    edge: first(nearestFirst, 'edge', layer => layer.edge) ?? null,
    schedule: first(last, 'schedule', layer => layer.schedule) ?? null,
    scheduleProblem: last[0]?.scheduleProblem ?? null,
    cors: first(nearestFirst, 'cors', layer => layer.cors) ?? null,
    configProblem,
    sharedDeps: first(own, 'sharedDeps', layer => layer.sharedDeps) ?? [],
    allowScripts: first(own, 'allowScripts', layer => layer.allowScripts) ?? [],
    includeDebugHeaders:
      first(nearestFirst, 'includeDebugHeaders', layer => layer.response.includeDebugHeaders) ?? false,
    group: first(nearestFirst, 'group', layer => layer.group) ?? null,
    validate: first(nearestFirst, 'validate', layer => layer.invoke.validate) ?? false,
    summary: first(own, 'summary', layer => layer.invoke.summary) ?? null,
    exampleQuery: first(own, 'exampleQuery', layer => layer.invoke.query) ?? null,
    exampleBody: first(own, 'exampleBody', layer => layer.invoke.body) ?? null,
    exampleContentType: first(own, 'exampleContentType', layer => layer.invoke.contentType) ?? null,
  }
}

function toWorkerPool(
  given: Partial<WorkerPoolPolicy>,
  maxConcurrency: number,
  { label = '.', warnings }: PolicyTarget,
): WorkerPoolPolicy {
  const pool = { ...WORKER_POOL, maxWorkers: maxConcurrency, ...given }
  const { minWarm, maxWorkers } = pool
  if (maxWorkers === 0 || minWarm <= maxWorkers) return pool
  warnings?.push({
    code: 'CONFIG_CLAMPED',
    path: label,
    message: `${label}: worker_pool.min_warm is ${minWarm}, ${maxWorkers} is used: it must not exceed max_workers`,
    hint: 'Raise worker_pool.max_workers, or lower min_warm.',
  })
  return { ...pool, minWarm: maxWorkers }
}

// `fn.routes.json`: a folder's own list of routes.

/** One line of the file, `"GET,POST /items/:id": "items.js"`. */
export interface RouteEntry {
  methods: readonly Method[]
  /** Absolute public pattern as written; the router compiles it. */
  path: string
  /** File relative to the folder of the manifest, posix separators; discovery checks whether it exists. */
  target: string
  /** The key as written, for messages. */
  definition: string
}

export const MAX_ROUTE_ENTRIES = 10_000

/**
 * Reads one `fn.routes.json`. A wrong entry is a warning and left out.
 * @param source - text or bytes of the file; null when it cannot be read
 * @param fileLabel - path below the functions root, for messages
 */
export function parseRoutesFile(source: string | Uint8Array | null, fileLabel: string): Parsed<RouteEntry[]> {
  const findings: Finding[] = []
  const value = readJsonFile(source, fileLabel, findings)
  const routes = value === undefined ? [] : readRoutes(value, toPlace(fileLabel, '', findings))
  return { value: routes, warnings: toWarnings(findings) }
}

function readRoutes(value: unknown, at: Place): RouteEntry[] {
  const hint = 'Write { "routes": { "GET /items": "items.js" } }.'
  if (!isObject(value)) {
    reportWrong(at, 'an object', value, hint)
    return []
  }
  for (const key of Object.keys(value)) {
    if (key !== 'routes' && key !== '$schema') reportUnknownKey(keyOf(at, key), key, ['routes'])
  }
  const routes = Object.hasOwn(value, 'routes') ? value.routes : undefined
  if (!isObject(routes) || Object.keys(routes).length > MAX_ROUTE_ENTRIES) {
    const rule = `an object of at most ${MAX_ROUTE_ENTRIES} routes`
    if (routes === undefined) report(keyOf(at, 'routes'), 'CONFIG_VALUE', 'is missing', hint, rule)
    else reportWrong(keyOf(at, 'routes'), rule, routes, hint)
    return []
  }
  return Object.keys(routes).flatMap(definition => readEntry(definition, routes[definition], at) ?? [])
}

function readEntry(definition: string, target: unknown, at: Place): RouteEntry | undefined {
  const place = { ...at, name: `routes["${showText(definition)}"]` }
  const words = definition.trim().split(/[\s,]+/)
  const path = words.pop() ?? ''
  if (!isPublicPath(path)) {
    const rule = 'methods and a path that starts with / and is not below /_fn or /console'
    return reportWrong(place, rule, definition, 'Write for example "GET,POST /items/:id".')
  }
  const methods = readMethods(words, place)
  if (methods.length === 0) return undefined
  const file = typeof target === 'string' ? parseRelativePath(target) : null
  if (file === null) {
    return reportWrong(place, 'a file, relative to this folder and without ..', target, 'Write for example "items.js".')
  }
  return { methods, path, target: file, definition }
}

function readMethods(words: readonly string[], at: Place): Method[] {
  if (words.length === 0) return ['GET']
  const given = new Set<string>()
  for (const word of words) {
    const method = word.toUpperCase()
    if (isMethod(method)) given.add(method)
    else {
      const text = `names the method ${showText(word)}, which is none of ${METHODS.join(', ')}`
      report(at, 'CONFIG_VALUE', text, `Remove ${showText(word)}.`)
    }
  }
  return METHODS.filter(method => given.has(method))
}
