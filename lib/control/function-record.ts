/** A function with its files as the JSON shape of the control plane. Owner: page control/function. */

import { join } from 'node:path'
import { maskEnv, parseFunctionEnv } from '../config/function-env.ts'
import type { EnvValue, FunctionVersion } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { MAX_CONFIG_FILE_BYTES } from '../core/limits.ts'
import { HIDDEN } from '../core/text.ts'
import { toFunctionPath } from '../core/versions.ts'
import { type GatewayState, toLoadError, toPolicyRecord } from './records.ts'
import type { SourceFiles } from './source-files.ts'

/** Bytes of code that are shown and taken. */
export const MAX_CODE_BYTES = 2 * 1024 * 1024

export const toConfigPath = (fn: FunctionVersion): string => join(fn.fnDir, 'fn.config.json')
export const toEnvPath = (fn: FunctionVersion): string => join(fn.fnDir, 'fn.env.json')

/** The part of every answer about a function. */
export function toIdentityRecord(fn: FunctionVersion): Record<string, unknown> {
  return { runtime: fn.runtime, name: fn.name, version: fn.version }
}

/** A function as `GET /_fn/function` shows it, but for its code. */
export function toFunctionRecord(
  fn: FunctionVersion,
  state: GatewayState,
  files: SourceFiles,
  policySources: object = {},
  dependencies: object | null = null,
): Record<string, unknown> {
  const routes = Object.entries(state.routes.mapped_routes).filter(([, owners]) => owners.some(one => isOf(one, fn)))
  const { policy } = fn
  const health = state.runtimes.get(fn.runtime)?.health()
  const exampleRoute = routes.find(([route]) => !/[:*]/.test(route))?.[0] ?? toFunctionPath(fn.name, fn.version)
  return {
    ...toIdentityRecord(fn),
    key: fn.key,
    kind: fn.kind,
    load_error: toLoadError(fn, state),
    file: fn.entryFile,
    ...(state.details
      ? { function_dir: fn.fnDir, file_path: fn.entryPath, config_path: toConfigPath(fn), env_path: toEnvPath(fn) }
      : {}),
    policy: toFullPolicy(fn),
    policy_sources: policySources,
    fn_env: toEnvRecord(fn, files, state.details),
    runtime_health: { up: health?.up ?? false, reason: health === undefined ? 'not enabled' : health.reason },
    metadata: {
      handler_file: fn.entryFile,
      group: policy.group,
      response: { include_debug_headers: policy.includeDebugHeaders },
      schedule: { configured: toSnake(policy.schedule) },
      shared_deps: { configured: [...policy.sharedDeps] },
      // Absent where no package was ever wanted.
      ...(dependencies !== null && { dependency_resolution: dependencies }),
      env: {
        exists: files.read(toEnvPath(fn), MAX_CONFIG_FILE_BYTES).bytes !== null,
        keys: Object.keys(fn.env).sort(),
      },
      endpoints: {
        public_route: exampleRoute,
        mapped_routes: routes.map(([route]) => route),
        version_route: fn.version === null ? null : toFunctionPath(fn.name, fn.version),
      },
      invoke: {
        handler: policy.handler,
        adapter: policy.adapterName,
        summary: policy.summary,
        methods: [...policy.methods],
        default_method: policy.methods[0] ?? 'GET',
        allow_hosts: [...policy.allowHosts],
        route: exampleRoute,
        query_example: policy.exampleQuery ?? {},
        body_example: policy.exampleBody ?? null,
        content_type: policy.exampleContentType,
      },
    },
    warnings: toFileWarnings(fn, state),
  }
}

function toFullPolicy(fn: FunctionVersion): Record<string, unknown> {
  const { workerPool, keepWarm, edge, cors, schedule } = fn.policy
  const blocks = { worker_pool: workerPool, keep_warm: keepWarm, edge, cors, schedule }
  return { ...toPolicyRecord(fn), ...(toSnake(blocks) as Record<string, unknown>) }
}

/** Blocks of a policy under the names of fn.config.json. Values of the user (`query`, `headers`) have no camel case of ours. */
function toSnake(value: unknown): unknown {
  if (!isObject(value)) return value
  const entries = Object.entries(value).map(([key, inner]) => [
    key.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`),
    USER_VALUES.has(key) ? inner : toSnake(inner),
  ])
  return Object.fromEntries(entries)
}

const USER_VALUES: ReadonlySet<string> = new Set(['query', 'headers', 'body', 'context'])

/** What the catalog says about the folder and the files of a function, also where another function's file comes first. */
export function toFileWarnings(fn: FunctionVersion, state: GatewayState): string[] {
  const folder = fn.entryFile.slice(0, Math.max(0, fn.entryFile.lastIndexOf('/')))
  const inFolder = (name: string): string => (folder === '' ? name : `${folder}/${name}`)
  const files = new Set([fn.entryFile, inFolder('fn.config.json'), inFolder('fn.env.json')])
  const isOwn = ({ path, message }: Warning): boolean =>
    files.has(path) || (path === folder && folder !== '') || message.split(/[\s,;:()]+/).some(word => files.has(word))
  const own = state.warnings.filter(isOwn).map(({ message, hint }) => (hint === '' ? message : `${message}; ${hint}`))
  const { configProblem: problem } = fn.policy
  // One of a folder above is no file of the function.
  if (problem === null || own.some(text => text.startsWith(problem))) return own
  return [`${problem}; calls are refused with 503 until the file is fixed`, ...own]
}

/** What `fn.env.json` says; a caller who may see no details gets no value at all. */
export function toEnvRecord(fn: FunctionVersion, files: SourceFiles, details: boolean): Record<string, unknown> {
  const { bytes, label } = files.read(toEnvPath(fn), MAX_CONFIG_FILE_BYTES)
  const declared: [string, EnvValue][] = []
  for (const [key, value] of Object.entries(bytes === null ? {} : parseFunctionEnv(bytes, label).env))
    if (value !== null) declared.push([key, value])
  const masked = maskEnv(Object.fromEntries(declared))
  if (!details) for (const entry of Object.values(masked)) entry.value = HIDDEN
  return masked
}

function isOf(owner: { runtime: string; name: string; version: string | null }, fn: FunctionVersion): boolean {
  return owner.runtime === fn.runtime && owner.name === fn.name && owner.version === fn.version
}
