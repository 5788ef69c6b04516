/** The notice above stale data, or instead of data that failed to load. Owner: page console/console. */

import type { Loaded } from '../data/load.ts'
import { formatClock } from '../format.ts'

/** Nothing while all is well: what is loading shows nothing rather than something that turns. */
export function LoadState({ loaded }: { loaded: Loaded<unknown> }) {
  const { error, data, at } = loaded
  if (error === null) return null
  return (
    <p class="error" role="alert">
      {error.message}
      {data !== null && ` The data is from ${formatClock(at)}.`}
    </p>
  )
}
