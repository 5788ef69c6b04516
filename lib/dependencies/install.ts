/**
 * Packages of python, node and php functions: one mechanism, and a step for each language. Owner: §2.16, page dependencies/install.
 *
 *   plan(function) ─ signature is that of the state file, its set in place ─────────────────────► ready
 *                  └ step.plan: reads manifest and imports ─► nothing wanted ───────────────────► ready
 *                                                          ─► key ─ set in place ───────────────► ready
 *   build ─► set of the key, filled once for all functions ─► step.check ─► linked beside, renamed in ─► step.settle ─► state file
 *
 * `Builds` (resolve.ts) asks an `Installer` as it asks the builders of go and rust: it shares the work of calls for one function,
 * bounds how many tools run, tells progress, and keeps a failure until the function's files change.
 *
 * WHAT A STEP HAS TO PROVIDE is `InstallStep` (install-step.ts): fields for the mechanism, `plan` to say what a folder wants, and in the plan
 * `fill` (run the tool in an empty folder), `check` (strict rules), `settle` (manifests and lock files beside the function).
 * It throws `installError` for what only an edit mends (kept until then) and `passingError` for what may pass (network, time).
 */

import { lstatSync, type Stats } from 'node:fs'
import { join, relative, sep } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import type { HostEnv } from '../core/host-env.ts'
import { INSTALL_TIMEOUT_SECONDS } from '../core/limits.ts'
import { ValueChanges } from '../core/list-change.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { Builder, BuildPlan, BuildTools, Toolchain } from './build.ts'
import { BuildKey } from './build-cache.ts'
import { checkWritable, isDenied, toClosedText } from './closed-folder.ts'
import { type DependencyRecord, readState } from './dependency-state.ts'
import type { Asker } from './failed-sets.ts'
import { FolderTurns } from './folder-turns.ts'
import { InstallRecords } from './install-records.ts'
import { type InstallPlan, type InstallStep, type InstallUnit, passingError, type Settled } from './install-step.ts'
import { joinMade, type Made } from './made.ts'
import { PackageFolder, type PackageSet, PackageSets, toSet } from './package-set.ts'
import { listInstalled } from './why.ts'

interface InstallerOptions {
  functionsRoot: string
  clock: Clock
  /** As of `Builds`. */
  isPrivate: boolean
  /** Finds shared packs. @throws GatewayError when one that a function names is missing */
  packsOf(fn: FunctionVersion): readonly string[]
}

/** A unit that is looked at: ready, or with what is to be done. */
interface Look {
  unit: InstallUnit
  folder: PackageFolder
  signature: string
  /** null: nothing to do. */
  plan: InstallPlan | null
}

/** Installs for one runtime, shaped as a `Builder`. */
export class Installer implements Builder {
  readonly runtime: InstallStep['runtime']
  readonly concurrency: number
  readonly timeoutMs = INSTALL_TIMEOUT_SECONDS * 1000
  readonly action = 'installing packages of'
  readonly isAhead: boolean
  readonly looksAtOnce?: number
  readonly #step: InstallStep
  readonly #options: InstallerOptions
  readonly #sets: PackageSets
  readonly #turns = new FolderTurns()
  readonly #records: InstallRecords
  readonly #changes = new ValueChanges<FunctionVersion>(fn => fn.runtime === this.runtime)
  /** Functions of the runtime by their folder, of folders that hold several: of ten thousand nobody may look at all for each. */
  readonly #shared = new Map<string, readonly FunctionVersion[]>()
  /** Folders of several in which a look found nothing wanted, since the last catalog: of ten thousand files in one each would read all. */
  readonly #plainFolders = new Set<string>()

  constructor(step: InstallStep, options: InstallerOptions) {
    this.#step = step
    this.#options = options
    this.runtime = step.runtime
    this.concurrency = step.concurrency
    this.isAhead = step.isAhead
    if (step.looksAtOnce !== undefined) this.looksAtOnce = step.looksAtOnce
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
    this.#plainFolders.clear()
    const { gone, fresh } = this.#changes.next(functions)
    const changed = new Set([...gone, ...fresh].map(fn => fn.fnDir))
    if (changed.size === 0) return
    for (const folder of changed) this.#shared.delete(folder)
    for (const [folder, beside] of this.#groupIn(changed)) this.#shared.set(folder, beside)
  }

  /** The functions of those folders that hold several. */
  #groupIn(folders: ReadonlySet<string>): Map<string, FunctionVersion[]> {
    const first = new Map<string, FunctionVersion>()
    const groups = new Map<string, FunctionVersion[]>()
    for (const fn of this.#changes.values) {
      if (!folders.has(fn.fnDir)) continue
      const known = first.get(fn.fnDir)
      if (known === undefined) first.set(fn.fnDir, fn)
      else if (groups.has(fn.fnDir)) groups.get(fn.fnDir)!.push(fn)
      else groups.set(fn.fnDir, [known, fn])
    }
    return groups
  }

  /** A missing pack fails here, before any tool is looked for, and also where packages are not installed. */
  isNeeded(fn: FunctionVersion): boolean {
    const packs = this.#options.packsOf(fn)
    if (!this.#step.isOn) return false
    return packs.length > 0 || this.#isWanted(fn)
  }

  #isWanted(fn: FunctionVersion): boolean {
    const isShared = this.#shared.has(fn.fnDir)
    if (isShared && this.#plainFolders.has(fn.fnDir)) return false
    const isWanted = this.#step.isWanted(this.#unitOf(fn))
    if (isShared && !isWanted) this.#plainFolders.add(fn.fnDir)
    return isWanted
  }

  isBusy(fn: FunctionVersion): boolean {
    return [fn.fnDir, ...this.#options.packsOf(fn)].some(folder => this.#turns.hasLong(folder))
  }

  async plan(fn: FunctionVersion, toolchain: Toolchain, tools: BuildTools): Promise<BuildPlan> {
    const packs = this.#options.packsOf(fn).map(folder => this.#packUnit(folder))
    const looks = await Promise.all(packs.map(unit => this.#lookInTurn(unit, toolchain, tools)))
    const open = looks.filter(({ plan }) => plan !== null)
    const unit = this.#unitOf(fn)
    // What a function's imports need is known when its packs are there.
    const own = open.length > 0 ? null : await this.#lookInTurn(unit, toolchain, tools)
    if (own !== null && own.plan !== null) open.push(own)
    return {
      key: open.map(({ plan }) => plan!.key).join(' '),
      isBuilt: open.length === 0,
      binary: null,
      build: async work => {
        const made: Made[] = []
        for (const look of open) made.push(await this.#installInTurn(look, work))
        const late = own ?? (await this.#lookInTurn(unit, toolchain, work))
        if (own === null && late.plan !== null) made.push(await this.#installInTurn(late, work))
        return joinMade(made)
      },
    }
  }

  #lookInTurn(unit: InstallUnit, toolchain: Toolchain, tools: BuildTools): Promise<Look> {
    return this.#turns.take(unit.folder, () => this.#look(unit, toolchain, tools))
  }

  #installInTurn(look: Look, tools: BuildTools): Promise<Made> {
    return this.#turns.take(look.unit.folder, () => this.#install(look, tools), true)
  }

  /** What is known of a function's packages; null when nothing is. */
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
  async #look(unit: InstallUnit, toolchain: Toolchain, tools: BuildTools): Promise<Look> {
    const folder = new PackageFolder(unit.folder, this.#step.target)
    const signature = this.#signatureOf(unit, toolchain)
    const done: Look = { unit, folder, signature, plan: null }
    if (!this.#step.isWanted(unit)) return done
    folder.recover()
    const state = readState(unit.folder, this.runtime)
    const set = folder.set
    const isOk = state?.last_install_status === 'ok' && state.install_signature === signature
    if (isOk && set !== null && set.key === state.set) return done
    const plan = await this.#step.plan(unit, toolchain, tools)
    if (plan === null) return done
    if (folder.isForeign) {
      this.#noteForeign(done, plan)
      return done
    }
    if (set?.key !== plan.key) return { ...done, plan }
    // Something was touched that decides nothing.
    plan.check?.(set)
    const { isPrivate } = this.#options
    this.#settle(unit, plan, signature, toSet(new OwnFolder(unit.folder), set, { isPrivate, isShared: true }))
    return done
  }

  #noteForeign({ unit, signature }: Look, plan: InstallPlan): void {
    this.#records.note(unit, plan, signature, {
      status: 'skipped',
      error: `${this.#step.target} was not put there by the gateway and is used as it is: delete it to have it made`,
    })
  }

  async #install(look: Look, tools: BuildTools): Promise<Made> {
    const { unit, folder, plan, signature } = look
    try {
      checkWritable(unit.folder)
      const set = await this.#ensure(plan!, { folder: unit.folder, signature }, tools)
      plan!.check?.(set.outcome)
      // Somebody may have installed packages there while the tool worked.
      if (folder.isForeign) {
        this.#noteForeign(look, plan!)
        return { packages: 0, bytes: 0, names: [], isShared: true }
      }
      if (folder.set?.key !== plan!.key) await folder.put(set)
      this.#settle(unit, plan!, signature, set)
      return { ...set, names: set.outcome.resolvedPackages }
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
      signal: tools.signal,
      count: folder => listInstalled(runtime, folder).length,
      fill: draft => plan.fill(draft, tools),
    })
  }

  #settle(unit: InstallUnit, plan: InstallPlan, signature: string, set: PackageSet): void {
    const [read = '', rest] = signature.split(' ')
    const isUntouched = this.#manifestStamp(unit) === read
    const settled = this.#write(plan, set)
    // What the gateway writes itself is not to look like an edit; what somebody wrote meanwhile is.
    const now = isUntouched ? `${this.#manifestStamp(unit)} ${rest}` : signature
    this.#records.note(unit, plan, now, {
      status: 'ok',
      error: null,
      outcome: set.outcome,
      ...(settled && { settled }),
    })
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

  #toError(thrown: unknown, { retell }: InstallPlan, { folder }: InstallUnit): GatewayError {
    if (thrown instanceof GatewayError) {
      return thrown.cause === undefined || retell === undefined ? thrown : retell(thrown.cause)
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
    const beside = this.#shared.get(fn.fnDir) ?? []
    const functions = [...beside.filter(other => other.key !== fn.key), fn]
    functions.sort((a, b) => (a.entryFile < b.entryFile ? -1 : 1))
    const packs = [...new Set(functions.flatMap(({ policy }) => policy.sharedDeps))]
    const packFolders = [...new Set(functions.flatMap(one => this.#packsOrNone(one)))]
    return { folder: fn.fnDir, label: this.#toLabel(fn.fnDir), functions, isPack: false, packs, packFolders }
  }

  #packUnit(folder: string): InstallUnit {
    return { folder, label: this.#toLabel(folder), functions: [], isPack: true, packs: [], packFolders: [] }
  }

  /** A pack that another function of the folder lacks is that function's trouble. */
  #packsOrNone(fn: FunctionVersion): readonly string[] {
    try {
      return this.#options.packsOf(fn)
    } catch {
      return []
    }
  }

  #toLabel(folder: string): string {
    return relative(this.#options.functionsRoot, folder).split(sep).join('/') || '.'
  }

  /** Two parts: the files that the gateway may write itself, and the rest. */
  #signatureOf(unit: InstallUnit, toolchain: Toolchain): string {
    const key = new BuildKey().add('rules', this.#step.rules).add('toolchain', toolchain.version)
    for (const fn of unit.functions) key.add(fn.entryFile, stampOf(fn.entryPath)).add('packs', unit.packs.join(' '))
    key.add('step', this.#step.stampOf?.(unit) ?? '')
    return `${this.#manifestStamp(unit)} ${key}`
  }

  #manifestStamp(unit: InstallUnit): string {
    const key = new BuildKey()
    for (const name of this.#step.manifests) key.add(name, stampOf(join(unit.folder, name)))
    return key.toString()
  }
}

function stampOf(path: string): string | null {
  const stats: Stats | undefined = lstatSync(path, { throwIfNoEntry: false })
  return stats === undefined ? null : `${stats.size} ${stats.mtimeMs}`
}
