/**
 * Connections to upstreams: as many are kept as were used at once, bounded, and only ever to addresses that were checked.
 * Spec: §2.10.
 *
 *   request ─► an idle one? ─► send
 *                │ no   fewer than max? ─► connect ─► send
 *                ▼ no
 *              wait for one
 *
 * One that cannot be sent again looks for an idle one at the end of the turn, among those that `kept-trust.ts` allows.
 */

import type { Clock } from '../core/clock.ts'
import { Descriptors } from '../core/host.ts'
import type { AnswerHead } from './answer-parser.ts'
import { KeptTrust } from './kept-trust.ts'
import {
  type AnswerTaker,
  type SentRequest,
  toReset,
  type Upstream,
  UpstreamConnection,
} from './upstream-connection.ts'

/** Connections to one upstream at once, and idle ones of all upstreams together. */
const EDGE_CONNECTIONS = { max: 256, idle: 512 } as const
/** TLS sessions that are remembered: a further connection to the same upstream needs no whole handshake. */
const TLS_SESSIONS = 100

/**
 * Over which connection a request may go: any, a kept one only if it is trusted (the request cannot be sent again), or one of
 * its own that is closed behind it.
 */
export type Reuse = 'any' | 'trusted' | 'none'

/** What there is of one upstream. */
class Line {
  readonly key: string
  /** The one that was used last is used next, so that those that are not needed get old. */
  readonly idle: UpstreamConnection[] = []
  readonly waiting: UpstreamRequest[] = []
  open = 0
  /** Requests that look for a connection at the end of the turn. */
  due = 0

  constructor(key: string) {
    this.key = key
  }
}

/** A request and its answer. */
export class UpstreamRequest implements AnswerTaker {
  readonly upstream: Upstream
  readonly sent: SentRequest
  readonly reuse: Reuse
  readonly #taker: AnswerTaker
  readonly #line: Line | null
  #connection: UpstreamConnection | null = null
  #isOver = false

  /** @param line - where it may wait; null for one that has a connection of its own */
  constructor(upstream: Upstream, sent: SentRequest, reuse: Reuse, taker: AnswerTaker, line: Line | null) {
    this.upstream = upstream
    this.sent = sent
    this.reuse = reuse
    this.#taker = taker
    this.#line = line
  }

  /** True when it went over a connection that had been used before, and may have been closed just then. */
  get isOverUsed(): boolean {
    return this.#connection?.isReused === true
  }

  /** True when nobody waits for its answer any more. */
  get isOver(): boolean {
    return this.#isOver
  }

  sendOver(connection: UpstreamConnection): void {
    this.#connection = connection
    connection.send(this.sent, this)
  }

  pause(): void {
    this.#connection?.pause()
  }

  resume(): void {
    this.#connection?.resume()
  }

  /** Its connection is closed unless the answer was whole. Nobody is told. */
  destroy(): void {
    if (this.#isOver) return
    this.#isOver = true
    const waiting = this.#line?.waiting.indexOf(this) ?? -1
    if (waiting >= 0) this.#line!.waiting.splice(waiting, 1)
    this.#connection?.destroy()
  }

  onHead(head: AnswerHead): void {
    this.#taker.onHead(head)
  }

  onPiece(piece: Buffer): void {
    this.#taker.onPiece(piece)
  }

  onRead(): void {
    this.#taker.onRead()
  }

  onEnd(): void {
    this.#isOver = true
    this.#connection = null
    this.#taker.onEnd()
  }

  onError(error: Error): void {
    this.#isOver = true
    this.#taker.onError(error)
  }
}

export class EdgeConnections {
  readonly #lines = new Map<string, Line>()
  /** All that are open. */
  readonly #open = new Set<UpstreamConnection>()
  /** By key of the upstream, oldest first. */
  readonly #sessions = new Map<string, Buffer>()
  readonly #descriptors: Descriptors
  readonly #limits: { readonly max: number; readonly idle: number }
  readonly #trust: KeptTrust
  /** Those that look for a connection at the end of the turn. */
  readonly #due: { line: Line; request: UpstreamRequest }[] = []
  #idle = 0

  constructor(
    clock: Pick<Clock, 'monotonic'>,
    descriptors: Descriptors = new Descriptors(),
    limits: { readonly max: number; readonly idle: number } = EDGE_CONNECTIONS,
  ) {
    this.#limits = limits
    this.#descriptors = descriptors
    this.#trust = new KeptTrust(clock, () => this.#startDue())
  }

  /** Idle connections. */
  get idle(): number {
    return this.#idle
  }

  request(upstream: Upstream, sent: SentRequest, reuse: Reuse, taker: AnswerTaker): UpstreamRequest {
    const key = toKey(upstream)
    if (reuse === 'none') {
      const request = new UpstreamRequest(upstream, sent, reuse, taker, null)
      request.sendOver(this.#connect(upstream, key, null))
      return request
    }
    let line = this.#lines.get(key)
    if (line === undefined) {
      line = new Line(key)
      this.#lines.set(key, line)
    }
    const request = new UpstreamRequest(upstream, sent, reuse, taker, line)
    this.#start(line, request)
    return request
  }

  /** Closes every connection; whoever waits for an answer is told that it was reset. */
  close(): void {
    const due = this.#due.splice(0).map(({ request }) => request)
    for (const line of this.#lines.values()) due.push(...line.waiting.splice(0))
    for (const request of due) if (!request.isOver) request.onError(toReset())
    for (const connection of this.#open) connection.close()
  }

  #start(line: Line, request: UpstreamRequest): void {
    if (request.reuse === 'trusted') {
      if (line.idle.length === 0) {
        this.#startNew(line, request)
        return
      }
      line.due += 1
      this.#due.push({ line, request })
      this.#trust.planTurn()
      return
    }
    for (let kept = line.idle.pop(); kept !== undefined; kept = line.idle.pop()) {
      this.#idle -= 1
      if (kept.isFree) {
        this.#send(request, kept)
        return
      }
    }
    this.#startNew(line, request)
  }

  /** At the end of a turn: what an upstream had closed by then is not idle any more. */
  #startDue(): void {
    for (const { line, request } of this.#due.splice(0)) {
      line.due -= 1
      try {
        const kept = request.isOver ? null : this.#takeTrusted(line)
        if (kept !== null) this.#send(request, kept)
        else if (!request.isOver) this.#startNew(line, request)
      } catch (error) {
        request.onError(error as Error)
      }
      this.#dropUnused(line)
    }
  }

  #takeTrusted({ key, idle }: Line): UpstreamConnection | null {
    if (!this.#trust.isTrusted(key)) return null
    const at = idle.findLastIndex(kept => kept.isFree && this.#trust.mayUse(kept))
    if (at < 0) return null
    this.#idle -= 1
    return idle.splice(at, 1)[0]!
  }

  #startNew(line: Line, request: UpstreamRequest): void {
    if (line.open < this.#limits.max) {
      this.#send(request, this.#connect(request.upstream, line.key, line))
      return
    }
    line.waiting.push(request)
    // None of them can be used for it: one makes room for another.
    line.idle.find(kept => kept.isFree)?.destroy()
  }

  #send(request: UpstreamRequest, connection: UpstreamConnection): void {
    this.#trust.noteSent(connection)
    request.sendOver(connection)
  }

  /**
   * @param line - that it stays with; null for one that is closed after its request
   * @throws GatewayError when too many files and connections are open
   */
  #connect(upstream: Upstream, key: string, line: Line | null): UpstreamConnection {
    this.#descriptors.take()
    const connection = new UpstreamConnection(upstream, line !== null, this.#sessions.get(key), {
      onFree: connection => this.#onFree(connection, line!),
      onClosed: (connection, isByUpstream) => {
        if (isByUpstream) this.#trust.noteClosed(key, connection)
        this.#onClosed(connection, line)
      },
    })
    this.#open.add(connection)
    if (upstream.isTls) connection.onSession(session => this.#remember(key, session))
    if (line !== null) line.open += 1
    return connection
  }

  #remember(key: string, session: Buffer): void {
    this.#sessions.delete(key)
    this.#sessions.set(key, session)
    if (this.#sessions.size > TLS_SESSIONS) this.#sessions.delete(this.#sessions.keys().next().value!)
  }

  #onFree(connection: UpstreamConnection, line: Line): void {
    this.#trust.noteFree(connection)
    const [next] = line.waiting
    if (next?.reuse === 'trusted' || (next === undefined && this.#idle >= this.#limits.idle)) {
      // For the one that waits: another one, when this is gone.
      connection.destroy()
    } else if (next !== undefined) {
      line.waiting.shift()
      this.#send(next, connection)
    } else {
      line.idle.push(connection)
      this.#idle += 1
    }
  }

  #onClosed(connection: UpstreamConnection, line: Line | null): void {
    this.#open.delete(connection)
    this.#descriptors.giveBack()
    if (line === null) return
    line.open -= 1
    const place = line.idle.indexOf(connection)
    if (place >= 0) {
      line.idle.splice(place, 1)
      this.#idle -= 1
    }
    const next = line.waiting.shift()
    if (next !== undefined) this.#startNext(line, next)
    else this.#dropUnused(line)
  }

  #startNext(line: Line, request: UpstreamRequest): void {
    try {
      this.#start(line, request)
    } catch (error) {
      request.onError(error as Error)
    }
  }

  #dropUnused(line: Line): void {
    if (line.open === 0 && line.due === 0) this.#lines.delete(line.key)
  }
}

/** A kept connection serves only requests whose name had the same addresses when it was checked for them. */
function toKey({ isTls, hostname, port, addresses }: Upstream): string {
  const list = addresses.map(({ address }) => address)
  return `${isTls ? 'https' : 'http'} ${hostname} ${port} ${list.length === 1 ? list[0] : list.sort().join()}`
}
