/** The times at which a schedule will run, in its own zone and in the reader's. Owner: page console/scheduler. */

import { useLoad } from '../data/load.ts'
import { type ScheduleRow, toTarget } from '../data/schedules.ts'
import { formatAgo, formatDate } from '../format.ts'
import { LoadState } from '../parts/load-state.tsx'

const MOST_RUNS = 5

interface Answer {
  readonly timezone: string | null
  readonly next: readonly { readonly at: number; readonly local: string }[]
}

export function NextRuns({ row }: { row: ScheduleRow }) {
  const asked = { ...toTarget(row), count: MOST_RUNS }
  const loaded = useLoad<Answer>('/_fn/schedules/next', { query: asked, on: ['schedule', 'reload'] })
  const { data } = loaded
  return (
    <>
      <LoadState loaded={loaded} />
      {data?.next.length === 0 && <p class="quiet">No runs are scheduled.</p>}
      <ol>
        {data?.next.map(({ at, local }) => (
          <li key={at}>
            <span>{local}</span>
            <span class="quiet">
              {formatAgo(at * 1000)}, here {formatDate(at * 1000)}
            </span>
          </li>
        ))}
      </ol>
    </>
  )
}
