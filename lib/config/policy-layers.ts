/** Configs of the folders down to a handler to the policy of its function. Owner: §2.7, page config/function-config. */

import type { Policy, QueuePolicy, WorkerPoolPolicy } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { METHODS, type Method } from '../core/identity.ts'
import * as limits from '../core/limits.ts'
import type { FunctionConfig } from './function-config.ts'
import type { Settings } from './settings.ts'

/** Policy values where no config sets one: the settings of the same name. */
export interface PolicyDefaults {
  defaultTimeoutMs: number
  defaultMaxConcurrency: number
  /** Of functions that set no `max_concurrency`. */
  defaultQueue: QueuePolicy
  defaultMaxBodyBytes: number
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
  const nearestFirst = layers.flatMap(layer => (layer === null ? [] : [layer])).reverse()
  const last = layers.at(-1) ?? null
  const own = [last, target.kind === 'version' ? (layers.at(-2) ?? null) : null].flatMap(layer => layer ?? [])
  const { givenBy } = target
  const first = <T>(
    field: keyof Policy,
    among: readonly FunctionConfig[],
    pick: (layer: FunctionConfig) => T | undefined,
  ) => {
    for (const layer of among) {
      const value = pick(layer)
      if (value === undefined) continue
      givenBy?.set(field, layer)
      return value
    }
    return undefined
  }
  const nearest = <T>(field: keyof Policy, pick: (layer: FunctionConfig) => T | undefined) =>
    first(field, nearestFirst, pick)
  const ownInvoke = <K extends keyof FunctionConfig['invoke']>(field: keyof Policy, key: K) =>
    first(field, own, layer => layer.invoke[key])
  const lastAlone = last === null ? [] : [last]
  const givenConcurrency = nearest('maxConcurrency', layer => layer.maxConcurrency)
  const maxConcurrency = givenConcurrency ?? defaults.defaultMaxConcurrency
  const configProblem = nearest('configProblem', layer => layer.problem) ?? null
  const adapter = ownInvoke('adapter', 'adapter')
  return {
    timeoutMs: nearest('timeoutMs', layer => layer.timeoutMs) ?? defaults.defaultTimeoutMs,
    maxConcurrency,
    defaultQueue: givenConcurrency === undefined ? defaults.defaultQueue : null,
    maxBodyBytes: nearest('maxBodyBytes', layer => layer.maxBodyBytes) ?? defaults.defaultMaxBodyBytes,
    methods:
      target.methods ??
      ownInvoke('methods', 'methods') ??
      (configProblem === null && (target.kind === 'file' || own.length === 0) ? ['GET'] : METHODS),
    allowHosts: nearest('allowHosts', layer => layer.invoke.allowHosts) ?? [],
    isPrivate: nearest('isPrivate', layer => layer.private) ?? false,
    handler: ownInvoke('handler', 'handler') ?? null,
    adapter: adapter === undefined ? 'native' : adapter.name,
    adapterName: adapter?.name ?? adapter?.given ?? 'native',
    workerPool: readWorkerPool(
      nearest('workerPool', layer => layer.workerPool),
      maxConcurrency,
      target,
    ),
    keepWarm: first('keepWarm', lastAlone, layer => layer.keepWarm) ?? null,
    edge: nearest('edge', layer => layer.edge) ?? null,
    schedule: first('schedule', lastAlone, layer => layer.schedule) ?? null,
    scheduleProblem: last?.scheduleProblem ?? null,
    cors: nearest('cors', layer => layer.cors) ?? null,
    configProblem,
    sharedDeps: first('sharedDeps', own, layer => layer.sharedDeps) ?? [],
    allowScripts: first('allowScripts', own, layer => layer.allowScripts) ?? [],
    includeDebugHeaders: nearest('includeDebugHeaders', layer => layer.response.includeDebugHeaders) ?? false,
    group: nearest('group', layer => layer.group) ?? null,
    validate: ownInvoke('validate', 'validate') ?? false,
    summary: ownInvoke('summary', 'summary') ?? null,
    exampleQuery: ownInvoke('exampleQuery', 'query') ?? null,
    exampleBody: ownInvoke('exampleBody', 'body') ?? null,
    exampleContentType: ownInvoke('exampleContentType', 'contentType') ?? null,
  }
}

function readWorkerPool(
  given: Partial<WorkerPoolPolicy> | undefined,
  maxConcurrency: number,
  target: PolicyTarget,
): WorkerPoolPolicy | null {
  if (given === undefined) return null
  const maxWorkers = given.maxWorkers ?? maxConcurrency
  const minWarm = given.minWarm ?? 0
  const isCapped = maxWorkers > 0 && minWarm > maxWorkers
  if (isCapped) {
    target.warnings?.push({
      code: 'CONFIG_CLAMPED',
      path: target.label ?? '.',
      message: `${target.label ?? '.'}: worker_pool.min_warm is ${minWarm}, ${maxWorkers} is used: it must not exceed max_workers`,
      hint: 'Raise worker_pool.max_workers, or lower min_warm.',
    })
  }
  return {
    enabled: given.enabled ?? true,
    minWarm: isCapped ? maxWorkers : minWarm,
    maxWorkers,
    maxQueue: given.maxQueue ?? limits.DEFAULT_MAX_QUEUE,
    queueTimeoutMs: given.queueTimeoutMs ?? limits.DEFAULT_QUEUE_TIMEOUT_MS,
    queuePollMs: given.queuePollMs ?? limits.DEFAULT_QUEUE_POLL_MS,
    idleTtlSeconds: given.idleTtlSeconds ?? limits.DEFAULT_IDLE_TTL_SECONDS,
    overflowStatus: given.overflowStatus ?? limits.DEFAULT_OVERFLOW_STATUS,
  }
}
