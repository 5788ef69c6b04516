/** Shared packs, which `shared_deps` names, and manifests whose packages are missing. Owner: §2.16 (8), page dependencies/shared-packs. */

import { readFileSync, statSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import type { FunctionVersion, PackageManifest } from '../core/catalog.ts'
import { GatewayError, orNull, type Warning } from '../core/errors.ts'
import { isPackName, isRuntimeName, PACK_NAME_RULE } from '../core/identity.ts'
import { isObject, parseObject } from '../core/json.ts'
import { namesIn } from '../files/own-folder.ts'
import { isFolder } from './build.ts'
import { TARGETS } from './package-set.ts'

const PACKS_FOLDER = '.svc/packs'
/** Where FastFN keeps packs; looked into after our own folder. */
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

/** A pack that is there. */
interface Pack {
  runtime: string
  name: string
  /** Full path. */
  dir: string
  /** Files of the pack, under the names of its language. */
  facts: Record<string, unknown>
}

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

  /** Full path of the folder that is looked into first. */
  get root(): string {
    return this.#bases[0]!
  }

  /** Every pack by runtime and name; of two of a name the one that functions get. */
  list(): Pack[] {
    return Object.entries(LANGUAGES).flatMap(([runtime, { toFacts }]) => {
      if (toFacts === null) return []
      const names = this.#bases.flatMap(base => namesIn(join(base, runtime)))
      return [...new Set(names)].sort().flatMap(name => {
        const dir = this.#find(runtime, name)
        return dir === null ? [] : [{ runtime, name, dir, facts: toFacts(dir) }]
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
    throw new GatewayError('LOAD_FAILED', this.#toMissing(fn.runtime, missing), {
      detail: { file: fn.entryFile, hint: this.#toMissingHint(fn.runtime, missing) },
    })
  }

  /**
   * One warning for each pack that functions ask for and do not get.
   * @param isInstalling - true for a runtime whose packages the gateway installs itself
   */
  check(functions: readonly FunctionVersion[], isInstalling: (runtime: string) => boolean = () => false): Warning[] {
    const users = new Map<string, FunctionVersion[]>()
    for (const fn of functions) {
      for (const name of fn.policy.sharedDeps) {
        const key = `${fn.runtime}/${name}`
        users.set(key, [...(users.get(key) ?? []), fn])
      }
    }
    const packs = [...users].flatMap(([key, fns]) => this.#checkPack(key, fns, isInstalling))
    return this.#isForeignUsed(functions) ? [...packs, toForeignWarning()] : packs
  }

  #checkPack(
    key: string,
    functions: readonly FunctionVersion[],
    isInstalling: (runtime: string) => boolean,
  ): Warning[] {
    const { runtime, entryFile: path } = functions[0]!
    const name = key.slice(runtime.length + 1)
    const language = LANGUAGES[runtime]
    const shown = functions.map(fn => fn.entryFile).join(', ')
    if (language === undefined || language.toFacts === null) {
      const hint = `Remove "${name}" from shared_deps, or bring its packages with the function.`
      return [
        {
          code: 'PACK_MISSING',
          path,
          message: `${shown}: shared_deps names "${name}", and ${runtime} has no packs`,
          hint,
        },
      ]
    }
    const dir = this.#find(runtime, name)
    if (dir === null) {
      const message = `${shown}: ${this.#toMissing(runtime, name)}`
      return [{ code: 'PACK_MISSING', path, message, hint: this.#toMissingHint(runtime, name) }]
    }
    const installed = TARGETS[runtime]!
    if (isFolder(join(dir, installed)) || isInstalling(runtime)) return []
    const message = `${this.#shorten(dir)} is not installed: it has no ${installed}; used by ${shown}`
    return [{ code: 'PACK_NOT_INSTALLED', path: this.#shorten(dir), message, hint: `Run in it: ${language.command}` }]
  }

  #toMissing(runtime: string, name: string): string {
    if (!isPackName(name)) return `shared pack not found: ${JSON.stringify(name)} is not a pack name`
    const places = this.#bases.map(base => this.#shorten(join(base, runtime, name))).join(', ')
    return `shared pack not found: ${name} (looked in: ${places})`
  }

  #toMissingHint(runtime: string, name: string): string {
    if (!isPackName(name)) return `Fix the name in shared_deps: a pack name ${PACK_NAME_RULE}.`
    const file = `${PACKS_FOLDER}/${runtime}/${name}/${LANGUAGES[runtime]!.manifest}`
    return `Make ${file}, or remove "${name}" from shared_deps.`
  }

  #isForeignUsed(functions: readonly FunctionVersion[]): boolean {
    return functions.some(
      fn => fn.policy.sharedDeps.length > 0 && this.dirsOf(fn).some(dir => dir.includes(`/${FASTFN_PACKS_FOLDER}/`)),
    )
  }

  /** Full path of a pack, null when there is none. */
  #find(runtime: string, name: string): string | null {
    if (!isPackName(name) || !hasPacks(runtime)) return null
    return this.#bases.map(base => join(base, runtime, name)).find(isFolder) ?? null
  }

  #shorten(path: string): string {
    return relative(this.#rootPath, path)
  }
}

function toForeignWarning(): Warning {
  const message = `${FASTFN_PACKS_FOLDER} is read for packs that ${PACKS_FOLDER} does not have`
  return { code: 'FASTFN_PACKS', path: FASTFN_PACKS_FOLDER, message, hint: `Move its folders to ${PACKS_FOLDER}.` }
}

function hasPacks(runtime: string): boolean {
  return LANGUAGES[runtime]?.toFacts != null
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() === true
}

/** Manifests that are read at most, the bytes of one, and names in one warning. */
const MAX_MANIFESTS = 200
const MAX_MANIFEST_BYTES = 256 * 1024
const MAX_NAMES = 5

/**
 * One warning for each runtime whose functions lack packages.
 * @param manifests - those without a folder of installed packages beside them
 * @param isInstalling - true for a runtime whose packages the gateway installs itself
 */
export function findUnmet(
  manifests: readonly PackageManifest[],
  rootPath: string,
  isInstalling: (runtime: string) => boolean = () => false,
): Warning[] {
  return Object.entries(LANGUAGES).flatMap(([runtime, { manifest, missing, command }]) => {
    if (isInstalling(runtime)) return []
    const folders = manifests.filter(one => one.runtime === runtime).map(({ folder }) => folder)
    const unmet: string[] = []
    const names = new Set<string>()
    for (const folder of [...new Set(folders)].slice(0, MAX_MANIFESTS)) {
      const file = join(folder, manifest)
      const found = missing(readManifest(join(rootPath, file)), join(rootPath, folder))
      if (found.length > 0) unmet.push(file)
      for (const name of found) names.add(name)
    }
    if (unmet.length === 0) return []
    const message = `${shorten(unmet)}: not installed: ${shorten([...names].sort())}`
    const more = runtime === 'python' ? '. Nothing to do when the python that runs handlers has them.' : ''
    return [{ code: 'PACKAGES_MISSING', path: unmet[0]!, message, hint: `Run in the folder: ${command}${more}` }]
  })
}

function shorten(names: readonly string[]): string {
  const rest = names.length - MAX_NAMES
  return names.slice(0, MAX_NAMES).join(', ') + (rest > 0 ? ` and ${rest} more` : '')
}

/** Empty for a file that is gone, too large or no file: its own tool complains about that. */
function readManifest(path: string): string {
  const stats = orNull(() => statSync(path))
  const isRead = stats?.isFile() === true && stats.size <= MAX_MANIFEST_BYTES
  return (isRead ? orNull(() => readFileSync(path, 'utf8')) : null) ?? ''
}

/** True for a package that node finds in a `node_modules` from the folder up. */
function isResolved(name: string, folder: string): boolean {
  for (let at = folder; ; at = dirname(at)) {
    if (statSync(join(at, 'node_modules', name), { throwIfNoEntry: false }) !== undefined) return true
    if (at === dirname(at)) return false
  }
}

function namesAt(text: string, key: string): string[] {
  const names = parseObject(text)?.[key]
  return isObject(names) ? Object.keys(names) : []
}
