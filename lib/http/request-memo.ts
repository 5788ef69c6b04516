/**
 * What became of a request that came twice in a row on its connection, for the same one again: target, host, route and call
 * header then need not be found anew. Owner: §4.1; what it brings: page performance.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { RequestHead } from '../invocation/forwarded-headers.ts'
import type { HeaderRest } from '../runtime/call.ts'
import type { Exchange } from './exchange.ts'
import type { RequestCheck } from './request-check.ts'

export class RequestMemo implements HeaderRest {
  readonly head: RequestHead
  /** The call header behind id and time. */
  readonly text: string
  readonly fn: FunctionVersion
  readonly route: string | null
  readonly #method: string
  readonly #target: string
  readonly #path: string
  readonly #rawPath: string
  readonly #search: string
  readonly #host: string
  readonly #ip: string
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
    this.head = exchange.head
    this.text = text
    this.fn = fn
    this.route = exchange.route
    this.#method = exchange.method
    this.#target = exchange.target
    this.#path = exchange.path
    this.#rawPath = exchange.rawPath
    this.#search = exchange.search
    this.#host = exchange.host
    this.#ip = exchange.ip
    this.#check = check
    this.#epoch = epoch
  }

  get bytes(): Buffer {
    this.#bytes ??= Buffer.from(this.text)
    return this.#bytes
  }

  /**
   * Gives an exchange of the same connection what the check would, when its request is the same.
   * @returns false when it is not
   */
  recognize(exchange: Exchange, check: RequestCheck): boolean {
    if (this.head !== exchange.head || this.#target !== exchange.target || this.#method !== exchange.method)
      return false
    // Of the older version other rules hold.
    if (exchange.req.httpVersion !== '1.1' || this.#check !== check) return false
    exchange.path = this.#path
    exchange.rawPath = this.#rawPath
    exchange.search = this.#search
    exchange.host = this.#host
    exchange.ip = this.#ip
    return true
  }

  /** True when the exchange goes to the same function by the same route: no step has changed its path meanwhile. */
  leads(exchange: Exchange, epoch: object): boolean {
    return this.#epoch === epoch && exchange.path === this.#path
  }
}
