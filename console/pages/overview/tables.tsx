/** Tables of the runtimes, and of slow and failing functions. Owner: page console/overview. */

import { useMemo } from 'preact/hooks'
import { toShownName } from '../../data/function-records.ts'
import type { Health } from '../../data/health-record.ts'
import type { FunctionTotals, History, Totals } from '../../data/history.ts'
import { formatAgo, formatCount, formatMs } from '../../format.ts'
import { Spark } from '../../parts/spark.tsx'
import { type Column, Table } from '../../parts/table.tsx'
import { toHref } from '../../router.ts'
import { toFailing, toSlowest } from './rankings.ts'

/** Rows of the tables of functions; the page of functions has all. */
const MOST_ROWS = 10

const NOTHING: Totals = {
  requests: 0,
  errors_4xx: 0,
  errors_5xx: 0,
  throttled: 0,
  p50_ms: null,
  p95_ms: null,
  p99_ms: null,
  spark: [],
}

const SPARK: Column<Totals> = {
  name: 'spark',
  title: '',
  drop: 1,
  cell: ({ spark }) => <Spark values={spark} />,
  width: '106px',
}
const REQUESTS: Column<Totals> = {
  name: 'requests',
  title: 'Requests',
  cell: ({ requests }) => formatCount(requests),
  value: ({ requests }) => requests,
  isNumber: true,
}

/** A column of errors; zero is quiet. */
function errorColumn(field: 'errors_4xx' | 'errors_5xx' | 'throttled', title: string): Column<Totals> {
  const style = field === 'errors_5xx' ? 'error' : field === 'throttled' ? 'warning' : undefined
  return {
    name: field,
    title,
    cell: row => <span class={row[field] === 0 ? 'quiet' : style}>{formatCount(row[field])}</span>,
    value: row => row[field],
    isNumber: true,
    ...(field !== 'errors_5xx' && { drop: 2 }),
  }
}

function timeColumn(field: 'p50_ms' | 'p95_ms' | 'p99_ms'): Column<Totals> {
  const title = field.slice(0, 3)
  return {
    name: title,
    title,
    cell: row => formatMs(row[field]),
    value: row => row[field],
    isNumber: true,
    ...(field !== 'p95_ms' && { drop: 2 }),
  }
}

const ERRORS = [
  errorColumn('errors_4xx', '4xx'),
  errorColumn('errors_5xx', '5xx'),
  errorColumn('throttled', 'Throttled'),
]
const TIMES = [timeColumn('p50_ms'), timeColumn('p95_ms'), timeColumn('p99_ms')]

interface RuntimeRow extends Totals {
  readonly name: string
  readonly isUp: boolean
  readonly reason: string
}

const RUNTIME_COLUMNS: readonly Column<RuntimeRow>[] = [
  { name: 'name', title: 'Runtime', cell: ({ name }) => name, value: ({ name }) => name },
  {
    name: 'state',
    title: 'State',
    cell: ({ isUp, reason }) => (
      <span class={isUp ? undefined : 'error'} title={reason}>
        {isUp ? 'up' : `down: ${reason}`}
      </span>
    ),
  },
  SPARK,
  REQUESTS,
  ...ERRORS,
  ...TIMES,
]

export function RuntimeTable({ health, history }: { health: Health; history: History | null }) {
  const rows = health.runtime_order.map(name => ({
    ...(history?.runtimes[name] ?? NOTHING),
    name,
    isUp: health.runtimes[name]?.health.up ?? false,
    reason: health.runtimes[name]?.health.reason ?? '',
  }))
  return (
    <section class="block">
      <h2>Runtimes</h2>
      {history?.fleet != null && <p class="quiet">State of this gateway, numbers of the fleet</p>}
      <Table
        label="Runtimes"
        columns={RUNTIME_COLUMNS}
        rows={rows}
        keyOf={({ name }) => name}
        hrefOf={({ name }) => toHref('functions', { runtime: name })}
        stateOf={({ isUp }) => (isUp ? null : 'failing')}
      />
    </section>
  )
}

const NAME: Column<FunctionTotals> = {
  name: 'name',
  title: 'Function',
  cell: ({ key, runtime, name, version }) => (
    <a href={toHref(`functions/${key}`)}>
      {toShownName({ name, version })} <small>{runtime}</small>
    </a>
  ),
  value: ({ key }) => key,
}
const LAST_ERROR: Column<FunctionTotals> = {
  name: 'last_error',
  title: 'Last error',
  long: ({ last_error: text }) => text ?? '',
  cell: ({ last_error: text, last_error_at: at }) =>
    text !== null &&
    at !== null && (
      <>
        {formatAgo(at * 1000)}: {text}
      </>
    ),
}
const SLOW_COLUMNS: readonly Column<FunctionTotals>[] = [NAME, SPARK, REQUESTS, ...TIMES]
const FAILING_COLUMNS: readonly Column<FunctionTotals>[] = [NAME, ...ERRORS, LAST_ERROR]

interface RankingProps {
  title: string
  isFleet: boolean
  columns: readonly Column<FunctionTotals>[]
  rows: readonly FunctionTotals[]
  empty: string
}

function Ranking({ title, isFleet, columns, rows, empty }: RankingProps) {
  return (
    <section class="block">
      <h2>{title}</h2>
      {isFleet && <p class="quiet">Numbers of the fleet</p>}
      <Table
        label={title}
        columns={columns}
        rows={rows}
        keyOf={({ key }) => key}
        hrefOf={({ key }) => toHref(`functions/${key}`)}
        stateOf={({ errors_5xx: failed }) => (failed > 0 ? 'failing' : null)}
        empty={<p class="quiet">{empty}</p>}
      />
    </section>
  )
}

/** @param range - "the last 5 minutes" */
export function FunctionTables({ history, range }: { history: History; range: string }) {
  // Thousands are ranked only when there are other numbers.
  return useMemo(() => <Rankings history={history} range={range} />, [history, range])
}

function Rankings({ history, range }: { history: History; range: string }) {
  const { functions, functions_left_out: leftOut } = history
  const isFleet = history.fleet != null
  return (
    <>
      <div class="blocks">
        <Ranking
          title="Slowest functions"
          isFleet={isFleet}
          columns={SLOW_COLUMNS}
          rows={toSlowest(functions, MOST_ROWS)}
          empty={`No function was called in ${range}.`}
        />
        <Ranking
          title="Failing functions"
          isFleet={isFleet}
          columns={FAILING_COLUMNS}
          rows={toFailing(functions, MOST_ROWS)}
          empty={`No function failed or was throttled in ${range}.`}
        />
      </div>
      <p>
        <a href={toHref('functions')}>All functions</a>
        {leftOut > 0 &&
          ` – ${formatCount(leftOut)} more were called. They are included in the charts but not listed, because there are too many.${isFleet ? ' Each gateway reports 100 functions, so a listed function may lack calls of other gateways.' : ''}`}
      </p>
    </>
  )
}
