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
import type { OwnAddresses } from './addresses.ts'
import { type AnswerOwner, EdgeAnswer } from './answer.ts'
import type { AnswerHead } from './answer-parser.ts'
import type { EdgeConnections, Reuse, UpstreamRequest } from './connections.ts'
import { toTraceHeaders } from './headers.ts'
import { toNotRepeated, toTimeout, toTransferError } from './failure-reasons.ts'
import type { EdgeLookup, ResolvedAddress } from './lookup.ts'
import { checkAddresses, sendPinned } from './pinned-request.ts'
import { type EdgeRequest, failed } from './target.ts'
import { TimeLimit } from './time-limit.ts'
import type { AnswerTaker } from './upstream-connection.ts'
import type { Call } from '../invocation/invoke.ts'
import type { OpenSpan } from '../observe/trace.ts'

/** Requests that may be sent again when a kept connection turns out to be closed (RFC 9110 9.2.2). */
const IDEMPOTENT: ReadonlySet<string> = new Set(['GET', 'HEAD', 'PUT', 'DELETE'])
const WITH_BODY: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH'])

/** What all transfers of a gateway share. */
export interface EdgeContext {
  readonly clock: Clock
  readonly own: OwnAddresses
  readonly lookup: EdgeLookup
  readonly connections: EdgeConnections
  /** Authorities to trust instead of the usual ones, PEM. */
  readonly ca: string | null
  /** A transfer is over. */
  forget(transfer: EdgeTransfer): void
}

export class EdgeTransfer implements AnswerTaker, AnswerOwner {
  readonly #context: EdgeContext
  readonly #call: Call
  readonly #request: EdgeRequest
  readonly #allowPrivate: boolean
  readonly #body: Buffer
  #addresses: readonly ResolvedAddress[] = []
  #sent: UpstreamRequest | null = null
  #reuse: Reuse = 'none'
  #answer: EdgeAnswer | null = null
  #isOver = false
  /** Kept by whoever knows all transfers. */
  place = 0
  /** What became of it; `left` unless something else did. */
  result: 'answered' | 'failed' | 'left' = 'left'
  /** Status of the upstream; 0 before it answered. */
  #status = 0
  readonly #span: OpenSpan | null
  readonly #time: TimeLimit

  constructor(context: EdgeContext, call: Call, request: EdgeRequest, allowPrivate: boolean, body: Buffer) {
    this.#context = context
    this.#call = call
    this.#request = request
    this.#allowPrivate = allowPrivate
    this.#body = body
    this.#span = call.span?.upstream(request.method, request.hostname, request.port) ?? null
    const { timeoutMs } = call.fn.policy
    this.#time = new TimeLimit(context.clock, request.timeoutMs ?? timeoutMs, overdue =>
      this.fail(toTimeout(overdue, request.timeoutMs, timeoutMs)),
    )
  }

  start(): void {
    const { clock } = this.#context
    const now = clock.monotonic()
    const { startedAt, fn } = this.#call
    // The time of the handler counts: both together may take what the function may take.
    const left = startedAt === 0 ? fn.policy.timeoutMs : startedAt + fn.policy.timeoutMs - now
    this.#time.begin(Math.max(1, Math.min(left, this.#request.timeoutMs ?? left)))
    const { hostname } = this.#request
    const family = isIP(hostname)
    if (family !== 0) {
      this.#connectTo([{ address: hostname, family }])
      return
    }
    this.#context.lookup.addresses(hostname).then(
      addresses => this.#connectTo(addresses),
      error => this.fail(failed('proxy request failed: name not resolved', error)),
    )
  }

  /** Nobody waits any more, or the transfer is over. */
  stop(): void {
    if (this.#isOver) return
    this.#end()
    this.#sent?.destroy()
  }

  /** Ends the call with an error: as its answer, or by cutting the answer that has begun. */
  fail(error: GatewayError): void {
    if (this.#isOver) return
    this.result = 'failed'
    this.stop()
    if (this.#answer?.isBegun === true) this.#call.answerEnd(error)
    else this.#call.fail(error)
  }

  #end(): void {
    this.#isOver = true
    this.#call.stopEdge = null
    this.#answer?.stop()
    this.#time.stop()
    const { result } = this
    this.#span?.end({ status: this.#status, ...(result !== 'answered' && { failure: result }) })
    this.#context.forget(this)
  }

  /** @param addresses - not looked up again: what was checked is what is reached */
  #connectTo(addresses: readonly ResolvedAddress[]): void {
    if (this.#isOver) return
    this.#addresses = addresses
    this.#send(IDEMPOTENT.has(this.#request.method) ? 'any' : 'trusted')
  }

  /**
   * Checks every address and connects to one of them.
   * @param reuse - over which connection: a kept one may be closed just now
   */
  #send(reuse: Reuse): void {
    const { headers, method } = this.#request
    const body = this.#body.length > 0 || WITH_BODY.has(method) ? this.#body : null
    this.#reuse = reuse
    try {
      const checked = checkAddresses(this.#addresses, this.#request, this.#allowPrivate, this.#context.own)
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
    this.#time.onHead(() => answer.bytes)
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
    const isStale = this.#answer === null && this.#sent?.isOverUsed === true && isClosed(error)
    if (error instanceof GatewayError) this.fail(error)
    else if (!isStale) this.fail(toTransferError(error))
    else if (this.#reuse === 'any') this.#send('none')
    // Nobody knows whether the upstream has seen it: what is not idempotent is never sent twice.
    else this.fail(toNotRepeated(error))
  }

  onSign(): void {
    this.#time.onUpstream()
  }

  onClientSlow(): void {
    this.#time.onClient()
  }

  onFailed(error: GatewayError): void {
    this.fail(error)
  }

  onComplete(): void {
    this.result = 'answered'
    this.#end()
  }
}

function isClosed(error: NodeJS.ErrnoException): boolean {
  return error.code === 'ECONNRESET' || error.code === 'EPIPE'
}
