/** All functions: what is here, what is slow or failing. Filters, sorting and the time are in the address. Owner: page console/functions. */

import { useLayoutEffect, useMemo } from 'preact/hooks'
import type { Health } from '../data/function-records.ts'
import { useHistory } from '../data/history.ts'
import { useLoad } from '../data/load.ts'
import type { Catalog } from '../data/records.ts'
import { formatCount, formatMs, formatNumberOf } from '../format.ts'
import { Empty } from '../parts/empty.tsx'
import { LoadState } from '../parts/load-state.tsx'
import { Page } from '../parts/page.tsx'
import { currentRange, RangeChoice } from '../parts/range-choice.tsx'
import { Table } from '../parts/table.tsx'
import { query, setQuery } from '../router.ts'
import { COLUMNS, toRowHref } from './functions/columns.tsx'
import { CreateButton } from './functions/create.tsx'
import { filterRows, SLOW_MS, STATES, toRows } from './functions/rows.ts'
import { ChoiceField } from '../parts/choice-field.tsx'
import { SearchField } from '../parts/search-field.tsx'

/** For who measures: when the first rows stood in the document. */
const LISTED = 'functions listed'
/** Milliseconds between two looks at workers. */
const HEALTH_EVERY_MS = 10_000

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
      question="Which functions exist, and which are slow or failing?"
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
          hrefOf={toRowHref}
          sort={wanted.get('sort') ?? 'name'}
          onSort={sort => setQuery({ sort })}
          stateOf={row =>
            row.state === 'broken' || row.state === 'failing'
              ? 'failing'
              : row.states.has('warnings') || row.states.has('throttled')
                ? 'degraded'
                : null
          }
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
      <SearchField label="Search functions" placeholder="Name, route, file or error" value={filter.text} />
      <ChoiceField
        label="Runtime"
        value={filter.runtime}
        choices={runtimes}
        all="All runtimes"
        onChange={value => setQuery({ runtime: value })}
      />
      <select
        aria-label="State"
        title={`Failing: 5xx responses in this time range. Throttled: refused calls, because all workers and the queue were full. Slow: p95 of ${formatMs(SLOW_MS)} or more.`}
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

function NoneFound() {
  return (
    <Empty title="No functions match">
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
    <Empty title="No functions yet">
      <p>
        A function is a file in a folder of {catalog.functions_root ?? 'the functions root'}. Create one here, with{' '}
        <code>fngw init hello -t node</code>, or save this as <code>hello/handler.mjs</code>:
      </p>
      <pre>{EXAMPLE}</pre>
    </Empty>
  )
}
