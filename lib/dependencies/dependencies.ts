/** The packages of a whole tree: list them, install them, find out why one is there, clean up. Owner: page bin/deps. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { toFolderName } from './build.ts'
import {
  type DependencyRecord,
  type Installed,
  listInstalled,
  PackageFolder,
  PackageSets,
  readState,
  TARGETS,
} from './package-set.ts'
import { toPackageName } from './pip.ts'
import type { Builds, PreparationState } from './resolve.ts'
import type { SharedPacks } from './shared-packs.ts'

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
    return this.#prepare([...this.#functions.values()], onDone)
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
    return this.#prepare(functions, onDone)
  }

  #prepare(functions: readonly FunctionVersion[], onDone: OnDone): Promise<readonly DependencyOutcome[]> {
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
