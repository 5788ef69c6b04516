/**
 * One upstream request on behalf of one call. Spec: §2.10.
 *
 *   resolve ─► check ─► connect ─► answer (answer.ts)
 *     502       502      502        502
 *     504                504        504
 */

import type { ClientRequest, IncomingMessage } from 'node:http'
import { isIP } from 'node:net'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import type { OwnAddresses } from './addresses.ts'
import type { EdgeAgents } from './agents.ts'
import { type AnswerOwner, EdgeAnswer } from './answer.ts'
import { toTraceHeaders } from './headers.ts'
import { toTimeout, toTransferError } from './failure-reasons.ts'
import type { EdgeLookup, ResolvedAddress } from './lookup.ts'
import { checkAddresses, openPinned } from './pinned-request.ts'
import { type EdgeRequest, failed } from './target.ts'
import { TimeLimit } from './time-limit.ts'
import type { Call } from '../invocation/invoke.ts'
import type { OpenSpan } from '../observe/spans.ts'

/** Requests that may be sent again when a kept connection turns out to be closed (RFC 9110 9.2.2). */
const IDEMPOTENT: ReadonlySet<string> = new Set(['GET', 'HEAD', 'PUT', 'DELETE'])
const WITH_BODY: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH'])

/** What all transfers of a gateway share. */
export interface EdgeContext {
  readonly clock: Clock
  readonly own: OwnAddresses
  readonly lookup: EdgeLookup
  readonly agents: EdgeAgents
  /** Authorities to trust instead of the usual ones, PEM. */
  readonly ca: string | null
  /** A transfer is over. */
  forget(transfer: EdgeTransfer): void
}

export class EdgeTransfer {
  readonly #context: EdgeContext
  readonly #call: Call
  readonly #request: EdgeRequest
  readonly #allowPrivate: boolean
  readonly #body: Buffer
  #addresses: readonly ResolvedAddress[] = []
  #req: ClientRequest | null = null
  #answer: EdgeAnswer | null = null
  #isOver = false
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
    this.#req?.destroy()
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

  /** Checks every address and connects to one of them. They are not looked up again: what was checked is what is reached. */
  #connectTo(addresses: readonly ResolvedAddress[]): void {
    if (this.#isOver) return
    try {
      this.#addresses = checkAddresses(addresses, this.#request, this.#allowPrivate, this.#context.own)
      this.#send(!IDEMPOTENT.has(this.#request.method))
    } catch (error) {
      this.fail(error instanceof GatewayError ? error : toTransferError(error as Error))
    }
  }

  /** @param isFresh - not over a kept connection, which may be closed just now */
  #send(isFresh: boolean): void {
    const length = this.#body.length > 0 || WITH_BODY.has(this.#request.method) ? this.#body.length : null
    const { headers } = this.#request
    const request = { ...this.#request, headers: [...headers, ...toTraceHeaders(headers, this.#span ?? this.#call)] }
    const req = openPinned(this.#context, request, this.#addresses, length, isFresh)
    this.#req = req
    req.on('response', res => this.#onHead(req, res))
    req.on('upgrade', (_res, socket) => {
      socket.destroy()
      this.fail(failed('upstream asked for another protocol'))
    })
    req.on('error', error => {
      if (this.#isOver || this.#req !== req || this.#answer !== null) return
      if (!isFresh && req.reusedSocket && isClosed(error)) this.#send(true)
      else this.fail(toTransferError(error))
    })
    req.end(this.#body.length > 0 ? this.#body : undefined)
  }

  #onHead(req: ClientRequest, res: IncomingMessage): void {
    res.on('error', error => this.fail(toTransferError(error)))
    if (this.#isOver || this.#req !== req) {
      req.destroy()
      return
    }
    const { clock } = this.#context
    let answer: EdgeAnswer
    try {
      answer = new EdgeAnswer(this.#call, this.#request, clock, this.#owner, res)
    } catch (error) {
      this.fail(error as GatewayError)
      return
    }
    this.#answer = answer
    this.#status = res.statusCode ?? 0
    this.#time.onHead(() => answer.bytes)
    answer.read()
  }

  readonly #owner: AnswerOwner = {
    onSign: () => this.#time.onUpstream(),
    onClientSlow: () => this.#time.onClient(),
    onFailed: error => this.fail(error),
    onComplete: () => {
      this.result = 'answered'
      this.#end()
      // An answer before the whole request was taken: nothing more may be written on that connection.
      if (this.#req?.writableFinished === false) this.#req.destroy()
    },
  }
}

function isClosed(error: NodeJS.ErrnoException): boolean {
  return error.code === 'ECONNRESET' || error.code === 'EPIPE'
}
