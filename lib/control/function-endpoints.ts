/** `/_fn/function`: a function with its code is read, made and deleted. Owner: §4.2, page control/function. */

import { open } from 'node:fs/promises'
import { constants } from 'node:fs'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { ControlRequest } from './control-request.ts'
import { type ControlReply, type Endpoint, READ, WRITE } from './endpoint.ts'
import {
  checkNewName,
  hasFunctionFiles,
  type NewFunction,
  readNewFunction,
  toNewEntry,
  type Written,
  writeIntoFolder,
  writeNewFunction,
} from './function-create.ts'
import { deleteFunction } from './function-delete.ts'
import type { FunctionEditDeps } from './function-edit-endpoints.ts'
import { MAX_CODE_BYTES, toFunctionRecord, toIdentityRecord } from './function-record.ts'
import { findTarget, readRuntime, readVersion, TARGET_FIELDS } from './function-target.ts'
import { toEtag } from './source-files.ts'

/** JSON may write a byte of code in six. */
const CREATE_BODY_BYTES = 6 * MAX_CODE_BYTES

interface FunctionEndpointsDeps extends FunctionEditDeps {
  functionsRoot: string
  /** The enabled ones. */
  runtimes: readonly RuntimeName[]
  /** Why a function of that name would never be served; null when it would. */
  unservedReason: (name: string) => string | null
  /** What is known of its packages; null when nothing is. */
  dependenciesOf: (fn: FunctionVersion) => object | null
  /** The file that each value of its policy comes from. */
  policySourcesOf: (fn: FunctionVersion) => object
}

export function createFunctionEndpoints(deps: FunctionEndpointsDeps): readonly Endpoint[] {
  const path = '/_fn/function'
  const keeper = new FunctionKeeper(deps)
  return [
    {
      method: 'GET',
      path,
      access: READ,
      query: [...TARGET_FIELDS, 'include_code'],
      handle: request => keeper.read(request),
    },
    { method: 'POST', path, access: WRITE, query: TARGET_FIELDS, handle: request => keeper.create(request) },
    { method: 'DELETE', path, access: WRITE, query: TARGET_FIELDS, handle: request => keeper.delete(request) },
  ]
}

class FunctionKeeper {
  readonly #deps: FunctionEndpointsDeps

  constructor(deps: FunctionEndpointsDeps) {
    this.#deps = deps
  }

  async read(request: ControlRequest): Promise<ControlReply> {
    const fn = findTarget(request.query, this.#deps.find)
    const isWanted = request.query.text('include_code') === null || request.query.flag('include_code')
    return this.#toReply(200, fn, request, isWanted, [])
  }

  async create(request: ControlRequest): Promise<ControlReply> {
    const { query } = request
    const name = query.required('name')
    const version = readVersion(query)
    const runtime = readRuntime(query)
    if (runtime === null) throw new GatewayError('BAD_REQUEST', 'query field runtime is missing: add ?runtime=...')
    checkNewName(name, version, this.#deps.unservedReason)
    const { runtimes } = this.#deps
    if (!runtimes.includes(runtime)) {
      const how = `set FN_RUNTIMES=${[...runtimes, runtime].join(',')}`
      throw new GatewayError('BAD_REQUEST', `query field runtime: ${runtime} is not enabled; ${how}`)
    }
    const fn = readNewFunction({ runtime, name, version }, await request.readJson(CREATE_BODY_BYTES))
    return this.#deps.files.inTurn(() => this.#create(fn, request))
  }

  async #create(fn: NewFunction, request: ControlRequest): Promise<ControlReply> {
    const { files, functionsRoot, functions } = this.#deps
    if (functions().some(one => isSame(one, fn))) {
      const shown = fn.version === null ? fn.name : `${fn.name}@${fn.version}`
      throw new GatewayError('CONFLICT', `function already exists: ${fn.runtime} ${shown}`)
    }
    const names = this.#toFolder(fn)
    const written = this.#write(names, fn)
    await files.reload()
    const entry = toNewEntry(functionsRoot, names, fn)
    const made = functions().find(one => one.entryPath === entry && isSame(one, fn))
    if (made !== undefined) return this.#toReply(201, made, request, true, fn.warnings)
    const why = this.#whyNot(files.labelOf(entry))
    written.remove()
    await files.reload()
    throw new GatewayError('BAD_REQUEST', `the function would not be served${why}; nothing was written`)
  }

  /** Names of the folders from the root: below the function's default version, in the runtime's group, or at the name itself. */
  #toFolder(fn: NewFunction): string[] {
    const { functionsRoot, functions } = this.#deps
    const base = functions().find(one => isSame(one, { ...fn, version: null }) && one.kind === 'function')
    const group = new OwnFolder(functionsRoot, fn.runtime)
    const isGrouped = group.isThere() && !hasFunctionFiles(group)
    const names =
      base !== undefined && fn.version !== null
        ? this.#deps.files.labelOf(base.fnDir).split('/')
        : [...(isGrouped ? [fn.runtime] : []), ...fn.name.split('/')]
    return fn.version === null ? names : [...names, fn.version]
  }

  #write(names: readonly string[], fn: NewFunction): Written {
    const folder = new OwnFolder(this.#deps.functionsRoot, ...names)
    folder.check()
    if (!folder.isThere()) return writeNewFunction(this.#deps.functionsRoot, names, fn)
    if (hasFunctionFiles(folder))
      throw new GatewayError('CONFLICT', `the folder ${names.join('/')} holds a function or routes already`)
    return writeIntoFolder(folder, fn)
  }

  #whyNot(label: string): string {
    const folder = label.slice(0, label.lastIndexOf('/'))
    const warning = this.#deps.state(false).warnings.find(({ path }) => path === label || path.startsWith(folder))
    return warning === undefined ? '' : `: ${warning.message}`
  }

  delete(request: ControlRequest): Promise<ControlReply> {
    const { files, find, functions, functionsRoot } = this.#deps
    return files.inTurn(async () => {
      const fn = findTarget(request.query, find)
      deleteFunction(functionsRoot, fn, functions(), files)
      await files.reload()
      return { status: 200, body: { ok: true, ...toIdentityRecord(fn) } }
    })
  }

  async #toReply(
    status: number,
    fn: FunctionVersion,
    { details }: ControlRequest,
    withCode: boolean,
    notes: readonly string[],
  ): Promise<ControlReply> {
    const dependencies = this.#deps.dependenciesOf(fn)
    const sources = this.#deps.policySourcesOf(fn)
    const record = toFunctionRecord(fn, this.#deps.state(details), this.#deps.files, sources, dependencies)
    const warnings = [...new Set([...notes, ...(record.warnings as string[])])]
    // Whoever may see no paths may see no sources either.
    if (!withCode || !details) return { status, body: { ...record, warnings } }
    const { bytes, isWhole } = await readCode(fn.entryPath)
    const etag = isWhole ? toEtag(bytes) : null
    const code = { code: bytes.toString('utf8'), code_truncated: !isWhole, etag }
    return { status, body: { ...record, ...code, warnings }, ...(etag !== null && { headers: ['ETag', etag] }) }
  }
}

/** The first 2 MiB of a handler, wherever its links lead: the gateway runs it from there. */
async function readCode(path: string): Promise<{ bytes: Buffer; isWhole: boolean }> {
  const file = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0))
  try {
    const stats = await file.stat()
    if (!stats.isFile()) throw new GatewayError('CONFLICT', 'the handler is no regular file')
    const { buffer, bytesRead } = await file.read(Buffer.alloc(Math.min(stats.size, MAX_CODE_BYTES)), 0)
    return { bytes: buffer.subarray(0, bytesRead), isWhole: stats.size <= MAX_CODE_BYTES }
  } finally {
    await file.close()
  }
}

function isSame(
  one: Pick<FunctionVersion, 'runtime' | 'name' | 'version'>,
  other: Pick<FunctionVersion, 'runtime' | 'name' | 'version'>,
): boolean {
  return one.runtime === other.runtime && one.name === other.name && one.version === other.version
}
