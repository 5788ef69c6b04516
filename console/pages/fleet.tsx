/** Fleet: the gateways that share a store, and a rollout in progress. Owner: page console/fleet. */

import { type Fleet, type FleetGateway, useFleet } from '../data/fleet.ts'
import { formatCount, formatMs, formatNumberOf, NO_DATA } from '../format.ts'
import { Empty } from '../parts/empty.tsx'
import { LoadState } from '../parts/load-state.tsx'
import { Page } from '../parts/page.tsx'
import { type Column, Table } from '../parts/table.tsx'

/** Milliseconds between two requests: gateways report as often. */
const EVERY_MS = 2000

export function FleetPage() {
  const loaded = useFleet(EVERY_MS)
  const { data, error } = loaded
  return (
    <Page title="Fleet" question="Which gateways share the work?">
      {(data !== null || error !== null) && <LoadState loaded={loaded} />}
      {data?.fleet === false && <NoFleet />}
      {data?.fleet === true && <Gateways fleet={data} />}
    </Page>
  )
}

function NoFleet() {
  return (
    <Empty title="Not in a fleet">
      <p>
        This gateway stores jobs, schedules and sessions on its own disk. To share them between gateways, start each
        with the same store:
      </p>
      <pre>FN_STORE_URL=redis://127.0.0.1:6379/0 fngw run functions</pre>
    </Empty>
  )
}

const COLUMNS: readonly Column<FleetGateway>[] = [
  { name: 'id', title: 'Gateway', cell: ({ id }) => <span class="mono">{id}</span>, value: ({ id }) => id },
  { name: 'state', title: 'State', cell: ({ state }) => state, value: ({ state }) => state },
  {
    name: 'address',
    title: 'Address',
    drop: 1,
    cell: ({ addresses = [] }) => <span class="mono">{addresses.join(', ') || NO_DATA}</span>,
    value: ({ addresses = [] }) => addresses[0] ?? null,
  },
  { name: 'version', title: 'Version', drop: 1, cell: ({ version }) => version, value: ({ version }) => version },
  {
    name: 'release',
    title: 'Release',
    drop: 2,
    cell: ({ release }) => <span class="mono">{release}</span>,
    value: ({ release }) => release,
  },
  {
    name: 'uptime',
    title: 'Uptime',
    drop: 2,
    isNumber: true,
    cell: ({ uptime_seconds: seconds }) => formatMs(seconds * 1000),
    value: ({ uptime_seconds: seconds }) => seconds,
  },
  {
    name: 'load',
    title: 'Load',
    drop: 2,
    isNumber: true,
    cell: ({ load_average: load, cpus }) => `${load.toFixed(2)} of ${cpus}`,
    value: ({ load_average: load, cpus }) => load / Math.max(cpus, 1),
  },
  {
    name: 'running',
    title: 'Running',
    drop: 3,
    isNumber: true,
    cell: ({ running_calls: running }) => formatCount(running),
    value: ({ running_calls: running }) => running,
  },
  {
    name: 'queued',
    title: 'Queued',
    drop: 3,
    isNumber: true,
    cell: ({ queued_calls: queued }) => formatCount(queued),
    value: ({ queued_calls: queued }) => queued,
  },
  {
    name: 'seen',
    title: 'Last seen',
    drop: 3,
    isNumber: true,
    cell: ({ seen_ms_ago: ms }) => (ms < 1000 ? 'now' : `${formatMs(Math.floor(ms / 1000) * 1000)} ago`),
    value: ({ seen_ms_ago: ms }) => ms,
  },
]

const STATES = { gone: 'failing', draining: 'degraded', starting: 'degraded', ready: null } as const

function Gateways({ fleet }: { fleet: Fleet }) {
  const { gateways, store, problem } = fleet
  const live = gateways.filter(({ state }) => state !== 'gone')
  const sum = (read: (one: FleetGateway) => number): number => live.reduce((total, one) => total + read(one), 0)
  const counts = (Object.keys(STATES) as (keyof typeof STATES)[]).flatMap(state => {
    const count = gateways.filter(one => one.state === state).length
    return count === 0 ? [] : `${formatCount(count)} ${state}`
  })
  const leaders = live.filter(one => one.runs_schedules).map(({ id }) => id)
  return (
    <>
      <section class="block" aria-label="State" data-state={store === 'down' ? 'failing' : undefined}>
        <p role="status">
          {formatNumberOf(gateways.length, 'gateway')}: {counts.join(', ')}. The store is {store}
          {problem === undefined ? '' : `: ${problem}`}.
        </p>
        <p>
          {formatNumberOf(
            sum(one => one.running_calls),
            'call',
          )}{' '}
          running and {formatCount(sum(one => one.queued_calls))} queued in the fleet.
        </p>
        <p class="quiet">
          This page is served by <span class="mono">{fleet.id}</span>. Schedules run on{' '}
          {leaders.length === 0 ? 'no gateway' : <span class="mono">{leaders.join(', ')}</span>}.
        </p>
      </section>
      {fleet.rollout && <Rollout fleet={fleet} total={live.length} />}
      <Table
        label="Gateways"
        columns={COLUMNS}
        rows={gateways}
        keyOf={({ id }) => id}
        stateOf={({ state }) => STATES[state]}
      />
    </>
  )
}

function Rollout({ fleet: { releases }, total }: { fleet: Fleet; total: number }) {
  return (
    <section class="block" aria-label="Rollout">
      <h2>Rollout in progress</h2>
      <ul>
        {releases.map(({ release, gateways }, index) => (
          <li key={release}>
            <span class="mono">{release}</span>
            {index === 0 && ' (newest)'}: {formatCount(gateways)} of {formatNumberOf(total, 'gateway')}
          </li>
        ))}
      </ul>
    </section>
  )
}
