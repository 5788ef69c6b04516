/** The doors without a client connection: `/_fn/invoke`, jobs, schedules, `gateway.invoke()`. Owner: §1. */

import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { toJsonRecord } from '../core/json.ts'
import { MAX_FRAME_BYTES } from '../core/limits.ts'
import { FRAME_LIMITS } from '../runtime/wire-protocol.ts'
import { type EventParts, toCallHeader, toQueryJsonOf } from './event.ts'
import { isForwardedHeader, TRIGGER_HEADER, withoutSessionCookie } from './forwarded-headers.ts'
import { Call, type CallReceiver, type Invoker } from './invoke.ts'
import { checkPolicy, isMethodAllowed, toMethodError } from './policy.ts'
import type { ReplyHead } from './response.ts'

/** Takes the body of an answer of any size, at its own speed. */
export interface BodySink {
  /** The answer has begun; not called when there is none. @param headers - names and values in turn */
  begin(status: number, headers: readonly string[]): void
  /** Resolves when there is room for more; a rejection ends the call with its reason. */
  write(piece: Buffer): Promise<void>
}

export interface InternalRequest {
  fn: FunctionVersion
  /** Unique id of the call, see RequestIds. */
  id: string
  method: string
  /** Path shown to the handler; the function's own route. */
  path: string
  rawPath?: string
  params?: Readonly<Record<string, string>>
  query?: Readonly<Record<string, unknown>>
  headers?: Readonly<Record<string, string>>
  body?: Buffer | string | null
  /** `context.user` and `context.trigger`; JSON values. */
  user?: unknown
  trigger?: unknown
  /** Address of the caller; empty for the gateway itself. */
  ip?: string
  /** True for a call without a request, such as a ping: it need not be what the function's schema asks for. */
  isUnchecked?: boolean
  /** `traceparent` and `tracestate` of the caller; those among the headers come first. */
  trace?: string | null
  traceState?: string | null
  /** Stops the call. */
  signal?: AbortSignal
  /** True ends the handler too when the call is stopped, instead of letting it go on to its deadline. */
  mustEnd?: boolean
  /** Gets the body instead of `InternalResult.body`, which then stays empty. */
  sink?: BodySink
}

export interface InternalResult {
  /** Of the call. */
  id: string
  /** Status of the answer, or of the refusal in `error`; 0 when the call was stopped. */
  status: number
  /** Names and values in turn. */
  headers: readonly string[]
  body: Buffer
  stdout: string
  stderr: string
  /** `traceparent` of the call. */
  trace: string
  /** From admission to the end, and waiting for a place; ms. */
  latencyMs: number
  queuedMs: number
  /** A refusal or failure of the gateway, as opposed to an answer of the function. */
  error: GatewayError | null
}

/** Runs a call through the same admission as public HTTP. Never rejects. */
export function invokeInternal(invoker: Invoker, request: InternalRequest): Promise<InternalResult> {
  return new Promise(resolve => {
    const { call, refused } = new InternalCall(request, invoker, resolve)
    if (refused === null) invoker.start(call)
    else call.fail(refused)
  })
}

class InternalCall implements CallReceiver {
  readonly call: Call
  /** Why the call cannot be made, or null. */
  readonly refused: GatewayError | null
  readonly #invoker: Invoker
  readonly #resolve: (result: InternalResult) => void
  readonly #begunAt: number
  readonly #signal: AbortSignal | null
  /** The body of an answer to HEAD is dropped. */
  readonly #isHead: boolean
  readonly #sink: BodySink | null
  /** Settles when the sink took all pieces so far. */
  #sunk: Promise<void> = Promise.resolve()
  #sinkError: GatewayError | null = null
  #head: ReplyHead | null = null
  #chunks: Buffer[] = []
  #bytes = 0

  constructor(request: InternalRequest, invoker: Invoker, resolve: (result: InternalResult) => void) {
    this.call = new Call(request.fn, invoker, this)
    this.call.id = request.id
    this.call.capture = true
    this.call.mustEnd = request.mustEnd ?? false
    this.#invoker = invoker
    this.#resolve = resolve
    this.#begunAt = invoker.clock.monotonic()
    this.#signal = request.signal ?? null
    this.#isHead = request.method === 'HEAD'
    this.#sink = request.sink ?? null
    this.refused = this.#prepare(request)
  }

  #prepare(request: InternalRequest): GatewayError | null {
    const body = typeof request.body === 'string' ? Buffer.from(request.body) : (request.body ?? null)
    const given = body !== null && body.length > 0 ? body : null
    this.call.body = given
    const headers = toPlainHeaders(request)
    const { spans, traceIds } = this.#invoker
    const isAskers = headers.traceparent === undefined
    const traceparent = (isAskers ? request.trace : headers.traceparent) ?? null
    const tracestate = (isAskers ? request.traceState : headers.tracestate) ?? null
    this.call.span = spans === null ? null : spans.call(request.fn.key, traceparent, tracestate)
    traceIds.join(this.call, traceparent, tracestate)
    if (!isMethodAllowed(request.fn, request.method)) return toMethodError(request.fn.policy.methods)
    const refused = checkPolicy(request.fn, body?.length ?? 0)
    if (refused !== null) return refused
    try {
      const parts = this.#toParts(request, headers)
      const isChecked = request.fn.policy.validate && !request.isUnchecked
      const wrong = isChecked ? this.#checkSchema(request.fn, parts, headers['content-type'] ?? null, given) : null
      if (wrong !== null) return wrong
      this.call.header = toCallHeader(parts)
    } catch (error) {
      const why = (error as Error).message
      return new GatewayError('BAD_REQUEST', `query, headers and context must be JSON values: ${why}`)
    }
    // The largest that a worker reads; a client of HTTP cannot send so much.
    const { header: limit } = FRAME_LIMITS.call
    if (Buffer.byteLength(this.call.header) > limit)
      return new GatewayError(
        'BODY_TOO_LARGE',
        `query, headers and context are too large: together at most ${limit} bytes`,
      )
    if (this.#signal?.aborted) return canceled()
    this.#signal?.addEventListener('abort', this.#onAbort, { once: true })
    return null
  }

  /** As a request of HTTP is checked. @returns the refusal, or null */
  #checkSchema(fn: FunctionVersion, parts: EventParts, type: string | null, body: Buffer | null): GatewayError | null {
    const { schemas } = this.#invoker
    if (schemas === null) return null
    const { method, params, queryJson, headersJson } = parts
    this.call.checkedAs = method
    const wrong = schemas.checkTexts(fn, { method, params, queryJson, headersJson })
    return wrong ?? schemas.checkBody(fn, method, type, body)
  }

  #toParts(request: InternalRequest, headers: Readonly<Record<string, string>>): EventParts {
    return {
      id: request.id,
      ts: this.#invoker.clock.wall(),
      method: request.method,
      path: request.path,
      rawPath: request.rawPath ?? request.path,
      params: request.params ?? null,
      queryJson: toQueryJsonOf(request.query ?? {}),
      headersJson: toJsonRecord(headers),
      ip: request.ip ?? '',
      userAgent: headers['user-agent'] ?? null,
      cookie: headers.cookie ?? null,
      userJson: JSON.stringify(request.user ?? null) ?? 'null',
      triggerJson: JSON.stringify(request.trigger ?? null) ?? 'null',
      trace: this.call.trace,
      traceState: this.call.traceState,
    }
  }

  readonly #onAbort = (): void => this.call.fail(canceled())

  onHead(head: ReplyHead, body: Buffer, stream: boolean): void {
    this.#head = head
    this.#sink?.begin(head.status, head.headers)
    // A streamed body that would not be read.
    const isUnread = stream && (this.#isHead || !head.hasBody)
    if (isUnread) this.call.abandon()
    else this.#take(body)
    if (isUnread || !stream) this.#finish(null)
  }

  onChunk(body: Buffer): void {
    this.#take(body)
    if (this.#sink !== null) return
    if (this.#bytes > MAX_FRAME_BYTES) {
      this.call.fail(
        new GatewayError('CONTRACT_BROKEN', `answer too large to keep: the limit is ${MAX_FRAME_BYTES} bytes`),
      )
    } else {
      this.call.grant(body.length)
    }
  }

  onEnd(error: GatewayError | null): void {
    this.#finish(error)
  }

  onError(error: GatewayError): void {
    this.#finish(error)
  }

  #take(body: Buffer): void {
    if (body.length === 0 || !this.#head!.hasBody || this.#isHead) return
    if (this.#sink !== null) {
      this.#pass(Buffer.from(body))
      return
    }
    this.#chunks.push(Buffer.from(body))
    this.#bytes += body.length
  }

  /** The worker may send more when the sink took what came; before that it is held back. */
  #pass(piece: Buffer): void {
    this.#sunk = this.#sunk
      .then(() => (this.#sinkError === null ? this.#sink!.write(piece) : undefined))
      .then(() => this.call.grant(piece.length))
      .catch(error => {
        this.#sinkError ??= toGatewayError(error)
        this.call.fail(this.#sinkError)
      })
  }

  #finish(error: GatewayError | null): void {
    this.#signal?.removeEventListener('abort', this.#onAbort)
    if (this.#sink === null) this.#settle(error)
    else void this.#sunk.then(() => this.#settle(error ?? this.#sinkError))
  }

  #settle(error: GatewayError | null): void {
    const answered = error === null && this.#head !== null
    const status = answered ? this.#head!.status : (error?.status ?? 0)
    this.call.span?.end({ status })
    this.#resolve({
      id: this.call.id,
      status,
      // Of the caller's own: the head serves further answers.
      headers: answered ? [...this.#head!.headers] : [],
      body: answered ? Buffer.concat(this.#chunks) : Buffer.alloc(0),
      stdout: this.call.stdout,
      stderr: this.call.stderr,
      trace: this.call.trace,
      latencyMs: this.#invoker.clock.monotonic() - this.#begunAt,
      queuedMs: this.call.queuedMs,
      error,
    })
  }
}

function canceled(): GatewayError {
  return new GatewayError('SHUTTING_DOWN', 'call canceled', { status: 0 })
}

/** Lower-case names in a record without prototype; headers that a public request may not pass on are left out here too. */
function toPlainHeaders({ headers = {}, trigger = null }: InternalRequest): Record<string, string> {
  const plain: Record<string, string> = Object.create(null)
  for (const [name, value] of Object.entries(headers)) {
    const lower = name.toLowerCase()
    // The gateway's own mark says what its trigger says; without one it would be a forgery.
    const isPassed = lower === TRIGGER_HEADER ? trigger !== null : isForwardedHeader(lower)
    const kept = isPassed && lower === 'cookie' ? withoutSessionCookie(value) : value
    if (isPassed && kept !== null) plain[lower] = kept
  }
  return plain
}

/** The body of a call that is written as JSON with its other fields. @param body - text, or a JSON value that becomes its text; undefined and null for none */
export function toCallBody(body: unknown): Buffer | null {
  if (body === undefined || body === null) return null
  return Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
}

/** A body that is written as JSON says so, unless the caller gave it another type. */
export function withBodyType(
  headers: Readonly<Record<string, string>>,
  body: unknown,
): Readonly<Record<string, string>> {
  if (body === undefined || body === null || typeof body === 'string') return headers
  if (Object.keys(headers).some(name => name.toLowerCase() === 'content-type')) return headers
  return { ...headers, 'Content-Type': 'application/json' }
}
