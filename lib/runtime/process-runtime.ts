/** A runtime whose functions run in worker processes behind daemons. Owner: §1, page runtime/daemon. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import type { GatewayError } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'
import type { Runtime, RuntimeCall, RuntimeHealth } from './call.ts'
import { SocketWorker } from './socket-worker.ts'
import { FunctionWorkers } from './function-workers.ts'
import type { SocketSet } from './socket-set.ts'
import { type StartFacts, toStartHeader } from './start-header.ts'

export interface ProcessRuntimeOptions extends StartFacts {
  name: RuntimeName
  clock: Clock
  sockets: SocketSet
  onLog(fn: FunctionVersion, stream: 'stdout' | 'stderr', text: string): void
  onFailure(fn: FunctionVersion, error: GatewayError): void
}

export class ProcessRuntime implements Runtime {
  readonly name: RuntimeName
  readonly #sockets: SocketSet
  readonly #workers: FunctionWorkers
  #opened: Promise<void> | null = null
  #closing: Promise<void> | null = null

  constructor(options: ProcessRuntimeOptions) {
    this.name = options.name
    this.#sockets = options.sockets
    this.#workers = new FunctionWorkers({
      runtime: options.name,
      clock: options.clock,
      sockets: options.sockets.sockets,
      spawn: set => new SocketWorker(set, options.sockets, toStartHeader(set.fn, options)),
      onLog: options.onLog,
      onFailure: options.onFailure,
    })
  }

  /** A runtime without functions starts nothing: `retain` with the first function does. */
  start(): Promise<void> {
    return this.#workers.hasFunctions && this.#closing === null ? this.open() : Promise.resolve()
  }

  /** Starts the daemons, functions or not. */
  open(): Promise<void> {
    this.#opened ??= this.#sockets.start()
    return this.#opened
  }

  health(): RuntimeHealth {
    return this.#sockets.health()
  }

  /** Version of the interpreter, null before a daemon was up. */
  get version(): string | null {
    return this.#sockets.version
  }

  dispatch(call: RuntimeCall): void {
    this.#workers.dispatch(call)
  }

  abandon(call: RuntimeCall): void {
    this.#workers.abandon(call)
  }

  warm(fn: FunctionVersion, count: number): void {
    this.#workers.warm(fn, count)
  }

  retain(functions: ReadonlyMap<string, FunctionVersion>): void {
    this.#workers.retain(functions)
    void this.start()
  }

  workerCount(key: string): number {
    return this.#workers.count(key)
  }

  /** Workers of all functions, for records. */
  get totalWorkers(): number {
    return this.#workers.total
  }

  close(timeoutMs: number): Promise<void> {
    this.#closing ??= this.#workers.close(timeoutMs).then(() => this.#sockets.close())
    return this.#closing
  }
}
