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
  const doctor = useLoad<{ checks: readonly DoctorCheck[] }>('/_fn/doctor', { on: ['reload'] })
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
          {doctor.data !== null && <Checks checks={doctor.data.checks} />}
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

/** One check of `GET /_fn/doctor`. */
interface DoctorCheck {
  readonly id: string
  readonly status: 'ok' | 'warning' | 'error'
  readonly message: string
  readonly fix: string | null
}

function Checks({ checks }: { checks: readonly DoctorCheck[] }) {
  const problems = checks.filter(({ status }) => status !== 'ok')
  return (
    <section class="block" aria-label="Checks">
      <h2>Checks</h2>
      <p>
        {checks.length - problems.length} of {checks.length} checks passed. <code>fngw doctor</code> also loads every
        function.
      </p>
      {problems.length > 0 && (
        <ul>
          {problems.map(({ id, status, message, fix }) => (
            <li key={`${id} ${message}`}>
              <span class={status === 'error' ? 'error' : undefined}>
                {status}: {message}
              </span>{' '}
              {fix}
            </li>
          ))}
        </ul>
      )}
    </section>
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
