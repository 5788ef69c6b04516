/** Rows of the health page's tables. Owner: page console/health. */

import type { FunctionState, Health } from '../../data/health-record.ts'
import type { WorkerRecord, Workers } from '../../data/workers.ts'

export interface SocketRow {
  key: string
  runtime: string
  index: number
  up: boolean
  reason: string
  /** null where the caller may not see it. */
  uri: string | null
  pid: number | null
  restarts: number | null
  startedAt: number | null
  memoryBytes: number | null
}

/** Each socket of a runtime, with the process behind it where the gateway started one. */
export function toSocketRows(health: Health, workers: Workers | null): SocketRow[] {
  return health.runtime_order.flatMap(runtime =>
    (health.runtimes[runtime]?.sockets ?? []).map(({ index, up, reason, uri }) => {
      const daemon = workers?.runtimes[runtime]?.daemons.find(one => one.index === index)
      return {
        ...{ key: `${runtime} ${index}`, runtime, index, up, reason, uri: uri ?? null },
        pid: daemon?.pid ?? null,
        restarts: daemon?.restarts ?? null,
        startedAt: daemon?.started_at ?? null,
        memoryBytes: daemon?.memory_bytes ?? null,
      }
    }),
  )
}

export interface WorkerRow extends WorkerRecord {
  /** Of the row: a function may have several workers. */
  readonly id: string
}

export function toWorkerRows(workers: Workers, search: string): WorkerRow[] {
  const wanted = search.trim().toLowerCase()
  return Object.values(workers.runtimes).flatMap(({ workers: all }) =>
    all
      .filter(({ key, state }) => `${key} ${state}`.toLowerCase().includes(wanted))
      .map((worker, index) => ({ ...worker, id: `${worker.key} ${worker.started_at} ${worker.pid ?? index}` })),
  )
}

/** Functions of which a call runs, waits, or was turned away since the gateway runs. */
export function toPlaceRows(states: readonly FunctionState[]): FunctionState[] {
  return states.filter(({ worker_pool: { active, queued, queue_drops: drops } }) => {
    return active + queued + drops.overflow + drops.timeout > 0
  })
}
