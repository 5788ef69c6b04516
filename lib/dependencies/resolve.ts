/**
 * Prepares a function before a worker of it starts: for go and rust its program, for python, node and php its packages.
 * Spec: §2.16.
 *
 *   prepare(fn) ─► waiting ─► resolving: reads the sources ─┬► all is there ──────────────────────────► ready
 *          a few in each turn of the event loop             ├► installing: waits for a slot, tool runs ─► ready
 *                                                           └► failed, until the sources change
 */

import { statSync } from 'node:fs'
import { join } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import { getOrMake } from '../core/collections.ts'
import { type Clock, Timer } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'
import { Semaphore } from '../core/semaphore.ts'
import { isSameVersion } from '../core/versions.ts'
import type { FileReader } from '../files/function-file.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { Builder, CompilerOptions, InstallResult, Toolchain } from './build.ts'
import { createGoBuilder } from './go.ts'
import { type BuildTools, type ToolsOptions, withTools } from './run-tool.ts'
import { CargoHome, createRustBuilder } from './rust.ts'
import { BUILD_RETRY_MS, isPassing, sourceError } from './tool-failure.ts'

/** Functions whose sources are read in one turn of the event loop, at some 0.1 ms each. */
const STARTS_PER_TURN = 16
/** Milliseconds after which reading a function's dependencies counts as work. */
const LONG_LOOK_MS = 2000
/** Milliseconds that a failure waits, while builds go on, for functions that fail for the same cause. */
const REPORT_MS = 2000

export interface BuildsOptions extends ToolsOptions {
  builders: readonly Builder[]
  /** Reads files of functions that are kept apart by users; null: links are followed. */
  readFile?: FileReader | null
  /** Most ms that a call waits for a build. */
  waitMs: number
  /** How a function's files on disk differ from those that were discovered, as text; null when they do not. */
  changeOf?(fn: FunctionVersion): string | null
  /** The toolchain's program, or why there is none. */
  findProgram(runtime: RuntimeName): { path: string; problem: null } | { path: null; problem: string }
  /** A tool begins to work for a function; `onEnd` always follows. */
  onBegin(fn: FunctionVersion, action: string): void
  onEnd(fn: FunctionVersion, action: string): void
  onBuilt(built: { fn: FunctionVersion; durationMs: number; made: InstallResult }): void
  /** @param others - functions that failed for the same cause: a failure is reported once */
  onFailure(fn: FunctionVersion, error: GatewayError, others: readonly FunctionVersion[]): void
}

export interface PreparationState {
  state: 'preparing' | 'ready' | 'failed'
  /** Monotonic ms. */
  since: number
  error: GatewayError | null
  /** The work while no tool runs for it; null when there is none. */
  step: string | null
}

/** One function's way to what it needs. */
class Preparation {
  readonly fn: FunctionVersion
  /** While it is `installing` a tool works for it, or it waits for a slot. */
  state: 'waiting' | 'resolving' | 'installing' | 'ready' | 'failed' = 'waiting'
  error: GatewayError | null = null
  /** Monotonic ms when it began; of one that has ended, when it did. */
  since: number
  /** How the disk differed from discovery when its sources were read. */
  change: string | null = null
  /** The catalog when its sources were read. */
  catalog: ReadonlyMap<string, FunctionVersion> | null = null
  /** Of a failed one: the builder's `stampOf`; null when another catalog came while it ran. */
  stamp: string | null = null
  readonly abort = new AbortController()
  /** The program, null for packages. */
  readonly done: Promise<string | null>
  #settle!: (program: string | null) => void
  readonly #onWork: (() => void)[] = []

  constructor(fn: FunctionVersion, since: number) {
    this.fn = fn
    this.since = since
    this.done = new Promise((resolve, reject) => {
      this.#settle = program => (this.error === null ? resolve(program) : reject(this.error))
    })
    // A caller that has gone does not handle the failure.
    this.done.catch(() => {})
  }

  get isOpen(): boolean {
    return this.state !== 'ready' && this.state !== 'failed'
  }

  /** It fails when its `error` is set. */
  end(since: number, program: string | null): void {
    this.state = this.error === null ? 'ready' : 'failed'
    this.since = since
    this.#settle(program)
  }

  watch(onWork: () => void): void {
    if (this.state === 'installing') onWork()
    else if (this.isOpen) this.#onWork.push(onWork)
  }

  beginWork(): void {
    this.state = 'installing'
    for (const onWork of this.#onWork.splice(0)) onWork()
  }
}

interface Language {
  builder: Builder
  /** A save of all functions at once must not start a tool for each of them. */
  looks: Semaphore<Preparation>
  installs: Semaphore<Preparation>
}

/** The preparation queue of a gateway's functions: their programs and packages; shaped as a runtime's `Preparer`. */
export class Builds {
  readonly #options: BuildsOptions
  readonly #languages: ReadonlyMap<RuntimeName, Language>
  /** By runtime and program: asked once, a failure is asked again. */
  readonly #toolchains = new Map<string, Promise<Toolchain>>()
  readonly #known = new Map<string, Preparation>()
  /** Functions that turned out to need nothing: among ten thousand nearly all. */
  readonly #ready = new WeakSet<FunctionVersion>()
  readonly #open = new Set<Preparation>()
  /** Those that wait for their turn, and some that do not any more; the ones that calls asked for come first. */
  readonly #line: Preparation[] = []
  #isMoving = false
  #functions: ReadonlyMap<string, FunctionVersion> | null = null
  readonly #failures: FailureReports
  #isClosed = false

  constructor(options: BuildsOptions) {
    this.#options = options
    this.#failures = new FailureReports(options)
    this.#languages = new Map(
      options.builders.map(builder => {
        const looks = new Semaphore<Preparation>(builder.looksAtOnce ?? Number.POSITIVE_INFINITY)
        return [builder.runtime, { builder, looks, installs: new Semaphore<Preparation>(builder.concurrency) }]
      }),
    )
  }

  /**
   * Builds a function unless it is built already; calls for one version share one build. Asking again for a build that
   * waits puts it first in line.
   * @param onWork - called when a tool has to work for it; not when all is there
   * @returns full path of the program, null for packages
   * @throws GatewayError LOAD_FAILED with a short tail of the tool's output; SHUTTING_DOWN
   */
  prepare(fn: FunctionVersion, onWork?: () => void): Promise<string | null> {
    if (this.#isClosed) return Promise.reject(closing())
    if (this.#ready.has(fn)) return Promise.resolve(null)
    const known = this.#known.get(fn.key)
    const preparation = this.#begin(fn)
    if (preparation === known && known.isOpen) this.#putFirst(known)
    if (onWork !== undefined) preparation.watch(onWork)
    return preparation.done
  }

  /** The preparation of a function, a new one unless there is one that holds. */
  #begin(fn: FunctionVersion): Preparation {
    const known = this.#known.get(fn.key)
    if (known !== undefined && isSameVersion(known.fn, fn) && !this.#mayRetry(known)) return known
    if (known !== undefined) this.#stop(known)
    const preparation = new Preparation(fn, this.#options.clock.monotonic())
    this.#known.set(fn.key, preparation)
    this.#open.add(preparation)
    this.#line.push(preparation)
    this.#moveSoon()
    return preparation
  }

  /** Prepares before a call asks for it, where that is wanted. Each reload asks for all functions, and most are ready. */
  prepareAhead(fn: FunctionVersion): void {
    if (!this.#isClosed && !this.#ready.has(fn) && this.isAhead(fn)) this.#begin(fn)
  }

  isAhead(fn: FunctionVersion): boolean {
    return this.#builderOf(fn)?.isAhead ?? true
  }

  /** As of `Builder`. @returns false where another tool does it */
  ask(fn: FunctionVersion, packages: readonly string[]): boolean {
    const builder = this.#builderOf(fn)
    builder?.ask?.(fn, packages)
    return builder?.ask !== undefined
  }

  /** Names the work, for a call that cannot wait for it. */
  toStep(fn: FunctionVersion): string {
    const version = fn.version === null ? '' : `@${fn.version}`
    return `${this.#builderOf(fn)?.action ?? 'building'} ${fn.runtime} function ${fn.name}${version}`
  }

  get waitMs(): number {
    return this.#options.waitMs
  }

  /** `metadata.dependency_resolution` of a function; null when nothing is known. */
  recordOf(fn: FunctionVersion): object | null {
    return this.#builderOf(fn)?.recordOf?.(fn) ?? null
  }

  /** How far a function is with what it needs; null when it needs nothing, or was not asked for yet. */
  stateOf(fn: FunctionVersion): PreparationState | null {
    const preparation = this.#known.get(fn.key)
    if (preparation === undefined || !isSameVersion(preparation.fn, fn)) return null
    const { state, since, error } = preparation
    if (state === 'ready' || state === 'failed') return { state, since, error, step: null }
    const step = state === 'installing' ? 'waiting in the queue' : 'resolving dependencies'
    return { state: 'preparing', since, error, step }
  }

  /** Forgets deleted functions and stops their builds. */
  retain(functions: ReadonlyMap<string, FunctionVersion>): void {
    if (functions === this.#functions) return
    this.#functions = functions
    for (const { builder } of this.#languages.values()) builder.retain?.(functions)
    this.#failures.retain(functions)
    for (const [key, preparation] of this.#known) {
      const fn = functions.get(key)
      if (fn !== undefined && !this.#isOutdated(preparation, fn)) continue
      this.#known.delete(key)
      this.#stop(preparation)
    }
  }

  /** Stops all builds; resolves when every tool has ended. */
  async close(): Promise<void> {
    this.#isClosed = true
    const open = [...this.#open]
    for (const preparation of open) this.#stop(preparation)
    await Promise.allSettled(open.map(({ done }) => done))
  }

  #builderOf({ runtime }: FunctionVersion): Builder | undefined {
    return this.#languages.get(runtime)?.builder
  }

  #changeOf(fn: FunctionVersion): string | null {
    return this.#options.changeOf?.(fn) ?? null
  }

  #mayRetry(preparation: Preparation): boolean {
    const { fn, state, error, since, change } = preparation
    if (state !== 'failed') return false
    if (this.#isOutdated(preparation, fn)) return true
    if (isPassing(error!) && this.#options.clock.monotonic() - since >= BUILD_RETRY_MS) return true
    // Its sources may have been half saved.
    return this.#changeOf(fn) !== change
  }

  /** True for a failure that something outside the function may have mended: another function's file, another tool's install. */
  #isOutdated({ state, stamp }: Preparation, fn: FunctionVersion): boolean {
    return state === 'failed' && stamp !== (this.#builderOf(fn)?.stampOf?.(fn) ?? stamp)
  }

  #putFirst(preparation: Preparation): void {
    if (preparation.state === 'waiting') this.#line.unshift(preparation)
    const language = this.#languages.get(preparation.fn.runtime)
    language?.looks.putFirst(preparation)
    language?.installs.putFirst(preparation)
  }

  #stop(preparation: Preparation): void {
    preparation.abort.abort()
    if (preparation.state === 'waiting') this.#fail(preparation, stopped())
  }

  /** Not within the caller's turn: reading sources of many functions must not hold up a reload, or a request. */
  #moveSoon(): void {
    if (this.#isMoving || this.#line.length === 0) return
    this.#isMoving = true
    setImmediate(() => {
      for (const preparation of this.#line.splice(0, STARTS_PER_TURN))
        if (preparation.state === 'waiting') this.#start(preparation)
      this.#isMoving = false
      this.#moveSoon()
    })
  }

  /** Most functions need nothing, and are ready here. */
  #start(preparation: Preparation): void {
    const { fn } = preparation
    preparation.state = 'resolving'
    preparation.catalog = this.#functions
    const language = this.#languages.get(fn.runtime)
    try {
      if (language === undefined) throw new GatewayError('INTERNAL', `nothing builds ${fn.runtime} functions`)
      if (language.builder.isNeeded?.(fn) === false) {
        this.#ready.add(fn)
        if (this.#known.get(fn.key) === preparation) this.#known.delete(fn.key)
        this.#end(preparation, null)
        return
      }
      preparation.change = this.#changeOf(fn)
      this.#run(preparation, language).catch(error => this.#fail(preparation, error))
    } catch (error) {
      preparation.change = this.#changeOf(fn)
      this.#fail(preparation, error)
    }
  }

  async #run(preparation: Preparation, { builder, looks, installs }: Language): Promise<void> {
    const { clock, onBegin, onEnd, onBuilt } = this.#options
    const { fn } = preparation
    const { signal } = preparation.abort
    const startedAt = clock.monotonic()
    const use = <T>(work: (tools: BuildTools) => T | Promise<T>): Promise<T> => {
      if (signal.aborted) throw stopped()
      return withTools(this.#options, builder, { key: fn.key, signal }, work)
    }
    const toolchain = await this.#toolchainOf(builder)
    if (builder.isBusy?.(fn) === true) preparation.beginWork()
    this.#checkManifests(fn, builder)
    // A function that can do without is not kept waiting for longer than a moment.
    const timer = new Timer(clock)
    timer.set(LONG_LOOK_MS, () => preparation.beginWork())
    const { binary, build } = await looks
      .run(() => use(tools => builder.plan(fn, toolchain, tools)), preparation)
      .finally(() => timer.clear())
    if (build === null) return this.#end(preparation, binary)
    preparation.beginWork()
    const action = builder.action ?? 'building'
    const install = async (tools: BuildTools) => {
      onBegin(fn, action)
      try {
        return await build(tools)
      } finally {
        onEnd(fn, action)
      }
    }
    const made = await installs.run(() => use(install), preparation)
    this.#end(preparation, binary)
    if (made !== null) onBuilt({ fn, durationMs: clock.monotonic() - startedAt, made })
  }

  #toolchainOf(builder: Builder): Promise<Toolchain> {
    const { path: program, problem } = this.#options.findProgram(builder.runtime)
    if (program === null) throw new GatewayError('RUNTIME_DOWN', 'runtime down', { detail: { hint: problem } })
    const id = `${builder.runtime} ${program}`
    return getOrMake(this.#toolchains, id, () => {
      const use = { key: null, signal: new AbortController().signal }
      const found = withTools(this.#options, builder, use, async tools => {
        const version = await builder.readVersion(program, tools)
        return { program, version: `${version}\n${process.platform} ${process.arch}` }
      })
      found.catch(() => this.#toolchains.delete(id))
      return found
    })
  }

  /** Builders read manifests by their paths. @throws GatewayError for one that is not the function's own */
  #checkManifests({ fnDir, entryFile }: FunctionVersion, { manifests = [] }: Builder): void {
    const { readFile } = this.#options
    for (const name of readFile ? manifests : []) {
      try {
        readFile!(join(fnDir, name))
      } catch (error) {
        const { code, message } = error as NodeJS.ErrnoException
        const file = entryFile.slice(0, entryFile.lastIndexOf('/') + 1) + name
        if (code === 'NOT_OF_FUNCTION') throw sourceError(message, { file })
      }
    }
  }

  #fail(preparation: Preparation, thrown: unknown): void {
    const { fn, abort, catalog } = preparation
    const found = this.#toError(thrown, preparation)
    preparation.error = abort.signal.aborted ? found : this.#failures.note(fn, found, this.#toFailureStamp(fn, found))
    if (this.#functions === catalog) preparation.stamp = this.#builderOf(fn)?.stampOf?.(fn) ?? null
    this.#end(preparation, null)
  }

  #end(preparation: Preparation, program: string | null): void {
    if (preparation.error === null) this.#failures.forget(preparation.fn)
    preparation.end(this.#options.clock.monotonic(), program)
    this.#open.delete(preparation)
    if (this.#open.size === 0) this.#failures.report()
  }

  /** The gateway writes manifests itself, so a failure of packages depends on the file that it names; one of a build on all sources. */
  #toFailureStamp(fn: FunctionVersion, { detail }: GatewayError): string {
    if (this.#builderOf(fn)?.ask === undefined || detail?.file === undefined) return fn.signature
    const rootPath = fn.entryPath.slice(0, -fn.entryFile.length)
    const file = statSync(join(rootPath, detail.file), { throwIfNoEntry: false })
    return `${file?.mtimeMs} ${file?.size}`
  }

  #toError(thrown: unknown, { fn, abort }: Preparation): GatewayError {
    if (this.#isClosed) return closing()
    if (abort.signal.aborted) return stopped()
    if (thrown instanceof GatewayError) return thrown
    const { code, path, message } = thrown as NodeJS.ErrnoException
    if (code === 'EACCES' && path === fn.entryPath) {
      const detail = { file: fn.entryFile, hint: 'make it readable for the user that runs fngw' }
      return new GatewayError('LOAD_FAILED', `cannot read ${fn.entryFile}: ${code}`, { detail, cause: thrown })
    }
    const hint = `the gateway writes to .${fn.runtime}-build in the function's folder and to .svc in the functions root`
    return new GatewayError('LOAD_FAILED', `build failed: ${message}`, {
      cause: thrown,
      ...(code !== undefined && path !== undefined && { detail: { hint } }),
    })
  }
}

/** Reports each failure once, together with the functions that fail for the same cause. */
class FailureReports {
  readonly #onFailure: BuildsOptions['onFailure']
  readonly #timer: Timer
  /** To be reported, by their cause. */
  readonly #waiting = new Map<unknown, { error: GatewayError; functions: FunctionVersion[] }>()
  /** By function key, the failure that was reported last and what it depends on. */
  readonly #reported = new Map<string, { error: GatewayError; stamp: string }>()

  constructor({ clock, onFailure }: { clock: Clock; onFailure: BuildsOptions['onFailure'] }) {
    this.#onFailure = onFailure
    this.#timer = new Timer(clock)
  }

  /**
   * @param stamp - text that changes when the failure may
   * @returns the error that calls get: a retry that fails as before is the same failure, and is not reported again
   */
  note(fn: FunctionVersion, error: GatewayError, stamp: string): GatewayError {
    const known = this.#reported.get(fn.key)
    if (known?.stamp === stamp && known.error.message === error.message) return known.error
    this.#reported.set(fn.key, { error, stamp })
    // Functions of one folder share their packages, and folders with equal requirements share an install.
    const cause = error.cause ?? `${fn.runtime} ${fn.fnDir} ${error.message}`
    getOrMake(this.#waiting, cause, () => ({ error, functions: [] })).functions.push(fn)
    if (!this.#timer.isSet) this.#timer.set(REPORT_MS, () => this.report())
    return error
  }

  report(): void {
    this.#timer.clear()
    const failures = [...this.#waiting.values()]
    this.#waiting.clear()
    for (const { error, functions } of failures) this.#onFailure(functions[0]!, error, functions.slice(1))
  }

  forget({ key }: FunctionVersion): void {
    this.#reported.delete(key)
  }

  retain(functions: ReadonlyMap<string, FunctionVersion>): void {
    for (const key of this.#reported.keys()) if (!functions.has(key)) this.#reported.delete(key)
  }
}

function stopped(): GatewayError {
  return new GatewayError('LOAD_FAILED', 'build was stopped')
}

function closing(): GatewayError {
  return new GatewayError('SHUTTING_DOWN', 'gateway is shutting down')
}

export interface CompiledOptions extends Omit<BuildsOptions, 'builders' | 'temporaryFolder'>, CompilerOptions {
  installers?: readonly Builder[]
}

export function createBuilds(options: CompiledOptions): Builds {
  const folder = new OwnFolder(options.functionsRoot, '.svc', 'build')
  const rust = createRustBuilder(options, new CargoHome(folder, options.hostEnv))
  const builders = [createGoBuilder(options), rust, ...(options.installers ?? [])]
  return new Builds({ ...options, temporaryFolder: folder.below('tmp'), builders })
}
