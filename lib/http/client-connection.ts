/** A client's connection: its open exchanges, oldest first, and what is remembered of its last request. Owner: §4.1. */

import { toPlainAddress } from '../invocation/client-address.ts'
import type { Exchange, ExchangeConnection, HttpSocket } from './exchange.ts'
import type { RequestMemo } from './request-memo.ts'

const CONNECTION = Symbol('fngw.connection')

/** What is open on one client connection. Kept on the socket, so that it costs no lookup and ends with it. */
export class ClientConnection implements ExchangeConnection {
  readonly address: string
  /** Oldest open exchange; more than one when the client pipelines. */
  first: Exchange | null = null
  /** The one that began last, open or not: a broken connection closes after its answer. */
  latest: Exchange | null = null
  /** Its last request to a function: clients often send the same one again. */
  lastRequest: RequestMemo | null = null
  /** True once an answer said that it is the last: what the client sends after that is no request. */
  closing = false

  constructor(socket: HttpSocket) {
    this.address = toPlainAddress(socket.remoteAddress)
    // One listener per connection instead of one per request.
    socket.once('close', () => this.#onClose())
  }

  add(exchange: Exchange): void {
    this.latest = exchange
    if (this.first === null) {
      this.first = exchange
      return
    }
    let last = this.first
    while (last.nextOpen !== null) last = last.nextOpen
    last.nextOpen = exchange
  }

  remove(exchange: Exchange): void {
    if (this.first === exchange) {
      this.first = exchange.nextOpen
    } else {
      let before = this.first
      while (before !== null && before.nextOpen !== exchange) before = before.nextOpen
      if (before !== null) before.nextOpen = exchange.nextOpen
    }
    exchange.nextOpen = null
  }

  #onClose(): void {
    while (this.first !== null) {
      const exchange = this.first
      this.remove(exchange)
      exchange.onDisconnect()
    }
  }
}

/** The open exchanges of a socket; attached at its first request. */
export function connectionOf(socket: HttpSocket): ClientConnection {
  const carrier = socket as HttpSocket & { [CONNECTION]?: ClientConnection }
  carrier[CONNECTION] ??= new ClientConnection(socket)
  return carrier[CONNECTION]
}
