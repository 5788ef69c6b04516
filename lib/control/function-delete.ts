/** What `DELETE /_fn/function` takes away: a function's own files, never another function's. Owner: page control/function. */

import { randomBytes } from 'node:crypto'
import { basename, dirname, extname, relative, sep } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import { RUNTIME_OF_EXTENSION } from '../core/identity.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { SourceFiles } from './source-files.ts'

/** What belongs to the function of a folder besides its handler. */
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

/** The folder leaves its place by one rename: nobody ever sees half of it. */
function deleteFolder(root: string, fn: FunctionVersion, files: SourceFiles): void {
  const parent = files.folder(dirname(fn.fnDir))
  const trash = new OwnFolder(root, '.svc', 'trash')
  const name = `d-${randomBytes(8).toString('hex')}`
  try {
    parent.moveTo(basename(fn.fnDir), trash, name)
  } catch (error) {
    // The state folder may be a mount of its own.
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
    const why = `other functions live in its folder, and ${names} would become a route of its own`
    throw new GatewayError('CONFLICT', `${files.labelOf(fn.fnDir)} is not deleted: ${why}; move or delete it first`)
  }
  deleteFile(fn, files)
  for (const { name } of folder.list(/^/)) if (ARTEFACTS.has(name)) folder.remove(name)
}

function isAtOrBelow(path: string, folder: string): boolean {
  const below = relative(folder, path)
  return below === '' || !(below === '..' || below.startsWith(`..${sep}`))
}
