/** What the invocation layer hands to a runtime and gets back. Owner: §1, page runtime/daemon. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'

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
 * One call on its way through a worker. The invocation layer extends it and implements the callbacks; exactly one of
 * `onReply` and `onError` is called, once, and after an `onReply` with `stream` exactly one `onEnd`.
 * A class with plain fields instead of closures or promises: this is the hot path.
 */
export abstract class RuntimeCall {
  readonly fn: FunctionVersion
  /** JSON text of the `call` frame's header, or its beginning when `rest` has the rest. */
  header = '{}'
  rest: HeaderRest | null = null
  /** Raw request body, null when there is none. */
  body: Buffer | null = null

  /** Monotonic ms when it is handed over; 0 lets the runtime look itself. */
  handedAt = 0

  // Owned by the runtime layer.
  /** Request id on the worker's connection; 0 before it is sent. */
  wireId = 0
  worker: CallHost | null = null
  /** True when the worker was not ready yet when it got the call. */
  cold = false
  /** Neighbours among the worker's open calls. */
  openBefore: RuntimeCall | null = null
  openAfter: RuntimeCall | null = null
  /** Monotonic ms when the call began to run, and by when it must answer (or send its next chunk); 0 before it runs. */
  startedAt = 0
  deadline = 0
  /** Monotonic ms when its answer was read; 0 before that. */
  endedAt = 0
  /** True when it is past its deadline and still open in the worker. */
  late = false
  /** Stream bytes received and not yet granted again. */
  ungranted = 0
  state: 'new' | 'waiting' | 'sent' | 'running' | 'streaming' | 'done' = 'new'

  constructor(fn: FunctionVersion) {
    this.fn = fn
  }

  get wholeHeader(): string {
    return this.rest === null ? this.header : this.header + this.rest.text
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

export interface SocketHealth {
  /** From 1. */
  index: number
  uri: string
  up: boolean
  reason: string
}

export interface RuntimeHealth {
  routing: 'single' | 'round_robin'
  up: boolean
  reason: string
  sockets: SocketHealth[]
}

/** One enabled runtime: python, node, php, go and rust behind daemons, lua on threads. */
export interface Runtime {
  readonly name: RuntimeName
  /** Resolves when every socket is up or has a reason why not; never rejects. */
  start(): Promise<void>
  health(): RuntimeHealth
  /** Runs a call that admission has let in. Never throws; failures arrive at `call.onError`. */
  dispatch(call: RuntimeCall): void
  /** The client left or the gateway stops: the call's callbacks are not used any more. */
  abandon(call: RuntimeCall): void
  /** Starts workers until the function has `count` of them. */
  warm(fn: FunctionVersion, count: number): void
  /** Workers of functions whose `key` is gone or whose `signature` changed finish their calls and end. */
  retain(functions: ReadonlyMap<string, FunctionVersion>): void
  /** Live workers of a function: for records, debug headers and tests. */
  workerCount(key: string): number
  close(timeoutMs: number): Promise<void>
}
