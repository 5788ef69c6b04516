/**
 * The one path from a call to its answer, whatever door it came through. Spec: §1; owner of the steps: §2.8, §2.6, §2.10.
 *
 *   start ─► enter ─► run ─► dispatch ─► onReply ─► read head ─► onHead ─► (onChunk, onEnd)
 *              │       │         │           │           │         └ directive: edge ─► onHead
 *              429/503 503       503         504 500     502
 *
 * Callbacks instead of promises: a call is one object with one `phase`, and each step is a method call on it. Its fate is
 * decided once; whatever decides it gives its slot back.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { RuntimeCall, toBrokenContract } from '../runtime/call.ts'
import type { Dispatcher } from '../runtime/dispatcher.ts'
import { type ReplyHead, ReplyHeads } from './response.ts'
import { SecretMask } from '../observe/function-output.ts'
import { type OpenSpan, type Spans, TraceIds } from '../observe/trace.ts'
import type { SchemaGate } from './policy.ts'
import type { Admission, AdmissionCall } from './admission.ts'

/** Captured output of one call and stream, bytes; the rest is dropped with a note. */
const MAX_CAPTURED_OUTPUT_BYTES = 64 * 1024

/**
 * Performs the upstream request a handler asked for (§2.10) and answers through `call.answer`, `answerChunk`,
 * `answerEnd` or `fail`. Sets `call.stopEdge` and `call.grantEdge` while it works.
 * @param body - the directive's body; a view that is valid during the call only
 */
export type EdgeHandler = (call: Call, directive: Readonly<Record<string, unknown>>, body: Buffer) => void

/** Finds the workers of a function. */
interface CallDispatcher {
  setOf(fn: FunctionVersion): Pick<ReturnType<Dispatcher['setOf']>, 'dispatch'>
}

export interface InvokerOptions {
  clock: Clock
  dispatcher: CallDispatcher
  admission: Pick<Admission, 'enter' | 'leave'>
  edge: EdgeHandler | null
  /** Captured output of a call; null without a listener. */
  onLog: ((call: Call, stream: 'stdout' | 'stderr', text: string) => void) | null
  /** A call was given to a worker that was still starting. */
  onCold?: (fn: FunctionVersion) => void
  /** Checks of functions that ask for them; absent where there are no schemas. */
  schemas?: SchemaGate
  /** Pages of functions have the origin of the console, by default. */
  sharesOrigin?: boolean
  /** Shared with others that show output of functions; a new one by default. */
  secrets?: SecretMask
}

/**
 * Takes the answer of a call; each door passes one. Exactly one of `onHead` and `onError` comes, once, and after an `onHead`
 * with `stream` exactly one `onEnd`. After `Call.abandon` nothing comes.
 */
export interface CallReceiver {
  /**
   * @param body - the whole body, or with `stream` its first piece; valid during the call only
   * @param stream - true when `onChunk` and `onEnd` follow
   */
  onHead(head: ReplyHead, body: Buffer, stream: boolean): void
  /** Valid during the call only. Answer with `Call.grant` when the bytes are taken. */
  onChunk(body: Buffer): void
  /** An error means the body was cut. */
  onEnd(error: GatewayError | null): void
  /** A refusal or failure before any answer. */
  onError(error: GatewayError): void
}

/** One call, from the door that made it to its last byte. It has a slot of its function until its fate is decided. */
export class Call extends RuntimeCall implements AdmissionCall {
  readonly #invoker: Invoker
  readonly #receiver: CallReceiver
  id = ''
  /** Of the request that it answers; empty where only the event says so. */
  method = ''
  /** `traceparent` and `tracestate` of its work. */
  trace = ''
  traceState: string | null = null
  /** Its span, where the host application traces. */
  span: OpenSpan | null = null
  /** True when captured output is wanted in `stdout` and `stderr`. */
  capture: boolean
  stdout = ''
  stderr = ''
  /** Method of a request that was checked against its schema, so that the answer is looked at too; null without a check. */
  checkedAs: string | null = null
  /** Monotonic ms: when a slot was asked for, and how long the call waited for it. */
  enteredAt = 0
  queuedMs = 0
  /** Set by the edge handler: stops the upstream request, and gets the number of streamed bytes that the receiver took. */
  stopEdge: (() => void) | null = null
  grantEdge: ((bytes: number) => void) | null = null

  slots: object | null = null
  queuePrevious: AdmissionCall | null = null
  queueNext: AdmissionCall | null = null
  queueTimer: NodeJS.Timeout | null = null

  constructor(fn: FunctionVersion, invoker: Invoker, receiver: CallReceiver) {
    super(fn)
    this.#invoker = invoker
    this.#receiver = receiver
    this.capture = fn.policy.includeDebugHeaders
  }

  /** See ReplyHeads. */
  get sharesOrigin(): boolean {
    return this.#invoker.heads.sharesOrigin
  }

  onAdmitted(): void {
    this.handedAt = this.#invoker.clock.monotonic()
    this.queuedMs = this.handedAt - this.enteredAt
    this.#invoker.run(this)
  }

  onRefused(error: GatewayError): void {
    this.phase = 'done'
    this.#receiver.onError(error)
  }

  override onReply(header: string, body: Buffer, stream: boolean): void {
    if (this.slots === null) return
    let head: ReplyHead
    try {
      head = this.#invoker.heads.read(header)
    } catch (error) {
      this.fail(withFile(toGatewayError(error), this.fn))
      return
    }
    if (head.proxy === null) this.answer(head, body, stream)
    else this.#invoker.passToEdge(this, head.proxy, body, stream)
  }

  /** Ends the wait for an answer: used by `onReply` and by the edge handler. */
  answer(head: ReplyHead, body: Buffer, stream: boolean): void {
    if (this.slots === null) return
    if (this.checkedAs !== null && !stream) this.#invoker.schemas?.look(this.fn, this.checkedAs, head, body)
    if (!stream) this.#end()
    this.#receiver.onHead(head, body, stream)
  }

  answerChunk(body: Buffer): void {
    if (this.slots !== null) this.#receiver.onChunk(body)
  }

  answerEnd(error: GatewayError | null): void {
    if (this.slots === null) return
    this.#end()
    this.#receiver.onEnd(error && this.#invoker.secrets.hideIn(this.fn, error))
  }

  override onChunk(body: Buffer): void {
    this.answerChunk(body)
  }

  override onEnd(error: GatewayError | null): void {
    this.answerEnd(error)
  }

  override onError(error: GatewayError): void {
    this.fail(error)
  }

  override onLog(stream: 'stdout' | 'stderr', written: string): void {
    const text = this.#invoker.secrets.hide(this.fn, written)
    if (this.capture && this[stream].length < MAX_CAPTURED_OUTPUT_BYTES) {
      this[stream] = (this[stream] + text).slice(0, MAX_CAPTURED_OUTPUT_BYTES)
    }
    this.#invoker.onLog?.(this, stream, text)
  }

  /** The call ends without an answer of the function. */
  fail(error: GatewayError): void {
    if (this.slots === null && this.phase !== 'new') return
    this.#stop()
    this.#receiver.onError(this.#invoker.secrets.hideIn(this.fn, error))
  }

  /** The receiver took `bytes` of a stream. */
  grant(bytes: number): void {
    if (this.slots === null) return
    if (this.grantEdge !== null) this.grantEdge(bytes)
    else this.host?.grant(this, bytes)
  }

  /** The answer is not waited for any more: work is stopped and the slot is free. No callback follows. */
  abandon(): void {
    if (this.slots !== null) this.#stop()
    else this.phase = 'done'
  }

  /** Ends whatever goes on for it. */
  #stop(): void {
    if (this.phase !== 'queued') this.withdraw()
    this.stopEdge?.()
    this.stopEdge = null
    this.#end()
  }

  /** Its fate is decided: the slot is free, or its place in the queue. */
  #end(): void {
    this.#invoker.admission.leave(this)
    this.phase = 'done'
    if (this.cold) this.#invoker.onCold?.(this.fn)
  }
}

/** A refused answer with the file whose function gave it. */
function withFile(error: GatewayError, { entryFile }: FunctionVersion): GatewayError {
  const { code, message, status } = error
  return new GatewayError(code, message, { status, detail: { file: entryFile, ...error.detail }, cause: error.cause })
}

/** Shared by all calls of a gateway: admission, workers, and the handler of proxy directives. */
export class Invoker {
  readonly clock: Clock
  readonly admission: InvokerOptions['admission']
  readonly heads: ReplyHeads
  readonly traceIds = new TraceIds()
  /** Null without tracing. */
  spans: Spans | null = null
  readonly onLog: InvokerOptions['onLog']
  readonly onCold: InvokerOptions['onCold']
  readonly schemas: SchemaGate | null
  /** Takes secrets out of output and errors of functions. */
  readonly secrets: SecretMask
  readonly #dispatcher: CallDispatcher
  readonly #edge: EdgeHandler | null

  constructor(options: InvokerOptions) {
    this.clock = options.clock
    this.heads = new ReplyHeads(options.sharesOrigin)
    this.admission = options.admission
    this.onLog = options.onLog
    this.onCold = options.onCold
    this.schemas = options.schemas ?? null
    this.secrets = options.secrets ?? new SecretMask()
    this.#dispatcher = options.dispatcher
    this.#edge = options.edge
  }

  /** Runs a call whose header and body are set, or refuses it, now or after a wait. */
  start(call: Call): void {
    const outcome = this.admission.enter(call)
    if (outcome === null) this.run(call)
    else if (outcome === 'queued') call.enteredAt = call.handedAt || this.clock.monotonic()
    else call.fail(outcome)
  }

  /** Gives an admitted call to the workers of its function. */
  run(call: Call): void {
    try {
      this.#dispatcher.setOf(call.fn).dispatch(call)
    } catch (error) {
      call.fail(toGatewayError(error))
    }
  }

  passToEdge(call: Call, directive: Readonly<Record<string, unknown>>, body: Buffer, stream: boolean): void {
    if (stream) {
      call.fail(toBrokenContract('a proxy directive cannot be streamed', call.fn))
    } else if (this.#edge === null || call.fn.policy.edge === null) {
      call.fail(new GatewayError('EDGE_FAILED', 'edge proxy disabled for this function'))
    } else {
      call.phase = 'upstream'
      try {
        this.#edge(call, directive, body)
      } catch (error) {
        call.fail(toGatewayError(error))
      }
    }
  }
}
