/** The newest requests of one function. Owner: page console/function. */

import { type FunctionId, toTarget } from '../../data/function-records.ts'
import { useLoad } from '../../data/load.ts'
import { formatBytes, formatClock, formatCount, formatDate, formatMs } from '../../format.ts'
import { Empty } from '../../parts/empty.tsx'
import { LoadState } from '../../parts/load-state.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { query, setQuery, toHref } from '../../router.ts'
import { type AccessLine, parseAccessLines } from './access-lines.ts'

const LINES = 500
const EVERY_MS = 3000

export function RequestsTab({ id }: { id: FunctionId }) {
  const { runtime, name, version } = toTarget(id)
  const loaded = useLoad<{ data: readonly string[] }>('/_fn/logs', {
    query: { file: 'access', format: 'json', lines: LINES, runtime, fn: name, version },
    every: EVERY_MS,
  })
  if (loaded.data === null) return <LoadState loaded={loaded} />
  const all = parseAccessLines(loaded.data.data)
  const isFailing = query.value.get('only') === 'errors'
  const rows = isFailing ? all.filter(({ status }) => status >= 400) : all
  return (
    <>
      <LoadState loaded={loaded} />
      <div class="bar-of-tab">
        <p class="quiet">The newest {formatCount(all.length)} that the log still has, the last one first.</p>
        <label class="check">
          <input
            type="checkbox"
            checked={isFailing}
            onChange={event => setQuery({ only: event.currentTarget.checked ? 'errors' : null })}
          />{' '}
          4xx and 5xx only
        </label>
      </div>
      <Table
        label="Requests"
        rows={rows}
        keyOf={row => row.id}
        hrefOf={row => toHref(`requests/${row.id}`)}
        stateOf={row => (row.status >= 500 ? 'failing' : null)}
        empty={
          <Empty title={isFailing ? 'No failed requests' : 'No requests yet'}>
            {!isFailing && <p>Call one of its routes, or use Try it.</p>}
          </Empty>
        }
        columns={COLUMNS}
      />
    </>
  )
}

const COLUMNS: readonly Column<AccessLine>[] = [
  {
    name: 'time',
    title: 'Time',
    value: row => row.at,
    cell: row => <span title={formatDate(row.at)}>{formatClock(row.at)}</span>,
  },
  {
    name: 'status',
    title: 'Status',
    value: row => row.status,
    cell: row => <span class={row.status >= 500 ? 'error' : undefined}>{row.status}</span>,
  },
  {
    name: 'request',
    title: 'Request',
    long: row => `${row.method} ${row.path}`,
    value: row => row.path,
    cell: row => (
      <span class="mono">
        {row.method} {row.path}
      </span>
    ),
  },
  {
    name: 'duration',
    title: 'Time taken',
    isNumber: true,
    value: row => row.durationMs,
    cell: row => formatMs(row.durationMs),
  },
  {
    name: 'queue',
    title: 'Queued',
    drop: 2,
    isNumber: true,
    value: row => row.queueMs,
    cell: row => formatMs(row.queueMs),
  },
  {
    name: 'bytes',
    title: 'Sent',
    drop: 2,
    isNumber: true,
    value: row => row.bytesOut,
    cell: row => formatBytes(row.bytesOut),
  },
  {
    name: 'id',
    title: 'Request id',
    drop: 2,
    cell: row => (
      <a class="mono" href={toHref(`requests/${row.id}`)}>
        {row.id}
      </a>
    ),
  },
]
