/** A runtime whose functions run in worker processes behind daemons. Owner: §1, page runtime/daemon. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import type { GatewayError } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'
import { DEFAULT_IDLE_TTL_SECONDS, MAX_WORKERS_UNLIMITED } from '../core/limits.ts'
import type { Runtime, RuntimeCall, RuntimeHealth } from './call.ts'
import { SocketWorker } from './connection.ts'
import type { SocketSet } from './socket-set.ts'
import { WorkerSet } from './workers.ts'

/** What a worker is told of its function beside what the catalog says; given by the parts that own it. */
export interface FunctionFacts {
  /** The part of `event.context` that is the same for every call. */
  toContext(fn: FunctionVersion): object
  /** Full paths of the folders of its shared packs, in order. */
  toPackDirs(fn: FunctionVersion): readonly string[]
}

export interface ProcessRuntimeOptions extends FunctionFacts {
  name: RuntimeName
  clock: Clock
  sockets: SocketSet
  functionsRoot: string
  production: boolean
  onLog(fn: FunctionVersion, stream: 'stdout' | 'stderr', text: string): void
  onFailure(fn: FunctionVersion, error: GatewayError): void
}

export class ProcessRuntime implements Runtime {
  readonly name: RuntimeName
  private readonly options: ProcessRuntimeOptions
  private readonly sets = new Map<string, WorkerSet>()
  /** Sets that finish their last calls. */
  private readonly leaving = new Set<WorkerSet>()
  private functions: ReadonlyMap<string, FunctionVersion> = new Map()
  private started: Promise<void> | null = null
  private closing: Promise<void> | null = null
  private emptied: (() => void) | null = null

  constructor(options: ProcessRuntimeOptions) {
    this.name = options.name
    this.options = options
  }

  /** A runtime without functions starts nothing: `retain` with the first function does. */
  start(): Promise<void> {
    return this.hasFunctions() && this.closing === null ? this.open() : Promise.resolve()
  }

  /** Starts the daemons, functions or not. */
  open(): Promise<void> {
    this.started ??= this.options.sockets.start()
    return this.started
  }

  health(): RuntimeHealth {
    return this.options.sockets.health()
  }

  /** Version of the interpreter, null before a daemon was up. */
  get version(): string | null {
    return this.options.sockets.version
  }

  dispatch(call: RuntimeCall): void {
    const set = this.sets.get(call.fn.key)
    if (set !== undefined) set.dispatch(call)
    else this.dispatchFirst(call)
  }

  abandon(call: RuntimeCall): void {
    const set = call.worker?.set ?? this.sets.get(call.fn.key)
    if (set !== undefined) set.abandon(call)
    else call.state = 'done'
  }

  warm(fn: FunctionVersion, count: number): void {
    if (this.closing !== null) return
    this.setOf(fn).warm(count)
  }

  retain(functions: ReadonlyMap<string, FunctionVersion>): void {
    this.functions = functions
    for (const [key, set] of this.sets) {
      const fn = functions.get(key)
      if (fn === undefined || !isSame(fn, set.fn)) this.retire(key, set)
    }
    if (this.closing !== null || !this.hasFunctions()) return
    void this.start()
    for (const fn of functions.values()) {
      if (fn.runtime === this.name && minWarmOf(fn) > 0) this.warm(fn, minWarmOf(fn))
    }
  }

  workerCount(key: string): number {
    return this.sets.get(key)?.workers.length ?? 0
  }

  /** Workers of all functions, for records. */
  get totalWorkers(): number {
    let total = 0
    for (const set of this.sets.values()) total += set.workers.length
    for (const set of this.leaving) total += set.workers.length
    return total
  }

  close(timeoutMs: number): Promise<void> {
    this.closing ??= this.end(timeoutMs)
    return this.closing
  }

  private async end(timeoutMs: number): Promise<void> {
    const { clock, sockets } = this.options
    for (const [key, set] of this.sets) this.retire(key, set)
    if (this.leaving.size > 0 && timeoutMs > 0) {
      await new Promise<void>(resolve => {
        const timer = clock.setTimeout(resolve, timeoutMs)
        this.emptied = () => {
          clock.clearTimeout(timer)
          resolve()
        }
      })
    }
    for (const set of this.leaving) set.close()
    await sockets.close()
  }

  /** The first call of a function, or one of a catalog that is gone by now. */
  private dispatchFirst(call: RuntimeCall): void {
    const set = this.setOf(call.fn)
    set.dispatch(call)
    if (this.closing !== null || !this.functions.has(call.fn.key)) this.retire(call.fn.key, set)
  }

  private retire(key: string, set: WorkerSet): void {
    this.sets.delete(key)
    this.leaving.add(set)
    set.retire()
  }

  private setOf(fn: FunctionVersion): WorkerSet {
    const known = this.sets.get(fn.key)
    if (known !== undefined) return known
    const { options } = this
    const startHeader = this.toStartHeader(fn)
    const pool = fn.policy.workerPool
    const set = new WorkerSet({
      fn,
      clock: options.clock,
      maxWorkers: (pool?.enabled ? pool.maxWorkers : fn.policy.maxConcurrency) || MAX_WORKERS_UNLIMITED,
      minWarm: minWarmOf(fn),
      idleTtlMs: idleTtlSecondsOf(fn) * 1000,
      spawn: set => new SocketWorker(set, options.sockets, startHeader),
      onLog: options.onLog,
      onFailure: options.onFailure,
      onEmpty: set => {
        this.leaving.delete(set)
        if (this.leaving.size === 0) this.emptied?.()
      },
    })
    this.sets.set(fn.key, set)
    return set
  }

  /** The worker's `start` frame: everything about the function that is the same for every call. */
  private toStartHeader(fn: FunctionVersion): string {
    const { options } = this
    const env: Record<string, string> = {}
    for (const [name, { value }] of Object.entries(fn.env)) env[name] = value
    return JSON.stringify({
      key: fn.key,
      runtime: fn.runtime,
      name: fn.name,
      version: fn.version,
      root: options.functionsRoot,
      dir: fn.fnDir,
      entry: fn.entryPath,
      handler: fn.policy.handler,
      // An unknown name is told as it is written: the worker refuses it by name.
      adapter: fn.policy.adapter ?? fn.policy.adapterName,
      env,
      packs: options.toPackDirs(fn),
      production: options.production,
      context: options.toContext(fn),
    })
  }

  private hasFunctions(): boolean {
    for (const fn of this.functions.values()) if (fn.runtime === this.name) return true
    return false
  }
}

/** True when workers started for one may serve the other. */
function isSame(a: FunctionVersion, b: FunctionVersion): boolean {
  return a === b || (a.signature === b.signature && JSON.stringify(a.policy) === JSON.stringify(b.policy))
}

function minWarmOf({ policy }: FunctionVersion): number {
  const { workerPool, keepWarm } = policy
  return Math.max(workerPool?.enabled ? workerPool.minWarm : 0, keepWarm?.enabled ? keepWarm.minWarm : 0)
}

function idleTtlSecondsOf({ policy }: FunctionVersion): number {
  const { workerPool, keepWarm } = policy
  if (workerPool?.enabled) return workerPool.idleTtlSeconds
  return keepWarm?.enabled ? keepWarm.idleTtlSeconds : DEFAULT_IDLE_TTL_SECONDS
}
