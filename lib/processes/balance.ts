/** Connections evenly over processes: who has too many lets some go, and their clients come again. Owner: page processes/processes. */

/** Connections above the average that are nobody's concern: so many, and such a share of the average. */
const SLACK = { connections: 4, share: 0.2 } as const

/**
 * How many connections each process keeps; null for one that has not too many. Whoever leaves may come to the same one
 * again, so that it can take a few looks until all have as many.
 * @param open - connections of each
 */
export function toKept(open: readonly number[]): (number | null)[] {
  const average = open.reduce((sum, count) => sum + count, 0) / open.length
  const slack = Math.max(SLACK.connections, average * SLACK.share)
  return open.map(count => (count - average > slack ? Math.ceil(average) : null))
}
