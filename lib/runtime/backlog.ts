/** Calls that wait for a worker, oldest first. Owner: page runtime/worker-set. */

import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, Timer } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { BUILD_RETRY_AFTER_SECONDS } from '../core/limits.ts'
import type { RuntimeCall } from './call.ts'
import type { Preparer } from './runtime.ts'

/** Calls in front that were taken already and are not yet dropped from the list: dropping each by itself would move all. */
const MAX_TAKEN = 1024

export class Backlog {
  #calls: RuntimeCall[] = []
  /** Where the oldest one lies. */
  #at = 0

  /** Withdrawn calls count until their turn comes. */
  get size(): number {
    return this.#calls.length - this.#at
  }

  get isEmpty(): boolean {
    return this.#at === this.#calls.length
  }

  get first(): RuntimeCall | undefined {
    return this.#calls[this.#at]
  }

  /** @param now - monotonic ms since when it waits */
  push(call: RuntimeCall, now: number): void {
    call.phase = 'waiting'
    call.startedAt = now
    this.#calls.push(call)
  }

  /** Calls that a worker had and certainly did not begin wait for another one, before all others and in their order. */
  putBack(unbegun: readonly RuntimeCall[]): void {
    if (unbegun.length === 0) return
    for (const call of unbegun) {
      call.phase = 'waiting'
      call.host = null
      call.deadline = 0
    }
    this.#calls = [...unbegun, ...this.#calls.slice(this.#at)]
    this.#at = 0
  }

  /** Takes the oldest one out; null when it was withdrawn, or when there is none. */
  shift(): RuntimeCall | null {
    const call = this.#calls[this.#at]
    if (call === undefined) return null
    this.#at += 1
    if (this.#at === this.#calls.length) {
      this.#calls.length = 0
      this.#at = 0
    } else if (this.#at > MAX_TAKEN) {
      this.#calls.splice(0, this.#at)
      this.#at = 0
    }
    return call.phase === 'done' ? null : call
  }

  /** Takes all out. @returns those that were not withdrawn */
  takeAll(): RuntimeCall[] {
    const calls = this.#calls.slice(this.#at).filter(call => call.phase !== 'done')
    this.#calls = []
    this.#at = 0
    return calls
  }

  /** Ends all that wait. */
  fail(error: GatewayError): void {
    for (const call of this.takeAll()) call.cut(error)
  }
}

// A function that cannot be loaded while its files are being saved has done nothing wrong: its calls, none of which has
// begun, wait a moment instead of failing.
//   load fails ─► files are as they were discovered, or as they were when this worker started ─► the function's failure
//              └► files differ ─► 100 ms, or until the reload ─► another worker loads them

/** Milliseconds that a save is given to end. */
const SETTLE_MS = 100
/** Waits of one version of a function; beyond them its files change for ever. */
const MAX_WAITS = 20

interface LoadRetryOptions {
  clock: Clock
  /** Differences between the function's files on disk and as discovered, as text; null if none. */
  changeOf(): string | null
  /** The wait is over. */
  onDue(): void
}

export class LoadRetry {
  readonly #options: LoadRetryOptions
  readonly #timer: Timer
  #waits = 0
  /** The difference at the last look, and its time. */
  #change: string | null = null
  #lookedAt = 0

  constructor(options: LoadRetryOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock)
  }

  get isWaiting(): boolean {
    return this.#timer.isSet
  }

  /**
   * Something could not be loaded or built.
   * @param startedAt - monotonic ms when that began
   * @returns true when it is worth another try, after `onDue`
   */
  wait(startedAt: number): boolean {
    if (this.isWaiting) return true
    const { clock, changeOf, onDue } = this.#options
    const change = changeOf()
    // Nothing changed between that look and this one: a worker that started in between has loaded just these files.
    const isMeantSo = change === this.#change && startedAt >= this.#lookedAt
    if (change === null || isMeantSo || this.#waits >= MAX_WAITS) return false
    this.#change = change
    this.#lookedAt = clock.monotonic()
    this.#waits++
    this.#timer.set(SETTLE_MS, onDue)
    return true
  }

  /** `onDue` does not follow. */
  stop(): void {
    this.#timer.clear()
  }
}

// The previous version of a function serves until the newer one is ready: built, with its packages installed, and loaded by a
// worker.
//   save ─► calls wait for the newer version ─┬► loaded: it serves, and the previous version ends
//                                             ├► a tool works, or loading is slow ─► the previous version serves ─► loaded or failed
//                                             └► failed: the previous version serves until a change loads

/** The worker set of the previous version, as the newer one sees it. */
export interface OlderSet {
  readonly workers: readonly unknown[]
  /** True when a worker of it has started. */
  readonly isWarm: boolean
  /** True when a call that it gets now would be served. */
  readonly canServe: boolean
  dispatch(call: RuntimeCall): void
  /** It ends. @param isReplaced - true when the newer version takes over the calls that have not begun */
  leave(isReplaced: boolean): void
}

export class StandIn {
  #older: OlderSet | null
  #isServing = false
  /** Why the newer version does not serve; null while that is not known. */
  #error: GatewayError | null = null

  /** @param older - null when no previous version runs */
  constructor(older: OlderSet | null) {
    this.#older = older
  }

  /** The older set while it serves. */
  get serving(): OlderSet | null {
    return this.#isServing && this.canServe ? this.#older : null
  }

  /** True when a call need not depend on the newer version. */
  get canServe(): boolean {
    return this.#older?.canServe === true
  }

  /**
   * The newer version takes long, or has failed: calls do not wait for it.
   * @param error - why it cannot serve; null while it may still become ready
   */
  begin(backlog: Backlog, error: GatewayError | null = null): void {
    if (this.#older === null) return
    this.#isServing = true
    this.#error = error ?? this.#error
    if (this.canServe) for (const call of backlog.takeAll()) this.take(call)
  }

  /** The tool is done: calls wait for the newer version to load, unless it has failed before. */
  pause(): void {
    if (this.#error === null) this.#isServing = false
  }

  /** @returns false when the call is for the newer version */
  take(call: RuntimeCall): boolean {
    if (!this.#isServing || !this.canServe) return false
    // The time it waited until now does not count.
    call.handedAt = 0
    call.loadError = this.#error
    this.#older!.dispatch(call)
    return true
  }

  /** An even newer version takes the place of one that was never ready. @returns the set that goes on for that one */
  pass(): OlderSet | null {
    const older = this.#older
    this.#older = null
    return older
  }

  /** @param isReplaced - true when the newer version is ready, false when the function is gone */
  end(isReplaced: boolean): void {
    this.pass()?.leave(isReplaced)
  }
}

/** Functions that load at once without a call. */
const LOADS_AT_ONCE = 4

interface Loading {
  /** It is its turn. */
  startLoad(): void
}

/** Bounds how many functions load at once when no call waits: an edit of a shared module changes all that import it. */
export class LoadTurns {
  readonly #running = new Set<Loading>()
  readonly #waiting = new Set<Loading>()

  /** @returns false when it has to wait: `startLoad` follows */
  take(one: Loading): boolean {
    if (this.#running.has(one)) return true
    if (this.#running.size >= LOADS_AT_ONCE) {
      this.#waiting.add(one)
      return false
    }
    this.#waiting.delete(one)
    this.#running.add(one)
    return true
  }

  /** It has loaded or failed, or does not load any more. */
  leave(one: Loading): void {
    this.#waiting.delete(one)
    if (!this.#running.delete(one)) return
    const [next] = this.#waiting
    if (next !== undefined && this.take(next)) next.startLoad()
  }

  /** Those that wait never have their turn. */
  close(): void {
    this.#waiting.clear()
  }
}

// Preparation of a function before its first worker can start. It is requested once, and calls wait for it in the backlog,
// each at most so long, unless the previous version serves meanwhile.
//   idle ─► working ─► done
//             └─ failed: the set decides what the calls get, and the next call asks again ─► idle
//                        (after a moment it is asked again by itself when the files were being saved)

interface PreparationOptions {
  fn: FunctionVersion
  clock: Clock
  preparer: Preparer | null
  /** Where its calls wait. */
  backlog: Backlog
  /** Decides whether a failure may be that of a file which was being saved. */
  retry: LoadRetry
  /** The version that serves while a tool works. */
  standIn: StandIn
  /** Workers may start from now on. */
  onDone(): void
  /** It failed, and is tried again when it is asked for again. */
  onFailed(error: GatewayError): void
}

export class Preparation {
  /** True when workers may start. */
  isDone: boolean
  /** Full path of the function's program; null when it needs none. */
  program: string | null = null
  readonly #options: PreparationOptions
  readonly #waitMs: number
  #isWorking = false
  #isStopped = false
  /** One for all calls: each may wait equally long, so the oldest is the next to give up. */
  readonly #timer: Timer

  constructor(options: PreparationOptions) {
    this.#options = options
    this.isDone = options.preparer === null
    this.#waitMs = options.preparer?.waitMs ?? 0
    this.#timer = new Timer(options.clock)
  }

  /** Puts a call into the backlog until it is done, or the call has waited too long. */
  hold(call: RuntimeCall, now: number): void {
    this.#options.backlog.push(call, now)
    if (!this.#timer.isSet) this.#giveUpIn(this.#waitMs)
    this.begin()
  }

  /** Asks for it unless that is under way. */
  begin(): void {
    if (this.#isWorking || this.isDone || this.#isStopped || this.#options.retry.isWaiting) return
    this.#isWorking = true
    const startedAt = this.#options.clock.monotonic()
    const { preparer, fn } = this.#options
    preparer!
      .prepare(fn, () => {
        if (!this.#isStopped) this.#options.standIn.begin(this.#options.backlog)
      })
      .then(
        program => this.#handleDone(program),
        error => this.#handleFailed(toGatewayError(error), startedAt),
      )
  }

  /** Nothing is waited for or reported any more. */
  stop(): void {
    this.#isStopped = true
    this.#timer.clear()
  }

  #handleDone(program: string | null): void {
    if (this.#isStopped) return
    this.#timer.clear()
    this.#isWorking = false
    this.isDone = true
    this.program = program
    this.#options.onDone()
  }

  #handleFailed(error: GatewayError, startedAt: number): void {
    if (this.#isStopped) return
    this.#isWorking = false
    if (this.#options.retry.wait(startedAt)) return
    this.#timer.clear()
    this.#options.onFailed(error)
  }

  #giveUp(): void {
    const { backlog, clock } = this.#options
    const now = clock.monotonic()
    for (let call = backlog.first; call !== undefined; call = backlog.first) {
      const left = call.startedAt + this.#waitMs - now
      if (left > 0 && call.phase !== 'done') {
        this.#giveUpIn(left)
        return
      }
      backlog.shift()?.cut(this.#toPending())
    }
  }

  #toPending(): GatewayError {
    const { preparer, fn } = this.#options
    return new GatewayError('BUILD_PENDING', preparer!.toStep(fn), {
      headers: { 'Retry-After': String(BUILD_RETRY_AFTER_SECONDS) },
      detail: { hint: `it goes on in the background; a call waits ${this.#waitMs} ms for it (FN_DEPS_WAIT_MS)` },
    })
  }

  #giveUpIn(ms: number): void {
    this.#timer.set(Math.max(1, Math.ceil(ms)), () => this.#giveUp())
  }
}
