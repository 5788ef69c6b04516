/** The newest jobs of one function. Owner: page console/function. */

import type { FunctionId } from '../../data/function-records.ts'
import type { Job } from '../../data/jobs.ts'
import { useLoad } from '../../data/load.ts'
import { Empty } from '../../parts/empty.tsx'
import { LoadState } from '../../parts/load-state.tsx'
import { Table } from '../../parts/table.tsx'
import { toHref } from '../../router.ts'
import { JOB_COLUMNS, stateOfJob } from '../jobs/job-columns.tsx'

const MOST = 200
const COLUMNS = JOB_COLUMNS.filter(({ name }) => name !== 'function')

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
        stateOf={stateOfJob}
        empty={
          <Empty title="No jobs">
            <p>A job runs the function in the background and is retried on failure:</p>
            <pre>{`fngw jobs create ${id.name}`}</pre>
          </Empty>
        }
        columns={COLUMNS}
      />
    </>
  )
}
