/**
 * The workers of one function version: which one takes a call, when another starts, when one is stopped or killed.
 * The same rules hold for processes behind daemons and for Lua threads. Owner: §2.8, page runtime/worker-set.
 *
 *   dispatch -> a worker with room -> accept -> (reply | error | end)
 *            -> no room: backlog, in order -> the next worker that has room, or a new one after a short wait
 *            -> not prepared (built, installed): backlog, until it is
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { Backlog } from './backlog.ts'
import type { RuntimeCall } from './call.ts'
import { FAST_CALL_MS } from './call-pace.ts'
import { CrashLoop } from './crash-loop.ts'
import { Growth } from './growth.ts'
import { IdleWorkers } from './idle-workers.ts'
import { LoadRetry } from './load-retry.ts'
import { Preparation } from './preparation.ts'
import type { Preparer, Sockets } from './runtime.ts'
import { SocketTurns } from './socket-turns.ts'
import { STALL_MS, type Worker, type WorkerOwner } from './worker.ts'

/** Milliseconds between two looks at calls that wait for one-at-a-time workers; two without an answer start another. */
const GROW_LOOK_MS = 2
/** Milliseconds until warm workers that could not be started are tried again. */
const REWARM_MS = 1000

interface WorkerSetOptions {
  fn: FunctionVersion
  clock: Clock
  /** Most workers at once. */
  maxWorkers: number
  /** Workers that stay however long they idle. */
  minWarm: number
  idleTtlMs: number
  /** The sockets that calls take in turn; null when there is one. */
  sockets: Sockets | null
  /** Makes what the function needs before its first worker starts; null when it needs nothing. */
  preparer: Preparer | null
  /** True when no catalog has the function any more: the set serves what comes and ends when it is through. */
  isRetired?: boolean
  /** What of the function's files on disk is not as it was discovered, as text; null when nothing is. */
  changeOf?(): string | null
  /** The set of a newer version of the function; null while this one is in force, or when there is none. */
  successor?(): WorkerSet | null
  /** Makes a worker in state `starting`; `program` is what was prepared. */
  spawn(set: WorkerSet, program: string | null): Worker
  /** Output outside any call. */
  onLog(fn: FunctionVersion, stream: 'stdout' | 'stderr', text: string): void
  /** A worker loaded these source files: full real paths. Absent where nobody asks. */
  onFiles?(fn: FunctionVersion, files: readonly string[]): void
  /** A worker failed to load or ended by itself. */
  onFailure(fn: FunctionVersion, error: GatewayError): void
  /** A retired set has no workers left. */
  onEmpty(set: WorkerSet): void
}

export class WorkerSet implements WorkerOwner {
  readonly fn: FunctionVersion
  readonly clock: Clock
  readonly workers: Worker[] = []
  /** Answers of all workers so far. */
  answers = 0
  readonly #options: WorkerSetOptions
  readonly #backlog = new Backlog()
  readonly #preparation: Preparation
  readonly #growth = new Growth()
  readonly #loadRetry: LoadRetry
  #growTimer: NodeJS.Timeout | null = null
  readonly #idle: IdleWorkers
  #warmTimer: NodeJS.Timeout | null = null
  #minWarm: number
  readonly #crashLoop: CrashLoop
  #retired: boolean
  /** Null when there is one socket. */
  readonly #turns: SocketTurns | null

  constructor(options: WorkerSetOptions) {
    this.#options = options
    this.fn = options.fn
    this.clock = options.clock
    this.#minWarm = options.minWarm
    this.#crashLoop = new CrashLoop(options.clock)
    this.#turns = options.sockets === null ? null : new SocketTurns(options.sockets)
    this.#retired = options.isRetired ?? false
    this.#idle = new IdleWorkers({ ...options, workers: this.workers, minWarm: () => this.#minWarm })
    this.#loadRetry = new LoadRetry({
      clock: options.clock,
      changeOf: options.changeOf ?? (() => null),
      onDue: () => this.#handleSettled(),
    })
    this.#preparation = new Preparation({
      ...options,
      retry: this.#loadRetry,
      backlog: this.#backlog,
      onDone: () => this.#handlePrepared(),
      onFailed: () => this.#checkEmpty(),
    })
  }

  /** Why starts are delayed at the moment, null when they are not; for health. */
  get problem(): string | null {
    return this.#crashLoop.errorAt(this.clock.monotonic())?.message ?? null
  }

  dispatch(call: RuntimeCall): void {
    const now = call.handedAt === 0 ? this.clock.monotonic() : call.handedAt
    if (!this.#preparation.isDone) {
      call.phase = 'waiting'
      this.#preparation.hold(call, now)
      return
    }
    if (this.#turns?.isDue(now) === true) this.#spread(now, this.#turns.up())
    if (this.#backlog.isEmpty) {
      const worker = this.#pick(now)
      if (worker !== null) {
        worker.accept(call, now)
        return
      }
    }
    call.phase = 'waiting'
    call.startedAt = now
    this.#backlog.push(call)
    this.#grow(now)
  }

  /** True when a call would find a worker that has started. */
  get isWarm(): boolean {
    return this.workers.some(worker => worker.state === 'ready')
  }

  /** How many workers the function has at a socket: the next start goes where there are fewest. */
  readonly loadOf = (socketIndex: number): number => {
    let count = 0
    for (const worker of this.workers) if (worker.socketIndex === socketIndex) count++
    return count
  }

  /** Starts workers until there are `count`, and keeps that many. */
  warm(count: number): void {
    this.#minWarm = Math.min(count, this.#options.maxWorkers)
    if (!this.#preparation.isDone) {
      this.#preparation.begin()
      return
    }
    if (this.#loadRetry.isWaiting) return
    while (this.workers.length < this.#minWarm && this.problem === null) this.#start()
  }

  /** Runs what it has, takes nothing new, then ends. */
  retire(): void {
    this.#retired = true
    this.#minWarm = 0
    if (this.#warmTimer !== null) this.clock.clearTimeout(this.#warmTimer)
    this.#warmTimer = null
    for (const worker of [...this.workers]) {
      if (worker.inflight.size === 0 && this.#backlog.isEmpty) worker.stop()
    }
    this.#checkEmpty()
  }

  /** Takes out the calls that wait for what is not prepared or was half saved: a newer version of the function serves them. */
  takeHeld(): RuntimeCall[] {
    if (this.#preparation.isDone && !this.#loadRetry.isWaiting) return []
    this.#preparation.stop()
    this.#loadRetry.stop()
    const calls = this.#backlog.takeAll()
    this.#checkEmpty()
    return calls
  }

  /** Ends everything now; open calls fail with 503. */
  close(): void {
    this.#retired = true
    this.#clearTimers()
    this.#preparation.stop()
    this.#backlog.fail(new GatewayError('SHUTTING_DOWN', 'gateway is shutting down'))
    for (const worker of [...this.workers]) worker.kill()
    this.#checkEmpty()
  }

  // What workers report.

  handleAbandoned(): void {
    if (!this.#backlog.isEmpty) this.#grow(this.clock.monotonic())
  }

  onLog(stream: 'stdout' | 'stderr', text: string): void {
    this.#options.onLog(this.fn, stream, text)
  }

  onFiles(files: readonly string[]): void {
    this.#options.onFiles?.(this.fn, files)
  }

  handleSuccess(): void {
    this.#crashLoop.clear()
  }

  handleRoom(worker: Worker, now: number): void {
    if (worker.wantsCalls) {
      while (!this.#backlog.isEmpty && worker.hasRoom(now)) {
        const call = this.#backlog.shift()
        if (call !== null) worker.accept(call, now)
      }
    }
    if (worker.inflight.size > 0 || worker.state !== 'ready') return
    if (this.#retired) {
      if (this.#backlog.isEmpty) worker.stop()
    } else this.#idle.watch()
  }

  handleLoadFailure(worker: Worker, error: GatewayError, unbegun: RuntimeCall[]): void {
    this.#backlog.putBack(unbegun)
    if (this.#retired && this.#handOver()) return
    if (this.#loadRetry.wait(worker.startedAt)) {
      this.#drain(this.clock.monotonic())
      return
    }
    this.#crashLoop.note(error)
    this.#backlog.fail(error)
    this.#options.onFailure(this.fn, error)
    this.#checkEmpty()
  }

  handleWorkerEnd(unexpected: boolean, error: GatewayError, unbegun: RuntimeCall[]): void {
    const now = this.clock.monotonic()
    this.#backlog.putBack(unbegun)
    if (unexpected) {
      this.#crashLoop.note(error)
      this.#options.onFailure(this.fn, error)
      if (this.workers.length === 0 && this.problem !== null) this.#backlog.fail(error)
    }
    if (!this.#backlog.isEmpty) this.#grow(now)
    this.#keepWarm(now)
    this.#checkEmpty()
  }

  handleStartFailure(worker: Worker, error: GatewayError): void {
    this.forget(worker)
    if (this.workers.length === 0) this.#backlog.fail(error)
    this.#rewarm(REWARM_MS)
    this.#checkEmpty()
  }

  forget(worker: Worker): void {
    const at = this.workers.indexOf(worker)
    if (at >= 0) this.workers.splice(at, 1)
  }

  /** Gives what waits to the newer version of the function. @returns false when there is none */
  #handOver(): boolean {
    const successor = this.#options.successor?.() ?? null
    if (successor === null) return false
    for (const call of this.#backlog.takeAll()) successor.dispatch(call)
    this.#checkEmpty()
    return true
  }

  /** Files that could not be loaded while they were saved are whole by now. */
  #handleSettled(): void {
    if (this.#preparation.isDone) this.#handlePrepared()
    else this.#preparation.begin()
  }

  #handlePrepared(): void {
    const now = this.clock.monotonic()
    if (!this.#backlog.isEmpty) this.#grow(now)
    this.#keepWarm(now)
    this.#checkEmpty()
  }

  #pick(now: number): Worker | null {
    const { workers } = this
    if (this.#turns !== null) return this.#turns.pick(workers, now)
    // The first with room, idle or not: few workers that are busy cost less than many that each wake up for one call.
    let starting: Worker | null = null
    for (let i = 0; i < workers.length; i++) {
      const worker = workers[i]!
      if (!worker.hasRoom(now)) continue
      if (worker.state === 'ready') return worker
      starting ??= worker
    }
    // Only when none that is ready has room: a call would wait for the start.
    return starting
  }

  /** Gives every socket that is up a worker, at the cost of a spare one elsewhere when there are as many as may be. */
  #spread(now: number, up: readonly number[]): void {
    if (this.#retired || this.#crashLoop.errorAt(now) !== null) return
    for (const index of up) {
      if (this.loadOf(index) > 0) continue
      if (this.workers.length >= this.#options.maxWorkers) {
        const spare = this.workers.find(
          worker => worker.state === 'ready' && worker.inflight.size === 0 && this.loadOf(worker.socketIndex) > 1,
        )
        if (spare === undefined) return
        spare.stop()
      }
      this.#start()
    }
  }

  #grow(now: number, isLooking = false): void {
    if (this.#loadRetry.isWaiting) return
    if (this.workers.length === 0) {
      const error = this.#crashLoop.errorAt(now)
      if (error !== null) this.#backlog.fail(error)
      else {
        const worker = this.#start()
        // A start that fails at once has already failed the backlog.
        const call = this.#backlog.shift()
        if (call !== null) worker.accept(call, now)
      }
      if (this.#backlog.isEmpty) return
    }
    if (this.#growTimer !== null) return
    if (this.workers.length >= this.#options.maxWorkers && !this.workers.some(worker => worker.isForNobody)) return
    const oneAtATime = this.workers.every(worker => worker.maxInflight === 1)
    if (!isLooking) this.#growth.begin(oneAtATime ? null : this.answers)
    // A quick worker that is silent for so short a time waits for a processor, and another one would have to share it.
    const lookMs = this.workers.some(worker => worker.isQuick) ? FAST_CALL_MS : GROW_LOOK_MS
    this.#growTimer = this.clock.setTimeout(() => this.#growNow(), oneAtATime ? lookMs : STALL_MS)
  }

  /** Doubles the workers while calls keep waiting; one that is starting counts as help on its way. */
  #growNow(): void {
    this.#growTimer = null
    const now = this.clock.monotonic()
    const waiting = this.#backlog.size
    if (waiting === 0) return
    let starting = 0
    for (const worker of this.workers) if (worker.state === 'starting') starting++
    if (starting === 0 && this.#crashLoop.errorAt(now) === null) {
      const waitsSince = this.#backlog.first?.startedAt ?? null
      const look = { now, answers: this.answers, workerCount: this.workers.length, waitsSince }
      const room = this.#options.maxWorkers - this.workers.length || this.#reclaim(now)
      for (let i = Math.min(waiting, room, this.#growth.toAdd(look)); i > 0; i--) this.#start()
    }
    this.#drain(now)
    if (!this.#backlog.isEmpty) this.#grow(now, true)
  }

  /** Ends a worker that is busy for a client that left. @returns how many may be started in its place */
  #reclaim(now: number): number {
    const worker = this.workers.find(one => one.isForNobody && one.hadTimeToObey(now))
    worker?.kill()
    return worker === undefined ? 0 : 1
  }

  #drain(now: number): void {
    while (!this.#backlog.isEmpty) {
      const worker = this.#pick(now)
      if (worker === null) return
      const call = this.#backlog.shift()
      if (call !== null) worker.accept(call, now)
    }
  }

  #start(): Worker {
    const worker = this.#options.spawn(this, this.#preparation.program)
    if (worker.state === 'starting') this.workers.push(worker)
    return worker
  }

  /** Replaces warm workers that are gone, at once or when starts are no longer delayed: no call may come to do it. */
  #keepWarm(now: number): void {
    if (this.#retired || this.workers.length >= this.#minWarm) return
    if (this.problem === null) this.warm(this.#minWarm)
    else this.#rewarm(this.#crashLoop.blockedUntil - now)
  }

  #rewarm(delayMs: number): void {
    if (this.#retired || this.#warmTimer !== null || this.workers.length >= this.#minWarm) return
    this.#warmTimer = this.clock.setTimeout(() => {
      this.#warmTimer = null
      this.#keepWarm(this.clock.monotonic())
    }, delayMs)
  }

  #clearTimers(): void {
    if (this.#growTimer !== null) this.clock.clearTimeout(this.#growTimer)
    if (this.#warmTimer !== null) this.clock.clearTimeout(this.#warmTimer)
    this.#growTimer = this.#warmTimer = null
    this.#idle.close()
    this.#loadRetry.stop()
  }

  #checkEmpty(): void {
    if (this.#retired && this.workers.length === 0 && this.#backlog.isEmpty) {
      this.#clearTimers()
      this.#options.onEmpty(this)
    }
  }
}
