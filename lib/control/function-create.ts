/** `POST` and `DELETE /_fn/function`: creates and deletes a function with its files. Owner: page control/function. */

import { randomBytes } from 'node:crypto'
import { rmdirSync } from 'node:fs'
import { basename, dirname, extname, join, relative, sep } from 'node:path'
import { changeConfig } from '../config/config-change.ts'
import { type Field, json as anyJson, object, readRequest, showText, string } from '../config/fields.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { badRequest, GatewayError, orNull } from '../core/errors.ts'
import { isFunctionName, RUNTIME_OF_EXTENSION, type RuntimeName } from '../core/identity.ts'
import { TEMPLATES } from '../core/templates.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { TARGET } from '../jobs/job-input.ts'
import {
  announce,
  badQuery,
  type ControlContext,
  type ControlReply,
  type ControlRequest,
  type Endpoint,
  endpoint,
  findTarget,
  json,
  type JsonObject,
  readJson,
  required,
  type TargetQuery,
} from './endpoint.ts'
import {
  checkCodeSize,
  CODE,
  CODE_BODY_BYTES,
  isSame,
  type SourceFiles,
  toFunctionReply,
  toIdentityRecord,
} from './function-endpoints.ts'

export function createFunctionCreateEndpoints(context: ControlContext, files: SourceFiles): readonly Endpoint[] {
  const { settings, state } = context
  return [
    endpoint('POST /_fn/function', 'write', request => create(context, files, request), TARGET),
    endpoint(
      'DELETE /_fn/function',
      'write',
      async ({ query }) => {
        const reply = await files.inTurn(async () => {
          const fn = findTarget(context, query)
          deleteFunction(settings.functionsRoot, fn, state(false).functions, files)
          await files.reload()
          return json({ ok: true, ...toIdentityRecord(fn) })
        })
        return announce(context, reply)
      },
      TARGET,
    ),
  ]
}

async function create(
  context: ControlContext,
  files: SourceFiles,
  request: ControlRequest<TargetQuery>,
): Promise<ControlReply> {
  const { query, details } = request
  const name = required(query.name, 'name')
  const runtime = required(query.runtime, 'runtime')
  const version = query.version === DEFAULT_VERSION_LABEL ? null : (query.version ?? null)
  checkNewName(name, version, context.unservedReason)
  const { runtimes, functionsRoot } = context.settings
  if (!runtimes.includes(runtime)) {
    const how = `set FN_RUNTIMES=${[...runtimes, runtime].join(',')}`
    throw badRequest('query field runtime:', `${runtime} is not enabled; ${how}`)
  }
  const fn = readNewFunction({ runtime, name, version }, await readJson(request, CODE_BODY_BYTES))
  const reply = await files.inTurn(async () => {
    const { functions } = context.state(false)
    if (functions.some(one => isSame(one, fn))) {
      const shown = fn.version === null ? fn.name : `${fn.name}@${fn.version}`
      throw new GatewayError('CONFLICT', `function already exists: ${fn.runtime} ${shown}`)
    }
    const names = toFolderNames(fn, functions, functionsRoot, files)
    const remove = writeFiles(functionsRoot, names, fn)
    await files.reload()
    const after = context.state(false)
    const entry = join(functionsRoot, ...names, fn.fileName)
    const created = after.functions.find(one => one.entryPath === entry && isSame(one, fn))
    if (created !== undefined)
      return toFunctionReply(context, files, created, { status: 201, details, withCode: true, notes: fn.warnings })
    const warning = after.warnings.find(({ path }) => path.startsWith(names.join('/')))
    remove()
    await files.reload()
    const why = warning === undefined ? '' : `: ${warning.message}`
    throw new GatewayError('BAD_REQUEST', `the function would not be served${why}; nothing was written`)
  })
  return announce(context, reply)
}

/** Names of the folders from the root: below the function's default version, in the runtime's group, or at the name itself. */
function toFolderNames(
  fn: NewFunction,
  functions: readonly FunctionVersion[],
  root: string,
  files: SourceFiles,
): string[] {
  const base = functions.find(one => isSame(one, { ...fn, version: null }) && one.kind === 'function')
  if (base !== undefined && fn.version !== null) return [...files.labelOf(base.fnDir).split('/'), fn.version]
  const group = new OwnFolder(root, fn.runtime)
  const isGrouped = group.isThere() && !hasFunctionFiles(group)
  const names = [...(isGrouped ? [fn.runtime] : []), ...fn.name.split('/')]
  return fn.version === null ? names : [...names, fn.version]
}

/** @returns a function that removes the files again */
function writeFiles(root: string, names: readonly string[], fn: NewFunction): () => void {
  const folder = new OwnFolder(root, ...names)
  folder.check()
  if (!folder.isThere()) return writeNewFunction(root, names, fn)
  if (hasFunctionFiles(folder))
    throw new GatewayError('CONFLICT', `the folder ${names.join('/')} already contains a function or routes`)
  return writeIntoFolder(folder, fn)
}

// `POST /_fn/function` writes a folder with a handler and its config, as a whole or not at all.

type NewIdentity = Pick<FunctionVersion, 'runtime' | 'name' | 'version'>

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
  methods: anyJson(),
  summary: anyJson(),
  query_example: anyJson(),
  body_example: anyJson(),
  route: anyJson(),
  routes: anyJson(),
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

/**
 * Puts the files in place at once: they are written beside it, and the folder then gets its name.
 * @param names - the way from the root to the function's folder; what is missing of it is made
 * @returns a function that removes them again
 * @throws GatewayError CONFLICT when something is there; UnsafePathError for links
 */
export function writeNewFunction(root: string, names: readonly string[], fn: NewFunction): () => void {
  const made = missingParents(root, names)
  const parent = new OwnFolder(root, ...names.slice(0, -1))
  const name = names.at(-1)!
  const undo = (): void => {
    // One that contains files of another program stays.
    for (const path of made) orNull(() => rmdirSync(path))
  }
  parent.make()
  // Made as any folder is: one for temporary files would be closed to the users that functions run as. No dot: it becomes
  // the user's folder, which git does not ignore.
  const draft = parent.below(`_new-${randomBytes(8).toString('hex')}`)
  try {
    draft.make()
    draft.write(fn.fileName, fn.code)
    draft.write('fn.config.json', fn.config)
    parent.rename(basename(draft.path), name)
  } catch (error) {
    draft.removeAll()
    undo()
    throw toConflict(error, names)
  }
  return () => {
    parent.remove(name)
    undo()
  }
}

/** Puts the files into a folder that holds other things already: versions, routes. @returns a function that removes them again */
export function writeIntoFolder(folder: OwnFolder, fn: NewFunction): () => void {
  folder.write('fn.config.json', fn.config)
  folder.write(fn.fileName, fn.code)
  return () => {
    folder.remove(fn.fileName)
    folder.remove('fn.config.json')
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
