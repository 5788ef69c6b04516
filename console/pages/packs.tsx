/** Packs and installs: which functions are prepared, what failed and how to mend it, and the shared packs. Owner: page console/packs. */

import { useLoad } from '../data/load.ts'
import type { Catalog } from '../data/records.ts'
import { formatAgo, formatNumberOf, NO_DATA } from '../format.ts'
import { Empty } from '../parts/empty.tsx'
import { LoadState } from '../parts/load-state.tsx'
import { Page } from '../parts/page.tsx'
import { type Column, Table } from '../parts/table.tsx'
import { toHref } from '../router.ts'
import {
  type Dependencies,
  type PackRow,
  type Packs,
  type Preparation,
  toPackRows,
  toPreparations,
  toSummary,
} from './packs/rows.ts'

/** Milliseconds between two polls: some steps have no event. */
const EVERY_MS = 5000

export function PacksPage() {
  const loaded = useLoad<Dependencies>('/_fn/dependencies', { every: EVERY_MS, on: ['build', 'reload'] })
  const packs = useLoad<Packs>('/_fn/packs', { on: ['build', 'reload'] })
  const catalog = useLoad<Catalog>('/_fn/catalog', { on: ['reload'] })
  const isReady = [loaded, packs, catalog].every(({ data, error }) => data !== null || error !== null)
  return (
    <Page title="Packs and installs" question="Which packages are installed?">
      {isReady && (
        <>
          <LoadState loaded={loaded} />
          {loaded.data !== null && <Installs dependencies={loaded.data} />}
          <LoadState loaded={packs} />
          {packs.data !== null && <PackList packs={packs.data} catalog={catalog.data} />}
        </>
      )}
    </Page>
  )
}

const agoOf = (seconds: number | null): string => (seconds === null ? NO_DATA : formatAgo(seconds * 1000))

const COLUMNS: readonly Column<Preparation>[] = [
  {
    name: 'key',
    title: 'Function',
    cell: ({ key }) => <a href={toHref(`functions/${key}`, { tab: 'dependencies' })}>{key}</a>,
    value: ({ key }) => key,
  },
  {
    name: 'state',
    title: 'State',
    cell: ({ state, step }) => (
      <span class={state === 'failed' ? 'error' : undefined}>{step === null ? state : `${state}: ${step}`}</span>
    ),
    value: ({ state }) => state,
  },
  { name: 'since', title: 'Updated', cell: ({ since }) => agoOf(since), value: ({ since }) => since },
]

function Installs({ dependencies }: { dependencies: Dependencies }) {
  const rows = toPreparations(dependencies)
  return (
    <section class="block" aria-label="Installs">
      <h2>Installs</h2>
      <p role="status">{toSummary(dependencies)}</p>
      <Failures rows={rows} />
      <Table
        label="Functions"
        columns={COLUMNS}
        rows={rows}
        keyOf={({ key }) => key}
        hrefOf={({ key }) => toHref(`functions/${key}`, { tab: 'dependencies' })}
        stateOf={({ state }) => (state === 'failed' ? 'failing' : state === 'preparing' ? 'degraded' : null)}
        empty={
          <p class="quiet">
            Nothing is installed or built. Packages that a function declares (requirements.txt, package.json,
            composer.json) or imports are installed before its first call. Go and Rust functions are built.
          </p>
        }
      />
    </section>
  )
}

/** Failures that are shown in full; the table has the others. */
const MOST_FAILURES = 5

function Failures({ rows }: { rows: readonly Preparation[] }) {
  const failed = rows.filter(({ error }) => error !== null)
  if (failed.length === 0) return null
  const hidden = failed.length - MOST_FAILURES
  return (
    <div class="problem-list">
      <ul>
        {failed.slice(0, MOST_FAILURES).map(({ key, error, file, line, hint }) => (
          <li key={key} data-state="failing">
            <a href={toHref(`functions/${key}`, { tab: 'dependencies' })}>{key}</a>{' '}
            {file !== null && <span class="mono">{line === null ? file : `${file}:${line}`} </span>}
            <div class="install-error">{error}</div>
            {hint !== null && <p class="quiet">{hint}</p>}
          </li>
        ))}
      </ul>
      {hidden > 0 && <p>{formatNumberOf(hidden, 'other')} failed too. The page of each function shows the reason.</p>}
    </div>
  )
}

const PACK_COLUMNS: readonly Column<PackRow>[] = [
  { name: 'name', title: 'Pack', cell: ({ name }) => name, value: ({ name }) => name },
  {
    name: 'runtime',
    title: 'Runtime',
    drop: 2,
    cell: ({ runtime }) => runtime,
    value: ({ runtime }) => runtime,
  },
  {
    name: 'installed',
    title: 'State',
    cell: ({ isInstalled }) => (isInstalled ? 'installed' : <span class="warning">not installed</span>),
    value: ({ isInstalled }) => (isInstalled ? 1 : 0),
  },
  { name: 'files', title: 'Files', drop: 2, cell: ({ files }) => (files === '' ? NO_DATA : files) },
  {
    name: 'users',
    title: 'Used by',
    cell: ({ usedBy }) => (
      <span title={usedBy.join('\n')}>
        {usedBy.length === 1 ? usedBy[0] : formatNumberOf(usedBy.length, 'function')}
      </span>
    ),
    value: ({ usedBy }) => usedBy.length,
  },
  {
    name: 'dir',
    title: 'Folder',
    drop: 2,
    long: ({ dir }) => dir ?? '',
    cell: ({ dir }) => <span class="mono">{dir ?? NO_DATA}</span>,
  },
]

function PackList({ packs, catalog }: { packs: Packs; catalog: Catalog | null }) {
  return (
    <section class="block" aria-label="Packs">
      <h2>Packs</h2>
      <Table
        label="Shared packs"
        columns={PACK_COLUMNS}
        rows={toPackRows(packs, catalog)}
        keyOf={({ key }) => key}
        stateOf={({ isInstalled }) => (isInstalled ? null : 'degraded')}
        empty={<FirstPack root={packs.packs_root} />}
      />
    </section>
  )
}

function FirstPack({ root = '.svc/packs' }: { root: string | undefined }) {
  return (
    <Empty title="No shared packs">
      <p>A pack has packages that several Python or Node functions share. Create a folder with a manifest:</p>
      <pre>{`${root}/python/charts/requirements.txt`}</pre>
      <p>
        Functions that use the pack list it in <code>fn.config.json</code>:
      </p>
      <pre>{'{ "shared_deps": ["charts"] }'}</pre>
    </Empty>
  )
}
