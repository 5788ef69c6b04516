/** The worker sets of a runtime's functions, by function and version, through reloads and the stop. Page: runtime/worker-set. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'
import { DEFAULT_IDLE_TTL_SECONDS, MAX_WORKERS_UNLIMITED } from '../core/limits.ts'
import type { RuntimeCall } from './call.ts'
import type { Worker } from './worker.ts'
import { type Sockets, WorkerSet } from './worker-set.ts'

export interface FunctionWorkersOptions {
  runtime: RuntimeName
  clock: Clock
  /** Workers of one function that are of any use, whatever its policy allows. */
  maxWorkers?: number
  /** The sockets that calls take in turn; null or absent when there is one. */
  sockets?: Sockets | null
  /** Makes a worker in state `starting`. */
  spawn(set: WorkerSet): Worker
  onLog(fn: FunctionVersion, stream: 'stdout' | 'stderr', text: string): void
  onFailure(fn: FunctionVersion, error: GatewayError): void
}

export class FunctionWorkers {
  readonly #options: FunctionWorkersOptions
  readonly #sets = new Map<string, WorkerSet>()
  /** Sets that finish their last calls. */
  readonly #leaving = new Set<WorkerSet>()
  #functions: ReadonlyMap<string, FunctionVersion> = new Map()
  #isClosing = false
  #emptied: (() => void) | null = null

  constructor(options: FunctionWorkersOptions) {
    this.#options = options
  }

  dispatch(call: RuntimeCall): void {
    const set = this.#sets.get(call.fn.key)
    if (set !== undefined) set.dispatch(call)
    else this.#dispatchFirst(call)
  }

  abandon(call: RuntimeCall): void {
    if (call.worker !== null) call.worker.abandon(call)
    // One that waits is passed over when its turn comes.
    else call.state = 'done'
  }

  warm(fn: FunctionVersion, count: number): void {
    if (!this.#isClosing) this.#setOf(fn).warm(count)
  }

  /** Takes over a new catalog's functions: sets of changed and deleted ones finish and end. */
  retain(functions: ReadonlyMap<string, FunctionVersion>): void {
    this.#functions = functions
    for (const [key, set] of this.#sets) {
      const fn = functions.get(key)
      if (fn === undefined || !isSame(fn, set.fn)) this.#retire(key, set)
    }
    if (this.#isClosing) return
    for (const fn of functions.values()) {
      if (fn.runtime === this.#options.runtime && minWarmOf(fn) > 0) this.warm(fn, minWarmOf(fn))
    }
  }

  /** True when the catalog has functions of this runtime. */
  get hasFunctions(): boolean {
    for (const fn of this.#functions.values()) if (fn.runtime === this.#options.runtime) return true
    return false
  }

  /** Live workers of one function. */
  count(key: string): number {
    return this.#sets.get(key)?.workers.length ?? 0
  }

  /** Workers of all functions. */
  get total(): number {
    let total = 0
    for (const set of this.#sets.values()) total += set.workers.length
    for (const set of this.#leaving) total += set.workers.length
    return total
  }

  /** Resolves when every call is over or `timeoutMs` ms have passed; what then still runs is killed. */
  async close(timeoutMs: number): Promise<void> {
    const { clock } = this.#options
    this.#isClosing = true
    for (const [key, set] of this.#sets) this.#retire(key, set)
    if (this.#leaving.size > 0 && timeoutMs > 0) {
      await new Promise<void>(resolve => {
        const timer = clock.setTimeout(resolve, timeoutMs)
        this.#emptied = () => {
          clock.clearTimeout(timer)
          resolve()
        }
      })
    }
    for (const set of this.#leaving) set.close()
  }

  /** The first call of a function, or one of a catalog that is gone by now. */
  #dispatchFirst(call: RuntimeCall): void {
    if (this.#isClosing) {
      call.state = 'done'
      call.onError(new GatewayError('SHUTTING_DOWN', 'gateway is shutting down'))
      return
    }
    const set = this.#setOf(call.fn)
    set.dispatch(call)
    if (!this.#functions.has(call.fn.key)) this.#retire(call.fn.key, set)
  }

  #retire(key: string, set: WorkerSet): void {
    this.#sets.delete(key)
    this.#leaving.add(set)
    set.retire()
  }

  #setOf(fn: FunctionVersion): WorkerSet {
    const known = this.#sets.get(fn.key)
    if (known !== undefined) return known
    const options = this.#options
    const pool = fn.policy.workerPool
    const allowed = (pool?.enabled ? pool.maxWorkers : fn.policy.maxConcurrency) || MAX_WORKERS_UNLIMITED
    const set = new WorkerSet({
      fn,
      clock: options.clock,
      // `max_workers` bounds the calls; each socket has its turn all the same.
      maxWorkers: Math.max(Math.min(allowed, options.maxWorkers ?? allowed), options.sockets?.count ?? 1),
      minWarm: minWarmOf(fn),
      idleTtlMs: idleTtlSecondsOf(fn) * 1000,
      sockets: options.sockets ?? null,
      spawn: options.spawn,
      onLog: options.onLog,
      onFailure: options.onFailure,
      onEmpty: empty => {
        this.#leaving.delete(empty)
        if (this.#leaving.size === 0) this.#emptied?.()
      },
    })
    this.#sets.set(fn.key, set)
    return set
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
