/**
 * The packages of a whole tree: list them, install them, find out why one is there, clean up; shared packs, which `shared_deps` names,
 * and warnings about packages that are missing. Owner: §2.16 (8), pages bin/deps and dependencies/shared-packs.
 */

import { readFileSync, statSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import type { FunctionVersion, PackageManifest } from '../core/catalog.ts'
import { getOrMake } from '../core/collections.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, orNull, type Warning } from '../core/errors.ts'
import { isRuntimeName, PACK_NAME, PACK_NAME_RULE } from '../core/identity.ts'
import { isObject, parseObject } from '../core/json.ts'
import { nameSome } from '../core/text.ts'
import { isFile, namesIn } from '../files/own-folder.ts'
import { isFolder, toFolderName } from './build.ts'
import { type DependencyRecord, listInstalled, PackageFolder, PackageSets, readState, TARGETS } from './package-set.ts'
import { type Installed, toPackageName } from './pip.ts'
import type { Builds, PreparationState } from './resolve.ts'

/** Tools that write the manifest of a language whose packages fngw does not add. */
const ADD_COMMANDS: Readonly<Record<string, string>> = {
  php: 'composer require <package>',
  go: 'go get <package>',
  rust: 'cargo add <package>',
  lua: 'lua functions have no packages',
}

/** A folder with packages: a function's (one stands for the file routes of a folder) or a pack's. */
interface Place {
  /** `python/users@default`, `pack python/science`. */
  key: string
  runtime: string
  /** Full path. */
  folder: string
  /** null when nothing is known of it. */
  record: DependencyRecord | null
}

interface DependencyRow extends Omit<Place, 'folder'> {
  /** Such as `requests 2.32.3`. */
  installed: readonly string[]
}

interface DependencyOutcome {
  key: string
  error: Error | null
}

interface DependencyReason {
  key: string
  /** From what the function itself asks for to the package, each with its version. */
  way: readonly string[]
}

type OnDone = (outcome: DependencyOutcome) => void

interface DependenciesOptions {
  functionsRoot: string
  clock: Clock
  builds: Builds
  packs: SharedPacks
}

export class Dependencies {
  readonly #options: DependenciesOptions
  #functions: ReadonlyMap<string, FunctionVersion> = new Map()

  constructor(options: DependenciesOptions) {
    this.#options = options
  }

  retain(functions: ReadonlyMap<string, FunctionVersion>): void {
    this.#functions = functions
    this.#options.builds.retain(functions)
  }

  /** `metadata.dependency_resolution` of a function; null when nothing is known. */
  recordOf(fn: FunctionVersion): object | null {
    return this.#options.builds.recordOf(fn)
  }

  /** How far each function is with its packages or its program, in the order of the catalog. */
  *states(): Generator<{ fn: FunctionVersion; state: PreparationState | null }> {
    for (const fn of this.#functions.values()) yield { fn, state: this.#options.builds.stateOf(fn) }
  }

  close(): Promise<void> {
    return this.#options.builds.close()
  }

  /** Functions that have or asked for packages, and packs. */
  list(): DependencyRow[] {
    const rows = this.#places().map(({ folder, ...place }) => {
      const installed = listInstalled(place.runtime, folder).map(({ name, version }) => `${name} ${version}`)
      return { ...place, installed }
    })
    return rows.filter(({ record, installed }) => record !== null || installed.length > 0)
  }

  /** Makes every function ready, as its first call would. */
  install(onDone: OnDone): Promise<readonly DependencyOutcome[]> {
    return this.prepare([...this.#functions.values()], onDone)
  }

  /**
   * Writes packages into the manifest of a folder, once they are installed.
   * @param to - name of a function, or its folder below the functions root
   * @param packages - as the language's manifest or installer names them; none: what imports ask for
   * @throws Error for an unknown function, and a language whose manifest another tool writes
   */
  add(to: string, packages: readonly string[], onDone: OnDone): Promise<readonly DependencyOutcome[]> {
    const { functionsRoot, builds } = this.#options
    const functions = [...this.#functions.values()].filter(({ name, fnDir }) => {
      return name === to || toFolderName(functionsRoot, fnDir) === to
    })
    const [first] = functions
    if (first === undefined) throw new Error(`no function is named ${to} or is in a folder of that name`)
    if (functions.some(({ runtime }) => runtime !== first.runtime))
      throw new Error(`${to} has functions in several languages: name one of them`)
    const other = ADD_COMMANDS[first.runtime]
    if (other !== undefined) throw new Error(`run in ${toFolderName(functionsRoot, first.fnDir)}: ${other}`)
    if (packages.length > 0) builds.ask(first, packages)
    return this.prepare(functions, onDone)
  }

  /** Makes some functions ready. */
  prepare(functions: readonly FunctionVersion[], onDone: OnDone): Promise<readonly DependencyOutcome[]> {
    const work = functions.map(async fn => {
      const outcome: DependencyOutcome = { key: fn.key, error: null }
      await this.#options.builds.prepare(fn).catch((thrown: Error) => {
        outcome.error = thrown
      })
      onDone(outcome)
      return outcome
    })
    return Promise.all(work)
  }

  /** The functions and packs that have a package, and the packages that need it. */
  why(name: string): DependencyReason[] {
    return this.#places().flatMap(({ key, runtime, folder }) => {
      const way = findWay(listInstalled(runtime, folder), name)
      return way === null ? [] : [{ key, way }]
    })
  }

  /**
   * Deletes sets of packages that no function and no pack uses any more.
   * @param isAll - deletes those in use too, and what the gateway put beside functions but manifests and lock files
   * @returns the deleted folders, below the functions root
   */
  clean(isAll: boolean): string[] {
    const { functionsRoot, clock } = this.#options
    const places = this.#places()
    const removed = (isAll ? places : []).filter(({ folder, runtime }) => {
      return new PackageFolder(folder, TARGETS[runtime]!).remove()
    })
    const used = new Set(isAll ? [] : places.map(({ runtime, record }) => `${runtime}-${record?.set}`))
    const sets = new PackageSets(functionsRoot, { clock, isPrivate: false }).prune(used)
    const beside = removed.map(({ key, runtime }) => `${TARGETS[runtime]} of ${key}`)
    return [...beside, ...sets.map(id => `.svc/deps/${id}`)]
  }

  #places(): Place[] {
    const byFolder = new Map<string, Omit<Place, 'record'>>()
    for (const { key, runtime, fnDir: folder } of this.#functions.values()) {
      const id = `${runtime} ${folder}`
      if (TARGETS[runtime] !== undefined && !byFolder.has(id)) byFolder.set(id, { key, runtime, folder })
    }
    const packs = this.#options.packs.list().map(({ runtime, name, dir }) => {
      return { key: `pack ${runtime}/${name}`, runtime, folder: dir }
    })
    return [...byFolder.values(), ...packs].map(place => ({
      ...place,
      record: readState(place.folder, place.runtime),
    }))
  }
}

/** Names of installed packages that lead from one that no other needs to this one: the shortest way, the package itself last. */
export function findWay(installed: readonly Installed[], wanted: string): string[] | null {
  const isSame = (a: string, b: string) => toPackageName(a) === toPackageName(b)
  const target = installed.find(({ name }) => isSame(name, wanted))
  if (target === undefined) return null
  const toNames = (way: readonly Installed[]) => way.map(({ name, version }) => `${name} ${version}`)
  const ways: Installed[][] = [[target]]
  const seen = new Set([target])
  for (const way of ways) {
    const users = installed.filter(({ needs }) => needs.some(need => isSame(need, way[0]!.name)))
    if (users.length === 0) return toNames(way)
    for (const user of users.filter(one => !seen.has(one))) {
      seen.add(user)
      ways.push([user, ...way])
    }
  }
  return toNames(ways[0]!)
}

// Shared packs, which `shared_deps` names, and manifests whose packages are missing.

const PACKS_FOLDER = '.svc/packs'
/** Where FastFN keeps packs; searched after our own folder. */
const FASTFN_PACKS_FOLDER = '.fastfn/packs'

interface Language {
  manifest: string
  /** Installs its packages, in its folder. */
  command: string
  /** Files of a pack, under the names of the language; null where functions share no packs. */
  toFacts: ((dir: string) => Record<string, unknown>) | null
  /** Names of packages that a manifest asks for and that are not installed. @param folder - full path of the manifest's */
  missing(text: string, folder: string): string[]
}

const LANGUAGES: Readonly<Record<string, Language>> = {
  python: {
    manifest: 'requirements.txt',
    command: 'pip install -r requirements.txt -t .deps',
    toFacts: dir => ({
      requirements_txt: isFile(join(dir, 'requirements.txt')),
      deps_dir: isFolder(join(dir, '.deps')),
    }),
    // `Flask[async]>=2 ; python_version > "3"` to `Flask`; options and comments name nothing.
    missing: text => text.split('\n').flatMap(line => /^\s*([A-Za-z0-9][\w.-]*)/.exec(line)?.[1] ?? []),
  },
  node: {
    manifest: 'package.json',
    command: 'npm install',
    toFacts: dir => ({
      package_json: isFile(join(dir, 'package.json')),
      lock_file: ['package-lock.json', 'npm-shrinkwrap.json'].find(name => isFile(join(dir, name))) ?? null,
      node_modules: isFolder(join(dir, 'node_modules')),
    }),
    missing: (text, folder) => namesAt(text, 'dependencies').filter(name => !isResolved(name, folder)),
  },
  php: {
    manifest: 'composer.json',
    command: 'composer install',
    toFacts: null,
    // Without `php` and its extensions, which Composer does not install.
    missing: text => namesAt(text, 'require').filter(name => name.includes('/')),
  },
}

interface Pack {
  runtime: string
  name: string
  /** Full path. */
  dir: string
  facts: Record<string, unknown>
}

/** True for a runtime whose packages the gateway installs itself. */
type IsInstalling = (runtime: string) => boolean

export class SharedPacks {
  readonly #rootPath: string
  /** Folders that hold packs by runtime, in order. */
  readonly #bases: readonly string[]

  /** @param rootPath - functions root; one of a single runtime shares the packs of the folder above it */
  constructor(rootPath: string) {
    this.#rootPath = rootPath
    const roots = isRuntimeName(basename(rootPath)) ? [rootPath, dirname(rootPath)] : [rootPath]
    this.#bases = [PACKS_FOLDER, FASTFN_PACKS_FOLDER].flatMap(folder => roots.map(root => join(root, folder)))
  }

  get root(): string {
    return this.#bases[0]!
  }

  /** Every pack by runtime and name; of two of a name the one that functions get. */
  list(): Pack[] {
    return Object.entries(LANGUAGES).flatMap(([runtime, { toFacts }]) => {
      const names = new Set(this.#bases.flatMap(base => namesIn(join(base, runtime))))
      return [...names].sort().flatMap(name => {
        const dir = this.#find(runtime, name)
        return dir === null || toFacts === null ? [] : [{ runtime, name, dir, facts: toFacts(dir) }]
      })
    })
  }

  /** Full paths of a function's packs that are there, in the order of `shared_deps`. */
  dirsOf({ runtime, policy }: Pick<FunctionVersion, 'runtime' | 'policy'>): string[] {
    return policy.sharedDeps.flatMap(name => this.#find(runtime, name) ?? [])
  }

  /**
   * As `dirsOf`, for a function that is about to run.
   * @throws GatewayError LOAD_FAILED that names the searched folders when one is missing
   */
  require(fn: Pick<FunctionVersion, 'runtime' | 'policy' | 'entryFile'>): string[] {
    if (!hasPacks(fn.runtime)) return []
    const missing = fn.policy.sharedDeps.find(name => this.#find(fn.runtime, name) === null)
    if (missing === undefined) return this.dirsOf(fn)
    const { message, hint } = this.#toMissing(fn.runtime, missing)
    throw new GatewayError('LOAD_FAILED', message, { detail: { file: fn.entryFile, hint } })
  }

  /** One warning for each pack that functions ask for and do not get. */
  check(functions: readonly FunctionVersion[], isInstalling: IsInstalling = () => false): Warning[] {
    const users = new Map<string, { name: string; fns: FunctionVersion[] }>()
    for (const fn of functions)
      for (const name of fn.policy.sharedDeps)
        getOrMake(users, `${fn.runtime}/${name}`, () => ({ name, fns: [] })).fns.push(fn)
    const packs = [...users.values()].flatMap(({ name, fns }) => this.#checkPack(name, fns, isInstalling))
    const isForeignUsed = functions.some(fn => this.dirsOf(fn).some(dir => dir.includes(`/${FASTFN_PACKS_FOLDER}/`)))
    if (!isForeignUsed) return packs
    const message = `${FASTFN_PACKS_FOLDER} is read for packs that ${PACKS_FOLDER} does not have`
    const hint = `Move its folders to ${PACKS_FOLDER}.`
    return [...packs, { code: 'FASTFN_PACKS', path: FASTFN_PACKS_FOLDER, message, hint }]
  }

  #checkPack(name: string, functions: readonly FunctionVersion[], isInstalling: IsInstalling): Warning[] {
    const { runtime, entryFile: path } = functions[0]!
    const shown = functions.map(({ entryFile }) => entryFile).join(', ')
    if (!hasPacks(runtime)) {
      const message = `${shown}: shared_deps names "${name}", and ${runtime} has no packs`
      const hint = `Remove "${name}" from shared_deps, or bring its packages with the function.`
      return [{ code: 'PACK_MISSING', path, message, hint }]
    }
    const dir = this.#find(runtime, name)
    if (dir === null) {
      const { message, hint } = this.#toMissing(runtime, name)
      return [{ code: 'PACK_MISSING', path, message: `${shown}: ${message}`, hint }]
    }
    const installed = TARGETS[runtime]!
    if (isFolder(join(dir, installed)) || isInstalling(runtime)) return []
    const place = relative(this.#rootPath, dir)
    const message = `${place} is not installed: it has no ${installed}; used by ${shown}`
    return [{ code: 'PACK_NOT_INSTALLED', path: place, message, hint: `Run in it: ${LANGUAGES[runtime]!.command}` }]
  }

  #toMissing(runtime: string, name: string): { message: string; hint: string } {
    if (!PACK_NAME.test(name)) {
      const message = `shared pack not found: ${JSON.stringify(name)} is not a pack name`
      return { message, hint: `Fix the name in shared_deps: a pack name ${PACK_NAME_RULE}.` }
    }
    const places = this.#bases.map(base => relative(this.#rootPath, join(base, runtime, name))).join(', ')
    const file = `${PACKS_FOLDER}/${runtime}/${name}/${LANGUAGES[runtime]!.manifest}`
    const message = `shared pack not found: ${name} (looked in: ${places})`
    return { message, hint: `Make ${file}, or remove "${name}" from shared_deps.` }
  }

  #find(runtime: string, name: string): string | null {
    if (!PACK_NAME.test(name) || !hasPacks(runtime)) return null
    return this.#bases.map(base => join(base, runtime, name)).find(isFolder) ?? null
  }
}

function hasPacks(runtime: string): boolean {
  return LANGUAGES[runtime]?.toFacts != null
}

/** Manifests that are read at most, and the bytes of one. */
const MAX_MANIFESTS = 200
const MAX_MANIFEST_BYTES = 256 * 1024

/**
 * One warning for each runtime whose functions lack packages.
 * @param manifests - those without a folder of installed packages beside them
 */
export function findUnmet(
  manifests: readonly PackageManifest[],
  rootPath: string,
  isInstalling: IsInstalling = () => false,
): Warning[] {
  return Object.entries(LANGUAGES).flatMap(([runtime, { manifest, missing, command }]) => {
    const own = isInstalling(runtime) ? [] : manifests.filter(one => one.runtime === runtime)
    const folders = [...new Set(own.map(({ folder }) => folder))].slice(0, MAX_MANIFESTS)
    const found = folders.map(folder => {
      const file = join(folder, manifest)
      return { file, names: missing(readManifest(join(rootPath, file)), join(rootPath, folder)) }
    })
    const files = found.filter(({ names }) => names.length > 0).map(({ file }) => file)
    if (files.length === 0) return []
    const names = new Set(found.flatMap(one => one.names))
    const message = `${nameSome(files)}: not installed: ${nameSome([...names].sort())}`
    const more = runtime === 'python' ? '. Nothing to do when the python that runs handlers has them.' : ''
    return [{ code: 'PACKAGES_MISSING', path: files[0]!, message, hint: `Run in the folder: ${command}${more}` }]
  })
}

/** Empty for a file that is missing, too large or no file: its own tool reports that. */
function readManifest(path: string): string {
  const stats = orNull(() => statSync(path))
  const isRead = stats?.isFile() === true && stats.size <= MAX_MANIFEST_BYTES
  return (isRead ? orNull(() => readFileSync(path, 'utf8')) : null) ?? ''
}

/** True for a package that node finds in a `node_modules` from the folder up. */
function isResolved(name: string, folder: string): boolean {
  if (statSync(join(folder, 'node_modules', name), { throwIfNoEntry: false }) !== undefined) return true
  return folder !== dirname(folder) && isResolved(name, dirname(folder))
}

function namesAt(text: string, key: string): string[] {
  const names = parseObject(text)?.[key]
  return isObject(names) ? Object.keys(names) : []
}
