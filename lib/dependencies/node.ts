/**
 * Packages of node functions: `package.json`, imports and a lock file to `node_modules`, by npm. Owner: page dependencies/node.
 *
 *   package.json + imports - packs, builtins, what a folder above has  ─► wishes, each checked
 *   package-lock.json ─ made from these wishes ─► npm ci, on failure npm install
 *                     └ none, or of others     ─► npm install
 *   afterwards, beside the function: package.json with what imports added, package-lock.json with what was installed
 */

import { availableParallelism } from 'node:os'
import type { GatewayError } from '../core/errors.ts'
import type { HostEnv } from '../core/host.ts'
import { INSTALL_TIMEOUT_SECONDS } from '../core/limits.ts'
import { Semaphore } from '../core/semaphore.ts'
import type { FileReader } from '../files/function-file.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { BuildKey } from './build-cache.ts'
import type { BuildTools, Toolchain } from './build.ts'
import { CHANGED_MEANWHILE, readMade, stageFiles } from './file-packages.ts'
import {
  hasFile,
  type InstallPlan,
  type InstallStep,
  type InstallUnit,
  isWritable,
  labelOf,
  passingError,
  type Settled,
} from './install-step.ts'
import {
  checkLock,
  countOf,
  isLockOf,
  NODE_TARGET,
  type NodeWishes,
  type NodeWishOptions,
  providerOf,
  readNodeWishes,
  stampAbove,
} from './node-dependencies.ts'
import { mayImportPackages } from './node-imports.ts'
import {
  foreignLockNote,
  makeNodeManifest,
  NODE_LOCK,
  NODE_LOCKS,
  NODE_MANIFEST,
  NodeLock,
  NodeManifest,
  readNodeManifest,
} from './node-manifest.ts'
import { blameImports, installWithNpm, type NpmAsker, rebuildWithNpm, toNpmEnv, toNpmError } from './npm.ts'
import { PackageFolder, type PackageSet, type SetOutcome } from './package-set.ts'
import type { ToolResult } from './run-tool.ts'

export interface NodeStepOptions extends Omit<NodeWishOptions, 'reads'> {
  /** `FN_AUTO_NODE_DEPS`. */
  isOn: boolean
  /** `FN_AUTO_INFER_WRITE_MANIFEST`. */
  writesManifest: boolean
  /** `FN_PREINSTALL_NODE_DEPS_ON_START` and its `CONCURRENCY`. */
  isAhead: boolean
  concurrency: number
  /** Full path of npm; null when it is not there. */
  findNpm(): string | null
  /** As of `InstallStep`. */
  onInfer?(text: string): void
}

export function createNodeStep(options: NodeStepOptions): InstallStep {
  const { isOn, isAhead, concurrency, infers, backend, writesManifest, isStrict, allowSources } = options
  const reads = new Semaphore(availableParallelism())
  return {
    runtime: 'node',
    target: NODE_TARGET,
    manifests: [NODE_MANIFEST, ...NODE_LOCKS, 'fn.config.json'],
    concurrency,
    // Each starts a node to read imports.
    looksAtOnce: 2 * availableParallelism(),
    isAhead,
    isOn,
    setting: 'FN_AUTO_NODE_DEPS',
    rules: JSON.stringify([NODE_RECIPE, infers, backend, writesManifest, allowSources]),
    isStrict,
    onNote: options.onNote,
    ...(options.onInfer && { onInfer: options.onInfer }),
    toEnv: (hostEnv: HostEnv) => toNpmEnv(hostEnv),
    isWanted: unit => isWanted(unit, options),
    stampAbove,
    readVersion: (program, tools, cwd) => readVersion(program, tools, cwd),
    plan: (unit, toolchain, tools) => makePlan({ unit, options: { ...options, reads }, toolchain, tools }),
  }
}

function isWanted({ folder, functions, packs, isPack }: InstallUnit, { infers }: NodeStepOptions): boolean {
  if (hasFile(folder, NODE_MANIFEST)) return true
  if (isPack || infers === false) return false
  const entries = functions.map(fn => fn.entryPath)
  return mayImportPackages(folder, entries, name => packs.includes(name) || providerOf(name, folder) !== null)
}

/** Packages with compiled parts are made for one version of node's interface. */
async function readVersion(program: string, tools: BuildTools, cwd: string): Promise<string> {
  const args = ['-p', 'process.versions.node.split(".")[0] + " " + process.versions.modules']
  const result = await tools.run({ command: program, args, cwd })
  if (result.code !== 0) throw passingError(`${program} does not run: ${result.problem ?? result.output.trim()}`)
  return result.output.trim()
}

/** One look at a folder. */
interface Look {
  unit: InstallUnit
  options: NodeStepOptions & { reads: Semaphore }
  toolchain: Toolchain
  tools: BuildTools
}

async function makePlan({ unit, options, toolchain, tools }: Look): Promise<InstallPlan | null> {
  const { backend, allowSources, readFile, writesManifest, findNpm, onNote } = options
  const wishes = await readNodeWishes(unit, options, tools)
  if (wishes === null) return null
  const { manifest, lock, lockProblem, imports, inferenceDurationMs, inferred, wanted, unresolved } = wishes
  const set = new NodeSet({ unit, wishes, toolchain, allowSources, readFile, findNpm, onNote })
  const infers = options.infers !== false && !unit.isPack
  const note = lockProblem ?? foreignLockNote(unit.folder, unit.label, lock)
  return {
    key: set.key,
    facts: {
      mode: manifest === null || manifest.isGenerated ? 'inferred' : 'manifest',
      manifest: manifest === null ? null : NODE_MANIFEST,
      inferBackend: infers ? backend : null,
      inferenceDurationMs: infers ? inferenceDurationMs : 0,
      inferredImports: [...imports.packages, ...imports.unresolved].map(({ name }) => name).concat(imports.optional),
    },
    ...(countOf(wanted) === 0 && {
      emptyOutcome: async () => ({ resolvedPackages: [], unresolvedImports: unresolved }),
    }),
    inferred: imports.packages
      .filter(({ name }) => Object.hasOwn(inferred, name))
      .map(({ name, file, line }) => `${name} (${file}:${line})`),
    blame: cause => blameImports(cause as ToolResult, inferred, { label: unit.label, manifest }),
    unmet: () => wishes.unmet,
    fill: (draft, work) => set.fill(draft, work),
    retell: cause => set.toError(cause as ToolResult),
    settle: placed => {
      // Of this folder, also when another one's install is shared.
      if (note !== null) onNote(note)
      return settleNodeFiles(unit, placed, wishes, writesManifest)
    },
  }
}

// // A set of node packages: the key of what it is made from, and how npm fills it.
//   key   the wishes and the lock file that was there before
//   pins  the lock file that the install left: it stands for the same set

/** Part of the key: a change of how sets are made makes them again. */
const NODE_RECIPE = 'node 1'
/** File of a set, in its `node_modules`: digest of the lock file that stands for it. */
const PINS = '.fngw-pins'
const NPM_TIMEOUT_MS = INSTALL_TIMEOUT_SECONDS * 1000

interface NodeSetOptions {
  unit: InstallUnit
  wishes: NodeWishes
  toolchain: Toolchain
  allowSources: boolean
  readFile?: FileReader | null
  /** Full path of npm; null when it is not there. */
  findNpm(): string | null
  /** Something that a person should know and that stops nothing. */
  onNote(text: string): void
}

class NodeSet {
  readonly #options: NodeSetOptions

  constructor(options: NodeSetOptions) {
    this.#options = options
  }

  /** Digest of everything that decides about the files. */
  get key(): string {
    const { unit, wishes } = this.#options
    const { lock, wanted } = wishes
    const placed = new PackageFolder(unit.folder, NODE_TARGET).set
    // The lock file that was written after the install stands for the same packages as the wishes before it.
    if (placed !== null && isLockOf(lock, wanted) && this.#pinsPlaced() === this.#pinsOf(lock)) return placed.key
    const manifest = JSON.stringify(wanted.toStaged({}))
    return this.#toKey(key => key.add('manifest', manifest).add('lock', lock?.digest ?? null))
  }

  #pinsPlaced(): string | null {
    return new OwnFolder(this.#options.unit.folder, NODE_TARGET).read(PINS)?.toString('utf8') ?? null
  }

  #pinsOf(lock: NodeLock): string {
    return this.#toKey(key => key.add('lock', lock.digest))
  }

  #toKey(addPackages: (key: BuildKey) => BuildKey): string {
    const { wishes, toolchain } = this.#options
    return addPackages(new BuildKey().add('recipe', NODE_RECIPE).add('toolchain', toolchain.version))
      .add('scripts', wishes.allowScripts.join(' '))
      .add('unresolved', this.#unresolved.join(' '))
      .add('files', wishes.filesDigest)
      .toString()
  }

  get #unresolved(): string[] {
    return [...this.#options.wishes.unresolved]
  }

  get #asker(): NpmAsker {
    const { unit, wishes } = this.#options
    const imported = wishes.imports.packages.filter(({ name }) => Object.hasOwn(wishes.added, name))
    return { label: unit.label, manifest: labelOf(unit, NODE_MANIFEST), imported }
  }

  /** In the words of this folder, whichever folder's install it was. */
  toError(result: ToolResult): GatewayError {
    return toNpmError(result, this.#asker, NPM_TIMEOUT_MS)
  }

  async fill(draft: OwnFolder, tools: BuildTools): Promise<SetOutcome> {
    const { unit, wishes, allowSources, findNpm } = this.#options
    const { wanted, files, folder, root } = wishes
    const npm = findNpm()
    if (npm === null)
      throw passingError(
        `${unit.label}: npm is not on PATH`,
        'install npm, set FN_NPM_BIN to it, or set FN_AUTO_NODE_DEPS=0',
      )
    const { cwd, digest } = await stageFiles(draft, files, { folder, root, read: this.#options.readFile })
    if (digest !== wishes.filesDigest) throw passingError(`${unit.label}: ${CHANGED_MEANWHILE}`)
    cwd.write(NODE_MANIFEST, `${JSON.stringify(wanted.toStaged({}), null, 2)}\n`)
    const staged = allowSources ? wishes.lock?.text : wishes.lock?.toStaged()
    if (staged !== undefined) cwd.write(NODE_LOCK, staged)
    const hasLock = wishes.lock !== null
    const install = { npm, cwd: cwd.path, draft, hasLock, allowSources, timeoutMs: NPM_TIMEOUT_MS, ...this.#asker }
    await installWithNpm(install, tools)
    // Unchanged by npm, it is the function's own again.
    if (cwd.read(NODE_LOCK)?.toString('utf8') === staged) cwd.write(NODE_LOCK, wishes.lock!.text)
    const lock = new NodeLock(NODE_LOCK, readMade(cwd, NODE_LOCK), NODE_LOCK)
    checkLock(unit, lock, files, allowSources, true)
    await this.#runScripts(install, lock, tools)
    cwd.below(NODE_TARGET).make()
    if (cwd.path !== draft.path)
      for (const name of [NODE_TARGET, NODE_LOCK, NODE_MANIFEST]) cwd.moveTo(name, draft, name)
    draft.below(NODE_TARGET).write(PINS, this.#pinsOf(lock))
    return this.#toOutcome(lock)
  }

  async #runScripts(install: Parameters<typeof rebuildWithNpm>[0], lock: NodeLock, tools: BuildTools): Promise<void> {
    const { unit, wishes, onNote } = this.#options
    const withScripts = new Set(
      lock.packages.filter(({ fields }) => fields.hasInstallScript === true).map(({ name }) => name),
    )
    const allowed = wishes.allowScripts
    await rebuildWithNpm(
      install,
      allowed.filter(name => lock.packages.some(({ name: other }) => other === name)),
      tools,
    )
    const left = [...withScripts].filter(name => !allowed.includes(name))
    if (left.length === 0) return
    onNote(
      `${unit.label}: install scripts of ${left.join(', ')} did not run; ` +
        'name what needs them in allow_scripts of fn.config.json',
    )
  }

  #toOutcome(lock: NodeLock): SetOutcome {
    const { wanted } = this.#options.wishes
    const names = [...Object.keys(wanted.of('dependencies')), ...Object.keys(wanted.of('optionalDependencies'))]
    const resolvedPackages = names.flatMap(name => {
      const version = lock.versionOf(name)
      return version === null ? [] : `${name}@${version}`
    })
    return { resolvedPackages, unresolvedImports: this.#unresolved }
  }
}

// What is written beside node functions after an install: the manifest, and the lock file.

/** @param writesManifest - false where manifests are left alone */
function settleNodeFiles(unit: InstallUnit, set: PackageSet, wishes: NodeWishes, writesManifest: boolean): Settled {
  const { manifest } = wishes
  const isAdding = Object.keys(wishes.added).length > 0
  if (isAdding && !writesManifest) {
    return {
      isManifestGenerated: false,
      manifest: manifest === null ? null : NODE_MANIFEST,
      lockFile: wishes.lock?.fileName ?? null,
    }
  }
  const bytes = set.folder.read(NODE_LOCK)
  const lock = bytes === null ? null : new NodeLock(NODE_LOCK, bytes.toString('utf8'), labelOf(unit, NODE_LOCK))
  const folder = new OwnFolder(unit.folder)
  const written = isAdding && lock !== null ? writeManifest(unit, folder, lock, wishes.added) : manifest
  const locked = written?.without(wishes.provided)
  return {
    isManifestGenerated: manifest?.isGenerated ?? isAdding,
    manifest: NODE_MANIFEST,
    lockFile: lock !== null && locked !== undefined ? writeLock(folder, wishes.lock, lock, locked) : null,
  }
}

/** What was installed for an import becomes a wish: any version that is as good. */
function writeManifest(
  unit: InstallUnit,
  folder: OwnFolder,
  lock: NodeLock,
  added: NodeWishes['added'],
): NodeManifest | null {
  const ranges: Record<string, string> = {}
  for (const [name, range] of Object.entries(added)) {
    const version = lock.versionOf(name)
    ranges[name] = range === '*' && version !== null ? `^${version}` : range
  }
  // Somebody may have saved it meanwhile.
  const manifest = readNodeManifest(unit.folder, unit.label)
  const slug = unit.functions[0]?.name ?? unit.label
  const text = manifest === null ? makeNodeManifest(slug, ranges) : manifest.append(ranges)
  if (manifest === null || isWritable(folder, NODE_MANIFEST)) folder.write(NODE_MANIFEST, text)
  return new NodeManifest(text, labelOf(unit, NODE_MANIFEST))
}

/** @param own - that of the function */
function writeLock(folder: OwnFolder, own: NodeLock | null, lock: NodeLock, manifest: NodeManifest): string {
  const name = own?.fileName ?? NODE_LOCK
  if (own !== null && own.digest === lock.digest && isLockOf(own, manifest)) return name
  if (own === null || isWritable(folder, name)) folder.write(name, lock.toTextFor(manifest))
  return name
}
