/** Routes: who answers a URL, and the table of all of them. Owner: page console/routes. */

import { useLoad } from '../data/load.ts'
import type { Catalog } from '../data/records.ts'
import { formatNumberOf } from '../format.ts'
import { Empty } from '../parts/empty.tsx'
import { LoadState } from '../parts/load-state.tsx'
import { Page } from '../parts/page.tsx'
import { type Column, Table } from '../parts/table.tsx'
import { query, setQuery, toHref } from '../router.ts'
import { Explain, Ignored, Warnings } from './routes/explain.tsx'
import { findRows, type RouteRow, toKey, toRouteRows } from './routes/route-rows.ts'
import { SearchField } from '../parts/search-field.tsx'

const COLUMNS: readonly Column<RouteRow>[] = [
  {
    name: 'path',
    title: 'Path',
    long: ({ pattern }) => pattern,
    cell: ({ pattern, isConflict }) => (
      <>
        <code>{pattern}</code>
        {isConflict && <strong class="warning"> conflict: not served</strong>}
      </>
    ),
    value: ({ pattern }) => pattern,
  },
  {
    name: 'methods',
    title: 'Methods',
    drop: 2,
    cell: ({ claim }) => claim.methods.join(', '),
    value: ({ claim }) => claim.methods.join(),
  },
  {
    name: 'runtime',
    title: 'Runtime',
    drop: 2,
    cell: ({ claim }) => claim.runtime,
    value: ({ claim }) => claim.runtime,
  },
  {
    name: 'function',
    title: 'Function',
    cell: ({ claim }) => (
      <a href={toHref(`functions/${toKey(claim)}`)}>
        {claim.name}
        {claim.version === null ? '' : `@${claim.version}`}
      </a>
    ),
    value: ({ claim }) => claim.name,
  },
  { name: 'file', title: 'File', drop: 1, cell: ({ claim }) => claim.file, value: ({ claim }) => claim.file },
  {
    name: 'source',
    title: 'Source',
    drop: 1,
    cell: ({ claim }) => (
      <span title={claim.origin}>
        {claim.source === 'file' ? 'file path' : claim.origin}
        {claim.force_url ? ', forced' : ''}
      </span>
    ),
    value: ({ claim }) => claim.source,
  },
]

export function RoutesPage() {
  const loaded = useLoad<Catalog>('/_fn/catalog', { on: ['reload'] })
  const search = query.value.get('q') ?? ''
  const catalog = loaded.data
  const all = catalog === null ? [] : toRouteRows(catalog)
  const rows = findRows(all, search)
  const conflicts = catalog?.warnings.filter(({ code }) => code === 'ROUTE_CONFLICT') ?? []
  return (
    <Page title="Routes" question="Which function serves this URL?">
      <Explain />
      <LoadState loaded={loaded} />
      {catalog !== null && (
        <>
          <Warnings warnings={conflicts} />
          <div class="section-head">
            <h2>
              Routes <small>{toCountText(rows.length, all.length)}</small>
            </h2>
            <SearchField label="Search the routes" placeholder="Search: path, method, file" value={search} />
          </div>
          <Table
            label="Routes"
            columns={COLUMNS}
            rows={rows}
            keyOf={({ pattern, claim }) => `${pattern} ${toKey(claim)} ${claim.origin} ${claim.methods.join()}`}
            onOpen={({ pattern, claim }) => setQuery({ method: claim.methods[0] ?? 'GET', path: pattern })}
            stateOf={({ isConflict }) => (isConflict ? 'degraded' : null)}
            sort={query.value.get('sort') ?? ''}
            onSort={sort => setQuery({ sort })}
            empty={<NoRoutes isSearch={search !== ''} />}
          />
          <Ignored ignored={catalog.ignored ?? []} title="Ignored files and folders" />
        </>
      )}
    </Page>
  )
}

function toCountText(shown: number, all: number): string {
  return shown === all ? formatNumberOf(all, 'claim') : `${shown} of ${formatNumberOf(all, 'claim')}`
}

function NoRoutes({ isSearch }: { isSearch: boolean }) {
  if (isSearch) return <Empty title="No routes match" />
  return (
    <Empty title="No routes yet">
      <p>Each file in the functions folder is a route. Save this as hello.js to serve GET /hello:</p>
      <pre>{"exports.handler = async () => ({ hello: 'world' })"}</pre>
    </Empty>
  )
}
