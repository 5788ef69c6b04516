/** What a worker reports to the set it belongs to, and asks of it. Owner: §2.8, page runtime/worker-set. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import type { GatewayError } from '../core/errors.ts'
import type { RuntimeCall } from './call.ts'

/** What workers of a kind need of the set they belong to. */
export interface OwnerOf<Worker> {
  readonly fn: FunctionVersion
  readonly clock: Clock
  /** Answers of all workers so far. */
  answers: number
  /** How many workers the function has at a socket. */
  readonly loadOf: (socketIndex: number) => number
  /** Output outside any call. */
  onLog(stream: 'stdout' | 'stderr', text: string): void
  /** A worker loaded these source files: full real paths. */
  onFiles(files: readonly string[]): void
  /** The worker takes nothing more. */
  forget(worker: Worker): void
  /** A call came to its end: the function works. */
  handleSuccess(): void
  /** The worker may have room for another call. */
  handleRoom(worker: Worker, now: number): void
  /** A client left a call, and its place may be needed. */
  handleAbandoned(): void
  /** The function cannot be loaded. @param unbegun - calls that came with the start: none of their code ran */
  handleLoadFailure(worker: Worker, error: GatewayError, unbegun: RuntimeCall[]): void
  /** @param unbegun - calls that certainly were not begun, and may go to another worker */
  handleWorkerEnd(unexpected: boolean, error: GatewayError, unbegun: RuntimeCall[]): void
  /** No worker could be started at all (daemon down). */
  handleStartFailure(worker: Worker, error: GatewayError): void
}
