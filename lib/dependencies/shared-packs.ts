/** Shared packs: the names in `shared_deps` to folders. Owner: §2.16 (8), page dependencies/shared-packs. */

import { readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import type { FunctionVersion, PackageManifest } from '../core/catalog.ts'
import { GatewayError, type Warning } from '../core/errors.ts'
import { isPackName, isRuntimeName, PACK_NAME_RULE } from '../core/identity.ts'
import { isObject } from '../core/json.ts'

const PACKS_FOLDER = '.svc/packs'
/** Where FastFN keeps packs; looked into after our own folder. */
const FASTFN_PACKS_FOLDER = '.fastfn/packs'

interface PackKind {
  /** Folder of a pack that holds its packages. */
  installed: string
  manifest: string
  /** What installs it, in the pack's folder. */
  command: string
}

/** The runtimes that have packs. */
const KINDS: ReadonlyMap<string, PackKind> = new Map([
  ['python', { installed: '.deps', manifest: 'requirements.txt', command: 'pip install -r requirements.txt -t .deps' }],
  ['node', { installed: 'node_modules', manifest: 'package.json', command: 'npm install' }],
])

/** A pack that is there. */
interface Pack {
  runtime: string
  name: string
  /** Full path. */
  dir: string
  /** What the pack has, under the names of its language. */
  facts: Record<string, unknown>
}

const FACTS: Readonly<Record<string, (dir: string) => Record<string, unknown>>> = {
  python: dir => ({ requirements_txt: isFile(join(dir, 'requirements.txt')), deps_dir: isFolder(join(dir, '.deps')) }),
  node: dir => ({
    package_json: isFile(join(dir, 'package.json')),
    lock_file: ['package-lock.json', 'npm-shrinkwrap.json'].find(name => isFile(join(dir, name))) ?? null,
    node_modules: isFolder(join(dir, 'node_modules')),
  }),
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
    return [...KINDS.keys()].flatMap(runtime => {
      const names = this.#bases.flatMap(base => namesIn(join(base, runtime)))
      return [...new Set(names)].sort().flatMap(name => {
        const dir = this.#find(runtime, name)
        return dir === null ? [] : [{ runtime, name, dir, facts: FACTS[runtime]!(dir) }]
      })
    })
  }

  /** Full paths of a function's packs that are there, in the order of `shared_deps`. */
  dirsOf({ runtime, policy }: Pick<FunctionVersion, 'runtime' | 'policy'>): string[] {
    return policy.sharedDeps.flatMap(name => this.#find(runtime, name) ?? [])
  }

  /**
   * As `dirsOf`, for a function that is about to run.
   * @throws GatewayError LOAD_FAILED naming the places looked at when one is missing
   */
  require(fn: Pick<FunctionVersion, 'runtime' | 'policy' | 'entryFile'>): string[] {
    if (!KINDS.has(fn.runtime)) return []
    const missing = fn.policy.sharedDeps.find(name => this.#find(fn.runtime, name) === null)
    if (missing === undefined) return this.dirsOf(fn)
    throw new GatewayError('LOAD_FAILED', this.#toMissing(fn.runtime, missing), {
      detail: { file: fn.entryFile, hint: this.#toMissingHint(fn.runtime, missing) },
    })
  }

  /**
   * What the functions ask for and do not get: one warning for each pack.
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
    const kind = KINDS.get(runtime)
    const shown = functions.map(fn => fn.entryFile).join(', ')
    if (kind === undefined) {
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
    if (isFolder(join(dir, kind.installed)) || isInstalling(runtime)) return []
    const message = `${this.#shorten(dir)} is not installed: it has no ${kind.installed}; used by ${shown}`
    return [{ code: 'PACK_NOT_INSTALLED', path: this.#shorten(dir), message, hint: `Run in it: ${kind.command}` }]
  }

  #toMissing(runtime: string, name: string): string {
    if (!isPackName(name)) return `shared pack not found: ${JSON.stringify(name)} is not a pack name`
    const places = this.#bases.map(base => this.#shorten(join(base, runtime, name))).join(', ')
    return `shared pack not found: ${name} (looked in: ${places})`
  }

  #toMissingHint(runtime: string, name: string): string {
    if (!isPackName(name)) return `Fix the name in shared_deps: a pack name ${PACK_NAME_RULE}.`
    const file = `${PACKS_FOLDER}/${runtime}/${name}/${KINDS.get(runtime)!.manifest}`
    return `Make ${file}, or remove "${name}" from shared_deps.`
  }

  #isForeignUsed(functions: readonly FunctionVersion[]): boolean {
    return functions.some(
      fn => fn.policy.sharedDeps.length > 0 && this.dirsOf(fn).some(dir => dir.includes(`/${FASTFN_PACKS_FOLDER}/`)),
    )
  }

  /** Full path of a pack, null when there is none. */
  #find(runtime: string, name: string): string | null {
    if (!isPackName(name) || !KINDS.has(runtime)) return null
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

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() === true
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
}

// Packages that manifests beside functions name and that are not there.

/** Manifests that are read at most, the bytes of one, and names in one warning. */
const MAX_MANIFESTS = 200
const MAX_MANIFEST_BYTES = 256 * 1024
const MAX_NAMES = 5

interface Kind {
  file: string
  /** Names of packages that are wanted and missing. */
  missing: (text: string, folder: string) => string[]
  hint: string
}

const MANIFESTS: ReadonlyMap<string, Kind> = new Map<string, Kind>([
  [
    'python',
    {
      file: 'requirements.txt',
      missing: requirementsOf,
      hint: 'Run in the folder: pip install -r requirements.txt -t .deps. Nothing to do when the python that runs handlers has them.',
    },
  ],
  ['node', { file: 'package.json', missing: missingModules, hint: 'Run in the folder: npm install' }],
  ['php', { file: 'composer.json', missing: composerPackages, hint: 'Run in the folder: composer install' }],
])

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
  return [...MANIFESTS].flatMap(([runtime, kind]) => {
    if (isInstalling(runtime)) return []
    const own = manifests.filter(manifest => manifest.runtime === runtime)
    return toWarning(
      kind,
      own.map(({ folder }) => folder),
      rootPath,
    )
  })
}

function toWarning({ file, missing, hint }: Kind, folders: readonly string[], rootPath: string): Warning[] {
  const unmet: string[] = []
  const names = new Set<string>()
  for (const folder of [...new Set(folders)].slice(0, MAX_MANIFESTS)) {
    const found = missing(read(join(rootPath, folder, file)), join(rootPath, folder))
    if (found.length === 0) continue
    unmet.push(folder === '' ? file : `${folder}/${file}`)
    for (const name of found) names.add(name)
  }
  if (unmet.length === 0) return []
  const message = `${shorten(unmet)}: not installed: ${shorten([...names].sort())}`
  return [{ code: 'PACKAGES_MISSING', path: unmet[0]!, message, hint }]
}

function shorten(names: readonly string[]): string {
  const rest = names.length - MAX_NAMES
  return names.slice(0, MAX_NAMES).join(', ') + (rest > 0 ? ` and ${rest} more` : '')
}

/** Empty for a file that is gone, too large or no file: its own tool complains about that. */
function read(path: string): string {
  try {
    const stats = statSync(path)
    return stats.isFile() && stats.size <= MAX_MANIFEST_BYTES ? readFileSync(path, 'utf8') : ''
  } catch {
    return ''
  }
}

/** `Flask[async]>=2 ; python_version > "3"` to `Flask`; options and comments name nothing. */
function requirementsOf(text: string): string[] {
  return text.split('\n').flatMap(line => /^\s*([A-Za-z0-9][\w.-]*)/.exec(line)?.[1] ?? [])
}

/** Packages that node finds in no `node_modules` from the folder up. */
function missingModules(text: string, folder: string): string[] {
  return Object.keys(objectAt(text, 'dependencies')).filter(name => !isInstalled(name, folder))
}

function isInstalled(name: string, folder: string): boolean {
  for (let at = folder; ; at = dirname(at)) {
    if (statSync(join(at, 'node_modules', name), { throwIfNoEntry: false }) !== undefined) return true
    if (at === dirname(at)) return false
  }
}

/** Without `php` and its extensions, which Composer does not install. */
function composerPackages(text: string): string[] {
  return Object.keys(objectAt(text, 'require')).filter(name => name.includes('/'))
}

function objectAt(text: string, key: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    const inner = isObject(value) ? value[key] : null
    return isObject(inner) ? inner : {}
  } catch {
    return {}
  }
}
