/** Jobs, newest first, a page at a time. Owner: page console/jobs. */

import { useState } from 'preact/hooks'
import { type ApiError, send } from '../../data/api.ts'
import { type Job, JOB_STATES } from '../../data/jobs.ts'
import { useLoad } from '../../data/load.ts'
import { formatNumberOf } from '../../format.ts'
import { Confirm } from '../../parts/dialog.tsx'
import { Empty } from '../../parts/empty.tsx'
import { LoadState } from '../../parts/load-state.tsx'
import { Table } from '../../parts/table.tsx'
import { query, setQuery, toHref } from '../../router.ts'
import { canWrite, whyReadOnly } from '../../session.ts'
import { JOB_COLUMNS, stateOfJob } from './job-columns.tsx'

/** Jobs of one page. */
const PAGE_JOBS = 50

interface Answer {
  readonly jobs: readonly Job[]
  readonly next_cursor: string | null
}

/** A page is in the order in which the jobs were created; sorted, it would look like the order of all of them. */
const COLUMNS = JOB_COLUMNS.map(({ value: _, ...column }) => column)

export function JobList() {
  const [state, fn, cursor] = ['state', 'fn', 'cursor'].map(name => query.value.get(name) ?? '')
  const loaded = useLoad<Answer>('/_fn/jobs', { query: { state, fn, cursor, limit: PAGE_JOBS }, on: ['job'] })
  const { data } = loaded
  const isFiltered = state !== '' || fn !== '' || cursor !== ''
  return (
    <>
      <div class="tools job-filters">
        <select
          aria-label="State"
          value={state}
          onChange={event => setQuery({ state: event.currentTarget.value, cursor: null })}
        >
          <option value="">All states</option>
          {JOB_STATES.map(name => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <input
          type="search"
          aria-label="Function"
          placeholder="Function"
          data-search
          value={fn}
          onChange={event => setQuery({ fn: event.currentTarget.value.trim(), cursor: null })}
        />
      </div>
      <LoadState loaded={loaded} />
      {data !== null && <RetryFailed jobs={data.jobs.filter(job => job.status === 'failed')} />}
      {data !== null && (
        <Table
          label="Jobs"
          columns={COLUMNS}
          rows={data.jobs}
          keyOf={job => job.id}
          hrefOf={job => toHref('jobs', { id: job.id })}
          stateOf={stateOfJob}
          empty={isFiltered ? <Empty title="No jobs match" /> : <NoJobs />}
        />
      )}
      <nav class="pager" aria-label="Pages of jobs">
        {cursor !== '' && <a href={toHref('jobs', { state: state ?? '', fn: fn ?? '' })}>Newest</a>}
        {data?.next_cursor != null && (
          <a href={toHref('jobs', { state: state ?? '', fn: fn ?? '', cursor: data.next_cursor })}>Older</a>
        )}
      </nav>
    </>
  )
}

/** Runs the failed jobs of this page again, one after the other; what cannot run again is named. */
function RetryFailed({ jobs }: { jobs: readonly Job[] }) {
  const [isAsking, setAsking] = useState(false)
  const [isBusy, setBusy] = useState(false)
  const [outcome, setOutcome] = useState('')
  if (jobs.length === 0 && outcome === '') return null
  const retry = async (): Promise<void> => {
    setBusy(true)
    const refused: string[] = []
    for (const { id } of jobs) {
      try {
        await send('POST', `/_fn/jobs/${encodeURIComponent(id)}/retry`, {})
      } catch (failure) {
        refused.push(`${id}: ${(failure as ApiError).message}`)
      }
    }
    setBusy(false)
    setOutcome([`Created ${formatNumberOf(jobs.length - refused.length, 'job')}.`, ...refused].join('\n'))
  }
  const title = `Retry ${formatNumberOf(jobs.length, 'failed job')}`
  return (
    <div class="tools job-filters">
      {jobs.length > 0 && (
        <button
          type="button"
          disabled={!canWrite.value || isBusy}
          title={whyReadOnly.value ?? 'Creates a job with the same input for each failed job on this page'}
          onClick={() => setAsking(true)}
        >
          {title}
        </button>
      )}
      <p class="quiet outcome" role="status">
        {outcome}
      </p>
      <Confirm
        title={`${title}?`}
        action="Retry"
        isOpen={isAsking}
        onConfirm={() => void retry()}
        onClose={() => setAsking(false)}
      >
        <p>Each creates a new job with the same input. The failed jobs stay.</p>
      </Confirm>
    </div>
  )
}

function NoJobs() {
  return (
    <Empty title="No jobs yet">
      <p>
        A job runs a function in the background. It is stored on disk and retried on failure. Create one from{' '}
        <a href={toHref('try')}>Try it</a> or from the command line:
      </p>
      <pre>fngw jobs create hello --max-attempts 3</pre>
    </Empty>
  )
}
