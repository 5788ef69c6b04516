/**
 * Which kept connections a request may go over that cannot be sent again (POST, PATCH): those whose upstream is not closing
 * them just now, as far as can be known. Spec: §2.10.
 *
 *   free ─► a whole turn of the event loop, in which an end behind its answer is read ─► may be used ─► RECENT_MS after its last use: no more
 *
 * An upstream that closed a connection soon after an answer, and had not said so, may do it again: for a while it is not trusted.
 */

import type { Clock } from '../core/clock.ts'

/** Milliseconds since its last use after which a connection is too old: servers close idle ones after 2 s and more. */
const RECENT_MS = 1000
/** Milliseconds for which an upstream is not trusted, and so many of those are remembered. */
const DISTRUST_MS = 60_000
const MAX_DISTRUSTED = 1000

/** What is kept about a connection. */
export interface KeptConnection {
  /** Monotonic ms of the last request or answer. */
  usedAt: number
  /** The turn in which it became free last; -1 before that. */
  freedTurn: number
}

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
  noteSent(connection: KeptConnection): void {
    connection.usedAt = this.#clock.monotonic()
  }

  /** Its answer is whole. */
  noteFree(connection: KeptConnection): void {
    connection.usedAt = this.#clock.monotonic()
    connection.freedTurn = this.#turn
    this.planTurn()
  }

  /** The upstream closed it without having said so. */
  noteClosed(key: string, { usedAt, freedTurn }: KeptConnection): void {
    const now = this.#clock.monotonic()
    if (freedTurn < 0 || now - usedAt > RECENT_MS) return
    this.#distrusted.delete(key)
    this.#distrusted.set(key, now + DISTRUST_MS)
    if (this.#distrusted.size > MAX_DISTRUSTED) this.#distrusted.delete(this.#distrusted.keys().next().value!)
  }

  isTrusted(key: string): boolean {
    const until = this.#distrusted.get(key)
    if (until === undefined) return true
    if (this.#clock.monotonic() < until) return false
    this.#distrusted.delete(key)
    return true
  }

  /** To be asked at the end of a turn. */
  mayUse({ usedAt, freedTurn }: KeptConnection): boolean {
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
