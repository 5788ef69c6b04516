/**
 * `/_fn/function`, `/_fn/function-config`, `/_fn/function-env` and `/_fn/function-code`: a function with its files, read and changed.
 * Owner: §4.2, page control/function.
 */

import { createHash } from 'node:crypto'
import { constants, type Stats } from 'node:fs'
import { open } from 'node:fs/promises'
import { basename, dirname, join, relative, sep } from 'node:path'
import { changeConfig, changeEnv, type FileChange } from '../config/config-change.ts'
import { boolean, object, readRequest, string } from '../config/fields.ts'
import { maskEnv, parseFunctionEnv } from '../config/function-env.ts'
import { parseJsonText } from '../config/json-text.ts'
import type { EnvValue, FunctionVersion } from '../core/catalog.ts'
import { type ErrorCode, GatewayError, type Warning } from '../core/errors.ts'
import { matchesTag } from '../core/http-text.ts'
import { isObject } from '../core/json.ts'
import { MAX_CONFIG_FILE_BYTES } from '../core/limits.ts'
import { Semaphore } from '../core/semaphore.ts'
import { HIDDEN } from '../core/text.ts'
import { toFunctionPath } from '../core/versions.ts'
import { OwnFolder, UnsafePathError } from '../files/own-folder.ts'
import { TARGET } from '../jobs/job-input.ts'
import {
  announce,
  type ControlContext,
  type ControlReply,
  type ControlRequest,
  type Endpoint,
  endpoint,
  findTarget,
  json,
  type JsonObject,
  readHeader,
  readJson,
  type TargetQuery,
} from './endpoint.ts'
import { type GatewayState, toLoadError, toPolicyRecord, toSnake } from './records.ts'

/** Bytes of code that are shown and accepted. */
const MAX_CODE_BYTES = 2 * 1024 * 1024
/** Bytes of a request with code: JSON may need six for one. */
export const CODE_BODY_BYTES = 6 * MAX_CODE_BYTES

export const CODE = string({ multiline: true })
const PUT_CODE = object({ code: CODE }, { required: ['code'] })

/** @throws GatewayError BODY_TOO_LARGE */
export function checkCodeSize(code: string): string {
  if (Buffer.byteLength(code) <= MAX_CODE_BYTES) return code
  throw new GatewayError('BODY_TOO_LARGE', `payload too large: code may have ${MAX_CODE_BYTES} bytes`)
}

/** Functions that are named beside the one that was asked for. */
const MAX_SHARED = 20

export function createFunctionEndpoints(context: ControlContext, files: SourceFiles): readonly Endpoint[] {
  const editor = new FunctionEditor(context, files)
  return [
    endpoint(
      'GET /_fn/function',
      'read',
      ({ query, details }) => {
        const fn = findTarget(context, query)
        return toFunctionReply(context, files, fn, { details, withCode: query.include_code ?? true })
      },
      { ...TARGET, include_code: boolean() },
    ),
    endpoint(
      'GET /_fn/function-config',
      'read',
      ({ query, details }) => editor.toConfigReply(findTarget(context, query), details),
      TARGET,
    ),
    endpoint('PUT /_fn/function-config', 'write', request => editor.putConfig(request), TARGET),
    endpoint(
      'GET /_fn/function-env',
      'read',
      ({ query, details }) => editor.toEnvReply(findTarget(context, query), details),
      TARGET,
    ),
    endpoint('PUT /_fn/function-env', 'write', request => editor.putEnv(request), TARGET),
    endpoint('PUT /_fn/function-code', 'write', request => editor.putCode(request), TARGET),
  ]
}

interface ReplyOptions {
  status?: number
  details: boolean
  withCode: boolean
  /** Messages about the request. */
  notes?: readonly string[]
}

/** A function with its policy, where that comes from, and its code. */
export async function toFunctionReply(
  { dependencies, policySourcesOf, state }: ControlContext,
  files: SourceFiles,
  fn: FunctionVersion,
  { status = 200, details, withCode, notes = [] }: ReplyOptions,
): Promise<ControlReply> {
  const record = toFunctionRecord(fn, state(details), files, policySourcesOf(fn), dependencies.recordOf(fn))
  const warnings = [...new Set([...notes, ...record.warnings])]
  // A caller that may not see paths may not see sources either.
  if (!withCode || !details) return json({ ...record, warnings }, status)
  const { bytes, isWhole } = await readCode(fn.entryPath)
  const etag = isWhole ? toEtag(bytes) : null
  const code = { code: bytes.toString('utf8'), code_truncated: !isWhole, etag }
  return json({ ...record, ...code, warnings }, status, etag === null ? [] : ['ETag', etag])
}

/** The first 2 MiB of a handler, wherever its links lead: the gateway runs it from there. */
async function readCode(path: string): Promise<{ bytes: Buffer; isWhole: boolean }> {
  const file = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0))
  try {
    const stats = await file.stat()
    if (!stats.isFile()) throw new GatewayError('CONFLICT', 'the handler is not a regular file')
    const { buffer, bytesRead } = await file.read(Buffer.alloc(Math.min(stats.size, MAX_CODE_BYTES)), 0)
    return { bytes: buffer.subarray(0, bytesRead), isWhole: stats.size <= MAX_CODE_BYTES }
  } finally {
    await file.close()
  }
}

/** A file of a function that a request changes, in turn with others. */
interface Edit {
  fn: FunctionVersion
  path: string
  file: SourceFile
  /** Messages of the catalog before the change. */
  known: ReadonlySet<string>
}

class FunctionEditor {
  readonly #context: ControlContext
  readonly #files: SourceFiles

  constructor(context: ControlContext, files: SourceFiles) {
    this.#context = context
    this.#files = files
  }

  get #functions(): readonly FunctionVersion[] {
    return this.#context.state(false).functions
  }

  async putConfig(request: ControlRequest<TargetQuery>): Promise<ControlReply> {
    const body = await readJson(request)
    return this.#edit(request, toConfigPath, MAX_CONFIG_FILE_BYTES, async edit => {
      const warnings = this.#write(edit, changeConfig(toText(edit.file), body, edit.file.label))
      const fn = await this.#reload(edit)
      if (fn === null) throw await this.#undo(edit)
      return this.toConfigReply(fn, request.details, warnings)
    })
  }

  async putEnv(request: ControlRequest<TargetQuery>): Promise<ControlReply> {
    const body = await readJson(request)
    return this.#edit(request, toEnvPath, MAX_CONFIG_FILE_BYTES, async edit => {
      const change = changeEnv(toText(edit.file), body, new Set(Object.keys(edit.fn.env)))
      const warnings = this.#write(edit, change, 0o600)
      return this.toEnvReply((await this.#reload(edit)) ?? edit.fn, request.details, warnings)
    })
  }

  async putCode(request: ControlRequest<TargetQuery>): Promise<ControlReply> {
    const notes: string[] = []
    const given = readRequest(PUT_CODE, await readJson(request, CODE_BODY_BYTES), undefined, notes)
    const code = checkCodeSize(given.code!)
    const { state } = this.#context
    return this.#edit(
      request,
      fn => fn.entryPath,
      Number.MAX_SAFE_INTEGER,
      async edit => {
        this.#files.write(edit.path, code)
        const fn = (await this.#reload(edit)) ?? edit.fn
        const record = toFunctionRecord(fn, state(request.details), this.#files)
        const file = this.#files.read(edit.path, MAX_CODE_BYTES)
        return toReply({ ...record, code, code_truncated: false, warnings: [...notes, ...record.warnings] }, file)
      },
    )
  }

  /** Changes one file of the function that is there when its turn has come. */
  async #edit(
    request: ControlRequest<TargetQuery>,
    toPath: (fn: FunctionVersion) => string,
    limit: number,
    change: (edit: Edit) => Promise<ControlReply>,
  ): Promise<ControlReply> {
    const reply = await this.#files.inTurn(async () => {
      const fn = findTarget(this.#context, request.query)
      const path = toPath(fn)
      const file = this.#files.read(path, limit)
      checkMatch(file, readHeader(request, 'if-match'))
      const known = new Set(this.#context.state(false).warnings.map(({ message }) => message))
      return change({ fn, path, file, known })
    })
    // Not in turn: the next change need not wait for other gateways.
    return announce(this.#context, reply)
  }

  /** @returns warnings; @throws GatewayError BAD_REQUEST with the problems, and then nothing is written */
  #write({ path }: Edit, change: FileChange, mode?: number): string[] {
    if (!change.ok) throw new GatewayError('BAD_REQUEST', change.problems.slice(0, 5).join('; '))
    if (Buffer.byteLength(change.text) > MAX_CONFIG_FILE_BYTES)
      throw new GatewayError('BODY_TOO_LARGE', `payload too large: the file may have ${MAX_CONFIG_FILE_BYTES} bytes`)
    this.#files.write(path, change.text, mode)
    return change.warnings
  }

  /** @returns the function after the change: a new name or entrypoint does not make it another one; null when it is not served */
  async #reload({ fn }: Edit): Promise<FunctionVersion | null> {
    await this.#files.reload()
    const near = this.#functions.filter(one => one.fnDir === fn.fnDir && one.runtime === fn.runtime)
    const same = near.find(one => one.key === fn.key)
    return same ?? near.find(one => one.version === fn.version && one.kind === fn.kind) ?? null
  }

  /** Reverts a change after which the function is not served. @returns the reason */
  async #undo({ path, file, known }: Edit): Promise<GatewayError> {
    const news = this.#context.state(false).warnings.find(({ message }) => !known.has(message))
    const why = news?.message ?? 'the function would not be served with it'
    this.#files.restore(path, file)
    await this.#files.reload()
    return new GatewayError('BAD_REQUEST', `${why}; the file is as it was`)
  }

  toConfigReply(fn: FunctionVersion, details: boolean, notes: readonly string[] = []): ControlReply {
    const file = this.#files.read(toConfigPath(fn), MAX_CONFIG_FILE_BYTES)
    const parsed = file.bytes === null ? null : parseJsonText(file.bytes)
    const record = toFunctionRecord(fn, this.#context.state(details), this.#files)
    const shared = this.#toShared(fn, other => `${other.fnDir}/`.startsWith(`${fn.fnDir}/`))
    const warnings = [...new Set([...notes, ...record.warnings])]
    return toReply({ ...record, ...shared, config: parsed?.ok === true ? parsed.value : null, warnings }, file)
  }

  toEnvReply(fn: FunctionVersion, details: boolean, warnings: readonly string[] = []): ControlReply {
    const file = this.#files.read(toEnvPath(fn), MAX_CONFIG_FILE_BYTES)
    const fnEnv = toEnvRecord(fn, this.#files, details)
    const others = Object.keys(fn.env).filter(key => !Object.hasOwn(fnEnv, key))
    const shared = this.#toShared(fn, other => other.fnDir === fn.fnDir)
    const record = { ...toIdentityRecord(fn), file: file.label, ...shared, fn_env: fnEnv, other_keys: others.sort() }
    return toReply({ ...record, warnings }, file)
  }

  /** Keys of the other functions that read a file of this one. */
  #toShared(fn: FunctionVersion, isReader: (other: FunctionVersion) => boolean): JsonObject {
    const readers = this.#functions.filter(other => other.key !== fn.key && isReader(other))
    const keys = readers.map(({ key }) => key).sort()
    return { shared_with: keys.slice(0, MAX_SHARED), shared_with_count: keys.length }
  }
}

function toReply(body: JsonObject, { etag }: SourceFile): ControlReply {
  return json({ ...body, etag }, 200, ['ETag', etag])
}

/** The text of a file that will be changed. @throws GatewayError CONFLICT when it is not a JSON object */
function toText({ bytes, label }: SourceFile): string | null {
  if (bytes === null) return null
  const parsed = parseJsonText(bytes)
  if (parsed.ok && isObject(parsed.value)) return bytes.toString('utf8').replace(/^\uFEFF/, '')
  const why = parsed.ok
    ? 'is not a JSON object'
    : `is not JSON (line ${parsed.line}, column ${parsed.column}): ${parsed.reason}`
  throw new GatewayError('CONFLICT', `${label} ${why}; mend it by hand first`)
}

export const toConfigPath = (fn: FunctionVersion): string => join(fn.fnDir, 'fn.config.json')
export const toEnvPath = (fn: FunctionVersion): string => join(fn.fnDir, 'fn.env.json')

/** The part of every response about a function. */
export function toIdentityRecord(fn: FunctionVersion): JsonObject {
  return { runtime: fn.runtime, name: fn.name, version: fn.version }
}

/** A function as `GET /_fn/function` shows it, but for its code. */
export function toFunctionRecord(
  fn: FunctionVersion,
  state: GatewayState,
  files: SourceFiles,
  policySources: object = {},
  dependencies: object | null = null,
): JsonObject & { warnings: string[] } {
  const routes = Object.entries(state.routes.mapped_routes).filter(([, owners]) => owners.some(one => isSame(one, fn)))
  const { policy } = fn
  const { workerPool, keepWarm, edge, cors, schedule } = policy
  const health = state.runtimes.get(fn.runtime)?.health()
  const exampleRoute = routes.find(([route]) => !/[:*]/.test(route))?.[0] ?? toFunctionPath(fn.name, fn.version)
  return {
    ...toIdentityRecord(fn),
    ...{ key: fn.key, kind: fn.kind, load_error: toLoadError(fn, state), file: fn.entryFile },
    ...(state.details && { function_dir: fn.fnDir, file_path: fn.entryPath }),
    ...(state.details && { config_path: toConfigPath(fn), env_path: toEnvPath(fn) }),
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
export function toEnvRecord(fn: FunctionVersion, files: SourceFiles, details: boolean): JsonObject {
  const { bytes, label } = files.read(toEnvPath(fn), MAX_CONFIG_FILE_BYTES)
  const declared: [string, EnvValue][] = []
  for (const [key, value] of Object.entries(bytes === null ? {} : parseFunctionEnv(bytes, label).value.env))
    if (value !== null) declared.push([key, value])
  const masked = maskEnv(Object.fromEntries(declared))
  if (!details) for (const entry of Object.values(masked)) entry.value = HIDDEN
  return masked
}

type Identity = Pick<FunctionVersion, 'name' | 'version'> & { runtime: string }

export function isSame(one: Identity, other: Identity): boolean {
  return one.runtime === other.runtime && one.name === other.name && one.version === other.version
}

/** A file as it was read. */
interface SourceFile {
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
