/**
 * Packages of node functions: `package.json`, imports and a lock file to `node_modules`, by npm. Owner: page dependencies/node.
 *
 *   package.json + imports - packs, builtins, packages of a folder above ─► dependencies, each checked
 *   package-lock.json ─ made from these ─► npm ci, on failure npm install
 *                     └ none, or of others ─► npm install
 *   afterwards, beside the function: package.json with what imports added, package-lock.json with what was installed
 *
 *   key   the dependencies and the lock file that was there before
 *   pins  the lock file that the install left: it stands for the same set
 */

import { availableParallelism } from 'node:os'
import { INSTALL_TIMEOUT_SECONDS } from '../core/limits.ts'
import { Semaphore } from '../core/semaphore.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { BuildTools, Toolchain } from './build.ts'
import { BuildKey } from './build-cache.ts'
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
  NODE_TARGET,
  NodeDependencies,
  type NodeDependencyOptions,
  providerOf,
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

/** Part of the key: a change of how sets are made makes them again. */
const RECIPE = 'node 1'
/** File of a set, in its `node_modules`: digest of the lock file that stands for it. */
const PINS = '.fngw-pins'
const NPM_TIMEOUT_MS = INSTALL_TIMEOUT_SECONDS * 1000

export interface NodeStepOptions extends NodeDependencyOptions {
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
    rules: JSON.stringify([RECIPE, infers, backend, writesManifest, allowSources]),
    isStrict,
    onNote: options.onNote,
    ...(options.onInfer && { onInfer: options.onInfer }),
    toEnv: toNpmEnv,
    isWanted: unit => isWanted(unit, infers),
    stampAbove,
    readVersion,
    plan: (unit, toolchain, tools) => new NodeFolder(unit, options, toolchain).plan(tools, reads),
  }
}

function isWanted({ folder, functions, packs, isPack }: InstallUnit, infers: NodeStepOptions['infers']): boolean {
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

/** One folder: its set of packages, and the files beside its functions. */
class NodeFolder {
  readonly #unit: InstallUnit
  readonly #options: NodeStepOptions
  readonly #toolchain: Toolchain
  readonly #dependencies: NodeDependencies

  constructor(unit: InstallUnit, options: NodeStepOptions, toolchain: Toolchain) {
    this.#unit = unit
    this.#options = options
    this.#toolchain = toolchain
    this.#dependencies = new NodeDependencies(unit, options)
  }

  async plan(tools: BuildTools, reads: Semaphore): Promise<InstallPlan | null> {
    if (!(await this.#dependencies.read(tools, reads))) return null
    const { folder, label, isPack } = this.#unit
    const { manifest, lock, lockProblem, imports, inferenceDurationMs, inferred, unresolved, unmet, wanted } =
      this.#dependencies
    const infers = this.#options.infers !== false && !isPack
    const note = lockProblem ?? foreignLockNote(folder, label, lock)
    return {
      key: this.#key,
      facts: {
        mode: manifest === null || manifest.isGenerated ? 'inferred' : 'manifest',
        manifest: manifest === null ? null : NODE_MANIFEST,
        inferBackend: infers ? this.#options.backend : null,
        inferenceDurationMs: infers ? inferenceDurationMs : 0,
        inferredImports: [...imports.packages, ...imports.unresolved].map(({ name }) => name).concat(imports.optional),
      },
      ...(wanted.names.length === 0 && {
        emptyOutcome: async () => ({ resolvedPackages: [], unresolvedImports: unresolved }),
      }),
      inferred: imports.packages
        .filter(({ name }) => Object.hasOwn(inferred, name))
        .map(({ name, file, line }) => `${name} (${file}:${line})`),
      blame: cause => blameImports(cause as ToolResult, inferred, { label, manifest }),
      unmet: () => unmet,
      fill: (draft, work) => this.#fill(draft, work),
      // In the words of this folder, whichever folder's install it was.
      retell: cause => toNpmError(cause as ToolResult, this.#asker, NPM_TIMEOUT_MS),
      settle: placed => {
        // Of this folder, also when another one's install is shared.
        if (note !== null) this.#options.onNote(note)
        return this.#settle(placed)
      },
    }
  }

  /** Digest of everything that decides about the files. */
  get #key(): string {
    const { lock, wanted, isLocked } = this.#dependencies
    const placed = new PackageFolder(this.#unit.folder, NODE_TARGET).set
    // The lock file that was written after the install stands for the same packages as the dependencies before it.
    if (placed !== null && isLocked && this.#pinsPlaced() === this.#pinsOf(lock!)) return placed.key
    const manifest = JSON.stringify(wanted.toStaged({}))
    return this.#toKey(key => key.add('manifest', manifest).add('lock', lock?.digest ?? null))
  }

  #pinsPlaced(): string | null {
    return new OwnFolder(this.#unit.folder, NODE_TARGET).read(PINS)?.toString('utf8') ?? null
  }

  #pinsOf(lock: NodeLock): string {
    return this.#toKey(key => key.add('lock', lock.digest))
  }

  #toKey(addPackages: (key: BuildKey) => BuildKey): string {
    const { allowScripts, unresolved, filesDigest } = this.#dependencies
    return addPackages(new BuildKey().add('recipe', RECIPE).add('toolchain', this.#toolchain.version))
      .add('scripts', allowScripts.join(' '))
      .add('unresolved', unresolved.join(' '))
      .add('files', filesDigest)
      .toString()
  }

  get #asker(): NpmAsker {
    const { imports, added } = this.#dependencies
    const imported = imports.packages.filter(({ name }) => Object.hasOwn(added, name))
    return { label: this.#unit.label, manifest: labelOf(this.#unit, NODE_MANIFEST), imported }
  }

  async #fill(draft: OwnFolder, tools: BuildTools): Promise<SetOutcome> {
    const { allowSources, findNpm, readFile } = this.#options
    const { wanted, files, filesDigest, folder, root, lock: own, unresolved } = this.#dependencies
    const { label } = this.#unit
    const npm = findNpm()
    if (npm === null) {
      const hint = 'install npm, set FN_NPM_BIN to it, or set FN_AUTO_NODE_DEPS=0'
      throw passingError(`${label}: npm is not on PATH`, hint)
    }
    const { cwd, digest } = await stageFiles(draft, files, { folder, root, read: readFile })
    if (digest !== filesDigest) throw passingError(`${label}: ${CHANGED_MEANWHILE}`)
    cwd.write(NODE_MANIFEST, `${JSON.stringify(wanted.toStaged({}), null, 2)}\n`)
    const staged = allowSources ? own?.text : own?.toStaged()
    if (staged !== undefined) cwd.write(NODE_LOCK, staged)
    const hasLock = own !== null
    const install = { npm, cwd: cwd.path, draft, hasLock, allowSources, timeoutMs: NPM_TIMEOUT_MS, ...this.#asker }
    await installWithNpm(install, tools)
    // Unchanged by npm, it is the function's own again.
    if (cwd.read(NODE_LOCK)?.toString('utf8') === staged) cwd.write(NODE_LOCK, own!.text)
    const lock = new NodeLock(NODE_LOCK, readMade(cwd, NODE_LOCK), NODE_LOCK)
    this.#dependencies.checkLock(lock, true)
    await this.#runScripts(install, lock, tools)
    cwd.below(NODE_TARGET).make()
    if (cwd.path !== draft.path)
      for (const name of [NODE_TARGET, NODE_LOCK, NODE_MANIFEST]) cwd.moveTo(name, draft, name)
    draft.below(NODE_TARGET).write(PINS, this.#pinsOf(lock))
    const resolvedPackages = wanted.names.flatMap(name => {
      const version = lock.versionOf(name)
      return version === null ? [] : `${name}@${version}`
    })
    return { resolvedPackages, unresolvedImports: unresolved }
  }

  async #runScripts(install: Parameters<typeof rebuildWithNpm>[0], lock: NodeLock, tools: BuildTools): Promise<void> {
    const { allowScripts } = this.#dependencies
    const { packages } = lock
    const present = allowScripts.filter(name => packages.some(({ name: other }) => other === name))
    await rebuildWithNpm(install, present, tools)
    const scripted = packages.filter(({ fields }) => fields.hasInstallScript === true).map(({ name }) => name)
    const left = [...new Set(scripted)].filter(name => !allowScripts.includes(name))
    if (left.length === 0) return
    const rule = 'name what needs them in allow_scripts of fn.config.json'
    this.#options.onNote(`${this.#unit.label}: install scripts of ${left.join(', ')} did not run; ${rule}`)
  }

  /** Writes the manifest, where it may be written, and the lock file. */
  #settle(set: PackageSet): Settled {
    const { manifest, lock: own, added, provided } = this.#dependencies
    const isAdding = Object.keys(added).length > 0
    if (isAdding && !this.#options.writesManifest) {
      const name = manifest === null ? null : NODE_MANIFEST
      return { isManifestGenerated: false, manifest: name, lockFile: own?.fileName ?? null }
    }
    const bytes = set.folder.read(NODE_LOCK)
    const lock = bytes === null ? null : new NodeLock(NODE_LOCK, bytes.toString('utf8'), labelOf(this.#unit, NODE_LOCK))
    const folder = new OwnFolder(this.#unit.folder)
    const written = isAdding && lock !== null ? this.#writeManifest(folder, lock) : manifest
    const locked = written?.without(provided)
    return {
      isManifestGenerated: manifest?.isGenerated ?? isAdding,
      manifest: NODE_MANIFEST,
      lockFile: lock !== null && locked !== undefined ? this.#writeLock(folder, lock, locked) : null,
    }
  }

  /** An installed import becomes a dependency: any version that is as good. */
  #writeManifest(folder: OwnFolder, lock: NodeLock): NodeManifest {
    const ranges: Record<string, string> = {}
    for (const [name, range] of Object.entries(this.#dependencies.added)) {
      const version = lock.versionOf(name)
      ranges[name] = range === '*' && version !== null ? `^${version}` : range
    }
    const { functions, label } = this.#unit
    // It may have been saved meanwhile.
    const manifest = readNodeManifest(this.#unit.folder, label)
    const text = manifest === null ? makeNodeManifest(functions[0]?.name ?? label, ranges) : manifest.append(ranges)
    if (manifest === null || isWritable(folder, NODE_MANIFEST)) folder.write(NODE_MANIFEST, text)
    return new NodeManifest(text, labelOf(this.#unit, NODE_MANIFEST))
  }

  #writeLock(folder: OwnFolder, lock: NodeLock, manifest: NodeManifest): string {
    const { lock: own } = this.#dependencies
    const name = own?.fileName ?? NODE_LOCK
    if (own !== null && own.digest === lock.digest && own.isOf(manifest)) return name
    if (own === null || isWritable(folder, name)) folder.write(name, lock.toTextFor(manifest))
    return name
  }
}
