/** The Lua runtime: one thread of this process per worker, no daemon and no socket. Owner: §1, page runtime/lua-runtime. */

import { availableParallelism } from 'node:os'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import type { GatewayError } from '../core/errors.ts'
import { LUA_THREADS } from '../core/limits.ts'
import type { Runtime, RuntimeCall, RuntimeHealth } from './call.ts'
import { FunctionWorkers } from './function-workers.ts'
import { LuaThread } from './lua-worker.ts'
import { LuaThreads } from './lua-threads.ts'
import { type StartFacts, toStartHeader } from './start-header.ts'

export interface LuaRuntimeOptions extends StartFacts {
  clock: Clock
  /** Most megabytes the Lua code of one thread may hold. */
  workerMemoryMb: number
  /** Output outside any call. */
  onLog(fn: FunctionVersion, stream: 'stdout' | 'stderr', text: string): void
  /** A worker failed to load or ended by itself. */
  onFailure(fn: FunctionVersion, error: GatewayError): void
}

export function createLuaRuntime(options: LuaRuntimeOptions): LuaRuntime {
  return new LuaRuntime(options)
}

export class LuaRuntime implements Runtime {
  readonly name = 'lua'
  readonly #threads: LuaThreads
  readonly #workers: FunctionWorkers
  #closing: Promise<void> | null = null

  constructor(options: LuaRuntimeOptions) {
    this.#threads = new LuaThreads(options.workerMemoryMb)
    this.#workers = new FunctionWorkers({
      runtime: 'lua',
      clock: options.clock,
      maxWorkers: Math.min(Math.max(2 * availableParallelism(), LUA_THREADS.min), LUA_THREADS.max),
      onLog: options.onLog,
      onFailure: options.onFailure,
      // The next spare thread starts when this one is through and its answer is passed on: it would slow the first call.
      spawn: set => new LuaThread(set, this.#threads, toStartHeader(set.fn, options), this.#keepSpareSoon),
    })
  }

  start(): Promise<void> {
    this.#keepSpare()
    return Promise.resolve()
  }

  health(): RuntimeHealth {
    const up = this.#closing === null
    const reason = up ? 'in-process' : 'gateway is shutting down'
    return { routing: 'single', up, reason, sockets: [{ index: 1, uri: 'inprocess:lua', up, reason }] }
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
    this.#keepSpare()
  }

  workerCount(key: string): number {
    return this.#workers.count(key)
  }

  /** Workers of all functions, for records. */
  get totalWorkers(): number {
    return this.#workers.total
  }

  /** Threads that have not ended, the spare one included. */
  get threadCount(): number {
    return this.#threads.count
  }

  close(timeoutMs: number): Promise<void> {
    this.#closing ??= this.#workers.close(timeoutMs).then(() => this.#threads.close())
    return this.#closing
  }

  readonly #keepSpareSoon = (): void => {
    setImmediate(() => this.#keepSpare())
  }

  /** A gateway without Lua functions pays for no thread. */
  #keepSpare(): void {
    this.#threads.keepSpare(this.#workers.hasFunctions && this.#closing === null)
  }
}
