/**
 * One worker as its set sees it: which calls it has, until when they must answer, and what becomes of them when it ends.
 * A process behind a daemon and a Lua thread differ only in how bytes or messages move. Owner: §2.8, page runtime/worker-set.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, Timer } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import type { Semaphore } from '../core/semaphore.ts'
import {
  type CallHost,
  OpenCalls,
  type RuntimeCall,
  StreamWindow,
  toBrokenContract,
  toDeath,
  toRuntimeError,
  toTimeout,
} from './call.ts'

/** Milliseconds a worker has to obey a `cancel` before it is killed. */
export const CANCEL_GRACE_MS = 50
/** Milliseconds a worker has to load its function. */
export const WORKER_READY_TIMEOUT_MS = 15_000
/** Milliseconds without a sign of life after which a multiplexing worker with calls is asked for one. */
export const STALL_MS = 25
/** Calls open at once on one multiplexing worker. */
const MAX_INFLIGHT = 1024
/** A timer that is later than this many milliseconds means that the whole process stood still. */
const STANDSTILL_MS = 25

/** How a worker came to its end. */
interface WorkerEnd {
  reason: string
  /** False when the gateway asked for it, or its daemon ended. */
  unexpected: boolean
  /** True when everything it said before its end was read: only then it is known which calls were not begun. */
  complete: boolean
  /** True when it received nothing: its end does not count as a failure of the function. */
  unheard?: boolean
}

/** The debuggers of handlers, as a worker knows them. */
export interface WorkerDebuggers {
  /** True while a debugger is attached to a worker of the function, or one of them waits for that. */
  holds(fn: FunctionVersion): boolean
  /** The worker says where its debugger is. */
  announce(worker: Worker, fields: unknown): Promise<void>
}

/** The set that a worker belongs to, as the worker sees it. */
export interface WorkerOwner {
  readonly fn: FunctionVersion
  readonly clock: Clock
  /** Null or absent where handlers are not debugged. */
  readonly debuggers?: WorkerDebuggers | null
  /** Answers of all workers so far. */
  answers: number
  /** How many workers the function has at a socket. */
  loadOf(socketIndex: number): number
  /** Output outside any call. */
  onLog(stream: 'stdout' | 'stderr', text: string): void
  /** A worker loaded these source files: full real paths. */
  onFiles(files: readonly string[]): void
  /** The worker takes nothing more. */
  forget(worker: Worker): void
  /** A call came to its end: the function works. */
  handleSuccess(): void
  /** The worker may have room for another call. */
  handleRoom(worker: Worker, now: number): void
  /** A client left a call, and its place may be needed. */
  handleAbandoned(): void
  /** The function cannot be loaded. @param unbegun - calls that came with the start: none of their code ran */
  handleLoadFailure(worker: Worker, error: GatewayError, unbegun: RuntimeCall[]): void
  /** @param unbegun - calls that certainly were not begun, and may go to another worker */
  handleWorkerEnd(unexpected: boolean, error: GatewayError, unbegun: RuntimeCall[]): void
  /** No worker could be started at all (daemon down). */
  handleStartFailure(worker: Worker, error: GatewayError): void
}

/** A subclass moves bytes or messages: it implements the `send*` and `end*` methods and reports through the `handle*` methods. */
export abstract class Worker implements CallHost {
  readonly set: WorkerOwner
  readonly #leads: Semaphore | null
  state: 'starting' | 'ready' | 'ending' | 'dead' = 'starting'
  /** Index (from 1) of the daemon socket that started it, for the debug header. */
  socketIndex = 1
  /** Calls it takes at once; 0 means many. */
  maxInflight = 1
  /** Open calls, oldest first. A one-at-a-time worker runs the first of them; the others have not begun. */
  readonly inflight = new OpenCalls()
  idleSince: number
  /** Monotonic ms. */
  readonly startedAt: number
  /** Monotonic ms when a client left a call last. */
  #leftAt = 0
  #lastSign: number
  #pinged = false
  readonly #pace = new CallPace()
  /** For the earliest deadline that was known when it was set, and monotonic ms when it runs. */
  readonly #timer: Timer
  #dueAt = 0

  /** @param leads - of all workers' streams; null for none */
  constructor(set: WorkerOwner, leads: Semaphore | null = null) {
    this.set = set
    this.#leads = leads
    this.startedAt = this.idleSince = this.#lastSign = set.clock.monotonic()
    this.#timer = new Timer(set.clock)
  }

  /** Sends a `call`; may be used before the worker is ready. */
  protected abstract sendCall(call: RuntimeCall): void
  protected abstract sendCancel(call: RuntimeCall): void
  protected abstract sendMore(call: RuntimeCall, bytes: number): void
  protected abstract sendPing(): void
  /** Kills at once; `handleClosed` follows when everything it said before is read. */
  protected abstract endNow(): void
  /** Lets it finish background work, then ends it. */
  protected abstract endGracefully(): void
  /** It sent far more of a stream than was granted: the worker ends at once. */
  protected handleOverrun(): void {
    this.kill()
  }

  /** A debugger may stop its code: nothing that takes long counts as late. */
  get isDebugged(): boolean {
    return this.set.debuggers?.holds(this.set.fn) === true
  }

  /** Its process on this machine; null before it started, where that is not known, and of a thread. */
  get pid(): number | null {
    return null
  }

  /** Its activity, in the words of metrics. */
  get activity(): 'starting' | 'idle' | 'busy' | 'ending' {
    if (this.state === 'starting') return 'starting'
    if (this.state !== 'ready') return 'ending'
    return this.inflight.size === 0 ? 'idle' : 'busy'
  }

  /** True when a call sent now would be begun at once, or soon enough. */
  hasRoom(now: number): boolean {
    const open = this.inflight.size
    if (this.state !== 'ready') return this.state === 'starting' && open === 0
    if (this.#pinged || this.inflight.late > 0) return false
    if (open === 0) return true
    if (this.maxInflight !== 1) {
      if (open >= (this.maxInflight || MAX_INFLIGHT)) return false
      if (now - this.#lastSign <= STALL_MS) return true
      // Silent for a while with calls open: it may be stuck in a loop. Only a sign of life earns it another call.
      this.#pinged = true
      this.sendPing()
      return false
    }
    // Sending ahead hides a round trip, but a call behind a stuck one would wait for its end: only for functions that
    // have proven fast, and never behind a call that already takes long.
    return open < this.#pace.depth && now - this.inflight.first!.startedAt < FAST_CALL_MS
  }

  /** True when its calls took so little lately that it gets them ahead. */
  get isQuick(): boolean {
    return this.#pace.depth > 1
  }

  /** False while at least half of what may be sent ahead is there still: calls go in bunches, each one write and one read. */
  get wantsCalls(): boolean {
    return this.maxInflight !== 1 || this.inflight.size * 2 <= this.#pace.depth
  }

  accept(call: RuntimeCall, now: number): void {
    call.host = this
    call.cold = this.state === 'starting'
    call.phase = 'sent'
    if (this.inflight.size === 0) this.#lastSign = now
    this.inflight.add(call)
    if (this.state === 'ready' && (this.maxInflight !== 1 || this.inflight.size === 1)) this.#begin(call, now)
    this.sendCall(call)
  }

  /** The receiver of a stream took `bytes`. */
  grant(call: RuntimeCall, bytes: number): void {
    if (call.phase !== 'streaming' || bytes <= 0) return
    const granted = call.window!.take(bytes)
    if (granted > 0) this.sendMore(call, granted)
    // The worker was waiting for its client until now: its time starts again.
    if (call.deadline === Number.POSITIVE_INFINITY) this.#extend(call, this.set.clock.monotonic())
  }

  /** The client of this open call left. It may go on to its deadline, or until its place is needed. */
  abandon(call: RuntimeCall): void {
    this.inflight.leave(call)
    this.#leftAt = this.set.clock.monotonic()
    if (call.deadline === Number.POSITIVE_INFINITY) this.#extend(call, this.#leftAt)
    this.sendCancel(call)
    // A one-at-a-time worker is inside the handler and cannot hear a cancel.
    if (call.mustEnd && call.deadline !== 0) this.#hasten(call, this.maxInflight === 1 ? 0 : CANCEL_GRACE_MS)
    this.set.handleAbandoned()
  }

  /** A call that must end is at its deadline now, or when it had time to hear of it. */
  #hasten(call: RuntimeCall, graceMs: number): void {
    call.deadline = this.set.clock.monotonic() + graceMs
    this.#checkIn(graceMs)
  }

  /** True when it is busy for clients that left: a call that waits may have its place. */
  get isForNobody(): boolean {
    const { left, size, first } = this.inflight
    if (left === 0 || this.state !== 'ready') return false
    return this.maxInflight === 1 ? first?.phase === 'done' : left === size
  }

  /** True when it heard of that long enough ago to have ended the calls. */
  hadTimeToObey(now: number): boolean {
    return now - this.#leftAt >= CANCEL_GRACE_MS
  }

  stop(): void {
    if (this.#takeOut()) this.endGracefully()
  }

  kill(): void {
    this.#takeOut()
    if (this.state !== 'dead') this.endNow()
  }

  /** It takes nothing more. @returns false when it was ending before */
  #takeOut(): boolean {
    this.#timer.clear()
    if (this.state === 'ending' || this.state === 'dead') return false
    this.state = 'ending'
    this.set.forget(this)
    return true
  }

  // Reports of the subclass.

  handleReady(maxInflight: number): void {
    if (this.state !== 'starting') return
    this.state = 'ready'
    this.maxInflight = maxInflight
    const now = this.#noteSign()
    for (const call of this.inflight.values()) {
      this.#begin(call, now)
      if (maxInflight === 1) break
    }
    this.set.handleRoom(this, now)
  }

  handlePong(): void {
    this.#pinged = false
    this.set.handleRoom(this, this.#noteSign())
  }

  /** @returns monotonic ms */
  #noteSign(): number {
    this.#lastSign = this.set.clock.monotonic()
    return this.#lastSign
  }

  /** @param now - monotonic ms when it was read: answers often come in bunches */
  handleReply(id: number, header: string, body: Buffer, stream: boolean, now = this.set.clock.monotonic()): void {
    const call = this.inflight.get(id)
    if (call === undefined) return
    this.#lastSign = now
    if (stream) {
      if (call.phase === 'done' || call.phase === 'streaming') return
      call.phase = 'streaming'
      call.window = new StreamWindow(body.length, this.#leads)
      this.#extend(call, now)
      call.onReply(header, body, true)
      return
    }
    const open = call.phase !== 'done'
    this.#finish(call, now)
    this.set.answers++
    if (open) call.onReply(header, body, false)
    this.set.handleSuccess()
    this.set.handleRoom(this, now)
  }

  handleChunk(id: number, body: Buffer): void {
    const call = this.inflight.get(id)
    if (call === undefined || call.phase !== 'streaming') return
    const now = this.#noteSign()
    const isGranted = call.window!.receive(body.length)
    this.#extend(call, now)
    // Else the client is slow, and the worker goes on sending bytes that must not be held for it.
    if (isGranted) call.onChunk(body)
    else this.handleOverrun()
  }

  /** @param problem - why the stream broke, null when it is complete */
  handleEnd(id: number, problem: string | null): void {
    this.#endCall(id, problem === null ? null : new GatewayError('HANDLER_FAILED', problem), null)
  }

  /** @param fields - header of an `error` frame; `id` 0: the function cannot be loaded */
  handleFailure(id: number, fields: Record<string, unknown>): void {
    const error = toRuntimeError(fields, this.set.fn)
    if (id === 0) this.handleLoadError(error)
    else if (fields.ends === true) this.handleLastError(id, error)
    else this.handleError(id, error)
  }

  handleError(id: number, error: GatewayError): void {
    if (this.inflight.get(id) === undefined) return
    this.set.handleSuccess()
    this.#endCall(id, error, error)
  }

  /**
   * Ends an open call that got no whole reply.
   * @param cut - the end of its stream, if it has one
   * @param error - otherwise; null when its worker gave no reason
   */
  #endCall(id: number, cut: GatewayError | null, error: GatewayError | null): void {
    const call = this.inflight.get(id)
    if (call === undefined) return
    const now = this.#noteSign()
    const { phase } = call
    this.#finish(call, now)
    if (phase === 'streaming') call.onEnd(cut)
    else if (phase !== 'done') call.onError(error ?? toBrokenContract('no reply', this.set.fn))
    this.set.handleRoom(this, now)
  }

  /** The error of a call that ends its worker too (`exit()` in a handler): calls behind it were not begun. */
  handleLastError(id: number, error: GatewayError): void {
    const call = this.inflight.get(id)
    if (call === undefined || this.state === 'dead') return
    this.inflight.remove(call)
    const others = this.#end().filter(other => other.phase !== 'done')
    call.cut(error)
    const unbegun = this.maxInflight === 1 ? others : []
    // They did nothing wrong: the error is not theirs.
    if (this.maxInflight !== 1) for (const other of others) other.cut(toDeath('another call ended it'))
    this.endNow()
    this.set.handleWorkerEnd(false, error, unbegun)
  }

  handleLog(id: number, stream: 'stdout' | 'stderr', text: string): void {
    const call = id === 0 ? undefined : this.inflight.get(id)
    if (call !== undefined && call.phase !== 'done') call.onLog(stream, text)
    else this.set.onLog(stream, text)
  }

  /** It did not load its function within WORKER_READY_TIMEOUT_MS. */
  handleSlowLoad(): void {
    this.handleLoadError(
      new GatewayError('LOAD_FAILED', `function did not load within ${WORKER_READY_TIMEOUT_MS / 1000} s`, {
        detail: { file: this.set.fn.entryFile, hint: 'move slow work out of the top level of the handler file' },
      }),
    )
  }

  /** The function cannot be loaded: the worker is useless, and so is starting another one right away. */
  handleLoadError(error: GatewayError): void {
    if (this.state === 'dead') return
    const wasStarting = this.state === 'starting'
    const calls = this.#end()
    if (!wasStarting) for (const call of calls) call.cut(error)
    this.set.handleLoadFailure(this, error, wasStarting ? calls.filter(call => call.phase !== 'done') : [])
    this.endNow()
  }

  /** The worker is gone and everything it said has been handled. */
  handleClosed(end: WorkerEnd): void {
    if (this.state === 'dead') return
    const wasStarting = this.state === 'starting'
    const unexpected = end.unexpected && end.unheard !== true && this.state !== 'ending'
    const calls = this.#end()
    const error = toDeath(end.reason)
    const unbegun: RuntimeCall[] = []
    let first = true
    for (const call of calls) {
      // Only a call that certainly was not begun may go to another worker: nothing is ever run twice.
      const begun = end.unheard !== true && (wasStarting || !end.complete || this.maxInflight !== 1 || first)
      first = false
      if (call.phase === 'done') continue
      if (begun) call.cut(error)
      else unbegun.push(call)
    }
    this.set.handleWorkerEnd(unexpected, error, unbegun)
  }

  #end(): RuntimeCall[] {
    this.state = 'dead'
    this.#timer.clear()
    this.set.forget(this)
    return this.inflight.takeAll()
  }

  #begin(call: RuntimeCall, now: number): void {
    if (call.phase === 'sent') call.phase = 'running'
    call.startedAt = now
    this.#extend(call, now)
    if (call.mustEnd && call.phase === 'done') this.#hasten(call, CANCEL_GRACE_MS)
  }

  /** Sets the deadline of a call that gave a sign of life. While its client is waited for it has none. */
  #extend(call: RuntimeCall, now: number): void {
    call.deadline = call.window?.isHeld ? Number.POSITIVE_INFINITY : now + call.fn.policy.timeoutMs
    // Calls of one moment need one timer.
    const isTimed = this.#timer.isSet && this.#dueAt <= call.deadline + STANDSTILL_MS
    if (call.deadline !== Number.POSITIVE_INFINITY && !isTimed) this.#checkIn(call.deadline - now)
  }

  #checkIn(delayMs: number): void {
    const { clock } = this.set
    const ms = Math.max(1, Math.ceil(delayMs))
    this.#dueAt = clock.monotonic() + ms
    this.#timer.set(ms, () => {
      // After a moment in which this process stood still answers may lie unread: they are read before a call counts as late.
      if (clock.monotonic() - this.#dueAt <= STANDSTILL_MS) this.#checkDeadlines()
      else this.#timer.set(1, () => this.#checkDeadlines())
    })
  }

  /** Takes the call out; the next one of a one-at-a-time worker begins. */
  #finish(call: RuntimeCall, now: number): void {
    this.inflight.remove(call)
    call.phase = 'done'
    call.endedAt = now
    if (this.inflight.late > 0) this.#killIfForNobody()
    if (this.maxInflight === 1) {
      this.#pace.learn(now - call.startedAt)
      if (this.inflight.size > 0) this.#begin(this.inflight.first!, now)
    }
    if (this.inflight.size === 0) this.idleSince = now
  }

  /** Ends what is past its deadline, and sets the timer for the next one. */
  #checkDeadlines(): void {
    const now = this.set.clock.monotonic()
    let next = Number.POSITIVE_INFINITY
    let overdue = false
    const { isDebugged } = this
    for (const call of this.inflight.values()) {
      if (call.deadline === 0) continue
      if (isDebugged && call.deadline <= now) call.deadline = now + call.fn.policy.timeoutMs
      if (call.deadline > now) {
        next = Math.min(next, call.deadline)
        continue
      }
      if (call.phase === 'done') {
        if (call.late || this.maxInflight === 1) overdue = true
        else this.inflight.markLate(call, Number.POSITIVE_INFINITY)
        continue
      }
      const streaming = call.phase === 'streaming'
      this.inflight.leave(call)
      this.inflight.markLate(call, now + CANCEL_GRACE_MS)
      next = Math.min(next, call.deadline)
      const error = toTimeout(call.fn)
      if (streaming) call.onEnd(error)
      else call.onError(error)
      // A one-at-a-time worker is inside the handler and cannot hear a cancel.
      if (this.maxInflight === 1) overdue = true
      else this.sendCancel(call)
    }
    if (overdue) {
      this.kill()
      return
    }
    if (next !== Number.POSITIVE_INFINITY) this.#checkIn(next - now)
    if (this.inflight.late > 0) this.#killIfForNobody()
  }

  /** Kills it when only calls without a client are open and one is past its deadline; with others open it lives on. */
  #killIfForNobody(): void {
    if (this.inflight.left === this.inflight.size && !this.inflight.mayObey()) this.kill()
  }
}

// How quick the calls of a one-at-a-time worker are, and so how many it may have open: the first runs, the others lie
// behind it and save a round trip each.

/**
 * Calls open at once on a one-at-a-time worker: as many as fit in `workMs` milliseconds by the average of its calls, at
 * most `calls`; one until `afterFastCalls` calls in a row were fast and the average is at most `maxCallMs`.
 */
export const PREFETCH = { afterFastCalls: 64, maxCallMs: 1, workMs: 2, calls: 64 } as const
/** A call of a one-at-a-time worker that takes longer is not fast, milliseconds. */
export const FAST_CALL_MS = 5
/** Share of the newest call in the average of a worker's calls. */
const CALL_MS_WEIGHT = 1 / 16

class CallPace {
  /** Calls that the worker may have open now. */
  depth = 1
  #fastCalls = 0
  /** Recent duration of calls in milliseconds; initially not known to be fast. */
  #callMs = FAST_CALL_MS

  /** @param tookMs - what the call that just ended took */
  learn(tookMs: number): void {
    this.#fastCalls = tookMs < FAST_CALL_MS ? this.#fastCalls + 1 : 0
    this.#callMs += (Math.min(tookMs, FAST_CALL_MS) - this.#callMs) * CALL_MS_WEIGHT
    const isQuick = this.#fastCalls >= PREFETCH.afterFastCalls && this.#callMs <= PREFETCH.maxCallMs
    this.depth = isQuick ? Math.max(2, Math.min(PREFETCH.calls, Math.trunc(PREFETCH.workMs / this.#callMs))) : 1
  }
}

// The facts of its function that a worker gets once (page runtime/wire-protocol, statement 10).

export interface StartFacts {
  functionsRoot: string
  production: boolean
  /** The part of `event.context` that is the same for every call. */
  toContext(fn: FunctionVersion): object
  /** User whose files alone a worker in this process may read for it; null: none. */
  toReader?(fn: FunctionVersion): number | null
  /** How its worker lets a debugger in; undefined when it does not. */
  toDebug?(fn: FunctionVersion): object | undefined
  /** Full paths of the folders of its shared packs, in order. */
  toPackDirs(fn: FunctionVersion): readonly string[]
}

/** JSON text of the `start` header. */
export function toStartHeader(fn: FunctionVersion, facts: StartFacts): string {
  const env: Record<string, string> = Object.create(null)
  for (const [name, { value }] of Object.entries(fn.env)) env[name] = value
  return JSON.stringify({
    key: fn.key,
    runtime: fn.runtime,
    name: fn.name,
    version: fn.version,
    root: facts.functionsRoot,
    dir: fn.fnDir,
    entry: fn.entryPath,
    callable: fn.callable,
    // An unknown name goes as it is written: the worker refuses it by name.
    adapter: fn.policy.adapter ?? fn.policy.adapterName,
    env,
    packs: facts.toPackDirs(fn),
    reader: facts.toReader?.(fn) ?? undefined,
    production: facts.production,
    debug: facts.toDebug?.(fn),
    context: facts.toContext(fn),
  })
}
