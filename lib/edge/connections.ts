/**
 * Connections to upstreams: as many are kept as were used at once, bounded, and only ever to addresses that were checked.
 * Spec: §2.10.
 *
 *   request ─► an idle one? ─► send
 *                │ no   fewer than max? ─► connect ─► send
 *                ▼ no
 *              wait for one
 *
 * A request that cannot be sent again (POST, PATCH) goes over an idle one only if the upstream is not closing it just now, as far as
 * can be known:
 *
 *   free ─► a whole turn of the event loop, in which an end behind its answer is read ─► may be used ─► RECENT_MS after its last use: no more
 *
 * It looks for one at the end of its turn. An upstream that closed a connection soon after an answer, and had not said so, may do it
 * again: for a while it gets such requests over new connections.
 */

import type { Clock } from '../core/clock.ts'
import { Descriptors } from '../core/host.ts'
import { findUnsendable, isHeaderName } from '../core/http-text.ts'
import type { ResolvedAddress, UpstreamAddresses } from './addresses.ts'
import { toFailure } from './answer-parser.ts'
import { type EdgeRequest, failed } from './target.ts'
import {
  type AnswerTaker,
  type Reuse,
  type Upstream,
  UpstreamConnection,
  UpstreamRequest,
} from './upstream-connection.ts'

/** What everything shares that asks for URLs of others (edge functions, callbacks of jobs). */
export interface EdgeNetwork {
  readonly clock: Clock
  readonly addresses: UpstreamAddresses
  readonly connections: EdgeConnections
}

/** Connections to one upstream at once, and idle ones of all upstreams together. */
const EDGE_CONNECTIONS = { max: 256, idle: 512 } as const
/** Milliseconds since its last use after which a connection is too old: servers close idle ones after 2 s and more. */
const RECENT_MS = 1000
/** Milliseconds for which an upstream is not trusted. */
const DISTRUST_MS = 60_000
/** Upstreams without connections of which something is remembered. */
const MAX_REMEMBERED = 1000

/** Connections and waiting requests of one upstream, and what is remembered of it. */
class HostPool {
  readonly key: string
  /** The one that was used last is used next, so that those that are not needed get old. */
  readonly idle: UpstreamConnection[] = []
  readonly waiting: UpstreamRequest[] = []
  open = 0
  /** A further connection that resumes a TLS session needs no whole handshake. */
  session: Buffer | undefined
  /** Until when it is not trusted, monotonic ms. */
  distrustedUntil = Number.NEGATIVE_INFINITY

  constructor(key: string) {
    this.key = key
  }

  /** The first request that still waits. */
  takeWaiting(): UpstreamRequest | undefined {
    let first = this.waiting.shift()
    while (first?.isOver === true) first = this.waiting.shift()
    return first
  }
}

export class EdgeConnections {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #descriptors: Descriptors
  readonly #ca: string | null
  readonly #limits: { readonly max: number; readonly idle: number }
  /** By key; those without connections last, the oldest of them first. */
  readonly #pools = new Map<string, HostPool>()
  readonly #open = new Set<UpstreamConnection>()
  /** Requests that look for a connection at the end of the turn. */
  readonly #due: UpstreamRequest[] = []
  #idle = 0
  /** Counts turns of the event loop while connections become free. */
  #turn = 0
  #isTurnPlanned = false

  /** @param ca - authorities to trust instead of the usual ones, PEM */
  constructor(
    clock: Pick<Clock, 'monotonic'>,
    descriptors: Descriptors = new Descriptors(),
    ca: string | null = null,
    limits: { readonly max: number; readonly idle: number } = EDGE_CONNECTIONS,
  ) {
    this.#clock = clock
    this.#descriptors = descriptors
    this.#ca = ca
    this.#limits = limits
  }

  /** Idle connections. */
  get idle(): number {
    return this.#idle
  }

  /**
   * Sends a request that reaches exactly the addresses that were checked.
   * @param added - headers beside the request's own, names and values in turn
   * @param addresses - checked; they are not looked up again
   * @param body - null for none, which is not the same as an empty one
   * @throws GatewayError for what cannot be sent
   */
  send(
    request: EdgeRequest,
    added: readonly string[],
    addresses: readonly ResolvedAddress[],
    body: Buffer | null,
    reuse: Reuse,
    taker: AnswerTaker,
  ): UpstreamRequest {
    const { isTls, hostname, port } = request.to
    const upstream = { isTls, hostname, port, addresses, ca: this.#ca }
    const head = toHeadText(request, added, body === null ? null : body.length, reuse)
    const sent = new UpstreamRequest(upstream, head, body, request.method === 'HEAD', reuse, taker)
    this.#start(sent)
    return sent
  }

  /** Closes every connection; requests that wait for an answer fail as reset. */
  close(): void {
    const waiting = this.#due.splice(0)
    for (const pool of this.#pools.values()) waiting.push(...pool.waiting.splice(0))
    for (const request of waiting) request.fail(toFailure('ECONNRESET'))
    for (const connection of this.#open) connection.close()
  }

  #poolOf(upstream: Upstream): HostPool {
    const key = toKey(upstream)
    return this.#pools.get(key) ?? new HostPool(key)
  }

  #start(request: UpstreamRequest): void {
    const pool = this.#poolOf(request.upstream)
    if (request.reuse === 'trusted' && pool.idle.length > 0) {
      this.#due.push(request)
      this.#planTurn()
      return
    }
    const kept = request.reuse === 'any' ? pool.idle.findLastIndex(one => one.isFree) : -1
    if (kept >= 0) this.#sendOver(this.#takeIdle(pool, kept), request)
    else this.#startNew(pool, request)
  }

  #planTurn(): void {
    if (this.#isTurnPlanned) return
    this.#isTurnPlanned = true
    // Behind the poll phase, in which ends of connections are read as they have come.
    setImmediate(() => {
      this.#isTurnPlanned = false
      this.#startDue()
      this.#turn += 1
    })
  }

  /** A connection that its upstream had closed by now is not idle any more. */
  #startDue(): void {
    const now = this.#clock.monotonic()
    for (const request of this.#due.splice(0)) {
      if (request.isOver) continue
      const pool = this.#poolOf(request.upstream)
      const kept = pool.idle.findLastIndex(
        one => now >= pool.distrustedUntil && one.isFree && one.freedTurn < this.#turn && now - one.usedAt <= RECENT_MS,
      )
      if (kept >= 0) this.#sendOver(this.#takeIdle(pool, kept), request)
      else this.#startNew(pool, request)
    }
  }

  #takeIdle({ idle }: HostPool, at: number): UpstreamConnection {
    this.#idle -= 1
    return idle.splice(at, 1)[0]!
  }

  #startNew(pool: HostPool, request: UpstreamRequest): void {
    if (request.reuse !== 'none' && pool.open >= this.#limits.max) {
      pool.waiting.push(request)
      // None of them can be used for it: one makes room for another.
      pool.idle.find(one => one.isFree)?.destroy()
      return
    }
    try {
      this.#sendOver(this.#connect(request.upstream, pool, request.reuse !== 'none'), request)
    } catch (error) {
      request.fail(error as Error)
    }
  }

  #sendOver(connection: UpstreamConnection, request: UpstreamRequest): void {
    connection.usedAt = this.#clock.monotonic()
    connection.send(request)
  }

  /**
   * @param isKept - false for one that is closed after its request
   * @throws GatewayError when too many files and connections are open
   */
  #connect(upstream: Upstream, pool: HostPool, isKept: boolean): UpstreamConnection {
    this.#descriptors.take()
    const connection = new UpstreamConnection(upstream, isKept, pool.session, {
      onFree: connection => this.#onFree(connection, pool),
      onSession: session => {
        pool.session = session
      },
      onClosed: (connection, isByUpstream) => {
        this.#open.delete(connection)
        this.#descriptors.giveBack()
        const isSoon = connection.freedTurn >= 0 && this.#clock.monotonic() - connection.usedAt <= RECENT_MS
        if (isByUpstream && isSoon) pool.distrustedUntil = this.#clock.monotonic() + DISTRUST_MS
        if (isKept) this.#replace(connection, pool)
        this.#forget(pool)
      },
    })
    this.#open.add(connection)
    this.#pools.set(pool.key, pool)
    if (isKept) pool.open += 1
    return connection
  }

  #onFree(connection: UpstreamConnection, pool: HostPool): void {
    connection.usedAt = this.#clock.monotonic()
    connection.freedTurn = this.#turn
    this.#planTurn()
    const next = pool.takeWaiting()
    if (next?.reuse === 'any') {
      this.#sendOver(connection, next)
    } else if (next !== undefined) {
      // Another connection, when this is gone.
      pool.waiting.unshift(next)
      connection.destroy()
    } else if (this.#idle >= this.#limits.idle) {
      connection.destroy()
    } else {
      pool.idle.push(connection)
      this.#idle += 1
    }
  }

  /** The requests that wait get new connections for one that is closed. */
  #replace(connection: UpstreamConnection, pool: HostPool): void {
    pool.open -= 1
    const at = pool.idle.indexOf(connection)
    if (at >= 0) this.#takeIdle(pool, at)
    do {
      const next = pool.takeWaiting()
      if (next === undefined) break
      this.#startNew(pool, next)
    } while (pool.open === 0)
  }

  /** A pool without connections goes, or is kept for what is remembered of its upstream. */
  #forget(pool: HostPool): void {
    if (pool.open > 0 || this.#pools.get(pool.key) !== pool) return
    this.#pools.delete(pool.key)
    if (pool.session === undefined && pool.distrustedUntil <= this.#clock.monotonic()) return
    this.#pools.set(pool.key, pool)
    if (this.#pools.size <= MAX_REMEMBERED) return
    const oldest = [...this.#pools.values()].find(({ open }) => open === 0)!
    this.#pools.delete(oldest.key)
  }
}

/** A kept connection serves only requests whose name had the same addresses when it was checked for them. */
function toKey({ isTls, hostname, port, addresses }: Upstream): string {
  const list = addresses.map(({ address }) => address)
  return `${isTls ? 'https' : 'http'} ${hostname} ${port} ${list.length === 1 ? list[0] : list.sort().join()}`
}

const SENDABLE_PATH = /^[\x21-\x7e]+$/

/** Whatever came this far was checked; a line end in it would still be another request, so nothing of it is believed. */
function toHeadText(
  { to: { path, host }, method, headers }: EdgeRequest,
  added: readonly string[],
  length: number | null,
  reuse: Reuse,
): string {
  if (!SENDABLE_PATH.test(path) || findUnsendable(host) !== null) throw failed('the target cannot be sent')
  const lines = `${toLines(headers)}${toLines(added)}${length === null ? '' : `Content-Length: ${length}\r\n`}`
  return `${method} ${path} HTTP/1.1\r\nHost: ${host}\r\n${lines}Connection: ${reuse === 'none' ? 'close' : 'keep-alive'}\r\n\r\n`
}

/** @param headers - names and values in turn */
function toLines(headers: readonly string[]): string {
  let lines = ''
  for (let i = 0; i < headers.length; i += 2) {
    if (!isHeaderName(headers[i]!) || findUnsendable(headers[i + 1]!) !== null) throw failed('a header cannot be sent')
    lines += `${headers[i]}: ${headers[i + 1]}\r\n`
  }
  return lines
}
