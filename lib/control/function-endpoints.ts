/** `/_fn/function`: reads, creates and deletes a function with its code. Owner: §4.2, page control/function. */

import { randomBytes } from 'node:crypto'
import { chownSync, constants, lstatSync, rmdirSync, type Stats } from 'node:fs'
import { open } from 'node:fs/promises'
import { basename, dirname, extname, join, relative, sep } from 'node:path'
import { changeConfig } from '../config/config-change.ts'
import { type Field, json, object, readRequest, showText, string } from '../config/fields.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { badRequest, GatewayError } from '../core/errors.ts'
import { isFunctionName, RUNTIME_OF_EXTENSION, type RuntimeName } from '../core/identity.ts'
import { TEMPLATES } from '../core/templates.ts'
import { OwnFolder } from '../files/own-folder.ts'
import {
  badQuery,
  type ControlContext,
  type ControlReply,
  type ControlRequest,
  type Endpoint,
  findTarget,
  type JsonObject,
  READ,
  readRuntime,
  readVersion,
  TARGET_FIELDS,
  WRITE,
  readJson,
} from './endpoint.ts'
import {
  checkCodeSize,
  CODE,
  CODE_BODY_BYTES,
  isSame,
  MAX_CODE_BYTES,
  type SourceFiles,
  toEtag,
  toFunctionRecord,
  toIdentityRecord,
} from './function-record.ts'

export function createFunctionEndpoints(context: ControlContext, files: SourceFiles): readonly Endpoint[] {
  const path = '/_fn/function'
  const keeper = new FunctionKeeper(context, files)
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
  readonly #context: ControlContext
  readonly #files: SourceFiles

  constructor(context: ControlContext, files: SourceFiles) {
    this.#context = context
    this.#files = files
  }

  get #functions(): readonly FunctionVersion[] {
    return this.#context.state(false).functions
  }

  async read(request: ControlRequest): Promise<ControlReply> {
    const fn = findTarget(request.query, this.#context.find)
    const isWanted = request.query.text('include_code') === null || request.query.flag('include_code')
    return this.#toReply(200, fn, request, isWanted, [])
  }

  async create(request: ControlRequest): Promise<ControlReply> {
    const { query } = request
    const name = query.required('name')
    const version = readVersion(query)
    const runtime = readRuntime(query)
    if (runtime === null) throw badQuery('runtime', 'is missing: add ?runtime=...')
    checkNewName(name, version, this.#context.unservedReason)
    const { runtimes } = this.#context.settings
    if (!runtimes.includes(runtime)) {
      const how = `set FN_RUNTIMES=${[...runtimes, runtime].join(',')}`
      throw badRequest('query field runtime:', `${runtime} is not enabled; ${how}`)
    }
    const fn = readNewFunction({ runtime, name, version }, await readJson(request, CODE_BODY_BYTES))
    return this.#files.inTurn(() => this.#create(fn, request))
  }

  async #create(fn: NewFunction, request: ControlRequest): Promise<ControlReply> {
    const files = this.#files
    const { functionsRoot } = this.#context.settings
    if (this.#functions.some(one => isSame(one, fn))) {
      const shown = fn.version === null ? fn.name : `${fn.name}@${fn.version}`
      throw new GatewayError('CONFLICT', `function already exists: ${fn.runtime} ${shown}`)
    }
    const names = this.#toFolder(fn)
    const written = this.#write(names, fn)
    await files.reload()
    const entry = join(functionsRoot, ...names, fn.fileName)
    const made = this.#functions.find(one => one.entryPath === entry && isSame(one, fn))
    if (made !== undefined) return this.#toReply(201, made, request, true, fn.warnings)
    const why = this.#whyNot(files.labelOf(entry))
    written.remove()
    await files.reload()
    throw new GatewayError('BAD_REQUEST', `the function would not be served${why}; nothing was written`)
  }

  /** Names of the folders from the root: below the function's default version, in the runtime's group, or at the name itself. */
  #toFolder(fn: NewFunction): string[] {
    const { functionsRoot } = this.#context.settings
    const base = this.#functions.find(one => isSame(one, { ...fn, version: null }) && one.kind === 'function')
    const group = new OwnFolder(functionsRoot, fn.runtime)
    const isGrouped = group.isThere() && !hasFunctionFiles(group)
    const names =
      base !== undefined && fn.version !== null
        ? this.#files.labelOf(base.fnDir).split('/')
        : [...(isGrouped ? [fn.runtime] : []), ...fn.name.split('/')]
    return fn.version === null ? names : [...names, fn.version]
  }

  #write(names: readonly string[], fn: NewFunction): Written {
    const folder = new OwnFolder(this.#context.settings.functionsRoot, ...names)
    folder.check()
    if (!folder.isThere()) return writeNewFunction(this.#context.settings.functionsRoot, names, fn)
    if (hasFunctionFiles(folder))
      throw new GatewayError('CONFLICT', `the folder ${names.join('/')} already contains a function or routes`)
    return writeIntoFolder(folder, fn)
  }

  #whyNot(label: string): string {
    const folder = label.slice(0, label.lastIndexOf('/'))
    const warning = this.#context.state(false).warnings.find(({ path }) => path === label || path.startsWith(folder))
    return warning === undefined ? '' : `: ${warning.message}`
  }

  delete(request: ControlRequest): Promise<ControlReply> {
    const files = this.#files
    const { find, settings } = this.#context
    return files.inTurn(async () => {
      const fn = findTarget(request.query, find)
      deleteFunction(settings.functionsRoot, fn, this.#functions, files)
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
    const dependencies = this.#context.dependencies.recordOf(fn)
    const sources = this.#context.policySourcesOf(fn)
    const record = toFunctionRecord(fn, this.#context.state(details), this.#files, sources, dependencies)
    const warnings = [...new Set([...notes, ...(record.warnings as string[])])]
    // A caller that may not see paths may not see sources either.
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
    if (!stats.isFile()) throw new GatewayError('CONFLICT', 'the handler is not a regular file')
    const { buffer, bytesRead } = await file.read(Buffer.alloc(Math.min(stats.size, MAX_CODE_BYTES)), 0)
    return { bytes: buffer.subarray(0, bytesRead), isWhole: stats.size <= MAX_CODE_BYTES }
  } finally {
    await file.close()
  }
}

// `POST /_fn/function` writes a folder with a handler and its config, as a whole or not at all.

interface NewIdentity {
  runtime: RuntimeName
  name: string
  version: string | null
}

/** A function to create, with its files. */
interface NewFunction extends NewIdentity {
  fileName: string
  code: string
  config: string
  warnings: string[]
}

/** All but `filename` and `code` become the config of the function and are checked as that. */
const CREATE_FIELDS = {
  code: CODE,
  methods: json(),
  summary: json(),
  query_example: json(),
  body_example: json(),
  route: json(),
  routes: json(),
}

/** @throws GatewayError BAD_REQUEST, BODY_TOO_LARGE */
export function readNewFunction(identity: NewIdentity, body: JsonObject): NewFunction {
  const { runtime } = identity
  const template = TEMPLATES[runtime]
  const warnings: string[] = []
  const fields = object({ filename: entryName(runtime), ...CREATE_FIELDS })
  const {
    filename: fileName = template.fileName,
    code,
    route,
    ...given
  } = readRequest(fields, body, undefined, warnings)
  const routes = given.routes ?? (route === undefined ? undefined : [route])
  const invoke = {
    methods: given.methods ?? ['GET'],
    summary: given.summary ?? 'Generated function',
    ...(routes !== undefined && { routes }),
    ...(given.queryExample !== undefined && { query: given.queryExample }),
    ...(given.bodyExample !== undefined && { body: given.bodyExample }),
  }
  const change = changeConfig(null, { runtime, entrypoint: fileName, invoke }, 'body')
  if (!change.ok) throw new GatewayError('BAD_REQUEST', change.problems.slice(0, 5).join('; '))
  warnings.push(...change.warnings)
  return { ...identity, fileName, code: checkCodeSize(code ?? template.fileText), config: change.text, warnings }
}

function entryName(runtime: RuntimeName): Field<string> {
  const extensions = [...RUNTIME_OF_EXTENSION].flatMap(([extension, of]) => (of === runtime ? [extension] : []))
  const isEntry = (text: string): boolean =>
    /^(?:handler|main|index)\.[a-z]+$/.test(text) && extensions.includes(extname(text))
  return string({
    rule: `handler, main or index with ${extensions.join(' ')}`,
    parse: text => (isEntry(text) ? text : null),
  })
}

/** @throws GatewayError BAD_REQUEST for a name that nothing is ever served under */
export function checkNewName(name: string, version: string | null, unserved: (name: string) => string | null): void {
  if (!isFunctionName(name))
    throw badQuery('name', `must be segments of letters, digits, _ and - joined by /, got "${showText(name)}"`)
  const reason = unserved(version === null ? name : `${name}/${version}`)
  if (reason !== null) throw new GatewayError('BAD_REQUEST', reason)
}

const FILE_MODE = 0o644

/** Written files, for the case that they must be removed again. */
export interface Written {
  remove: () => void
}

/**
 * Puts the files in place at once: they are written beside it, and the folder then gets its name.
 * @param names - the way from the root to the function's folder; what is missing of it is made
 * @throws GatewayError CONFLICT when something is there; UnsafePathError for links
 */
export function writeNewFunction(root: string, names: readonly string[], fn: NewFunction): Written {
  const made = missingParents(root, names)
  const parent = new OwnFolder(root, ...names.slice(0, -1))
  const name = names.at(-1)!
  const undo = (): void => {
    for (const path of made) removeEmpty(path)
  }
  parent.make()
  // Made as any folder is: one for temporary files would be closed to the users that functions run as. No dot: it becomes
  // the user's folder, which git does not ignore.
  const draft = parent.below(`_new-${randomBytes(8).toString('hex')}`)
  try {
    draft.make()
    const owner = lstatSync(made.length === 0 ? parent.path : dirname(made.at(-1)!))
    for (const path of [...made, draft.path]) giveTo(path, owner)
    draft.write(fn.fileName, fn.code, FILE_MODE, owner)
    draft.write('fn.config.json', fn.config, FILE_MODE, owner)
    parent.rename(basename(draft.path), name)
  } catch (error) {
    draft.removeAll()
    undo()
    throw toConflict(error, names)
  }
  return {
    remove: () => {
      parent.remove(name)
      undo()
    },
  }
}

/** Puts the files into a folder that holds other things already: versions, routes. */
export function writeIntoFolder(folder: OwnFolder, fn: NewFunction): Written {
  const owner = lstatSync(folder.path)
  folder.write('fn.config.json', fn.config, FILE_MODE, owner)
  folder.write(fn.fileName, fn.code, FILE_MODE, owner)
  return {
    remove: () => {
      folder.remove(fn.fileName)
      folder.remove('fn.config.json')
    },
  }
}

/** Folders on the way that are not there yet, the deepest first. */
function missingParents(root: string, names: readonly string[]): string[] {
  const missing: string[] = []
  for (let count = names.length - 1; count > 0; count--) {
    const folder = new OwnFolder(root, ...names.slice(0, count))
    if (!folder.isThere()) missing.push(folder.path)
  }
  return missing
}

/** A gateway that runs as root leaves no folders of root in the tree of another user. */
function giveTo(path: string, { uid, gid }: Stats): void {
  if (process.geteuid?.() === 0) chownSync(path, uid, gid)
}

function removeEmpty(path: string): void {
  try {
    rmdirSync(path)
  } catch {
    // It contains files of another program: it stays.
  }
}

function toConflict(error: unknown, names: readonly string[]): unknown {
  const code = (error as NodeJS.ErrnoException).code ?? ''
  if (!['EEXIST', 'ENOTEMPTY', 'ENOTDIR'].includes(code)) return error
  return new GatewayError('CONFLICT', `${names.join('/')} is already there`)
}

/** True when a folder holds what makes it, or would make it, a function: a config or a source file. */
export function hasFunctionFiles(folder: OwnFolder): boolean {
  return folder
    .list(/^[^.]/)
    .some(
      ({ name, stats }) =>
        !stats.isDirectory() && (name === 'fn.config.json' || RUNTIME_OF_EXTENSION.has(extname(name))),
    )
}

// `DELETE /_fn/function` removes the function's own files, never those of another function.

/** Files of a function besides its handler. */
const ARTEFACTS: ReadonlySet<string> = new Set([
  ...['fn.config.json', 'fn.env.json', 'schema.json', '_fngw_types.py'],
  ...['requirements.txt', 'requirements.lock.txt', 'package.json', 'package-lock.json', 'npm-shrinkwrap.json'],
  ...['composer.json', 'composer.lock', 'go.mod', 'go.sum', 'Cargo.toml', 'Cargo.lock', '.svc-deps-state.json'],
  ...['.deps', 'node_modules', 'vendor', '.go-build', '.rust-build', '__pycache__'],
])

/**
 * Deletes a function. A folder that is this function's alone goes with everything in it, at once; where other functions live in
 * it or below it, only what is known to be this one's.
 * @throws GatewayError CONFLICT when a file that is left would become a route; UnsafePathError for links
 */
export function deleteFunction(
  root: string,
  fn: FunctionVersion,
  functions: readonly FunctionVersion[],
  files: SourceFiles,
): void {
  const folder = files.folder(fn.fnDir)
  folder.check()
  // A version's folder is a route too: another function, of the same file.
  const others = functions.filter(one => one.entryPath !== fn.entryPath && isAtOrBelow(one.fnDir, fn.fnDir))
  if (fn.kind === 'file' || fn.fnDir === root) deleteFile(fn, files)
  else if (others.length === 0) deleteFolder(root, fn, files)
  else deleteArtefacts(folder, fn, others, files)
}

function deleteFile(fn: FunctionVersion, files: SourceFiles): void {
  const folder = files.folder(dirname(fn.entryPath))
  // A link is a file of the tree that leads elsewhere: nothing is deleted by it.
  folder.statFile(basename(fn.entryPath))
  folder.remove(basename(fn.entryPath))
}

/** The folder is moved by one rename: it is never served half deleted. */
function deleteFolder(root: string, fn: FunctionVersion, files: SourceFiles): void {
  const parent = files.folder(dirname(fn.fnDir))
  const trash = new OwnFolder(root, '.svc', 'trash')
  const name = `d-${randomBytes(8).toString('hex')}`
  try {
    parent.moveTo(basename(fn.fnDir), trash, name)
  } catch (error) {
    // The state folder may be on another mount.
    if ((error as NodeJS.ErrnoException).code !== 'EXDEV') throw error
    parent.remove(basename(fn.fnDir))
  }
  trash.remove(name)
}

function deleteArtefacts(
  folder: OwnFolder,
  fn: FunctionVersion,
  others: readonly FunctionVersion[],
  files: SourceFiles,
): void {
  const routes = new Set(others.map(({ entryPath }) => entryPath))
  const left = folder.list(/^[^._]/).filter(({ name, stats }) => {
    const path = folder.pathOf(name)
    return stats.isFile() && RUNTIME_OF_EXTENSION.has(extname(name)) && path !== fn.entryPath && !routes.has(path)
  })
  if (left.length > 0) {
    const names = left.map(({ name }) => name).join(', ')
    const why = `other functions live in its folder, and ${names} would become a route`
    throw new GatewayError('CONFLICT', `${files.labelOf(fn.fnDir)} is not deleted: ${why}; move or delete it first`)
  }
  deleteFile(fn, files)
  for (const { name } of folder.list(/^/)) if (ARTEFACTS.has(name)) folder.remove(name)
}

function isAtOrBelow(path: string, folder: string): boolean {
  const below = relative(folder, path)
  return below === '' || !(below === '..' || below.startsWith(`..${sep}`))
}
