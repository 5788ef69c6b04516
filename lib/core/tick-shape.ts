/**
 * Keeps `process.nextTick` fast. Owner: page performance.
 *
 * The engine builds the object of a tick quickly while the hidden class of such objects exists. In a process that is
 * idle when it collects garbage no tick is alive, the class goes with the last one, and from then on every tick of the
 * process is built the slow way: about 15 % of a request's work. One tick that is never let go keeps the class.
 */

import { executionAsyncResource } from 'node:async_hooks'

let kept: object | null = null

/** To be called early, any number of times. */
export function keepTickShape(): void {
  if (kept !== null) return
  kept = {}
  process.nextTick(() => {
    kept = executionAsyncResource()
  })
}
