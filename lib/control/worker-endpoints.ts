/** `GET /_fn/workers`: the processes and threads that a gateway is made of. Owner: page control/workers. */

import { performance } from 'node:perf_hooks'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import { readMemoryOf } from '../core/host.ts'
import type { LentWorker } from '../runtime/dispatcher.ts'
import type { Runtime } from '../runtime/runtime.ts'
import type { Worker } from '../runtime/worker.ts'
import { type AcceptorFacts, type ControlContext, type Endpoint, READ } from './endpoint.ts'
import { toSeconds } from './records.ts'

export function createWorkerEndpoints(context: ControlContext): readonly Endpoint[] {
  return [
    {
      method: 'GET',
      path: '/_fn/workers',
      access: READ,
      handle: async ({ details }) => {
        if (!details)
          throw new GatewayError('FORBIDDEN', 'processes are shown to local callers and with the admin token')
        return { status: 200, body: await toWorkersRecord(context) }
      },
    },
  ]
}

async function toWorkersRecord({ clock, runtimes, dispatcher, processes }: ControlContext): Promise<object> {
  const workers = [...dispatcher.workers()]
  const lent = [...dispatcher.lentWorkers]
  const growth = dispatcher.growth()
  const daemons = [...runtimes.values()].flatMap(runtime => runtime.daemons ?? [])
  const others = processes()?.acceptors ?? []
  const own = [...daemons.map(({ facts }) => facts.pid), ...others.map(({ pid }) => pid)]
  const facts: Facts = {
    memory: await readMemoryOf(own.filter(pid => pid !== null)),
    // Each stands behind a guard that ends it; what the handler holds is its child's.
    workerMemory: await readMemoryOf(
      [...workers.map(({ worker }) => worker), ...lent].map(({ pid }) => pid).filter(pid => pid !== null),
      true,
    ),
    // The monotonic clock's times as the wall clock has them now.
    offset: clock.wall() - clock.monotonic(),
  }
  const records = [...runtimes].map(([name, runtime]) => [
    name,
    {
      daemons: (runtime.daemons ?? []).map(daemon => toDaemonRecord(daemon, facts)),
      workers: [
        ...workers
          .filter(({ fn }) => fn.runtime === name)
          .map(({ fn, worker }) => toWorkerRecord(fn, worker, toActivity(worker), facts)),
        ...lent.filter(({ fn }) => fn.runtime === name).map(one => toWorkerRecord(one.fn, one, LENT, facts)),
      ],
      growth: growth.filter(({ fn }) => fn.runtime === name).map(one => ({ key: one.fn.key, ...one.growth })),
    },
  ])
  const gateway = { ...toGatewayRecord(), fronts: others.map(one => toAcceptorRecord(one, facts)) }
  return { runtimes: Object.fromEntries(records), gateway }
}

interface Facts {
  /** Bytes by process. */
  memory: ReadonlyMap<number, number>
  workerMemory: ReadonlyMap<number, number>
  offset: number
}

function toDaemonRecord(daemon: NonNullable<Runtime['daemons']>[number], { memory, offset }: Facts): object {
  const { index, uri, up, reason } = daemon.health()
  const { pid, restarts, upSince } = daemon.facts
  return {
    ...{ index, uri, up, reason, pid, restarts },
    started_at: upSince === null ? null : toSeconds(Math.round(upSince + offset)),
    memory_bytes: pid === null ? null : (memory.get(pid) ?? null),
  }
}

/** The calls of a worker that is lent to another process are known there alone. */
function toWorkerRecord(
  fn: FunctionVersion,
  { socketIndex, pid, startedAt }: Pick<LentWorker, 'socketIndex' | 'pid' | 'startedAt'>,
  activity: object,
  { workerMemory, offset }: Facts,
): object {
  return {
    key: fn.key,
    socket: socketIndex,
    ...activity,
    started_at: toSeconds(Math.round(startedAt + offset)),
    pid,
    memory_bytes: pid === null ? null : (workerMemory.get(pid) ?? null),
  }
}

const LENT = { state: 'lent', inflight: null, calls: null }

function toActivity({ activity, inflight }: Worker): object {
  return { state: activity, inflight: inflight.size, calls: inflight.total }
}

function toAcceptorRecord(
  { pid, isServing, connections, startedAt }: AcceptorFacts,
  { memory, offset }: Facts,
): object {
  return {
    pid,
    serving: isServing,
    connections,
    started_at: toSeconds(Math.round(startedAt + offset)),
    memory_bytes: memory.get(pid) ?? null,
  }
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
