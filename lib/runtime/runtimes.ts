/** The enabled runtimes of one gateway. Owner: §1, §2.15 (`FN_RUNTIMES`, daemons, sockets, programs), page runtime/daemon. */

import { readFileSync } from 'node:fs'
import type { Settings } from '../config/settings.ts'
import { toUsers } from '../config/texts.ts'
import { BytePool, toBudgetBytes } from '../core/byte-pool.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, Timer } from '../core/clock.ts'
import { GatewayError, type Warning } from '../core/errors.ts'
import { toFunctionHostEnv } from '../core/host.ts'
import type { RuntimeName } from '../core/identity.ts'
import { escapeUnsafe } from '../core/text.ts'
import { findDifference, FolderReader, parseFolderContent } from '../files/folder-content.ts'
import type { ToolUser } from '../files/tool-user.ts'
import { UserSignals } from '../files/user-signals.ts'
import { findOnPath, findToolchain, toInstallAdvice } from './binaries.ts'
import type { DaemonEvent, Launch } from './daemon.ts'
import type { Debuggers } from './debuggers.ts'
import { Dispatcher } from './dispatcher.ts'
import { checkReachable } from './function-files.ts'
import { FunctionUsers, TempQuota, toLimits, UserProcesses } from './function-users.ts'
import { LuaRuntime } from './lua-runtime.ts'
import { runtimeFile, socketBases, SocketFolder } from './package-files.ts'
import type { Preparer, Runtime } from './runtime.ts'
import { SocketSet } from './socket-set.ts'
import { FLUSH_FRAMES } from './socket-worker.ts'
import type { FunctionEvents } from './worker-set.ts'
import type { StartFacts } from './worker.ts'
import { NO_TRUST } from './worker-socket.ts'

export interface RuntimesOptions extends FunctionEvents, Pick<StartFacts, 'toContext' | 'toPackDirs'> {
  settings: Settings
  clock: Clock
  /** Environment of this process; a daemon gets a few variables of it. */
  hostEnv: Readonly<Record<string, string | undefined>>
  /** True starts nothing: every runtime refuses its calls. */
  inspect?: boolean
  /** Makes what functions of a runtime need before their workers start; null or absent when they need nothing. */
  preparerOf?(name: RuntimeName): Preparer | null
  /** Runs a program to its end, in the background; never rejects. Absent: nothing is compiled ahead. */
  runAside?(run: AsideRun): Promise<void>
  /** True loads changed functions at once: mistakes are shown at the save. */
  loadsChanged?: boolean
  /** Null or absent where handlers are not debugged. */
  debuggers?: Debuggers | null
  onEvent(event: DaemonEvent): void
}

/** A program of this package. */
export interface AsideRun {
  command: string
  args: readonly string[]
  cwd: string
  env: Readonly<Record<string, string>>
  /** Aborting kills it. */
  signal: AbortSignal
}

/** Rights of a daemon that is not root, as `setpriv` takes them: it may only give each worker its user. */
const CHANGE_USER = '-all,+setuid,+setgid'
const SHARED_DAEMON = 'daemon/daemon.mjs'
/** Milliseconds between two signs that the folder for sockets is in use. */
const KEEP_FOLDER_MS = 20_000
/** Languages whose daemon is the shared one, which says nothing about their version. */
const COMPILED: ReadonlySet<RuntimeName> = new Set(['go', 'rust'])
/** Files of functions named in one warning. */
const MAX_NAMED_FILES = 5

export class Runtimes {
  /** By name, in the order of the settings; a runtime whose program appears later is added on `retain`. */
  readonly byName = new Map<RuntimeName, Runtime>()
  readonly dispatcher: Dispatcher
  /** Memory for bodies on their way from workers to clients. */
  readonly pool: BytePool
  readonly #options: RuntimesOptions
  readonly #facts: StartFacts
  readonly #folder: SocketFolder
  /** Null where all functions run as the gateway's user. */
  readonly #users: FunctionUsers | null
  readonly #signals = new UserSignals()
  readonly #userProcesses = new UserProcesses(this.#signals)
  readonly #tempQuota: TempQuota | null
  /** Null where nothing is compiled before it is called. */
  readonly #ahead: CompileAhead | null
  /** Default runtimes that were left out, and why. */
  readonly #missing = new Map<RuntimeName, string>()
  #functions: ReadonlyMap<string, FunctionVersion> = new Map()
  readonly #keepTimer: Timer
  #isClosed = false

  constructor(options: RuntimesOptions) {
    const { settings, clock, hostEnv, toContext, toPackDirs } = options
    const { functionsRoot, production, isolation, bodyMemoryMb, gatewayWorkers } = settings
    this.#options = options
    const { debuggers = null } = options
    this.#facts = { functionsRoot, production, toContext, toPackDirs }
    if (debuggers !== null) this.#facts.toDebug = fn => debuggers.toStart(fn)
    this.#keepTimer = new Timer(clock, true)
    this.pool = new BytePool(clock, undefined, toBudgetBytes(bodyMemoryMb, gatewayWorkers))
    const hasUsers = isolation === 'user'
    this.#users = hasUsers ? this.#createUsers() : null
    this.#folder = new SocketFolder(socketBases(hostEnv, hasUsers), undefined, hasUsers)
    this.dispatcher = new Dispatcher({ ...options, runtimes: this.byName, tenancy: this.#users })
    for (const name of settings.runtimes) this.#add(name)
    this.#ahead = this.#createAhead()
    this.#tempQuota = this.#createTempQuota()
  }

  /** As of `FunctionUsers`; null where all functions run as the gateway's user. */
  toolUserOf(key: string): ToolUser | null {
    return this.#users?.toolUserOf(key) ?? null
  }

  /**
   * Starts the runtimes that have functions; resolves when each is up or has a reason why not.
   * @throws Error when processes of functions' users could not be ended
   */
  async start(): Promise<void> {
    if (this.#options.inspect === true) return
    const problem = this.#users === null ? null : await this.#signals.start()
    if (problem !== null)
      throw new Error(`FN_ISOLATION cannot be user: no process can signal as another user: ${problem}`)
    void this.#folder.removeStale()
    if (!this.#isClosed) {
      this.#folder.keep()
      this.#keepTimer.repeat(KEEP_FOLDER_MS, () => this.#folder.keep())
    }
    await this.#options.debuggers?.start(this.#functions)
    const used = new Set([...this.#functions.values()].map(fn => fn.runtime))
    await Promise.all([...used].map(name => this.byName.get(name)?.start()))
  }

  /**
   * Takes over a new catalog's functions.
   * @returns warnings about functions whose runtime cannot run here
   */
  retain(functions: ReadonlyMap<string, FunctionVersion>): Warning[] {
    if (this.#isClosed) return []
    this.#functions = functions
    // A missing program may have been installed since.
    for (const name of [...this.#missing.keys()]) this.#add(name)
    const warnings = this.#users?.retain(functions) ?? []
    if (this.#options.inspect !== true) this.dispatcher.retain(functions)
    this.#ahead?.retain(functions)
    return [...warnings, ...[...this.#missing].flatMap(([name, problem]) => this.#toWarning(name, problem))]
  }

  /** @param timeoutMs - milliseconds that open calls may still take */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosed = true
    this.#keepTimer.clear()
    this.#tempQuota?.close()
    await this.#ahead?.close()
    await this.dispatcher.close(timeoutMs)
    await Promise.all([...this.byName.values()].map(runtime => runtime.close()))
    await this.#userProcesses.settle()
    this.#signals.close()
    this.#folder.remove()
  }

  /** Compiled code is kept where one user runs all functions; an external daemon has a separate folder. */
  #createAhead(): CompileAhead | null {
    const { clock, runAside, inspect, settings, hostEnv } = this.#options
    if (runAside === undefined || inspect === true || this.#users !== null) return null
    if (!settings.runtimes.includes('node') || this.#externalUris('node').length > 0) return null
    const { functionsRoot: cwd } = settings
    const script = runtimeFile('node/compile-ahead.mjs')
    return new CompileAhead(clock, async (files, signal) => {
      const command = this.#findProgram('node').path
      if (command === null || signal.aborted) return
      const args = [script, cwd, `${this.#folder.path()}/cache`, ...files]
      await runAside({ command, args, cwd, env: toFunctionHostEnv(hostEnv), signal })
    })
  }

  #createTempQuota(): TempQuota | null {
    const { clock, onEvent, inspect, settings } = this.#options
    const { functionTempMb: limitMb } = settings
    const users = this.#users
    if (users === null || limitMb === null || inspect === true) return null
    const onExceeded = (uid: number, usedMb: number | null): void => {
      const keys = users.keysOf(uid)
      const runtime = this.#functions.get(keys[0] ?? '')?.runtime
      const why = usedMb === null ? 'could not be measured in time' : `take ${usedMb} MB of ${limitMb}`
      const text = `${keys.join(', ')}: temporary files ${why} (FN_FUNCTION_TEMP_MB): the gateway killed its processes and deleted the files`
      if (runtime !== undefined) onEvent({ runtime, index: 0, kind: 'quota', text })
    }
    return new TempQuota({ clock, limitMb, signals: this.#signals, folders: users.folders, onExceeded })
  }

  #createUsers(): FunctionUsers {
    const { settings } = this.#options
    return new FunctionUsers({
      range: toUsers(settings.isolationUids).functions,
      limits: toLimits(settings),
      signals: this.#signals,
      functionsRoot: settings.functionsRoot,
      files: settings.isolationFiles,
      isServed: key => this.dispatcher.isServed(key),
    })
  }

  #add(name: RuntimeName): void {
    const { settings, inspect } = this.#options
    this.#missing.delete(name)
    if (inspect === true) this.byName.set(name, createInspectedRuntime(name))
    else if (name === 'lua') {
      const toReader: StartFacts['toReader'] = fn => this.#users?.idOf(fn.key) ?? null
      this.byName.set(name, new LuaRuntime(settings, { ...this.#facts, toReader }))
    } else {
      const program = this.#externalUris(name).length > 0 ? null : this.#findProgram(name)
      const problem = program?.problem ?? null
      if (problem !== null && !settings.runtimesExplicit) {
        this.#missing.set(name, problem)
        return
      }
      const runtime = this.#createSocketSet(name, program?.version)
      this.byName.set(name, runtime)
      // Asked for by name, it is shown as down with the reason, functions or not.
      if (problem !== null) void runtime.start()
    }
  }

  #createSocketSet(name: RuntimeName, version: string | undefined): SocketSet {
    const { clock, settings, preparerOf, onLog, onEvent } = this.#options
    const { runtimeDaemons, gatewayWorkers, runtimeSecret: secret, runtimeTlsCaFile: caFile } = settings
    const externalUris = this.#externalUris(name)
    // An external daemon has separate programs, folders and users.
    const isOwn = externalUris.length === 0
    const users = isOwn ? this.#users : null
    const onDifference = (text: string) => onEvent({ runtime: name, index: 0, kind: 'content', text })
    return new SocketSet({
      runtime: name,
      clock,
      pool: this.pool,
      externalUris,
      trust: isOwn ? NO_TRUST : { secret, ca: caFile === null ? null : readFileSync(caFile, 'utf8') },
      ...(!isOwn && { onContent: createContentCheck(settings.functionsRoot, onDifference) }),
      ...(COMPILED.has(name) && { toolchain: { version } }),
      daemonCount: runtimeDaemons[name] ?? 1,
      launch: index => this.#toLaunch(name, index),
      socketFolder: isOwn ? () => this.#folder.path() : null,
      preparer: isOwn ? (preparerOf?.(name) ?? null) : null,
      facts: this.#facts,
      userOf: (fn, program) => users?.userOf(fn, this.#folder.path(), program) ?? null,
      onUserLeft: uid => this.#userProcesses.leave(uid),
      killGroupOf: (uid, pid) => this.#signals.killGroup(uid, pid),
      // Other processes of the gateway connect to their workers themselves, and a function's user is known too late.
      flushFrames: gatewayWorkers === 1 ? FLUSH_FRAMES.alone : FLUSH_FRAMES.besideOthers,
      takesReady: isOwn && users === null && gatewayWorkers === 1,
      // A debugged worker must report its debugger before it loads.
      startsEarly: isOwn && name === 'node' && !this.#isDebugged(name),
      onLog: (key, stream, text) => {
        const fn = this.#functions.get(key)
        if (fn !== undefined) onLog(fn, stream, text)
      },
      onEvent,
    })
  }

  #externalUris(name: RuntimeName): readonly string[] {
    return this.#options.settings.runtimeSockets[name] ?? []
  }

  #findProgram(name: RuntimeName) {
    return findToolchain(name, this.#options.settings.binaries, this.#options.hostEnv)
  }

  /** @throws Error when the program or the folder for sockets is missing */
  #toLaunch(name: RuntimeName, index: number): Launch {
    const { functionsRoot: cwd, workerNice: nice } = this.#options.settings
    const program = this.#findProgram(name)
    if (program.path === null) throw new Error(program.problem)
    const socket = `${this.#folder.path()}/${name}-${index}.sock`
    // Compiled functions are served by the daemon of Node.js.
    const command = COMPILED.has(name) ? process.execPath : program.path
    const daemon = name === 'python' ? 'python/daemon.py' : name === 'php' ? 'php/daemon.php' : SHARED_DAEMON
    const flags = ['--socket', socket, '--index', String(index), '--root', cwd]
    const args = [...(name === 'python' ? ['-u'] : []), runtimeFile(daemon), ...flags]
    const launch = { command, args, env: this.#toEnv(name), cwd, nice, uri: `unix:${socket}` }
    if (this.#users === null) return launch
    this.#checkPrlimit(name)
    checkReachable([command, cwd, runtimeFile(SHARED_DAEMON)])
    return withoutNewPrivileges(launch, this.#options.hostEnv.PATH ?? '')
  }

  /** Python and PHP limit their workers themselves. @throws Error when a quota that is set cannot hold */
  #checkPrlimit(name: RuntimeName): void {
    const { settings, hostEnv } = this.#options
    const { functionProcesses, functionOpenFiles, functionTempMb } = settings
    const isSet = [functionProcesses, functionOpenFiles, functionTempMb].some(value => value !== null)
    if (!isSet || name === 'python' || name === 'php' || findOnPath('prlimit', hostEnv.PATH ?? '') !== null) return
    throw new Error('quotas of functions need prlimit: install it (apt-get install util-linux)')
  }

  #toEnv(name: RuntimeName): Record<string, string> {
    const env = toFunctionHostEnv(this.#options.hostEnv)
    env.FNGW_RUNTIME = name
    const isDebugged = this.#isDebugged(name)
    // A debugger takes memory of the process that it stops.
    env.FNGW_WORKER_MEMORY_MB = String(isDebugged ? 0 : this.#options.settings.workerMemoryMb)
    if (isDebugged) env[name === 'php' ? 'XDEBUG_MODE' : 'FNGW_DEBUG'] = name === 'php' ? 'debug' : '1'
    if (this.#users !== null) env.FNGW_ISOLATION = 'user'
    if (name !== 'node') return env
    // Which spare workers are worth keeping: TypeScript needs its compiler loaded.
    const styles = this.#listEntries('node').map(file => (/\.[mc]?ts$/.test(file) ? 'ts' : 'js'))
    env.FNGW_STYLES = [...new Set(styles)].sort().join(',') || 'js'
    return env
  }

  #isDebugged(name: RuntimeName): boolean {
    return this.#options.debuggers?.covers(name) === true
  }

  #listEntries(name: RuntimeName): string[] {
    const functions = [...this.#functions.values()]
    return functions.flatMap(({ runtime, entryFile }) => (runtime === name ? [entryFile] : [])).sort()
  }

  #toWarning(name: RuntimeName, problem: string): Warning[] {
    const files = this.#listEntries(name)
    const [path] = files
    if (path === undefined) return []
    const rest = files.length > MAX_NAMED_FILES ? ` and ${files.length - MAX_NAMED_FILES} more` : ''
    const message = `${problem}; not served: ${files.slice(0, MAX_NAMED_FILES).join(', ')}${rest}`
    return [{ code: 'RUNTIME_MISSING', path, message, hint: toInstallAdvice(name) }]
  }
}

/**
 * No program that it or its workers run gains rights by its file: neither `sudo` nor `ping` is more than its caller.
 * @throws Error when the system has no program for it
 */
function withoutNewPrivileges(launch: Launch, path: string): Launch {
  const setpriv = findOnPath('setpriv', path)
  if (setpriv === null) throw new Error('FN_ISOLATION=user needs setpriv: install it (apt-get install util-linux)')
  const powers = process.geteuid?.() === 0 ? [] : [`--inh-caps=${CHANGE_USER}`, `--ambient-caps=${CHANGE_USER}`]
  const args = ['--no-new-privs', ...powers, '--', launch.command, ...launch.args]
  return { ...launch, command: setpriv, args }
}

/**
 * Compares the functions of a daemon elsewhere with those of the gateway.
 * @param root - functions root, full path
 * @param onDifference - called with the first difference, once for each daemon and difference
 * @returns called when a daemon is up
 */
function createContentCheck(
  root: string,
  onDifference: (text: string) => void,
): (content: unknown, uri: string) => Promise<void> {
  const reader = new FolderReader(root)
  const reported = new Map<string, string>()
  return async (content, uri) => {
    const there = parseFolderContent(content)
    const here = there === null ? null : await reader.read()
    if (there === null || here === null) return
    const difference = findDifference(here, there, `at ${uri}`)
    if (difference !== null && reported.get(uri) !== difference) {
      const text = `the functions folder of the daemon at ${uri} is not the one of the gateway, ${root}: ${difference}`
      onDifference(escapeUnsafe(text))
    }
    reported.set(uri, difference ?? '')
  }
}

// A runtime that is only looked at: it starts nothing and refuses every call.

const REASON = 'not started: the tree is only looked at'

function createInspectedRuntime(name: RuntimeName): Runtime {
  const refusal = new GatewayError('RUNTIME_DOWN', `runtime down: ${name} is ${REASON}`)
  const refuse = (): never => {
    throw refusal
  }
  return {
    name,
    sockets: null,
    // A worker's requirements can never be met, so none is started.
    preparer: { prepare: async () => refuse(), toStep: () => REASON, waitMs: 0, prepareAhead: () => {} },
    maxWorkers: 1,
    start: () => Promise.resolve(),
    spawn: refuse,
    health: () => ({ up: false, reason: REASON, routing: 'single', version: null, sockets: [] }),
    close: () => Promise.resolve(),
  }
}

// TypeScript functions compiled in the background, by a separate program.

/** Milliseconds without a reload before it begins: starts, first calls after them and answers after a save come first. */
export const QUIET_MS = 100
/** Functions compiled ahead at most: with more of them few are ever called. */
export const MAX_AHEAD_FUNCTIONS = 1000
/** Functions of one program, and characters of their paths: an argument list has bounds. */
const MAX_FILES = 200
const MAX_PATH_CHARS = 64 * 1024

const TYPESCRIPT = /\.[mc]?ts$/

/** Compiles entry files, full paths. Aborting the signal ends it. */
type Compile = (files: readonly string[], signal: AbortSignal) => Promise<void>

export class CompileAhead {
  readonly #compile: Compile
  /** By full path of the entry file: the signature of the function that was compiled, or is about to be. */
  #known = new Map<string, string>()
  /** Full paths of entry files to compile, in order. */
  readonly #waiting = new Set<string>()
  readonly #abort = new AbortController()
  readonly #timer: Timer
  #running: Promise<void> | null = null

  constructor(clock: Clock, compile: Compile) {
    this.#compile = compile
    this.#timer = new Timer(clock, true)
  }

  /** Takes over a new catalog's functions: those that are new or changed are compiled once it is quiet. */
  retain(functions: ReadonlyMap<string, FunctionVersion>): void {
    const before = this.#known
    this.#known = new Map()
    for (const { runtime, entryPath, signature } of functions.values()) {
      // The last letters decide for most of ten thousand functions.
      if (runtime !== 'node' || !entryPath.endsWith('ts') || !TYPESCRIPT.test(entryPath)) continue
      if (this.#known.size === MAX_AHEAD_FUNCTIONS) break
      if (before.get(entryPath) !== signature) this.#waiting.add(entryPath)
      this.#known.set(entryPath, signature)
    }
    for (const path of this.#waiting) if (!this.#known.has(path)) this.#waiting.delete(path)
    this.#plan()
  }

  /** Resolves when nothing of it runs. */
  async close(): Promise<void> {
    this.#abort.abort()
    this.#waiting.clear()
    this.#timer.clear()
    await this.#running
  }

  #plan(): void {
    if (this.#waiting.size === 0) this.#timer.clear()
    else if (this.#running === null) this.#timer.set(QUIET_MS, () => this.#run())
  }

  #run(): void {
    const next = () => {
      this.#running = null
      this.#plan()
    }
    // The rest is compiled when it is called.
    this.#running = this.#compile(this.#takeFiles(), this.#abort.signal).then(next, next)
  }

  /** As many as one program takes. */
  #takeFiles(): string[] {
    const files: string[] = []
    let chars = 0
    for (const file of this.#waiting) {
      chars += file.length
      if (files.length === MAX_FILES || (chars > MAX_PATH_CHARS && files.length > 0)) break
      this.#waiting.delete(file)
      files.push(file)
    }
    return files
  }
}
