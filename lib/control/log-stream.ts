/** Lines of a log to a client as they come. A slow client is told how many it missed; nothing piles up. Owner: page control/logs. */

import type { Clock } from '../core/clock.ts'
import type { Exchange } from '../http/exchange.ts'

/** Milliseconds that lines wait for others, so that a busy log is not one system call a line. */
const GATHER_MS = 50
/** Characters of lines that wait for a slow client. */
const MAX_WAITING_CHARS = 256 * 1024

/** How lines are written. */
export interface LineForm {
  /** The line with its end. */
  toText(line: string): string
  /** Stands for so many lines that were left out. */
  toSkipText(count: number): string
}

export class LogStream {
  readonly #exchange: Exchange
  readonly #clock: Clock
  readonly #form: LineForm
  #text = ''
  #skipped = 0
  #isBlocked = false
  #timer: NodeJS.Timeout | null = null

  /** @param exchange - whose answer was opened */
  constructor(exchange: Exchange, clock: Clock, form: LineForm) {
    this.#exchange = exchange
    this.#clock = clock
    this.#form = form
  }

  /** Sends what there is already, all of it. */
  begin(lines: readonly string[]): void {
    this.#text = lines.map(line => this.#form.toText(line)).join('')
    this.flush()
  }

  push(line: string): void {
    if (this.#skipped > 0 || this.#text.length > MAX_WAITING_CHARS) this.#skipped += 1
    else this.#text += this.#form.toText(line)
    if (!this.#isBlocked) this.#timer ??= this.#clock.setTimeout(() => this.flush(), GATHER_MS)
  }

  /** Sends what waits, as far as the client takes it. */
  flush(): void {
    this.#stopTimer()
    const { responder } = this.#exchange
    if (this.#isBlocked || this.#exchange.ended) return
    const text = this.#skipped === 0 ? this.#text : this.#text + this.#form.toSkipText(this.#skipped)
    this.#text = ''
    this.#skipped = 0
    if (text === '' || responder.writeStream(this.#exchange, Buffer.from(text), true)) return
    this.#isBlocked = true
    responder.onDrain(this.#exchange, () => {
      this.#isBlocked = false
      this.flush()
    })
  }

  /** The last lines, and the end of the answer. */
  end(): void {
    this.flush()
    this.stop()
    this.#exchange.responder.closeStream(this.#exchange, null)
  }

  /** Nobody reads any more. */
  stop(): void {
    this.#stopTimer()
    this.#isBlocked = true
    this.#text = ''
  }

  #stopTimer(): void {
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer)
    this.#timer = null
  }
}
