/**
 * What a folder of node functions asks for: its manifest, its lock file, what its handlers import. Owner: page dependencies/node.
 *
 *   imports - declared - packs - what a folder above has ─► added ─┐
 *   package.json - what a folder above has as it asks for ─────────┴─► wanted: the manifest that npm gets
 */

import { lstatSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { dirname, join, resolve, sep } from 'node:path'
import satisfies from 'semver/functions/satisfies.js'
import validRange from 'semver/ranges/valid.js'
import type { GatewayError } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import type { Semaphore } from '../core/semaphore.ts'
import type { FileReader } from '../files/function-file.ts'
import { below, type BuildTools } from './build.ts'
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

export interface NodeWishOptions {
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
  /** Processes that read imports at once: hundreds of functions that are looked at together would start one each. */
  reads: Semaphore
  /** Something that a person should know and that stops nothing. */
  onNote(text: string): void
}

export interface NodeWishes {
  /** Beside the function; null when there is none. */
  manifest: NodeManifest | null
  lock: NodeLock | null
  /** Why a lock file that is there is not used; null otherwise. */
  lockProblem: string | null
  imports: NodeImports
  inferenceDurationMs: number
  /** Imported packages that no manifest names, with the ranges to install. */
  inferred: Readonly<Record<string, string>>
  /** What the manifest gets: those, and packages that were asked for. */
  added: Readonly<Record<string, string>>
  /** Imports that are left without a package. */
  unmet: readonly UnmetImport[]
  unresolved: readonly string[]
  /** Names in the manifest that Node resolves from above, in versions that satisfy it. */
  provided: ReadonlySet<string>
  /** The manifest that npm gets. */
  wanted: NodeManifest
  /** Packages that lie in paths. */
  files: FilePackages
  filesDigest: string
  /** Full paths without links: of the functions root, and of the folder. */
  root: string
  folder: string
  /** Packages whose install scripts may run. */
  allowScripts: readonly string[]
}

const NO_IMPORTS: NodeImports = { packages: [], unresolved: [], optional: [], places: [], problem: null }
/**
 * @returns null when it asks for nothing
 * @throws GatewayError by `installError`
 */
export async function readNodeWishes(
  unit: InstallUnit,
  options: NodeWishOptions,
  tools: BuildTools,
): Promise<NodeWishes | null> {
  const manifest = readNodeManifest(unit.folder, unit.label)
  const { lock: found, problem: lockProblem } = readNodeLock(unit.folder, unit.label)
  const lock = found?.withoutStalePaths(manifest) ?? null
  const root = realpathSync(options.functionsRoot)
  const folder = join(root, unit.label)
  const startedAt = performance.now()
  const imports = await findImports(unit, manifest, options, tools)
  const inferenceDurationMs = Math.round(performance.now() - startedAt)
  const undeclared = findUndeclared(unit, manifest, imports)
  const isLeft = (name: string) => options.infers === 'report' || unit.failed.has(name)
  const inferred = Object.fromEntries(Object.entries(undeclared).filter(([name]) => !isLeft(name)))
  const added = { ...inferred, ...toAsked(unit) }
  const reasons = toReasons(unit, imports, Object.keys(undeclared).filter(isLeft))
  const provided = findProvided(unit, manifest, lock)
  const own = manifest?.without(provided) ?? null
  const wanted = toWanted(unit, own, added)
  const left = imports.optional.filter(name => !isProvided(unit, manifest, name))
  const unresolved = [...reasons.keys(), ...left]
  if (countOf(wanted) === 0 && unresolved.length === 0) return null
  const files = checkSources(own ?? wanted, unit.folder, {
    root,
    read: options.readFile,
    allowSources: options.allowSources,
  })
  const filesDigest = await digestFiles(files, folder, options.readFile)
  if (lock !== null) checkLock(unit, lock, files, options.allowSources)
  const allowScripts = toAllowScripts(unit)
  const unmet = toUnmet(imports, reasons, options.isStrict)
  const read = { manifest, lock, lockProblem, imports, inferenceDurationMs, inferred, added, unmet, unresolved }
  return { ...read, provided, wanted, files, filesDigest, root, folder, allowScripts }
}

/** True for a lock file that a clean install takes. */
export function isLockOf(lock: NodeLock | null, wanted: NodeManifest): lock is NodeLock {
  if (lock === null) return false
  return (['dependencies', 'optionalDependencies'] as const).every(field => lock.isOf(field, wanted.of(field)))
}

async function findImports(
  { folder, functions, packs, label, isPack }: InstallUnit,
  manifest: NodeManifest | null,
  { infers, importsScript: script, functionsRoot, backend, reads, onNote }: NodeWishOptions,
  tools: BuildTools,
): Promise<NodeImports> {
  const entries = functions.map(fn => fn.entryPath)
  if (infers === false || isPack || !mayImportPackages(folder, entries, name => packs.includes(name))) return NO_IMPORTS
  const isDeclared = (name: string) =>
    DECLARING.some(field => manifest !== null && Object.hasOwn(manifest.of(field), name))
  const search = { script, functionsRoot, folder, entries, backend, isDeclared }
  const imports = await reads.run(() => findNodeImports(search, tools))
  if (imports.problem !== null) onNote(`${label}: ${imports.problem}`)
  // A pack is for node only the folder it lies in: what it is called is told apart from packages here.
  return { ...imports, packages: imports.packages.filter(({ name }) => !packs.includes(name)) }
}

/** Why each import that gets no package gets none, by name. */
function toReasons(
  unit: InstallUnit,
  { unresolved }: NodeImports,
  left: readonly string[],
): ReadonlyMap<string, FailedImport> {
  const reasons = new Map<string, FailedImport>()
  const hint = 'import a file by ./ or ../, or a package by its name, and name it in package.json'
  for (const { name } of unresolved) {
    reasons.set(name, { message: `import of ${JSON.stringify(name)} is no package that npm could install`, hint })
  }
  for (const name of left) reasons.set(name, unit.failed.get(name) ?? toReported(unit, name))
  return reasons
}

function toReported(unit: InstallUnit, name: string): FailedImport {
  return {
    message: `imports ${name}, which ${labelOf(unit, NODE_MANIFEST)} does not name`,
    hint: toAddHint(unit, name, 'FN_AUTO_INFER_NODE_DEPS'),
  }
}

/** One for each handler and name: its own line where that is known. */
function toUnmet(
  { places }: NodeImports,
  reasons: ReadonlyMap<string, FailedImport>,
  isStrict: boolean,
): UnmetImport[] {
  const without = isStrict ? '; FN_AUTO_INFER_STRICT=0 lets the function run without it' : ''
  return places.flatMap(({ name, file, line, entries }) => {
    const reason = reasons.get(name)
    if (reason === undefined) return []
    const hint = `${reason.hint}${without}`
    return { entries, error: installError(`${file}:${line}: ${reason.message}`, { file, line }, hint) }
  })
}

/** What is imported and neither declared nor provided, with the range to install. */
function findUndeclared(
  unit: InstallUnit,
  manifest: NodeManifest | null,
  imports: NodeImports,
): Record<string, string> {
  const undeclared: Record<string, string> = {}
  for (const { name } of imports.packages) {
    if (isProvided(unit, manifest, name)) continue
    const forDevelopment = manifest?.of('devDependencies')[name]
    undeclared[name] = typeof forDevelopment === 'string' ? forDevelopment : '*'
  }
  return undeclared
}

/** True for what the manifest declares, the function itself, and what a pack or a folder above has. */
function isProvided({ folder, packFolders }: InstallUnit, manifest: NodeManifest | null, name: string): boolean {
  const isDeclared = (['dependencies', 'optionalDependencies', 'peerDependencies'] as const).some(
    field => manifest !== null && Object.hasOwn(manifest.of(field), name),
  )
  if (isDeclared || name === manifest?.name || providerOf(name, folder) !== null) return true
  return packFolders.some(pack => hasFile(join(pack, NODE_TARGET), name))
}

/** What of the manifest is not installed: in a workspace its packages, and those that its package manager put above. */
function findProvided(
  { folder, isPack }: InstallUnit,
  manifest: NodeManifest | null,
  lock: NodeLock | null,
): ReadonlySet<string> {
  const seen = new Set<string>()
  const provided = new Set<string>()
  // A pack is used from other folders, where Node resolves nothing from above the pack.
  if (manifest === null || isPack) return provided
  for (const field of DECLARING) {
    for (const [name, spec] of Object.entries(manifest.of(field))) {
      if (seen.has(name)) continue
      seen.add(name)
      // Packages for development are not installed, and npm refuses a manifest that names what it does not know.
      const isIdle = field === 'devDependencies' && toPackageSource(name, spec).kind === 'foreign'
      if (isIdle || isProvidedAbove(name, spec, folder, lock?.isDeclaring(name) === true)) provided.add(name)
    }
  }
  return provided
}

function toWanted(unit: InstallUnit, own: NodeManifest | null, added: Readonly<Record<string, string>>): NodeManifest {
  const manifest = own ?? new NodeManifest('{}', labelOf(unit, NODE_MANIFEST))
  return new NodeManifest(JSON.stringify(manifest.toStaged(added)), manifest.label)
}

/** A path of the lock file must be one of those that manifests name, which are checked. */
export function checkLock(
  unit: InstallUnit,
  lock: NodeLock,
  { targets }: Pick<FilePackages, 'targets'>,
  allowSources: boolean,
  isMade = false,
): void {
  // What a package asks for is not known before the tool has it: the lock file that it makes names all.
  const file = labelOf(unit, isMade ? NODE_MANIFEST : lock.fileName)
  for (const { name, text, path } of lock.sources) {
    if (path === null ? allowSources : targets.has(resolve(realpathSync(unit.folder), path))) continue
    const why = path === null ? 'not from the registry' : 'a path that no package.json names'
    const remedy = isMade ? 'take out the package that needs it' : 'delete the lock file'
    const hint = `${remedy}${path === null ? ', or set FN_NODE_PACKAGE_SOURCES=1' : ''}`
    throw installError(`${file}: ${name} comes from ${showToken(text)}, ${why}`, { file }, hint)
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

function toAllowScripts({ functions }: InstallUnit): string[] {
  const names = functions.flatMap(({ policy }) => policy.allowScripts)
  return [...new Set(names)].filter(isPackageName).sort()
}

export function countOf(manifest: NodeManifest): number {
  return Object.keys(manifest.of('dependencies')).length + Object.keys(manifest.of('optionalDependencies')).length
}

// Packages that Node resolves from a `node_modules` above a function, where another package manager put them.

const INSTALLED = 'node_modules'

/** The folder from which node takes a package without an install: one above with a `node_modules`; null when there is none. */
export function providerOf(name: string, folder: string): string | null {
  for (let at = dirname(folder); ; at = dirname(at)) {
    if (statSync(join(at, INSTALLED, name), { throwIfNoEntry: false }) !== undefined) return at
    if (at === dirname(at)) return null
  }
}

/** Changes when a package is added to or removed from a `node_modules` above a folder. */
export function stampAbove(folder: string): string {
  const stamps: string[] = []
  for (let at = dirname(folder); ; at = dirname(at)) {
    const stats = statSync(join(at, INSTALLED), { throwIfNoEntry: false })
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
  if (provider === null || typeof spec !== 'string' || new PackageFolder(provider, INSTALLED).set !== null) return false
  const source = toPackageSource(name, spec)
  const place = realpathSync(join(provider, INSTALLED, name))
  const isWorkspace = !place.split(sep).includes(INSTALLED)
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

function readTitle(folder: string): { name?: string; version?: string } {
  try {
    const json: unknown = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    const { name, version } = isObject(json) ? json : {}
    return { ...(typeof name === 'string' && { name }), ...(typeof version === 'string' && { version }) }
  } catch {
    return {}
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
  const collector = new FileCollector('node_modules')
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
      // What an archive names is checked in the lock file that the install leaves.
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
