/** What the first process and a front say to each other beside calls. Data that the structured clone takes. Owner: page processes/processes. */

import type { Settings } from '../config/settings.ts'
import type { EndpointPath } from '../control/endpoint-table.ts'
import type { Warning } from '../core/errors.ts'
import type { Discovery } from '../discovery/discover.ts'
import type { Listening } from '../http/server.ts'
import type { MetricCounts } from '../observe/histogram.ts'
import type { StartedWorker, WorkerExit } from '../runtime/started-worker.ts'

/** What became of upstream requests. */
export type EdgeResult = 'answered' | 'failed' | 'refused' | 'left'

/** A tree as the first process has read it. */
export interface AdoptMessage {
  kind: 'adopt'
  generation: number
  discovery: Discovery
}

/** A front may run calls of a function itself. */
export interface LeaseMessage {
  kind: 'lease'
  id: number
  key: string
  /** 0 for an unlimited function. */
  slots: number
  /** What was prepared for it. */
  program: string | null
  /** JSON text of its workers' `start` frame. */
  header: string
}

/** What becomes of a worker that a front asked for. */
export type WorkerMessage =
  | {
      kind: 'worker'
      ask: number
      worker: Pick<StartedWorker, 'id' | 'uri' | 'isShared' | 'trust' | 'socketIndex' | 'pid'>
    }
  | { kind: 'noWorker'; ask: number; error: string }
  | { kind: 'workerExit'; ask: number; exit: WorkerExit }

export type ToFront =
  | LeaseMessage
  | { kind: 'recall'; id: number }
  | WorkerMessage
  | {
      kind: 'begin'
      settings: Settings
      controlPaths: readonly EndpointPath[]
      /** Descriptors of the sockets to listen on. */
      fds: readonly number[]
      /** Where the gateway listens, its control plane's own socket among them: no function may be sent there. */
      addresses: readonly Listening[]
      wantsRequests: boolean
      /** Processes of the gateway. */
      processes: number
      tree: AdoptMessage
    }
  | AdoptMessage
  | { kind: 'wants'; requests: boolean }
  | { kind: 'count'; id: number }
  /** All connections but so many are to go: others have fewer. */
  | { kind: 'shed'; kept: number }
  | { kind: 'drain' }
  | { kind: 'close'; timeoutMs: number }

/** A failed call of which only its front knows. */
interface FailedMessage {
  kind: 'failed'
  key: string | null
  call: { id: string; trace: string; method: string; path: string }
  /** As a header of the line. */
  error: string
}

/** What a function wrote in a worker of a front. */
interface OutputMessage {
  kind: 'output'
  key: string
  stream: 'stdout' | 'stderr'
  text: string
  /** null outside any call. */
  call: { id: string; trace: string } | null
}

export type FromFront =
  | { kind: 'serving'; generation: number }
  | { kind: 'adopted'; generation: number }
  /** @param id - of the question; 0 for none */
  | {
      kind: 'counts'
      id: number
      counts: MetricCounts | null
      edge: Record<EdgeResult, number> | null
      used: (readonly [id: number, calls: number])[]
      connections: number
    }
  | FailedMessage
  | { kind: 'log'; level: 'info' | 'warn' | 'error'; message: string }
  | { kind: 'warning'; warning: Warning }
  /** Many calls of a function go over the line. */
  | { kind: 'ask'; key: string }
  /** A lease is given back, all but the slots of calls that run. */
  | { kind: 'returned'; id: number; used: number }
  /** One of those has ended. */
  | { kind: 'freed'; id: number }
  | { kind: 'startWorker'; ask: number; key: string; program: string | null; header: string }
  | { kind: 'stopWorker'; ask: number; graceMs: number }
  | OutputMessage
  /** A worker failed to load or ended by itself. */
  | { kind: 'workerFailed'; key: string; error: string }
