/** Workers that somebody started for a function, as those who call them see them. Owner: §1, page runtime/daemon. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { ReadyConnection } from './ready-workers.ts'
import type { WorkerAddress } from './worker-socket.ts'

export interface WorkerExit {
  code: number | null
  signal: string | null
  reason: string
  /** True when its daemon ended and took it along: no fault of the function. */
  isOfDaemon?: boolean
}

/** A worker that a daemon started. */
export interface StartedWorker extends WorkerAddress {
  socketIndex: number
  /** Opened ahead, and greeted; absent or null where it is to be dialled. */
  connection?: ReadyConnection | null
  /** Its process on this machine; null where that is not known. */
  pid: number | null
  kill(graceMs: number): void
  onExit(callback: (exit: WorkerExit) => void): void
}

export interface WorkerSource {
  /**
   * @param loadOf - workers the function has at a socket: it is started where there are fewest
   * @param onSocket - told at once, and again when another socket has to do it, which socket (from 1) is asked
   * @throws GatewayError RUNTIME_DOWN when no socket of the runtime can start one
   */
  startWorker(
    fn: FunctionVersion,
    loadOf: (socketIndex: number) => number,
    onSocket: (socketIndex: number) => void,
  ): Promise<StartedWorker>
}
