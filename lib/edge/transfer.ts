/**
 * One upstream request on behalf of one call, and its answer on the way to the call. Spec: §2.10.
 *
 *   resolve ─► check ─► connect ─► head ─► hold ─► pieces ─► end
 *     502       502      502        502      │        └ cut: the client sees that the answer is not whole
 *     504                504                 └ ended, failed or too large so soon: answered whole, or with the error
 */

import { type Clock, Timer } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { headerOf } from '../core/http-text.ts'
import type { Call } from '../invocation/invoke.ts'
import type { ReplyHead } from '../invocation/response.ts'
import type { OpenSpan } from '../observe/trace.ts'
import type { ResolvedAddress } from './addresses.ts'
import type { AnswerHead } from './answer-parser.ts'
import { DecodedSize, toAnswerHead, toCodings, toTooLarge } from './answer.ts'
import type { EdgeNetwork } from './connections.ts'
import { type EdgeRequest, failed } from './target.ts'
import type { AnswerTaker, Reuse, UpstreamRequest } from './upstream-connection.ts'

/** Requests that may be sent again when a kept connection turns out to be closed (RFC 9110 9.2.2). */
const IDEMPOTENT: ReadonlySet<string> = new Set(['GET', 'HEAD', 'PUT', 'DELETE'])
const WITH_BODY: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH'])

/** The start of an upstream's answer that is held back, so that what ends or fails soon is answered whole: bytes, ms. */
const EDGE_HOLD_BYTES = 64 * 1024
export const EDGE_HOLD_MS = 25
/** Bytes of an upstream's answer that may be under way to a slow client before the upstream has to wait. */
export const EDGE_WINDOW_BYTES = 64 * 1024

const NOTHING = Buffer.alloc(0)

/** Shared by all transfers of a gateway. */
export interface EdgeContext extends EdgeNetwork {
  /** A transfer is over. */
  forget(transfer: EdgeTransfer): void
}

/**
 * - `asked`: no answer yet
 * - `held`: the start of the answer is held back
 * - `due`: the time for that is over; it begins with the next piece
 * - `begun`: the call has its head: an error can only cut the answer
 * - `over`: nothing more reaches the call
 */
type TransferState = 'asked' | 'held' | 'due' | 'begun' | 'over'

export class EdgeTransfer implements AnswerTaker {
  readonly #context: EdgeContext
  readonly #call: Call
  readonly #request: EdgeRequest
  readonly #body: Buffer
  readonly #span: OpenSpan | null
  readonly #time: TimeLimit
  #state: TransferState = 'asked'
  #sent: UpstreamRequest | null = null
  /** Index in the list of all transfers. */
  place = 0
  /** Its outcome; `left` unless another one came. */
  result: 'answered' | 'failed' | 'left' = 'left'
  /** Status of the upstream; 0 before it answered. */
  #status = 0
  #head: ReplyHead | null = null
  #decoded: DecodedSize | null = null
  /** The start of the body while it is held back. Until `onRead` its pieces are where the next read overwrites them. */
  #held: Buffer[] = []
  readonly #holdTimer: Timer
  /** Pieces that are with the decoder. */
  #counting = 0
  /** Bytes handed on that the client has not taken. */
  #outstanding = 0
  #waitsFor: 'upstream' | 'decoder' | 'client' = 'upstream'

  constructor(context: EdgeContext, call: Call, request: EdgeRequest, body: Buffer) {
    this.#context = context
    this.#call = call
    this.#request = request
    this.#body = body
    this.#holdTimer = new Timer(context.clock)
    this.#span = call.span?.upstream(request.method, request.to.hostname, request.to.port) ?? null
    const { timeoutMs } = call.fn.policy
    this.#time = new TimeLimit(context.clock, request.timeoutMs ?? timeoutMs, overdue =>
      this.fail(toTimeout(overdue, request.timeoutMs, timeoutMs)),
    )
  }

  async start(allowPrivate: boolean): Promise<void> {
    const { startedAt, fn } = this.#call
    const { to, method, timeoutMs } = this.#request
    // The time of the handler counts: both together may take what the function may take.
    const left = fn.policy.timeoutMs - (startedAt === 0 ? 0 : this.#context.clock.monotonic() - startedAt)
    this.#time.begin(Math.max(1, Math.min(left, timeoutMs ?? left)))
    try {
      const addresses = await this.#context.addresses.of(to, allowPrivate)
      this.#send(addresses, IDEMPOTENT.has(method) ? 'any' : 'trusted')
    } catch (error) {
      this.fail(error as GatewayError)
    }
  }

  /** The call does not wait any more, or the transfer is over. */
  stop(): void {
    if (this.#state === 'over') return
    this.#end()
    this.#sent?.destroy()
  }

  /** Ends the call with an error: as its answer, or by cutting the answer that has begun. */
  fail(error: GatewayError): void {
    if (this.#state === 'over') return
    const isBegun = this.#state === 'begun'
    this.result = 'failed'
    this.stop()
    if (isBegun) this.#call.answerEnd(error)
    else this.#call.fail(error)
  }

  #end(): void {
    this.#state = 'over'
    this.#held = []
    this.#call.stopEdge = null
    this.#call.grantEdge = null
    this.#holdTimer.clear()
    this.#decoded?.close()
    this.#time.stop()
    const { result } = this
    this.#span?.end({ status: this.#status, ...(result !== 'answered' && { failure: result }) })
    this.#context.forget(this)
  }

  /** @param addresses - checked */
  #send(addresses: readonly ResolvedAddress[], reuse: Reuse): void {
    if (this.#state === 'over') return
    const { headers, method } = this.#request
    const body = this.#body.length > 0 || WITH_BODY.has(method) ? this.#body : null
    try {
      const traced = toTraceHeaders(headers, this.#span ?? this.#call)
      this.#sent = this.#context.connections.send(this.#request, traced, addresses, body, reuse, this)
    } catch (error) {
      this.fail(error instanceof GatewayError ? error : toTransferError(error as Error))
    }
  }

  onError(error: Error): void {
    if (this.#state === 'over') return
    const sent = this.#sent
    const isStale = this.#state === 'asked' && sent?.isOverUsed === true && isClosed(error)
    if (error instanceof GatewayError) this.fail(error)
    else if (!isStale) this.fail(toTransferError(error))
    else if (sent.reuse === 'any') this.#send(sent.upstream.addresses, 'none')
    // The upstream may have seen it: a request that is not idempotent is never sent twice.
    else this.fail(failed(NOT_REPEATED, error))
  }

  onHead(answer: AnswerHead): void {
    try {
      this.#begin(answer)
    } catch (error) {
      this.fail(error as GatewayError)
    }
  }

  #begin(answer: AnswerHead): void {
    const { method, maxResponseBytes } = this.#request
    const head = toAnswerHead(answer, this.#call.sharesOrigin)
    if (head.hasBody && method !== 'HEAD') {
      if ((head.length ?? 0) > maxResponseBytes) throw toTooLarge(maxResponseBytes)
      const codings = toCodings(answer.rawHeaders)
      // A body that cannot be decoded cannot be counted: a few bytes of it may stand for more memory than its decoder has.
      if (!DecodedSize.canCount(codings))
        throw failed('upstream answered with a Content-Encoding that cannot be counted')
      if (codings.length > 0)
        this.#decoded = new DecodedSize(codings, maxResponseBytes, problem => {
          if (problem === null) this.#finish()
          else if (problem === 'too large') this.fail(toTooLarge(maxResponseBytes))
          else this.fail(failed('upstream response does not match its Content-Encoding'))
        })
    }
    this.#head = head
    this.#status = head.status
    this.#state = 'held'
    this.#time.onHead()
    this.#call.grantEdge = bytes => {
      this.#outstanding -= bytes
      this.#setFlow()
    }
  }

  onPiece(piece: Buffer): void {
    if (this.#state === 'over') return
    const { maxResponseBytes } = this.#request
    this.#time.bytes += piece.length
    if (this.#waitsFor !== 'client') this.#time.onUpstream()
    if (this.#time.bytes > maxResponseBytes) {
      this.fail(toTooLarge(maxResponseBytes))
    } else if (this.#decoded === null) {
      this.#pass(piece)
    } else {
      // Not passed on before it is counted: what is too large must not reach the client.
      const kept = Buffer.from(piece)
      this.#counting += 1
      this.#setFlow()
      this.#decoded.add(kept, () => {
        this.#counting -= 1
        this.#pass(kept)
      })
    }
  }

  /** More is to come: only now is what has come worth a copy and a timer. */
  onRead(): void {
    if (this.#state !== 'held') return
    if (this.#held.length > 0) this.#held = [Buffer.concat(this.#held)]
    if (this.#holdTimer.isSet) return
    this.#holdTimer.set(EDGE_HOLD_MS, () => {
      if (this.#state !== 'held') return
      this.#state = 'due'
      // A piece that is being counted may turn out too large: that is known in a moment.
      if (this.#counting === 0) this.#release()
    })
  }

  onEnd(): void {
    if (this.#state === 'over') return
    if (this.#decoded === null) this.#finish()
    else this.#decoded.end()
  }

  #pass(piece: Buffer): void {
    if (this.#state === 'begun') {
      this.#handOn(piece)
    } else {
      this.#held.push(piece)
      if (this.#state === 'due' || this.#time.bytes > EDGE_HOLD_BYTES) this.#release()
    }
    this.#setFlow()
  }

  /** Begins the call's answer with what was held back. */
  #release(): void {
    const held = this.#held
    this.#state = 'begun'
    this.#held = []
    this.#call.answer(this.#head!, NOTHING, true)
    for (const piece of held) this.#handOn(piece)
    this.#setFlow()
  }

  #handOn(piece: Buffer): void {
    if (this.#state === 'over') return
    this.#outstanding += piece.length
    this.#call.answerChunk(piece)
  }

  /** A slow client, or a piece that is being counted, stops the upstream's socket; memory holds what was under way. */
  #setFlow(): void {
    if (this.#state === 'over') return
    const before = this.#waitsFor
    const now = this.#outstanding >= EDGE_WINDOW_BYTES ? 'client' : this.#counting > 0 ? 'decoder' : 'upstream'
    if (now === before) return
    this.#waitsFor = now
    if (now === 'client') this.#time.onClient()
    else if (before === 'client') this.#time.onUpstream()
    if (before === 'upstream') this.#sent!.pause()
    else if (now === 'upstream') this.#sent!.resume()
  }

  #finish(): void {
    if (this.#state === 'over') return
    const isBegun = this.#state === 'begun'
    const held = this.#held
    this.result = 'answered'
    this.#end()
    this.#call.endedAt = this.#context.clock.monotonic()
    if (isBegun) this.#call.answerEnd(null)
    else this.#call.answer(this.#head!, held.length === 1 ? held[0]! : Buffer.concat(held), false)
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
  /** Monotonic ms of the answer's head; null before it. */
  #headAt: number | null = null
  /** Of the answer's body, so far. */
  bytes = 0
  readonly #timer: Timer
  #timerAt = 0

  /**
   * @param gapMs - between two signs of life
   * @param onOverdue - called once, when a wait was too long
   */
  constructor(clock: Clock, gapMs: number, onOverdue: (overdue: Overdue) => void) {
    this.#clock = clock
    this.#timer = new Timer(clock)
    this.#gapMs = gapMs
    this.#onOverdue = onOverdue
  }

  /** @param ms - until the answer's head */
  begin(ms: number): void {
    this.#wait('answer', ms)
  }

  onHead(): void {
    this.#headAt = this.#clock.monotonic()
    this.onUpstream()
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
    this.#timer.clear()
  }

  #wait(who: Overdue['who'], ms: number): void {
    this.#overdue = { who, ms }
    this.#deadline = this.#clock.monotonic() + ms
    // One timer that looks again when it was early, instead of one per piece; only an earlier end needs another.
    if (!this.#timer.isSet || this.#timerAt > this.#deadline) this.#arm()
  }

  /** An upstream that drips, or a client that sips, gives a sign in time each time, and could go on for ever. */
  get #totalMs(): number {
    const floor = Math.max(EDGE_ANSWER.minMs, this.#gapMs * EDGE_ANSWER.gaps)
    return floor + (this.bytes / EDGE_ANSWER.bytesPerSecond) * 1000
  }

  get #end(): number {
    return this.#headAt === null ? this.#deadline : Math.min(this.#deadline, this.#headAt + this.#totalMs)
  }

  #arm(): void {
    this.#timerAt = this.#end
    const ms = Math.max(1, Math.ceil(this.#timerAt - this.#clock.monotonic()))
    this.#timer.set(ms, () => {
      const now = this.#clock.monotonic()
      if (now < this.#end) this.#arm()
      else this.#onOverdue(now < this.#deadline ? { who: 'all', ms: Math.ceil(this.#totalMs) } : this.#overdue)
    })
  }
}

/** Failures of an upstream connection by their code. No text names an address or a path. */
const REASONS: readonly [codes: RegExp, reason: string][] = [
  [/^ECONNREFUSED$/, 'connection refused'],
  [/^(?:ECONNRESET|EPIPE|ECONNABORTED)$/, 'connection reset'],
  [/^ETIMEDOUT$/, 'connection timed out'],
  [/^EHOST(?:UNREACH|DOWN)$/, 'host unreachable'],
  [/^(?:ENETUNREACH|ENETDOWN|EADDRNOTAVAIL)$/, 'network unreachable'],
  [/^(?:EACCES|EPERM)$/, 'connection not permitted'],
  [/^(?:EMFILE|ENFILE)$/, 'no descriptors left'],
  [/^MALFORMED_ANSWER$/, 'malformed response'],
  [/^ANSWER_HEAD_TOO_LARGE$/, 'headers of the answer are too large'],
  [/^ERR_TLS_CERT_ALTNAME_INVALID$/, 'TLS certificate is for another name'],
  [/^CERT_HAS_EXPIRED$/, 'TLS certificate has expired'],
  [/^CERT_NOT_YET_VALID$/, 'TLS certificate is not valid yet'],
  [
    /^(?:DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_|CERT_|INVALID_CA|HOSTNAME_MISMATCH|PATH_LENGTH)/,
    'TLS certificate is not trusted',
  ],
  [/^(?:EPROTO$|ERR_SSL_|ERR_TLS_)/, 'TLS handshake failed'],
]

/** @param error - of the connection or the answer's bytes; only its code is used */
export function toTransferError(error: Error & { code?: unknown }): GatewayError {
  const code = typeof error.code === 'string' ? error.code : ''
  const [, reason] = REASONS.find(([codes]) => codes.test(code)) ?? []
  return failed(`proxy request failed: ${reason ?? 'connection failed'}`, error)
}

/** A kept connection was closed while a request went over it that may do harm when it is done twice. */
const NOT_REPEATED = 'proxy request failed: connection closed before an answer, and the request cannot be repeated'

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
