/**
 * What a folder of node functions asks for: its manifest, its lock file, what its handlers import. Owner: page dependencies/node.
 *
 *   imports - declared - packs - what a folder above has ─► added ─┐
 *   package.json - what a folder above has as it asks for ─────────┴─► wanted: the manifest that npm gets
 */

import { lstatSync, realpathSync, statSync } from 'node:fs'
import { dirname, join, resolve, sep } from 'node:path'
import satisfies from 'semver/functions/satisfies.js'
import validRange from 'semver/ranges/valid.js'
import type { GatewayError } from '../core/errors.ts'
import { isObject, parseObject } from '../core/json.ts'
import type { Semaphore } from '../core/semaphore.ts'
import type { FileReader } from '../files/function-file.ts'
import { below, type BuildTools, tryRead } from './build.ts'
import {
  digestFiles,
  FileCollector,
  type FilePackages,
  findInside,
  type PackageChecks,
  toPackageBounds,
} from './file-packages.ts'
import {
  type FailedImport,
  hasFile,
  type InferMode,
  installError,
  type InstallUnit,
  labelOf,
  readSmallFile,
  showToken,
  toAddHint,
  type UnmetImport,
} from './install-step.ts'
import { findNodeImports, mayImportPackages, type NodeImports, type NodeInferBackend } from './node-imports.ts'
import {
  DECLARING,
  isPackageName,
  NODE_MANIFEST,
  type NodeLock,
  NodeManifest,
  readNodeLock,
  readNodeManifest,
  toPackageSource,
} from './node-manifest.ts'
import { PackageFolder } from './package-set.ts'

/** Folder of installed packages. */
export const NODE_TARGET = 'node_modules'

export interface NodeDependencyOptions {
  functionsRoot: string
  /** `FN_AUTO_INFER_NODE_DEPS`, `FN_NODE_INFER_BACKEND`, `FN_AUTO_INFER_STRICT`. */
  infers: InferMode
  backend: NodeInferBackend
  isStrict: boolean
  /** Packages may come from repositories and addresses: `FN_NODE_PACKAGE_SOURCES`. */
  allowSources: boolean
  /** Reads files of functions that are kept apart by users; null: links are followed. */
  readFile?: FileReader | null
  /** Full path of `find-imports.mjs`. */
  importsScript: string
  /** Logs a warning that stops nothing. */
  onNote(text: string): void
}

const NO_IMPORTS: NodeImports = { packages: [], unresolved: [], optional: [], places: [], problem: null }

export class NodeDependencies {
  readonly unit: InstallUnit
  /** Beside the function; null when there is none. */
  readonly manifest: NodeManifest | null
  readonly lock: NodeLock | null
  /** Why a lock file that is there is not used; null otherwise. */
  readonly lockProblem: string | null
  /** Names in the manifest that Node resolves from above, in versions that satisfy it. */
  readonly provided: ReadonlySet<string>
  /** Full paths without links: of the functions root, and of the folder. */
  readonly root: string
  readonly folder: string
  /** Packages whose install scripts may run. */
  readonly allowScripts: readonly string[]
  imports = NO_IMPORTS
  inferenceDurationMs = 0
  /** Imported packages that no manifest names, with the ranges to install. */
  inferred: Readonly<Record<string, string>> = {}
  /** Additions to the manifest: those, and packages that were asked for. */
  added: Readonly<Record<string, string>> = {}
  /** Imports that are left without a package. */
  unmet: readonly UnmetImport[] = []
  unresolved: readonly string[] = []
  /** The manifest that npm gets. */
  wanted!: NodeManifest
  /** Packages that a manifest names by paths. */
  files: FilePackages = { files: [], targets: new Set() }
  filesDigest = ''
  readonly #options: NodeDependencyOptions

  /** @throws GatewayError by `installError` */
  constructor(unit: InstallUnit, options: NodeDependencyOptions) {
    this.unit = unit
    this.#options = options
    this.manifest = readNodeManifest(unit.folder, unit.label)
    const { lock, problem } = readNodeLock(unit.folder, unit.label)
    this.lock = lock?.withoutStalePaths(this.manifest) ?? null
    this.lockProblem = problem
    this.root = realpathSync(options.functionsRoot)
    this.folder = join(this.root, unit.label)
    this.provided = this.#findProvided()
    const names = unit.functions.flatMap(({ policy }) => policy.allowScripts)
    this.allowScripts = [...new Set(names)].filter(isPackageName).sort()
  }

  /**
   * Reads imports and packages in paths.
   * @param reads - bounds the processes that read imports: hundreds of functions that are looked at together would start one each
   * @returns false when it asks for nothing
   * @throws GatewayError by `installError`
   */
  async read(tools: BuildTools, reads: Semaphore): Promise<boolean> {
    const { infers, allowSources, readFile } = this.#options
    const { unit, manifest } = this
    const startedAt = performance.now()
    this.imports = await this.#findImports(tools, reads)
    this.inferenceDurationMs = Math.round(performance.now() - startedAt)
    const undeclared = this.#findUndeclared()
    const isLeft = (name: string) => infers === 'report' || unit.failed.has(name)
    this.inferred = Object.fromEntries(Object.entries(undeclared).filter(([name]) => !isLeft(name)))
    this.added = { ...this.inferred, ...toAsked(unit) }
    const reasons = this.#toReasons(Object.keys(undeclared).filter(isLeft))
    const own = manifest?.without(this.provided) ?? new NodeManifest('{}', labelOf(unit, NODE_MANIFEST))
    this.wanted = new NodeManifest(JSON.stringify(own.toStaged(this.added)), own.label)
    this.unresolved = [...reasons.keys(), ...this.imports.optional.filter(name => !this.#isProvided(name))]
    if (this.wanted.names.length === 0 && this.unresolved.length === 0) return false
    const checks = { root: this.root, read: readFile, allowSources }
    this.files = checkSources(manifest === null ? this.wanted : own, unit.folder, checks)
    this.filesDigest = await digestFiles(this.files, this.folder, readFile)
    if (this.lock !== null) this.checkLock(this.lock)
    this.unmet = this.#toUnmet(reasons)
    return true
  }

  /** True for a lock file that a clean install takes. */
  get isLocked(): boolean {
    return this.lock?.isOf(this.wanted) === true
  }

  async #findImports(tools: BuildTools, reads: Semaphore): Promise<NodeImports> {
    const { folder, functions, packs, label, isPack } = this.unit
    const { infers, importsScript: script, functionsRoot, backend, onNote } = this.#options
    const entries = functions.map(fn => fn.entryPath)
    if (infers === false || isPack || !mayImportPackages(folder, entries, name => packs.includes(name)))
      return NO_IMPORTS
    const isDeclared = (name: string) => this.manifest?.declares(name) === true
    const search = { script, functionsRoot, folder, entries, backend, isDeclared }
    const imports = await reads.run(() => findNodeImports(search, tools))
    if (imports.problem !== null) onNote(`${label}: ${imports.problem}`)
    // To node a pack is only the folder it is in: its name is recognized here.
    return { ...imports, packages: imports.packages.filter(({ name }) => !packs.includes(name)) }
  }

  /** Imported packages that are neither declared nor provided, with the range to install. */
  #findUndeclared(): Record<string, string> {
    const undeclared: Record<string, string> = {}
    for (const { name } of this.imports.packages) {
      if (this.#isProvided(name)) continue
      const forDevelopment = this.manifest?.of('devDependencies')[name]
      undeclared[name] = typeof forDevelopment === 'string' ? forDevelopment : '*'
    }
    return undeclared
  }

  /** Why each import that gets no package gets none, by name. */
  #toReasons(left: readonly string[]): ReadonlyMap<string, FailedImport> {
    const { unit } = this
    const reasons = new Map<string, FailedImport>()
    const hint = 'import a file by ./ or ../, or a package by its name, and name it in package.json'
    for (const { name } of this.imports.unresolved) {
      reasons.set(name, { message: `import of ${JSON.stringify(name)} is not a package that npm can install`, hint })
    }
    for (const name of left) {
      const reported = {
        message: `imports ${name}, which ${labelOf(unit, NODE_MANIFEST)} does not name`,
        hint: toAddHint(unit, name, 'FN_AUTO_INFER_NODE_DEPS'),
      }
      reasons.set(name, unit.failed.get(name) ?? reported)
    }
    return reasons
  }

  /** One for each handler and name: its own line where that is known. */
  #toUnmet(reasons: ReadonlyMap<string, FailedImport>): UnmetImport[] {
    const without = this.#options.isStrict ? '; FN_AUTO_INFER_STRICT=0 lets the function run without it' : ''
    return this.imports.places.flatMap(({ name, file, line, entries }) => {
      const reason = reasons.get(name)
      if (reason === undefined) return []
      const hint = `${reason.hint}${without}`
      return { entries, error: installError(`${file}:${line}: ${reason.message}`, { file, line }, hint) }
    })
  }

  /** True for a package that the manifest declares, the function itself, and one that a pack or a folder above has. */
  #isProvided(name: string): boolean {
    const { folder, packFolders } = this.unit
    const isDeclared = INSTALLED_FIELDS.some(
      field => this.manifest !== null && Object.hasOwn(this.manifest.of(field), name),
    )
    if (isDeclared || name === this.manifest?.name || providerOf(name, folder) !== null) return true
    return packFolders.some(pack => hasFile(join(pack, NODE_TARGET), name))
  }

  /** Names of the manifest that are not installed: in a workspace its packages, and those that its package manager put above. */
  #findProvided(): ReadonlySet<string> {
    const { folder, isPack } = this.unit
    const seen = new Set<string>()
    const provided = new Set<string>()
    // A pack is used from other folders, where Node resolves nothing from above the pack.
    if (this.manifest === null || isPack) return provided
    for (const field of DECLARING) {
      for (const [name, spec] of Object.entries(this.manifest.of(field))) {
        if (seen.has(name)) continue
        seen.add(name)
        // Packages for development are not installed, and npm refuses a manifest that names what it does not know.
        const isIdle = field === 'devDependencies' && toPackageSource(name, spec).kind === 'foreign'
        if (isIdle || isProvidedAbove(name, spec, folder, this.lock?.isDeclaring(name) === true)) provided.add(name)
      }
    }
    return provided
  }

  /**
   * A path of a lock file must be one of those that manifests name, which are checked.
   * @param isMade - npm made it: it names everything that packages ask for, which is not known before
   */
  checkLock(lock: NodeLock, isMade = false): void {
    const file = labelOf(this.unit, isMade ? NODE_MANIFEST : lock.fileName)
    for (const { name, text, path } of lock.sources) {
      const isAllowed =
        path === null
          ? this.#options.allowSources
          : this.files.targets.has(resolve(realpathSync(this.unit.folder), path))
      if (isAllowed) continue
      const why = path === null ? 'not from the registry' : 'a path that no package.json names'
      const remedy = isMade ? 'take out the package that needs it' : 'delete the lock file'
      const hint = `${remedy}${path === null ? ', or set FN_NODE_PACKAGE_SOURCES=1' : ''}`
      throw installError(`${file}: ${name} comes from ${showToken(text)}, ${why}`, { file }, hint)
    }
  }
}

/** `left-pad@^1.3.0` */
function toAsked({ asked }: InstallUnit): Record<string, string> {
  return Object.fromEntries(
    asked.map(text => {
      const at = text.indexOf('@', 1)
      return at === -1 ? [text, '*'] : [text.slice(0, at), text.slice(at + 1)]
    }),
  )
}

// Packages that Node resolves from a `node_modules` above a function, where another package manager put them.

/** The folder from which node takes a package without an install: one above with a `node_modules`; null when there is none. */
export function providerOf(name: string, folder: string): string | null {
  for (let at = dirname(folder); ; at = dirname(at)) {
    if (statSync(join(at, NODE_TARGET, name), { throwIfNoEntry: false }) !== undefined) return at
    if (at === dirname(at)) return null
  }
}

/** Changes when a package is added to or removed from a `node_modules` above a folder. */
export function stampAbove(folder: string): string {
  const stamps: string[] = []
  for (let at = dirname(folder); ; at = dirname(at)) {
    const stats = statSync(join(at, NODE_TARGET), { throwIfNoEntry: false })
    if (stats !== undefined) stamps.push(`${at} ${stats.mtimeMs}`)
    if (at === dirname(at)) return stamps.join('\n')
  }
}

/**
 * True when what Node resolves from above satisfies an entry of a manifest, so that nothing is installed for it.
 * @param spec - the value beside the name in `dependencies`
 * @param isPinned - a lock file beside the manifest decides: only a package of a workspace, which is a link, comes before it
 */
export function isProvidedAbove(name: string, spec: unknown, folder: string, isPinned: boolean): boolean {
  const provider = providerOf(name, folder)
  // A set of the gateway's own belongs to another function, and may become another one at any time.
  if (provider === null || typeof spec !== 'string' || new PackageFolder(provider, NODE_TARGET).set !== null)
    return false
  const source = toPackageSource(name, spec)
  const place = realpathSync(join(provider, NODE_TARGET, name))
  const isWorkspace = !place.split(sep).includes(NODE_TARGET)
  if (source.kind === 'file') return isSamePackage(place, resolve(folder, source.path))
  if (source.kind === 'registry') return (isWorkspace || !isPinned) && isInRange(place, spec.trim(), isWorkspace)
  return source.kind === 'foreign' || (source.kind === 'address' && !isPinned)
}

/** True for the folder itself, and for the copy that a package manager made of it. */
function isSamePackage(place: string, target: string): boolean {
  try {
    if (realpathSync(target) === place) return true
  } catch {
    return false
  }
  const [copy, own] = [readTitle(place), readTitle(target)]
  return own.name !== undefined && copy.name === own.name && copy.version === own.version
}

function isInRange(place: string, spec: string, isWorkspace: boolean): boolean {
  const alias = /^npm:(.[^@]*)(?:@(.*))?$/.exec(spec)
  const { name, version } = readTitle(place)
  if (alias !== null && alias[1] !== name) return false
  const range = alias === null ? spec : (alias[2] ?? '*')
  // A tag (`latest`) is known to the registry alone; package managers take the workspace's package for it.
  if (validRange(range, { loose: true }) === null) return isWorkspace
  return satisfies(version ?? '0.0.0', range, { loose: true, includePrerelease: isWorkspace })
}

function readTitle(folder: string): { name: string | undefined; version: string | undefined } {
  const { name, version } = parseObject(tryRead(join(folder, 'package.json'))) ?? {}
  return {
    name: typeof name === 'string' ? name : undefined,
    version: typeof version === 'string' ? version : undefined,
  }
}

// Packages that a `package.json` names by a path (`file:../lib`): every name and source is checked, theirs too.

const SOURCES_SETTING = 'FN_NODE_PACKAGE_SOURCES'
/** Of a manifest, those whose packages are installed. */
const INSTALLED_FIELDS = ['dependencies', 'optionalDependencies', 'peerDependencies'] as const

/**
 * Checks every name and source of a manifest and of the packages it names by paths.
 * @param folder - full path of the manifest's folder
 * @throws GatewayError naming the line of the manifest
 */
export function checkSources(manifest: NodeManifest, folder: string, checks: PackageChecks): FilePackages {
  const collector = new FileCollector(NODE_TARGET)
  const { bound, boundName } = toPackageBounds(checks, folder)
  const queue: { manifest: NodeManifest; folder: string }[] = [{ manifest, folder }]
  for (const at of queue) {
    for (const path of pathsOf(at.manifest, checks.allowSources)) {
      const target = findInside(resolve(at.folder, path.path), bound)
      if (target === null) {
        const why = `file:${path.path} is not in ${boundName}`
        const hint = `run npm install in the workspace it belongs to, move the package into ${boundName}, or set ${SOURCES_SETTING}=1`
        throw at.manifest.error(`${at.manifest.label}: ${path.name}: ${why}`, path.name, hint)
      }
      const fail = (why: string) =>
        at.manifest.error(`${at.manifest.label}: ${why}`, path.name, 'name a smaller folder')
      if (!collector.add(target, fail)) continue
      // The dependencies of an archive are checked in the lock file that the install leaves.
      if (lstatSync(target).isFile()) continue
      const label = below(checks.root, join(target, NODE_MANIFEST))
      // A link is not copied with its package.
      const isOwn = lstatSync(join(target, NODE_MANIFEST), { throwIfNoEntry: false })?.isFile() === true
      const text = isOwn ? readSmallFile(join(target, NODE_MANIFEST), label) : null
      if (text !== null) queue.push({ manifest: new NodeManifest(text, label), folder: target })
    }
  }
  return collector
}

function pathsOf(manifest: NodeManifest, allowSources: boolean): { name: string; path: string }[] {
  checkUninstalled(manifest, allowSources)
  return INSTALLED_FIELDS.flatMap(field =>
    Object.entries(manifest.of(field)).flatMap(([name, spec]) => {
      const source = toPackageSource(name, spec)
      if (source.kind === 'file') return { name, path: source.path }
      if (source.kind === 'foreign') {
        const hint = 'run its install in the workspace: what is in node_modules there is used'
        throw manifest.error(`${manifest.label}: ${field}: ${source.why}`, name, hint)
      }
      if (source.kind === 'wrong') {
        throw manifest.error(`${manifest.label}: ${field}: ${source.why}`, name, 'write a range such as "^1.2.3"')
      }
      if (source.kind === 'address' && !allowSources) throw addressError(manifest, field, name, spec)
      return []
    }),
  )
}

/** npm looks up the packages of these fields too, and may install what an override names. */
function checkUninstalled(manifest: NodeManifest, allowSources: boolean): void {
  for (const [name, spec] of Object.entries(manifest.of('devDependencies'))) {
    const isAddress = toPackageSource(name, spec).kind === 'address'
    if (isAddress && !allowSources) throw addressError(manifest, 'devDependencies', name, spec)
  }
  for (const [name, spec] of overridesIn(manifest.of('overrides'))) {
    const { kind } = toPackageSource('x', spec)
    if (kind === 'file' || (kind === 'address' && !allowSources)) throw addressError(manifest, 'overrides', name, spec)
  }
}

/** Names and versions at every depth. `$name` stands for the version in `dependencies`. */
function overridesIn(value: object): [name: string, spec: string][] {
  return Object.entries(value).flatMap(([name, spec]): [string, string][] => {
    if (typeof spec === 'string') return spec.startsWith('$') ? [] : [[name, spec]]
    return isObject(spec) ? overridesIn(spec) : []
  })
}

function addressError(manifest: NodeManifest, field: string, name: string, spec: unknown): GatewayError {
  const message = `${manifest.label}: ${field}: ${name} comes from ${showToken(spec)}, not from the registry`
  return manifest.error(message, name, `name a version, or set ${SOURCES_SETTING}=1`)
}
