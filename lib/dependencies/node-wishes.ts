/**
 * What a folder of node functions asks for: its manifest, its lock file, what its handlers import. Owner: page dependencies/node.
 *
 *   imports - declared - packs - what a folder above has ─► added ─┐
 *   package.json ──────────────────────────────────────────────────┴─► wanted: the manifest that npm gets
 */

import { realpathSync } from 'node:fs'
import { join } from 'node:path'
import type { BuildTools } from './build.ts'
import { digestFiles, type FilePackages } from './file-packages.ts'
import { type InstallUnit, installError } from './install-step.ts'
import { checkSources } from './node-file-packages.ts'
import {
  findNodeImports,
  type ImportReads,
  mayImportPackages,
  type NodeImports,
  type NodeInferBackend,
  providerOf,
} from './node-imports.ts'
import { type NodeLock, readNodeLock } from './node-lock.ts'
import { NODE_MANIFEST, NodeManifest, readNodeManifest } from './node-manifest.ts'
import { isPackageName } from './node-names.ts'
import { hasFile, labelOf } from './unit-files.ts'

/** Folder of installed packages. */
export const NODE_TARGET = 'node_modules'

export interface NodeWishOptions {
  functionsRoot: string
  /** `FN_AUTO_INFER_NODE_DEPS`, `FN_NODE_INFER_BACKEND`, `FN_AUTO_INFER_STRICT`. */
  infers: boolean
  backend: NodeInferBackend
  isStrict: boolean
  /** Packages may come from repositories and addresses: `FN_NODE_PACKAGE_SOURCES`. */
  allowSources: boolean
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
  imports: NodeImports
  inferenceDurationMs: number
  /** Imported packages that no manifest names, with the ranges to install. */
  added: Readonly<Record<string, string>>
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

const NO_IMPORTS: NodeImports = { packages: [], unresolved: [], problem: null }
/** Where a manifest declares a package. */
const DECLARING = ['dependencies', 'optionalDependencies', 'peerDependencies', 'devDependencies'] as const

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
  const lock = readNodeLock(unit.folder, unit.label)
  const root = realpathSync(options.functionsRoot)
  const folder = join(root, unit.label)
  const startedAt = performance.now()
  const imports = await findImports(unit, manifest, options, tools)
  const inferenceDurationMs = Math.round(performance.now() - startedAt)
  if (options.isStrict) checkStrict(imports)
  const added = toAdded(unit, manifest, imports)
  const wanted = toWanted(unit, manifest, added)
  if (countOf(wanted) === 0) return null
  const files = checkSources(manifest ?? wanted, unit.folder, { root, allowSources: options.allowSources })
  const filesDigest = await digestFiles(files, folder)
  if (!options.allowSources) checkAddresses(unit, lock)
  const allowScripts = toAllowScripts(unit)
  const read = { manifest, lock, imports, inferenceDurationMs, added, wanted }
  return { ...read, files, filesDigest, root, folder, allowScripts }
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
  if (!infers || isPack || !mayImportPackages(folder, entries, name => packs.includes(name))) return NO_IMPORTS
  const isDeclared = (name: string) =>
    DECLARING.some(field => manifest !== null && Object.hasOwn(manifest.of(field), name))
  const search = { script, functionsRoot, folder, entries, backend, isDeclared }
  const imports = await reads.run(() => findNodeImports(search, tools))
  if (imports.problem !== null) onNote(`${label}: ${imports.problem}`)
  // A pack is for node only the folder it lies in: what it is called is told apart from packages here.
  return { ...imports, packages: imports.packages.filter(({ name }) => !packs.includes(name)) }
}

function checkStrict({ unresolved: [first] }: NodeImports): void {
  if (first === undefined) return
  const { name, file, line } = first
  const message = `${file}:${line}: import of ${JSON.stringify(name)} is no package that npm could install (FN_AUTO_INFER_STRICT)`
  throw installError(
    message,
    { file, line },
    'import a file by ./ or ../, or a package by its name, and name it in package.json',
  )
}

/** What is imported, and is not declared, not the function itself and nowhere above. */
function toAdded(
  { folder, packFolders }: InstallUnit,
  manifest: NodeManifest | null,
  imports: NodeImports,
): Record<string, string> {
  const isInPack = (name: string) => packFolders.some(pack => hasFile(join(pack, NODE_TARGET), name))
  const declared =
    manifest === null ? {} : { ...manifest.of('peerDependencies'), ...manifest.of('optionalDependencies') }
  const added: Record<string, string> = {}
  for (const { name } of imports.packages) {
    if (name === manifest?.name || Object.hasOwn(declared, name)) continue
    if (manifest !== null && Object.hasOwn(manifest.of('dependencies'), name)) continue
    if (providerOf(name, folder) !== null || isInPack(name)) continue
    const forDevelopment = manifest?.of('devDependencies')[name]
    added[name] = typeof forDevelopment === 'string' ? forDevelopment : '*'
  }
  return added
}

function toWanted(unit: InstallUnit, own: NodeManifest | null, added: Readonly<Record<string, string>>): NodeManifest {
  const manifest = own ?? new NodeManifest('{}', labelOf(unit, NODE_MANIFEST))
  return new NodeManifest(JSON.stringify(manifest.toStaged(added)), manifest.label)
}

function checkAddresses(unit: InstallUnit, lock: NodeLock | null): void {
  const [address] = lock?.addresses ?? []
  if (address === undefined) return
  const file = labelOf(unit, lock!.fileName)
  const message = `${file}: a package comes from ${JSON.stringify(address)}, not from the registry`
  throw installError(message, { file }, 'delete the lock file, or set FN_NODE_PACKAGE_SOURCES=1')
}

function toAllowScripts({ functions }: InstallUnit): string[] {
  const names = functions.flatMap(({ policy }) => policy.allowScripts)
  return [...new Set(names)].filter(isPackageName).sort()
}

function countOf(manifest: NodeManifest): number {
  return Object.keys(manifest.of('dependencies')).length + Object.keys(manifest.of('optionalDependencies')).length
}
