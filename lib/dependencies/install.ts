/**
 * Packages of python, node and php functions: one mechanism, and a step for each language. Owner: §2.16, page dependencies/install.
 *
 *   plan(function) ─ signature is that of the state file, its set in place ─────────────────────► ready
 *                  └ step.plan: reads manifest and imports ─► nothing wanted ───────────────────► ready
 *                                                          ─► key ─ set in place ───────────────► ready
 *   build ─► set of the key, filled once for all functions ─► linked beside, renamed in ─► step.settle ─► state file
 *              └ fails because of an inferred package ─► planned again without it
 *
 * An import that no package answers fails the functions that need it (`FN_AUTO_INFER_STRICT`), not their neighbours.
 *
 * `Builds` (resolve.ts) asks an `Installer` as it asks the builders of go and rust: it shares the work of calls for one function,
 * bounds how many tools run, reports progress, and keeps a failure until the function's files change.
 *
 * A step provides `InstallStep` (install-step.ts): fields for the mechanism, `plan` to read the dependencies of a folder, and in the plan
 * `fill` (run the tool in an empty folder), `blame` and `unmet` (imports without a package), `settle` (manifests and lock files beside
 * the function).
 * It throws `installError` for a failure that lasts until an edit, and `passingError` for one that may pass (network, time).
 */

import { accessSync, constants, lstatSync, type Stats } from 'node:fs'
import { dirname, join, sep } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, orNull } from '../core/errors.ts'
import type { HostEnv } from '../core/host.ts'
import { INSTALL_TIMEOUT_SECONDS } from '../core/limits.ts'
import { KeyedMutex } from '../core/semaphore.ts'
import { toShellWord } from '../core/text.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { BuildKey } from './build-cache.ts'
import {
  type Builder,
  type BuildPlan,
  type BuildTools,
  joinResults,
  type InstallResult,
  toFolderName,
  type Toolchain,
} from './build.ts'
import { type DependencyRecord, InstallRecords, readState } from './dependency-state.ts'
import {
  type InstallPlan,
  type InstallStep,
  type InstallUnit,
  passingError,
  type Settled,
  toManifestFacts,
  type UnmetImport,
} from './install-step.ts'
import {
  type Asker,
  listInstalled,
  PackageFolder,
  type PackageSet,
  PackageSets,
  type SetOutcome,
} from './package-set.ts'

interface InstallerOptions {
  functionsRoot: string
  clock: Clock
  /** As of `Builds`. */
  isPrivate: boolean
  /** Finds shared packs. @throws GatewayError when one that a function names is missing */
  packsOf(fn: FunctionVersion): readonly string[]
}

/** Sets that are tried for one folder, each without the packages that the one before failed by. */
const MAX_SETS = 10
const NO_FAILED: InstallUnit['failed'] = new Map()
const FAILED_BEFORE = {
  message: 'it could not be installed when it was last tried',
  hint: 'correct the import, or save the file to try again',
}

/** A unit that was checked: ready, or with the plan of its install. */
interface Look {
  unit: InstallUnit
  folder: PackageFolder
  signature: string
  /** null: nothing to do. */
  plan: InstallPlan | null
  unmet: readonly UnmetImport[]
}

/** A folder with imports that no package answers, as it stays until one of its files changes. */
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
  readonly #step: InstallStep
  readonly #options: InstallerOptions
  readonly #sets: PackageSets
  /** One look or install at a time in a folder. */
  readonly #turns = new KeyedMutex()
  /** Installs that go on or wait, by full path of the folder. */
  readonly #installing = new Map<string, number>()
  readonly #records: InstallRecords
  #functions: ReadonlyMap<string, FunctionVersion> = new Map()
  #shared: ReadonlyMap<string, readonly FunctionVersion[]> | null = null
  /** Of `fngw deps add`, by full path of the folder. */
  readonly #asked = new Map<string, readonly string[]>()
  /** By full path of the folder. */
  readonly #gaps = new Map<string, Gaps>()
  /** Folders of several in which a look found nothing wanted, since the last catalog: of ten thousand files in one each would read all. */
  readonly #plainFolders = new Set<string>()

  constructor(step: InstallStep, options: InstallerOptions) {
    this.#step = step
    this.#options = options
    this.runtime = step.runtime
    this.concurrency = step.concurrency
    this.manifests = step.manifests
    this.isAhead = step.isAhead
    this.looksAtOnce = step.looksAtOnce
    this.#records = new InstallRecords(step.runtime, options.clock)
    this.#sets = new PackageSets(new OwnFolder(options.functionsRoot, '.svc', 'deps'), options)
  }

  toEnv(hostEnv: HostEnv): Record<string, string> {
    return this.#step.toEnv(hostEnv)
  }

  readVersion(program: string, tools: BuildTools, cwd: string): Promise<string> {
    return this.#step.readVersion(program, tools, cwd)
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
      for (const fn of this.#functions.values()) {
        if (fn.runtime !== this.runtime) continue
        const known = groups.get(fn.fnDir)
        if (known === undefined) groups.set(fn.fnDir, [fn])
        else known.push(fn)
      }
      for (const [folder, group] of groups) if (group.length === 1) groups.delete(folder)
      this.#shared = groups
    }
    return this.#shared.get(fnDir)
  }

  /** A missing pack fails here, before any tool is looked for, and also where packages are not installed. */
  isNeeded(fn: FunctionVersion): boolean {
    const packs = this.#options.packsOf(fn)
    if (!this.#step.isOn) return false
    return packs.length > 0 || this.#asked.has(fn.fnDir) || this.#isWanted(fn)
  }

  #isWanted(fn: FunctionVersion): boolean {
    const isShared = this.#besideOf(fn) !== undefined
    if (isShared && this.#plainFolders.has(fn.fnDir)) return false
    const isWanted = this.#step.isWanted(this.#unitOf(fn))
    if (isShared && !isWanted) this.#plainFolders.add(fn.fnDir)
    return isWanted
  }

  ask({ fnDir }: FunctionVersion, packages: readonly string[]): void {
    this.#asked.set(fnDir, packages)
  }

  /**
   * A failed install is tried again when a file of any function of the folder changed, as discovery knows them, or what another
   * tool installs for it.
   */
  stampOf(fn: FunctionVersion): string {
    const key = new BuildKey().add(this.#step.target, stampOf(join(fn.fnDir, this.#step.target)))
    key.add('above', this.#step.stampAbove?.(fn.fnDir) ?? null)
    for (const { key: name, signature } of this.#unitOf(fn).functions) key.add(name, signature)
    return key.toString()
  }

  isBusy(fn: FunctionVersion): boolean {
    return [fn.fnDir, ...this.#options.packsOf(fn)].some(folder => this.#installing.has(folder))
  }

  async plan(fn: FunctionVersion, toolchain: Toolchain, tools: BuildTools): Promise<BuildPlan> {
    const packs = this.#options.packsOf(fn).map(folder => this.#packUnit(folder))
    const looks = await Promise.all(packs.map(unit => this.#lookInTurn(unit, toolchain, toolsFor(unit, tools))))
    const open = looks.filter(({ plan }) => plan !== null)
    const unit = this.#unitOf(fn)
    // The packages that imports need are known when the packs are there.
    const own = open.length > 0 ? null : await this.#lookInTurn(unit, toolchain, tools)
    if (own !== null && own.plan !== null) open.push(own)
    else if (own !== null) this.#checkUnmet(fn, own)
    return {
      key: open.map(({ plan }) => plan!.key).join(' '),
      isBuilt: open.length === 0,
      binary: null,
      build: async work => {
        const made: InstallResult[] = []
        const install = async (look: Look): Promise<Look> => {
          const done = await this.#installInTurn(look, toolchain, toolsFor(look.unit, work))
          if (done.made !== null) made.push(done.made)
          return done.look
        }
        for (const look of open) if (look !== own) await install(look)
        const late = own ?? (await this.#lookInTurn(unit, toolchain, work))
        this.#checkUnmet(fn, late.plan === null ? late : await install(late))
        return made.length === 0 ? null : joinResults(made)
      },
    }
  }

  /** @throws GatewayError for a function with an import that no package answers */
  #checkUnmet(fn: FunctionVersion, { unmet }: Look): void {
    if (!this.#step.isStrict) return
    const own = unmet.find(({ entries }) => entries.includes(fn.entryPath))
    if (own !== undefined) throw own.error
  }

  #lookInTurn(unit: InstallUnit, toolchain: Toolchain, tools: BuildTools): Promise<Look> {
    return this.#turns.run(unit.folder, () => this.#look(unit, toolchain, tools))
  }

  async #installInTurn(
    look: Look,
    toolchain: Toolchain,
    tools: BuildTools,
  ): Promise<{ look: Look; made: InstallResult | null }> {
    const { folder } = look.unit
    const count = this.#installing.get(folder) ?? 0
    this.#installing.set(folder, count + 1)
    try {
      return await this.#turns.run(folder, () => this.#installRest(look, toolchain, tools))
    } finally {
      const left = this.#installing.get(folder)! - 1
      if (left > 0) this.#installing.set(folder, left)
      else this.#installing.delete(folder)
    }
  }

  /** Installs what can be: a package that only imports ask for and that cannot be had is left out. */
  async #installRest(
    first: Look,
    toolchain: Toolchain,
    tools: BuildTools,
  ): Promise<{ look: Look; made: InstallResult | null }> {
    const { unit } = first
    // Another function of the folder may have found out meanwhile what cannot be installed.
    let look = this.#gaps.has(unit.folder) ? await this.#look(unit, toolchain, tools) : first
    for (let left = MAX_SETS; ; left--) {
      try {
        const made = look.plan === null ? null : await this.#install(look, tools)
        return { look: { ...look, unmet: this.#gaps.get(look.unit.folder)?.unmet ?? [] }, made }
      } catch (error) {
        const { cause } = error as GatewayError
        const mayBlame = !tools.signal.aborted && left > 0 && cause !== undefined
        const blamed = (mayBlame && look.plan?.blame?.(cause)) || NO_FAILED
        if (blamed.size === 0) throw error
        const failed = new Map([...look.unit.failed, ...blamed])
        this.#gaps.set(unit.folder, { signature: look.signature, failed, key: null, unmet: null })
        look = await this.#look(unit, toolchain, tools)
      }
    }
  }

  /** The record of a function's packages; null when there is none. */
  recordOf(fn: FunctionVersion): DependencyRecord | null {
    const known = this.#records.of(fn.fnDir)
    if (this.#step.isOn || known === null) return known
    return {
      ...known,
      last_install_status: 'skipped',
      last_error: `nothing is installed: ${this.#step.setting} is off`,
    }
  }

  /** Asks a folder's disk whether anything is to be done. */
  async #look(asked: InstallUnit, toolchain: Toolchain, tools: BuildTools): Promise<Look> {
    const folder = new PackageFolder(asked.folder, this.#step.target)
    const signature = this.#signatureOf(asked, toolchain)
    const ready: Look = { unit: asked, folder, signature, plan: null, unmet: [] }
    if (asked.asked.length === 0 && !this.#step.isWanted(asked)) return ready
    folder.recover()
    const state = readState(asked.folder, this.runtime)
    const set = folder.set
    const isKnown = state?.install_signature === signature && state.last_install_status === 'ok'
    const gaps = this.#gapsOf(asked.folder, signature, isKnown ? state : null)
    if (gaps?.unmet != null && gaps.key === (set?.key ?? null)) return { ...ready, unmet: gaps.unmet }
    if (gaps === null && asked.asked.length === 0 && isKnown && set !== null && set.key === state.set) return ready
    const unit = { ...asked, failed: gaps?.failed ?? NO_FAILED }
    const done: Look = { ...ready, unit }
    if (folder.isForeign) {
      this.#noteForeign(done)
      return done
    }
    const plan = await this.#step.plan(unit, toolchain, tools)
    if (plan === null) {
      this.#removeIdle(folder)
      return done
    }
    const empty = await plan.emptyOutcome?.()
    if (empty === undefined && set?.key !== plan.key) return { ...done, plan }
    if (empty !== undefined) {
      this.#removeIdle(folder)
      const bare = { ...plan, key: folder.set?.key ?? null }
      const unmet = this.#noteUnmet(unit, bare, signature, empty)
      this.#records.note(unit, bare, signature, { ...this.#statusOf(unit, unmet), outcome: empty })
      return { ...done, unmet }
    }
    // Something was touched that decides nothing.
    const { isPrivate } = this.#options
    const placed = { ...set!, folder: new OwnFolder(unit.folder), isPrivate, isShared: true }
    return { ...done, unmet: this.#settle(unit, plan, signature, placed) }
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

  /** Packages that nothing asks for any more would hide those of the same names in folders above. */
  #removeIdle(folder: PackageFolder): void {
    try {
      if (folder.set !== null) folder.remove()
    } catch (error) {
      if (!isDenied(error)) throw error
    }
  }

  #noteForeign({ unit, signature }: Look): void {
    const [manifest = null] = this.#step.manifests
    this.#records.note(unit, { facts: toManifestFacts(manifest), key: null }, signature, {
      status: 'skipped',
      error: `${this.#step.target} was not put there by the gateway and is used as it is: delete it to have it made`,
    })
  }

  async #install(look: Look, tools: BuildTools): Promise<InstallResult> {
    const { unit, folder, plan, signature } = look
    try {
      checkWritable(unit.folder)
      const set = await this.#ensure(plan!, { folder: unit.folder, signature }, tools)
      // A set that every function of the folder is refused with changes nothing.
      const unmet = plan!.unmet?.(set) ?? []
      if (this.#statusOf(unit, unmet).status === 'error') throw unmet[0]!.error
      // Another tool may have installed packages there meanwhile.
      if (folder.isForeign) {
        this.#noteForeign(look)
        return NOTHING_MADE
      }
      if (folder.set?.key !== plan!.key) await folder.put(set)
      this.#settle(unit, plan!, signature, set)
      return { ...set, names: set.resolvedPackages }
    } catch (thrown) {
      const error = this.#toError(thrown, plan!, unit)
      if (!tools.signal.aborted) this.#records.note(unit, plan!, signature, { status: 'error', error: error.message })
      throw error
    }
  }

  #ensure(plan: InstallPlan, asker: Asker, tools: BuildTools): Promise<PackageSet> {
    const { runtime, target } = this.#step
    return this.#sets.ensure({
      id: `${runtime}-${plan.key}`,
      key: plan.key,
      target,
      asker,
      user: tools.user ?? null,
      signal: tools.signal,
      count: folder => listInstalled(runtime, folder).length,
      fill: draft => {
        const { inferred = [] } = plan
        if (inferred.length > 0) this.#step.onInfer?.(`installing imported packages: ${inferred.join(', ')}`)
        return plan.fill(draft, tools)
      },
    })
  }

  #statusOf(
    { functions }: InstallUnit,
    unmet: readonly UnmetImport[],
  ): { status: 'ok' | 'error'; error: string | null } {
    const isRefused = ({ entryPath }: FunctionVersion) => unmet.some(({ entries }) => entries.includes(entryPath))
    const isError = this.#step.isStrict && unmet.length > 0 && functions.every(isRefused)
    return { status: isError ? 'error' : 'ok', error: unmet[0]?.error.message ?? null }
  }

  /** Remembers and logs imports without a package; with `FN_AUTO_INFER_STRICT` they fail their functions instead. */
  #noteUnmet(
    unit: InstallUnit,
    plan: Pick<InstallPlan, 'unmet'> & { key: string | null },
    signature: string,
    outcome: SetOutcome,
  ): readonly UnmetImport[] {
    const unmet = plan.unmet?.(outcome) ?? []
    if (outcome.unresolvedImports.length === 0) this.#gaps.delete(unit.folder)
    else this.#gaps.set(unit.folder, { signature, failed: unit.failed, key: plan.key, unmet })
    if (this.#step.isStrict) return unmet
    for (const { error } of unmet) this.#step.onNote(`${error.message} (${error.detail?.hint})`)
    return unmet
  }

  #settle(unit: InstallUnit, plan: InstallPlan, signature: string, set: PackageSet): readonly UnmetImport[] {
    const [read = '', rest] = signature.split(' ')
    const isUntouched = this.#manifestStamp(unit) === read
    const settled = this.#write(plan, set)
    // Files that the gateway writes itself must not look like an edit; those that were saved meanwhile must.
    const now = isUntouched ? `${this.#manifestStamp(unit)} ${rest}` : signature
    const unmet = this.#noteUnmet(unit, plan, now, set)
    this.#records.note(unit, plan, now, {
      ...this.#statusOf(unit, unmet),
      outcome: set,
      ...(settled && { settled }),
    })
    return unmet
  }

  /** Packages that are whole are used, also where nothing can be written beside them. */
  #write(plan: InstallPlan, set: PackageSet): Settled | undefined {
    try {
      return plan.settle?.(set)
    } catch (error) {
      if (isDenied(error)) return undefined
      throw error
    }
  }

  #toError(thrown: unknown, { toUserError }: InstallPlan, { folder }: InstallUnit): GatewayError {
    if (thrown instanceof GatewayError) {
      return thrown.cause === undefined || toUserError === undefined ? thrown : toUserError(thrown.cause)
    }
    if (isDenied(thrown)) {
      const { message, hint } = toClosedText(thrown, { folder, functionsRoot: this.#options.functionsRoot })
      return passingError(message, hint)
    }
    const { message } = thrown as Error
    const hint = `the gateway writes ${this.#step.target} into the function's folder and to .svc in the functions root`
    return passingError(message, hint)
  }

  #unitOf(fn: FunctionVersion): InstallUnit {
    const beside = this.#besideOf(fn) ?? []
    const functions = [...beside.filter(other => other.key !== fn.key), fn]
    functions.sort((a, b) => (a.entryFile < b.entryFile ? -1 : 1))
    const packs = [...new Set(functions.flatMap(({ policy }) => policy.sharedDeps))]
    // A pack that another function of the folder lacks is that function's trouble.
    const packFolders = [...new Set(functions.flatMap(one => orNull(() => this.#options.packsOf(one)) ?? []))]
    const label = toFolderName(this.#options.functionsRoot, fn.fnDir)
    const asked = this.#asked.get(fn.fnDir) ?? []
    return { folder: fn.fnDir, label, functions, isPack: false, packs, packFolders, asked, failed: NO_FAILED }
  }

  #packUnit(folder: string): InstallUnit {
    const label = toFolderName(this.#options.functionsRoot, folder)
    return { folder, label, functions: [], isPack: true, packs: [], packFolders: [], asked: [], failed: NO_FAILED }
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

function toolsFor({ isPack, folder }: InstallUnit, tools: BuildTools): BuildTools {
  return isPack ? (tools.forPack?.(folder) ?? tools) : tools
}

const NOTHING_MADE: InstallResult = { packages: 0, bytes: 0, names: [], isShared: true }

function stampOf(path: string): string | null {
  const stats: Stats | undefined = lstatSync(path, { throwIfNoEntry: false })
  return stats === undefined ? null : `${stats.size} ${stats.mtimeMs}`
}

/** Known before a tool has worked for minutes. @throws Error of the file system */
export function checkWritable(folder: string): void {
  accessSync(folder, constants.W_OK | constants.X_OK)
}

interface Denied {
  /** Where packages are installed, full path. */
  folder: string
  functionsRoot: string
}

/** True for what the system does not let this process do. */
export function isDenied(thrown: unknown): boolean {
  return /^(?:EACCES|EPERM|EROFS)$/.test(String((thrown as NodeJS.ErrnoException).code))
}

/**
 * The message for an install that may not write to a folder, and the command that allows it.
 * @param thrown - for which `isDenied` is true
 * @param uid - of the gateway
 */
export function toClosedText(
  thrown: unknown,
  { folder, functionsRoot }: Denied,
  uid = process.geteuid?.(),
): { message: string; hint: string } {
  const { code, path, syscall } = thrown as NodeJS.ErrnoException
  const at = path === undefined ? folder : syscall === 'access' ? path : dirname(path)
  const isKnown = at === functionsRoot || at.startsWith(functionsRoot + sep)
  const shown = toFolderName(functionsRoot, isKnown ? at : folder)
  const place = shown === '.' ? 'the functions root' : shown
  if (code === 'EROFS') {
    const message = `${place} is on a read-only file system, and packages are installed beside the function`
    return { message, hint: 'mount it writable, or install them before: fngw deps install' }
  }
  const user = uid === undefined ? 'the user fngw runs as' : `user ${uid} (the user fngw runs as)`
  const command = `chown ${uid ?? 'USER'} ${toShellWord(shown)}`
  return {
    message: `${place} is not writable by ${user}, and packages are installed beside the function`,
    hint: `in the functions root: ${command}; or install them as its owner: fngw deps install`,
  }
}
