/** `fn.config.json`: text to a checked config. Spec: §2.7 to §2.10, §2.13. */

import type { RuntimeName } from '../core/identity.ts'
import type {
  CorsPolicy,
  EdgePolicy,
  KeepWarmPolicy,
  RetryPolicy,
  SchedulePolicy,
  WorkerPoolPolicy,
} from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import * as limits from '../core/limits.ts'
import type { ObjectOf } from './fields.ts'
import { type Finding, keyOf, type Place, report, toPlace, toWarnings } from './findings.ts'
import { FUNCTION_CONFIG, type INVOKE_FIELDS, reportUnused, type SCHEDULE_FIELDS } from './function-config-fields.ts'
import { readJsonFile } from './json-text.ts'
import { NO_HOST } from './texts.ts'

/** One `fn.config.json`, checked. A field that is absent or wrong is undefined. */
export interface FunctionConfig {
  /** True when it declares `runtime`, `name` or `entrypoint`: the folder is one function, no overlay. */
  identity: boolean
  runtime?: RuntimeName | undefined
  name?: string | undefined
  /** Below the function folder. */
  entrypoint?: string | undefined
  group?: string | undefined
  timeoutMs?: number | undefined
  maxConcurrency?: number | undefined
  maxBodyBytes?: number | undefined
  /** No public route, for the folder and those below it. */
  private?: boolean | undefined
  /** `routes` are pattern texts, not compiled; an empty list means no public path. */
  invoke: Omit<ObjectOf<typeof INVOKE_FIELDS>, 'route' | 'home' | 'homeRoute' | 'defaultMethod'>
  response: { includeDebugHeaders?: boolean | undefined }
  /** `route` is absolute or relative to the folder. */
  home?: { route?: string | undefined; redirect?: string | undefined } | undefined
  assets?: AssetsConfig | undefined
  workerPool?: Partial<WorkerPoolPolicy> | undefined
  keepWarm?: KeepWarmPolicy | undefined
  edge?: EdgePolicy | undefined
  schedule?: SchedulePolicy | undefined
  /** Why the schedule that is written down is not used. */
  scheduleProblem?: string | undefined
  sharedDeps?: readonly string[] | undefined
  allowScripts?: readonly string[] | undefined
  /** null: switched off here although a parent folder has it. */
  cors?: CorsPolicy | null | undefined
  /** Why every call under this config is refused: it cannot be read, or a field that restricts access is wrong. */
  problem?: string | undefined
}

/** `assets` as written; whether the directory exists is discovery's question. */
interface AssetsConfig {
  /** Below the functions root, posix separators. */
  directory: string
  notFoundHandling: '404' | 'single-page-application'
  runWorkerFirst: boolean
}

interface ParsedConfig {
  config: FunctionConfig
  problems: Warning[]
}

/** A config that sets nothing. */
export function emptyConfig(): FunctionConfig {
  return { identity: false, invoke: {}, response: {} }
}

/**
 * A config that cannot be used: it refuses every call, because the file may have restricted access.
 * @param problem - names the file
 */
export function closedConfig(problem: string): FunctionConfig {
  return { ...emptyConfig(), scheduleProblem: problem, problem }
}

/**
 * Reads one `fn.config.json`. Every wrong field is a warning and counts as absent; nothing is thrown.
 * @param source - text or bytes of the file
 * @param fileLabel - path below the functions root, for messages
 */
export function parseFunctionConfig(source: string | Uint8Array, fileLabel: string): ParsedConfig {
  const findings: Finding[] = []
  const value = readJsonFile(source, fileLabel, findings)
  if (value === undefined) return { config: closedConfig(findings[0]!.message), problems: toWarnings(findings) }
  const parsed = parseFunctionConfigValue(value, fileLabel)
  return { config: parsed.config, problems: parsed.problems }
}

/** Reads an already parsed `fn.config.json`, such as the body of `PUT /_fn/function-config`. */
export function parseFunctionConfigValue(value: unknown, fileLabel: string): ParsedConfig {
  const findings: Finding[] = []
  const at = toPlace(fileLabel, '', findings)
  const raw = FUNCTION_CONFIG.read(value, at)
  const config = raw === undefined ? closedConfig(findings[0]!.message) : readConfig(raw, at)
  return { config, problems: toWarnings(findings) }
}

type RawConfig = NonNullable<ReturnType<typeof FUNCTION_CONFIG.read>>

function readConfig(raw: RawConfig, at: Place): FunctionConfig {
  const { route, home: invokeHome, homeRoute, ...invoke } = raw.invoke ?? {}
  const listed = invoke.routes ?? (route === undefined ? raw.routes : [])
  const routes = route === undefined ? listed : [...new Set([...(listed ?? []), route])]
  const home = raw.home ?? invokeHome ?? (homeRoute === undefined ? undefined : { route: homeRoute })
  const { runtime, name, entrypoint, group, timeoutMs, maxConcurrency, maxBodyBytes } = raw
  return {
    identity: runtime !== undefined || name !== undefined || entrypoint !== undefined,
    ...{ runtime, name, entrypoint, group, timeoutMs, maxConcurrency, maxBodyBytes },
    private: raw.private,
    invoke: { ...invoke, routes, methods: invoke.methods ?? raw.methods, forceUrl: invoke.forceUrl ?? raw.forceUrl },
    response: { includeDebugHeaders: raw.response?.includeDebugHeaders ?? raw.includeDebugHeaders },
    home: home?.route === undefined && home?.redirect === undefined ? undefined : home,
    assets: toAssets(raw.assets),
    workerPool: raw.workerPool,
    keepWarm: toKeepWarm(raw.keepWarm),
    edge: readEdge(raw.edge, keyOf(at, 'edge')),
    ...readSchedule(raw.schedule, keyOf(at, 'schedule')),
    sharedDeps: raw.sharedDeps,
    allowScripts: raw.allowScripts,
    cors: raw.cors === false ? null : readCors(raw.cors, keyOf(at, 'cors')),
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

function toAssets(raw: RawConfig['assets']): AssetsConfig | undefined {
  if (raw?.directory === undefined) return undefined
  const { directory, notFoundHandling = '404', runWorkerFirst = false } = raw
  return { directory, notFoundHandling, runWorkerFirst }
}

function toKeepWarm(raw: RawConfig['keepWarm']): KeepWarmPolicy | undefined {
  if (raw === undefined) return undefined
  return {
    enabled: raw.enabled ?? true,
    minWarm: raw.minWarm ?? limits.DEFAULT_KEEP_WARM_MIN_WARM,
    pingEverySeconds: raw.pingEverySeconds ?? limits.DEFAULT_PING_EVERY_SECONDS,
    idleTtlSeconds: raw.idleTtlSeconds ?? limits.DEFAULT_IDLE_TTL_SECONDS,
  }
}

function readEdge(raw: RawConfig['edge'], at: Place): EdgePolicy | undefined {
  if (raw === undefined) return undefined
  const { baseUrl, allowHosts = [], allowPrivate = false, maxResponseBytes } = raw
  // A broken list must not open the whole network to the proxy (§2.10).
  if (allowHosts.includes(NO_HOST)) return reportUnused(at, 'allow_hosts is wrong', 'Fix edge.allow_hosts.')
  const isEmpty = baseUrl === undefined && allowHosts.length === 0 && !allowPrivate && maxResponseBytes === undefined
  if (isEmpty) return undefined
  return {
    baseUrl: baseUrl ?? null,
    allowHosts,
    allowPrivate,
    maxResponseBytes: maxResponseBytes ?? limits.DEFAULT_EDGE_MAX_RESPONSE_BYTES,
  }
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
  const schedule = {
    enabled: raw.enabled ?? true,
    everySeconds: raw.everySeconds ?? null,
    cron: raw.cron ?? null,
    timezone: raw.timezone ?? 'local',
    method: raw.method ?? 'GET',
    query: raw.query ?? {},
    headers: raw.headers ?? {},
    body: raw.body ?? null,
    context: raw.context ?? null,
    retry: toRetry(raw.retry),
  }
  return { schedule }
}

function toRetry(raw: RawSchedule['retry']): RetryPolicy | null {
  if (raw === undefined || raw === false) return null
  const given = raw === true ? {} : raw
  if (given.enabled === false) return null
  return {
    maxAttempts: given.maxAttempts ?? limits.RETRY_MAX_ATTEMPTS.default,
    baseDelaySeconds: given.baseDelaySeconds ?? limits.RETRY_BASE_DELAY_SECONDS.default,
    maxDelaySeconds: given.maxDelaySeconds ?? limits.RETRY_MAX_DELAY_SECONDS.default,
    jitter: given.jitter ?? limits.RETRY_JITTER.default,
  }
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
