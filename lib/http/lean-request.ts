/**
 * node's request without the end of a body that nobody reads: to tell of it costs four ticks and a walk through a stream's
 * machinery, on most requests for nothing. Owner: §4.1.
 */

import { IncomingMessage } from 'node:http'

/** What node keeps under these names. Where it should not, a request is only told of its end as before. */
interface Internals {
  /** The parser drops what comes of the body. */
  _dumped: boolean
}

export class LeanRequest extends IncomingMessage {
  #isUnread = false
  #hasPieces = false
  #isOver = false

  /** Nobody will read the body, or wait for its end. What comes of it is dropped. */
  leaveBody(): void {
    this.#isUnread = true
    ;(this as unknown as Internals)._dumped = true
  }

  /** Its end is waited for after all. */
  awaitEnd(): void {
    this.#isUnread = false
  }

  override push(chunk: unknown, encoding?: BufferEncoding): boolean {
    if (chunk !== null) {
      this.#hasPieces = true
    } else if (this.#isUnread && !this.#hasPieces) {
      this.#isOver = true
      return false
    }
    return super.push(chunk, encoding)
  }

  /** Asked by node before the next request of the connection is taken up. */
  isRead(): boolean {
    return this.#isOver || streamEnded.call(this)
  }
}

const streamEnded = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(IncomingMessage.prototype), 'readableEnded')!
  .get!

// A property by its type, which a class may not make an accessor of.
Object.defineProperty(LeanRequest.prototype, 'readableEnded', {
  configurable: true,
  get(this: LeanRequest): boolean {
    return this.isRead()
  },
})
