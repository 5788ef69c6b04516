/** The packages of a whole tree, for those who look after it: what is there, install now, who needs it, clean up. Owner: page bin/deps. */

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { isObject } from '../core/json.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { toFolderName } from './build.ts'
import { type DependencyRecord, readState } from './dependency-state.ts'
import { PackageFolder, PackageSets, TARGETS } from './package-set.ts'
import { toPackageName } from './pip.ts'
import type { Builds, PreparationState } from './resolve.ts'
import type { SharedPacks } from './shared-packs.ts'

/** What writes the manifest of a language whose packages fngw does not add. */
const ADD_COMMANDS: Readonly<Record<string, string>> = {
  php: 'composer require <package>',
  go: 'go get <package>',
  rust: 'cargo add <package>',
  lua: 'lua functions have no packages',
}

interface DependencyRow {
  /** Function or pack: `python/users@default`, `pack python/science`. */
  key: string
  runtime: string
  /** null when nothing is known of it. */
  record: DependencyRecord | null
  /** Such as `requests 2.32.3`. */
  installed: readonly string[]
}

interface DependencyOutcome {
  key: string
  /** null when it is ready. */
  error: Error | null
}

interface DependencyReason {
  key: string
  /** From what the function itself asks for to the package, each with its version. */
  way: readonly string[]
}

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

  /** Takes over a new catalog's functions. */
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

  /** Functions that have or wanted packages, and packs. */
  list(): DependencyRow[] {
    return this.#places()
      .map(({ key, runtime, folder, record }) => {
        const installed = listInstalled(runtime, folder).map(({ name, version }) => `${name} ${version}`)
        return { key, runtime, record, installed }
      })
      .filter(({ record, installed }) => record !== null || installed.length > 0)
  }

  /** Makes every function ready, as its first call would. @param onDone - one is ready, or failed */
  install(onDone: (outcome: DependencyOutcome) => void): Promise<readonly DependencyOutcome[]> {
    return this.#prepare([...this.#functions.values()], onDone)
  }

  /**
   * Writes packages into the manifest of a folder, once they are installed.
   * @param to - name of a function, or its folder below the functions root
   * @param packages - as the language's manifest or installer names them; none: what imports ask for
   * @throws Error for an unknown function, and a language whose manifest another tool writes
   */
  add(
    to: string,
    packages: readonly string[],
    onDone: (outcome: DependencyOutcome) => void,
  ): Promise<readonly DependencyOutcome[]> {
    const { functionsRoot, builds } = this.#options
    const functions = [...this.#functions.values()].filter(fn => {
      return fn.name === to || toFolderName(functionsRoot, fn.fnDir) === to
    })
    const [first] = functions
    if (first === undefined) throw new Error(`no function is named ${to} or is in a folder of that name`)
    if (functions.some(({ runtime }) => runtime !== first.runtime))
      throw new Error(`${to} has functions in several languages: name one of them`)
    const other = ADD_COMMANDS[first.runtime]
    if (other !== undefined) throw new Error(`run in ${toFolderName(functionsRoot, first.fnDir)}: ${other}`)
    if (packages.length > 0) builds.ask(first, packages)
    return this.#prepare(functions, onDone)
  }

  #prepare(
    functions: readonly FunctionVersion[],
    onDone: (outcome: DependencyOutcome) => void,
  ): Promise<readonly DependencyOutcome[]> {
    const work = functions.map(async fn => {
      const error = await this.#options.builds.prepare(fn).then(
        () => null,
        (thrown: Error) => thrown,
      )
      const outcome = { key: fn.key, error }
      onDone(outcome)
      return outcome
    })
    return Promise.all(work)
  }

  /** Who has a package, and because of what. */
  why(name: string): DependencyReason[] {
    return this.#places().flatMap(({ key, runtime, folder }) => {
      const way = findWay(listInstalled(runtime, folder), name)
      return way === null ? [] : [{ key, way }]
    })
  }

  /**
   * Deletes sets of packages that no function and no pack uses any more.
   * @param isAll - deletes those in use too, with what the gateway put beside functions but manifests and lock files
   * @returns what is gone, below the functions root
   */
  clean(isAll: boolean): string[] {
    const { functionsRoot, clock } = this.#options
    const gone: string[] = []
    const places = this.#places()
    if (isAll) {
      for (const { key, runtime, folder } of places) {
        if (new PackageFolder(folder, TARGETS[runtime]!).remove()) gone.push(`${TARGETS[runtime]} of ${key}`)
      }
    }
    const wanted = new Set(isAll ? [] : places.map(({ runtime, record }) => `${runtime}-${record?.set}`))
    const sets = new PackageSets(new OwnFolder(functionsRoot, '.svc', 'deps'), { clock, isPrivate: false })
    return [...gone, ...sets.prune(wanted).map(id => `.svc/deps/${id}`)]
  }

  /** Folders with packages: of file routes one function stands for its folder. */
  #places(): { key: string; runtime: string; folder: string; record: DependencyRecord | null }[] {
    const byFolder = new Map<string, FunctionVersion>()
    for (const fn of this.#functions.values()) {
      const id = `${fn.runtime} ${fn.fnDir}`
      if (TARGETS[fn.runtime] !== undefined && !byFolder.has(id)) byFolder.set(id, fn)
    }
    const own = [...byFolder.values()].map(fn => ({ key: fn.key, runtime: fn.runtime, folder: fn.fnDir }))
    const packs = this.#options.packs.list().map(({ runtime, name, dir }) => ({
      key: `pack ${runtime}/${name}`,
      runtime: runtime as string,
      folder: dir,
    }))
    return [...own, ...packs].map(place => {
      return { ...place, record: readState(place.folder, place.runtime) }
    })
  }
}

// Who asked for a package that is installed: the manifest, a comment, or another package.

/** A package in a folder of installed ones. */
interface Installed {
  name: string
  version: string
  /** Names of the packages that it needs. */
  needs: readonly string[]
}

const READERS: Readonly<Record<string, (folder: string) => Installed[]>> = {
  python: folder => namesIn(join(folder, '.deps')).flatMap(name => readDistInfo(join(folder, '.deps', name))),
  node: folder =>
    namesIn(join(folder, 'node_modules')).flatMap(name =>
      name.startsWith('@')
        ? namesIn(join(folder, 'node_modules', name)).flatMap(inner =>
            readPackage(join(folder, 'node_modules', name, inner)),
          )
        : readPackage(join(folder, 'node_modules', name)),
    ),
  php: folder => readComposer(join(folder, 'vendor', 'composer', 'installed.json')),
}

/** What is installed beside a function, by name. */
export function listInstalled(runtime: string, folder: string): Installed[] {
  return (READERS[runtime]?.(folder) ?? []).sort((a, b) => (a.name < b.name ? -1 : 1))
}

/** Names of installed packages that lead from nobody's need to this one: the shortest way, the package itself last. */
export function findWay(installed: readonly Installed[], wanted: string): string[] | null {
  const target = installed.find(({ name }) => isSame(name, wanted))
  if (target === undefined) return null
  const ways: Installed[][] = [[target]]
  const seen = new Set([target])
  for (const way of ways) {
    const users = installed.filter(({ needs }) => needs.some(need => isSame(need, way[0]!.name)))
    if (users.length === 0) return way.map(({ name, version }) => `${name} ${version}`)
    for (const user of users.filter(one => !seen.has(one))) {
      seen.add(user)
      ways.push([user, ...way])
    }
  }
  return ways[0]!.map(({ name, version }) => `${name} ${version}`)
}

function isSame(a: string, b: string): boolean {
  return toPackageName(a) === toPackageName(b)
}

function readDistInfo(folder: string): Installed[] {
  if (!folder.endsWith('.dist-info')) return []
  const head = readText(join(folder, 'METADATA')).split(/\r?\n\r?\n/, 1)[0]!
  const fields = [...head.matchAll(/^([A-Za-z-]+):\s*(.*?)\s*$/gm)].map(([, key, value]) => ({ key, value: value! }))
  const name = fields.find(({ key }) => key === 'Name')?.value
  const version = fields.find(({ key }) => key === 'Version')?.value
  if (name === undefined || version === undefined) return []
  const needs = fields
    // What an extra needs is needed by nobody who did not ask for it.
    .filter(({ key, value }) => key === 'Requires-Dist' && !/;.*\bextra\b/.test(value))
    .flatMap(({ value }) => /^[A-Za-z0-9._-]+/.exec(value)?.[0] ?? [])
  return [{ name, version, needs }]
}

function readPackage(folder: string): Installed[] {
  const value = parse(readText(join(folder, 'package.json')))
  if (typeof value.name !== 'string' || typeof value.version !== 'string') return []
  return [{ name: value.name, version: value.version, needs: keysOf(value.dependencies) }]
}

function readComposer(file: string): Installed[] {
  const { packages } = parse(readText(file))
  if (!Array.isArray(packages)) return []
  return packages.flatMap(one =>
    isObject(one) && typeof one.name === 'string'
      ? [{ name: one.name, version: String(one.version ?? ''), needs: keysOf(one.require) }]
      : [],
  )
}

function keysOf(value: unknown): string[] {
  return isObject(value) ? Object.keys(value) : []
}

function parse(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : {}
  } catch {
    return {}
  }
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}
