/**
 * How quick the calls of a one-at-a-time worker are, and so how many it may have open: the first runs, the others lie
 * behind it and save a round trip each. Owner: §2.8, page runtime/worker-set.
 */

/**
 * Calls open at once on a one-at-a-time worker: as many as fit in `workMs` milliseconds by the average of its calls, at
 * most `calls`; one until `afterFastCalls` calls in a row were fast and the average is at most `maxCallMs`.
 */
export const PREFETCH = { afterFastCalls: 64, maxCallMs: 1, workMs: 2, calls: 64 } as const
/** A call of a one-at-a-time worker that takes longer is not fast, milliseconds. */
export const FAST_CALL_MS = 5
/** Share of the newest call in the average of a worker's calls. */
const CALL_MS_WEIGHT = 1 / 16

export class CallPace {
  /** Calls that the worker may have open now. */
  depth = 1
  #fastCalls = 0
  /** What calls took lately, milliseconds; not known to be quick at first. */
  #callMs = FAST_CALL_MS

  /** @param tookMs - what the call that just ended took */
  learn(tookMs: number): void {
    this.#fastCalls = tookMs < FAST_CALL_MS ? this.#fastCalls + 1 : 0
    this.#callMs += (Math.min(tookMs, FAST_CALL_MS) - this.#callMs) * CALL_MS_WEIGHT
    const isQuick = this.#fastCalls >= PREFETCH.afterFastCalls && this.#callMs <= PREFETCH.maxCallMs
    this.depth = isQuick ? Math.max(2, Math.min(PREFETCH.calls, Math.trunc(PREFETCH.workMs / this.#callMs))) : 1
  }
}
