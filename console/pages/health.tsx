/** Health: the gateway's process, the daemons of the runtimes, their workers, and the places that calls wait for. Owner: page console/health. */

import type { ComponentChildren } from 'preact'
import { useHealth } from '../data/health-record.ts'
import { useLoad } from '../data/load.ts'
import type { Workers } from '../data/workers.ts'
import { formatBytes, formatMs, formatShare } from '../format.ts'
import { type Fact, Facts } from '../parts/facts.tsx'
import { LoadState } from '../parts/load-state.tsx'
import { Page } from '../parts/page.tsx'
import { SearchField } from '../parts/search-field.tsx'
import { query } from '../router.ts'
import { toPlaceRows, toSocketRows, toWorkerRows } from './health/rows.ts'
import { PlaceTable, SocketTable, WorkerTable } from './health/tables.tsx'

/** Milliseconds between two questions. */
const EVERY_MS = 5000

export function HealthPage() {
  const health = useHealth()
  const loaded = useLoad<Workers>('/_fn/workers', { every: EVERY_MS, on: ['reload'] })
  const workers = loaded.data
  const isReady = (health.data !== null || health.error !== null) && (workers !== null || loaded.error !== null)
  const search = query.value.get('q') ?? ''
  return (
    <Page
      title="Health"
      question="Which processes run, and how are they?"
      tools={<SearchField label="Search workers" value={search} />}
    >
      {isReady && (
        <>
          <LoadState loaded={health} />
          <LoadState loaded={loaded} />
          {workers !== null && <Process gateway={workers.gateway} />}
          {health.data !== null && (
            <Block title="Daemons">
              <SocketTable rows={toSocketRows(health.data, workers)} />
            </Block>
          )}
          {workers !== null && (
            <Block title="Workers">
              <WorkerTable rows={toWorkerRows(workers, search)} />
            </Block>
          )}
          {health.data?.functions.states !== undefined && (
            <Block title="Slots">
              <PlaceTable rows={toPlaceRows(health.data.functions.states)} />
            </Block>
          )}
        </>
      )}
    </Page>
  )
}

function Block({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="block">
      <h2>{title}</h2>
      {children}
    </section>
  )
}

/** Nothing where it is one process. */
function toFrontFacts(fronts: Workers['gateway']['fronts']): Fact[] {
  if (fronts.length === 0) return []
  const serving = fronts.filter(front => front.serving).length
  const bytes = fronts.reduce((sum, { memory_bytes: own }) => sum + (own ?? 0), 0)
  return [['Serving processes', `${serving} of ${fronts.length} serve, ${formatBytes(bytes)}`]]
}

function Process({ gateway }: { gateway: Workers['gateway'] }) {
  const { active_ms: active, idle_ms: idle } = gateway.event_loop
  const facts: readonly Fact[] = [
    ['Uptime', formatMs(gateway.uptime_s * 1000)],
    ['Memory', formatBytes(gateway.memory_bytes)],
    ['Heap', `${formatBytes(gateway.heap_bytes)} of ${formatBytes(gateway.heap_total_bytes)}`],
    ['Busy since start', formatShare(active / Math.max(active + idle, 1))],
    ['Process', String(gateway.pid)],
    ...toFrontFacts(gateway.fronts),
    ['Node', gateway.version],
  ]
  return (
    <section class="block" aria-label="Gateway">
      <h2>Gateway</h2>
      <Facts class="health-facts" facts={facts} />
    </section>
  )
}
