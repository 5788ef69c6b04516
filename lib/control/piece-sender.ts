/** Sends pieces as fast as the client takes them; memory holds one at a time. Owner: §4.2. */

import { toGatewayError } from '../core/errors.ts'
import type { Abandonable, Exchange } from '../http/exchange.ts'

/** The pieces are read to their end, or returned from when the client leaves. The answer must be open. */
export class PieceSender implements Abandonable {
  readonly #exchange: Exchange
  readonly #pieces: AsyncGenerator<Buffer, void>
  /** Wakes a wait for the client. */
  #wake: (() => void) | null = null
  #isOver = false

  constructor(exchange: Exchange, pieces: AsyncGenerator<Buffer, void>) {
    this.#exchange = exchange
    this.#pieces = pieces
  }

  start(): void {
    this.#exchange.work = this
    void this.#run()
  }

  /** The client is gone. */
  abandon(): void {
    this.#isOver = true
    this.#wake?.()
  }

  async #run(): Promise<void> {
    const { responder } = this.#exchange
    try {
      for await (const piece of this.#pieces) {
        if (this.#isOver) return
        if (!responder.writeStream(this.#exchange, piece)) await this.#drained()
        if (this.#isOver) return
      }
      responder.closeStream(this.#exchange, null)
    } catch (error) {
      // The connection is cut: the client must not take a part for the whole.
      responder.closeStream(this.#exchange, toGatewayError(error))
    }
  }

  #drained(): Promise<void> {
    return new Promise(resolve => {
      this.#wake = resolve
      this.#exchange.responder.onDrain(this.#exchange, resolve)
    })
  }
}
