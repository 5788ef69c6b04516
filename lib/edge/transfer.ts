/**
 * One upstream request on behalf of one call. Spec: §2.10.
 *
 *   resolve ─► check ─► connect ─► answer (answer.ts)
 *     502       502      502        502
 *     504                504        504
 */

import { isIP } from 'node:net'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { headerOf } from '../core/http-text.ts'
import type { Call } from '../invocation/invoke.ts'
import type { OpenSpan } from '../observe/trace.ts'
import type { ResolvedAddress } from './addresses.ts'
import type { AnswerHead } from './answer-parser.ts'
import { type AnswerOwner, EdgeAnswer } from './answer.ts'
import { checkAddresses, type EdgeNetwork, sendPinned } from './connections.ts'
import { type EdgeRequest, failed } from './target.ts'
import type { AnswerTaker, Reuse, UpstreamRequest } from './upstream-connection.ts'

/** Requests that may be sent again when a kept connection turns out to be closed (RFC 9110 9.2.2). */
const IDEMPOTENT: ReadonlySet<string> = new Set(['GET', 'HEAD', 'PUT', 'DELETE'])
const WITH_BODY: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH'])

/** Shared by all transfers of a gateway. */
export interface EdgeContext extends EdgeNetwork {
  /** A transfer is over. */
  forget(transfer: EdgeTransfer): void
}

export class EdgeTransfer implements AnswerTaker, AnswerOwner {
  readonly #context: EdgeContext
  readonly #call: Call
  readonly #request: EdgeRequest
  readonly #allowPrivate: boolean
  readonly #body: Buffer
  #sent: UpstreamRequest | null = null
  #answer: EdgeAnswer | null = null
  #isOver = false
  /** Index in the list of all transfers. */
  place = 0
  /** Its outcome; `left` unless another one came. */
  result: 'answered' | 'failed' | 'left' = 'left'
  /** Status of the upstream; 0 before it answered. */
  #status = 0
  readonly #span: OpenSpan | null
  readonly time: TimeLimit

  constructor(context: EdgeContext, call: Call, request: EdgeRequest, allowPrivate: boolean, body: Buffer) {
    this.#context = context
    this.#call = call
    this.#request = request
    this.#allowPrivate = allowPrivate
    this.#body = body
    this.#span = call.span?.upstream(request.method, request.hostname, request.port) ?? null
    const { timeoutMs } = call.fn.policy
    this.time = new TimeLimit(context.clock, request.timeoutMs ?? timeoutMs, overdue =>
      this.fail(toTimeout(overdue, request.timeoutMs, timeoutMs)),
    )
  }

  start(): void {
    const { clock } = this.#context
    const now = clock.monotonic()
    const { startedAt, fn } = this.#call
    // The time of the handler counts: both together may take what the function may take.
    const left = startedAt === 0 ? fn.policy.timeoutMs : startedAt + fn.policy.timeoutMs - now
    this.time.begin(Math.max(1, Math.min(left, this.#request.timeoutMs ?? left)))
    const { hostname, method } = this.#request
    const reuse = IDEMPOTENT.has(method) ? 'any' : 'trusted'
    const family = isIP(hostname)
    if (family !== 0) {
      this.#send([{ address: hostname, family }], reuse)
      return
    }
    this.#context.lookup.addresses(hostname).then(
      addresses => this.#send(addresses, reuse),
      error => this.fail(failed('proxy request failed: name not resolved', error)),
    )
  }

  /** The call does not wait any more, or the transfer is over. */
  stop(): void {
    if (this.#isOver) return
    this.#end()
    this.#sent?.destroy()
  }

  /** Ends the call with an error: as its answer, or by cutting the answer that has begun. */
  fail(error: GatewayError): void {
    if (this.#isOver) return
    this.result = 'failed'
    const isBegun = this.#answer?.isBegun === true
    this.stop()
    if (isBegun) this.#call.answerEnd(error)
    else this.#call.fail(error)
  }

  #end(): void {
    this.#isOver = true
    this.#call.stopEdge = null
    this.#answer?.stop()
    this.time.stop()
    const { result } = this
    this.#span?.end({ status: this.#status, ...(result !== 'answered' && { failure: result }) })
    this.#context.forget(this)
  }

  /**
   * Checks every address and connects to one of them.
   * @param addresses - not looked up again: only an address that was checked is reached
   * @param reuse - over which connection: a kept one may be closed just now
   */
  #send(addresses: readonly ResolvedAddress[], reuse: Reuse): void {
    if (this.#isOver) return
    const { headers, method } = this.#request
    const body = this.#body.length > 0 || WITH_BODY.has(method) ? this.#body : null
    try {
      const checked = checkAddresses(addresses, this.#request, this.#allowPrivate, this.#context.own)
      const traced = toTraceHeaders(headers, this.#span ?? this.#call)
      this.#sent = sendPinned(this.#context, this.#request, traced, checked, body, reuse, this)
    } catch (error) {
      this.fail(error instanceof GatewayError ? error : toTransferError(error as Error))
    }
  }

  onHead(head: AnswerHead): void {
    if (head.status === 101) {
      this.fail(failed('upstream asked for another protocol'))
      return
    }
    const source = this.#sent!
    try {
      this.#answer = new EdgeAnswer(this.#call, this.#request, this.#context.clock, this, head, source)
    } catch (error) {
      this.fail(error as GatewayError)
      return
    }
    const answer = this.#answer
    this.#status = head.status
    this.time.onHead(() => answer.bytes)
  }

  onPiece(piece: Buffer): void {
    this.#answer?.onPiece(piece)
  }

  onRead(): void {
    this.#answer?.onRead()
  }

  onEnd(): void {
    this.#answer?.onEnd()
  }

  onError(error: Error): void {
    if (this.#isOver) return
    const sent = this.#sent
    const isStale = this.#answer === null && sent?.isOverUsed === true && isClosed(error)
    if (error instanceof GatewayError) this.fail(error)
    else if (!isStale) this.fail(toTransferError(error))
    else if (sent.reuse === 'any') this.#send(sent.upstream.addresses, 'none')
    // The upstream may have seen it: a request that is not idempotent is never sent twice.
    else this.fail(toNotRepeated(error))
  }

  complete(): void {
    this.result = 'answered'
    this.#end()
  }
}

/**
 * Headers that name the trace of the request; none when the handler sets them itself.
 * @param headers - of the directive, names and values in turn
 */
export function toTraceHeaders(
  headers: readonly string[],
  { trace, traceState }: { trace: string; traceState: string | null },
): string[] {
  if (headerOf(headers, 'traceparent') !== null) return []
  const added = ['traceparent', trace]
  if (traceState !== null && headerOf(headers, 'tracestate') === null) added.push('tracestate', traceState)
  return added
}

function isClosed(error: NodeJS.ErrnoException): boolean {
  return error.code === 'ECONNRESET' || error.code === 'EPIPE'
}

/** Milliseconds within which a client must take what is under way when it is waited for, unless `timeout_ms` is longer. */
export const EDGE_CLIENT_MS = 10_000
/** Time of a whole answer: `gaps` times the time between two pieces, at least `minMs`, and a second for each `bytesPerSecond` bytes that came. */
export const EDGE_ANSWER = { minMs: 60_000, gaps: 10, bytesPerSecond: 16 * 1024 } as const

/** Which wait was too long. `ms` is its limit. */
export interface Overdue {
  who: 'answer' | 'upstream' | 'client' | 'all'
  ms: number
}

/**
 * How long a transfer may wait: for the upstream, for the client, and in all.
 *
 *   begin ─► no answer ─► head ─► upstream waited for ⇄ client waited for
 *              given ms            gap ms                 gap ms, at least EDGE_CLIENT_MS
 *                                  └───── in all: EDGE_ANSWER, more for every byte that came ─────┘
 */
export class TimeLimit {
  readonly #clock: Clock
  readonly #gapMs: number
  readonly #onOverdue: (overdue: Overdue) => void
  #overdue: Overdue = { who: 'answer', ms: 0 }
  /** Monotonic ms by when a sign must come of whom is waited for. */
  #deadline = 0
  /** Monotonic ms of the answer's head, and the bytes that came since; null before it. */
  #headAt = 0
  #bytes: (() => number) | null = null
  #timer: NodeJS.Timeout | null = null
  #timerAt = 0

  /**
   * @param gapMs - between two signs of life
   * @param onOverdue - called once, when a wait was too long
   */
  constructor(clock: Clock, gapMs: number, onOverdue: (overdue: Overdue) => void) {
    this.#clock = clock
    this.#gapMs = gapMs
    this.#onOverdue = onOverdue
  }

  /** @param ms - until the answer's head */
  begin(ms: number): void {
    this.#wait('answer', ms)
  }

  /** @param bytes - of the body, so far */
  onHead(bytes: () => number): void {
    this.#bytes = bytes
    this.#headAt = this.#clock.monotonic()
    this.#wait('upstream', this.#gapMs)
  }

  /** The upstream gave a sign of life, or is waited for again. */
  onUpstream(): void {
    this.#wait('upstream', this.#gapMs)
  }

  /** The client is what is waited for. */
  onClient(): void {
    this.#wait('client', Math.max(this.#gapMs, EDGE_CLIENT_MS))
  }

  stop(): void {
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer)
    this.#timer = null
  }

  #wait(who: Overdue['who'], ms: number): void {
    this.#overdue = { who, ms }
    this.#deadline = this.#clock.monotonic() + ms
    // One timer that looks again when it was early, instead of one per piece; only an earlier end needs another.
    if (this.#timer !== null && this.#timerAt > this.#deadline) this.stop()
    if (this.#timer === null) this.#arm()
  }

  /** An upstream that drips, or a client that sips, gives a sign in time each time, and could go on for ever. */
  get #totalMs(): number {
    const floor = Math.max(EDGE_ANSWER.minMs, this.#gapMs * EDGE_ANSWER.gaps)
    return floor + ((this.#bytes?.() ?? 0) / EDGE_ANSWER.bytesPerSecond) * 1000
  }

  get #end(): number {
    return this.#bytes === null ? this.#deadline : Math.min(this.#deadline, this.#headAt + this.#totalMs)
  }

  #arm(): void {
    this.#timerAt = this.#end
    const ms = Math.max(1, Math.ceil(this.#timerAt - this.#clock.monotonic()))
    this.#timer = this.#clock.setTimeout(() => {
      this.#timer = null
      const now = this.#clock.monotonic()
      if (now < this.#end) this.#arm()
      else this.#onOverdue(now < this.#deadline ? { who: 'all', ms: Math.ceil(this.#totalMs) } : this.#overdue)
    }, ms)
  }
}

/** Failures of an upstream connection by their code. No text names an address or a path. */
const REASONS: Readonly<Record<string, string>> = {
  __proto__: null as never,
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'connection reset',
  EPIPE: 'connection reset',
  ECONNABORTED: 'connection reset',
  ETIMEDOUT: 'connection timed out',
  EHOSTUNREACH: 'host unreachable',
  EHOSTDOWN: 'host unreachable',
  ENETUNREACH: 'network unreachable',
  ENETDOWN: 'network unreachable',
  EADDRNOTAVAIL: 'network unreachable',
  EACCES: 'connection not permitted',
  EPERM: 'connection not permitted',
  EMFILE: 'no descriptors left',
  ENFILE: 'no descriptors left',
  ENOTFOUND: 'name not resolved',
  ENODATA: 'name not resolved',
  EAI_AGAIN: 'name not resolved',
  EAI_FAIL: 'name not resolved',
  EPROTO: 'TLS handshake failed',
  MALFORMED_ANSWER: 'malformed response',
  ANSWER_HEAD_TOO_LARGE: 'headers of the answer are too large',
  ERR_TLS_CERT_ALTNAME_INVALID: 'TLS certificate is for another name',
  CERT_HAS_EXPIRED: 'TLS certificate has expired',
  CERT_NOT_YET_VALID: 'TLS certificate is not valid yet',
}

const UNTRUSTED =
  /^(?:DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_|CERT_|INVALID_CA|HOSTNAME_MISMATCH|PATH_LENGTH)/

/** @param error - of the connection or the answer's bytes; only its code is used */
export function toTransferError(error: Error & { code?: unknown }): GatewayError {
  const code = typeof error.code === 'string' ? error.code : ''
  let reason = REASONS[code]
  if (reason === undefined && UNTRUSTED.test(code)) reason = 'TLS certificate is not trusted'
  if (reason === undefined && /^ERR_(?:SSL|TLS)_/.test(code)) reason = 'TLS handshake failed'
  return failed(`proxy request failed: ${reason ?? 'connection failed'}`, error)
}

/** A kept connection was closed while a request went over it that may do harm when it is done twice. */
function toNotRepeated(error: Error): GatewayError {
  return failed('proxy request failed: connection closed before an answer, and the request cannot be repeated', error)
}

/** @param ownMs - `proxy.timeout_ms` when that was the limit @param policyMs - the function's `timeout_ms` */
export function toTimeout({ who, ms }: Overdue, ownMs: number | null, policyMs: number): GatewayError {
  const limit = ownMs === null ? `timeout_ms ${policyMs}` : `proxy.timeout_ms ${ownMs}`
  const texts: Record<Overdue['who'], string> = {
    answer: `upstream timeout: no answer within ${limit}`,
    upstream: `upstream timeout: nothing more of the answer within ${limit}`,
    client: `client timeout: too little of the answer taken within ${ms} ms`,
    all: `upstream timeout: the answer was not complete within ${ms} ms`,
  }
  return new GatewayError('TIMEOUT', `edge proxy failed: ${texts[who]}`)
}
