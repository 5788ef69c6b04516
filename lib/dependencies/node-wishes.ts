/**
 * What a folder of node functions asks for: its manifest, its lock file, what its handlers import. Owner: page dependencies/node.
 *
 *   imports - declared - packs - what a folder above has ─► added ─┐
 *   package.json - what a folder above has as it asks for ─────────┴─► wanted: the manifest that npm gets
 */

import type { FileReader } from '../files/function-file.ts'
import { realpathSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { BuildTools } from './build.ts'
import { digestFiles, type FilePackages } from './file-packages.ts'
import {
  type FailedImport,
  type InferMode,
  type InstallUnit,
  installError,
  toAddHint,
  type UnmetImport,
} from './install-step.ts'
import { checkSources } from './node-file-packages.ts'
import {
  findNodeImports,
  type ImportReads,
  mayImportPackages,
  type NodeImports,
  type NodeInferBackend,
} from './node-imports.ts'
import { type NodeLock, readNodeLock } from './node-lock.ts'
import { showToken } from './manifest-text.ts'
import { DECLARING, NODE_MANIFEST, NodeManifest, readNodeManifest } from './node-manifest.ts'
import { isPackageName, toPackageSource } from './node-names.ts'
import { isProvidedAbove, providerOf } from './node-provided.ts'
import { hasFile, labelOf } from './unit-files.ts'

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
  reads: ImportReads
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
