/**
 * Prepares a function before a worker of it starts: for go and rust its program, for python, node and php its packages.
 * Spec: §2.16.
 *
 *   prepare(fn) ─► waiting ─► resolving: reads the sources ─┬► all is there ──────────────────────────► ready
 *          a few in each turn of the event loop             ├► installing: waits for a slot, tool runs ─► ready
 *                                                           └► failed, until the sources change
 */

import { statSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { toToolHostEnv, toUserToolEnv } from '../core/host.ts'
import type { RuntimeName } from '../core/identity.ts'
import { Semaphore } from '../core/semaphore.ts'
import { isSameVersion } from '../core/versions.ts'
import type { FileReader } from '../files/function-file.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { ToolUser } from '../files/tool-user.ts'
import {
  BUILD_RETRY_MS,
  type Builder,
  type BuildTools,
  type InstallResult,
  isPassing,
  sourceError,
  type Toolchain,
} from './build.ts'
import { createGoBuilder } from './go.ts'
import { makeToolFolder, runTool, type ToolOwner } from './run-tool.ts'
import { CargoHome, createRustBuilder } from './rust.ts'

/** Functions whose sources are read in one turn of the event loop, at some 0.1 ms each. */
const STARTS_PER_TURN = 16
/** Milliseconds after which reading a function's dependencies counts as work. */
const LONG_LOOK_MS = 2000
/** Milliseconds that a failure waits, while builds go on, for functions that fail for the same cause. */
const REPORT_MS = 2000

export interface BuildsOptions {
  clock: Clock
  /** Folder for temporary files of tools; made when needed. */
  temporaryFolder: OwnFolder
  /** Environment of this process; tools get a part of it. */
  hostEnv: Readonly<Record<string, string | undefined>>
  builders: readonly Builder[]
  /** Builds are closed to other users of the machine, and tools have no capability of this process. */
  isPrivate: boolean
  /**
   * The user whose rights tools have where functions are kept apart by users: null or absent elsewhere.
   * @param key - of a function, or `pack <folder>`
   * @throws Error when no user is left
   */
  toolUserOf?(key: string): ToolUser | null
  /** Reads files of functions that are kept apart by users; null: links are followed. */
  readFile?: FileReader | null
  /** The user of package tools elsewhere; absent: that of this process. */
  toolOwner?: ToolOwner | null
  /** Steps of priority that tools stand below this process; absent: none. */
  nice?: number
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
  /** Full path of the program of one that is ready, null for packages. */
  program: string | null = null
  readonly done: Promise<string | null>
  #settle!: () => void
  readonly #onWork: (() => void)[] = []
  readonly #abort = new AbortController()

  constructor(fn: FunctionVersion, since: number) {
    this.fn = fn
    this.since = since
    this.done = new Promise((resolve, reject) => {
      this.#settle = () => (this.error === null ? resolve(this.program) : reject(this.error))
    })
    // A caller that has gone does not handle the failure.
    this.done.catch(() => {})
  }

  end(state: 'ready' | 'failed', since: number): void {
    this.state = state
    this.since = since
    this.#settle()
  }

  get isOpen(): boolean {
    return this.state !== 'ready' && this.state !== 'failed'
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  stop(): void {
    this.#abort.abort()
  }

  /** @param onWork - called when a tool has to work for it */
  watch(onWork: () => void): void {
    if (this.state === 'installing') onWork()
    else if (this.isOpen) this.#onWork.push(onWork)
  }

  beginWork(): void {
    this.state = 'installing'
    for (const onWork of this.#onWork.splice(0)) onWork()
  }
}

/** A builder, and how many of its functions are read and built at once. */
interface Language {
  builder: Builder
  /** A save of all functions at once must not start a tool for each of them. */
  looks: Semaphore<Preparation>
  installs: Semaphore<Preparation>
}

/** The preparation queue of a gateway's functions: their programs and packages; shaped as a runtime's `Preparer`. */
export class Builds {
  readonly #options: BuildsOptions
  readonly #tools: Tools
  readonly #languages: ReadonlyMap<RuntimeName, Language>
  /** By function key. */
  readonly #known = new Map<string, Preparation>()
  /** Functions that turned out to need nothing: among ten thousand nearly all. */
  readonly #ready = new WeakSet<FunctionVersion>()
  /** Those that have not ended. */
  readonly #open = new Set<Preparation>()
  /** Those that wait for their turn, and some that do not any more; the ones that calls asked for come first. */
  readonly #line: Preparation[] = []
  #isMoving = false
  #functions: ReadonlyMap<string, FunctionVersion> | null = null
  readonly #failures: FailureReports
  #isClosed = false

  constructor(options: BuildsOptions) {
    this.#options = options
    this.#tools = new Tools(options)
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

  /** True when it is made ready before a call asks for it. */
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
    return `${this.#builderOf(fn)?.action ?? 'building'} ${fn.runtime} function ${fn.name}${fn.version === null ? '' : `@${fn.version}`}`
  }

  /** Most ms that a call waits for what its function needs. */
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

  /** Forgets functions that are gone and stops their builds. */
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

  /** Stops what runs; resolves when every tool has ended. */
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
    preparation.stop()
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
        this.#succeed(preparation, null)
        return
      }
      preparation.change = this.#changeOf(fn)
      const startedAt = this.#options.clock.monotonic()
      this.#run(preparation, language).then(
        ({ program, made }) => {
          this.#succeed(preparation, program)
          const durationMs = this.#options.clock.monotonic() - startedAt
          if (made !== null) this.#options.onBuilt({ fn, durationMs, made })
        },
        error => this.#fail(preparation, error),
      )
    } catch (error) {
      preparation.change = this.#changeOf(fn)
      this.#fail(preparation, error)
    }
  }

  /** @returns the program, and what was made: null when all was there */
  async #run(
    preparation: Preparation,
    { builder, looks, installs }: Language,
  ): Promise<{ program: string | null; made: InstallResult | null }> {
    const { clock, onBegin, onEnd } = this.#options
    const { fn } = preparation
    const toolchain = await this.#tools.toolchainOf(builder)
    if (builder.isBusy?.(fn) === true) preparation.beginWork()
    this.#checkManifests(fn, builder)
    // A function that can do without is not kept waiting for longer than a moment.
    const timer = clock.setTimeout(() => preparation.beginWork(), LONG_LOOK_MS)
    const plan = await looks
      .run(() => this.#tools.use(builder, preparation, tools => builder.plan(fn, toolchain, tools)), preparation)
      .finally(() => clock.clearTimeout(timer))
    if (plan.isBuilt) return { program: plan.binary, made: null }
    preparation.beginWork()
    const made = await installs.run(
      () =>
        this.#tools.use(builder, preparation, async tools => {
          const action = builder.action ?? 'building'
          onBegin(fn, action)
          try {
            return await plan.build(tools)
          } finally {
            onEnd(fn, action)
          }
        }),
      preparation,
    )
    return { program: plan.binary, made }
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

  #succeed(preparation: Preparation, program: string | null): void {
    preparation.program = program
    this.#failures.forget(preparation.fn)
    this.#end(preparation, 'ready')
  }

  #fail(preparation: Preparation, thrown: unknown): void {
    const { fn } = preparation
    const found = this.#toError(thrown, preparation)
    preparation.error = preparation.signal.aborted
      ? found
      : this.#failures.note(fn, found, this.#toFailureStamp(fn, found))
    if (this.#functions === preparation.catalog) preparation.stamp = this.#builderOf(fn)?.stampOf?.(fn) ?? null
    this.#end(preparation, 'failed')
  }

  #end(preparation: Preparation, state: 'ready' | 'failed'): void {
    preparation.end(state, this.#options.clock.monotonic())
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

  #toError(thrown: unknown, { fn, signal }: Preparation): GatewayError {
    if (this.#isClosed) return closing()
    if (signal.aborted) return stopped()
    if (thrown instanceof GatewayError) return thrown
    const { code, path, message } = thrown as NodeJS.ErrnoException
    const hint = `the gateway writes to .${fn.runtime}-build in the function's folder and to .svc in the functions root`
    return new GatewayError('LOAD_FAILED', `build failed: ${message}`, {
      cause: thrown,
      ...(code !== undefined && path !== undefined && { detail: { hint } }),
    })
  }
}

/** Reports each failure once, together with the functions that fail for the same cause. */
class FailureReports {
  readonly #options: Pick<BuildsOptions, 'clock' | 'onFailure'>
  /** To be reported, by their cause. */
  readonly #waiting = new Map<unknown, { error: GatewayError; functions: FunctionVersion[] }>()
  /** By function key, the failure that was reported last and what it depends on. */
  readonly #reported = new Map<string, { error: GatewayError; stamp: string }>()
  #timer: NodeJS.Timeout | null = null

  constructor(options: Pick<BuildsOptions, 'clock' | 'onFailure'>) {
    this.#options = options
  }

  /**
   * @param stamp - what the failure depends on
   * @returns the error that calls get: a retry that fails as before is the same failure, and is not reported again
   */
  note(fn: FunctionVersion, error: GatewayError, stamp: string): GatewayError {
    const known = this.#reported.get(fn.key)
    if (known?.stamp === stamp && known.error.message === error.message) return known.error
    this.#reported.set(fn.key, { error, stamp })
    // Functions of one folder share their packages, and folders that want the same share an install.
    const cause = error.cause ?? `${fn.runtime} ${fn.fnDir} ${error.message}`
    const waiting = this.#waiting.get(cause)
    if (waiting === undefined) this.#waiting.set(cause, { error, functions: [fn] })
    else waiting.functions.push(fn)
    this.#timer ??= this.#options.clock.setTimeout(() => this.report(), REPORT_MS)
    return error
  }

  report(): void {
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    this.#timer = null
    const failures = [...this.#waiting.values()]
    this.#waiting.clear()
    for (const { error, functions } of failures) {
      const [first, ...others] = functions
      this.#options.onFailure(first!, error, others)
    }
  }

  forget({ key }: FunctionVersion): void {
    this.#reported.delete(key)
  }

  retain(functions: ReadonlyMap<string, FunctionVersion>): void {
    for (const key of this.#reported.keys()) if (!functions.has(key)) this.#reported.delete(key)
  }
}

/** The tools of builders: their versions, environment, users and temporary folders. */
class Tools {
  readonly #options: BuildsOptions
  readonly #toolchains = new Map<string, Promise<Toolchain>>()

  constructor(options: BuildsOptions) {
    this.#options = options
  }

  /** Asked once for a program; a failure is asked again. @throws GatewayError when the program is missing */
  toolchainOf(builder: Builder): Promise<Toolchain> {
    const found = this.#options.findProgram(builder.runtime)
    if (found.path === null) throw new GatewayError('RUNTIME_DOWN', 'runtime down', { detail: { hint: found.problem } })
    const program = found.path
    const id = `${builder.runtime} ${program}`
    let toolchain = this.#toolchains.get(id)
    if (toolchain === undefined) {
      toolchain = this.#readToolchain(builder, program)
      toolchain.catch(() => this.#toolchains.delete(id))
      this.#toolchains.set(id, toolchain)
    }
    return toolchain
  }

  async #readToolchain(builder: Builder, program: string): Promise<Toolchain> {
    const folder = makeToolFolder(this.#options.temporaryFolder, this.#options.clock)
    try {
      const tools = this.#toTools(builder, () => folder.path, new AbortController().signal)
      const version = await builder.readVersion(program, tools, folder.path)
      return { program, version: `${version}\n${process.platform} ${process.arch}` }
    } finally {
      folder.removeAll()
    }
  }

  /** The folder for temporary files is made when the first tool runs: most functions are ready as they are. */
  async use<T>(builder: Builder, { fn, signal }: Preparation, work: (tools: BuildTools) => T | Promise<T>): Promise<T> {
    if (signal.aborted) throw stopped()
    const { clock, temporaryFolder, toolUserOf } = this.#options
    const made: { folder: OwnFolder; user: ToolUser | null }[] = []
    const toTools = (key: string): BuildTools => {
      let path: string | null = null
      const user = toolUserOf?.(key) ?? null
      const toFolder = (): string => {
        if (path !== null) return path
        const folder = makeToolFolder(user?.folder ?? temporaryFolder, clock)
        made.push({ folder, user })
        user?.give(folder)
        path = folder.path
        return path
      }
      return { ...this.#toTools(builder, toFolder, signal, user), forPack: folder => toTools(`pack ${folder}`) }
    }
    try {
      return await work(toTools(fn.key))
    } finally {
      for (const { folder, user } of made) {
        if (user === null) folder.removeAll()
        else await user.remove(folder)
      }
    }
  }

  #toTools(builder: Builder, toFolder: () => string, signal: AbortSignal, user: ToolUser | null = null): BuildTools {
    const { clock, hostEnv, isPrivate, nice = 0, toolOwner } = this.#options
    const owner = user === null ? (toolOwner ?? null) : null
    const toOwn = () => builder.toEnv?.(hostEnv) ?? toToolHostEnv(hostEnv)
    const toBase = () => (user === null ? toOwn() : toUserToolEnv(toOwn(), user.home))
    // One limit for all steps of a build.
    const endsAt = clock.monotonic() + builder.timeoutMs
    return {
      signal,
      user,
      run: async ({ command, args, cwd, env, owns }) => {
        if (owns !== undefined) user?.give(owns)
        const asOwner = (await owner?.of(command)) ?? null
        const base = asOwner === null ? toBase() : owner!.toEnv(toBase())
        const folder = toFolder()
        const run = {
          command,
          args,
          cwd,
          env: { ...base, TMPDIR: folder, GOTMPDIR: folder, ...env },
          timeoutMs: Math.max(1, endsAt - clock.monotonic()),
          isPlain: isPrivate,
          user: user ?? asOwner,
          nice,
          signal,
        }
        return runTool(run, clock)
      },
    }
  }
}

function stopped(): GatewayError {
  return new GatewayError('LOAD_FAILED', 'build was stopped')
}

function closing(): GatewayError {
  return new GatewayError('SHUTTING_DOWN', 'gateway is shutting down')
}

export interface CompiledOptions extends Omit<BuildsOptions, 'builders' | 'temporaryFolder'> {
  functionsRoot: string
  goBuildTimeoutSeconds: number
  rustBuildTimeoutSeconds: number
  /** Full path of the folder with the sources of a runtime's worker. */
  workerFolder(runtime: 'go' | 'rust'): string
  /** Installers of the other languages' packages. */
  installers?: readonly Builder[]
}

/** The builds and installs of a functions root. */
export function createBuilds(options: CompiledOptions): Builds {
  const { functionsRoot, isPrivate, goBuildTimeoutSeconds, rustBuildTimeoutSeconds, workerFolder, hostEnv } = options
  const folder = new OwnFolder(functionsRoot, '.svc', 'build')
  return new Builds({
    ...options,
    temporaryFolder: folder.below('tmp'),
    builders: [
      createGoBuilder({
        functionsRoot,
        isPrivate,
        readFile: options.readFile ?? null,
        workerFolder: workerFolder('go'),
        timeoutMs: goBuildTimeoutSeconds * 1000,
        concurrency: availableParallelism(),
        cgo: hostEnv.CGO_ENABLED === '1',
      }),
      createRustBuilder({
        functionsRoot,
        isPrivate,
        workerFolder: workerFolder('rust'),
        cargoHome: new CargoHome(folder, hostEnv),
        timeoutMs: rustBuildTimeoutSeconds * 1000,
      }),
      ...(options.installers ?? []),
    ],
  })
}
