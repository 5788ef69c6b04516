/** All functions: what is here, what is slow or failing. Filters, sorting and the time are in the address. Owner: page console/functions. */

import { useLayoutEffect, useMemo } from 'preact/hooks'
import { type Health, toFunctionPage } from '../data/function-records.ts'
import { useHistory } from '../data/history.ts'
import { useLoad } from '../data/load.ts'
import type { Catalog } from '../data/records.ts'
import { formatAgo, formatCount, formatMs, formatNumberOf, formatRate, formatShare, NO_DATA } from '../format.ts'
import { Empty } from '../parts/empty.tsx'
import { LoadState } from '../parts/load-state.tsx'
import { Page } from '../parts/page.tsx'
import { currentRange, RangeChoice } from '../parts/range-choice.tsx'
import { Spark } from '../parts/spark.tsx'
import { type Column, Table } from '../parts/table.tsx'
import { query, setQuery, toHref } from '../router.ts'
import { CreateButton } from './functions/create.tsx'
import { filterRows, type FunctionRow, SLOW_MS, STATES, toRows } from './functions/rows.ts'

/** For who measures: when the first rows stood in the document. */
const LISTED = 'functions listed'
/** Milliseconds between two looks at workers. */
const HEALTH_EVERY_MS = 10_000

const COLUMNS: readonly Column<FunctionRow>[] = [
  {
    name: 'name',
    title: 'Name',
    value: row => toShownName(row),
    cell: row => <a href={toHref(toFunctionPage(row))}>{toShownName(row)}</a>,
  },
  { name: 'runtime', title: 'Runtime', value: row => row.runtime, cell: row => row.runtime },
  { name: 'state', title: 'State', value: row => rankOf(row), cell: row => <StateOf row={row} /> },
  { name: 'routes', title: 'Routes', value: row => row.routes[0] ?? null, cell: row => <RoutesOf row={row} /> },
  {
    name: 'rate',
    title: 'Rate',
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
    name: 'workers',
    title: 'Workers',
    isNumber: true,
    value: row => row.workers,
    cell: row => formatCount(row.workers),
  },
  { name: 'spark', title: 'Requests', cell: row => row.summary !== null && <Spark values={row.summary.spark} /> },
  {
    name: 'last',
    title: 'Last error',
    value: row => row.summary?.last_error_at ?? null,
    cell: row => <LastErrorOf row={row} />,
  },
]

export function FunctionsPage(_: { rest: string }) {
  const wanted = query.value
  const filter = {
    text: wanted.get('q') ?? '',
    runtime: wanted.get('runtime') ?? '',
    state: wanted.get('state') ?? '',
  }
  const catalog = useLoad<Catalog>('/_fn/catalog', { on: ['reload'] })
  const metrics = useHistory(currentRange().window)
  const health = useLoad<Health>('/_fn/health', { every: HEALTH_EVERY_MS })
  const rows = useMemo(
    () => (catalog.data === null ? [] : toRows({ catalog: catalog.data, metrics: metrics.data, health: health.data })),
    [catalog.data, metrics.data, health.data],
  )
  useLayoutEffect(() => {
    if (rows.length > 0 && performance.getEntriesByName(LISTED).length === 0) performance.mark(LISTED)
  }, [rows])
  const shown = useMemo(() => filterRows(rows, filter), [rows, filter.text, filter.runtime, filter.state])
  return (
    <Page
      title="Functions"
      question="What is here, what is slow or failing?"
      tools={
        <>
          <RangeChoice />
          <CreateButton runtimes={catalog.data?.runtime_order ?? []} />
        </>
      }
    >
      <LoadState loaded={catalog} />
      <Filters filter={filter} runtimes={catalog.data?.runtime_order ?? []} />
      <p class="quiet" role="status">
        {catalog.data === null ? ' ' : toCountText(shown.length, rows.length)}
      </p>
      {catalog.data !== null && (
        <Table
          label="Functions"
          columns={COLUMNS}
          rows={shown}
          keyOf={row => row.key}
          hrefOf={row => toHref(toFunctionPage(row))}
          sort={wanted.get('sort') ?? 'name'}
          onSort={sort => setQuery({ sort })}
          stateOf={row => (row.state === 'failing' ? 'failing' : row.states.has('warnings') ? 'degraded' : null)}
          empty={rows.length === 0 ? <NoFunctions catalog={catalog.data} /> : <NoneFound />}
        />
      )}
    </Page>
  )
}

function toCountText(shown: number, all: number): string {
  return shown === all ? formatNumberOf(all, 'function') : `${formatCount(shown)} of ${formatNumberOf(all, 'function')}`
}

interface FiltersProps {
  filter: { text: string; runtime: string; state: string }
  runtimes: readonly string[]
}

function Filters({ filter, runtimes }: FiltersProps) {
  return (
    <search class="filters">
      <input
        type="search"
        data-search
        placeholder="Name, route, file or error"
        aria-label="Search functions"
        value={filter.text}
        onInput={event => setQuery({ q: event.currentTarget.value })}
      />
      <select
        aria-label="Runtime"
        value={filter.runtime}
        onChange={event => setQuery({ runtime: event.currentTarget.value })}
      >
        <option value="">All runtimes</option>
        {runtimes.map(runtime => (
          <option key={runtime}>{runtime}</option>
        ))}
      </select>
      <select
        aria-label="State"
        title={`Failing: answered 5xx in this time. Slow: p95 of ${formatMs(SLOW_MS)} or more.`}
        value={filter.state}
        onChange={event => setQuery({ state: event.currentTarget.value })}
      >
        <option value="">All states</option>
        {STATES.map(state => (
          <option key={state}>{state}</option>
        ))}
      </select>
    </search>
  )
}

function toShownName({ name, version }: FunctionRow): string {
  return version === 'default' ? name : `${name}@${version}`
}

/** The worst comes first when it is sorted upwards. */
function rankOf({ state }: FunctionRow): number | null {
  return state === null ? null : STATES.indexOf(state)
}

function StateOf({ row }: { row: FunctionRow }) {
  if (row.state === null) return <>{NO_DATA}</>
  if (row.state === 'failing') return <span class="error">failing</span>
  if (row.state === 'warnings') return <span class="warning">{formatNumberOf(row.warnings, 'warning')}</span>
  return <span class={row.state === 'slow' ? 'warning' : 'quiet'}>{row.state}</span>
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
    <span title={summary.last_error ?? ''}>
      {formatAgo(summary.last_error_at * 1000)}: {summary.last_error}
    </span>
  )
}

function NoneFound() {
  return (
    <Empty title="No function is like that">
      <p>
        <button type="button" onClick={() => setQuery({ q: null, runtime: null, state: null })}>
          Show all
        </button>
      </p>
    </Empty>
  )
}

const EXAMPLE = 'export const handler = async () => ({ status: 200, body: { hello: "world" } })\n'

function NoFunctions({ catalog }: { catalog: Catalog }) {
  return (
    <Empty title="There are no functions yet">
      <p>
        A function is a file in a folder of {catalog.functions_root ?? 'the functions root'}. Make one here, with{' '}
        <code>fngw init hello -t node</code>, or save this as <code>hello/handler.mjs</code>:
      </p>
      <pre>{EXAMPLE}</pre>
    </Empty>
  )
}
