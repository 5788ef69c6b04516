/**
 * The workers of one function version: which one takes a call, when another starts, when one is stopped or killed.
 * The same rules hold for processes behind daemons and for Lua threads. Owner: §2.8, page runtime/worker-set.
 *
 *   dispatch -> a worker with room -> accept -> (reply | error | end)
 *            -> no room: backlog, in order -> the next worker that has room, or a new one after a short wait
 *            -> not prepared (built, installed): backlog, until it is
 *            -> not loaded while the previous version runs: backlog, until it is, or the previous version
 */

import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, Timer } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { Backlog, LoadRetry, type LoadTurns, type OlderSet, Preparation, StandIn } from './backlog.ts'
import type { RuntimeCall } from './call.ts'
import { CrashLoop, Growth, type Processors, WarmWorkers } from './growth.ts'
import type { Preparer, Sockets } from './runtime.ts'
import { FAST_CALL_MS, STALL_MS, type Worker, type WorkerDebuggers, type WorkerOwner } from './worker.ts'

/** Milliseconds between two looks at calls that wait for one-at-a-time workers; two without an answer start another. */
const GROW_LOOK_MS = 2
/** Milliseconds until warm workers that could not be started are tried again. */
const REWARM_MS = 1000
/** Milliseconds that calls wait for a version to load before the previous one serves them. */
const LOAD_WAIT_MS = 2000
/** Milliseconds after which a call makes a version that failed try again, while the previous one serves. */
const LOAD_RETRY_MS = 10_000

export class WorkerSet implements WorkerOwner, OlderSet {
  readonly fn: FunctionVersion
  readonly clock: Clock
  readonly debuggers: WorkerDebuggers | null
  readonly workers: Worker[] = []
  /** Answers of all workers so far. */
  answers = 0
  readonly #options: WorkerSetOptions
  readonly #backlog = new Backlog()
  readonly #preparation: Preparation
  readonly #standIn: StandIn
  readonly #growth: Growth
  readonly #loadRetry: LoadRetry
  readonly #growTimer: Timer
  readonly #warm: WarmWorkers
  readonly #crashLoop: CrashLoop
  #retired: boolean
  /** True once a worker has loaded the function, also when none is left. */
  isLoaded = false
  /** Why the function cannot be built, installed or loaded; null when it can, or that was not tried. */
  loadError: GatewayError | null = null
  /** Monotonic ms when that was found. */
  #failedAt = 0
  /** True while it is to be loaded without a call. */
  #isLoading = false
  readonly #loadTimer: Timer
  /** True when the function's files are those of a newer version: no worker that would read them may start. */
  #isFrozen = false
  /** Null when there is one socket. */
  readonly #turns: SocketTurns | null

  constructor(options: WorkerSetOptions) {
    this.#options = options
    this.fn = options.fn
    this.clock = options.clock
    this.debuggers = options.debuggers ?? null
    this.#growTimer = new Timer(options.clock)
    this.#loadTimer = new Timer(options.clock)
    this.#growth = new Growth(options.clock, options.processors ?? null)
    this.#crashLoop = new CrashLoop(options.clock)
    this.#turns = options.sockets === null ? null : new SocketTurns(options.sockets)
    this.#retired = options.isRetired ?? false
    this.#standIn = new StandIn(options.older ?? null)
    this.#warm = new WarmWorkers({
      ...options,
      crashLoop: this.#crashLoop,
      workers: this.workers,
      mayStart: () => this.#preparation.isDone && !this.#loadRetry.isWaiting && !this.#isFrozen,
      start: () => this.#start(),
    })
    this.#loadRetry = new LoadRetry({
      clock: options.clock,
      changeOf: () => options.changeOf?.(options.fn) ?? null,
      onDue: () => this.#handleSettled(),
    })
    this.#preparation = new Preparation({
      ...options,
      retry: this.#loadRetry,
      standIn: this.#standIn,
      backlog: this.#backlog,
      onDone: () => this.#handlePrepared(),
      onFailed: error => this.#handleBroken(error),
    })
  }

  /** Why starts are delayed now, null when they are not; for health. */
  get problem(): string | null {
    return this.#crashLoop.errorAt(this.clock.monotonic())?.message ?? null
  }

  dispatch(call: RuntimeCall): void {
    const now = call.handedAt === 0 ? this.clock.monotonic() : call.handedAt
    if (!this.isLoaded && this.#standIn.canServe) {
      if (this.loadError !== null && now - this.#failedAt >= LOAD_RETRY_MS) this.load()
      if (this.#standIn.take(call)) return
      if (this.#preparation.isDone) {
        this.#backlog.push(call, now)
        this.startLoad()
        return
      }
    }
    if (!this.#preparation.isDone) {
      this.#preparation.hold(call, now)
      return
    }
    if (this.#turns?.isDue(now) === true) this.#spread(now)
    if (this.#backlog.isEmpty) {
      const worker = this.#pick(now)
      if (worker !== null) {
        worker.accept(call, now)
        return
      }
    }
    this.#backlog.push(call, now)
    this.#grow(now)
  }

  /** The last growth decision; null if there was none. */
  get growth(): Growth['decision'] {
    return this.#growth.decision
  }

  /** True when a call would find a worker that has started. */
  get isWarm(): boolean {
    return this.workers.some(worker => worker.state === 'ready')
  }

  /** How many workers the function has at a socket: the next start goes where there are fewest. */
  loadOf(socketIndex: number): number {
    return this.workers.filter(worker => worker.socketIndex === socketIndex).length
  }

  /** Starts workers until there are `count`, and keeps that many. */
  warm(count: number): void {
    this.#warm.wanted = Math.min(count, this.#maxWorkers)
    this.#preparation.begin()
    this.#warm.fill()
  }

  /** Makes what its workers need and starts the first one, before a call asks for it. */
  load(): void {
    if (this.isLoaded || this.#retired) return
    this.#isLoading = true
    this.#failedAt = this.clock.monotonic()
    if (this.#preparation.isDone) this.#takeLoadTurn()
    else this.#preparation.begin()
  }

  /** Starts the first worker. Calls are not sent along: they are the previous version's if it cannot load. */
  startLoad(): void {
    if (this.workers.length > 0 || this.#loadRetry.isWaiting) return
    // A request that is to be debugged is for the newest version, whose worker takes long to start.
    if (this.#isHeld && !this.#loadTimer.isSet && this.debuggers === null)
      this.#loadTimer.set(LOAD_WAIT_MS, () => this.#standIn.begin(this.#backlog))
    this.#start()
  }

  /** The set whose workers take its calls: that of the previous version while this one is not loaded. */
  get serving(): OlderSet {
    return this.#standIn.serving ?? this
  }

  /**
   * A newer version is in force: takes this set out of it.
   * @returns the set that runs until the newer one is loaded: itself, the one it waited with, or null when nothing runs
   */
  standIn(): OlderSet | null {
    if (!this.isLoaded) return this.#standIn.pass()
    const isProgram = this.#preparation.program !== null
    if (!isProgram && !this.isWarm) return null
    // A compiled program stays the same; other workers read the folder when they start.
    this.#isFrozen = !isProgram
    if (this.#isFrozen) this.#warm.wanted = this.workers.length
    return this
  }

  get canServe(): boolean {
    return !this.#isFrozen || this.isWarm
  }

  leave(isReplaced: boolean): void {
    if (isReplaced) this.#handOver()
    this.retire()
  }

  /** Fewer workers need to stay than before. */
  watchIdle(): void {
    if (!this.#retired) this.#warm.watchIdle()
  }

  /** Runs what it has, takes nothing new, then ends. */
  retire(): void {
    this.#retired = true
    this.#warm.end()
    this.#endLoad()
    this.#standIn.end(false)
    for (const worker of [...this.workers]) {
      if (worker.inflight.size === 0 && this.#backlog.isEmpty) worker.stop()
    }
    this.#checkEmpty()
  }

  /** Takes out the calls that wait for what is not ready or was half saved: a newer version of the function serves them. */
  takeHeld(): RuntimeCall[] {
    if (this.#preparation.isDone && !this.#loadRetry.isWaiting && !this.#isHeld) return []
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

  // Reports of workers.

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
    if (!this.isLoaded || this.loadError !== null) this.#handleLoaded(now)
    if (worker.wantsCalls) {
      while (!this.#backlog.isEmpty && worker.hasRoom(now)) {
        const call = this.#backlog.shift()
        if (call !== null) worker.accept(call, now)
      }
    }
    if (worker.inflight.size > 0 || worker.state !== 'ready') return
    if (this.#retired) {
      if (this.#backlog.isEmpty) worker.stop()
    } else this.#warm.watchIdle()
  }

  handleLoadFailure(worker: Worker, error: GatewayError, unbegun: RuntimeCall[]): void {
    this.#backlog.putBack(unbegun)
    if ((this.#retired || this.#isFrozen) && this.#handOver()) return
    if (this.#loadRetry.wait(worker.startedAt)) {
      this.#drain(this.clock.monotonic())
      return
    }
    this.#crashLoop.note(error)
    this.#handleBroken(error, this.#options.onFailure)
  }

  handleWorkerEnd(unexpected: boolean, error: GatewayError, unbegun: RuntimeCall[]): void {
    const now = this.clock.monotonic()
    this.#backlog.putBack(unbegun)
    if (!this.isLoaded && this.workers.length === 0) this.#endLoad()
    if (unexpected) {
      this.#crashLoop.note(error)
      if (this.#isHeld && this.workers.length === 0) this.#handleBroken(error, this.#options.onFailure)
      else {
        this.#options.onFailure(this.fn, error)
        if (this.workers.length === 0 && this.problem !== null) this.#backlog.fail(error)
      }
    }
    if (!this.#backlog.isEmpty) this.#grow(now)
    this.#warm.fill()
    this.#checkEmpty()
  }

  handleStartFailure(worker: Worker, error: GatewayError): void {
    this.forget(worker)
    if (this.workers.length === 0) {
      if (this.#isHeld) this.#handleBroken(error)
      else this.#backlog.fail(error)
      this.#endLoad()
    }
    this.#warm.fillLater(REWARM_MS)
    this.#checkEmpty()
  }

  forget(worker: Worker): void {
    const at = this.workers.indexOf(worker)
    if (at >= 0) this.workers.splice(at, 1)
  }

  /** Gives what waits to the set that is in force. @returns false when there is none */
  #handOver(): boolean {
    const successor = this.#options.successor?.() ?? null
    if (successor === null) return false
    for (const call of this.#backlog.takeAll()) {
      call.loadError = null
      successor.dispatch(call)
    }
    this.#checkEmpty()
    return true
  }

  /** Files that could not be loaded while they were saved are whole by now. */
  #handleSettled(): void {
    if (this.#preparation.isDone) this.#handlePrepared()
    else this.#preparation.begin()
  }

  #handlePrepared(): void {
    this.#standIn.pause()
    if (!this.#backlog.isEmpty) this.#grow(this.clock.monotonic())
    if (this.#isLoading) this.#takeLoadTurn()
    this.#warm.fill()
    this.#checkEmpty()
  }

  /** True while calls wait for the first worker to load, because the previous version can serve them if it does not. */
  get #isHeld(): boolean {
    return !this.isLoaded && this.#standIn.canServe
  }

  #takeLoadTurn(): void {
    if (this.#options.loads?.take(this) !== false) this.startLoad()
  }

  #endLoad(): void {
    this.#isLoading = false
    this.#options.loads?.leave(this)
    this.#loadTimer.clear()
  }

  /** A worker has loaded the function: the previous version is not needed any more. */
  #handleLoaded(now: number): void {
    const isFix = !this.isLoaded && (this.loadError !== null || this.#options.isFix === true)
    this.isLoaded = true
    this.loadError = null
    this.#endLoad()
    // Those that wait at the previous version came first.
    const later = this.#backlog.takeAll()
    this.#standIn.end(true)
    for (const call of later) this.#backlog.push(call, call.startedAt)
    if (isFix) this.#options.onFixed?.(this.fn)
    if (!this.#backlog.isEmpty) this.#grow(now)
    this.#warm.fill()
  }

  /**
   * It cannot serve: the previous version does, or every call that waits gets the reason.
   * @param report - absent where the failure was reported already
   */
  #handleBroken(error: GatewayError, report: WorkerSetOptions['onFailure'] | null = null): void {
    const isNews = error.message !== this.loadError?.message
    const isFirst = this.loadError === null
    this.loadError = error
    this.#failedAt = this.clock.monotonic()
    this.#endLoad()
    this.#standIn.begin(this.#backlog, error)
    this.#backlog.fail(error)
    // A retry that fails as before is not reported again.
    if (isNews) report?.(this.fn, error)
    if (isFirst && this.#standIn.serving !== null) this.#options.onStandIn?.(this.fn)
    this.#checkEmpty()
  }

  get #maxWorkers(): number {
    return this.#isFrozen ? 0 : this.#options.maxWorkers
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
  #spread(now: number): void {
    if (this.#retired || this.#isFrozen || this.#crashLoop.errorAt(now) !== null) return
    for (const index of this.#options.sockets!.up()) {
      if (this.loadOf(index) > 0) continue
      if (this.workers.length >= this.#maxWorkers) {
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
    if (this.#isHeld) {
      this.startLoad()
      return
    }
    if (this.workers.length === 0) {
      if (this.#isFrozen && this.#handOver()) return
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
    if (this.#growTimer.isSet) return
    if (this.workers.length >= this.#maxWorkers && !this.workers.some(worker => worker.isForNobody)) return
    const oneAtATime = this.workers.every(worker => worker.maxInflight === 1)
    if (!isLooking) this.#growth.begin(oneAtATime ? null : this.answers)
    // A quick worker that is silent for so short a time waits for a processor, and another one would have to share it.
    const lookMs = this.workers.some(worker => worker.isQuick) ? FAST_CALL_MS : GROW_LOOK_MS
    this.#growTimer.set(oneAtATime ? lookMs : STALL_MS, () => this.#growNow())
  }

  /** Doubles the workers while calls keep waiting; one that is starting counts as help on its way. */
  #growNow(): void {
    const now = this.clock.monotonic()
    const waiting = this.#backlog.size
    if (waiting === 0) return
    const isHelpComing = this.workers.some(({ state }) => state === 'starting')
    // Calls wait for the worker whose code a debugger has stopped: in another one its breakpoints would not be set.
    const isStopped = this.workers[0]?.isDebugged === true
    if (!isHelpComing && !isStopped && this.#crashLoop.errorAt(now) === null) {
      const waitsSince = this.#backlog.first?.startedAt ?? null
      const look = { now, answers: this.answers, workerCount: this.workers.length, waitsSince }
      const wanted = Math.min(waiting, this.#growth.toAdd(look))
      const count = wanted > 0 || this.workers.length >= this.#maxWorkers ? Math.min(wanted, this.#roomAt(now)) : 0
      for (let i = 0; i < count; i++) this.#start()
      if (count > 0) this.#growth.noteAdded(now)
    }
    this.#drain(now)
    if (!this.#backlog.isEmpty) this.#grow(now, true)
  }

  /** How many workers may be started. */
  #roomAt(now: number): number {
    const { length } = this.workers
    const busy = this.workers.filter(({ activity }) => activity === 'busy')
    const limit = length < this.#maxWorkers ? this.#growth.limit(now, length, busy) : length
    if (limit === null) return 0
    if (limit > length) return Math.min(limit, this.#maxWorkers) - length
    // One that is busy for a client that left makes room.
    const worker = this.workers.find(one => one.isForNobody && one.hadTimeToObey(now))
    worker?.kill()
    return worker === undefined ? 0 : 1
  }

  #drain(now: number): void {
    if (this.#isHeld) return
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

  #clearTimers(): void {
    this.#growTimer.clear()
    this.#warm.close()
    this.#loadRetry.stop()
    this.#endLoad()
  }

  #checkEmpty(): void {
    if (this.#retired && this.workers.length === 0 && this.#backlog.isEmpty) {
      this.#clearTimers()
      this.#options.onEmpty()
    }
  }
}

// Which socket of a runtime has its turn: the calls of one function go to its sockets one after the other, and each socket
// that is up gets a worker.

/** Milliseconds between two looks whether every socket has a worker of a function that is called. */
const SPREAD_INTERVAL_MS = 250

class SocketTurns {
  readonly #sockets: Sockets
  /** Index (from 1) of the socket that got the last call; 0 before the first of all. */
  #last: number
  /** Monotonic ms of the next look. */
  #lookAt = 0

  constructor(sockets: Sockets) {
    this.#sockets = sockets
    this.#last = sockets.begin()
  }

  /** Of the idle workers, else of those with room: the one whose socket is next. */
  pick(workers: readonly Worker[], now: number): Worker | null {
    const { count } = this.#sockets
    let best: Worker | null = null
    let bestRank = Number.POSITIVE_INFINITY
    for (const worker of workers) {
      if (!worker.hasRoom(now)) continue
      const turn = (worker.socketIndex - this.#last - 1 + count) % count
      const rank = (worker.inflight.size > 0 ? 2 : worker.state === 'ready' ? 0 : 1) * count + turn
      if (rank >= bestRank) continue
      best = worker
      bestRank = rank
    }
    if (best !== null) this.#last = best.socketIndex
    return best
  }

  /** True when it is time to look for sockets without a worker; a look at every call would try the same ones again and again. */
  isDue(now: number): boolean {
    if (now < this.#lookAt) return false
    this.#lookAt = now + SPREAD_INTERVAL_MS
    return true
  }
}

/** Reports of the workers of functions, and a question about a function's files. */
export interface FunctionEvents {
  /** Differences between a function's files on disk and as discovered, as text; null if none. */
  changeOf?(fn: FunctionVersion): string | null
  /** Output outside any call. */
  onLog(fn: FunctionVersion, stream: 'stdout' | 'stderr', text: string): void
  /** A worker loaded these source files: full real paths. */
  onFiles?(fn: FunctionVersion, files: readonly string[]): void
  /** A worker failed to load or ended by itself. */
  onFailure(fn: FunctionVersion, error: GatewayError): void
  /** A version cannot be loaded, and the previous one serves. */
  onStandIn?(fn: FunctionVersion): void
  /** A version is loaded after one that could not be. */
  onFixed?(fn: FunctionVersion): void
}

interface WorkerSetOptions extends FunctionEvents {
  fn: FunctionVersion
  clock: Clock
  /** Null or absent where handlers are not debugged. */
  debuggers?: WorkerDebuggers | null
  /** Most workers at once. */
  maxWorkers: number
  /** Bound the workers of a function that computes. Absent: nothing is known of them. */
  processors?: Processors
  /** Workers that stay however long they idle. */
  minWarm: number
  idleTtlMs: number
  /** The sockets that calls take in turn; null when there is one. */
  sockets: Sockets | null
  /** Makes what the function needs before its first worker starts; null when it needs nothing. */
  preparer: Preparer | null
  /** The set of the previous version, which runs until this one is loaded; null or absent when there is none. */
  older?: OlderSet | null
  /** True when the version that it replaces could not be loaded. */
  isFix?: boolean
  /** True when no catalog has the function any more: the set serves what comes and ends when it is through. */
  isRetired?: boolean
  /** True while another process calls workers of the function: one stays here, to serve when a newer version cannot be loaded. */
  isLent?(): boolean
  /** The set that is in force, for one that is not any more; null when there is none. */
  successor?(): { dispatch(call: RuntimeCall): void } | null
  /** Bounds how many functions load at once when no call waits for them. Absent: nothing bounds them. */
  loads?: LoadTurns
  /** Makes a worker in state `starting`; `program` is what was prepared. */
  spawn(set: WorkerOwner, program: string | null): Worker
  /** A retired set has no workers left. */
  onEmpty(): void
}
