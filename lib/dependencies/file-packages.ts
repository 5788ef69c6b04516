/**
 * Packages that a manifest names by a path: inside the functions root, part of the key, and copied beside the manifest that the
 * tool is given, so that the path means the same there. Owner: page dependencies/install.
 *
 *   <root>/shop/cart/package.json  "file:../lib"      <draft>/tree/shop/cart/package.json
 *   <root>/shop/lib/...                         ->    <draft>/tree/shop/lib/...
 */

import { lstatSync, readdirSync, realpathSync, statSync } from 'node:fs'
import { chmod, mkdir, readFile, stat, writeFile } from 'node:fs/promises'
import { dirname, join, relative, sep } from 'node:path'
import { orNull } from '../core/errors.ts'
import type { FileReader } from '../files/function-file.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import { below, mapSome } from './build.ts'
import { BuildKey } from './build-cache.ts'

/** Files and bytes of all packages that one function names by paths. */
const MAX_FILES = 5000
const MAX_BYTES = 64 * 1024 * 1024
/** Folders without sources of the package. */
const SKIPPED: readonly string[] = ['.git', '.svc', '.svc-deps']

/** Collects the files of packages, each package once, up to a bound. */
export class FileCollector {
  /** Full paths of the files, all below the functions root. */
  readonly files: string[] = []
  readonly #skipped: ReadonlySet<string>
  /** Full real paths of the packages. */
  readonly targets = new Set<string>()
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
    if (this.targets.has(target)) return false
    this.targets.add(target)
    const found = filesOf(target, this.#skipped)
    this.#bytes += found.reduce((sum, file) => sum + statSync(file).size, 0)
    this.files.push(...found)
    if (this.files.length <= MAX_FILES && this.#bytes <= MAX_BYTES) return true
    throw fail(`more than ${MAX_FILES} files or ${MAX_BYTES / 1024 / 1024} MiB in packages named by paths`)
  }
}

/** The reason why a set is not filled with files other than those of its key. */
export const CHANGED_MEANWHILE = 'a package in a path was changed while it was read; it is tried again'

interface PackagePlaces {
  /** As of `digestFiles`. */
  folder: string
  /** Full path of the functions root without links. */
  root: string
  /** Reads files of functions that are kept apart by users. */
  read?: FileReader | null
}

/** Where the tool works, and what was copied. */
interface Staged {
  /** The draft itself, or the folder in it from where paths of the manifest lead to copies. */
  cwd: OwnFolder
  /** As of `digestFiles`: another one when a file was saved meanwhile. */
  digest: string
}

/** Copies the packages below a draft. */
export async function stageFiles(
  draft: OwnFolder,
  packages: { files: readonly string[] },
  { folder, root, read = null }: PackagePlaces,
): Promise<Staged> {
  if (packages.files.length === 0) return { cwd: draft, digest: await digestFiles(packages, folder, read) }
  const tree = draft.below('tree')
  const base = commonFolder([root, ...packages.files.map(dirname)])
  const cwd = tree.below(
    ...relative(base, folder)
      .split(sep)
      .filter(name => name !== ''),
  )
  cwd.make()
  const digest = await digestFiles(packages, folder, read, async (file, content) => {
    const copy = join(tree.path, relative(base, file))
    await mkdir(dirname(copy), { recursive: true })
    await writeFile(copy, content)
    await chmod(copy, (await stat(file)).mode & 0o777)
  })
  return { cwd, digest }
}

/** From where the paths between the functions root and packages outside it lead downwards. */
function commonFolder(folders: readonly string[]): string {
  return folders.reduce((base, folder) => {
    let at = base
    while (folder !== at && !folder.startsWith(at.endsWith(sep) ? at : at + sep)) at = dirname(at)
    return at
  })
}

/** The text of a file that a tool made, through no link. */
export function readMade(folder: OwnFolder, name: string): string {
  const bytes = folder.read(name)
  if (bytes === null) throw new Error(`the tool left no ${name}`)
  return bytes.toString('utf8')
}

/**
 * Digest of what the packages hold and of the way to it: folders from where equal ways lead to equal files share a set.
 * @param folder - full path of the function's folder, below the real path of the root
 * @param take - gets each file, of which a few are read at once, so that the gateway serves meanwhile
 */
export async function digestFiles(
  { files }: { files: readonly string[] },
  folder: string,
  read: FileReader | null = null,
  take: (file: string, content: Buffer) => Promise<void> = async () => {},
): Promise<string> {
  const key = new BuildKey()
  const all = [...new Set(files)].sort()
  const digests = await mapSome(all, async file => {
    const content = read === null ? await readFile(file) : read(file)
    await take(file, content)
    return new BuildKey().add('content', content).toString()
  })
  for (const [i, file] of all.entries()) key.add(below(folder, file), digests[i]!)
  return key.toString()
}

interface PackageBounds {
  /** Full path without links; empty: everywhere; null: nowhere. */
  bound: string | null
  /** For messages. */
  boundName: string
}

export interface PackageChecks extends Omit<PackagePlaces, 'folder'> {
  /** Packages may come from repositories, addresses, and folders outside the functions root. */
  allowSources: boolean
}

/**
 * Where packages in paths may be. Functions that are kept apart by users have their own folder only.
 * @param folder - full path of the function's folder
 */
export function toPackageBounds({ root, read, allowSources }: PackageChecks, folder: string): PackageBounds {
  if (!read) return { bound: allowSources ? '' : root, boundName: 'the functions root' }
  const real = realpathSync(folder)
  return { bound: real === root ? null : real, boundName: "the function's own folder (FN_ISOLATION=user)" }
}

/** The real path of what is inside a folder; null for what is not, or is not there. */
export function findInside(path: string, bound: string | null): string | null {
  const real = orNull(() => realpathSync(path))
  return bound !== null && real?.startsWith(bound + sep) === true ? real : null
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
