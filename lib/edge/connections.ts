/**
 * Connections to upstreams: as many are kept as were used at once, bounded, and only ever to addresses that were checked.
 * Spec: §2.10.
 *
 *   request ─► an idle one? ─► send
 *                │ no   fewer than max? ─► connect ─► send
 *                ▼ no
 *              wait for one
 *
 * A request that cannot be sent again looks for an idle one at the end of the turn, among those that KeptTrust allows.
 */

import { isIP } from 'node:net'
import type { Clock } from '../core/clock.ts'
import { Descriptors } from '../core/host.ts'
import { findUnsendable, isHeaderName } from '../core/http-text.ts'
import type { EdgeLookup, OwnAddresses, ResolvedAddress } from './addresses.ts'
import { controlDenied, type EdgeRequest, failed, namesControl } from './target.ts'
import {
  type AnswerTaker,
  type KeptTimes,
  type Reuse,
  type SentRequest,
  toReset,
  type Upstream,
  UpstreamConnection,
  UpstreamRequest,
} from './upstream-connection.ts'

/** Connections to one upstream at once, and idle ones of all upstreams together. */
const EDGE_CONNECTIONS = { max: 256, idle: 512 } as const
/** TLS sessions that are remembered: a further connection to the same upstream needs no whole handshake. */
const TLS_SESSIONS = 100

/** Connections and waiting requests of one upstream. */
class HostPool {
  readonly key: string
  /** The one that was used last is used next, so that those that are not needed get old. */
  readonly idle: UpstreamConnection[] = []
  readonly #waiting: UpstreamRequest[] = []
  open = 0

  constructor(key: string) {
    this.key = key
  }

  addWaiting(request: UpstreamRequest): void {
    this.#waiting.push(request)
  }

  /** The first request that still waits. */
  get firstWaiting(): UpstreamRequest | undefined {
    while (this.#waiting[0]?.isOver === true) this.#waiting.shift()
    return this.#waiting[0]
  }

  takeWaiting(): UpstreamRequest | undefined {
    const first = this.firstWaiting
    this.#waiting.shift()
    return first
  }
}

export class EdgeConnections {
  /** Those with open connections, by key. */
  readonly #pools = new Map<string, HostPool>()
  readonly #open = new Set<UpstreamConnection>()
  /** By key of the upstream, oldest first. */
  readonly #sessions = new Map<string, Buffer>()
  readonly #descriptors: Descriptors
  readonly #limits: { readonly max: number; readonly idle: number }
  readonly #trust: KeptTrust
  /** Requests that look for a connection at the end of the turn. */
  readonly #due: UpstreamRequest[] = []
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

  /** @throws GatewayError when too many files and connections are open */
  request(upstream: Upstream, sent: SentRequest, reuse: Reuse, taker: AnswerTaker): UpstreamRequest {
    const request = new UpstreamRequest(upstream, sent, reuse, taker)
    this.#start(request)
    return request
  }

  /** Closes every connection; requests that wait for an answer fail as reset. */
  close(): void {
    const due = this.#due.splice(0)
    for (const pool of this.#pools.values())
      for (let next = pool.takeWaiting(); next !== undefined; next = pool.takeWaiting()) due.push(next)
    for (const request of due) request.fail(toReset())
    for (const connection of this.#open) connection.close()
  }

  #poolOf(upstream: Upstream): HostPool {
    const key = toKey(upstream)
    return this.#pools.get(key) ?? new HostPool(key)
  }

  #start(request: UpstreamRequest): void {
    const pool = this.#poolOf(request.upstream)
    if (request.reuse === 'none') {
      this.#connect(request.upstream, pool, false).send(request)
    } else if (request.reuse === 'any') {
      let kept = this.#takeIdle(pool, pool.idle.length - 1)
      while (kept?.isFree === false) kept = this.#takeIdle(pool, pool.idle.length - 1)
      if (kept !== null) this.#send(request, kept)
      else this.#startNew(pool, request)
    } else if (pool.idle.length === 0) {
      this.#startNew(pool, request)
    } else {
      this.#due.push(request)
      this.#trust.planTurn()
    }
  }

  #takeIdle({ idle }: HostPool, at: number): UpstreamConnection | null {
    if (at < 0) return null
    this.#idle -= 1
    return idle.splice(at, 1)[0]!
  }

  /** At the end of a turn: a connection that its upstream had closed by then is not idle any more. */
  #startDue(): void {
    for (const request of this.#due.splice(0)) {
      if (request.isOver) continue
      const pool = this.#poolOf(request.upstream)
      const isTrusted = this.#trust.isTrusted(pool.key)
      const kept = this.#takeIdle(
        pool,
        pool.idle.findLastIndex(kept => isTrusted && kept.isFree && this.#trust.mayUse(kept)),
      )
      if (kept !== null) this.#send(request, kept)
      else this.#startLate(pool, request)
    }
  }

  #startNew(pool: HostPool, request: UpstreamRequest): void {
    if (pool.open < this.#limits.max) {
      this.#send(request, this.#connect(request.upstream, pool, true))
      return
    }
    pool.addWaiting(request)
    // None of them can be used for it: one makes room for another.
    pool.idle.find(kept => kept.isFree)?.destroy()
  }

  /** For a request whose caller has gone on: an error reaches it as the outcome. */
  #startLate(pool: HostPool, request: UpstreamRequest): void {
    try {
      this.#startNew(pool, request)
    } catch (error) {
      request.fail(error as Error)
    }
  }

  #send(request: UpstreamRequest, connection: UpstreamConnection): void {
    this.#trust.noteSent(connection)
    connection.send(request)
  }

  /**
   * @param isKept - false for one that is closed after its request
   * @throws GatewayError when too many files and connections are open
   */
  #connect(upstream: Upstream, pool: HostPool, isKept: boolean): UpstreamConnection {
    const { key } = pool
    this.#descriptors.take()
    const connection = new UpstreamConnection(upstream, isKept, this.#sessions.get(key), {
      onFree: connection => this.#onFree(connection, pool),
      onClosed: (connection, isByUpstream) => {
        this.#open.delete(connection)
        this.#descriptors.giveBack()
        if (isByUpstream) this.#trust.noteClosed(key, connection)
        if (isKept) this.#onClosed(connection, pool)
      },
    })
    this.#open.add(connection)
    if (upstream.isTls) connection.onSession(session => remember(this.#sessions, key, session, TLS_SESSIONS))
    if (isKept) {
      this.#pools.set(key, pool)
      pool.open += 1
    }
    return connection
  }

  #onFree(connection: UpstreamConnection, pool: HostPool): void {
    this.#trust.noteFree(connection)
    const next = pool.firstWaiting
    if (next?.reuse === 'trusted' || (next === undefined && this.#idle >= this.#limits.idle)) {
      // For the one that waits: another one, when this is gone.
      connection.destroy()
    } else if (next !== undefined) {
      pool.takeWaiting()
      this.#send(next, connection)
    } else {
      pool.idle.push(connection)
      this.#idle += 1
    }
  }

  #onClosed(connection: UpstreamConnection, pool: HostPool): void {
    pool.open -= 1
    this.#takeIdle(pool, pool.idle.indexOf(connection))
    do {
      const next = pool.takeWaiting()
      if (next === undefined) break
      this.#startLate(pool, next)
    } while (pool.open === 0)
    if (pool.open === 0) this.#pools.delete(pool.key)
  }
}

/** Sets a key of a map that holds the `max` newest ones. */
function remember<Value>(map: Map<string, Value>, key: string, value: Value, max: number): void {
  map.delete(key)
  map.set(key, value)
  if (map.size > max) map.delete(map.keys().next().value!)
}

/** A kept connection serves only requests whose name had the same addresses when it was checked for them. */
function toKey({ isTls, hostname, port, addresses }: Upstream): string {
  const list = addresses.map(({ address }) => address)
  return `${isTls ? 'https' : 'http'} ${hostname} ${port} ${list.length === 1 ? list[0] : list.sort().join()}`
}

/** Milliseconds since its last use after which a connection is too old: servers close idle ones after 2 s and more. */
const RECENT_MS = 1000
/** Milliseconds for which an upstream is not trusted, and how many of those are remembered. */
const DISTRUST_MS = 60_000
const MAX_DISTRUSTED = 1000

/**
 * Which kept connections a request may go over that cannot be sent again (POST, PATCH): those whose upstream is not closing them just
 * now, as far as can be known.
 *
 *   free ─► a whole turn of the event loop, in which an end behind its answer is read ─► may be used ─► RECENT_MS after its last use: no more
 *
 * An upstream that closed a connection soon after an answer, and had not said so, may do it again: for a while it is not trusted.
 */
export class KeptTrust {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #onTurn: () => void
  /** When they are trusted again, monotonic ms, by key of the upstream; the one that closed last is the last. */
  readonly #distrusted = new Map<string, number>()
  #turn = 0
  #isPlanned = false

  /** @param onTurn - called at the end of each turn that was asked for, when everything that had come from upstreams was read */
  constructor(clock: Pick<Clock, 'monotonic'>, onTurn: () => void) {
    this.#clock = clock
    this.#onTurn = onTurn
  }

  /** A request is sent over it. */
  noteSent(connection: KeptTimes): void {
    connection.usedAt = this.#clock.monotonic()
  }

  /** Its answer is whole. */
  noteFree(connection: KeptTimes): void {
    connection.usedAt = this.#clock.monotonic()
    connection.freedTurn = this.#turn
    this.planTurn()
  }

  /** The upstream closed it without having said so. */
  noteClosed(key: string, { usedAt, freedTurn }: KeptTimes): void {
    const now = this.#clock.monotonic()
    if (freedTurn < 0 || now - usedAt > RECENT_MS) return
    remember(this.#distrusted, key, now + DISTRUST_MS, MAX_DISTRUSTED)
  }

  isTrusted(key: string): boolean {
    const until = this.#distrusted.get(key)
    if (until === undefined) return true
    if (this.#clock.monotonic() < until) return false
    this.#distrusted.delete(key)
    return true
  }

  /** To be asked at the end of a turn. */
  mayUse({ usedAt, freedTurn }: KeptTimes): boolean {
    return freedTurn < this.#turn && this.#clock.monotonic() - usedAt <= RECENT_MS
  }

  planTurn(): void {
    if (this.#isPlanned) return
    this.#isPlanned = true
    // Behind the poll phase, in which ends of connections are read as they have come.
    setImmediate(() => {
      this.#isPlanned = false
      this.#onTurn()
      this.#turn += 1
    })
  }
}

/** Addresses of one upstream that are tried. */
const EDGE_ADDRESSES = 8

/**
 * @returns the addresses to connect to
 * @throws GatewayError EDGE_FAILED when one of them may not be reached
 */
export function checkAddresses(
  addresses: readonly ResolvedAddress[],
  { port, spellings }: Pick<EdgeRequest, 'port' | 'spellings'>,
  allowPrivate: boolean,
  own: OwnAddresses,
): readonly ResolvedAddress[] {
  if (addresses.length === 0) throw failed('proxy request failed: name not resolved')
  for (const { address } of addresses) {
    const kind = own.kindOf(address)
    if (!allowPrivate && (kind !== 'public' || own.isOfThisMachine(address)))
      throw failed('proxy denied: private host not allowed')
    if (kind === 'never') throw failed('proxy denied: special address not allowed')
    if (own.isThisGateway(address, port) && namesControl(spellings)) throw controlDenied()
  }
  return addresses.slice(0, EDGE_ADDRESSES)
}

/** The parts of a gateway that its requests to other hosts share. */
export interface EdgeNetwork {
  readonly clock: Clock
  readonly own: OwnAddresses
  readonly lookup: EdgeLookup
  readonly connections: EdgeConnections
  /** Authorities to trust instead of the usual ones, PEM. */
  readonly ca: string | null
}

/**
 * Sends a request that reaches exactly the addresses that were checked. Everything that asks for URLs of others (edge functions, callbacks
 * of jobs) goes through here.
 * @param added - headers beside the request's own, names and values in turn
 * @param addresses - checked; they are not looked up again
 * @param body - null for none, which is not the same as an empty one
 * @param reuse - over which connection
 * @throws GatewayError EDGE_FAILED for what cannot be sent
 */
export function sendPinned(
  { connections, ca }: EdgeNetwork,
  request: EdgeRequest,
  added: readonly string[],
  addresses: readonly ResolvedAddress[],
  body: Buffer | null,
  reuse: Reuse,
  taker: AnswerTaker,
): UpstreamRequest {
  const { isTls, hostname, port, method } = request
  const servername = isIP(hostname) === 0 ? hostname : ''
  const head = toHeadText(request, added, body === null ? null : body.length, reuse)
  const sent = { head, body: body ?? NOTHING, isHead: method === 'HEAD' }
  return connections.request({ isTls, hostname, port, addresses, servername, ca }, sent, reuse, taker)
}

const NOTHING = Buffer.alloc(0)
const SENDABLE_TARGET = /^[\x21-\x7e]+$/

/** Whatever came this far was checked; a line end in it would still be another request, so nothing of it is believed. */
function toHeadText(
  { method, target, host, headers }: EdgeRequest,
  added: readonly string[],
  length: number | null,
  reuse: Reuse,
): string {
  if (!SENDABLE_TARGET.test(target) || findUnsendable(host) !== null) throw failed('the target cannot be sent')
  const lines = `${toLines(headers)}${toLines(added)}${length === null ? '' : `Content-Length: ${length}\r\n`}`
  return `${method} ${target} HTTP/1.1\r\nHost: ${host}\r\n${lines}Connection: ${reuse === 'none' ? 'close' : 'keep-alive'}\r\n\r\n`
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
