/**
 * One upstream request on behalf of one call. Spec: §2.10.
 *
 *   resolve ─► check ─► connect ─► answer (answer.ts)
 *     502       502      502        502
 *     504                504        504
 */

import { type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { isIP, type LookupFunction } from 'node:net'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { MAX_REPLY_HEADER_BYTES } from '../core/limits.ts'
import { classifyAddress, type OwnAddresses } from './addresses.ts'
import type { EdgeAgents, PinnedOptions } from './agents.ts'
import { type AnswerOwner, EdgeAnswer } from './answer.ts'
import { toTraceHeaders } from './headers.ts'
import { toTimeout, toTransferError } from './failure-reasons.ts'
import type { EdgeLookup, ResolvedAddress } from './lookup.ts'
import { namesControl } from './path-spellings.ts'
import { controlDenied, type EdgeRequest, failed } from './target.ts'
import { TimeLimit } from './time-limit.ts'
import type { Call } from '../invocation/invoke.ts'
import type { OpenSpan } from '../observe/spans.ts'

/** Addresses of one upstream that are tried. */
const EDGE_ADDRESSES = 8

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
      this.#check(addresses)
      this.#addresses = addresses.slice(0, EDGE_ADDRESSES)
      this.#send(!IDEMPOTENT.has(this.#request.method))
    } catch (error) {
      this.fail(error instanceof GatewayError ? error : toTransferError(error as Error))
    }
  }

  #check(addresses: readonly ResolvedAddress[]): void {
    if (addresses.length === 0) throw failed('proxy request failed: name not resolved')
    const { own } = this.#context
    for (const { address } of addresses) {
      const kind = classifyAddress(address)
      if (!this.#allowPrivate && (kind !== 'public' || own.isOfThisMachine(address)))
        throw failed('proxy denied: private host not allowed')
      if (kind === 'never') throw failed('proxy denied: special address not allowed')
      if (own.isThisGateway(address, this.#request.port) && namesControl(this.#request.spellings)) throw controlDenied()
    }
  }

  /** @param isFresh - not over a kept connection, which may be closed just now */
  #send(isFresh: boolean): void {
    const { isTls, hostname, port, host, target, method } = this.#request
    const headers = [
      'Host',
      host,
      ...this.#request.headers,
      ...toTraceHeaders(this.#request.headers, this.#span ?? this.#call),
    ]
    if (this.#body.length > 0 || WITH_BODY.has(method)) headers.push('Content-Length', String(this.#body.length))
    const options: PinnedOptions = {
      host: hostname,
      port,
      method,
      path: target,
      headers,
      agent: this.#context.agents.get(isTls, isFresh),
      lookup: this.#lookup,
      pinned: this.#addresses
        .map(({ address }) => address)
        .sort()
        .join(),
      setHost: false,
      // A lenient parser would read one byte stream differently from whoever wrote it.
      insecureHTTPParser: false,
      maxHeaderSize: MAX_REPLY_HEADER_BYTES,
    }
    if (isTls) {
      // Whatever the environment says: an unverified upstream is anybody.
      options.rejectUnauthorized = true
      options.servername = isIP(hostname) === 0 ? hostname : ''
      if (this.#context.ca !== null) options.ca = this.#context.ca
    }
    const req = (isTls ? httpsRequest : httpRequest)(options)
    this.#req = req
    // The block's size is limited; a limit by count would drop headers without a word.
    req.maxHeadersCount = 0
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

  readonly #lookup: LookupFunction = (_hostname, options, callback) => {
    const list = this.#addresses.map(({ address, family }) => ({ address, family }))
    if (options.all === true) callback(null, list)
    else callback(null, list[0]!.address, list[0]!.family)
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
