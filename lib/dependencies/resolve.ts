/**
 * What a function needs before a worker of it can start: for go and rust its program, for python, node and php its packages.
 * Spec: §2.16.
 *
 *   prepare(fn) -> plan: read sources, digest -> program is there ------------------------> ready
 *                                             -> waits for a place -> tool runs -> in place -> ready
 *                                                                              -> failed, until the sources change
 */

import { statSync } from 'node:fs'
import { join } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { toToolHostEnv, toUserToolEnv } from '../core/host.ts'
import type { RuntimeName } from '../core/identity.ts'
import type { FileReader } from '../files/function-file.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import type { ToolUser } from '../files/tool-user.ts'
import {
  BUILD_RETRY_MS,
  type Builder,
  type BuildPlan,
  type BuildTools,
  isPassing,
  sourceError,
  type Toolchain,
} from './build.ts'
import { LooksAhead } from './looks-ahead.ts'
import type { Made } from './made.ts'
import { type Build, signalOf, stop, stopped } from './open-build.ts'
import { PacedLine } from './paced-line.ts'
import { Places } from './places.ts'
import { runTool } from './run-tool.ts'
import { makeToolFolder } from './tool-folder.ts'
import type { ToolOwner } from './tool-owner.ts'
import { isSameVersion } from '../core/versions.ts'

const LOOKING = 'looking at what it needs'
/** Milliseconds after which a look at what is to be made counts as work. */
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
  /** What is built is closed to other users of the machine, and tools have no capability of this process. */
  isPrivate: boolean
  /**
   * Whom tools run as where functions are kept apart by users: null or absent elsewhere.
   * @param key - of a function, or `pack <folder>`
   * @throws Error when no user is left
   */
  toolUserOf?(key: string): ToolUser | null
  /** Reads files of functions that are kept apart by users; null: links are followed. */
  readFile?: FileReader | null
  /** Whom tools of packages run as elsewhere; absent: as this process. */
  toolOwner?: ToolOwner | null
  /** Steps of priority that tools stand below this process; absent: none. */
  nice?: number
  /** Most ms that a call waits for a build. */
  waitMs: number
  /** What of a function's files on disk is not as it was discovered, as text; null when nothing is. */
  changeOf?(fn: FunctionVersion): string | null
  /** The toolchain's program, or why there is none. */
  findProgram(runtime: RuntimeName): { path: string; problem: null } | { path: null; problem: string }
  /** A tool begins to work for a function; `onEnd` follows, whatever becomes of it. */
  onBegin(fn: FunctionVersion, action: string): void
  onEnd(fn: FunctionVersion, action: string): void
  onBuilt(built: { fn: FunctionVersion; durationMs: number; made: Made }): void
  /** @param others - functions that failed for the same cause: a failure is reported once */
  onFailure(fn: FunctionVersion, error: GatewayError, others: readonly FunctionVersion[]): void
}

export interface PreparationState {
  state: 'preparing' | 'ready' | 'failed'
  /** Monotonic ms. */
  since: number
  error: GatewayError | null
  /** What goes on while no tool runs for it; null when nothing does. */
  step: string | null
}

/** What a gateway's functions need before they run: programs and packages; shaped as a runtime's `Preparer`. */
export class Builds {
  readonly #options: BuildsOptions
  readonly #builds = new Map<string, Build>()
  /** Functions that turned out to need nothing: among ten thousand nearly all. */
  readonly #ready = new WeakSet<FunctionVersion>()
  readonly #toolchains = new Map<string, Promise<Toolchain>>()
  readonly #places = new Map<Builder, Places<Build>>()
  readonly #looks = new Map<Builder, Places<Build>>()
  readonly #line = new PacedLine<Build>()
  readonly #ahead: LooksAhead
  #functions: ReadonlyMap<string, FunctionVersion> | null = null
  /** Failures that are to be reported, by their cause. */
  readonly #failures = new Map<unknown, { error: GatewayError; functions: FunctionVersion[] }>()
  /** By function key, the failure that was reported last and what it depends on. */
  readonly #reported = new Map<string, { error: GatewayError; stamp: string }>()
  #reportTimer: NodeJS.Timeout | null = null
  #pending = 0
  #isClosed = false

  constructor(options: BuildsOptions) {
    this.#options = options
    this.#ahead = new LooksAhead({
      clock: options.clock,
      isNeeded: fn => this.#builderOf(fn)?.isNeeded?.(fn) !== false,
      onReady: fn => this.#ready.add(fn),
      onNeeded: fn => void this.prepare(fn).catch(() => {}),
    })
  }

  /**
   * Builds a function unless it is built already; calls for one version share one build. Asking again for a build that
   * waits puts it first in line.
   * @param onWork - called when a tool has to work for it; not when all is there
   * @returns full path of the program, null for packages
   * @throws GatewayError LOAD_FAILED with a short tail of the tool's output; SHUTTING_DOWN
   */
  prepare(fn: FunctionVersion, onWork?: () => void): Promise<string | null> {
    if (this.#isClosed) return Promise.reject(new GatewayError('SHUTTING_DOWN', 'gateway is shutting down'))
    if (this.#ready.has(fn)) return Promise.resolve(null)
    const known = this.#builds.get(fn.key)
    if (known !== undefined && isSameVersion(known.fn, fn) && !this.#mayRetry(known)) {
      if (known.state === 'pending') this.#putFirst(known)
      if (known.isWork) onWork?.()
      else if (onWork !== undefined) known.onWork.push(onWork)
      return known.done
    }
    if (known !== undefined) stop(known)
    const build: Build = {
      fn,
      state: 'pending',
      error: null,
      since: this.#options.clock.monotonic(),
      isNeeded: true,
      change: null,
      stamp: null,
      done: Promise.resolve(null),
      abort: null,
      isStopped: false,
      isWork: false,
      onWork: onWork === undefined ? [] : [onWork],
    }
    this.#builds.set(fn.key, build)
    build.done = this.#run(build)
    // A build in the background has nobody who waits for it.
    build.done.catch(() => {})
    return build.done
  }

  /** As of `Builder`. @returns false where another tool does it */
  ask(fn: FunctionVersion, packages: readonly string[]): boolean {
    const builder = this.#builderOf(fn)
    builder?.ask?.(fn, packages)
    return builder?.ask !== undefined
  }

  /** What goes on, for a call that cannot wait for it. */
  toStep(fn: FunctionVersion): string {
    return `${this.#builderOf(fn)?.action ?? 'building'} ${fn.runtime} function ${fn.name}${fn.version === null ? '' : `@${fn.version}`}`
  }

  /** Most ms that a call waits for what its function needs. */
  get waitMs(): number {
    return this.#options.waitMs
  }

  /** Prepares before a call asks for it, where that is wanted. Each reload asks for all functions, and most are ready. */
  prepareAhead(fn: FunctionVersion): void {
    if (this.#ready.has(fn)) return
    const known = this.#builds.get(fn.key)
    if (known?.fn === fn && known.state === 'ready') return
    if (!this.isAhead(fn)) return
    if (known === undefined) this.#ahead.add(fn)
    else this.prepare(fn).catch(() => {})
  }

  /** True when it is made ready before a call asks for it. */
  isAhead(fn: FunctionVersion): boolean {
    return this.#builderOf(fn)?.isAhead ?? true
  }

  /** `metadata.dependency_resolution` of a function; null when nothing is known. */
  recordOf(fn: FunctionVersion): object | null {
    return this.#builderOf(fn)?.recordOf?.(fn) ?? null
  }

  /** How far a function is with what it needs; null when it needs nothing, or nobody asked for it yet. */
  stateOf(fn: FunctionVersion): PreparationState | null {
    const build = this.#builds.get(fn.key)
    const waitsSince = build === undefined ? this.#ahead.waitsSince(fn) : null
    if (waitsSince !== null) return { state: 'preparing', since: waitsSince, error: null, step: LOOKING }
    if (build === undefined || !build.isNeeded || !isSameVersion(build.fn, fn)) return null
    const { state, since, error, isWork } = build
    const step = state !== 'pending' ? null : isWork ? 'waiting for a place' : LOOKING
    return { state: state === 'pending' ? 'preparing' : state, since, error, step }
  }

  /** Forgets functions that are gone and stops their builds. */
  retain(functions: ReadonlyMap<string, FunctionVersion>): void {
    if (functions === this.#functions) return
    this.#functions = functions
    this.#ahead.retain(functions)
    for (const builder of this.#options.builders) builder.retain?.(functions)
    for (const key of this.#reported.keys()) if (!functions.has(key)) this.#reported.delete(key)
    for (const [key, build] of this.#builds) {
      const fn = functions.get(key)
      if (fn !== undefined && !this.#isOutdated(build, fn)) continue
      stop(build)
      this.#builds.delete(key)
    }
  }

  /** True for a failure that something outside the function may have mended: another function's file, another tool's install. */
  #isOutdated({ state, stamp }: Build, fn: FunctionVersion): boolean {
    return state === 'failed' && stamp !== (this.#builderOf(fn)?.stampOf?.(fn) ?? stamp)
  }

  /** Stops what runs; resolves when every tool has ended. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#ahead.close()
    for (const build of this.#builds.values()) stop(build)
    await Promise.allSettled([...this.#builds.values()].map(build => build.done))
  }

  #mayRetry(build: Build): boolean {
    const { fn, state, error, since, change } = build
    if (state !== 'failed') return false
    if (this.#isOutdated(build, fn)) return true
    if (isPassing(error!) && this.#options.clock.monotonic() - since >= BUILD_RETRY_MS) return true
    // Its sources may have been half saved.
    return this.#changeOf(fn) !== change
  }

  #changeOf(fn: FunctionVersion): string | null {
    return this.#options.changeOf?.(fn) ?? null
  }

  #builderOf({ runtime }: FunctionVersion): Builder | undefined {
    return this.#options.builders.find(builder => builder.runtime === runtime)
  }

  async #run(build: Build): Promise<string | null> {
    const { clock, onBuilt } = this.#options
    this.#pending += 1
    // Not within the caller's turn: reading sources of many functions must not hold up a reload, or a request.
    await this.#line.enter(build)
    const startedAt = clock.monotonic()
    const functions = this.#functions
    try {
      const { binary, made } = await this.#ensure(build)
      build.state = 'ready'
      build.since = clock.monotonic()
      this.#reported.delete(build.fn.key)
      if (!build.isNeeded) this.#ready.add(build.fn)
      if (!build.isNeeded && this.#builds.get(build.fn.key) === build) this.#builds.delete(build.fn.key)
      if (made !== null) onBuilt({ fn: build.fn, durationMs: clock.monotonic() - startedAt, made })
      return binary
    } catch (thrown) {
      const known = this.#reported.get(build.fn.key)
      const found = this.#toError(thrown, build)
      const stamp = this.#toFailureStamp(build.fn, found)
      // A retry that fails as before is the same failure: it is not reported again, and calls do not report it either.
      const isSameFailure = known?.stamp === stamp && known.error.message === found.message
      const error = isSameFailure ? known.error : found
      build.error = error
      build.state = 'failed'
      if (this.#functions === functions) build.stamp = this.#builderOf(build.fn)?.stampOf?.(build.fn) ?? null
      build.since = clock.monotonic()
      if (!build.isStopped && !isSameFailure) {
        this.#reported.set(build.fn.key, { error, stamp })
        this.#noteFailure(build.fn, error)
      }
      throw error
    } finally {
      this.#pending -= 1
      if (this.#pending === 0) this.#report()
    }
  }

  /** The gateway writes manifests itself, so a failure of packages depends on the file that it names; one of a build on all sources. */
  #toFailureStamp(fn: FunctionVersion, { detail }: GatewayError): string {
    if (this.#builderOf(fn)?.ask === undefined || detail?.file === undefined) return fn.signature
    const rootPath = fn.entryPath.slice(0, -fn.entryFile.length)
    const file = statSync(join(rootPath, detail.file), { throwIfNoEntry: false })
    return `${file?.mtimeMs} ${file?.size}`
  }

  /** Functions of one folder share their packages, and folders that want the same share an install. */
  #noteFailure(fn: FunctionVersion, error: GatewayError): void {
    const cause = error.cause ?? `${fn.runtime} ${fn.fnDir} ${error.message}`
    const known = this.#failures.get(cause)
    if (known === undefined) this.#failures.set(cause, { error, functions: [fn] })
    else known.functions.push(fn)
    this.#reportTimer ??= this.#options.clock.setTimeout(() => this.#report(), REPORT_MS)
  }

  #report(): void {
    if (this.#reportTimer !== null) this.#options.clock.clearTimeout(this.#reportTimer)
    this.#reportTimer = null
    const failures = [...this.#failures.values()]
    this.#failures.clear()
    for (const { error, functions } of failures) {
      const [first, ...others] = functions
      this.#options.onFailure(first!, error, others)
    }
  }

  /** @returns the program, and what was made: null when all was there */
  async #ensure(build: Build): Promise<{ binary: string | null; made: Made | null }> {
    const { fn } = build
    const builder = this.#builderOf(fn)
    if (builder === undefined) throw new GatewayError('INTERNAL', `nothing builds ${fn.runtime} functions`)
    try {
      build.isNeeded = builder.isNeeded?.(fn) !== false
    } finally {
      if (build.isNeeded) build.change = this.#changeOf(fn)
    }
    if (!build.isNeeded) return { binary: null, made: null }
    const toolchain = await this.#toolchainOf(builder)
    const signal = signalOf(build)
    if (builder.isBusy?.(fn) === true) this.#tellWork(build)
    const plan = await this.#look(build, builder, toolchain)
    if (plan.isBuilt) return { binary: plan.binary, made: null }
    this.#tellWork(build)
    const places = placesOf(this.#places, builder, builder.concurrency)
    await places.take(build)
    try {
      if (signal.aborted) throw stopped()
      const made = await this.#withTools(builder, fn, signal, tools =>
        this.#watched(builder, fn, () => plan.build(tools)),
      )
      return { binary: plan.binary, made }
    } finally {
      places.leave()
    }
  }

  /** What is to be made. Who can do without is not kept waiting for longer than a moment. */
  async #look(build: Build, builder: Builder, toolchain: Toolchain): Promise<BuildPlan> {
    const { clock } = this.#options
    this.#checkManifests(build.fn, builder)
    const signal = signalOf(build)
    const timer = clock.setTimeout(() => this.#tellWork(build), LONG_LOOK_MS)
    // A save of all functions at once must not start a tool for each of them.
    const places = placesOf(this.#looks, builder, builder.looksAtOnce ?? Number.POSITIVE_INFINITY)
    await places.take(build)
    try {
      if (signal.aborted) throw stopped()
      return await this.#withTools(builder, build.fn, signal, tools => builder.plan(build.fn, toolchain, tools))
    } finally {
      places.leave()
      clock.clearTimeout(timer)
    }
  }

  /** Builders read manifests by their paths. @throws GatewayError for one that is not the function's own */
  #checkManifests({ fnDir, entryFile }: FunctionVersion, { manifests = [] }: Builder): void {
    const { readFile } = this.#options
    for (const name of readFile ? manifests : []) {
      try {
        readFile!(join(fnDir, name))
      } catch (error) {
        const { code, message } = error as NodeJS.ErrnoException
        if (code === 'NOT_OF_FUNCTION') throw sourceError(message, { file: toSibling(entryFile, name) })
      }
    }
  }

  #tellWork(build: Build): void {
    build.isWork = true
    for (const tell of build.onWork.splice(0)) tell()
  }

  /** The folder for temporary files is made when the first tool runs: most functions are ready as they are. */
  async #withTools<T>(
    builder: Builder,
    fn: FunctionVersion,
    signal: AbortSignal,
    work: (tools: BuildTools) => T | Promise<T>,
  ): Promise<T> {
    const made: { folder: OwnFolder; user: ToolUser | null }[] = []
    const toTools = (key: string): BuildTools => {
      let path: string | null = null
      const user = this.#options.toolUserOf?.(key) ?? null
      const toFolder = (): string => {
        if (path !== null) return path
        const folder = makeToolFolder(user?.folder ?? this.#options.temporaryFolder, this.#options.clock)
        made.push({ folder, user })
        user?.give(folder)
        path = folder.path
        return path
      }
      const tools = this.#toTools(builder, toFolder, signal, user)
      return { ...tools, forPack: folder => toTools(`pack ${folder}`) }
    }
    try {
      return await work(toTools(fn.key))
    } finally {
      for (const { folder, user } of made) {
        if (user === null) folder.removeAll()
        else user.remove(folder)
      }
    }
  }

  async #watched<T>({ action = 'building' }: Builder, fn: FunctionVersion, work: () => Promise<T>): Promise<T> {
    const { onBegin, onEnd } = this.#options
    onBegin(fn, action)
    try {
      return await work()
    } finally {
      onEnd(fn, action)
    }
  }

  /** Asked once for a program; a failure is asked again. */
  #toolchainOf(builder: Builder): Promise<Toolchain> {
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

  #toTools(builder: Builder, toFolder: () => string, signal: AbortSignal, user: ToolUser | null = null): BuildTools {
    const { clock, hostEnv, isPrivate, nice = 0 } = this.#options
    const owner = user === null ? (this.#options.toolOwner ?? null) : null
    const toOwn = () => builder.toEnv?.(hostEnv) ?? toToolHostEnv(hostEnv)
    const toBase = () => (user === null ? toOwn() : toUserToolEnv(toOwn(), user.home))
    const endsAt = clock.monotonic() + builder.timeoutMs
    return {
      signal,
      user,
      // One limit for all steps of a build.
      run: async ({ command, args, cwd, env, owns }) => {
        if (owns !== undefined) user?.give(owns)
        const asOwner = (await owner?.of(command)) ?? null
        const base = asOwner === null ? toBase() : owner!.toEnv(toBase())
        return runTool(
          {
            command,
            args,
            cwd,
            env: { ...base, TMPDIR: toFolder(), GOTMPDIR: toFolder(), ...env },
            timeoutMs: Math.max(1, endsAt - clock.monotonic()),
            isPlain: isPrivate,
            user: user ?? asOwner,
            nice,
            signal,
          },
          clock,
        )
      },
    }
  }

  #putFirst(build: Build): void {
    this.#line.putFirst(build)
    for (const places of [...this.#looks.values(), ...this.#places.values()]) places.putFirst(build)
  }

  #toError(thrown: unknown, build: Build): GatewayError {
    if (this.#isClosed) return new GatewayError('SHUTTING_DOWN', 'gateway is shutting down')
    if (build.isStopped) return stopped()
    if (thrown instanceof GatewayError) return thrown
    const { code, path, message } = thrown as NodeJS.ErrnoException
    const isFile = code !== undefined && path !== undefined
    return new GatewayError('LOAD_FAILED', `build failed: ${message}`, {
      cause: thrown,
      ...(isFile && {
        detail: {
          hint: `the gateway writes to .${build.fn.runtime}-build in the function's folder and to .svc in the functions root`,
        },
      }),
    })
  }
}

function placesOf(known: Map<Builder, Places<Build>>, builder: Builder, count: number): Places<Build> {
  const places = known.get(builder) ?? new Places<Build>(count)
  known.set(builder, places)
  return places
}

function toSibling(entryFile: string, name: string): string {
  return entryFile.slice(0, entryFile.lastIndexOf('/') + 1) + name
}
