/** How many workers to add while calls of a function wait for one. Owner: §2.8, page runtime/worker-set. */

/** Milliseconds a call waits while others are answered before a worker is added for it. */
const SLOW_WAIT_MS = 50

interface Look {
  /** Monotonic ms. */
  now: number
  /** Answers of all workers so far. */
  answers: number
  workerCount: number
  /** When the oldest call that waits began to; null when none waits. */
  waitsSince: number | null
}

export class Growth {
  #answersAtLastLook = -1
  #addedAt = Number.NEGATIVE_INFINITY

  /** Looks begin: calls have begun to wait. @param answers - null lets the first look take the workers for busy */
  begin(answers: number | null): void {
    this.#answersAtLastLook = answers ?? -1
  }

  /**
   * How many to add: as many as there are when nothing was answered since the last look. While answers keep coming the
   * processors are the limit, and more workers would only share them; one is added for a call that waits long all the
   * same. Two looks are compared, because a single one may fall between an answer's arrival and its reading.
   */
  toAdd({ now, answers, workerCount, waitsSince }: Look): number {
    const isFlowing = answers !== this.#answersAtLastLook
    this.#answersAtLastLook = answers
    if (!isFlowing) return Math.max(1, workerCount)
    const waitsLong = waitsSince !== null && now - waitsSince >= SLOW_WAIT_MS && now - this.#addedAt >= SLOW_WAIT_MS
    if (waitsLong) this.#addedAt = now
    return waitsLong ? 1 : 0
  }
}
