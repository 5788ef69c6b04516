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

import { realpathSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join, resolve } from 'node:path'
import type { FileReader } from '../files/function-file.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { BuildTools, Toolchain } from './build.ts'
import { BuildKey } from './build-cache.ts'
import { CHANGED_MEANWHILE, digestFiles, FileCollector, readMade, stageFiles } from './file-packages.ts'
import {
  askInterpreter,
  type FailedImport,
  hasFile,
  type InferMode,
  installError,
  type InstallPlan,
  type InstallStep,
  type InstallUnit,
  isWritable,
  labelOf,
  passingError,
  type Settled,
  showToken,
  toAddHint,
  type UnmetImport,
} from './install-step.ts'
import {
  checkSources,
  INSTALLED_FIELDS,
  isProvidedAbove,
  NODE_TARGET,
  providerOf,
  stampAbove,
} from './node-dependencies.ts'
import { findNodeImports, mayImportPackages, type NodeImports, type NodeInferBackend } from './node-imports.ts'
import {
  DECLARING,
  foreignLockNote,
  isPackageName,
  makeNodeManifest,
  NODE_LOCK,
  NODE_LOCKS,
  NODE_MANIFEST,
  NodeLock,
  NodeManifest,
  readNodeLock,
  readNodeManifest,
  toPackageSource,
} from './node-manifest.ts'
import { blameImports, installWithNpm, type NpmAsker, rebuildWithNpm, toNpmEnv, toNpmError } from './npm.ts'
import { PackageFolder, type PackageSet, type SetOutcome } from './package-set.ts'
import type { ToolResult } from './run-tool.ts'

/** Part of the key: a change of how sets are made makes them again. */
const RECIPE = 'node 1'
/** File of a set, in its `node_modules`: digest of the lock file that stands for it. */
const PINS = '.fngw-pins'

export interface NodeStepOptions {
  functionsRoot: string
  /** `FN_AUTO_NODE_DEPS`. */
  isOn: boolean
  /** `FN_AUTO_INFER_NODE_DEPS`, `FN_NODE_INFER_BACKEND`, `FN_AUTO_INFER_STRICT`, `FN_AUTO_INFER_WRITE_MANIFEST`. */
  infers: InferMode
  backend: NodeInferBackend
  isStrict: boolean
  writesManifest: boolean
  /** `FN_PREINSTALL_NODE_DEPS_ON_START` and its `CONCURRENCY`. */
  isAhead: boolean
  concurrency: number
  /** Packages may come from repositories and addresses: `FN_NODE_PACKAGE_SOURCES`. */
  allowSources: boolean
  /** Reads files of functions that are kept apart by users; null: links are followed. */
  readFile?: FileReader | null
  /** Full path of `find-imports.mjs`. */
  importsScript: string
  /** Full path of npm; null when it is not there. */
  findNpm(): string | null
  /** As of `InstallStep`. */
  onNote(text: string): void
  onInfer?(text: string): void
}

export function createNodeStep(options: NodeStepOptions): InstallStep {
  const { isOn, isAhead, concurrency, infers, backend, writesManifest, isStrict, allowSources } = options
  return {
    runtime: 'node',
    target: NODE_TARGET,
    manifests: [NODE_MANIFEST, ...NODE_LOCKS, 'fn.config.json'],
    concurrency,
    // Each starts a node to read imports.
    looksAtOnce: availableParallelism(),
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
    plan: (unit, toolchain, tools) => new NodeFolder(unit, options, toolchain).plan(tools),
  }
}

function isWanted({ folder, functions, packs, isPack }: InstallUnit, infers: NodeStepOptions['infers']): boolean {
  if (hasFile(folder, NODE_MANIFEST)) return true
  if (isPack || infers === false) return false
  const entries = functions.map(fn => fn.entryPath)
  return mayImportPackages(folder, entries, name => packs.includes(name) || providerOf(name, folder) !== null)
}

/** Packages with compiled parts are made for one version of node's interface. */
function readVersion(program: string, tools: BuildTools, cwd: string): Promise<string> {
  const args = ['-p', 'process.versions.node.split(".")[0] + " " + process.versions.modules']
  return askInterpreter(program, args, tools, cwd)
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

const NO_IMPORTS: NodeImports = { packages: [], unresolved: [], optional: [], places: [], problem: null }

/**
 * One folder: its manifest, its lock file, the imports of its handlers, and the packages that these ask for.
 *
 *   imports - declared - packs - what a folder above has ─► added ─┐
 *   package.json - what a folder above has as it asks for ─────────┴─► wanted: the manifest that npm gets
 */
class NodeFolder {
  readonly #unit: InstallUnit
  readonly #options: NodeStepOptions
  readonly #toolchain: Toolchain
  /** Beside the function; null when there is none. */
  readonly #manifest: NodeManifest | null
  readonly #lock: NodeLock | null
  /** A warning about a lock file that is there and not used; null without one. */
  readonly #lockNote: string | null
  /** Names in the manifest that Node resolves from above, in versions that satisfy it. */
  readonly #provided: ReadonlySet<string>
  /** Full paths without links: of the functions root, and of the folder. */
  readonly #root: string
  readonly #folder: string
  /** Packages whose install scripts may run. */
  readonly #allowScripts: readonly string[]
  #imports = NO_IMPORTS
  /** Additions to the manifest: imported packages that it does not name, and packages that were asked for. */
  #added: Readonly<Record<string, string>> = {}
  /** Imports that are left without a package. */
  #unresolved: readonly string[] = []
  /** The manifest that npm gets. */
  #wanted!: NodeManifest
  /** Packages that a manifest names by paths. */
  #files = new FileCollector(NODE_TARGET)
  #filesDigest = ''

  /** @throws GatewayError by `installError` */
  constructor(unit: InstallUnit, options: NodeStepOptions, toolchain: Toolchain) {
    this.#unit = unit
    this.#options = options
    this.#toolchain = toolchain
    this.#manifest = readNodeManifest(unit.folder, unit.label)
    const { lock, problem } = readNodeLock(unit.folder, unit.label)
    this.#lock = lock?.withoutStalePaths(this.#manifest) ?? null
    this.#lockNote = problem ?? foreignLockNote(unit.folder, unit.label, this.#lock)
    this.#root = realpathSync(options.functionsRoot)
    this.#folder = join(this.#root, unit.label)
    this.#provided = this.#findProvided()
    const names = unit.functions.flatMap(({ policy }) => policy.allowScripts)
    this.#allowScripts = [...new Set(names)].filter(isPackageName).sort()
  }

  async plan(tools: BuildTools): Promise<InstallPlan | null> {
    const { infers: mode, backend, allowSources, readFile } = this.#options
    const unit = this.#unit
    const { label } = unit
    const manifest = this.#manifest
    const startedAt = performance.now()
    const imports = await this.#findImports(tools)
    const inferenceDurationMs = Math.round(performance.now() - startedAt)
    this.#imports = imports
    const undeclared = this.#findUndeclared()
    const isLeft = (name: string) => mode === 'report' || unit.failed.has(name)
    const inferred = Object.fromEntries(Object.entries(undeclared).filter(([name]) => !isLeft(name)))
    this.#added = { ...inferred, ...toAsked(unit) }
    const reasons = this.#toReasons(Object.keys(undeclared).filter(isLeft))
    const own = manifest?.without(this.#provided) ?? new NodeManifest('{}', labelOf(unit, NODE_MANIFEST))
    this.#wanted = new NodeManifest(JSON.stringify(own.toStaged(this.#added)), own.label)
    this.#unresolved = [...reasons.keys(), ...imports.optional.filter(name => !this.#isProvided(name))]
    const isEmpty = this.#wanted.names.length === 0
    if (isEmpty && this.#unresolved.length === 0) return null
    const checks = { root: this.#root, read: readFile, allowSources }
    this.#files = checkSources(manifest === null ? this.#wanted : own, unit.folder, checks)
    this.#filesDigest = await digestFiles(this.#files, this.#folder, readFile)
    if (this.#lock !== null) this.#checkLock(this.#lock)
    const unmet = this.#toUnmet(reasons)
    const infers = mode !== false && !unit.isPack
    return {
      key: this.#key,
      facts: {
        mode: manifest === null || manifest.isGenerated ? 'inferred' : 'manifest',
        manifest: manifest === null ? null : NODE_MANIFEST,
        inferBackend: infers ? backend : null,
        inferenceDurationMs: infers ? inferenceDurationMs : 0,
        inferredImports: [...imports.packages, ...imports.unresolved].map(({ name }) => name).concat(imports.optional),
      },
      ...(isEmpty && { emptyOutcome: async () => ({ resolvedPackages: [], unresolvedImports: this.#unresolved }) }),
      inferred: imports.packages
        .filter(({ name }) => Object.hasOwn(inferred, name))
        .map(({ name, file, line }) => `${name} (${file}:${line})`),
      blame: cause => blameImports(cause as ToolResult, inferred, { label, manifest }),
      unmet: () => unmet,
      fill: (draft, work) => this.#fill(draft, work),
      // In the words of this folder, whichever folder's install it was.
      toUserError: cause => toNpmError(cause as ToolResult, this.#asker),
      settle: placed => {
        // Of this folder, also when another one's install is shared.
        if (this.#lockNote !== null) this.#options.onNote(this.#lockNote)
        return this.#settle(placed)
      },
    }
  }

  async #findImports(tools: BuildTools): Promise<NodeImports> {
    const { folder, functions, packs, label, isPack } = this.#unit
    const { infers, importsScript: script, functionsRoot, backend, onNote } = this.#options
    const entries = functions.map(fn => fn.entryPath)
    if (infers === false || isPack || !mayImportPackages(folder, entries, name => packs.includes(name)))
      return NO_IMPORTS
    const isDeclared = (name: string) => this.#manifest?.declares(name) === true
    const search = { script, functionsRoot, folder, entries, backend, isDeclared }
    const imports = await findNodeImports(search, tools)
    if (imports.problem !== null) onNote(`${label}: ${imports.problem}`)
    // To node a pack is only the folder it is in: its name is recognized here.
    return { ...imports, packages: imports.packages.filter(({ name }) => !packs.includes(name)) }
  }

  /** Imported packages that are neither declared nor provided, with the range to install. */
  #findUndeclared(): Record<string, string> {
    const undeclared: Record<string, string> = {}
    for (const { name } of this.#imports.packages) {
      if (this.#isProvided(name)) continue
      const forDevelopment = this.#manifest?.of('devDependencies')[name]
      undeclared[name] = typeof forDevelopment === 'string' ? forDevelopment : '*'
    }
    return undeclared
  }

  /** Why each import that gets no package gets none, by name. */
  #toReasons(left: readonly string[]): ReadonlyMap<string, FailedImport> {
    const unit = this.#unit
    const reasons = new Map<string, FailedImport>()
    const hint = 'import a file by ./ or ../, or a package by its name, and name it in package.json'
    for (const { name } of this.#imports.unresolved) {
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
    return this.#imports.places.flatMap(({ name, file, line, entries }) => {
      const reason = reasons.get(name)
      if (reason === undefined) return []
      const hint = `${reason.hint}${without}`
      return { entries, error: installError(`${file}:${line}: ${reason.message}`, { file, line }, hint) }
    })
  }

  /** True for a package that the manifest declares, the function itself, and one that a pack or a folder above has. */
  #isProvided(name: string): boolean {
    const { folder, packFolders } = this.#unit
    const isDeclared = INSTALLED_FIELDS.some(
      field => this.#manifest !== null && Object.hasOwn(this.#manifest.of(field), name),
    )
    if (isDeclared || name === this.#manifest?.name || providerOf(name, folder) !== null) return true
    return packFolders.some(pack => hasFile(join(pack, NODE_TARGET), name))
  }

  /** Names of the manifest that are not installed: in a workspace its packages, and those that its package manager put above. */
  #findProvided(): ReadonlySet<string> {
    const { folder, isPack } = this.#unit
    const seen = new Set<string>()
    const provided = new Set<string>()
    // A pack is used from other folders, where Node resolves nothing from above the pack.
    if (this.#manifest === null || isPack) return provided
    for (const field of DECLARING) {
      for (const [name, spec] of Object.entries(this.#manifest.of(field))) {
        if (seen.has(name)) continue
        seen.add(name)
        // Packages for development are not installed, and npm refuses a manifest that names what it does not know.
        const isIdle = field === 'devDependencies' && toPackageSource(name, spec).kind === 'foreign'
        if (isIdle || isProvidedAbove(name, spec, folder, this.#lock?.isDeclaring(name) === true)) provided.add(name)
      }
    }
    return provided
  }

  /**
   * A path of a lock file must be one of those that manifests name, which are checked.
   * @param isMade - npm made it: it names everything that packages ask for, which is not known before
   */
  #checkLock(lock: NodeLock, isMade = false): void {
    const file = labelOf(this.#unit, isMade ? NODE_MANIFEST : lock.fileName)
    for (const { name, text, path } of lock.sources) {
      const isAllowed =
        path === null
          ? this.#options.allowSources
          : this.#files.targets.has(resolve(realpathSync(this.#unit.folder), path))
      if (isAllowed) continue
      const why = path === null ? 'not from the registry' : 'a path that no package.json names'
      const remedy = isMade ? 'take out the package that needs it' : 'delete the lock file'
      const hint = `${remedy}${path === null ? ', or set FN_NODE_PACKAGE_SOURCES=1' : ''}`
      throw installError(`${file}: ${name} comes from ${showToken(text)}, ${why}`, { file }, hint)
    }
  }

  /** Digest of everything that decides about the files. */
  get #key(): string {
    const lock = this.#lock
    const placed = new PackageFolder(this.#unit.folder, NODE_TARGET).set
    // The lock file that was written after the install stands for the same packages as the dependencies before it.
    if (placed !== null && lock?.isOf(this.#wanted) === true) {
      const pins = new OwnFolder(this.#unit.folder, NODE_TARGET).read(PINS)?.toString('utf8')
      if (pins === this.#pinsOf(lock)) return placed.key
    }
    const manifest = JSON.stringify(this.#wanted.toStaged())
    return this.#toKey(key => key.add('manifest', manifest).add('lock', lock?.digest ?? null))
  }

  #pinsOf(lock: NodeLock): string {
    return this.#toKey(key => key.add('lock', lock.digest))
  }

  #toKey(addPackages: (key: BuildKey) => BuildKey): string {
    return addPackages(new BuildKey().add('recipe', RECIPE).add('toolchain', this.#toolchain.version))
      .add('scripts', this.#allowScripts.join(' '))
      .add('unresolved', this.#unresolved.join(' '))
      .add('files', this.#filesDigest)
      .toString()
  }

  get #asker(): NpmAsker {
    const imported = this.#imports.packages.filter(({ name }) => Object.hasOwn(this.#added, name))
    return { label: this.#unit.label, manifest: labelOf(this.#unit, NODE_MANIFEST), imported }
  }

  async #fill(draft: OwnFolder, tools: BuildTools): Promise<SetOutcome> {
    const { allowSources, findNpm, readFile } = this.#options
    const { label } = this.#unit
    const own = this.#lock
    const npm = findNpm()
    if (npm === null) {
      const hint = 'install npm, set FN_NPM_BIN to it, or set FN_AUTO_NODE_DEPS=0'
      throw passingError(`${label}: npm is not on PATH`, hint)
    }
    const places = { folder: this.#folder, root: this.#root, read: readFile }
    const { cwd, digest } = await stageFiles(draft, this.#files, places)
    if (digest !== this.#filesDigest) throw passingError(`${label}: ${CHANGED_MEANWHILE}`)
    cwd.write(NODE_MANIFEST, `${JSON.stringify(this.#wanted.toStaged(), null, 2)}\n`)
    const staged = allowSources ? own?.text : own?.toStaged()
    if (staged !== undefined) cwd.write(NODE_LOCK, staged)
    const hasLock = own !== null
    const install = { npm, cwd: cwd.path, draft, hasLock, allowSources, ...this.#asker }
    await installWithNpm(install, tools)
    // Unchanged by npm, it is the function's own again.
    if (cwd.read(NODE_LOCK)?.toString('utf8') === staged) cwd.write(NODE_LOCK, own!.text)
    const lock = new NodeLock(NODE_LOCK, readMade(cwd, NODE_LOCK), NODE_LOCK)
    this.#checkLock(lock, true)
    await this.#runScripts(install, lock, tools)
    cwd.below(NODE_TARGET).make()
    if (cwd.path !== draft.path)
      for (const name of [NODE_TARGET, NODE_LOCK, NODE_MANIFEST]) cwd.moveTo(name, draft, name)
    draft.below(NODE_TARGET).write(PINS, this.#pinsOf(lock))
    const resolvedPackages = this.#wanted.names.flatMap(name => {
      const version = lock.versionOf(name)
      return version === null ? [] : `${name}@${version}`
    })
    return { resolvedPackages, unresolvedImports: this.#unresolved }
  }

  async #runScripts(install: Parameters<typeof rebuildWithNpm>[0], lock: NodeLock, tools: BuildTools): Promise<void> {
    const allowScripts = this.#allowScripts
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
    const manifest = this.#manifest
    const isAdding = Object.keys(this.#added).length > 0
    if (isAdding && !this.#options.writesManifest) {
      const name = manifest === null ? null : NODE_MANIFEST
      return { isManifestGenerated: false, manifest: name, lockFile: this.#lock?.fileName ?? null }
    }
    const bytes = set.folder.read(NODE_LOCK)
    const lock = bytes === null ? null : new NodeLock(NODE_LOCK, bytes.toString('utf8'), labelOf(this.#unit, NODE_LOCK))
    const folder = new OwnFolder(this.#unit.folder)
    const written = isAdding && lock !== null ? this.#writeManifest(folder, lock) : manifest
    const locked = written?.without(this.#provided)
    return {
      isManifestGenerated: manifest?.isGenerated ?? isAdding,
      manifest: NODE_MANIFEST,
      lockFile: lock !== null && locked !== undefined ? this.#writeLock(folder, lock, locked) : null,
    }
  }

  /** An installed import becomes a dependency: any version that is as good. */
  #writeManifest(folder: OwnFolder, lock: NodeLock): NodeManifest {
    const ranges: Record<string, string> = {}
    for (const [name, range] of Object.entries(this.#added)) {
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
    const own = this.#lock
    const name = own?.fileName ?? NODE_LOCK
    if (own !== null && own.digest === lock.digest && own.isOf(manifest)) return name
    if (own === null || isWritable(folder, name)) folder.write(name, lock.toTextFor(manifest))
    return name
  }
}
