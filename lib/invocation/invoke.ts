/**
 * The one path from a call to its answer, whatever door it came through, and the rules that it is checked against before. Spec: §1;
 * owner of the steps: §2.8, §2.6, §2.10.
 *
 *   start ─► enter ─► run ─► dispatch ─► onReply ─► read head ─► onHead ─► (onPiece, onDone)
 *              │       │         │           │           │         └ directive: edge ─► onHead
 *              429/503 503       503         504 500     502
 *
 * Callbacks instead of promises: a call is one object with one `phase`, and each step is a method call on it. Its fate is
 * decided once; whatever decides it gives its slot back.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { toAllow } from '../core/http-text.ts'
import type { Method } from '../core/identity.ts'
import { SecretMask } from '../observe/function-output.ts'
import { type OpenSpan, type Spans, TraceIds } from '../observe/trace.ts'
import { RuntimeCall, toBrokenContract } from '../runtime/call.ts'
import type { Dispatcher } from '../runtime/dispatcher.ts'
import { checkAdapter } from './adapters.ts'
import type { Admission, AdmissionCall } from './admission.ts'
import type { SchemaGate } from './policy.ts'
import { type ReplyHead, ReplyHeads } from './response.ts'

/** Captured output of one call and stream, bytes; the rest is dropped with a note. */
const MAX_CAPTURED_OUTPUT_BYTES = 64 * 1024

/** True when the policy allows the method; HEAD follows GET. */
export function isMethodAllowed(fn: FunctionVersion, method: string): boolean {
  const wanted = method === 'HEAD' ? 'GET' : method
  return (fn.policy.methods as readonly string[]).includes(wanted)
}

export function toMethodError(methods: readonly Method[]): GatewayError {
  return new GatewayError('METHOD_NOT_ALLOWED', 'method not allowed', { headers: { Allow: toAllow(methods) } })
}

/** 413 for a body over the limit, by its declared or its real length. */
export function toBodyError(maxBodyBytes: number): GatewayError {
  return new GatewayError('BODY_TOO_LARGE', `payload too large: the limit is ${maxBodyBytes} bytes`)
}

/**
 * Checks a call against its function's policy. Methods and hosts are the route's business; a door without a route asks
 * isMethodAllowed first.
 * @param bodyBytes - declared or known length of the body; 0 when there is none or it is not known yet
 * @returns the refusal, or null
 */
export function checkPolicy(fn: FunctionVersion, bodyBytes: number): GatewayError | null {
  const { configProblem, maxBodyBytes } = fn.policy
  if (configProblem !== null) {
    const hint = 'Fix the file: until then every call that it applies to is refused.'
    return new GatewayError('CONFIG_BROKEN', configProblem, { detail: { hint } })
  }
  if (bodyBytes > maxBodyBytes) return toBodyError(maxBodyBytes)
  return fn.policy.adapter === 'native' ? null : checkAdapter(fn)
}

/**
 * Performs the upstream request a handler asked for (§2.10) and answers through `call.answer`, `answerChunk`,
 * `answerEnd` or `fail`. Sets `call.stopEdge` and `call.grantEdge` while it works.
 * @param body - the directive's body; a view that is valid during the call only
 */
export type EdgeHandler = (call: Call, directive: Readonly<Record<string, unknown>>, body: Buffer) => void

export interface InvokerOptions {
  clock: Clock
  /** Finds the workers of a function. */
  dispatcher: { setOf(fn: FunctionVersion): Pick<ReturnType<Dispatcher['setOf']>, 'dispatch'> }
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
 * One call, from the door that made it to its last byte. It has a slot of its function until its fate is decided. Each door extends it
 * and takes the answer: exactly one of `onHead` and `onFailed` comes, once, and after an `onHead` with `stream` exactly one `onDone`.
 * After `abandon` nothing comes.
 */
export abstract class Call extends RuntimeCall implements AdmissionCall {
  protected readonly invoker: Invoker
  id = ''
  /** Of the request that it answers; empty where only the event says so. */
  method = ''
  /** `traceparent` and `tracestate` of its work. */
  trace = ''
  traceState: string | null = null
  span: OpenSpan | null = null
  /** True when captured output is wanted in `stdout` and `stderr`. */
  capture: boolean
  stdout = ''
  stderr = ''
  /** Method of a request that was checked against its schema, so that the answer is looked at too; null without a check. */
  checkedAs: string | null = null
  /** Milliseconds that the call waited for a slot. */
  queuedMs = 0
  /** Set by the edge handler: stops the upstream request, and gets the number of streamed bytes that the door took. */
  stopEdge: (() => void) | null = null
  grantEdge: ((bytes: number) => void) | null = null

  slots: object | null = null
  queuePrevious: AdmissionCall | null = null
  queueNext: AdmissionCall | null = null
  enteredAt = 0
  refuseAt = 0

  constructor(fn: FunctionVersion, invoker: Invoker) {
    super(fn)
    this.invoker = invoker
    this.capture = fn.policy.includeDebugHeaders
  }

  /**
   * @param body - the whole body, or with `stream` its first piece; valid during the call only
   * @param stream - true when `onPiece` and `onDone` follow
   */
  protected abstract onHead(head: ReplyHead, body: Buffer, stream: boolean): void
  /** Valid during the call only. Answer with `grant` when the bytes are taken. */
  protected abstract onPiece(body: Buffer): void
  /** An error means the body was cut. */
  protected abstract onDone(error: GatewayError | null): void
  /** A refusal or failure before any answer. */
  protected abstract onFailed(error: GatewayError): void

  get sharesOrigin(): boolean {
    return this.invoker.heads.sharesOrigin
  }

  onAdmitted(): void {
    this.queuedMs = this.handedAt - this.enteredAt
    this.invoker.run(this)
  }

  onRefused(error: GatewayError): void {
    this.phase = 'done'
    this.onFailed(error)
  }

  override onReply(header: string, body: Buffer, stream: boolean): void {
    if (this.slots === null) return
    let head: ReplyHead
    try {
      head = this.invoker.heads.read(header)
    } catch (error) {
      this.fail(withFile(toGatewayError(error), this.fn))
      return
    }
    if (head.proxy === null) this.answer(head, body, stream)
    else this.#passToEdge(head.proxy, body, stream)
  }

  #passToEdge(directive: Readonly<Record<string, unknown>>, body: Buffer, stream: boolean): void {
    const { edge } = this.invoker.options
    if (stream) {
      this.fail(toBrokenContract('a proxy directive cannot be streamed', this.fn))
    } else if (edge === null || this.fn.policy.edge === null) {
      this.fail(new GatewayError('EDGE_FAILED', 'edge proxy disabled for this function'))
    } else {
      this.phase = 'upstream'
      try {
        edge(this, directive, body)
      } catch (error) {
        this.fail(toGatewayError(error))
      }
    }
  }

  /** Ends the wait for an answer: used by `onReply` and by the edge handler. */
  answer(head: ReplyHead, body: Buffer, stream: boolean): void {
    if (this.slots === null) return
    if (this.checkedAs !== null && !stream) this.invoker.schemas?.look(this.fn, this.checkedAs, head, body)
    if (!stream) this.#end()
    this.onHead(head, body, stream)
  }

  answerChunk(body: Buffer): void {
    if (this.slots !== null) this.onPiece(body)
  }

  answerEnd(error: GatewayError | null): void {
    if (this.slots === null) return
    this.#end()
    this.onDone(error && this.invoker.secrets.hideIn(this.fn, error))
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
    const text = this.invoker.secrets.hide(this.fn, written)
    if (this.capture && this[stream].length < MAX_CAPTURED_OUTPUT_BYTES) {
      this[stream] = (this[stream] + text).slice(0, MAX_CAPTURED_OUTPUT_BYTES)
    }
    this.invoker.options.onLog?.(this, stream, text)
  }

  /** The call ends without an answer of the function. */
  fail(error: GatewayError): void {
    if (this.slots === null && this.phase !== 'new') return
    this.#stop()
    this.onFailed(this.invoker.secrets.hideIn(this.fn, error))
  }

  /** The door took `bytes` of a stream. */
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

  #stop(): void {
    if (this.phase !== 'queued') this.withdraw()
    this.stopEdge?.()
    this.stopEdge = null
    this.#end()
  }

  /** Its fate is decided: the slot is free, or its place in the queue. */
  #end(): void {
    const { admission, onCold } = this.invoker.options
    admission.leave(this)
    this.phase = 'done'
    if (this.cold) onCold?.(this.fn)
  }
}

/** A refused answer with the file whose function gave it. */
function withFile(error: GatewayError, { entryFile }: FunctionVersion): GatewayError {
  const { code, message, status } = error
  return new GatewayError(code, message, { status, detail: { file: entryFile, ...error.detail }, cause: error.cause })
}

/** Shared by all calls of a gateway: admission, workers, and the handler of proxy directives. */
export class Invoker {
  readonly options: InvokerOptions
  readonly clock: Clock
  readonly heads: ReplyHeads
  readonly traceIds = new TraceIds()
  /** Null without tracing. */
  spans: Spans | null = null
  readonly schemas: SchemaGate | null
  /** Takes secrets out of output and errors of functions. */
  readonly secrets: SecretMask

  constructor(options: InvokerOptions) {
    this.options = options
    this.clock = options.clock
    this.heads = new ReplyHeads(options.sharesOrigin)
    this.schemas = options.schemas ?? null
    this.secrets = options.secrets ?? new SecretMask()
  }

  /** Runs a call whose header and body are set, or refuses it, now or after a wait. */
  start(call: Call): void {
    const outcome = this.options.admission.enter(call)
    if (outcome === null) this.run(call)
    else if (outcome !== 'queued') call.fail(outcome)
  }

  /** Gives an admitted call to the workers of its function. */
  run(call: Call): void {
    try {
      this.options.dispatcher.setOf(call.fn).dispatch(call)
    } catch (error) {
      call.fail(toGatewayError(error))
    }
  }
}
