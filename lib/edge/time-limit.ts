/**
 * How long a transfer may wait: for the upstream, for the client, and in all. Owner: §2.10.
 *
 *   begin ─► no answer ─► head ─► upstream waited for ⇄ client waited for
 *              given ms            gap ms                 gap ms, at least EDGE_CLIENT_MS
 *                                  └───── in all: EDGE_ANSWER, more for every byte that came ─────┘
 */

import type { Clock } from '../core/clock.ts'

/** Milliseconds within which a client must take what is under way when it is waited for, unless `timeout_ms` is longer. */
export const EDGE_CLIENT_MS = 10_000
/** Time of a whole answer: `gaps` times the time between two pieces, at least `minMs`, and a second for so many bytes that came. */
export const EDGE_ANSWER = { minMs: 60_000, gaps: 10, bytesPerSecond: 16 * 1024 } as const

/** Which wait was too long. `ms` is its limit. */
export interface Overdue {
  who: 'answer' | 'upstream' | 'client' | 'all'
  ms: number
}

export class TimeLimit {
  readonly #clock: Clock
  readonly #gapMs: number
  readonly #onOverdue: (overdue: Overdue) => void
  #overdue: Overdue = { who: 'answer', ms: 0 }
  /** Monotonic ms by when a sign must come of whom is waited for. */
  #deadline = 0
  /** Monotonic ms of the answer's head, and the bytes that came since; null before it. */
  #headAt = 0
  #bytes: (() => number) | null = null
  #timer: NodeJS.Timeout | null = null
  #timerAt = 0

  /**
   * @param gapMs - between two signs of life
   * @param onOverdue - called once, when a wait was too long
   */
  constructor(clock: Clock, gapMs: number, onOverdue: (overdue: Overdue) => void) {
    this.#clock = clock
    this.#gapMs = gapMs
    this.#onOverdue = onOverdue
  }

  /** @param ms - until the answer's head */
  begin(ms: number): void {
    this.#wait('answer', ms)
  }

  /** @param bytes - of the body, so far */
  onHead(bytes: () => number): void {
    this.#bytes = bytes
    this.#headAt = this.#clock.monotonic()
    this.#wait('upstream', this.#gapMs)
  }

  /** The upstream gave a sign of life, or is waited for again. */
  onUpstream(): void {
    this.#wait('upstream', this.#gapMs)
  }

  /** The client is what is waited for. */
  onClient(): void {
    this.#wait('client', Math.max(this.#gapMs, EDGE_CLIENT_MS))
  }

  stop(): void {
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer)
    this.#timer = null
  }

  #wait(who: Overdue['who'], ms: number): void {
    this.#overdue = { who, ms }
    this.#deadline = this.#clock.monotonic() + ms
    // One timer that looks again when it was early, instead of one per piece; only an earlier end needs another.
    if (this.#timer !== null && this.#timerAt > this.#deadline) this.stop()
    if (this.#timer === null) this.#arm()
  }

  /** An upstream that drips, or a client that sips, gives a sign in time each time, and could go on for ever. */
  get #totalMs(): number {
    const floor = Math.max(EDGE_ANSWER.minMs, this.#gapMs * EDGE_ANSWER.gaps)
    return floor + ((this.#bytes?.() ?? 0) / EDGE_ANSWER.bytesPerSecond) * 1000
  }

  get #end(): number {
    return this.#bytes === null ? this.#deadline : Math.min(this.#deadline, this.#headAt + this.#totalMs)
  }

  #arm(): void {
    this.#timerAt = this.#end
    const ms = Math.max(1, Math.ceil(this.#timerAt - this.#clock.monotonic()))
    this.#timer = this.#clock.setTimeout(() => {
      this.#timer = null
      const now = this.#clock.monotonic()
      if (now < this.#end) this.#arm()
      else this.#onOverdue(now < this.#deadline ? { who: 'all', ms: Math.ceil(this.#totalMs) } : this.#overdue)
    }, ms)
  }
}
