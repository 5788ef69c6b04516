/** The newest jobs of one function. Owner: page console/function. */

import type { FunctionId } from '../../data/function-records.ts'
import type { Job } from '../../data/jobs.ts'
import { useLoad } from '../../data/load.ts'
import { formatAgo, formatDate, NO_DATA } from '../../format.ts'
import { Empty } from '../../parts/empty.tsx'
import { LoadState } from '../../parts/load-state.tsx'
import { Table } from '../../parts/table.tsx'
import { toHref } from '../../router.ts'

const MOST = 200

export function JobsTab({ id }: { id: FunctionId }) {
  const loaded = useLoad<{ jobs: readonly Job[] }>('/_fn/jobs', { query: { fn: id.name, limit: MOST }, on: ['job'] })
  if (loaded.data === null) return <LoadState loaded={loaded} />
  const rows = loaded.data.jobs.filter(job => job.runtime === id.runtime && (job.version ?? 'default') === id.version)
  return (
    <>
      <LoadState loaded={loaded} />
      <Table
        label="Jobs"
        rows={rows}
        keyOf={job => job.id}
        hrefOf={job => toHref('jobs', { id: job.id })}
        stateOf={job => (job.status === 'failed' ? 'failing' : null)}
        empty={
          <Empty title="No jobs">
            <p>A job runs the function in the background and is retried on failure:</p>
            <pre>{`fngw jobs create ${id.name}`}</pre>
          </Empty>
        }
        columns={[
          {
            name: 'created',
            title: 'Created',
            value: job => job.created_at_ms,
            cell: job => <span title={formatDate(job.created_at_ms)}>{formatAgo(job.created_at_ms)}</span>,
          },
          {
            name: 'status',
            title: 'State',
            value: job => job.status,
            cell: job => <span class={job.status === 'failed' ? 'error' : undefined}>{job.status}</span>,
          },
          { name: 'attempt', title: 'Attempt', cell: job => `${job.attempt} of ${job.max_attempts}` },
          {
            name: 'next',
            title: 'Next run',
            value: job => job.next_run_at_ms,
            cell: job => formatAgo(job.next_run_at_ms),
          },
          { name: 'answer', title: 'Status', cell: job => job.result_status ?? NO_DATA },
          { name: 'error', title: 'Last error', cell: job => job.last_error ?? NO_DATA },
          {
            name: 'id',
            title: 'Id',
            cell: job => (
              <a class="mono" href={toHref('jobs', { id: job.id })}>
                {job.id}
              </a>
            ),
          },
        ]}
      />
    </>
  )
}
