/**
 * Packages of node functions: `package.json`, imports and a lock file to `node_modules`, by npm. Owner: page dependencies/node.
 *
 *   package.json + imports - packs, builtins, what a folder above has  ─► wishes, each checked
 *   package-lock.json ─ made from these wishes ─► npm ci, on failure npm install
 *                     └ none, or of others     ─► npm install
 *   afterwards, beside the function: package.json with what imports added, package-lock.json with what was installed
 */

import { mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import type { HostEnv } from '../core/host-env.ts'
import { INSTALL_TIMEOUT_SECONDS } from '../core/limits.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { BuildTools, Toolchain } from './build.ts'
import { BuildKey } from './build-cache.ts'
import {
  type InstallPlan,
  type InstallStep,
  type InstallUnit,
  installError,
  passingError,
  type Settled,
} from './install.ts'
import { CHANGED_MEANWHILE, digestFiles, type FilePackages, stageFiles } from './file-packages.ts'
import { checkSources, namesFiles } from './node-file-packages.ts'
import {
  findNodeImports,
  ImportReads,
  mayImportPackages,
  type NodeImports,
  type NodeInferBackend,
  providerOf,
} from './node-imports.ts'
import { foreignLockNote, NODE_LOCK, NODE_LOCKS, NodeLock, readNodeLock } from './node-lock.ts'
import { makeNodeManifest, NODE_MANIFEST, NodeManifest, readNodeManifest } from './node-manifest.ts'
import { isPackageName } from './node-names.ts'
import { installWithNpm, type NpmAsker, rebuildWithNpm, toNpmEnv, toNpmError } from './npm.ts'
import { PackageFolder, type PackageSet, type SetOutcome } from './package-set.ts'
import type { ToolResult } from './run-tool.ts'
import { hasFile, isWritable, labelOf, signaturesOf } from './unit-files.ts'

export interface NodeStepOptions {
  functionsRoot: string
  /** `FN_AUTO_NODE_DEPS`, `FN_AUTO_INFER_NODE_DEPS`, `FN_NODE_INFER_BACKEND`. */
  isOn: boolean
  infers: boolean
  backend: NodeInferBackend
  /** `FN_AUTO_INFER_WRITE_MANIFEST`, `FN_AUTO_INFER_STRICT`. */
  writesManifest: boolean
  isStrict: boolean
  /** `FN_PREINSTALL_NODE_DEPS_ON_START` and its `CONCURRENCY`. */
  isAhead: boolean
  concurrency: number
  /** Packages may come from repositories and addresses: `FN_NODE_PACKAGE_SOURCES`. */
  allowSources: boolean
  /** Full path of `find-imports.mjs`. */
  importsScript: string
  /** Full path of npm; null when it is not there. */
  findNpm(): string | null
  /** Something that a person should know and that stops nothing. */
  onNote(text: string): void
}

/** Part of the key: a change of how sets are made makes them again. */
const RECIPE = 'node 1'
/** File of a set, in its `node_modules`: digest of the lock file that stands for it. */
const PINS = '.fngw-pins'
const TARGET = 'node_modules'
const NPM_TIMEOUT_MS = INSTALL_TIMEOUT_SECONDS * 1000

export function createNodeStep(options: NodeStepOptions): InstallStep {
  const { isOn, isAhead, concurrency, infers, backend, writesManifest, isStrict, allowSources } = options
  const reads = new ImportReads(availableParallelism())
  return {
    runtime: 'node',
    target: TARGET,
    manifests: [NODE_MANIFEST, ...NODE_LOCKS, 'fn.config.json'],
    concurrency,
    // Each starts a node to read imports.
    looksAtOnce: 2 * availableParallelism(),
    isAhead,
    isOn,
    setting: 'FN_AUTO_NODE_DEPS',
    rules: JSON.stringify([RECIPE, infers, backend, writesManifest, isStrict, allowSources]),
    toEnv: (hostEnv: HostEnv) => toNpmEnv(hostEnv),
    isWanted: unit => isWanted(unit, options),
    // Read only where a package lies in a path: nothing else around the function decides.
    stampOf: unit => (namesFiles(unit) ? signaturesOf(unit) : ''),
    readVersion: (program, tools, cwd) => readVersion(program, tools, cwd),
    plan: (unit, toolchain, tools) => new NodePlan(unit, { ...options, reads }, toolchain).make(tools),
  }
}

function isWanted({ folder, functions, packs, isPack }: InstallUnit, { infers }: NodeStepOptions): boolean {
  if (hasFile(folder, NODE_MANIFEST)) return true
  if (isPack || !infers) return false
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

const NO_IMPORTS: NodeImports = { packages: [], unresolved: [], problem: null }

/** What one folder wants, read once. */
class NodePlan {
  readonly #unit: InstallUnit
  readonly #options: NodeStepOptions & { reads: ImportReads }
  readonly #toolchain: Toolchain
  readonly #manifest: NodeManifest | null
  readonly #lock: NodeLock | null
  readonly #root: string
  #imports = NO_IMPORTS
  /** Imported packages that no manifest names, with the ranges to install. */
  #added: Readonly<Record<string, string>> = {}
  #files: FilePackages = { files: [] }
  #filesDigest = ''

  constructor(unit: InstallUnit, options: NodeStepOptions & { reads: ImportReads }, toolchain: Toolchain) {
    this.#unit = unit
    this.#options = options
    this.#toolchain = toolchain
    this.#manifest = readNodeManifest(unit.folder, unit.label)
    this.#lock = readNodeLock(unit.folder, unit.label)
    this.#root = realpathSync(options.functionsRoot)
  }

  async make(tools: BuildTools): Promise<InstallPlan | null> {
    const startedAt = performance.now()
    this.#imports = await this.#findImports(tools)
    const inferenceDurationMs = Math.round(performance.now() - startedAt)
    this.#checkStrict()
    this.#added = this.#toAdded()
    const wanted = this.#staged()
    if (countOf(wanted) === 0) return null
    this.#files = checkSources(this.#manifest ?? wanted, this.#unit.folder, {
      root: this.#root,
      allowSources: this.#options.allowSources,
    })
    this.#filesDigest = await digestFiles(this.#files, this.#folder)
    this.#checkLock()
    const note = foreignLockNote(this.#unit.folder, this.#unit.label, this.#lock)
    const key = this.#toKey(wanted)
    return {
      key,
      facts: {
        mode: this.#manifest === null || this.#manifest.isGenerated ? 'inferred' : 'manifest',
        manifest: this.#manifest === null ? null : NODE_MANIFEST,
        inferBackend: this.#infers ? this.#options.backend : null,
        inferenceDurationMs: this.#infers ? inferenceDurationMs : 0,
        inferredImports: this.#imports.packages.map(({ name }) => name),
      },
      fill: async (draft, work) => {
        if (note !== null) this.#options.onNote(note)
        return this.#fill(draft, work)
      },
      retell: cause => toNpmError(cause as ToolResult, this.#asker, NPM_TIMEOUT_MS),
      settle: set => this.#settle(set),
    }
  }

  get #asker(): NpmAsker {
    const imported = this.#imports.packages.filter(({ name }) => Object.hasOwn(this.#added, name))
    return { label: this.#unit.label, manifest: labelOf(this.#unit, NODE_MANIFEST), imported }
  }

  /** Full path below the root without links. */
  get #folder(): string {
    return join(this.#root, this.#unit.label)
  }

  get #infers(): boolean {
    return this.#options.infers && !this.#unit.isPack
  }

  async #findImports(tools: BuildTools): Promise<NodeImports> {
    const { folder, functions, packs } = this.#unit
    const entries = functions.map(fn => fn.entryPath)
    if (!this.#infers || !mayImportPackages(folder, entries, name => packs.includes(name))) return NO_IMPORTS
    const { importsScript: script, functionsRoot, backend, reads } = this.#options
    const isDeclared = (name: string) => this.#isDeclared(name)
    const search = { script, functionsRoot, folder, entries, backend, isDeclared }
    const imports = await reads.run(() => findNodeImports(search, tools))
    if (imports.problem !== null) this.#options.onNote(`${this.#unit.label}: ${imports.problem}`)
    // A pack is for node only the folder it lies in: what it is called is told apart from packages here.
    return { ...imports, packages: imports.packages.filter(({ name }) => !packs.includes(name)) }
  }

  #isDeclared(name: string): boolean {
    const fields = ['dependencies', 'optionalDependencies', 'peerDependencies', 'devDependencies'] as const
    return fields.some(field => this.#manifest !== null && Object.hasOwn(this.#manifest.of(field), name))
  }

  #checkStrict(): void {
    const [first] = this.#imports.unresolved
    if (!this.#options.isStrict || first === undefined) return
    const { name, file, line } = first
    const message = `${file}:${line}: import of ${JSON.stringify(name)} is no package that npm could install (FN_AUTO_INFER_STRICT)`
    throw installError(
      message,
      { file, line },
      'import a file by ./ or ../, or a package by its name, and name it in package.json',
    )
  }

  /** What is imported, and is not declared, not the function itself and nowhere above. */
  #toAdded(): Record<string, string> {
    const { folder } = this.#unit
    const manifest = this.#manifest
    const declared =
      manifest === null ? {} : { ...manifest.of('peerDependencies'), ...manifest.of('optionalDependencies') }
    const added: Record<string, string> = {}
    for (const { name } of this.#imports.packages) {
      if (name === manifest?.name || Object.hasOwn(declared, name)) continue
      if (manifest !== null && Object.hasOwn(manifest.of('dependencies'), name)) continue
      if (providerOf(name, folder) !== null || this.#isInPack(name)) continue
      const forDevelopment = manifest?.of('devDependencies')[name]
      added[name] = typeof forDevelopment === 'string' ? forDevelopment : '*'
    }
    return added
  }

  #isInPack(name: string): boolean {
    return this.#unit.packFolders.some(pack => hasFile(join(pack, TARGET), name))
  }

  /** The manifest that npm gets. */
  #staged(): NodeManifest {
    const manifest = this.#manifest ?? new NodeManifest('{}', labelOf(this.#unit, NODE_MANIFEST))
    return new NodeManifest(JSON.stringify(manifest.toStaged(this.#added)), manifest.label)
  }

  #checkLock(): void {
    const [address] = this.#lock?.addresses ?? []
    if (address === undefined || this.#options.allowSources) return
    const file = labelOf(this.#unit, this.#lock!.fileName)
    const message = `${file}: a package comes from ${JSON.stringify(address)}, not from the registry`
    throw installError(message, { file }, 'delete the lock file, or set FN_NODE_PACKAGE_SOURCES=1')
  }

  /** True for a lock file that a clean install takes. */
  #isLockOf(wanted: NodeManifest): boolean {
    const lock = this.#lock
    if (lock === null) return false
    return (['dependencies', 'optionalDependencies'] as const).every(field => lock.isOf(field, wanted.of(field)))
  }

  #toKey(wanted: NodeManifest): string {
    const placed = new PackageFolder(this.#unit.folder, TARGET).set
    // The lock file that was written after the install stands for the same packages as the wishes before it.
    if (placed !== null && this.#isLockOf(wanted) && this.#pinsPlaced() === this.#pinsOf(this.#lock!)) return placed.key
    const key = new BuildKey()
      .add('recipe', RECIPE)
      .add('toolchain', this.#toolchain.version)
      .add('manifest', JSON.stringify(wanted.toStaged({})))
      .add('lock', this.#lock?.digest ?? null)
      .add('scripts', this.#allowScripts().join(' '))
      .add('unresolved', this.#unresolved().join(' '))
    key.add('files', this.#filesDigest)
    return key.toString()
  }

  #pinsPlaced(): string | null {
    return new OwnFolder(this.#unit.folder, TARGET).read(PINS)?.toString('utf8') ?? null
  }

  #pinsOf(lock: NodeLock): string {
    const key = new BuildKey()
      .add('recipe', RECIPE)
      .add('toolchain', this.#toolchain.version)
      .add('lock', lock.digest)
      .add('scripts', this.#allowScripts().join(' '))
      .add('unresolved', this.#unresolved().join(' '))
    key.add('files', this.#filesDigest)
    return key.toString()
  }

  async #fill(draft: OwnFolder, tools: BuildTools): Promise<SetOutcome> {
    const npm = this.#options.findNpm()
    if (npm === null)
      throw passingError(
        `${this.#unit.label}: npm is not on PATH`,
        'install npm, set FN_NPM_BIN to it, or set FN_AUTO_NODE_DEPS=0',
      )
    const wanted = this.#staged()
    const { cwd, digest } = await stageFiles(draft, this.#files, { folder: this.#folder, root: this.#root })
    if (digest !== this.#filesDigest) throw passingError(`${this.#unit.label}: ${CHANGED_MEANWHILE}`)
    writeFileSync(join(cwd.path, NODE_MANIFEST), `${JSON.stringify(wanted.toStaged({}), null, 2)}\n`)
    if (this.#lock !== null) writeFileSync(join(cwd.path, NODE_LOCK), this.#lock.text)
    const install = {
      npm,
      cwd: cwd.path,
      hasLock: this.#lock !== null,
      allowSources: this.#options.allowSources,
      timeoutMs: NPM_TIMEOUT_MS,
      ...this.#asker,
    }
    await installWithNpm(install, tools)
    const lock = new NodeLock(NODE_LOCK, readFileSync(join(cwd.path, NODE_LOCK), 'utf8'), NODE_LOCK)
    await this.#runScripts(install, lock, tools)
    mkdirSync(join(cwd.path, TARGET), { recursive: true })
    if (cwd.path !== draft.path) for (const name of [TARGET, NODE_LOCK, NODE_MANIFEST]) cwd.moveTo(name, draft, name)
    draft.below(TARGET).write(PINS, this.#pinsOf(lock))
    const names = [...Object.keys(wanted.of('dependencies')), ...Object.keys(wanted.of('optionalDependencies'))]
    return {
      resolvedPackages: names.flatMap(name => {
        const version = lock.versionOf(name)
        return version === null ? [] : `${name}@${version}`
      }),
      unresolvedImports: this.#unresolved(),
    }
  }

  async #runScripts(install: Parameters<typeof rebuildWithNpm>[0], lock: NodeLock, tools: BuildTools): Promise<void> {
    const withScripts = new Set(
      lock.packages.filter(({ fields }) => fields.hasInstallScript === true).map(({ name }) => name),
    )
    const allowed = this.#allowScripts()
    await rebuildWithNpm(
      install,
      allowed.filter(name => lock.packages.some(({ name: other }) => other === name)),
      tools,
    )
    const left = [...withScripts].filter(name => !allowed.includes(name))
    if (left.length === 0) return
    this.#options.onNote(
      `${this.#unit.label}: install scripts of ${left.join(', ')} did not run; ` +
        'name what needs them in allow_scripts of fn.config.json',
    )
  }

  #settle(set: PackageSet): Settled {
    const bytes = set.folder.read(NODE_LOCK)
    const lock = bytes === null ? null : new NodeLock(NODE_LOCK, bytes.toString('utf8'), labelOf(this.#unit, NODE_LOCK))
    const isAdding = Object.keys(this.#added).length > 0
    const isGenerated = this.#manifest?.isGenerated ?? isAdding
    const hasManifest = this.#manifest !== null
    if (isAdding && !this.#options.writesManifest) {
      return {
        isManifestGenerated: false,
        manifest: hasManifest ? NODE_MANIFEST : null,
        lockFile: this.#lock?.fileName ?? null,
      }
    }
    const folder = new OwnFolder(this.#unit.folder)
    const written = isAdding && lock !== null ? this.#writeManifest(folder, lock) : this.#manifest
    const lockFile = lock !== null && written !== null ? this.#writeLock(folder, lock, written) : null
    return { isManifestGenerated: isGenerated, manifest: NODE_MANIFEST, lockFile }
  }

  /** What was installed for an import becomes a wish: any version that is as good. */
  #writeManifest(folder: OwnFolder, lock: NodeLock): NodeManifest | null {
    const ranges: Record<string, string> = {}
    for (const [name, range] of Object.entries(this.#added)) {
      const version = lock.versionOf(name)
      ranges[name] = range === '*' && version !== null ? `^${version}` : range
    }
    // Somebody may have saved it meanwhile.
    const manifest = readNodeManifest(this.#unit.folder, this.#unit.label)
    const slug = this.#unit.functions[0]?.name ?? this.#unit.label
    const text = manifest === null ? makeNodeManifest(slug, ranges) : manifest.append(ranges)
    if (manifest === null || isWritable(folder, NODE_MANIFEST)) folder.write(NODE_MANIFEST, text)
    return new NodeManifest(text, labelOf(this.#unit, NODE_MANIFEST))
  }

  #writeLock(folder: OwnFolder, lock: NodeLock, manifest: NodeManifest): string | null {
    const name = this.#lock?.fileName ?? NODE_LOCK
    const text = lock.toTextFor(manifest)
    if (this.#lock !== null && this.#lock.digest === lock.digest && this.#isLockOf(manifest)) return name
    if (this.#lock !== null && !isWritable(folder, name)) return name
    folder.write(name, text)
    return name
  }

  #allowScripts(): string[] {
    const names = this.#unit.functions.flatMap(({ policy }) => policy.allowScripts)
    return [...new Set(names)].filter(isPackageName).sort()
  }

  #unresolved(): string[] {
    return this.#imports.unresolved.map(({ name }) => name)
  }
}

function countOf(manifest: NodeManifest): number {
  return Object.keys(manifest.of('dependencies')).length + Object.keys(manifest.of('optionalDependencies')).length
}
