/**
 * What became of a request that came twice in a row on its connection, for the same one again: target, host, route and call
 * header then need not be found anew. Owner: §4.1; what it brings: page performance.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { RequestHead } from '../invocation/forwarded-headers.ts'
import type { HeaderRest } from '../runtime/call.ts'
import type { Asked, Exchange, HttpRequest } from './exchange.ts'
import type { RequestCheck } from './request-check.ts'

export class RequestMemo implements HeaderRest {
  readonly asked: Readonly<Asked>
  /** The call header behind id and time. */
  readonly text: string
  readonly fn: FunctionVersion
  readonly route: string | null
  readonly #method: string
  readonly #target: string
  /** Another gateway on the same connection may believe other proxies. */
  readonly #check: RequestCheck
  /** Of the routes it was found in: those of another catalog may lead elsewhere. */
  readonly #epoch: object
  #bytes: Buffer | null = null

  /**
   * @param exchange - checked and routed
   * @param fn - where it goes
   * @param epoch - of the routes
   */
  constructor(exchange: Exchange, check: RequestCheck, fn: FunctionVersion, epoch: object, text: string) {
    this.asked = exchange.asked
    this.text = text
    this.fn = fn
    this.route = exchange.route
    this.#method = exchange.method
    this.#target = exchange.target
    this.#check = check
    this.#epoch = epoch
  }

  get bytes(): Buffer {
    this.#bytes ??= Buffer.from(this.text)
    return this.#bytes
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

  /** True when the exchange goes to the same function by the same route: no step has changed its path meanwhile. */
  leads(exchange: Exchange, epoch: object): boolean {
    return this.#epoch === epoch && exchange.path === this.asked.path
  }
}
