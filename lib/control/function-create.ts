/** What `POST /_fn/function` writes: a folder with a handler and its config, as a whole or not at all. Owner: page control/function. */

import { randomBytes } from 'node:crypto'
import { chownSync, lstatSync, rmdirSync, type Stats } from 'node:fs'
import { basename, dirname, extname, join } from 'node:path'
import { changeConfig } from '../config/config-change.ts'
import { showText, showValue } from '../config/findings.ts'
import { GatewayError } from '../core/errors.ts'
import { isFunctionName, RUNTIME_OF_EXTENSION, type RuntimeName } from '../core/identity.ts'
import { TEMPLATES } from '../core/templates.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { JsonObject } from './control-request.ts'
import { MAX_CODE_BYTES } from './function-record.ts'

/** A function that is to be: who it is, and its files. */
export interface NewFunction {
  runtime: RuntimeName
  name: string
  version: string | null
  fileName: string
  code: string
  config: string
  warnings: string[]
}

interface NewIdentity {
  runtime: RuntimeName
  name: string
  version: string | null
}

const KNOWN = ['filename', 'methods', 'summary', 'query_example', 'body_example', 'route', 'routes', 'code']

/** @throws GatewayError BAD_REQUEST, BODY_TOO_LARGE */
export function readNewFunction(identity: NewIdentity, body: JsonObject): NewFunction {
  const { runtime } = identity
  const template = TEMPLATES[runtime]
  const fileName = readFileName(body.filename ?? template.fileName, runtime)
  const code = body.code ?? template.fileText
  if (typeof code !== 'string') throw refuse(`field code must be a text, got ${showValue(code)}`)
  if (Buffer.byteLength(code) > MAX_CODE_BYTES)
    throw new GatewayError('BODY_TOO_LARGE', `payload too large: code may have ${MAX_CODE_BYTES} bytes`)
  const change = changeConfig(null, toConfig(runtime, fileName, body), 'body')
  if (!change.ok) throw new GatewayError('BAD_REQUEST', change.problems.slice(0, 5).join('; '))
  const unknown = Object.keys(body).filter(key => !KNOWN.includes(key))
  const warnings = [...unknown.map(key => `body: ${showText(key)} is not a known key`), ...change.warnings]
  return { ...identity, fileName, code, config: change.text, warnings }
}

function readFileName(given: unknown, runtime: RuntimeName): string {
  const isEntry = typeof given === 'string' && /^(?:handler|main|index)\.[a-z]+$/.test(given)
  if (isEntry && RUNTIME_OF_EXTENSION.get(extname(given)) === runtime) return given
  const extensions = [...RUNTIME_OF_EXTENSION].flatMap(([extension, of]) => (of === runtime ? [extension] : []))
  throw refuse(`field filename must be handler, main or index with ${extensions.join(' ')}, got ${showValue(given)}`)
}

function toConfig(runtime: RuntimeName, entrypoint: string, body: JsonObject): JsonObject {
  const routes = body.routes ?? (body.route === undefined || body.route === null ? undefined : [body.route])
  const invoke = {
    methods: body.methods ?? ['GET'],
    summary: body.summary ?? 'Generated function',
    ...(routes !== undefined && { routes }),
    ...(body.query_example != null && { query: body.query_example }),
    ...(body.body_example != null && { body: body.body_example }),
  }
  return { runtime, entrypoint, invoke }
}

/** @throws GatewayError BAD_REQUEST for a name that nothing is ever served under */
export function checkNewName(name: string, version: string | null, unserved: (name: string) => string | null): void {
  if (!isFunctionName(name))
    throw new GatewayError(
      'BAD_REQUEST',
      `query field name must be segments of letters, digits, _ and - joined by /, got "${showText(name)}"`,
    )
  const reason = unserved(version === null ? name : `${name}/${version}`)
  if (reason !== null) throw new GatewayError('BAD_REQUEST', reason)
}

const FILE_MODE = 0o644

/** What was written, for the case that it must go again. */
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

/** A gateway that runs as root leaves no folders of root in the tree of somebody else. */
function giveTo(path: string, { uid, gid }: Stats): void {
  if (process.geteuid?.() === 0) chownSync(path, uid, gid)
}

function removeEmpty(path: string): void {
  try {
    rmdirSync(path)
  } catch {
    // Somebody has put something into it: it stays.
  }
}

function toConflict(error: unknown, names: readonly string[]): unknown {
  const code = (error as NodeJS.ErrnoException).code ?? ''
  if (!['EEXIST', 'ENOTEMPTY', 'ENOTDIR'].includes(code)) return error
  return new GatewayError('CONFLICT', `${names.join('/')} is already there`)
}

function refuse(why: string): GatewayError {
  return new GatewayError('BAD_REQUEST', `body ${why}`)
}

/** Full path of the file a new function is answered from. */
export function toNewEntry(root: string, names: readonly string[], fn: NewFunction): string {
  return join(root, ...names, fn.fileName)
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
