/**
 * Packages that a manifest names by a path: inside the functions root, part of the key, and copied beside the manifest that the
 * tool is given, so that the path means the same there. Owner: page dependencies/install.
 *
 *   <root>/shop/cart/package.json  "file:../lib"      <draft>/tree/shop/cart/package.json
 *   <root>/shop/lib/...                         ->    <draft>/tree/shop/lib/...
 */

import { copyFileSync, lstatSync, mkdirSync, readdirSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { dirname, join, relative, sep } from 'node:path'
import type { OwnFolder } from '../files/own-folder.ts'
import { below } from './build.ts'
import type { BuildKey } from './build-cache.ts'

/** Files and bytes of all packages that one function names by paths. */
const MAX_FILES = 5000
const MAX_BYTES = 64 * 1024 * 1024
/** Folders that are nobody's source; what is installed in a package is installed anew. */
const SKIPPED: readonly string[] = ['.git', '.svc', '.svc-deps']

export interface FilePackages {
  /** Full paths of the files, all below the functions root. */
  files: readonly string[]
}

/** Collects the files of packages, each package once, up to a bound. */
export class FileCollector implements FilePackages {
  readonly files: string[] = []
  readonly #skipped: ReadonlySet<string>
  readonly #seen = new Set<string>()
  #bytes = 0

  /** @param installed - name of the folder of installed packages, which is not copied */
  constructor(installed: string) {
    this.#skipped = new Set([...SKIPPED, installed])
  }

  /**
   * @param target - full real path of a file or folder
   * @param fail - the error for a reason
   * @returns false for one that is known already
   */
  add(target: string, fail: (why: string) => Error): boolean {
    if (this.#seen.has(target)) return false
    this.#seen.add(target)
    const found = filesOf(target, this.#skipped)
    this.#bytes += found.reduce((sum, file) => sum + statSync(file).size, 0)
    this.files.push(...found)
    if (this.files.length <= MAX_FILES && this.#bytes <= MAX_BYTES) return true
    throw fail(`more than ${MAX_FILES} files or ${MAX_BYTES / 1024 / 1024} MiB in packages named by paths`)
  }
}

/**
 * Adds what the packages hold to a key, by the way to it: folders from where equal ways lead to equal files share a set.
 * @param folder - full path of the function's folder, below the real path of the root
 */
export function addFilePackages(key: BuildKey, { files }: FilePackages, folder: string): void {
  for (const file of [...new Set(files)].sort()) key.add(below(folder, file), readFileSync(file))
}

/**
 * The folder that the tool works in: the draft itself, or where paths of the manifest lead to copies.
 * @param label - the function's folder below the root, `.` for the root itself
 * @param root - full path of the functions root without links
 */
export function toWorkFolder(draft: OwnFolder, label: string, { files }: FilePackages, root: string): OwnFolder {
  if (files.length === 0) return draft
  const tree = draft.below('tree')
  const cwd = tree.below(...label.split('/').filter(name => name !== '.'))
  cwd.make()
  copyFiles(files, root, tree.path)
  return cwd
}

function copyFiles(files: readonly string[], root: string, tree: string): void {
  for (const file of new Set(files)) {
    const copy = join(tree, relative(root, file))
    mkdirSync(dirname(copy), { recursive: true })
    copyFileSync(file, copy)
  }
}

/** The real path of what is inside the root; null for what is not, or is not there. */
export function findInside(path: string, root: string): string | null {
  try {
    const real = realpathSync(path)
    return real.startsWith(root + sep) ? real : null
  } catch {
    return null
  }
}

/** Regular files; links are left out, because they could lead anywhere. */
function filesOf(target: string, skipped: ReadonlySet<string>): string[] {
  const stats = lstatSync(target)
  if (stats.isFile()) return [target]
  const found: string[] = []
  const folders = [target]
  for (const folder of folders) {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (skipped.has(entry.name)) continue
      if (entry.isDirectory()) folders.push(join(folder, entry.name))
      else if (entry.isFile()) found.push(join(folder, entry.name))
      if (found.length > MAX_FILES) return found
    }
  }
  return found.sort()
}
