/** `GET /_fn/workers`: the processes and threads that a gateway is made of. Owner: page control/workers. */

import { performance } from 'node:perf_hooks'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import { readMemoryOf } from '../core/host.ts'
import type { LentWorker } from '../runtime/dispatcher.ts'
import type { Runtime } from '../runtime/runtime.ts'
import { type ControlContext, type Endpoint, endpoint, json } from './endpoint.ts'
import { toSeconds } from './records.ts'

export function createWorkerEndpoints(context: ControlContext): readonly Endpoint[] {
  return [
    endpoint('GET /_fn/workers', 'read', async ({ details }) => {
      if (!details) throw new GatewayError('FORBIDDEN', 'processes are shown to local callers and with the admin token')
      return json(await toWorkersRecord(context))
    }),
  ]
}

async function toWorkersRecord({ clock, runtimes, dispatcher, processes }: ControlContext): Promise<object> {
  const workers = [...dispatcher.workers()].map(({ fn, worker }) => {
    const { activity: state, inflight } = worker
    return { fn, worker, activity: { state, inflight: inflight.size, calls: inflight.total } }
  })
  // The calls of a worker that is lent to another process are known there alone.
  const lent = [...dispatcher.lentWorkers].map(worker => {
    return { fn: worker.fn, worker, activity: { state: 'lent', inflight: null, calls: null } }
  })
  const all = [...workers, ...lent]
  const growth = dispatcher.growth()
  const daemons = [...runtimes.values()].flatMap(runtime => runtime.daemons ?? [])
  const acceptors = processes()?.acceptors ?? []
  const isKnown = (pid: number | null): pid is number => pid !== null
  const own = [...daemons.map(({ facts }) => facts.pid), ...acceptors.map(({ pid }) => pid)].filter(isKnown)
  const memory = await readMemoryOf(own)
  // Each stands behind a guard that ends it; what the handler holds is its child's.
  const workerMemory = await readMemoryOf(all.map(({ worker }) => worker.pid).filter(isKnown), true)
  // The monotonic clock's times as the wall clock has them now.
  const offset = clock.wall() - clock.monotonic()
  const toTime = (at: number | null): number | null => (at === null ? null : toSeconds(Math.round(at + offset)))
  const bytesOf = (pid: number | null, sizes = memory): number | null =>
    pid === null ? null : (sizes.get(pid) ?? null)

  const toDaemonRecord = (daemon: NonNullable<Runtime['daemons']>[number]): object => {
    const { index, uri, up, reason } = daemon.health()
    const { pid, restarts, upSince } = daemon.facts
    return {
      ...{ index, uri, up, reason, pid, restarts },
      ...{ started_at: toTime(upSince), memory_bytes: bytesOf(pid) },
    }
  }
  const toWorkerRecord = (
    fn: FunctionVersion,
    { socketIndex, pid, startedAt }: Pick<LentWorker, 'socketIndex' | 'pid' | 'startedAt'>,
    activity: object,
  ): object => ({
    ...{ key: fn.key, socket: socketIndex },
    ...activity,
    ...{ started_at: toTime(startedAt), pid, memory_bytes: bytesOf(pid, workerMemory) },
  })
  const records = [...runtimes].map(([name, runtime]) => [
    name,
    {
      daemons: (runtime.daemons ?? []).map(toDaemonRecord),
      workers: all
        .filter(({ fn }) => fn.runtime === name)
        .map(({ fn, worker, activity }) => toWorkerRecord(fn, worker, activity)),
      growth: growth.filter(({ fn }) => fn.runtime === name).map(one => ({ key: one.fn.key, ...one.growth })),
    },
  ])
  const fronts = acceptors.map(({ pid, isServing, connections, startedAt }) => ({
    ...{ pid, serving: isServing, connections },
    ...{ started_at: toTime(startedAt), memory_bytes: bytesOf(pid) },
  }))
  return { runtimes: Object.fromEntries(records), gateway: { ...toGatewayRecord(), fronts } }
}

function toGatewayRecord(): object {
  const { rss, heapUsed, heapTotal, external } = process.memoryUsage()
  const { active, idle } = performance.eventLoopUtilization()
  return {
    pid: process.pid,
    version: process.version,
    uptime_s: process.uptime(),
    memory_bytes: rss,
    heap_bytes: heapUsed,
    heap_total_bytes: heapTotal,
    external_bytes: external,
    event_loop: { active_ms: active, idle_ms: idle },
  }
}
