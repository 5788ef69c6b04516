/**
 * Packages of python, node and php functions: one mechanism, and a step for each language. Owner: §2.16, page dependencies/install.
 *
 *   plan(function) ─ signature is that of the state file, its set in place ─────────────────────► ready
 *                  └ step.plan: reads manifest and imports ─► nothing asked for ────────────────► ready
 *                                                          ─► key ─ set in place ───────────────► ready
 *   build ─► set of the key, filled once for all functions ─► linked beside, renamed in ─► step.settle ─► state file
 *              └ fails because of an inferred package ─► planned again without it
 *
 * An import without a package fails the functions that need it (`FN_AUTO_INFER_STRICT`), not their neighbours.
 *
 * `Builds` (resolve.ts) asks an `Installer` as it asks the builders of go and rust: it shares the work of calls for one function,
 * bounds how many tools run, reports progress, and keeps a failure until the function's files change.
 */

import { accessSync, constants, lstatSync } from 'node:fs'
import { dirname, join, sep } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import { getOrMake } from '../core/collections.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, orNull } from '../core/errors.ts'
import { INSTALL_TIMEOUT_SECONDS } from '../core/limits.ts'
import { KeyedMutex } from '../core/semaphore.ts'
import { toShellWord } from '../core/text.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { BuildKey } from './build-cache.ts'
import { type Builder, type BuildPlan, type InstallResult, labelOf, toFolderName, type Toolchain } from './build.ts'
import {
  type DependencyFacts,
  type InstallPlan,
  type InstallStep,
  type InstallUnit,
  type Settled,
  toManifestFacts,
  type UnmetImport,
} from './install-step.ts'
import {
  type Asker,
  type DependencyRecord,
  InstallRecords,
  PackageFolder,
  type PackageSet,
  PackageSets,
  readState,
  type SetOutcome,
} from './package-set.ts'
import { type BuildTools, isDenied } from './run-tool.ts'
import { passingError, ToolFailure } from './tool-failure.ts'

interface InstallerOptions {
  functionsRoot: string
  clock: Clock
  isPrivate: boolean
  /** Finds shared packs. @throws GatewayError when one that a function names is missing */
  packsOf(fn: FunctionVersion): readonly string[]
}

/** Sets that are tried for one folder, each without the packages that the one before failed by. */
const MAX_SETS = 10
const NO_FAILED: InstallUnit['failed'] = new Map()
const FAILED_BEFORE = new ToolFailure('it could not be installed when it was last tried', {
  kind: 'unknown',
  hint: 'correct the import, or save the file to try again',
})
const NOTHING_MADE: InstallResult = { packages: 0, bytes: 0, names: [], isShared: true }

/** A unit that was checked: ready, or with the plan of its install. */
interface Look {
  unit: InstallUnit
  folder: PackageFolder
  signature: string
  /** null: nothing to do. */
  plan: InstallPlan | null
  unmet: readonly UnmetImport[]
  made: InstallResult | null
}

/** A folder with imports without a package, until one of its files changes. */
interface Gaps {
  signature: string
  failed: InstallUnit['failed']
  /** The set that was in place, null for none. */
  key: string | null
  /** null while the rest of the folder's packages is not in place. */
  unmet: readonly UnmetImport[] | null
}

/** Installs for one runtime, shaped as a `Builder`. */
export class Installer implements Builder {
  readonly runtime: InstallStep['runtime']
  readonly concurrency: number
  readonly manifests: readonly string[]
  readonly timeoutMs = INSTALL_TIMEOUT_SECONDS * 1000
  readonly action = 'installing packages of'
  readonly isAhead: boolean
  readonly looksAtOnce: number | undefined
  readonly toEnv: InstallStep['toEnv']
  readonly readVersion: InstallStep['readVersion']
  readonly #step: InstallStep
  readonly #options: InstallerOptions
  readonly #sets: PackageSets
  readonly #records: InstallRecords
  /** One look or install at a time in a folder. */
  readonly #turns = new KeyedMutex()
  readonly #installing = new Set<Look>()
  #functions: ReadonlyMap<string, FunctionVersion> = new Map()
  #shared: ReadonlyMap<string, readonly FunctionVersion[]> | null = null
  /** Of `fngw deps add`, by full path of the folder. */
  readonly #asked = new Map<string, readonly string[]>()
  readonly #gaps = new Map<string, Gaps>()
  /** Folders of several in which a look found nothing, since the last catalog: of ten thousand files in one each would read all. */
  readonly #plainFolders = new Set<string>()

  constructor(step: InstallStep, options: InstallerOptions) {
    this.#step = step
    this.#options = options
    this.runtime = step.runtime
    this.concurrency = step.concurrency
    this.manifests = step.manifests
    this.isAhead = step.isAhead
    this.looksAtOnce = step.looksAtOnce
    this.toEnv = step.toEnv
    this.readVersion = step.readVersion
    this.#records = new InstallRecords(step.runtime, options.clock)
    this.#sets = new PackageSets(options.functionsRoot, options)
  }

  retain(functions: ReadonlyMap<string, FunctionVersion>): void {
    this.#functions = functions
    this.#shared = null
    this.#plainFolders.clear()
  }

  /** Functions of the runtime by their folder, of folders that hold several: grouped once for a catalog, when it is first asked for. */
  #besideOf({ fnDir }: FunctionVersion): readonly FunctionVersion[] | undefined {
    if (this.#shared === null) {
      const groups = new Map<string, FunctionVersion[]>()
      for (const fn of this.#functions.values())
        if (fn.runtime === this.runtime) getOrMake(groups, fn.fnDir, () => []).push(fn)
      for (const [folder, group] of groups) if (group.length === 1) groups.delete(folder)
      this.#shared = groups
    }
    return this.#shared.get(fnDir)
  }

  /** A missing pack fails here, before any tool is looked for, and also where packages are not installed. */
  isNeeded(fn: FunctionVersion): boolean {
    const packs = this.#options.packsOf(fn)
    if (!this.#step.isOn) return false
    if (packs.length > 0 || this.#asked.has(fn.fnDir)) return true
    if (this.#plainFolders.has(fn.fnDir)) return false
    const isWanted = this.#step.isWanted(this.#unitOf(fn))
    if (!isWanted && this.#besideOf(fn) !== undefined) this.#plainFolders.add(fn.fnDir)
    return isWanted
  }

  ask({ fnDir }: FunctionVersion, packages: readonly string[]): void {
    this.#asked.set(fnDir, packages)
  }

  /**
   * A failed install is tried again when a file of any function of the folder changed, as discovery knows them, or when another
   * tool installed packages for it.
   */
  stampOf(fn: FunctionVersion): string {
    const { target, stampAbove } = this.#step
    const key = new BuildKey().add(target, stampOf(join(fn.fnDir, target))).add('above', stampAbove?.(fn.fnDir) ?? null)
    for (const { key: name, signature } of this.#unitOf(fn).functions) key.add(name, signature)
    return key.toString()
  }

  isBusy(fn: FunctionVersion): boolean {
    const folders = [fn.fnDir, ...this.#options.packsOf(fn)]
    return [...this.#installing].some(({ unit }) => folders.includes(unit.folder))
  }

  async plan(fn: FunctionVersion, toolchain: Toolchain, tools: BuildTools): Promise<BuildPlan> {
    const look = (unit: InstallUnit, work: BuildTools) =>
      this.#turns.run(unit.folder, () => this.#look(unit, toolchain, toolsFor(unit, work)))
    const packs = this.#options.packsOf(fn).map(folder => this.#unitAt(folder, []))
    const looks = await Promise.all(packs.map(unit => look({ ...unit, isPack: true }, tools)))
    const open = looks.filter(({ plan }) => plan !== null)
    const unit = this.#unitOf(fn)
    // The packages that imports need are known when the packs are installed.
    const own = open.length > 0 ? null : await look(unit, tools)
    if (own !== null && own.plan === null) {
      this.#checkUnmet(fn, own)
      return { binary: null, build: null }
    }
    const build = async (work: BuildTools): Promise<InstallResult | null> => {
      const done: Look[] = []
      for (const pack of open) done.push(await this.#install(pack, toolchain, work))
      const last = await this.#install(own ?? (await look(unit, work)), toolchain, work)
      this.#checkUnmet(fn, last)
      return joinResults([...done, last].flatMap(({ made }) => made ?? []))
    }
    return { binary: null, build }
  }

  #checkUnmet({ entryPath }: FunctionVersion, { unmet }: Look): void {
    const own = unmet.find(({ entries }) => entries.includes(entryPath))
    if (this.#step.isStrict && own !== undefined) throw own.error
  }

  async #install(look: Look, toolchain: Toolchain, tools: BuildTools): Promise<Look> {
    if (look.plan === null) return look
    const { unit } = look
    this.#installing.add(look)
    try {
      return await this.#turns.run(unit.folder, () => this.#installRest(look, toolchain, toolsFor(unit, tools)))
    } finally {
      this.#installing.delete(look)
    }
  }

  /** Installs what can be: an imported package that cannot be installed is left out. */
  async #installRest(first: Look, toolchain: Toolchain, tools: BuildTools): Promise<Look> {
    const { unit } = first
    // Another function of the folder may have found out meanwhile what cannot be installed.
    let look = this.#gaps.has(unit.folder) ? await this.#look(unit, toolchain, tools) : first
    for (let left = MAX_SETS; look.plan !== null; left--) {
      try {
        return await this.#installSet(look, look.plan, tools)
      } catch (error) {
        const { cause } = error as GatewayError
        const mayBlame = !tools.signal.aborted && left > 0 && cause instanceof ToolFailure
        const blamed = mayBlame ? blame(look.plan, cause) : NO_FAILED
        if (blamed.size === 0) throw error
        const failed = new Map([...look.unit.failed, ...blamed])
        this.#gaps.set(unit.folder, { signature: look.signature, failed, key: null, unmet: null })
        look = await this.#look(unit, toolchain, tools)
      }
    }
    return look
  }

  recordOf(fn: FunctionVersion): DependencyRecord | null {
    const known = this.#records.of(fn.fnDir)
    if (this.#step.isOn || known === null) return known
    const why = `nothing is installed: ${this.#step.setting} is off`
    return { ...known, last_install_status: 'skipped', last_error: why }
  }

  /** Finds out from a folder's disk whether anything is to be done. */
  async #look(asked: InstallUnit, toolchain: Toolchain, tools: BuildTools): Promise<Look> {
    const folder = new PackageFolder(asked.folder, this.#step.target)
    const signature = this.#signatureOf(asked, toolchain)
    const ready: Look = { unit: asked, folder, signature, plan: null, unmet: [], made: null }
    const isAsked = asked.asked.length > 0
    if (!isAsked && !this.#step.isWanted(asked)) return ready
    folder.recover()
    const { set } = folder
    const state = readState(asked.folder, this.runtime)
    const isKnown = state?.install_signature === signature && state.last_install_status === 'ok'
    const gaps = this.#gapsOf(asked.folder, signature, isKnown ? state : null)
    if (gaps?.unmet != null && gaps.key === (set?.key ?? null)) return { ...ready, unmet: gaps.unmet }
    if (gaps === null && !isAsked && isKnown && set !== null && set.key === state.set) return ready
    const look: Look = { ...ready, unit: { ...asked, failed: gaps?.failed ?? NO_FAILED } }
    if (folder.isForeign) {
      this.#recordForeign(look)
      return look
    }
    const plan = await this.#step.plan(look.unit, toolchain, tools)
    const outcome = await plan?.emptyOutcome?.()
    // Packages that nothing asks for any more would hide those of the same names in folders above.
    if (plan === null || outcome !== undefined) unlessDenied(() => folder.set !== null && folder.remove())
    if (plan === null) return look
    if (outcome !== undefined) {
      return { ...look, unmet: this.#finish(look, plan, signature, { outcome, key: folder.set?.key ?? null }) }
    }
    if (set === null || set.key !== plan.key) return { ...look, plan }
    // Something was touched that decides nothing.
    const { isPrivate } = this.#options
    const placed = { ...set, folder: new OwnFolder(asked.folder), isPrivate, isShared: true }
    return { ...look, unmet: this.#settle(look, plan, placed) }
  }

  /** The known imports without a package, as long as no file of the folder changed. */
  #gapsOf(folder: string, signature: string, state: DependencyRecord | null): Gaps | null {
    const known = this.#gaps.get(folder)
    if (known?.signature === signature) return known
    this.#gaps.delete(folder)
    if (state === null || state.unresolved_imports.length === 0) return null
    // Of an earlier run: the registry is not asked again at every start.
    const failed = new Map(state.unresolved_imports.map(name => [name, FAILED_BEFORE]))
    return { signature, failed, key: state.set, unmet: null }
  }

  async #installSet(look: Look, plan: InstallPlan, tools: BuildTools): Promise<Look> {
    const { unit, folder, signature } = look
    try {
      checkWritable(unit.folder)
      const set = await this.#ensure(plan, { folder: unit.folder, signature }, tools)
      // A set that every function of the folder is refused with changes nothing.
      const unmet = plan.unmet?.(set) ?? []
      if (this.#isRefused(unit, unmet)) throw unmet[0]!.error
      // Another tool may have installed packages there meanwhile.
      if (folder.isForeign) {
        this.#recordForeign(look)
        return { ...look, made: NOTHING_MADE }
      }
      if (folder.set?.key !== plan.key) await folder.put(set)
      return { ...look, unmet: this.#settle(look, plan, set), made: { ...set, names: set.resolvedPackages } }
    } catch (thrown) {
      const error = this.#toError(thrown, plan, unit)
      const { message } = error
      if (!tools.signal.aborted) this.#record(unit, plan.facts, signature, { status: 'error', error: message })
      throw error
    }
  }

  #ensure(plan: InstallPlan, asker: Asker, tools: BuildTools): Promise<PackageSet> {
    const { signal, user = null } = tools
    const fill = (draft: OwnFolder) => {
      const shown = [...(plan.inferred ?? [])].map(([name, place]) => `${name} (${place})`)
      if (shown.length > 0) this.#step.onInfer?.(`installing imported packages: ${shown.join(', ')}`)
      return plan.fill(draft, tools)
    }
    return this.#sets.ensure({ runtime: this.runtime, key: plan.key, asker, user, signal, fill })
  }

  /** True when imports without a package fail every function of a folder. */
  #isRefused({ functions }: InstallUnit, unmet: readonly UnmetImport[]): boolean {
    if (!this.#step.isStrict || unmet.length === 0) return false
    return functions.every(({ entryPath }) => unmet.some(({ entries }) => entries.includes(entryPath)))
  }

  #settle(look: Look, plan: InstallPlan, set: PackageSet): readonly UnmetImport[] {
    const { unit, signature } = look
    const [read, rest] = signature.split(' ')
    const isUntouched = this.#manifestStamp(unit) === read
    // Whole packages are used, also where nothing can be written beside them.
    const settled = unlessDenied(() => plan.settle?.(set))
    // Files that the gateway writes itself must not look like an edit; those that were saved meanwhile must.
    const now = isUntouched ? `${this.#manifestStamp(unit)} ${rest}` : signature
    return this.#finish(look, plan, now, { outcome: set, key: plan.key, settled })
  }

  /** Records an outcome, and remembers imports without a package: they fail their functions, or are logged. */
  #finish({ unit }: Look, plan: InstallPlan, signature: string, done: Done): readonly UnmetImport[] {
    const { outcome, key } = done
    const unmet = plan.unmet?.(outcome) ?? []
    if (outcome.unresolvedImports.length === 0) this.#gaps.delete(unit.folder)
    else this.#gaps.set(unit.folder, { signature, failed: unit.failed, key, unmet })
    const logged = this.#step.isStrict ? [] : unmet
    for (const { error } of logged) this.#step.onNote(`${error.message} (${error.detail?.hint})`)
    const status = this.#isRefused(unit, unmet) ? 'error' : 'ok'
    this.#record(unit, plan.facts, signature, { status, error: unmet[0]?.error.message ?? null, done })
    return unmet
  }

  #recordForeign({ unit, signature }: Look): void {
    const { manifests, target } = this.#step
    const error = `${target} was not put there by the gateway and is used as it is: delete it to have it made`
    this.#record(unit, toManifestFacts(manifests[0] ?? null), signature, { status: 'skipped', error })
  }

  /** @param done - absent: the packages stay as they are */
  #record(
    { folder, label }: InstallUnit,
    facts: DependencyFacts,
    signature: string,
    { status, error, done }: { status: DependencyRecord['last_install_status']; error: string | null; done?: Done },
  ): void {
    const { outcome, key = null, settled } = done ?? {}
    const before = this.#records.of(folder)
    const { manifest: found, ...inferred } = facts
    const manifest = settled?.manifest ?? found
    const lockFile = settled?.lockFile ?? null
    this.#records.note(folder, {
      ...inferred,
      manifest_path: manifest === null ? null : labelOf(label, manifest),
      manifest_generated: settled?.isManifestGenerated ?? before?.manifest_generated ?? false,
      resolved_packages: outcome?.resolvedPackages ?? [],
      unresolved_imports: outcome?.unresolvedImports ?? facts.inferred_imports,
      last_install_status: status,
      last_error: error,
      lockfile_path: lockFile === null ? null : labelOf(label, lockFile),
      install_signature: signature,
      set: done === undefined ? (before?.set ?? null) : key,
    })
  }

  #toError(thrown: unknown, plan: InstallPlan, { folder }: InstallUnit): GatewayError {
    if (thrown instanceof ToolFailure) return plan.toUserError(thrown)
    if (thrown instanceof GatewayError) return thrown
    if (isDenied(thrown)) {
      const { message, hint } = toClosedText(thrown, { folder, functionsRoot: this.#options.functionsRoot })
      return passingError(message, hint)
    }
    const hint = `the gateway writes ${this.#step.target} into the function's folder and to .svc in the functions root`
    return passingError((thrown as Error).message, hint)
  }

  #unitOf(fn: FunctionVersion): InstallUnit {
    const beside = this.#besideOf(fn) ?? []
    const functions = [...beside.filter(other => other.key !== fn.key), fn]
    return this.#unitAt(
      fn.fnDir,
      functions.sort((a, b) => (a.entryFile < b.entryFile ? -1 : 1)),
    )
  }

  #unitAt(folder: string, functions: readonly FunctionVersion[]): InstallUnit {
    return {
      folder,
      label: toFolderName(this.#options.functionsRoot, folder),
      functions,
      isPack: false,
      packs: [...new Set(functions.flatMap(({ policy }) => policy.sharedDeps))],
      // A pack that another function of the folder lacks is that function's trouble.
      packFolders: [...new Set(functions.flatMap(one => orNull(() => this.#options.packsOf(one)) ?? []))],
      asked: this.#asked.get(folder) ?? [],
      failed: NO_FAILED,
    }
  }

  /** Two parts: the files that the gateway may write itself, and the rest. */
  #signatureOf(unit: InstallUnit, toolchain: Toolchain): string {
    const key = new BuildKey().add('rules', this.#step.rules).add('toolchain', toolchain.version)
    // The signature of discovery counts helpers too; the file may have been saved since.
    for (const { entryFile, entryPath, signature } of unit.functions)
      key.add(entryFile, `${stampOf(entryPath)} ${signature}`).add('packs', unit.packs.join(' '))
    key.add('above', this.#step.stampAbove?.(unit.folder) ?? null)
    return `${this.#manifestStamp(unit)} ${key}`
  }

  #manifestStamp(unit: InstallUnit): string {
    const key = new BuildKey()
    for (const name of this.#step.manifests) key.add(name, stampOf(join(unit.folder, name)))
    return key.toString()
  }
}

/** A set that is in place, or the reason why none is needed. */
interface Done {
  outcome: SetOutcome
  key: string | null
  settled?: Settled | undefined
}

function toolsFor({ isPack, folder }: InstallUnit, tools: BuildTools): BuildTools {
  return isPack ? (tools.forPack?.(folder) ?? tools) : tools
}

function unlessDenied<T>(work: () => T): T | undefined {
  try {
    return work()
  } catch (error) {
    if (isDenied(error)) return undefined
    throw error
  }
}

/**
 * The imported packages that a failure comes from: those that the tool names, or else all of them. None where a file names the package,
 * and where trying again may help.
 */
function blame({ inferred, declares }: InstallPlan, failure: ToolFailure): InstallUnit['failed'] {
  const { kind, packageName, output } = failure
  if (inferred === undefined || kind === 'passing' || declares?.(packageName) === true) return NO_FAILED
  const names = [...inferred.keys()]
  const named = names.filter(name => (packageName === '' ? output.includes(`${name}@`) : name === packageName))
  return new Map((named.length > 0 ? named : names).map(name => [name, failure]))
}

/** All that one install put in place: packs and the function's own. Null for nothing. */
export function joinResults(parts: readonly InstallResult[]): InstallResult | null {
  if (parts.length === 0) return null
  return {
    packages: parts.reduce((sum, { packages }) => sum + (packages ?? 0), 0),
    bytes: parts.reduce((sum, { bytes }) => sum + bytes, 0),
    names: parts.flatMap(({ names }) => names),
    isShared: parts.every(({ isShared }) => isShared),
  }
}

function stampOf(path: string): string | null {
  const stats = lstatSync(path, { throwIfNoEntry: false })
  return stats === undefined ? null : `${stats.size} ${stats.mtimeMs}`
}

/** Known before a tool has worked for minutes. @throws Error of the file system */
export function checkWritable(folder: string): void {
  accessSync(folder, constants.W_OK | constants.X_OK)
}

/**
 * The message for an install that may not write to a folder, and the command that allows it.
 * @param thrown - for which `isDenied` is true
 * @param place - `folder`: where packages are installed, full path
 * @param uid - of the gateway
 */
export function toClosedText(
  thrown: unknown,
  { folder, functionsRoot }: { folder: string; functionsRoot: string },
  uid = process.geteuid?.(),
): { message: string; hint: string } {
  const { code, path, syscall } = thrown as NodeJS.ErrnoException
  const at = path === undefined ? folder : syscall === 'access' ? path : dirname(path)
  const isKnown = at === functionsRoot || at.startsWith(functionsRoot + sep)
  const shown = toFolderName(functionsRoot, isKnown ? at : folder)
  const place = shown === '.' ? 'the functions root' : shown
  const why = 'and packages are installed beside the function'
  if (code === 'EROFS') {
    const hint = 'mount it writable, or install them before: fngw deps install'
    return { message: `${place} is on a read-only file system, ${why}`, hint }
  }
  const user = uid === undefined ? 'the user fngw runs as' : `user ${uid} (the user fngw runs as)`
  const command = `chown ${uid ?? 'USER'} ${toShellWord(shown)}`
  const hint = `in the functions root: ${command}; or install them as its owner: fngw deps install`
  return { message: `${place} is not writable by ${user}, ${why}`, hint }
}
