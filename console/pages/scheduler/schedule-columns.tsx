/** Columns of schedules and of pings. Owner: page console/scheduler. */

import { type KeepWarmRow, type ScheduleRow, toMs, toRule } from '../../data/schedules.ts'
import { formatAgo, formatDate, formatMs, NO_DATA } from '../../format.ts'
import type { Column } from '../../parts/table.tsx'
import { toHref } from '../../router.ts'
import { canWrite, whyReadOnly } from '../../session.ts'

type Row = ScheduleRow | KeepWarmRow

const FUNCTION: Column<Row> = {
  name: 'function',
  title: 'Function',
  cell: ({ key }) => <a href={toHref(`functions/${key}`)}>{key}</a>,
  value: ({ key }) => key,
}

const NEXT: Column<Row> = {
  name: 'next',
  title: 'Next',
  cell: ({ next }) => <span title={formatDate(toMs(next))}>{formatAgo(toMs(next))}</span>,
  value: ({ next }) => next,
}

const LAST: Column<Row> = {
  name: 'last',
  title: 'Last',
  drop: 2,
  cell: ({ last }) => (last === null ? 'never' : <span title={formatDate(toMs(last))}>{formatAgo(toMs(last))}</span>),
  value: ({ last }) => last,
}

const STATUS: Column<Row> = {
  name: 'status',
  title: 'Status',
  isNumber: true,
  drop: 1,
  cell: ({ last_status: status }) => status ?? NO_DATA,
}

const ERROR: Column<Row> = {
  name: 'error',
  title: 'Last error',
  // The state of the row shows a failure, too.
  drop: 2,
  long: ({ last_error: error }) => error,
  cell: ({ last_error: error }) => (error === '' ? NO_DATA : <span class="error">{error}</span>),
}

export const stateOf = ({ last_error: error }: Row): string | null => (error === '' ? null : 'failing')

/** @param running - key of the one that was started by hand and runs; null for none */
export function toScheduleColumns(
  running: string | null,
  onRun: (row: ScheduleRow) => void,
): readonly Column<ScheduleRow>[] {
  return [
    FUNCTION,
    {
      name: 'rule',
      title: 'Runs',
      drop: 2,
      cell: ({ schedule }) => <span class={schedule === null ? 'error' : undefined}>{toRule(schedule)}</span>,
    },
    NEXT,
    { name: 'zone', title: 'Local time', drop: 1, cell: ({ next_at: nextAt }) => nextAt ?? NO_DATA },
    LAST,
    STATUS,
    ERROR,
    {
      name: 'retry',
      title: 'Retry',
      drop: 1,
      cell: ({ retry_due: due, retry_attempt: attempt }) =>
        due === undefined ? NO_DATA : `attempt ${attempt} ${formatAgo(toMs(due))}`,
    },
    {
      name: 'run',
      title: '',
      cell: row => (
        <button
          type="button"
          class="in-row"
          aria-label={`${row.running || running === row.key ? 'Running' : 'Run now'}: ${row.key}`}
          disabled={!canWrite.value || running !== null || row.running || row.schedule === null}
          title={whyReadOnly.value ?? undefined}
          onClick={() => onRun(row)}
        >
          {row.running || running === row.key ? 'Running' : 'Run now'}
        </button>
      ),
    },
  ]
}

export const PING_COLUMNS: readonly Column<KeepWarmRow>[] = [
  FUNCTION,
  { name: 'warm', title: 'State', cell: ({ warm_state: state }) => state, value: ({ warm_state: state }) => state },
  {
    name: 'workers',
    title: 'Warm workers',
    drop: 2,
    isNumber: true,
    cell: ({ keep_warm: { min_warm: workers } }) => (workers === 1 ? '1 worker' : `${workers} workers`),
  },
  {
    name: 'every',
    title: 'Ping',
    drop: 2,
    cell: ({ keep_warm: { ping_every_seconds: seconds } }) => `every ${formatMs(seconds * 1000)}`,
  },
  {
    name: 'idle',
    title: 'Idle timeout',
    drop: 2,
    cell: ({ keep_warm: { idle_ttl_seconds: seconds } }) => formatMs(seconds * 1000),
  },
  NEXT,
  LAST,
  STATUS,
  ERROR,
]
