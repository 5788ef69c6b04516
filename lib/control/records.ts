/** State as the JSON shapes of the control plane; nothing here decides anything. Spec: §2.17. */

import type { FunctionVersion, IgnoredPath, SchedulePolicy } from '../core/catalog.ts'
import type { GatewayError, Warning } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'
import { isObject } from '../core/json.ts'
import { toSnakeName } from '../core/text.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import type { Settings } from '../config/settings.ts'
import type { ChosenHome } from '../http/home.ts'
import type { AdmissionSnapshot } from '../invocation/admission.ts'
import { toAdmissionLimits } from '../invocation/policy.ts'
import { toFailureText } from '../observe/log-line.ts'
import type { RouteCounts, RouteRecords } from '../router/route-records.ts'
import type { Runtime, RuntimeHealth } from '../runtime/runtime.ts'

/** The state of one gateway at one moment, from which records are made. */
export interface GatewayState {
  settings: Settings
  functions: readonly FunctionVersion[]
  readonly routes: RouteRecords
  readonly routeCounts: RouteCounts
  homes: readonly ChosenHome[]
  warnings: readonly Warning[]
  ignored: readonly IgnoredPath[]
  runtimes: ReadonlyMap<RuntimeName, Pick<Runtime, 'health'>>
  /** Live workers of a function, by its key. */
  workerCount(key: string): number
  /** True when one of them has started. */
  isWarm(key: string): boolean
  /** Why the newest version of a function cannot be built, installed or loaded; null when nothing is known against it. */
  loadErrorOf(fn: FunctionVersion): GatewayError | null
  /** True while the previous version of a function serves because of that. */
  isStale(key: string): boolean
  readonly admission: readonly AdmissionSnapshot[]
  /** Wall clock, ms. */
  configLoadedAt: number
  catalogGeneratedAt: number
  watching: boolean
  /** Null for a gateway that is not one of a fleet; `problem` is null while its store can be used. */
  fleet: { problem: string | null; release: string } | null
  /** Paths and addresses may be shown. */
  details: boolean
}

export const toSeconds = (ms: number): number => ms / 1000

/** Fields that every record of the whole gateway has. */
function toCommon({ settings, runtimes, details }: GatewayState) {
  return {
    ...(details && { functions_root: settings.functionsRoot }),
    runtime_order: [...runtimes.keys()],
  }
}

function toDefaults({ settings }: GatewayState): Record<string, unknown> {
  return {
    timeout_ms: settings.defaultTimeoutMs,
    max_concurrency: settings.defaultMaxConcurrency,
    max_body_bytes: settings.defaultMaxBodyBytes,
  }
}

const STORAGE_PROBLEMS: ReadonlySet<string> = new Set([
  ...['JOBS_NOT_KEPT', 'JOBS_SET_ASIDE', 'SCHEDULES_NOT_KEPT', 'SCHEDULES_SET_ASIDE', 'LOGS_NOT_WRITTEN'],
])

function toRuntimeRecord(health: RuntimeHealth, { settings, details }: GatewayState): Record<string, unknown> {
  const { routing, up, version, sockets } = health
  const toReason = (one: { up: boolean; reason: string }): string => (details ? one.reason : one.up ? 'ok' : 'down')
  return {
    routing,
    timeout_ms: settings.defaultTimeoutMs,
    health: { up, reason: toReason(health) },
    ...(details && version !== null && { version }),
    ...(details && sockets[0] !== undefined && { socket: sockets[0].uri }),
    sockets: sockets.map(one => ({
      index: one.index,
      ...(details && { uri: one.uri }),
      ...{ up: one.up, reason: toReason(one) },
    })),
  }
}

const NOT_ADMITTED = { active: 0, queued: 0, overflows: 0, queue_timeouts: 0 }

function toFunctionState(
  fn: FunctionVersion,
  state: GatewayState,
  admission: ReadonlyMap<string, AdmissionSnapshot>,
): Record<string, unknown> {
  const { active, queued, overflows, queue_timeouts } = admission.get(fn.key) ?? NOT_ADMITTED
  const { maxWorkers, maxQueue, queueTimeoutMs } = toAdmissionLimits(fn.policy)
  const { workerPool, configProblem } = fn.policy
  return {
    ...toLabels(fn),
    state: state.isStale(fn.key) ? 'stale' : state.isWarm(fn.key) ? 'warm' : 'cold',
    load_error: toLoadError(fn, state),
    config_problem: configProblem,
    workers: state.workerCount(fn.key),
    worker_pool: {
      enabled: workerPool?.enabled ?? false,
      ...{ max_workers: maxWorkers, max_queue: maxQueue, queue_timeout_ms: queueTimeoutMs },
      overflow_status: workerPool?.overflowStatus ?? 429,
      ...{ active, queued },
      queue_drops: { overflow: overflows, timeout: queue_timeouts, total: overflows + queue_timeouts },
    },
  }
}

export function toLabels({ runtime, name, version, key }: FunctionVersion): Record<string, unknown> {
  return { runtime, name, version: version ?? DEFAULT_VERSION_LABEL, key }
}

/** Why the newest version of a function cannot be built, installed or loaded, in one line; null when it can, or that was not tried. */
export function toLoadError(fn: FunctionVersion, state: Pick<GatewayState, 'loadErrorOf'>): string | null {
  const error = state.loadErrorOf(fn)
  return error && toFailureText(error.message, fn.entryFile, error.detail ?? {}).headline
}

/** `GET /_fn/health`; the status is 200 when every enabled runtime has a socket up, else 503. */
export function toHealthRecord(state: GatewayState): { status: number; body: Record<string, unknown> } {
  const { functions, admission: snapshots, details } = state
  const release = state.fleet?.release ?? state.settings.release
  const healths = [...state.runtimes].map(([name, runtime]) => [name, runtime.health()] as const)
  const admission = new Map(snapshots.map(snapshot => [snapshot.key, snapshot]))
  const stale = functions.filter(fn => state.isStale(fn.key)).length
  const warm = functions.filter(fn => state.isWarm(fn.key)).length - stale
  const sum = (field: keyof typeof NOT_ADMITTED): number =>
    snapshots.reduce((total, snapshot) => total + snapshot[field], 0)
  // Problems that keep jobs, schedules or logs from being stored.
  const problems = state.warnings.filter(({ code }) => STORAGE_PROBLEMS.has(code)).map(({ message }) => message)
  const body = {
    config_loaded_at: toSeconds(state.configLoadedAt),
    defaults: toDefaults(state),
    ...toCommon(state),
    hot_reload: { enabled: state.watching, last_catalog_scan_at: toSeconds(state.catalogGeneratedAt) },
    routing: { mapped_routes: state.routeCounts.routes, mapped_route_conflicts: state.routeCounts.conflicts },
    storage: { ok: problems.length === 0, ...(details && { problems }) },
    ...(state.fleet !== null && { store: state.fleet.problem === null ? 'up' : 'down' }),
    ...(release !== null && { release }),
    functions: {
      summary: {
        total: functions.length,
        ...{ warm, stale, cold: functions.length - warm - stale },
        closed: functions.filter(fn => fn.policy.configProblem !== null).length,
        keep_warm_enabled: functions.filter(fn => fn.policy.keepWarm?.enabled).length,
        pool_enabled: functions.filter(fn => fn.policy.workerPool?.enabled).length,
        pool_active: sum('active'),
        pool_queued: sum('queued'),
        pool_queue_drops: sum('overflows') + sum('queue_timeouts'),
        pool_queue_overflow_drops: sum('overflows'),
        pool_queue_timeout_drops: sum('queue_timeouts'),
      },
      ...(details && { states: functions.map(fn => toFunctionState(fn, state, admission)) }),
    },
    runtimes: Object.fromEntries(healths.map(([name, health]) => [name, toRuntimeRecord(health, state)])),
  }
  return { status: healths.every(([, { up }]) => up) ? 200 : 503, body }
}

/** Without what is sent along: headers and bodies may be secret, and are read by `/_fn/function-config`. */
export function toSchedulePolicyRecord(schedule: SchedulePolicy): Record<string, unknown> {
  const { enabled, everySeconds, cron, timezone, method, retry } = schedule
  const rule = everySeconds === null ? { cron } : { every_seconds: everySeconds }
  return { enabled, ...rule, timezone, method, retry: toSnake(retry) }
}

/** Blocks of a policy under the names of fn.config.json. Values of the user (`query`, `headers`) keep their keys. */
export function toSnake(value: unknown): unknown {
  if (!isObject(value)) return value
  const entries = Object.entries(value).map(([key, inner]) => [
    toSnakeName(key),
    USER_VALUES.has(key) ? inner : toSnake(inner),
  ])
  return Object.fromEntries(entries)
}

const USER_VALUES: ReadonlySet<string> = new Set(['query', 'headers', 'body', 'context'])

/** `worker_pool`, `keep_warm` and the rest of a policy under the names of fn.config.json. */
export function toPolicyRecord(fn: FunctionVersion): Record<string, unknown> {
  const { policy } = fn
  return {
    timeout_ms: policy.timeoutMs,
    max_concurrency: policy.maxConcurrency,
    max_body_bytes: policy.maxBodyBytes,
    methods: [...policy.methods],
    allow_hosts: [...policy.allowHosts],
    private: policy.isPrivate,
    handler: policy.handler,
    adapter: policy.adapterName,
    group: policy.group,
    config_problem: policy.configProblem,
    summary: policy.summary,
    schedule: policy.schedule && toSchedulePolicyRecord(policy.schedule),
    include_debug_headers: policy.includeDebugHeaders,
    shared_deps: [...policy.sharedDeps],
  }
}

/** `GET /_fn/catalog`: functions, routes, conflicts, warnings. Secrets and environments are not in it. */
export function toCatalogRecord(state: GatewayState): Record<string, unknown> {
  const toRecord = (all: readonly FunctionVersion[], name: string): Record<string, unknown> => {
    const own = all.find(fn => fn.version === null)
    const versions = all.filter(fn => fn.version !== null)
    return {
      name,
      has_default: own !== undefined,
      versions: versions.map(fn => fn.version),
      file: own?.entryFile ?? null,
      policy: own === undefined ? {} : toPolicyRecord(own),
      version_files: Object.fromEntries(versions.map(fn => [fn.version, fn.entryFile])),
      versions_policy: Object.fromEntries(versions.map(fn => [fn.version, toPolicyRecord(fn)])),
    }
  }
  const runtimes = [...state.runtimes].map(([runtime, one]) => {
    const byName = new Map<string, FunctionVersion[]>()
    for (const fn of state.functions)
      if (fn.runtime === runtime) byName.set(fn.name, [...(byName.get(fn.name) ?? []), fn])
    const functions = [...byName].map(([name, all]) => toRecord(all, name))
    return [runtime, { ...toRuntimeRecord(one.health(), state), functions }]
  })
  return {
    generated_at: toSeconds(state.catalogGeneratedAt),
    defaults: toDefaults(state),
    ...toCommon(state),
    mapped_routes: state.routes.mapped_routes,
    mapped_route_conflicts: state.routes.mapped_route_conflicts,
    homes: state.homes,
    runtimes: Object.fromEntries(runtimes),
    warnings: state.warnings,
    ignored: state.ignored,
  }
}

/** `POST /_fn/reload`. */
export function toReloadRecord(state: GatewayState, reloadedAt: number): Record<string, unknown> {
  return {
    ok: true,
    reloaded_at: toSeconds(reloadedAt),
    ...toCommon(state),
    catalog_generated_at: toSeconds(state.catalogGeneratedAt),
    functions: state.functions.length,
    ...state.routeCounts,
    warnings: state.warnings.length,
  }
}
