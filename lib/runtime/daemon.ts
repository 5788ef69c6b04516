/**
 * One daemon and its socket: started, watched, restarted with backoff, ended. Owner: §1, §2.15, page runtime/daemon.
 *
 *   idle -> starting -> up -> waiting -> starting ...      closed from everywhere
 *              └─ failed ─────^
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { rmSync } from 'node:fs'
import { backoffDelay, type Clock, Timer, within } from '../core/clock.ts'
import { lowerPriority } from '../core/host.ts'
import type { RuntimeName } from '../core/identity.ts'
import { findVersionProblem } from './binaries.ts'
import { ControlConnection, DAEMON_READY_TIMEOUT_MS, type DaemonInfo, type DaemonWorker } from './control-connection.ts'
import { endDaemon, killGroup, type StartedWorker, type WorkerExit, WorkerRecords } from './started-worker.ts'
import { type ReadyConnection, type ReadyWorker, ReadyWorkers } from './ready-workers.ts'
import type { PeerTrust } from './worker-socket.ts'

/** Restart delay of a daemon that dies: first, largest. It doubles while the daemon dies at its start. */
const RESTART_DELAY_MS = { first: 20, max: 8000 } as const
/** Milliseconds of being up after which the end of a daemon no longer counts as a death at its start. */
const SETTLED_MS = 1000

type DaemonState = 'idle' | 'starting' | 'up' | 'waiting' | 'closed'

/** Milliseconds between attempts to connect to a daemon that has just been spawned. */
const CONNECT_RETRY_MS = 5
/** Milliseconds to wait for the last line of a daemon that ended. */
const LAST_LINE_WAIT_MS = 50
/** Milliseconds that calls wait for a daemon elsewhere that was lost, while it is connected to again. */
const RECONNECT_WAIT_MS = 1000
/** Milliseconds after which a daemon hears that a worker which waited has its function. */
const ANNOUNCE_DELAY_MS = 15
/** Kept of the daemon's last line on stderr, for the reason. */
const MAX_REASON_CHARS = 300

export class Daemon {
  readonly index: number
  state: DaemonState = 'idle'
  /** Why it is in this state, in words. */
  reason = 'not started: no functions'
  uri: string
  info: DaemonInfo | null = null
  readonly #options: DaemonOptions
  readonly #workers = new WorkerRecords()
  /** Workers that wait for their function. */
  readonly #ready = new ReadyWorkers(id => this.#control?.stop(id, 0))
  #child: ChildProcess | null = null
  #control: ControlConnection | null = null
  /** A connection that is not ready yet. */
  #dialled: ControlConnection | null = null
  readonly #timer: Timer
  #failures = 0
  #upSince = 0
  #timesUp = 0
  #retryAt = 0
  #attemptAt = 0
  #lastLine = ''
  #lastFailure = ''
  /** Why it cannot start workers, whatever their functions; null while it can. */
  #trouble: string | null = null
  #changes: (() => void)[] = []

  constructor(options: DaemonOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock)
    this.index = options.index
    this.uri = options.externalUri ?? ''
  }

  /** The process, null where it is not ours; how often it came up again, and monotonic ms when it did last, null while it is not up. */
  get facts(): { pid: number | null; restarts: number; upSince: number | null } {
    const upSince = this.state === 'up' ? this.#upSince : null
    return { pid: this.#child?.pid ?? null, restarts: Math.max(0, this.#timesUp - 1), upSince }
  }

  /** Starts it when it was not yet needed. */
  ensureStarted(): void {
    if (this.state === 'idle') this.#attempt()
  }

  health(): SocketHealth {
    const { index, uri } = this
    let { reason } = this
    if (this.state === 'waiting') {
      const left = Math.max(0, Math.ceil(this.#retryAt - this.#options.clock.monotonic()))
      reason = `${reason}; ${this.#options.externalUri === null ? 'restarting' : 'reconnecting'} in ${left} ms`
    }
    if (this.state === 'up' && this.#trouble !== null) return { index, uri, up: false, reason: this.#trouble }
    // One that is not needed yet is not broken.
    return { index, uri, up: this.state === 'up' || this.state === 'idle', reason }
  }

  /** Milliseconds until it may be up: 0 while starting, Infinity when it is not going to be. */
  delay(now: number): number {
    // Calls do not wait for one elsewhere that was lost and does not accept a connection.
    const isLost = this.#options.externalUri !== null && this.#failures > 0
    if (this.state === 'starting')
      return isLost && now - this.#attemptAt >= RECONNECT_WAIT_MS ? Number.POSITIVE_INFINITY : 0
    return this.state === 'waiting' ? Math.max(0, this.#retryAt - now) : Number.POSITIVE_INFINITY
  }

  /** Resolves when the state changes next. */
  change(): Promise<void> {
    return new Promise(resolve => this.#changes.push(resolve))
  }

  /**
   * @param folder - full path where sockets are to be; null for a daemon that runs elsewhere
   * @throws Error with a reason
   */
  async startWorker(request: StartRequest, folder: string | null): Promise<StartedWorker> {
    const control = this.#control
    if (control === null || this.state !== 'up') throw new Error(this.reason)
    if (folder !== null && !this.uri.startsWith(`unix:${folder}/`)) {
      // Another user has the name of the folder now: nothing may be connected to there.
      this.#handleLost('its folder for sockets was replaced')
      throw new Error(this.reason)
    }
    const { entry, program, uid, mayBeReady } = request
    const ready = mayBeReady && uid === null ? this.#ready.take(entry, program) : null
    if (ready !== null) return this.#startReady(request, control, ready)
    return this.#workers.during(async () =>
      this.#follow(request, control, await control.start(request.toHeader(null)), null),
    )
  }

  /** Ends the daemon with its workers. */
  async close(): Promise<void> {
    if (this.state === 'closed') return
    this.#timer.clear()
    this.#set('closed', 'closed')
    const child = this.#child
    this.#control?.close()
    this.#control = null
    this.#dialled?.close()
    this.#dialled = null
    if (child !== null && child.exitCode === null && child.signalCode === null)
      await endDaemon(child, this.#options.clock)
    this.#dropWorkers('daemon stopped')
    this.#removeSocket()
  }

  /** Its connection is there, so the function's calls need not wait for the daemon's answer. */
  #startReady(request: StartRequest, control: ControlConnection, ready: ReadyWorker): StartedWorker {
    const started = this.#follow(request, control, ready, ready.connection)
    const fail = ({ message }: Error): void => {
      started.kill(0)
      this.#handleExited(ready.worker, { code: null, signal: null, reason: message })
    }
    // The daemon is not what the call waits for, and awake it would take the processor from those that are.
    const announce = async (): Promise<void> => {
      const { pid } = await control.start(request.toHeader(ready.worker))
      // One that waited for its program may have been offered before its process was there.
      const live = this.#workers.get(ready.worker)
      if (live !== undefined) live.pid = pid
    }
    this.#options.clock.setTimeout(() => announce().catch(fail), ANNOUNCE_DELAY_MS)
    return started
  }

  #follow(
    { key, uid }: StartRequest,
    control: ControlConnection,
    started: DaemonWorker,
    connection: ReadyConnection | null,
  ): StartedWorker {
    const id = started.worker
    const worker = this.#workers.add(id, { key, pid: started.pid, uid })
    const isHere = this.#options.externalUri === null
    return {
      id,
      uri: started.uri,
      isShared: started.uri === this.uri,
      trust: this.#options.trust,
      socketIndex: this.index,
      connection,
      // Of another machine, or another numbering of processes, it says nothing here.
      get pid() {
        return isHere && worker.pid > 1 ? worker.pid : null
      },
      kill: graceMs => {
        if (worker.exit === null) control.stop(id, graceMs)
      },
      onExit: listener => worker.listen(listener),
    }
  }

  #attempt(): void {
    const options = this.#options
    this.#timer.clear()
    this.#lastLine = ''
    this.#attemptAt = options.clock.monotonic()
    const isBack = options.externalUri !== null && this.#lastFailure !== ''
    this.#set('starting', isBack ? `${this.#lastFailure}; reconnecting` : 'starting')
    if (options.externalUri !== null) {
      this.#connect(reason => this.#fail(reason))
      return
    }
    let launch: Launch
    try {
      launch = options.launch()
    } catch (error) {
      this.#fail((error as Error).message)
      return
    }
    this.uri = launch.uri
    this.#removeSocket()
    const child = spawn(launch.command, launch.args, {
      cwd: launch.cwd,
      env: launch.env,
      // A separate group: Ctrl-C in the terminal is for the gateway, which first lets its requests finish.
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    const refusal = lowerPriority(child.pid, launch.nice)
    if (refusal !== null) this.#emit('output', refusal)
    this.#child = child
    this.#watch(child, launch)
  }

  #watch(child: ChildProcess, launch: Launch): void {
    const { clock } = this.#options
    const startedAt = clock.monotonic()
    child.stdin?.on('error', () => {})
    child.stdout?.on('data', bytes => this.#note(String(bytes), false))
    child.stderr?.on('data', bytes => this.#note(String(bytes), true))
    child.once('error', error => this.#handleChildEnd(child, `cannot run ${launch.command}: ${error.message}`))
    child.once('exit', (code, signal) => {
      const end = signal === null ? `exited with code ${code}` : `ended by ${signal}`
      // Its last line has the reason, but a process it left behind may hold the pipe open.
      const closed = new Promise(resolve => child.once('close', resolve))
      void within(clock, LAST_LINE_WAIT_MS, closed).then(() => {
        const reason = this.#lastLine === '' ? end : `${end}: ${this.#lastLine}`
        this.#handleChildEnd(child, reason, signal !== null)
      })
    })
    // It listens when it listens; until then a connection is refused.
    const retry = (reason: string) => {
      if (this.#child !== child || this.state !== 'starting') return
      if (clock.monotonic() - startedAt > DAEMON_READY_TIMEOUT_MS) {
        this.#lastLine = `not ready within ${DAEMON_READY_TIMEOUT_MS / 1000} s (${reason})`
        killGroup(child.pid)
        return
      }
      this.#timer.set(CONNECT_RETRY_MS, () => this.#connect(retry))
    }
    this.#connect(retry)
  }

  /** @param onRefused - the connection was lost before the daemon was ready */
  #connect(onRefused: (reason: string) => void): void {
    const { clock, trust } = this.#options
    const control = new ControlConnection(
      this.uri,
      clock,
      {
        onReady: info => this.#handleReady(control, info),
        onLost: reason => {
          if (this.#dialled === control) this.#dialled = null
          if (this.#control !== control) onRefused(reason)
          else this.#handleLost(reason)
        },
        onLog: (worker, stream, text) => {
          const live = this.#workers.get(worker)
          if (live !== undefined) this.#options.onLog(live.key, stream, text)
        },
        onExited: (worker, exit) => this.#handleExited(worker, exit),
        onOffered: this.#options.takesReady ? worker => this.#ready.add(worker) : undefined,
        onTrouble: reason => this.#handleTrouble(reason),
      },
      trust,
    )
    this.#dialled = control
  }

  #handleReady(control: ControlConnection, info: DaemonInfo): void {
    this.#dialled = null
    if (this.state !== 'starting') {
      control.close()
      return
    }
    const problem = findVersionProblem(this.#options.runtime, info.version)
    if (problem !== null) {
      control.close()
      this.#lastLine = problem
      if (this.#child === null) this.#fail(problem)
      else killGroup(this.#child.pid)
      return
    }
    this.#timer.clear()
    this.#control = control
    this.#trouble = null
    this.info = info
    this.#lastFailure = ''
    this.#upSince = this.#options.clock.monotonic()
    this.#timesUp += 1
    this.#set('up', 'ok')
    this.#emit('up', `${info.runtime} ${info.version}`)
    if (info.content !== undefined) this.#options.onContent?.(info.content, this.uri)
  }

  #handleTrouble(reason: string | null): void {
    const trouble = reason === null ? null : `no worker can be started: ${reason.slice(0, MAX_REASON_CHARS)}`
    if (trouble === this.#trouble) return
    this.#trouble = trouble
    if (trouble !== null) this.#emit('down', trouble)
  }

  /** The connection is gone. A daemon of ours is then of no use: its end follows and starts the next one. */
  #handleLost(reason: string): void {
    this.#control = null
    if (this.#child === null) {
      this.#dropWorkers(reason)
      this.#fail(reason)
      return
    }
    this.#lastLine ||= reason
    this.#set('starting', reason)
    killGroup(this.#child.pid)
  }

  #handleChildEnd(child: ChildProcess, reason: string, isKilled = false): void {
    if (this.#child !== child) return
    this.#child = null
    this.#control?.close()
    this.#control = null
    // Their sockets are private to this gateway; without the daemon nothing else would end them.
    this.#dropWorkers(`daemon ${reason}`)
    killGroup(child.pid)
    if (this.state !== 'closed') this.#fail(reason, isKilled)
  }

  #handleExited(id: string, exit: WorkerExit): void {
    this.#ready.drop(id)
    this.#workers.end(id, exit)
  }

  #dropWorkers(reason: string): void {
    this.#ready.clear()
    const isLocal = this.#options.externalUri === null
    this.#workers.endAll({ code: null, signal: null, reason, isOfDaemon: true }, ({ pid, uid }) => {
      if (!isLocal || pid <= 1) return
      if (uid !== null) this.#options.killGroupOf?.(uid, pid)
      killGroup(pid)
    })
  }

  #fail(reason: string, isKilled = false): void {
    const { clock } = this.#options
    const now = clock.monotonic()
    const isAtStart = this.#upSince === 0 || (!isKilled && now - this.#upSince < SETTLED_MS)
    if (!isAtStart) this.#failures = 0
    this.#upSince = 0
    const delay = backoffDelay(this.#failures, RESTART_DELAY_MS)
    this.#failures += 1
    this.#retryAt = now + delay
    this.#set('waiting', reason)
    // One line for a daemon that fails again and again for the same cause.
    if (this.#lastFailure !== reason) this.#emit('down', reason)
    this.#lastFailure = reason
    this.#timer.set(delay, () => this.#attempt())
  }

  #note(text: string, isError: boolean): void {
    this.#emit('output', text)
    const line = text.trimEnd().split('\n').at(-1)?.trim() ?? ''
    if (isError && line !== '') this.#lastLine = line.slice(0, MAX_REASON_CHARS)
  }

  #emit(kind: DaemonEvent['kind'], text: string): void {
    this.#options.onEvent({ runtime: this.#options.runtime, index: this.index, kind, text })
  }

  #set(state: DaemonState, reason: string): void {
    this.state = state
    this.reason = reason
    for (const resolve of this.#changes.splice(0)) resolve()
  }

  #removeSocket(): void {
    if (this.#options.externalUri === null && this.uri !== '') rmSync(this.uri.slice('unix:'.length), { force: true })
  }
}

// Options and events of a daemon.

export interface SocketHealth {
  /** From 1. */
  index: number
  uri: string
  up: boolean
  reason: string
}

/** How to start a daemon process. */
export interface Launch {
  command: string
  args: readonly string[]
  /** The whole environment. */
  env: Readonly<Record<string, string>>
  cwd: string
  /** Steps of priority below this process. */
  nice: number
  /** Where it will listen: `unix:/path`. */
  uri: string
}

/** A worker that is asked for. */
export interface StartRequest {
  /** Of the function, given back with the worker's output. */
  key: string
  /** Full path of its entry file. */
  entry: string
  /** Path of its program, null for a function that is not compiled. */
  program: string | null
  /** User that its handler runs as, null for the daemon's. */
  uid: number | null
  /** False where another process connects to it: then it cannot be one that this process is connected to. */
  mayBeReady: boolean
  /**
   * JSON text of the `start` frame.
   * @param worker - one that waits and shall have the function; null: the daemon chooses
   */
  toHeader(worker: string | null): string
}

/** An event of a daemon, for logs. */
export interface DaemonEvent {
  runtime: RuntimeName
  /** 0 where it is none of them alone. */
  index: number
  kind: 'up' | 'down' | 'output' | 'content' | 'quota'
  text: string
}

export interface DaemonOptions {
  runtime: RuntimeName
  /** From 1. */
  index: number
  clock: Clock
  /** Socket of an external daemon; then `launch` is not used. */
  externalUri: string | null
  /** The secret that such a daemon must prove. */
  trust: PeerTrust
  /** It may offer workers that wait for their function, to which a connection is opened ahead. Absent: it may not. */
  takesReady?: boolean
  /** @throws Error with a message for people, such as a missing program; asked again at every attempt */
  launch(): Launch
  /** Output of a worker outside any call, with the `key` its start was asked for. */
  onLog(key: string, stream: 'stdout' | 'stderr', text: string): void
  onEvent(event: DaemonEvent): void
  /** Kills the process group of a worker that runs as a user. Absent: no worker does. */
  killGroupOf?(uid: number, pid: number): void
  /** Such a daemon is up and reports the content of its functions folder. */
  onContent?(content: unknown, uri: string): void
}
