/**
 * Which socket of a runtime has its turn: the calls of one function go to its sockets one after the other, and each socket
 * that is up gets a worker. Owner: §2.8 (`round_robin`), page runtime/worker-set.
 */

import type { Sockets } from './runtime.ts'
import type { Worker } from './worker.ts'

/** Milliseconds between two looks whether every socket has a worker of a function that is called. */
const SPREAD_INTERVAL_MS = 250

export class SocketTurns {
  readonly #sockets: Sockets
  /** Index (from 1) of the socket that got the last call; 0 before the first of all. */
  #last: number
  /** Monotonic ms of the next look. */
  #lookAt = 0

  constructor(sockets: Sockets) {
    this.#sockets = sockets
    this.#last = sockets.begin()
  }

  /** Of the idle workers, else of those with room: the one whose socket is next. */
  pick(workers: readonly Worker[], now: number): Worker | null {
    const { count } = this.#sockets
    let best: Worker | null = null
    let bestRank = Number.POSITIVE_INFINITY
    for (const worker of workers) {
      if (!worker.hasRoom(now)) continue
      const turn = (worker.socketIndex - this.#last - 1 + count) % count
      const rank = (worker.inflight.size > 0 ? 2 : worker.state === 'ready' ? 0 : 1) * count + turn
      if (rank >= bestRank) continue
      best = worker
      bestRank = rank
    }
    if (best !== null) this.#last = best.socketIndex
    return best
  }

  /** True when it is time to look for sockets without a worker; a look at every call would try the same ones again and again. */
  isDue(now: number): boolean {
    if (now < this.#lookAt) return false
    this.#lookAt = now + SPREAD_INTERVAL_MS
    return true
  }

  /** Indexes of the sockets that are up. */
  up(): readonly number[] {
    return this.#sockets.up()
  }
}
