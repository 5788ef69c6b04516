/**
 * The one path from a call to its answer, whatever door it came through. Spec: §1; owner of the steps: §2.8, §2.6, §2.10.
 *
 *   start ─► enter ─► dispatch ─► onReply ─► read head ─► deliver ─► (chunks, end)
 *              │         │           │           │            └ directive: edge ─► deliver
 *              429/503   503         504 500     502
 *
 * Callbacks instead of promises: a call is one object, and each step is a method call on it. A call is settled once;
 * whatever settles it gives its place back.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { RuntimeCall } from '../runtime/call.ts'
import type { Dispatcher } from '../runtime/dispatcher.ts'
import { toBrokenContract } from '../runtime/runtime-error.ts'
import { type ReplyHead, ReplyHeads } from './response.ts'
import type { Applicant, FunctionPlaces, WorkerPool } from './admission.ts'

/** Captured output of one call and stream, bytes; what follows is dropped with a note. */
const MAX_CAPTURED_OUTPUT_BYTES = 64 * 1024

/**
 * Performs the upstream request a handler asked for (§2.10) and answers through `call.answer`, `answerChunk`,
 * `answerEnd` or `fail`. Sets `call.stopEdge` and `call.grantEdge` while it works.
 * @param body - the directive's body; a view that is valid during the call only
 */
export type EdgeHandler = (call: InvokeCall, directive: Readonly<Record<string, unknown>>, body: Buffer) => void

/** Tells which workers serve a function. */
interface CallDispatcher {
  setOf(fn: FunctionVersion): Pick<ReturnType<Dispatcher['setOf']>, 'dispatch'>
}

interface InvokerOptions {
  clock: Clock
  dispatcher: CallDispatcher
  pool: WorkerPool
  edge: EdgeHandler | null
  /** Captured output of a call; null when nobody listens. */
  onLog: ((call: InvokeCall, stream: 'stdout' | 'stderr', text: string) => void) | null
}

/** One call; each door has a subclass that takes the answer. */
export abstract class InvokeCall extends RuntimeCall implements Applicant {
  readonly invoker: Invoker
  id = ''
  /** True when captured output is wanted in `stdout` and `stderr`. */
  capture: boolean
  stdout = ''
  stderr = ''
  /** Monotonic ms: when a place was asked for, and how long the call waited for it. */
  enteredAt = 0
  queuedMs = 0
  /** True once the call's fate is decided: later callbacks are dropped. */
  settled = false
  /** True while a runtime works for the call. */
  dispatched = false
  /** Set by the edge handler: stops the upstream request, and is told of streamed bytes that the receiver took. */
  stopEdge: (() => void) | null = null
  grantEdge: ((bytes: number) => void) | null = null

  admission: 'outside' | 'queued' | 'active' = 'outside'
  places: FunctionPlaces | null = null
  queuePrevious: Applicant | null = null
  queueNext: Applicant | null = null
  queueTimer: NodeJS.Timeout | null = null

  constructor(fn: FunctionVersion, invoker: Invoker) {
    super(fn)
    this.invoker = invoker
    this.capture = fn.policy.includeDebugHeaders
  }

  /** The answer's head and body; with `stream` chunks and an end follow. The body is valid during the call only. */
  protected abstract deliver(head: ReplyHead, body: Buffer, stream: boolean): void
  protected abstract deliverChunk(body: Buffer): void
  /** An error means the body was cut. */
  protected abstract deliverEnd(error: GatewayError | null): void
  /** A refusal or failure before any answer. */
  protected abstract refuse(error: GatewayError): void

  onAdmitted(): void {
    this.handedAt = this.invoker.clock.monotonic()
    this.queuedMs = this.handedAt - this.enteredAt
    this.invoker.dispatch(this)
  }

  onRefused(error: GatewayError): void {
    this.fail(error)
  }

  override onReply(header: string, body: Buffer, stream: boolean): void {
    if (this.settled) return
    this.dispatched = stream
    let head: ReplyHead
    try {
      head = this.invoker.heads.read(header)
    } catch (error) {
      this.fail(withFile(toGatewayError(error), this.fn))
      return
    }
    if (head.proxy === null) this.answer(head, body, stream)
    else this.invoker.passToEdge(this, head.proxy, body, stream)
  }

  /** Ends the wait for an answer: used by `onReply` and by the edge handler. */
  answer(head: ReplyHead, body: Buffer, stream: boolean): void {
    if (this.settled) return
    if (!stream) this.#settle()
    this.deliver(head, body, stream)
  }

  answerChunk(body: Buffer): void {
    if (!this.settled) this.deliverChunk(body)
  }

  answerEnd(error: GatewayError | null): void {
    if (this.settled) return
    this.dispatched = false
    this.#settle()
    this.deliverEnd(error)
  }

  override onChunk(body: Buffer): void {
    this.answerChunk(body)
  }

  override onEnd(error: GatewayError | null): void {
    this.answerEnd(error)
  }

  override onError(error: GatewayError): void {
    this.dispatched = false
    this.fail(error)
  }

  override onLog(stream: 'stdout' | 'stderr', text: string): void {
    if (this.capture && this[stream].length < MAX_CAPTURED_OUTPUT_BYTES) {
      this[stream] = (this[stream] + text).slice(0, MAX_CAPTURED_OUTPUT_BYTES)
    }
    this.invoker.onLog?.(this, stream, text)
  }

  /** The call ends without an answer of the function. */
  fail(error: GatewayError): void {
    if (this.settled) return
    this.#stopWork()
    this.#settle()
    this.refuse(error)
  }

  /** The receiver took `bytes` of a stream. */
  grant(bytes: number): void {
    if (this.settled) return
    if (this.grantEdge !== null) this.grantEdge(bytes)
    else this.host?.grant(this, bytes)
  }

  /** Nobody waits for the answer any more: work is stopped and the place is free. No callback follows. */
  abandon(): void {
    if (this.settled) return
    this.#stopWork()
    this.#settle()
  }

  #stopWork(): void {
    if (this.dispatched) this.invoker.stop(this)
    this.dispatched = false
    const stopEdge = this.stopEdge
    this.stopEdge = null
    stopEdge?.()
  }

  #settle(): void {
    this.settled = true
    this.invoker.pool.leave(this)
  }
}

/** A refused answer with the file whose function gave it. */
function withFile(error: GatewayError, { entryFile }: FunctionVersion): GatewayError {
  const { code, message, status } = error
  return new GatewayError(code, message, { status, detail: { file: entryFile, ...error.detail }, cause: error.cause })
}

/** Admission, dispatch and replies of all calls of a gateway. */
export class Invoker {
  readonly clock: Clock
  readonly pool: WorkerPool
  readonly heads = new ReplyHeads()
  readonly onLog: InvokerOptions['onLog']
  readonly #dispatcher: CallDispatcher
  readonly #edge: EdgeHandler | null

  constructor(options: InvokerOptions) {
    this.clock = options.clock
    this.pool = options.pool
    this.onLog = options.onLog
    this.#dispatcher = options.dispatcher
    this.#edge = options.edge
  }

  /** Runs a call whose header and body are set, or refuses it, now or after a wait. */
  start(call: InvokeCall): void {
    const outcome = this.pool.enter(call)
    if (outcome === null) this.dispatch(call)
    else if (outcome === 'queued') call.enteredAt = call.handedAt || this.clock.monotonic()
    else call.fail(outcome)
  }

  dispatch(call: InvokeCall): void {
    call.dispatched = true
    try {
      this.#dispatcher.setOf(call.fn).dispatch(call)
    } catch (error) {
      call.onError(toGatewayError(error))
    }
  }

  /** Tells the runtime that nobody waits. */
  stop(call: InvokeCall): void {
    call.withdraw()
  }

  passToEdge(call: InvokeCall, directive: Readonly<Record<string, unknown>>, body: Buffer, stream: boolean): void {
    if (stream) {
      call.fail(toBrokenContract('a proxy directive cannot be streamed', call.fn))
    } else if (this.#edge === null || call.fn.policy.edge === null) {
      call.fail(new GatewayError('EDGE_FAILED', 'edge proxy disabled for this function'))
    } else {
      try {
        this.#edge(call, directive, body)
      } catch (error) {
        call.fail(toGatewayError(error))
      }
    }
  }
}
