/** Overview: how it is in words, what is wrong, and what happened over one time range. Owner: page console/overview. */

import { useMemo, useRef } from 'preact/hooks'
import { type Fleet, useFleet } from '../data/fleet.ts'
import { type Health, useHealth } from '../data/health-record.ts'
import { type FleetScope, type History, useHistory } from '../data/history.ts'
import { type Loaded, useLoad } from '../data/load.ts'
import type { Catalog } from '../data/records.ts'
import { formatAgo, formatClock, formatCount, formatNumberOf } from '../format.ts'
import { HistoryCharts } from '../parts/history-charts.tsx'
import { LoadState } from '../parts/load-state.tsx'
import { Page } from '../parts/page.tsx'
import { currentRange, RangeChoice, toRange } from '../parts/range-choice.tsx'
import { toHref } from '../router.ts'
import { FirstFunction } from './overview/first-function.tsx'
import { ProblemList } from './overview/problem-list.tsx'
import { toProblems } from './overview/problems.ts'
import { toStatus } from './overview/status.ts'
import { FunctionTables, RuntimeTable } from './overview/tables.tsx'

/** Milliseconds between two requests. */
const EVERY_MS = 5000

/** Nothing is shown until all of it can be: what came later would push away what is read. */
const isHere = ({ data, error }: Loaded<unknown>): boolean => data !== null || error !== null

export function OverviewPage() {
  const loaded = useHistory(currentRange().window, { scope: 'fleet' })
  // While another range comes, the one of before stands there.
  const last = useRef(loaded)
  if (isHere(loaded)) last.current = loaded
  const history = last.current
  const { words } = toRange(history.data?.window ?? null)
  const health = useHealth()
  const fleet = useFleet(EVERY_MS)
  const catalog = useLoad<Catalog>('/_fn/catalog', { on: ['reload', 'warning'] })
  const problems = useMemo(() => (catalog.data === null ? null : toProblems(catalog.data)), [catalog.data])
  const isEmpty = health.data?.functions.summary.total === 0
  const isReady = [history, health, catalog, fleet].every(isHere)
  return (
    <Page title="Overview" question="Is it healthy, and what changed?" tools={<RangeChoice />}>
      {isReady && (
        <>
          <LoadState loaded={catalog} />
          <LoadState loaded={history} />
          {health.data === null || problems === null ? (
            <LoadState loaded={health} />
          ) : (
            <StatusLine health={health.data} history={history.data} problems={problems} range={words} />
          )}
          {fleet.data?.fleet === true && history.data?.fleet != null && (
            <Scope fleet={fleet.data} scope={history.data.fleet} />
          )}
          {problems !== null && <ProblemList problems={problems} />}
          {isEmpty && health.data !== null && (
            <FirstFunction root={health.data.functions_root} isWatching={health.data.hot_reload.enabled} />
          )}
          {history.data !== null && (!isEmpty || history.data.totals.requests > 0) && (
            <HistoryCharts history={history.data} />
          )}
          {health.data !== null && !isEmpty && <RuntimeTable health={health.data} history={history.data} />}
          {history.data !== null && !isEmpty && <FunctionTables history={history.data} range={words} />}
        </>
      )}
    </Page>
  )
}

interface ScopeProps {
  fleet: Fleet
  scope: FleetScope
}

/** Which numbers are those of the fleet, and of which gateways. */
function Scope({ fleet: { id, gateways }, scope }: ScopeProps) {
  const live = gateways.filter(({ state }) => state !== 'gone')
  const running = live.reduce((total, one) => total + one.running_calls, 0)
  return (
    <section class="overview-scope" aria-label="Scope">
      <p class="quiet">
        Numbers marked “fleet” are the sum of {formatNumberOf(scope.gateways, 'gateway')}. All others are those of
        gateway <span class="mono">{id}</span>. The <a href={toHref('fleet')}>fleet</a> runs{' '}
        {formatNumberOf(running, 'call')} now.
      </p>
      {scope.missing.length > 0 && (
        <ul class="warning" aria-label="Gateways that are not in the sum">
          {scope.missing.map(({ id: other, problem }) => (
            <li key={other}>
              Not in the sum: <span class="mono">{other}</span>, {problem}.
            </li>
          ))}
        </ul>
      )}
    </section>
  )
}

interface StatusProps {
  health: Health
  history: History | null
  problems: ReturnType<typeof toProblems>
  range: string
}

function StatusLine({ health, history, problems: { warnings, conflicts }, range }: StatusProps) {
  const facts = { health, warnings: warnings.length, conflicts: conflicts.length, range }
  const { state, words, numbers } = toStatus({ ...facts, totals: history?.totals ?? null })
  const { total, warm } = health.functions.summary
  return (
    <section class="overview-state" data-state={state ?? undefined} aria-label="State">
      {history?.fleet == null ? (
        <p class="line">
          <span role="status">{words}</span> {numbers}
        </p>
      ) : (
        <>
          <p class="line">Fleet: {numbers}</p>
          <p class="line">
            This gateway: <span role="status">{words}</span>
          </p>
        </>
      )}
      <p class="quiet">
        {formatNumberOf(total, 'function')}, {formatCount(warm)} warm. Functions scanned{' '}
        {formatAgo(health.hot_reload.last_catalog_scan_at * 1000)}.
        {history !== null &&
          ` Counted since ${formatClock(history.started_at * 1000)}, up to ${formatClock(history.generated_at * 1000)}.`}
      </p>
    </section>
  )
}
