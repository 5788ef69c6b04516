/** The doors without a client connection: `/_fn/invoke`, jobs, schedules, `gateway.invoke()`. Owner: §1. */

import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { toJsonRecord } from '../core/json.ts'
import { MAX_FRAME_BYTES } from '../core/limits.ts'
import { FRAME_LIMITS } from '../runtime/wire-protocol.ts'
import { type EventParts, toCallHeader, toQueryJsonOf } from './event.ts'
import { isForwardedHeader, TRIGGER_HEADER, withoutSessionCookie } from './forwarded-headers.ts'
import { Call, checkPolicy, type Invoker, isMethodAllowed, toMethodError } from './invoke.ts'
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
  signal?: AbortSignal
  /** True ends the handler too when the call is stopped, instead of letting it go on to its deadline. */
  mustEnd?: boolean
  /** Gets the body instead of `InternalResult.body`, which then stays empty. */
  sink?: BodySink
}

/** The outcome of a call without an HTTP client. */
export interface InternalResult {
  id: string
  /** Status of the response, or of the refusal in `error`; 0 for a call that was stopped. */
  status: number
  /** Names and values in turn. */
  headers: readonly string[]
  body: Buffer
  stdout: string
  stderr: string
  /** `traceparent` of the call. */
  trace: string
  /** From admission to the end, ms. */
  latencyMs: number
  /** Waiting for a slot, ms. */
  queuedMs: number
  /** A refusal or failure of the gateway; null for a response of the function. */
  error: GatewayError | null
}

/** Runs a call through the same admission as public HTTP. Never rejects. */
export function invokeInternal(invoker: Invoker, request: InternalRequest): Promise<InternalResult> {
  return new Promise(resolve => {
    const call = new InternalCall(request, invoker, resolve)
    const refused = call.prepare()
    if (refused === null) invoker.start(call)
    else call.fail(refused)
  })
}

class InternalCall extends Call {
  readonly #request: InternalRequest
  readonly #resolve: (result: InternalResult) => void
  readonly #begunAt: number
  /** Settles when the sink took all pieces so far. */
  #sunk: Promise<void> = Promise.resolve()
  #sinkError: GatewayError | null = null
  #head: ReplyHead | null = null
  #chunks: Buffer[] = []
  #bytes = 0

  constructor(request: InternalRequest, invoker: Invoker, resolve: (result: InternalResult) => void) {
    super(request.fn, invoker)
    this.id = request.id
    this.capture = true
    this.mustEnd = request.mustEnd ?? false
    this.#request = request
    this.#resolve = resolve
    this.#begunAt = invoker.clock.monotonic()
  }

  /** Makes the event. @returns why the call cannot be made, or null */
  prepare(): GatewayError | null {
    const { fn, method, signal, body: given, isUnchecked = false } = this.#request
    const body = typeof given === 'string' ? Buffer.from(given) : (given ?? null)
    this.body = body !== null && body.length > 0 ? body : null
    const headers = toPlainHeaders(this.#request)
    this.#joinTrace(headers)
    if (!isMethodAllowed(fn, method)) return toMethodError(fn.policy.methods)
    const refused = checkPolicy(fn, body?.length ?? 0)
    if (refused !== null) return refused
    try {
      const parts = this.#toParts(headers)
      const wrong =
        fn.policy.validate && !isUnchecked ? this.#checkSchema(parts, headers['content-type'] ?? null) : null
      if (wrong !== null) return wrong
      this.header = toCallHeader(parts)
    } catch (error) {
      const why = (error as Error).message
      return new GatewayError('BAD_REQUEST', `query, headers and context must be JSON values: ${why}`)
    }
    // The largest that a worker reads; a client of HTTP cannot send so much.
    const { header: limit } = FRAME_LIMITS.call
    if (Buffer.byteLength(this.header) > limit)
      return new GatewayError(
        'BODY_TOO_LARGE',
        `query, headers and context are too large: together at most ${limit} bytes`,
      )
    if (signal?.aborted) return canceled()
    signal?.addEventListener('abort', this.#onAbort, { once: true })
    return null
  }

  readonly #onAbort = (): void => this.fail(canceled())

  #joinTrace(headers: Readonly<Record<string, string>>): void {
    const { fn, trace, traceState } = this.#request
    const { spans, traceIds } = this.invoker
    const isAskers = headers.traceparent === undefined
    const traceparent = (isAskers ? trace : headers.traceparent) ?? null
    const tracestate = (isAskers ? traceState : headers.tracestate) ?? null
    this.span = spans === null ? null : spans.call(fn.key, traceparent, tracestate)
    traceIds.join(this, traceparent, tracestate)
  }

  #toParts(headers: Readonly<Record<string, string>>): EventParts {
    const { method, path, rawPath, params, query, ip, user, trigger } = this.#request
    return {
      id: this.id,
      ts: this.invoker.clock.wall(),
      method,
      path,
      rawPath: rawPath ?? path,
      params: params ?? null,
      queryJson: toQueryJsonOf(query ?? {}),
      headersJson: toJsonRecord(headers),
      ip: ip ?? '',
      userAgent: headers['user-agent'] ?? null,
      cookie: headers.cookie ?? null,
      userJson: JSON.stringify(user ?? null) ?? 'null',
      triggerJson: JSON.stringify(trigger ?? null) ?? 'null',
      trace: this.trace,
      traceState: this.traceState,
    }
  }

  /** As a request of HTTP is checked. @returns the refusal, or null */
  #checkSchema({ method, params, queryJson, headersJson }: EventParts, type: string | null): GatewayError | null {
    const { schemas } = this.invoker
    if (schemas === null) return null
    this.checkedAs = method
    const wrong = schemas.checkTexts(this.fn, { method, params, queryJson, headersJson })
    return wrong ?? schemas.checkBody(this.fn, method, type, this.body as Buffer | null)
  }

  override onHead(head: ReplyHead, body: Buffer, stream: boolean): void {
    this.#head = head
    this.#request.sink?.begin(head.status, head.headers)
    // A streamed body that would not be read.
    const isUnread = stream && !this.#takesBody
    if (isUnread) this.abandon()
    else this.#take(body)
    if (isUnread || !stream) this.onDone(null)
  }

  /** The body of an answer to HEAD is dropped. */
  get #takesBody(): boolean {
    return this.#head!.hasBody && this.#request.method !== 'HEAD'
  }

  override onPiece(body: Buffer): void {
    this.#take(body)
    if (this.#request.sink !== undefined) return
    if (this.#bytes <= MAX_FRAME_BYTES) this.grant(body.length)
    else
      this.fail(new GatewayError('CONTRACT_BROKEN', `answer too large to keep: the limit is ${MAX_FRAME_BYTES} bytes`))
  }

  #take(body: Buffer): void {
    if (body.length === 0 || !this.#takesBody) return
    const { sink } = this.#request
    const piece = Buffer.from(body)
    if (sink !== undefined) {
      this.#pass(piece, sink)
      return
    }
    this.#chunks.push(piece)
    this.#bytes += piece.length
  }

  /** The worker may send more when the sink took what came; before that it is held back. */
  #pass(piece: Buffer, sink: BodySink): void {
    this.#sunk = this.#sunk
      .then(() => (this.#sinkError === null ? sink.write(piece) : undefined))
      .then(() => this.grant(piece.length))
      .catch(error => {
        this.#sinkError ??= toGatewayError(error)
        this.fail(this.#sinkError)
      })
  }

  override onDone(error: GatewayError | null): void {
    this.#request.signal?.removeEventListener('abort', this.#onAbort)
    if (this.#request.sink === undefined) this.#settle(error)
    else void this.#sunk.then(() => this.#settle(error ?? this.#sinkError))
  }

  override onFailed(error: GatewayError): void {
    this.onDone(error)
  }

  #settle(error: GatewayError | null): void {
    const head = error === null ? this.#head : null
    const status = head?.status ?? error?.status ?? 0
    this.span?.end({ status })
    const { id, stdout, stderr, trace, queuedMs } = this
    this.#resolve({
      ...{ id, status, stdout, stderr, trace, queuedMs, error },
      // Of the caller's own: the head serves further answers.
      headers: [...(head?.headers ?? [])],
      body: head === null ? Buffer.alloc(0) : Buffer.concat(this.#chunks),
      latencyMs: this.invoker.clock.monotonic() - this.#begunAt,
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
