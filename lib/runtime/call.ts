/** What the invocation layer hands to a runtime and gets back. Owner: §1, page runtime/daemon. */

import type { Bytes } from '../core/byte-pool.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import type { StreamWindow } from './stream-window.ts'

/** The end of a header that many calls share, ready to be sent. */
export interface HeaderRest {
  readonly text: string
  readonly bytes: Buffer
}

/** What has a call, as the call sees it: a worker. */
export interface CallHost {
  /** Index (from 1) of the socket it was started at. */
  readonly socketIndex: number
  /** The receiver of a stream took `bytes`. */
  grant(call: RuntimeCall, bytes: number): void
  /** Nobody waits for the call any more. */
  abandon(call: RuntimeCall): void
}

/**
 * Where a call is. It goes from left to right, and back only from `sent` to `waiting`, when a worker ends before it began.
 *
 *   new ─► queued ─► admitted ─► waiting ─► sent ─► running ─► streaming ─► upstream ─► done
 *          for a     has its     for a      to a    in its     its answer   its answer
 *          slot      slot        worker     worker  handler    has begun    is fetched elsewhere
 *
 * `done` is reached from everywhere: the runtime is through with it, it failed, or nobody waits any more.
 */
export type CallPhase =
  | 'new'
  | 'queued'
  | 'admitted'
  | 'waiting'
  | 'sent'
  | 'running'
  | 'streaming'
  | 'upstream'
  | 'done'

/**
 * One call on its way through a worker. The invocation layer extends it and implements the callbacks; exactly one of
 * `onReply` and `onError` is called, once, and after an `onReply` with `stream` exactly one `onEnd`; none once it is done.
 * A class with plain fields instead of closures or promises: this is the hot path.
 */
export abstract class RuntimeCall {
  readonly fn: FunctionVersion
  phase: CallPhase = 'new'
  /** JSON text of the `call` frame's header, or its beginning when `rest` has the rest. */
  header = '{}'
  rest: HeaderRest | null = null
  /** Raw request body, null when there is none. */
  body: Bytes | null = null

  /** Monotonic ms when it is handed over; 0 lets the runtime look itself. */
  handedAt = 0

  // Owned by the runtime layer.
  /** Request id on the worker's connection; 0 before it is sent. */
  wireId = 0
  /** The worker that has it, or had it last; null before. */
  host: CallHost | null = null
  /** True when the worker was not ready yet when it got the call. */
  cold = false
  /** Why the newest version of its function does not serve it, but the previous one; null when the newest one does. */
  loadError: GatewayError | null = null
  /** Neighbours among the worker's open calls. */
  openBefore: RuntimeCall | null = null
  openAfter: RuntimeCall | null = null
  /** Monotonic ms when it began to wait or to run, and by when it must answer (or send its next chunk); 0 before that. */
  startedAt = 0
  deadline = 0
  /** Monotonic ms when its answer was read; 0 before that. */
  endedAt = 0
  /** True when its handler must end if it is withdrawn, and not go on to its deadline for nobody. */
  mustEnd = false
  /** True when it is past its deadline and still open in the worker. */
  late = false
  /** Of its stream; null before it has one. */
  window: StreamWindow | null = null

  constructor(fn: FunctionVersion) {
    this.fn = fn
  }

  get wholeHeader(): string {
    return this.rest === null ? this.header : this.header + this.rest.text
  }

  /** Nobody waits for it any more: its worker is told, and where it waits it is passed over. No callback follows. */
  withdraw(): void {
    const { phase } = this
    if (phase === 'running' || phase === 'sent' || phase === 'streaming') this.host!.abandon(this)
    this.phase = 'done'
  }

  /** It ends without a whole answer; one that has begun is cut. */
  cut(error: GatewayError): void {
    if (this.phase === 'done') return
    const hasBegun = this.phase === 'streaming'
    this.phase = 'done'
    if (hasBegun) this.onEnd(error)
    else this.onError(error)
  }

  /**
   * @param header - JSON text of the `reply` header, unchecked
   * @param body - raw body; a view that is valid during the call only
   * @param stream - true when `onChunk` and `onEnd` follow
   */
  abstract onReply(header: string, body: Buffer, stream: boolean): void
  /** One piece of a streamed body; a view that is valid during the call only. Answer with `CallHost.grant(call, bytes)`. */
  abstract onChunk(body: Buffer): void
  /** The stream is over; an error means it was cut. */
  abstract onEnd(error: GatewayError | null): void
  abstract onLog(stream: 'stdout' | 'stderr', text: string): void
  abstract onError(error: GatewayError): void
}
