/** Columns of the list of functions. Owner: page console/functions. */

import { toFunctionPage, toShownName } from '../../data/function-records.ts'
import { formatAgo, formatCount, formatMs, formatNumberOf, formatRate, formatShare, NO_DATA } from '../../format.ts'
import { Spark } from '../../parts/spark.tsx'
import type { Column } from '../../parts/table.tsx'
import { query, toHref } from '../../router.ts'
import { type FunctionRow, STATES } from './rows.ts'

export const COLUMNS: readonly Column<FunctionRow>[] = [
  {
    name: 'name',
    title: 'Name',
    value: toShownName,
    cell: row => <a href={toRowHref(row)}>{toShownName(row)}</a>,
  },
  { name: 'runtime', title: 'Runtime', drop: 2, value: row => row.runtime, cell: row => row.runtime },
  { name: 'state', title: 'State', value: row => rankOf(row), cell: row => <StateOf row={row} /> },
  {
    name: 'routes',
    title: 'Routes',
    drop: 1,
    value: row => row.routes[0] ?? null,
    cell: row => <RoutesOf row={row} />,
  },
  {
    name: 'rate',
    title: 'Rate',
    drop: 2,
    isNumber: true,
    value: row => row.rate,
    cell: row => formatRate(row.rate),
  },
  {
    name: 'p95',
    title: 'p95',
    isNumber: true,
    value: row => row.summary?.p95_ms ?? null,
    cell: row => formatMs(row.summary?.p95_ms),
  },
  {
    name: 'errors',
    title: 'Errors',
    isNumber: true,
    value: row => row.summary?.errors_5xx ?? null,
    cell: row => <ErrorsOf row={row} />,
  },
  {
    name: 'throttled',
    title: 'Throttled',
    drop: 2,
    isNumber: true,
    value: row => row.summary?.throttled ?? null,
    cell: row => (
      <span class={row.summary?.throttled ? 'warning' : undefined}>{formatCount(row.summary?.throttled)}</span>
    ),
  },
  {
    name: 'workers',
    title: 'Workers',
    drop: 1,
    isNumber: true,
    value: row => row.workers,
    cell: row => formatCount(row.workers),
  },
  {
    name: 'spark',
    title: 'Requests',
    drop: 1,
    cell: row => row.summary !== null && <Spark values={row.summary.spark} />,
  },
  {
    name: 'last',
    title: 'Last error',
    drop: 2,
    long: row => row.summary?.last_error ?? '',
    value: row => row.summary?.last_error_at ?? null,
    cell: row => <LastErrorOf row={row} />,
  },
]

/** The time range goes along. */
export function toRowHref(row: FunctionRow): string {
  return toHref(toFunctionPage(row), { range: query.value.get('range') })
}

/** The worst comes first when it is sorted upwards. */
function rankOf({ state }: FunctionRow): number | null {
  return state === null ? null : STATES.indexOf(state)
}

function StateOf({ row }: { row: FunctionRow }) {
  if (row.state === null) return <>{NO_DATA}</>
  if (row.state === 'broken' || row.state === 'failing') return <span class="error">{row.state}</span>
  if (row.state === 'warnings') return <span class="warning">{formatNumberOf(row.warnings, 'warning')}</span>
  return <span class={row.state === 'slow' || row.state === 'throttled' ? 'warning' : 'quiet'}>{row.state}</span>
}

function RoutesOf({ row: { routes } }: { row: FunctionRow }) {
  if (routes.length === 0) return <span class="quiet">none</span>
  return (
    <span class="mono" title={routes.join('\n')}>
      {toShortRoute(routes[0] as string)}
      {routes.length > 1 && <span class="quiet"> +{routes.length - 1}</span>}
    </span>
  )
}

/** All five methods are as good as none said. */
function toShortRoute(route: string): string {
  return route.replace(/^GET,POST,PUT,PATCH,DELETE /, '')
}

function ErrorsOf({ row: { summary } }: { row: FunctionRow }) {
  if (summary === null) return <>{NO_DATA}</>
  const { errors_5xx: errors, requests } = summary
  if (errors === 0) return <>0</>
  return (
    <span class="error">
      {formatCount(errors)} ({formatShare(errors / requests)})
    </span>
  )
}

function LastErrorOf({ row: { summary } }: { row: FunctionRow }) {
  if (summary?.last_error_at == null) return <>{NO_DATA}</>
  return (
    <>
      {formatAgo(summary.last_error_at * 1000)}: {summary.last_error}
    </>
  )
}
