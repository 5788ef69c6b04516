/**
 * One daemon and its socket: started, watched, restarted with backoff, ended; with its workers.
 * Owner: §1, §2.15, pages runtime/daemon and runtime/ready-workers.
 *
 *   idle -> starting -> up -> waiting -> starting ...      closed from everywhere
 *              └─ failed ─────^
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { backoffDelay, type Clock, Timer, within } from '../core/clock.ts'
import { orNull } from '../core/errors.ts'
import { lowerPriority } from '../core/host.ts'
import type { RuntimeName } from '../core/identity.ts'
import { findVersionProblem } from './binaries.ts'
import {
  ControlConnection,
  DAEMON_READY_TIMEOUT_MS,
  type DaemonInfo,
  type DaemonWorker,
  type OfferedWorker,
} from './control-connection.ts'
import { ReadyConnection, type StartedWorker, WorkerEnd, type WorkerExit } from './socket-worker.ts'
import type { PeerTrust } from './worker-socket.ts'

/** Restart delay of a daemon that dies: first, largest. It doubles while the daemon dies at its start. */
const RESTART_DELAY_MS = { first: 20, max: 8000 } as const
/** Milliseconds of being up after which the end of a daemon no longer counts as a death at its start. */
const SETTLED_MS = 1000
/** Milliseconds between attempts to connect to a daemon that has just been spawned. */
const CONNECT_RETRY_MS = 5
/** Milliseconds to wait for the last line of a daemon that ended. */
const LAST_LINE_WAIT_MS = 50
/** Milliseconds that calls wait for a daemon elsewhere that was lost, while it is connected to again. */
const RECONNECT_WAIT_MS = 1000
/** Milliseconds after which a daemon hears that a worker which waited has its function. */
const ANNOUNCE_DELAY_MS = 15
/** Milliseconds a daemon has to end after its control input was closed. */
const STOP_GRACE_MS = 2000
/** Kept of the daemon's last line on stderr, for the reason. */
const MAX_REASON_CHARS = 300

type DaemonState = 'idle' | 'starting' | 'up' | 'waiting' | 'closed'

export class Daemon {
  readonly index: number
  state: DaemonState = 'idle'
  reason = 'not started: no functions'
  uri: string
  info: DaemonInfo | null = null
  readonly #options: DaemonOptions
  readonly #isElsewhere: boolean
  readonly #workers = new WorkerRecords()
  readonly #ready = new ReadyWorkers(id => this.#control?.stop(id, 0))
  readonly #timer: Timer
  #child: ChildProcess | null = null
  /** Of a daemon that is up, or is being connected to. */
  #control: ControlConnection | null = null
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
    this.#isElsewhere = options.externalUri !== null
    this.#timer = new Timer(options.clock)
    this.index = options.index
    this.uri = options.externalUri ?? ''
  }

  /** The process, null where it is not ours; how often it came up again, and monotonic ms when it did last, null while it is not up. */
  get facts(): { pid: number | null; restarts: number; upSince: number | null } {
    const upSince = this.state === 'up' ? this.#upSince : null
    return { pid: this.#child?.pid ?? null, restarts: Math.max(0, this.#timesUp - 1), upSince }
  }

  ensureStarted(): void {
    if (this.state === 'idle') this.#attempt()
  }

  health(): SocketHealth {
    const { index, uri, state, reason } = this
    if (state === 'up' && this.#trouble !== null) return { index, uri, up: false, reason: this.#trouble }
    if (state === 'waiting') {
      const left = Math.max(0, Math.ceil(this.#retryAt - this.#options.clock.monotonic()))
      const next = `${this.#isElsewhere ? 'reconnecting' : 'restarting'} in ${left} ms`
      return { index, uri, up: false, reason: `${reason}; ${next}` }
    }
    // One that is not needed yet is not broken.
    return { index, uri, up: state === 'up' || state === 'idle', reason }
  }

  /** Milliseconds until it may be up: 0 while starting, Infinity when it is not going to be. */
  delay(now: number): number {
    if (this.state === 'waiting') return Math.max(0, this.#retryAt - now)
    // Calls do not wait for one elsewhere that was lost and does not accept a connection.
    const isLost = this.#isElsewhere && this.#failures > 0 && now - this.#attemptAt >= RECONNECT_WAIT_MS
    return this.state === 'starting' && !isLost ? 0 : Number.POSITIVE_INFINITY
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
    const { fields, early, program } = request
    const ready = request.mayBeReady ? this.#ready.take(fields.entry, program) : null
    if (ready !== null) return this.#startReady(request, control, ready)
    return this.#workers.during(async () =>
      this.#follow(request, control, await control.start({ ...fields, early }), null),
    )
  }

  async close(): Promise<void> {
    if (this.state === 'closed') return
    this.#timer.clear()
    this.#set('closed', 'closed')
    const child = this.#child
    this.#disconnect()
    if (child !== null && child.exitCode === null && child.signalCode === null) {
      // An error: it never ran.
      const ended = once(child, 'exit').catch(() => [])
      // It ends at the end of its control input.
      child.stdin?.destroy()
      if ((await within(this.#options.clock, STOP_GRACE_MS, ended)) === null) killGroup(child.pid)
      await ended
    }
    this.#dropWorkers('daemon stopped')
    this.#removeSocket()
  }

  /** Its connection is there, so the function's calls need not wait for the daemon's answer. */
  #startReady({ fields, uid }: StartRequest, control: ControlConnection, ready: ReadyWorker): StartedWorker {
    const { worker } = ready
    const started = this.#follow({ fields, uid }, control, ready, ready.connection)
    // The daemon is not what the call waits for, and awake it would take the processor from those that are.
    this.#options.clock.setTimeout(
      () =>
        control.start({ ...fields, worker }).then(
          // One that waited for its program may have been offered before its process was there.
          ({ pid }) => this.#workers.setPid(worker, pid),
          ({ message }: Error) => {
            started.kill(0)
            this.#handleExited(worker, { code: null, signal: null, reason: message })
          },
        ),
      ANNOUNCE_DELAY_MS,
    )
    return started
  }

  #follow(
    { fields, uid }: Pick<StartRequest, 'fields' | 'uid'>,
    control: ControlConnection,
    { worker: id, uri, pid }: DaemonWorker,
    connection: ReadyConnection | null,
  ): StartedWorker {
    const worker = this.#workers.add(id, { key: fields.key, pid, uid })
    const isElsewhere = this.#isElsewhere
    return {
      id,
      uri,
      isShared: uri === this.uri,
      trust: this.#options.trust,
      socketIndex: this.index,
      connection,
      // Of another machine, or another numbering of processes, it says nothing here.
      get pid() {
        return !isElsewhere && worker.pid > 1 ? worker.pid : null
      },
      kill: graceMs => {
        if (worker.exit === null) control.stop(id, graceMs)
      },
      ended: worker.ended,
    }
  }

  #attempt(): void {
    const { clock, launch } = this.#options
    this.#lastLine = ''
    this.#attemptAt = clock.monotonic()
    const isBack = this.#isElsewhere && this.#lastFailure !== ''
    this.#set('starting', isBack ? `${this.#lastFailure}; reconnecting` : 'starting')
    try {
      if (!this.#isElsewhere) this.#spawn(launch())
      this.#connect()
    } catch (error) {
      this.#fail((error as Error).message)
    }
  }

  #spawn({ command, args, cwd, env, nice, uri }: Launch): void {
    this.uri = uri
    this.#removeSocket()
    // A separate group: Ctrl-C in the terminal is for the gateway, which first lets its requests finish.
    const child = spawn(command, args, { cwd, env, detached: true, stdio: ['pipe', 'pipe', 'pipe'] }) as ChildProcess
    this.#child = child
    const refusal = lowerPriority(child.pid, nice)
    if (refusal !== null) this.#emit('output', refusal)
    child.stdin?.on('error', () => {})
    child.stdout?.on('data', bytes => this.#emit('output', String(bytes)))
    child.stderr?.on('data', bytes => {
      this.#emit('output', String(bytes))
      const line = String(bytes).trimEnd().split('\n').at(-1)?.trim() ?? ''
      if (line !== '') this.#lastLine = line.slice(0, MAX_REASON_CHARS)
    })
    child.once('error', error => this.#handleChildEnd(child, `cannot run ${command}: ${error.message}`))
    child.once('exit', (code, signal) => {
      const end = signal === null ? `exited with code ${code}` : `ended by ${signal}`
      // Its last line has the reason, but a process it left behind may hold the pipe open.
      const closed = new Promise(resolve => child.once('close', resolve))
      void within(this.#options.clock, LAST_LINE_WAIT_MS, closed).then(() => {
        const reason = this.#lastLine === '' ? end : `${end}: ${this.#lastLine}`
        this.#handleChildEnd(child, reason, signal !== null)
      })
    })
  }

  #connect(): void {
    const { clock, trust, takesReady, onLog } = this.#options
    this.#control = new ControlConnection(
      this.uri,
      clock,
      {
        onReady: info => this.#handleReady(info),
        onLost: reason => this.#handleLost(reason),
        onLog: (worker, stream, text) => {
          const live = this.#workers.get(worker)
          if (live !== undefined) onLog(live.key, stream, text)
        },
        onExited: (worker, exit) => this.#handleExited(worker, exit),
        onOffered: takesReady ? worker => this.#ready.add(worker) : undefined,
        onTrouble: reason => this.#handleTrouble(reason),
      },
      trust,
    )
  }

  #handleReady(info: DaemonInfo): void {
    const { runtime, clock, onContent } = this.#options
    const problem = findVersionProblem(runtime, info.version)
    if (problem !== null) {
      if (this.#isElsewhere) this.#handleLost(problem)
      else this.#endChild(problem)
      return
    }
    this.#timer.clear()
    this.#trouble = null
    this.info = info
    this.#lastFailure = ''
    this.#upSince = clock.monotonic()
    this.#timesUp += 1
    this.#set('up', 'ok')
    this.#emit('up', `${info.runtime} ${info.version}`)
    if (info.content !== undefined) onContent?.(info.content, this.uri)
  }

  #handleTrouble(reason: string | null): void {
    const trouble = reason === null ? null : `no worker can be started: ${reason.slice(0, MAX_REASON_CHARS)}`
    if (trouble === this.#trouble) return
    this.#trouble = trouble
    if (trouble !== null) this.#emit('down', trouble)
  }

  /** The connection is gone, or was refused. */
  #handleLost(reason: string): void {
    if (this.#isElsewhere) {
      this.#disconnect()
      this.#dropWorkers(reason)
      this.#fail(reason)
    } else if (this.state === 'up') {
      this.#set('starting', reason)
      this.#endChild(this.#lastLine || reason)
    } else if (this.#options.clock.monotonic() - this.#attemptAt > DAEMON_READY_TIMEOUT_MS)
      this.#endChild(`not ready within ${DAEMON_READY_TIMEOUT_MS / 1000} s (${reason})`)
    // It listens when it listens; until then a connection is refused.
    else this.#timer.set(CONNECT_RETRY_MS, () => this.#connect())
  }

  /** A daemon of ours that is of no use: its end follows and starts the next one. */
  #endChild(line: string): void {
    this.#disconnect()
    this.#lastLine = line
    killGroup(this.#child?.pid)
  }

  #handleChildEnd(child: ChildProcess, reason: string, isKilled = false): void {
    if (this.#child !== child) return
    this.#child = null
    this.#disconnect()
    // Their sockets are private to this gateway; without the daemon nothing else would end them.
    this.#dropWorkers(`daemon ${reason}`)
    killGroup(child.pid)
    if (this.state !== 'closed') this.#fail(reason, isKilled)
  }

  #handleExited(id: string, exit: WorkerExit): void {
    this.#ready.drop(id)
    this.#workers.end(id, exit)
  }

  #disconnect(): void {
    this.#control?.close()
    this.#control = null
  }

  #dropWorkers(reason: string): void {
    this.#ready.clear()
    this.#workers.endAll({ code: null, signal: null, reason, isOfDaemon: true }, ({ pid, uid }) => {
      if (this.#isElsewhere || pid <= 1) return
      if (uid !== null) this.#options.killGroupOf?.(uid, pid)
      killGroup(pid)
    })
  }

  #fail(reason: string, isKilled = false): void {
    const now = this.#options.clock.monotonic()
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

  #emit(kind: DaemonEvent['kind'], text: string): void {
    this.#options.onEvent({ runtime: this.#options.runtime, index: this.index, kind, text })
  }

  #set(state: DaemonState, reason: string): void {
    this.state = state
    this.reason = reason
    for (const resolve of this.#changes.splice(0)) resolve()
  }

  #removeSocket(): void {
    if (!this.#isElsewhere && this.uri !== '') rmSync(this.uri.slice('unix:'.length), { force: true })
  }
}

/** Kills a process with everything in its group. One that has not made its group yet is killed first, so that it cannot start a process that is missed. */
export function killGroup(pid: number | undefined): void {
  if (pid === undefined || pid <= 1) return
  // One that is gone already is fine.
  for (const target of [pid, -pid]) orNull(() => process.kill(target, 'SIGKILL'))
}

// The workers of a daemon: those of functions, and those that wait for one.

/** Ends kept while starts are open: more are no daemon's that works. */
const MAX_EARLY_EXITS = 64
/** Workers that wait; a daemon of ours keeps one or two, and more are none that works. */
const MAX_READY = 8

interface WorkerFacts {
  /** Of its function, as its start was asked for. */
  key: string
  pid: number
  /** User of its handler, null for the daemon's. */
  uid: number | null
}

export type WorkerRecord = WorkerFacts & WorkerEnd

export class WorkerRecords {
  /** Workers that have not ended, by id. */
  readonly #live = new Map<string, WorkerRecord>()
  /** Starts whose answer is not here yet, or not taken over. */
  #opening = 0
  /** Exits reported before the start they belong to; only while a start is open. */
  readonly #earlyExits = new Map<string, WorkerExit>()

  /** @param start - asks for a worker and adds it */
  async during<T>(start: () => Promise<T>): Promise<T> {
    this.#opening += 1
    try {
      return await start()
    } finally {
      this.#opening -= 1
      if (this.#opening === 0) this.#earlyExits.clear()
    }
  }

  get(id: string): WorkerRecord | undefined {
    return this.#live.get(id)
  }

  setPid(id: string, pid: number): void {
    const live = this.#live.get(id)
    if (live !== undefined) live.pid = pid
  }

  /** A daemon that gives one id twice gets one record: all that hold it hear of its end. */
  add(id: string, facts: WorkerFacts): WorkerRecord {
    const record = Object.assign(this.#live.get(id) ?? new WorkerEnd(), facts)
    const exit = this.#earlyExits.get(id)
    this.#earlyExits.delete(id)
    if (exit === undefined) this.#live.set(id, record)
    else record.settle(exit)
    return record
  }

  end(id: string, exit: WorkerExit): void {
    const record = this.#live.get(id)
    this.#live.delete(id)
    if (record !== undefined) record.settle(exit)
    // It may have ended before its start was reported. Others have no owner.
    else if (this.#opening > 0 && this.#earlyExits.size < MAX_EARLY_EXITS) this.#earlyExits.set(id, exit)
  }

  /** @param kill - called for each before its exit is reported */
  endAll(exit: WorkerExit, kill: (record: WorkerRecord) => void): void {
    for (const [id, record] of this.#live) {
      kill(record)
      this.end(id, exit)
    }
  }
}

type ReadyWorker = OfferedWorker & { connection: ReadyConnection }

/** Workers that one daemon has offered and no function has taken, each with a connection that is open. */
export class ReadyWorkers {
  /** By id, oldest first. */
  readonly #workers = new Map<string, ReadyWorker>()
  readonly #onRefused: (worker: string) => void

  /** @param onRefused - it is of no use, and nothing else would end it */
  constructor(onRefused: (worker: string) => void) {
    this.#onRefused = onRefused
  }

  get size(): number {
    return this.#workers.size
  }

  add(offer: OfferedWorker): void {
    const { worker, uri, takesProgram } = offer
    if (this.#workers.size >= MAX_READY || this.#workers.has(worker) || !uri.startsWith('unix:')) {
      this.#onRefused(worker)
      return
    }
    const connection = new ReadyConnection(uri, !takesProgram, () => {
      this.drop(worker)
      this.#onRefused(worker)
    })
    this.#workers.set(worker, { ...offer, connection })
  }

  /**
   * The oldest that is prepared for such an entry file, or else for another: still faster than a new process.
   * @param program - of a compiled function, which the worker becomes at once
   */
  take(entry: string, program: string | null): ReadyWorker | null {
    // A path is sent as one line.
    if (program?.includes('\n')) return null
    const fitting = [...this.#workers.values()].filter(({ takesProgram }) => takesProgram === (program !== null))
    const isPrepared = ({ entries }: ReadyWorker): boolean =>
      entries.length === 0 || entries.some(end => entry.endsWith(end))
    const found = fitting.find(isPrepared) ?? fitting[0]
    if (found === undefined) return null
    this.#workers.delete(found.worker)
    if (program !== null) found.connection.begin(program)
    return found
  }

  /** Its process has ended, or it may not be used. */
  drop(id: string): void {
    this.#workers.get(id)?.connection.close()
    this.#workers.delete(id)
  }

  clear(): void {
    for (const id of this.#workers.keys()) this.drop(id)
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

export interface Launch {
  command: string
  args: readonly string[]
  env: Readonly<Record<string, string>>
  cwd: string
  /** Steps of priority below this process. */
  nice: number
  /** Where it will listen: `unix:/path`. */
  uri: string
}

export interface StartRequest {
  /** Of the daemon's `start` frame. */
  fields: { key: string; entry: string }
  /** JSON text of the worker's `start` frame, for a daemon that hands it on before the gateway is connected to the worker. */
  early: string | undefined
  /** Path of its program, null for a function that is not compiled. */
  program: string | null
  /** User that its handler runs as, null for the daemon's. */
  uid: number | null
  /** True if it may be one that waits, to which this process is connected. */
  mayBeReady: boolean
}

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
