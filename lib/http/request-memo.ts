/**
 * What became of a request that came twice in a row on its connection, for the same one again: target, host, route and call
 * header, or why no route takes it, then need not be found anew. Owner: §4.1; what it brings: page performance.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { RequestHead } from '../invocation/forwarded-headers.ts'
import type { RouteRefusal } from '../router/route-table.ts'
import type { HeaderRest } from '../runtime/call.ts'
import type { Asked, Exchange, HttpRequest } from './exchange.ts'
import type { RequestCheck } from './request-check.ts'

/** The function that a request went to, and what it was told. */
export class KnownCall implements HeaderRest {
  readonly kind = 'call'
  readonly fn: FunctionVersion
  /** The call header behind id and time. */
  readonly text: string
  #bytes: Buffer | null = null

  constructor(fn: FunctionVersion, text: string) {
    this.fn = fn
    this.text = text
  }

  get bytes(): Buffer {
    this.#bytes ??= Buffer.from(this.text)
    return this.#bytes
  }
}

export class RequestMemo {
  readonly asked: Readonly<Asked>
  readonly outcome: KnownCall | RouteRefusal
  readonly route: string | null
  readonly #method: string
  readonly #target: string
  /** Another gateway on the same connection may believe other proxies. */
  readonly #check: RequestCheck
  /** Of the routes it was found in: those of another catalog may lead elsewhere. */
  readonly #epoch: object

  /**
   * @param exchange - checked and routed
   * @param epoch - of the routes
   * @param outcome - where it goes, or why not
   */
  constructor(exchange: Exchange, check: RequestCheck, epoch: object, outcome: KnownCall | RouteRefusal) {
    this.asked = exchange.asked
    this.outcome = outcome
    this.route = exchange.route
    this.#method = exchange.method
    this.#target = exchange.target
    this.#check = check
    this.#epoch = epoch
  }

  /**
   * True when a request of the same connection asks for the same, so that the check would find the same.
   * @param head - as received: one that was replaced since is of its own request only
   */
  isSame(req: HttpRequest, head: RequestHead, check: RequestCheck): boolean {
    return (
      this.asked.head === head &&
      this.#target === req.url &&
      this.#method === req.method &&
      // Of the older version other rules hold.
      req.httpVersion === '1.1' &&
      this.#check === check
    )
  }

  /** True when the exchange goes the same way: no step has changed its path meanwhile. */
  leads(exchange: Exchange, epoch: object): boolean {
    return this.#epoch === epoch && exchange.path === this.asked.path
  }
}
