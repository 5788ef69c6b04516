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
import { mapSome } from '../core/semaphore.ts'
import type { FileReader } from '../files/function-file.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import { below } from './build.ts'
import { BuildKey } from './build-cache.ts'
import { passingError } from './tool-failure.ts'

/** Files and bytes of all packages that one function names by paths. */
const MAX_FILES = 5000
const MAX_BYTES = 64 * 1024 * 1024
const SKIPPED = ['.git', '.svc', '.svc-deps']

export interface FilePackagesOptions {
  functionsRoot: string
  /** Reads files of functions that are kept apart by users; null: links are followed. */
  readFile?: FileReader | null
  /** Packages may come from repositories, addresses, and folders outside the functions root. */
  allowSources: boolean
}

/** The packages that manifests of one folder name by paths, each once, up to a bound. */
export class FilePackages {
  /** Full paths without links: of the functions root, and of the folder below it. */
  readonly root: string
  readonly folder: string
  readonly allowSources: boolean
  /** Where packages in paths may be, full path without links; empty: everywhere; null: nowhere. */
  readonly bound: string | null
  readonly boundName: string
  /** Full real paths of the packages. */
  readonly targets = new Set<string>()
  readonly files: string[] = []
  readonly #label: string
  readonly #read: FileReader | null
  readonly #installed: string
  #bytes = 0
  #digest = ''

  /** @param label - of the folder @param installed - name of the folder of installed packages, which is not copied */
  constructor({ functionsRoot, readFile = null, allowSources }: FilePackagesOptions, label: string, installed: string) {
    this.root = realpathSync(functionsRoot)
    this.folder = join(this.root, label)
    this.allowSources = allowSources
    this.#label = label
    this.#read = readFile
    this.#installed = installed
    // Functions that are kept apart by users have their own folder only.
    const own = readFile === null ? null : realpathSync(this.folder)
    this.bound = own === null ? (allowSources ? '' : this.root) : own === this.root ? null : own
    this.boundName = own === null ? 'the functions root' : "the function's own folder (FN_ISOLATION=user)"
  }

  /** The real path of what is inside the bound; null for what is not, or is missing. */
  find(path: string): string | null {
    const real = orNull(() => realpathSync(path))
    return this.bound !== null && real?.startsWith(this.bound + sep) === true ? real : null
  }

  /**
   * @param target - full real path of a file or folder
   * @param fail - the error for a reason
   * @returns false for one that is known already
   */
  add(target: string, fail: (why: string) => Error): boolean {
    if (this.targets.has(target)) return false
    this.targets.add(target)
    const found = filesOf(target, new Set([...SKIPPED, this.#installed]))
    this.#bytes += found.reduce((sum, file) => sum + statSync(file).size, 0)
    this.files.push(...found)
    if (this.files.length <= MAX_FILES && this.#bytes <= MAX_BYTES) return true
    throw fail(`more than ${MAX_FILES} files or ${MAX_BYTES / 1024 / 1024} MiB in packages named by paths`)
  }

  /** Digest of the files and of the way to them: folders from where equal paths lead to equal files share a set. */
  async digest(): Promise<string> {
    this.#digest = await this.#each(async () => {})
    return this.#digest
  }

  /**
   * Copies the files below a draft.
   * @returns the draft itself, or the folder in it from where paths of the manifest lead to copies
   * @throws GatewayError when a file was saved since `digest`: a set is not filled with other files than those of its key
   */
  async stage(draft: OwnFolder): Promise<OwnFolder> {
    if (this.files.length === 0) return draft
    const tree = draft.below('tree')
    const base = commonFolder([this.root, ...this.files.map(dirname)])
    const names = relative(base, this.folder).split(sep)
    const cwd = tree.below(...names.filter(name => name !== ''))
    cwd.make()
    const digest = await this.#each(async (file, content) => {
      const copy = join(tree.path, relative(base, file))
      await mkdir(dirname(copy), { recursive: true })
      await writeFile(copy, content)
      await chmod(copy, (await stat(file)).mode & 0o777)
    })
    if (digest === this.#digest) return cwd
    throw passingError(`${this.#label}: a package in a path was changed while it was read; it is tried again`)
  }

  /** @param take - gets each file; a few are read at once, so that the gateway serves meanwhile. @returns their digest */
  async #each(take: (file: string, content: Buffer) => Promise<void>): Promise<string> {
    const key = new BuildKey()
    const all = [...new Set(this.files)].sort()
    const digests = await mapSome(all, async file => {
      const content = this.#read === null ? await readFile(file) : this.#read(file)
      await take(file, content)
      return new BuildKey().add('content', content).toString()
    })
    for (const [at, file] of all.entries()) key.add(below(this.folder, file), digests[at]!)
    return key.toString()
  }
}

/** Brings what a tool left beside copies of packages to the draft. @param names - the folder of packages first, which is made when missing */
export function unstage(cwd: OwnFolder, draft: OwnFolder, names: readonly string[]): void {
  cwd.below(names[0]!).make()
  if (cwd.path !== draft.path) for (const name of names) cwd.moveTo(name, draft, name)
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

/** Regular files; links are left out, because they could lead anywhere. */
function filesOf(target: string, skipped: ReadonlySet<string>): string[] {
  if (lstatSync(target).isFile()) return [target]
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
