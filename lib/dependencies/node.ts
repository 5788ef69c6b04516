/**
 * Packages of node functions: from `package.json`, imports and a lock file to `node_modules`, by npm. Owner: page dependencies/node.
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
import type { GatewayError } from '../core/errors.ts'
import { type HostEnv, toToolHostEnv } from '../core/host.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { BuildKey } from './build-cache.ts'
import { hasFile, isWritable, labelOf, type Toolchain } from './build.ts'
import { FilePackages, type FilePackagesOptions, readMade, unstage } from './file-packages.ts'
import {
  askInterpreter,
  type InferMode,
  type InstallPlan,
  type InstallStep,
  type InstallUnit,
  type Settled,
  showToken,
  toAddHint,
  type UnmetImport,
} from './install-step.ts'
import {
  findNodeImports,
  isProvidedAbove,
  mayImportPackages,
  NODE_TARGET,
  type NodeImports,
  type NodeInferBackend,
  providerOf,
  stampAbove,
} from './node-imports.ts'
import {
  checkSources,
  DECLARING,
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
import { PackageFolder, type PackageSet, type SetOutcome } from './package-set.ts'
import type { BuildTools } from './run-tool.ts'
import { installError, passingError, readFailure, type ToolFailure, toSigns, type ToolWords } from './tool-failure.ts'

/** Part of the key: a change of how sets are made makes them again. */
const RECIPE = 'node 1'
/** File of a set, in its `node_modules`: digest of the lock file that stands for it. */
const PINS = '.fngw-pins'
/** Packages with compiled parts are made for one version of node's interface. */
const VERSION_SCRIPT = 'process.versions.node.split(".")[0] + " " + process.versions.modules'
const NO_IMPORTS: NodeImports = { packages: [], unresolved: [], optional: [], places: [], problem: null }

type OwnSettings = Pick<InstallStep, 'isOn' | 'isAhead' | 'isStrict' | 'concurrency' | 'onNote' | 'onInfer'>

export interface NodeStepOptions extends FilePackagesOptions, OwnSettings {
  /** `FN_AUTO_INFER_NODE_DEPS`, `FN_NODE_INFER_BACKEND`, `FN_AUTO_INFER_WRITE_MANIFEST`. */
  infers: InferMode
  backend: NodeInferBackend
  writesManifest: boolean
  importsScript: string
  /** Full path of npm; null when it is missing. */
  findNpm(): string | null
}

export function createNodeStep(options: NodeStepOptions): InstallStep {
  const { infers, backend, writesManifest, allowSources } = options
  return {
    ...options,
    runtime: 'node',
    target: NODE_TARGET,
    manifests: [NODE_MANIFEST, ...NODE_LOCKS, 'fn.config.json'],
    // Each starts a node to read imports.
    looksAtOnce: availableParallelism(),
    setting: 'FN_AUTO_NODE_DEPS',
    rules: JSON.stringify([RECIPE, infers, backend, writesManifest, allowSources]),
    toEnv: toNpmEnv,
    isWanted: unit => isWanted(unit, infers),
    stampAbove,
    readVersion: (program, tools) => askInterpreter(program, ['-p', VERSION_SCRIPT], tools),
    plan: (unit, toolchain, tools) => new NodeFolder(unit, options, toolchain).plan(tools),
  }
}

function isWanted({ folder, functions, packs, isPack }: InstallUnit, infers: InferMode): boolean {
  if (hasFile(folder, NODE_MANIFEST)) return true
  if (isPack || infers === false) return false
  const entries = functions.map(({ entryPath }) => entryPath)
  return mayImportPackages(folder, entries, name => packs.includes(name) || providerOf(name, folder) !== null)
}

/** `left-pad@^1.3.0` */
function toAsked({ asked }: InstallUnit): Record<string, string> {
  const pairs = asked.map(text => {
    const at = text.indexOf('@', 1)
    return at === -1 ? [text, '*'] : [text.slice(0, at), text.slice(at + 1)]
  })
  return Object.fromEntries(pairs)
}

type Reasons = ReadonlyMap<string, { why: string; hint: string }>

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
  /** Path of `package.json` below the functions root. */
  readonly #file: string
  /** Beside the function; null when there is none. */
  readonly #manifest: NodeManifest | null
  readonly #lock: NodeLock | null
  /** A warning about a lock file that is there and not used; null without one. */
  readonly #lockNote: string | null
  /** Names in the manifest that Node resolves from above, in versions that satisfy it. */
  readonly #provided: ReadonlySet<string>
  readonly #allowScripts: readonly string[]
  readonly #files: FilePackages
  #filesDigest = ''
  #imports = NO_IMPORTS
  /** Additions to the manifest: imported packages that it does not name, and packages that were asked for. */
  #added: Readonly<Record<string, string>> = {}
  #unresolved: readonly string[] = []
  #wanted!: NodeManifest

  constructor(unit: InstallUnit, options: NodeStepOptions, toolchain: Toolchain) {
    const { folder, label, functions } = unit
    this.#unit = unit
    this.#options = options
    this.#toolchain = toolchain
    this.#file = labelOf(label, NODE_MANIFEST)
    this.#manifest = readNodeManifest(folder, label)
    const { lock, note } = readNodeLock(folder, label)
    this.#lock = lock?.withoutStalePaths(this.#manifest) ?? null
    this.#lockNote = note
    this.#provided = this.#findProvided()
    this.#files = new FilePackages(options, label, NODE_TARGET)
    const names = functions.flatMap(({ policy }) => policy.allowScripts)
    this.#allowScripts = [...new Set(names)].filter(isPackageName).sort()
  }

  async plan(tools: BuildTools): Promise<InstallPlan | null> {
    const { infers: mode, backend, onNote } = this.#options
    const unit = this.#unit
    const manifest = this.#manifest
    const startedAt = performance.now()
    const imports = await this.#findImports(tools)
    const inferenceDurationMs = Math.round(performance.now() - startedAt)
    this.#imports = imports
    const undeclared = imports.packages.filter(({ name }) => !this.#isProvided(name))
    const isLeft = ({ name }: { name: string }) => mode === 'report' || unit.failed.has(name)
    const inferred = undeclared.filter(one => !isLeft(one))
    this.#added = { ...Object.fromEntries(inferred.map(({ name }) => [name, this.#rangeOf(name)])), ...toAsked(unit) }
    const reasons = this.#toReasons(undeclared.filter(isLeft).map(({ name }) => name))
    const own = manifest?.without(this.#provided) ?? new NodeManifest('{}', this.#file)
    this.#wanted = new NodeManifest(JSON.stringify(own.toStaged(this.#added)), own.label)
    this.#unresolved = [...reasons.keys(), ...imports.optional.filter(name => !this.#isProvided(name))]
    const isEmpty = this.#wanted.names.length === 0
    if (isEmpty && this.#unresolved.length === 0) return null
    checkSources(manifest === null ? this.#wanted : own, this.#files)
    this.#filesDigest = await this.#files.digest()
    if (this.#lock !== null) this.#checkLock(this.#lock)
    const unmet = this.#toUnmet(reasons)
    const isInferring = mode !== false && !unit.isPack
    return {
      key: this.#key,
      facts: {
        mode: manifest === null || manifest.isGenerated ? 'inferred' : 'manifest',
        manifest: manifest === null ? null : NODE_MANIFEST,
        infer_backend: isInferring ? backend : null,
        inference_duration_ms: isInferring ? inferenceDurationMs : 0,
        inferred_imports: [...imports.packages, ...imports.unresolved].map(({ name }) => name).concat(imports.optional),
      },
      ...(isEmpty && { emptyOutcome: async () => ({ resolvedPackages: [], unresolvedImports: this.#unresolved }) }),
      inferred: new Map(inferred.map(({ name, file, line }) => [name, `${file}:${line}`])),
      declares: name => manifest?.declares(name) === true,
      unmet: () => unmet,
      fill: (draft, work) => this.#fill(draft, work),
      toUserError: failure => this.#toError(failure),
      settle: placed => {
        // Of this folder, also when another one's install is shared.
        if (this.#lockNote !== null) onNote(this.#lockNote)
        return this.#settle(placed)
      },
    }
  }

  async #findImports(tools: BuildTools): Promise<NodeImports> {
    const { folder, functions, packs, label, isPack } = this.#unit
    const { infers, importsScript: script, functionsRoot, backend, onNote } = this.#options
    const entries = functions.map(({ entryPath }) => entryPath)
    if (infers === false || isPack || !mayImportPackages(folder, entries, name => packs.includes(name)))
      return NO_IMPORTS
    const isDeclared = (name: string) => this.#manifest?.declares(name) === true
    const search = { script, functionsRoot, folder, entries, backend, isDeclared }
    const imports = await findNodeImports(search, tools)
    if (imports.problem !== null) onNote(`${label}: ${imports.problem}`)
    // To node a pack is only the folder it is in: its name is recognized here.
    return { ...imports, packages: imports.packages.filter(({ name }) => !packs.includes(name)) }
  }

  #rangeOf(name: string): string {
    const forDevelopment = this.#manifest?.of('devDependencies')[name]
    return typeof forDevelopment === 'string' ? forDevelopment : '*'
  }

  /** Why imports have no package, and how to mend it, by name. */
  #toReasons(left: readonly string[]): Reasons {
    const { label, failed } = this.#unit
    const hint = 'import a file by ./ or ../, or a package by its name, and name it in package.json'
    const unresolved = this.#imports.unresolved.map(({ name }) => {
      return [name, { why: `import of ${JSON.stringify(name)} is not a package that npm can install`, hint }] as const
    })
    const uninstalled = left.map(name => {
      const failure = failed.get(name)
      if (failure === undefined) {
        const why = `imports ${name}, which ${this.#file} does not name`
        return [name, { why, hint: toAddHint(label, name, 'FN_AUTO_INFER_NODE_DEPS') }] as const
      }
      const correct = 'correct the import, or name a version in package.json'
      return [name, { why: `${label}: ${failure.message}`, hint: failure.hint ?? correct }] as const
    })
    return new Map([...unresolved, ...uninstalled])
  }

  /** One for each handler and name: its own line where that is known. */
  #toUnmet(reasons: Reasons): UnmetImport[] {
    const without = this.#options.isStrict ? '; FN_AUTO_INFER_STRICT=0 lets the function run without it' : ''
    return this.#imports.places.flatMap(({ name, file, line, entries }) => {
      const reason = reasons.get(name)
      if (reason === undefined) return []
      return { entries, error: installError(`${file}:${line}: ${reason.why}`, { file, line }, reason.hint + without) }
    })
  }

  /** True for a package that the manifest declares, the function itself, and one that a pack or a folder above has. */
  #isProvided(name: string): boolean {
    const { folder, packFolders } = this.#unit
    const manifest = this.#manifest
    if (manifest?.installs(name) || name === manifest?.json.name || providerOf(name, folder) !== null) return true
    return packFolders.some(pack => hasFile(join(pack, NODE_TARGET), name))
  }

  /** Names of the manifest that are not installed: in a workspace its packages, and those that its package manager put above. */
  #findProvided(): ReadonlySet<string> {
    const { folder, isPack } = this.#unit
    const manifest = this.#manifest
    // A pack is used from other folders, where Node resolves nothing from above the pack.
    if (manifest === null || isPack) return new Set()
    const specs = new Map<string, { spec: unknown; field: string }>()
    for (const field of DECLARING.toReversed()) {
      for (const [name, spec] of Object.entries(manifest.of(field))) specs.set(name, { spec, field })
    }
    const provided = [...specs].filter(([name, { spec, field }]) => {
      // Packages for development are not installed, and npm refuses a manifest that names what it does not know.
      const isIdle = field === 'devDependencies' && toPackageSource(name, spec).kind === 'foreign'
      return isIdle || isProvidedAbove(name, spec, folder, this.#lock?.isDeclaring(name) === true)
    })
    return new Set(provided.map(([name]) => name))
  }

  /**
   * A path of a lock file must be one of those that manifests name, which are checked.
   * @param isMade - npm made it: it names everything that packages ask for, which is not known before
   */
  #checkLock(lock: NodeLock, isMade = false): void {
    const file = isMade ? this.#file : labelOf(this.#unit.label, lock.fileName)
    const folder = realpathSync(this.#unit.folder)
    for (const { name, text, path } of lock.sources) {
      const isAllowed = path === null ? this.#options.allowSources : this.#files.targets.has(resolve(folder, path))
      if (isAllowed) continue
      const why = path === null ? 'not from the registry' : 'a path that no package.json names'
      const remedy = isMade ? 'take out the package that needs it' : 'delete the lock file'
      const hint = `${remedy}${path === null ? ', or set FN_NODE_PACKAGE_SOURCES=1' : ''}`
      throw installError(`${file}: ${name} comes from ${showToken(text)}, ${why}`, { file }, hint)
    }
  }

  get #key(): string {
    const { folder } = this.#unit
    const lock = this.#lock
    const placed = new PackageFolder(folder, NODE_TARGET).set
    // The lock file that was written after the install stands for the same packages as the dependencies before it.
    if (placed !== null && lock?.isOf(this.#wanted) === true) {
      const pins = new OwnFolder(folder, NODE_TARGET).read(PINS)?.toString('utf8')
      if (pins === this.#toKey(lock, false)) return placed.key
    }
    return this.#toKey(lock, true)
  }

  #toKey(lock: NodeLock | null, hasManifest: boolean): string {
    const key = new BuildKey().add('recipe', RECIPE).add('toolchain', this.#toolchain.version)
    if (hasManifest) key.add('manifest', JSON.stringify(this.#wanted.toStaged()))
    return key
      .add('lock', lock?.digest ?? null)
      .add('scripts', this.#allowScripts.join(' '))
      .add('unresolved', this.#unresolved.join(' '))
      .add('files', this.#filesDigest)
      .toString()
  }

  #toError(failure: ToolFailure): GatewayError {
    const { label } = this.#unit
    const imported = this.#imports.packages.find(({ name }) => {
      return name === failure.packageName && Object.hasOwn(this.#added, name)
    })
    const place = imported === undefined ? { file: this.#file } : { file: imported.file, line: imported.line }
    return failure.toError(`${label}: ${failure.message}`, place)
  }

  async #fill(draft: OwnFolder, tools: BuildTools): Promise<SetOutcome> {
    const { allowSources, findNpm } = this.#options
    const { label } = this.#unit
    const own = this.#lock
    const npm = findNpm()
    if (npm === null) {
      const hint = 'install npm, set FN_NPM_BIN to it, or set FN_AUTO_NODE_DEPS=0'
      throw passingError(`${label}: npm is not on PATH`, hint)
    }
    const cwd = await this.#files.stage(draft)
    cwd.write(NODE_MANIFEST, `${JSON.stringify(this.#wanted.toStaged(), null, 2)}\n`)
    const staged = allowSources ? own?.text : own?.toStaged()
    if (staged !== undefined) cwd.write(NODE_LOCK, staged)
    const install = { npm, cwd: cwd.path, draft, hasLock: own !== null, allowSources }
    await installWithNpm(install, tools)
    // Unchanged by npm, it is the function's own again.
    if (cwd.read(NODE_LOCK)?.toString('utf8') === staged) cwd.write(NODE_LOCK, own!.text)
    const lock = new NodeLock(NODE_LOCK, readMade(cwd, NODE_LOCK), NODE_LOCK)
    this.#checkLock(lock, true)
    const { packages } = lock
    const present = this.#allowScripts.filter(name => packages.some(({ name: other }) => other === name))
    await rebuildWithNpm(install, label, present, tools)
    const scripted = packages.filter(({ fields }) => fields.hasInstallScript === true).map(({ name }) => name)
    const left = [...new Set(scripted)].filter(name => !this.#allowScripts.includes(name))
    if (left.length > 0) {
      const rule = 'name what needs them in allow_scripts of fn.config.json'
      this.#options.onNote(`${label}: install scripts of ${left.join(', ')} did not run; ${rule}`)
    }
    unstage(cwd, draft, [NODE_TARGET, NODE_LOCK, NODE_MANIFEST])
    draft.below(NODE_TARGET).write(PINS, this.#toKey(lock, false))
    const resolvedPackages = this.#wanted.names.flatMap(name => {
      const version = lock.versionOf(name)
      return version === null ? [] : `${name}@${version}`
    })
    return { resolvedPackages, unresolvedImports: this.#unresolved }
  }

  /** Writes the manifest, where it may be written, and the lock file. */
  #settle(set: PackageSet): Settled {
    const manifest = this.#manifest
    const isAdding = Object.keys(this.#added).length > 0
    if (isAdding && !this.#options.writesManifest) {
      const name = manifest === null ? null : NODE_MANIFEST
      return { isManifestGenerated: false, manifest: name, lockFile: this.#lock?.fileName ?? null }
    }
    const text = set.folder.read(NODE_LOCK)?.toString('utf8')
    const lock = text === undefined ? null : new NodeLock(NODE_LOCK, text, labelOf(this.#unit.label, NODE_LOCK))
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
    const manifest = readNodeManifest(folder.path, label)
    const text = manifest?.append(ranges) ?? makeNodeManifest(functions[0]?.name ?? label, ranges)
    if (isWritable(folder, NODE_MANIFEST)) folder.write(NODE_MANIFEST, text)
    return new NodeManifest(text, this.#file)
  }

  #writeLock(folder: OwnFolder, lock: NodeLock, manifest: NodeManifest): string {
    const own = this.#lock
    const name = own?.fileName ?? NODE_LOCK
    if (own !== null && own.digest === lock.digest && own.isOf(manifest)) return name
    if (own === null || isWritable(folder, name)) folder.write(name, lock.toTextFor(manifest))
    return name
  }
}

// npm in an empty folder: its arguments, its environment, and the meaning of its errors.

/** Of npm's own settings those that say where packages come from and are kept; no token, no program to run. */
const NPM_VARIABLES =
  /^npm_config_(?:registry|cache|userconfig|globalconfig|cafile|ca|proxy|https_proxy|https-proxy|noproxy|strict_ssl|strict-ssl|offline|prefer_offline|prefer-offline|fetch_timeout)$/i

/** Given to every command. These win over `.npmrc` files and the environment. */
const FLAGS = [
  ...['--no-audit', '--no-fund', '--no-update-notifier', '--no-progress', '--no-workspaces'],
  ...['--loglevel=error', '--color=false'],
  // Packages for run time; file: packages are copied, so that the set is complete.
  ...['--omit=dev', '--install-links', '--package-lock=true'],
  // Without a network the failure comes within seconds.
  ...['--fetch-retries=2', '--fetch-retry-mintimeout=500', '--fetch-retry-maxtimeout=5000'],
] as const

export function toNpmEnv(hostEnv: HostEnv): Record<string, string> {
  const env = toToolHostEnv(hostEnv)
  for (const [name, value] of Object.entries(hostEnv)) {
    if (value !== undefined && NPM_VARIABLES.test(name)) env[name] = value
  }
  return { ...env, NO_UPDATE_NOTIFIER: '1', npm_config_node_options: '' }
}

interface NpmInstall {
  npm: string
  /** Holds `package.json`, and `package-lock.json` when `hasLock`. */
  cwd: string
  /** The folder that npm may write to, `cwd` in it; absent where it runs as the gateway. */
  draft?: OwnFolder
  hasLock: boolean
  allowSources: boolean
}

/**
 * Clean install where a lock file is, and an ordinary one where there is none or it does not fit.
 * No script of a package runs: `rebuildWithNpm` runs those that are allowed.
 * @throws ToolFailure
 */
export async function installWithNpm(install: NpmInstall, tools: BuildTools): Promise<void> {
  const { npm, cwd, draft, hasLock, allowSources } = install
  const flags = ['--ignore-scripts', ...(allowSources ? [] : ['--allow-git=none']), ...FLAGS]
  const run = (command: 'ci' | 'install') =>
    tools.run({ command: npm, args: [command, ...flags], cwd, ...(draft !== undefined && { owns: draft }) })
  let result = await run(hasLock ? 'ci' : 'install')
  if (hasLock && result.code !== 0 && !result.timedOut && !tools.signal.aborted) result = await run('install')
  if (result.code !== 0) throw readFailure(result, WORDS)
}

/**
 * Runs the install scripts of some installed packages, named by `allow_scripts`.
 * @param label - of the folder @param names - checked names
 */
export async function rebuildWithNpm(
  { npm, cwd }: NpmInstall,
  label: string,
  names: readonly string[],
  tools: BuildTools,
): Promise<void> {
  if (names.length === 0) return
  const args = ['rebuild', '--ignore-scripts=false', '--foreground-scripts', ...FLAGS, '--', ...names]
  const result = await tools.run({ command: npm, args, cwd })
  if (result.code === 0) return
  const failure = readFailure(result, WORDS)
  if (result.timedOut) throw failure
  const message = `${label}: an install script of ${names.join(', ')} failed: ${failure.message.slice('npm: '.length)}`
  const hint = 'take the package out of allow_scripts in fn.config.json, or install what its script needs'
  throw passingError(message, hint)
}

const REGISTRY_HINT = 'check the network and the registry (npm config get registry); it is tried again after a while'

const WORDS: ToolWords = {
  tool: 'npm',
  maxLines: 4,
  maxChars: 600,
  lateHint: REGISTRY_HINT,
  toLines,
  toText: output => toLines(output).join('\n'),
  nameOf: name => name.replace(/%2f/i, '/'),
  signs: [
    ...toSigns('lasting', [
      [
        // Without a name in quotes the address has it.
        /404 [^'\n]*'((?:@[\w.~-]+\/)?[\w.~-]+)@|E404(?![\s\S]*'\S+@)[\s\S]*?GET \S+?\/((?:@[\w.~-]+(?:%2f|\/))?[\w.~-]+) -/i,
        '%s is not in the registry: correct the name, or add it to package.json with its source',
      ],
      [
        /No matching version found for ((?:@[\w.~-]+\/)?[\w.~-]+)@[^\s]*/,
        'no such version of %s: npm view %s versions lists those there are',
      ],
      [/ERESOLVE[\s\S]*/, 'two packages require different versions of a third: change one of the ranges'],
      [/EALLOWGIT|allow-git/i, 'a package comes from a repository: use a version of the registry'],
      [
        /EINTEGRITY[^\n]*/,
        'the registry has other content than the lock file pins: delete package-lock.json when that is meant',
      ],
      [/EBADENGINE|EBADPLATFORM[^\n]*/, 'the package does not run on this system or version of node'],
      [/EINVALIDPACKAGENAME[^\n]*/, 'correct the name in package.json'],
    ]),
    ...toSigns('passing', [
      [/ENOSPC[^\n]*/, 'the disk is full'],
      [/EACCES|EROFS|EPERM/, 'npm writes its cache to ~/.npm: set npm_config_cache to a folder that can be written'],
      [
        /E401|E403|ENEEDAUTH/,
        'the registry requires a login: put its token into the .npmrc of the user that runs the gateway',
      ],
      [
        /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ENOTCACHED|ERR_SOCKET_TIMEOUT|network/i,
        REGISTRY_HINT,
      ],
    ]),
  ],
}

/** Without npm's prefix, repeated codes and the place of its log. */
function toLines(output: string): string[] {
  const noise =
    /A complete log of this run|debug-\d+\.log|^Note that you can also install|^Unknown (?:user|env|cli) config/
  return output
    .split('\n')
    .map(line => line.replace(/^npm (?:error|ERR!|warn|WARN) ?/, '').trimEnd())
    .filter(line => line !== '' && !noise.test(line))
}
