/** A function with its files as the JSON shape of the control plane. Owner: page control/function. */

import { createHash } from 'node:crypto'
import type { Stats } from 'node:fs'
import { basename, dirname, join, relative, sep } from 'node:path'
import { string } from '../config/fields.ts'
import { maskEnv, parseFunctionEnv } from '../config/function-env.ts'
import type { EnvValue, FunctionVersion } from '../core/catalog.ts'
import { type ErrorCode, GatewayError, type Warning } from '../core/errors.ts'
import { matchesTag } from '../core/http-text.ts'
import { MAX_CONFIG_FILE_BYTES } from '../core/limits.ts'
import { Semaphore } from '../core/semaphore.ts'
import { HIDDEN } from '../core/text.ts'
import { toFunctionPath } from '../core/versions.ts'
import { OwnFolder, UnsafePathError } from '../files/own-folder.ts'
import { type GatewayState, toLoadError, toPolicyRecord, toSnake } from './records.ts'

/** Bytes of code that are shown and accepted. */
export const MAX_CODE_BYTES = 2 * 1024 * 1024
/** Bytes of a request with code: JSON may need six for one. */
export const CODE_BODY_BYTES = 6 * MAX_CODE_BYTES

export const CODE = string({ multiline: true })

/** @throws GatewayError BODY_TOO_LARGE */
export function checkCodeSize(code: string): string {
  if (Buffer.byteLength(code) <= MAX_CODE_BYTES) return code
  throw new GatewayError('BODY_TOO_LARGE', `payload too large: code may have ${MAX_CODE_BYTES} bytes`)
}

export const toConfigPath = (fn: FunctionVersion): string => join(fn.fnDir, 'fn.config.json')
export const toEnvPath = (fn: FunctionVersion): string => join(fn.fnDir, 'fn.env.json')

/** The part of every response about a function. */
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
  const routes = Object.entries(state.routes.mapped_routes).filter(([, owners]) => owners.some(one => isSame(one, fn)))
  const { policy } = fn
  const { workerPool, keepWarm, edge, cors, schedule } = policy
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
    policy: { ...toPolicyRecord(fn), ...(toSnake({ workerPool, keepWarm, edge, cors, schedule }) as object) },
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

/** Warnings of the catalog about the folder and the files of a function, also where another function's file comes first. */
export function toFileWarnings(fn: FunctionVersion, state: GatewayState): string[] {
  const folder = fn.entryFile.slice(0, Math.max(0, fn.entryFile.lastIndexOf('/')))
  const inFolder = (name: string): string => (folder === '' ? name : `${folder}/${name}`)
  const files = new Set([fn.entryFile, inFolder('fn.config.json'), inFolder('fn.env.json')])
  const isOwn = ({ path, message }: Warning): boolean =>
    files.has(path) || (path === folder && folder !== '') || message.split(/[\s,;:()]+/).some(word => files.has(word))
  const own = state.warnings.filter(isOwn).map(({ message, hint }) => (hint === '' ? message : `${message}; ${hint}`))
  const { configProblem: problem } = fn.policy
  // A config of a parent folder is not a file of the function.
  if (problem === null || own.some(text => text.startsWith(problem))) return own
  return [`${problem}; calls are refused with 503 until the file is fixed`, ...own]
}

/** The content of `fn.env.json`; a caller that may not see details gets no values. */
export function toEnvRecord(fn: FunctionVersion, files: SourceFiles, details: boolean): Record<string, unknown> {
  const { bytes, label } = files.read(toEnvPath(fn), MAX_CONFIG_FILE_BYTES)
  const declared: [string, EnvValue][] = []
  for (const [key, value] of Object.entries(bytes === null ? {} : parseFunctionEnv(bytes, label).value.env))
    if (value !== null) declared.push([key, value])
  const masked = maskEnv(Object.fromEntries(declared))
  if (!details) for (const entry of Object.values(masked)) entry.value = HIDDEN
  return masked
}

interface Identity {
  runtime: string
  name: string
  version: string | null
}

export function isSame(one: Identity, other: Identity): boolean {
  return one.runtime === other.runtime && one.name === other.name && one.version === other.version
}

/** A file as it was read. */
export interface SourceFile {
  /** Below the functions root, posix separators. */
  label: string
  /** Null when there is none. */
  bytes: Buffer | null
  /** Tag of the content, for `ETag` and `If-Match`. */
  etag: string
}

/** `If-Match` of a file that is not there. */
const MISSING = '"none"'

/** The files of functions as the control plane writes them: one change at a time, each whole, none through a link or outside the root. */
export class SourceFiles {
  readonly #root: string
  readonly #turn = new Semaphore(1)
  /** Resolves when what is on disk is in force. */
  readonly reload: () => Promise<void>

  /** @param root - full path of the functions root */
  constructor(root: string, reload: () => Promise<void>) {
    this.#root = root
    this.reload = reload
  }

  /** Runs a change after those that were asked for before: it sees what they wrote, and no other writes meanwhile. */
  async inTurn<T>(change: () => Promise<T>): Promise<T> {
    try {
      return await this.#turn.run(change)
    } catch (error) {
      throw toGatewayRefusal(error)
    }
  }

  /** A folder below the root, by its full path. @throws GatewayError FORBIDDEN for one that is not */
  folder(path: string): OwnFolder {
    const below = relative(this.#root, path)
    const names = below === '' ? [] : below.split(sep)
    if (names.includes('..')) throw new GatewayError('FORBIDDEN', 'the file is outside the functions root')
    return new OwnFolder(this.#root, ...names)
  }

  /**
   * @param path - full path
   * @param limit - bytes; a larger file is refused
   */
  read(path: string, limit: number): SourceFile {
    const label = this.labelOf(path)
    const folder = this.folder(dirname(path))
    let stats: Stats | null
    try {
      stats = folder.statFile(basename(path))
    } catch (error) {
      throw toGatewayRefusal(error)
    }
    if (stats !== null && stats.size > limit)
      throw new GatewayError('CONFLICT', `${label} has ${stats.size} bytes, at most ${limit} are read here`)
    const bytes = stats === null ? null : folder.read(basename(path))
    return { label, bytes, etag: toEtag(bytes) }
  }

  /**
   * Writes a file in a folder that exists.
   * @param mode - of a new file; one that is there keeps its own
   */
  write(path: string, content: string, mode = 0o644): void {
    const folder = this.folder(dirname(path))
    folder.check()
    if (!folder.isThere()) throw new GatewayError('CONFLICT', `the folder of ${this.labelOf(path)} is gone`)
    const stats = folder.statFile(basename(path))
    folder.write(basename(path), content, stats === null ? mode : stats.mode & 0o777, stats)
  }

  /** Puts a file back as it was read. */
  restore(path: string, { bytes }: SourceFile): void {
    const folder = this.folder(dirname(path))
    if (bytes === null) folder.remove(basename(path))
    else this.write(path, bytes.toString('utf8'))
  }

  labelOf(path: string): string {
    return relative(this.#root, path).split(sep).join('/')
  }
}

/** Refuses a change whose writer saw another content. @param wanted - `If-Match`, null when it was not given */
export function checkMatch({ label, etag }: SourceFile, wanted: string | null): void {
  if (wanted === null || matchesTag(wanted, etag, false)) return
  const headers = { ETag: etag }
  throw new GatewayError('CONFLICT', `${label} was changed meanwhile: read it again`, { headers })
}

export function toEtag(bytes: Uint8Array | null): string {
  return bytes === null ? MISSING : `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`
}

const REASONS: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  ENAMETOOLONG: ['BAD_REQUEST', 'the name is too long for this file system'],
  EACCES: ['FORBIDDEN', 'the file cannot be written: permission denied'],
  EPERM: ['FORBIDDEN', 'the file cannot be written: not permitted'],
  EROFS: ['STORAGE_FULL', 'the file cannot be written: the file system is read-only; make it writable and try again'],
  ENOSPC: ['STORAGE_FULL', 'the file cannot be written: no space is left on the disk; free space and try again'],
  EDQUOT: [
    'STORAGE_FULL',
    'the file cannot be written: the disk quota is used up; free space or raise it and try again',
  ],
}

/** An error of the file system as a response with the reason; any other error as it is. */
export function toGatewayRefusal(error: unknown): unknown {
  if (error instanceof UnsafePathError) return new GatewayError('FORBIDDEN', error.message)
  const reason = REASONS[(error as NodeJS.ErrnoException)?.code ?? '']
  return reason === undefined ? error : new GatewayError(reason[0], reason[1], { cause: error })
}
