/** `/_fn/function-config`, `/_fn/function-env` and `/_fn/function-code`: the files of a function, read and changed. Owner: §4.2. */

import { changeConfig, changeEnv, type FileChange } from '../config/config-change.ts'
import { object, readRequest } from '../config/fields.ts'
import { parseJsonText } from '../config/json-text.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { MAX_CONFIG_FILE_BYTES } from '../core/limits.ts'
import {
  type ControlContext,
  type ControlReply,
  type ControlRequest,
  type Endpoint,
  findTarget,
  READ,
  TARGET_FIELDS,
  WRITE,
  readJson,
  readHeader,
} from './endpoint.ts'
import {
  checkCodeSize,
  checkMatch,
  CODE,
  CODE_BODY_BYTES,
  MAX_CODE_BYTES,
  type SourceFile,
  type SourceFiles,
  toConfigPath,
  toEnvPath,
  toEnvRecord,
  toFileWarnings,
  toFunctionRecord,
  toIdentityRecord,
} from './function-record.ts'

const PUT_CODE = object({ code: CODE }, { required: ['code'] })

/** Functions that are named beside the one that was asked for. */
const MAX_SHARED = 20

/** A file of a function that a request changes, in turn with others. */
interface Edit {
  fn: FunctionVersion
  path: string
  file: SourceFile
  /** Messages of the catalog before the change. */
  known: ReadonlySet<string>
}

export function createFunctionEditEndpoints(context: ControlContext, files: SourceFiles): readonly Endpoint[] {
  const editor = new FunctionEditor(context, files)
  const query = TARGET_FIELDS
  return [
    { method: 'GET', path: '/_fn/function-config', access: READ, query, handle: request => editor.readConfig(request) },
    { method: 'PUT', path: '/_fn/function-config', access: WRITE, query, handle: request => editor.putConfig(request) },
    { method: 'GET', path: '/_fn/function-env', access: READ, query, handle: request => editor.readEnv(request) },
    { method: 'PUT', path: '/_fn/function-env', access: WRITE, query, handle: request => editor.putEnv(request) },
    { method: 'PUT', path: '/_fn/function-code', access: WRITE, query, handle: request => editor.putCode(request) },
  ]
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

  readConfig(request: ControlRequest): ControlReply {
    const fn = this.#find(request)
    const file = this.#files.read(toConfigPath(fn), MAX_CONFIG_FILE_BYTES)
    return this.#configReply(request, fn, file)
  }

  async putConfig(request: ControlRequest): Promise<ControlReply> {
    const body = await readJson(request)
    return this.#edit(request, toConfigPath, async edit => {
      const change = changeConfig(toText(edit.file), body, edit.file.label)
      const warnings = this.#write(edit, change)
      await this.#files.reload()
      const fn = this.#findAfter(edit)
      if (fn === null) throw await this.#undo(edit)
      const file = this.#files.read(edit.path, MAX_CONFIG_FILE_BYTES)
      return this.#configReply(request, fn, file, warnings)
    })
  }

  readEnv(request: ControlRequest): ControlReply {
    const fn = this.#find(request)
    return this.#envReply(request, fn, [])
  }

  async putEnv(request: ControlRequest): Promise<ControlReply> {
    const body = await readJson(request)
    return this.#edit(request, toEnvPath, async edit => {
      const warnings = this.#write(edit, changeEnv(toText(edit.file), body, new Set(Object.keys(edit.fn.env))), 0o600)
      await this.#files.reload()
      return this.#envReply(request, this.#findAfter(edit) ?? edit.fn, warnings)
    })
  }

  async putCode(request: ControlRequest): Promise<ControlReply> {
    const notes: string[] = []
    const given = readRequest(PUT_CODE, await readJson(request, CODE_BODY_BYTES), undefined, notes)
    const code = checkCodeSize(given.code!)
    return this.#edit(
      request,
      fn => fn.entryPath,
      async edit => {
        this.#files.write(edit.path, code)
        await this.#files.reload()
        const fn = this.#findAfter(edit) ?? edit.fn
        const file = this.#files.read(edit.path, MAX_CODE_BYTES)
        const state = this.#context.state(request.details)
        const record = toFunctionRecord(fn, state, this.#files)
        const warnings = [...notes, ...toFileWarnings(fn, state)]
        return toReply({ ...record, code, code_truncated: false, warnings }, file)
      },
    )
  }

  #find({ query }: ControlRequest): FunctionVersion {
    return findTarget(query, this.#context.find)
  }

  /** Changes one file of the function that is there when its turn has come. */
  #edit(
    request: ControlRequest,
    toPath: (fn: FunctionVersion) => string,
    change: (edit: Edit) => Promise<ControlReply>,
  ): Promise<ControlReply> {
    const files = this.#files
    return files.inTurn(async () => {
      const fn = this.#find(request)
      const path = toPath(fn)
      const file = files.read(path, path === fn.entryPath ? Number.MAX_SAFE_INTEGER : MAX_CONFIG_FILE_BYTES)
      checkMatch(file, readHeader(request, 'if-match'))
      const known = new Set(this.#context.state(false).warnings.map(({ message }) => message))
      return change({ fn, path, file, known })
    })
  }

  /** @returns warnings; @throws GatewayError BAD_REQUEST with the problems, and then nothing is written */
  #write({ path }: Edit, change: FileChange, mode?: number): string[] {
    if (!change.ok) throw new GatewayError('BAD_REQUEST', change.problems.slice(0, 5).join('; '))
    if (Buffer.byteLength(change.text) > MAX_CONFIG_FILE_BYTES)
      throw new GatewayError('BODY_TOO_LARGE', `payload too large: the file may have ${MAX_CONFIG_FILE_BYTES} bytes`)
    this.#files.write(path, change.text, mode)
    return change.warnings
  }

  /** The function after its files were changed: a new name or entrypoint does not make it another one. */
  #findAfter({ fn }: Edit): FunctionVersion | null {
    const near = this.#functions.filter(one => one.fnDir === fn.fnDir && one.runtime === fn.runtime)
    return (
      near.find(one => one.key === fn.key) ??
      near.find(one => one.version === fn.version && one.kind === fn.kind) ??
      null
    )
  }

  /** Reverts a change after which the function is not served. @returns the reason */
  async #undo({ path, file, known }: Edit): Promise<GatewayError> {
    const files = this.#files
    const { state } = this.#context
    const news = state(false).warnings.find(({ message }) => !known.has(message))
    const why = news?.message ?? 'the function would not be served with it'
    files.restore(path, file)
    await files.reload()
    return new GatewayError('BAD_REQUEST', `${why}; the file is as it was`)
  }

  #configReply(request: ControlRequest, fn: FunctionVersion, file: SourceFile, notes: string[] = []): ControlReply {
    const files = this.#files
    const { state } = this.#context
    const now = state(request.details)
    const parsed = file.bytes === null ? null : parseJsonText(file.bytes)
    const record = toFunctionRecord(fn, now, files)
    const warnings = [...new Set([...notes, ...toFileWarnings(fn, now)])]
    const shared = this.#toShared(fn, other => `${other.fnDir}/`.startsWith(`${fn.fnDir}/`))
    return toReply({ ...record, ...shared, config: parsed?.ok === true ? parsed.value : null, warnings }, file)
  }

  #envReply(request: ControlRequest, fn: FunctionVersion, warnings: readonly string[]): ControlReply {
    const files = this.#files
    const file = files.read(toEnvPath(fn), MAX_CONFIG_FILE_BYTES)
    const fnEnv = toEnvRecord(fn, files, request.details)
    const others = Object.keys(fn.env).filter(key => !Object.hasOwn(fnEnv, key))
    const shared = this.#toShared(fn, other => other.fnDir === fn.fnDir)
    const record = { ...toIdentityRecord(fn), file: file.label, ...shared, fn_env: fnEnv, other_keys: others.sort() }
    return toReply({ ...record, warnings }, file)
  }

  /** Keys of the other functions that read a file of this one. */
  #toShared(fn: FunctionVersion, isReader: (other: FunctionVersion) => boolean): Record<string, unknown> {
    const readers = this.#functions.filter(other => other.key !== fn.key && isReader(other))
    const keys = readers.map(({ key }) => key).sort()
    return { shared_with: keys.slice(0, MAX_SHARED), shared_with_count: keys.length }
  }
}

function toReply(body: Record<string, unknown>, { etag }: SourceFile): ControlReply {
  return { status: 200, body: { ...body, etag }, headers: ['ETag', etag] }
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
