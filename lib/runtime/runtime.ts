/** A runtime as the gateway sees it: how its workers are made and how its sockets are. Owner: §1, page runtime/daemon. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { RuntimeName } from '../core/identity.ts'
import type { Daemon, SocketHealth } from './daemon.ts'
import type { WorkerSource } from './socket-worker.ts'
import type { Worker, WorkerOwner } from './worker.ts'

export interface RuntimeHealth {
  routing: 'single' | 'round_robin'
  up: boolean
  reason: string
  /** Of the language, such as `3.12.4`; null while no daemon is up or its toolchain is unknown. */
  version: string | null
  sockets: SocketHealth[]
}

/** Several sockets of one runtime. */
export interface Sockets {
  readonly count: number
  /** Indexes (from 1) of those that can start workers now. */
  up(): readonly number[]
  /** Where a function's first call goes, another one for each function: an index from 0. */
  begin(): number
}

/** Makes what functions need before a worker of them can start: a program, packages. */
export interface Preparer {
  /**
   * Resolves when a worker may start; calls for one version share the work.
   * @param onWork - called when a tool has to work for it, which may take long; not called when all is there
   * @returns full path of the function's program; null for one that needs none
   * @throws GatewayError
   */
  prepare(fn: FunctionVersion, onWork?: () => void): Promise<string | null>
  /** The work under way, for a call that could not wait: `building go function hello`. */
  toStep(fn: FunctionVersion): string
  /** Most ms that a call waits for it. */
  readonly waitMs: number
  /** Begins with it before a call asks for it, where that is wanted; calls that wait for it get the error when it fails. */
  prepareAhead(fn: FunctionVersion): void
}

/** Everything needed to start workers of a function that another process connects to. */
export interface WorkerStart {
  /** JSON text of the worker's `start` frame. */
  header: string
  source: WorkerSource
}

/** One enabled runtime: python, node, php, go and rust behind daemons, lua on threads. */
export interface Runtime {
  readonly name: RuntimeName
  /** The sockets that calls take in turn; null when there is one. */
  readonly sockets: Sockets | null
  /** Workers of one function that are of any use, whatever its policy allows. */
  readonly maxWorkers: number
  /** Null for a runtime whose functions need nothing. */
  readonly preparer: Preparer | null
  /** Starts what its workers need; resolves when every socket is up or has a reason why not. Never rejects. */
  start(): Promise<void>
  /** Its last function is gone: nothing need be kept ready. Absent where what was started stays. */
  rest?(): void
  /**
   * Makes a worker in state `starting`.
   * @param program - the prepared program of its function, null for none
   */
  spawn(set: WorkerOwner, program: string | null): Worker
  /** For workers that another process of the gateway connects to; absent where they live in this one. */
  prepareStart?(fn: FunctionVersion, program: string | null): WorkerStart
  health(): RuntimeHealth
  /** The daemons behind its sockets, in their order; absent for one that has none. */
  readonly daemons?: readonly Daemon[]
  /** After its workers have ended. */
  close(): Promise<void>
}
