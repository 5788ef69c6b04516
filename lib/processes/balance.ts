/** Connections evenly over processes: who has too many lets some go, and their clients come again. Owner: page processes/processes. */

/** Connections above the average that are nobody's concern: so many, and such a share of the average. */
const SLACK = { connections: 4, share: 0.2 } as const

/**
 * How many connections each process lets go: half of what it has too many, because a client that comes again may come to
 * the same one.
 * @param open - connections of each
 */
export function toShed(open: readonly number[]): number[] {
  const average = open.reduce((sum, count) => sum + count, 0) / open.length
  const slack = Math.max(SLACK.connections, average * SLACK.share)
  return open.map(count => (count - average > slack ? Math.ceil((count - average) / 2) : 0))
}
