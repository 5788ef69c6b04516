/** What the workers of one function version are given. Owner: §2.8, page runtime/worker-set. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import type { GatewayError } from '../core/errors.ts'
import type { RuntimeCall } from './call.ts'
import type { Processors } from './growth.ts'
import type { Preparer, Sockets } from './runtime.ts'
import type { LoadTurns, OlderSet } from './stand-in.ts'
import type { Worker, WorkerOwner } from './worker.ts'

export interface WorkerSetOptions {
  fn: FunctionVersion
  clock: Clock
  /** Most workers at once. */
  maxWorkers: number
  /** Bound the workers of a function that computes. Absent: nothing is known of them. */
  processors?: Processors
  /** Workers that stay however long they idle. */
  minWarm: number
  idleTtlMs: number
  /** The sockets that calls take in turn; null when there is one. */
  sockets: Sockets | null
  /** Makes what the function needs before its first worker starts; null when it needs nothing. */
  preparer: Preparer | null
  /** The set of the previous version, which runs until this one is loaded; null or absent when there is none. */
  older?: OlderSet | null
  /** True when the version that it replaces could not be loaded. */
  isFix?: boolean
  /** True when no catalog has the function any more: the set serves what comes and ends when it is through. */
  isRetired?: boolean
  /** True while another process calls workers of the function: one stays here, to serve when a newer version cannot be loaded. */
  isLent?(): boolean
  /** What of the function's files on disk is not as it was discovered, as text; null when nothing is. */
  changeOf?(): string | null
  /** The set that is in force, for one that is not any more; null when there is none. */
  successor?(): { dispatch(call: RuntimeCall): void } | null
  /** Bounds how many functions load at once when no call waits for them. Absent: nothing bounds them. */
  loads?: LoadTurns
  /** Makes a worker in state `starting`; `program` is what was prepared. */
  spawn(set: WorkerOwner, program: string | null): Worker
  /** Output outside any call. */
  onLog(fn: FunctionVersion, stream: 'stdout' | 'stderr', text: string): void
  /** A worker loaded these source files: full real paths. Absent where nobody asks. */
  onFiles?(fn: FunctionVersion, files: readonly string[]): void
  /** A worker failed to load or ended by itself. */
  onFailure(fn: FunctionVersion, error: GatewayError): void
  /** A version cannot be loaded, and the previous one serves. */
  onStandIn?(fn: FunctionVersion): void
  /** A version is loaded after one that could not be. */
  onFixed?(fn: FunctionVersion): void
  /** A retired set has no workers left. */
  onEmpty(): void
}
