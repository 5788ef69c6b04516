/** Daemons, workers and places as tables. Owner: page console/health. */

import type { FunctionState } from '../../data/health-record.ts'
import { formatAgo, formatBytes, formatCount, NO_DATA } from '../../format.ts'
import { type Column, Table } from '../../parts/table.tsx'
import { toHref } from '../../router.ts'
import type { SocketRow, WorkerRow } from './rows.ts'

const agoOf = (seconds: number | null): string => (seconds === null ? NO_DATA : formatAgo(seconds * 1000))

const SOCKET_COLUMNS: readonly Column<SocketRow>[] = [
  { name: 'runtime', title: 'Runtime', cell: row => row.runtime, value: row => row.runtime },
  { name: 'index', title: 'Daemon', drop: 2, cell: row => row.index, isNumber: true },
  {
    name: 'state',
    title: 'State',
    cell: ({ up, reason }) => (
      <span class={up ? undefined : 'error'} title={reason}>
        {up ? (reason === 'ok' ? 'up' : `up: ${reason}`) : `down: ${reason}`}
      </span>
    ),
  },
  {
    name: 'started',
    title: 'Up since',
    drop: 2,
    cell: row => agoOf(row.startedAt),
    value: row => row.startedAt,
  },
  {
    name: 'restarts',
    title: 'Restarts',
    drop: 2,
    cell: row => formatCount(row.restarts),
    value: row => row.restarts,
    isNumber: true,
  },
  {
    name: 'memory',
    title: 'Memory',
    cell: row => formatBytes(row.memoryBytes),
    value: row => row.memoryBytes,
    isNumber: true,
  },
  {
    name: 'pid',
    title: 'Process',
    drop: 2,
    cell: row => row.pid ?? NO_DATA,
    value: row => row.pid,
    isNumber: true,
  },
  {
    name: 'uri',
    title: 'Socket',
    drop: 2,
    long: row => row.uri ?? '',
    cell: row => <span class="mono">{row.uri ?? NO_DATA}</span>,
  },
]

export function SocketTable({ rows }: { rows: readonly SocketRow[] }) {
  return (
    <Table
      label="Daemons"
      columns={SOCKET_COLUMNS}
      rows={rows}
      keyOf={({ key }) => key}
      stateOf={({ up }) => (up ? null : 'failing')}
    />
  )
}

const WORKER_COLUMNS: readonly Column<WorkerRow>[] = [
  {
    name: 'key',
    title: 'Function',
    cell: ({ key }) => <a href={toHref(`functions/${key}`)}>{key}</a>,
    value: ({ key }) => key,
  },
  { name: 'state', title: 'State', cell: ({ state }) => state, value: ({ state }) => state },
  {
    name: 'inflight',
    title: 'Active calls',
    cell: row => formatCount(row.inflight),
    value: row => row.inflight,
    isNumber: true,
  },
  {
    name: 'calls',
    title: 'Calls',
    drop: 2,
    cell: row => formatCount(row.calls),
    value: row => row.calls,
    isNumber: true,
  },
  {
    name: 'memory',
    title: 'Memory',
    cell: row => formatBytes(row.memory_bytes),
    value: row => row.memory_bytes,
    isNumber: true,
  },
  {
    name: 'started',
    title: 'Started',
    drop: 2,
    cell: row => agoOf(row.started_at),
    value: row => row.started_at,
  },
  {
    name: 'pid',
    title: 'Process',
    drop: 2,
    cell: row => row.pid ?? (row.key.startsWith('lua/') ? 'thread' : NO_DATA),
    value: row => row.pid,
    isNumber: true,
  },
  { name: 'socket', title: 'Daemon', drop: 2, cell: row => row.socket ?? NO_DATA, isNumber: true },
  { name: 'growth', title: 'Growth', drop: 2, cell: row => row.growth ?? NO_DATA, value: row => row.growth },
]

export function WorkerTable({ rows }: { rows: readonly WorkerRow[] }) {
  return (
    <Table
      label="Workers"
      columns={WORKER_COLUMNS}
      rows={rows}
      keyOf={({ id }) => id}
      hrefOf={({ key }) => toHref(`functions/${key}`)}
      sort="key"
      empty={<p class="quiet">No workers. A worker starts with the first call of a function.</p>}
    />
  )
}

const PLACE_COLUMNS: readonly Column<FunctionState>[] = [
  {
    name: 'key',
    title: 'Function',
    cell: ({ key }) => <a href={toHref(`functions/${key}`)}>{key}</a>,
    value: ({ key }) => key,
  },
  {
    name: 'active',
    title: 'Active calls',
    cell: ({ worker_pool: pool }) => toPart(pool.active, pool.max_workers),
    value: ({ worker_pool: pool }) => pool.active,
    isNumber: true,
  },
  {
    name: 'queued',
    title: 'Waiting',
    cell: ({ worker_pool: pool }) => toPart(pool.queued, pool.max_queue),
    value: ({ worker_pool: pool }) => pool.queued,
    isNumber: true,
  },
  {
    name: 'overflow',
    title: 'Rejected: queue full',
    drop: 2,
    cell: ({ worker_pool: pool }) => formatCount(pool.queue_drops.overflow),
    value: ({ worker_pool: pool }) => pool.queue_drops.overflow,
    isNumber: true,
  },
  {
    name: 'timeout',
    title: 'Rejected: queue timeout',
    drop: 2,
    cell: ({ worker_pool: pool }) => formatCount(pool.queue_drops.timeout),
    value: ({ worker_pool: pool }) => pool.queue_drops.timeout,
    isNumber: true,
  },
]

/** 3 of 20; a limit of 0 is none for calls. */
function toPart(count: number, limit: number): string {
  return limit === 0 ? formatCount(count) : `${formatCount(count)} of ${formatCount(limit)}`
}

export function PlaceTable({ rows }: { rows: readonly FunctionState[] }) {
  return (
    <Table
      label="Slots"
      columns={PLACE_COLUMNS}
      rows={rows}
      keyOf={({ key }) => key}
      hrefOf={({ key }) => toHref(`functions/${key}`)}
      stateOf={({ worker_pool: pool }) => (pool.queued > 0 ? 'degraded' : null)}
      empty={<p class="quiet">No calls are active or waiting, and none were rejected since the start.</p>}
    />
  )
}
