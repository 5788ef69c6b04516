/**
 * Holds requests that come before the gateway serves: it listens first, so that a restart refuses no client and a probe gets an
 * answer from the first moment on. Owner: §4.1.
 */

import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { headerOf } from '../core/http-text.ts'
import type { Lifecycle } from '../core/transitions.ts'
import type { RequestIds } from '../invocation/event.ts'
import type { HttpRequest, HttpResponse, HttpSocket } from './exchange.ts'
import type { HttpHandler } from './public.ts'
import { refuseRequest } from './respond.ts'

/** Requests that may wait for the start. */
export const MAX_HELD_REQUESTS = 1000
/** Milliseconds that one may wait. */
export const MAX_HOLD_MS = 30_000

const STARTING = new GatewayError('SHUTTING_DOWN', 'gateway is starting', { headers: { 'Retry-After': '1' } })
/** Path of probes; in another spelling it waits as every other path. */
const HEALTH = /^\/_fn\/health(?:\?|$)/

interface StartGateOptions {
  clock: Clock
  requestIds: RequestIds
  lifecycle: Readonly<Lifecycle>
}

interface Held {
  req: HttpRequest
  res: HttpResponse
  begin: () => void
}

export class StartGate {
  readonly #options: StartGateOptions
  /** Oldest first. */
  readonly #held = new Set<Held>()
  /** Connections with a request that waits: what comes behind it on the same one must not overtake it. */
  readonly #waiting = new WeakSet<HttpSocket>()
  #timer: NodeJS.Timeout | null = null

  constructor(options: StartGateOptions) {
    this.#options = options
  }

  /** The same handler, which begins to get requests when the gate opens. */
  wrap(handle: HttpHandler): HttpHandler {
    const { lifecycle } = this.#options
    return (req, res, expectsContinue, next) => {
      if (lifecycle.starting && !this.#passes(req)) {
        this.#hold({ req, res, begin: () => handle(req, res, expectsContinue, next) })
      } else handle(req, res, expectsContinue, next)
    }
  }

  /** Begins what waits, in its order. */
  open(): void {
    for (const { begin } of this.#empty()) begin()
  }

  /** Refuses what waits: the gateway ends before it served. */
  refuse(error: GatewayError): void {
    for (const { req, res } of this.#empty()) this.#refuse(req, res, error)
  }

  #passes({ url, socket }: HttpRequest): boolean {
    return HEALTH.test(url ?? '') && !this.#waiting.has(socket)
  }

  #hold(held: Held): void {
    const { req, res } = held
    if (this.#held.size >= MAX_HELD_REQUESTS) {
      this.#refuse(req, res, STARTING)
      return
    }
    this.#held.add(held)
    if (!this.#waiting.has(req.socket)) this.#follow(req.socket)
    this.#timer ??= this.#options.clock.setTimeout(() => this.refuse(STARTING), MAX_HOLD_MS)
  }

  /** Requests of a client that leaves are forgotten. */
  #follow(socket: HttpSocket): void {
    this.#waiting.add(socket)
    socket.once('close', () => {
      for (const held of this.#held) if (held.req.socket === socket) this.#held.delete(held)
    })
  }

  #empty(): readonly Held[] {
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    this.#timer = null
    const held = [...this.#held]
    this.#held.clear()
    return held
  }

  #refuse({ rawHeaders }: HttpRequest, res: HttpResponse, error: GatewayError): void {
    refuseRequest(res, error, ['X-Request-Id', this.#options.requestIds.take(headerOf(rawHeaders, 'x-request-id'))])
  }
}
