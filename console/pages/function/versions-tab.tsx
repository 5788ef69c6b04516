/** The versions of one function. Owner: page console/function. */

import type { Catalog } from '../../data/records.ts'
import { type FunctionId, toFunctionPage, toKey } from '../../data/function-records.ts'
import { useHistory } from '../../data/history.ts'
import { useLoad } from '../../data/load.ts'
import { formatMs, formatRate } from '../../format.ts'
import { currentRange } from '../../parts/range-choice.tsx'
import { Table } from '../../parts/table.tsx'
import { toHref } from '../../router.ts'
import { CreateButton } from '../functions/create.tsx'
import { toRows } from '../functions/rows.ts'

export function VersionsTab({ id }: { id: FunctionId }) {
  const { data: catalog } = useLoad<Catalog>('/_fn/catalog', { on: ['reload'] })
  const { data: metrics } = useHistory(currentRange().window)
  if (catalog === null) return null
  const rows = toRows({ catalog, metrics, health: null }).filter(
    row => row.runtime === id.runtime && row.name === id.name,
  )
  return (
    <>
      <div class="bar-of-tab">
        <p class="quiet">
          A version is a folder below the function's folder, with its own code, config and environment.
        </p>
        <CreateButton runtimes={[]} of={{ runtime: id.runtime, name: id.name }} />
      </div>
      <Table
        label="Versions"
        rows={rows}
        keyOf={row => row.key}
        hrefOf={row => toHref(toFunctionPage(row), { tab: 'versions' })}
        columns={[
          {
            name: 'version',
            title: 'Version',
            value: row => row.version,
            cell: row => (
              <a
                href={toHref(toFunctionPage(row), { tab: 'versions' })}
                aria-current={row.key === toKey(id) ? 'page' : undefined}
              >
                {row.version}
              </a>
            ),
          },
          { name: 'routes', title: 'Routes', cell: row => <span class="mono">{row.routes.join('  ')}</span> },
          { name: 'file', title: 'File', drop: 2, cell: row => row.file },
          {
            name: 'rate',
            title: 'Rate',
            isNumber: true,
            drop: 2,
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
        ]}
      />
    </>
  )
}
