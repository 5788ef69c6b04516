/** The functions that the overview names: the slowest and those that failed. Owner: page console/overview. */

import type { FunctionTotals } from '../../data/history.ts'

/** By p95; those that were not called in the range are none. */
export function toSlowest(functions: readonly FunctionTotals[], most: number): FunctionTotals[] {
  const called = functions.filter(({ requests }) => requests > 0)
  return called.sort((a, b) => (b.p95_ms ?? 0) - (a.p95_ms ?? 0) || byKey(a, b)).slice(0, most)
}

/** By 5xx responses, then by refused calls, then by 4xx responses. */
export function toFailing(functions: readonly FunctionTotals[], most: number): FunctionTotals[] {
  const failing = functions.filter(
    ({ errors_4xx: refused, errors_5xx: failed, throttled }) => refused + failed + throttled > 0,
  )
  return failing
    .sort(
      (a, b) => b.errors_5xx - a.errors_5xx || b.throttled - a.throttled || b.errors_4xx - a.errors_4xx || byKey(a, b),
    )
    .slice(0, most)
}

const byKey = (a: FunctionTotals, b: FunctionTotals): number => (a.key < b.key ? -1 : 1)
