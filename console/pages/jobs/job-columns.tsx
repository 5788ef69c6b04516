/** Columns of jobs. Owner: page console/jobs. */

import type { Job } from '../../data/jobs.ts'
import { formatAgo, formatDate, NO_DATA } from '../../format.ts'
import type { Column } from '../../parts/table.tsx'
import { toHref } from '../../router.ts'

export const JOB_COLUMNS: readonly Column<Job>[] = [
  {
    name: 'created',
    title: 'Created',
    value: job => job.created_at_ms,
    cell: job => (
      <a href={toHref('jobs', { id: job.id })} title={formatDate(job.created_at_ms)}>
        {formatAgo(job.created_at_ms)}
      </a>
    ),
  },
  {
    name: 'status',
    title: 'State',
    value: job => job.status,
    cell: job => <span class={toLook(job)}>{job.status}</span>,
  },
  {
    name: 'function',
    title: 'Function',
    value: job => job.name,
    cell: ({ runtime, name, version }) => (
      <a href={toHref(`functions/${runtime}/${name}@${version ?? 'default'}`)}>
        {version === null ? name : `${name}@${version}`}
      </a>
    ),
  },
  {
    name: 'call',
    title: 'Call',
    drop: 2,
    cell: job => (
      <code>
        {job.method} {job.route}
      </code>
    ),
  },
  {
    name: 'attempt',
    title: 'Attempt',
    drop: 2,
    isNumber: true,
    cell: job => `${job.attempt} of ${job.max_attempts}`,
  },
  {
    name: 'next',
    title: 'Next run',
    drop: 2,
    value: job => job.next_run_at_ms,
    cell: job => formatAgo(job.next_run_at_ms),
  },
  { name: 'answer', title: 'Status', drop: 2, isNumber: true, cell: job => job.result_status ?? NO_DATA },
  {
    name: 'error',
    title: 'Last error',
    long: job => job.last_error ?? '',
    cell: job => job.last_error ?? NO_DATA,
  },
  { name: 'id', title: 'Id', drop: 1, cell: job => <code>{job.id}</code> },
]

export function toLook({ status }: Pick<Job, 'status'>): string | undefined {
  return status === 'failed' ? 'error' : undefined
}

export const stateOfJob = ({ status }: Job): string | null => (status === 'failed' ? 'failing' : null)
