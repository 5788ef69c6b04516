/**
 * Which worker set serves a function version: the one place that knows all sets of a gateway, through reloads and the stop.
 * Owner: page runtime/worker-set.
 *
 *   fn.key ─► set ─(changed or deleted)─► leaving ─(the version after it is ready, its calls are over)─► gone
 */

import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, within } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'
import { DEFAULT_IDLE_TTL_SECONDS, MAX_WORKERS_UNLIMITED } from '../core/limits.ts'
import { toMaxActive } from '../core/transitions.ts'
import type { FunctionUsers } from './function-users.ts'
import { systemProcessors } from './growth.ts'
import type { Runtime } from './runtime.ts'
import { LoadTurns, type OlderSet } from './backlog.ts'
import type { Worker, WorkerDebuggers } from './worker.ts'
import { type FunctionEvents, WorkerSet } from './worker-set.ts'
import { isSameVersion } from '../core/versions.ts'

interface DispatcherOptions extends FunctionEvents {
  clock: Clock
  runtimes: ReadonlyMap<RuntimeName, Runtime>
  /** As whom functions run; null where that is all the same. */
  tenancy: Pick<FunctionUsers, 'refusalOf' | 'stampOf'> | null
  /** True loads changed functions at once, also those without a worker: in development mistakes are shown at the save. */
  loadsChanged?: boolean
  /** Null or absent where handlers are not debugged. */
  debuggers?: WorkerDebuggers | null
}

interface FunctionWorkers {
  fn: FunctionVersion
  counts: Record<Worker['activity'] | 'lent', number>
}

/** A worker that was started here, and which another process of the gateway calls (page processes/processes). */
export interface LentWorker {
  fn: FunctionVersion
  socketIndex: number
  pid: number | null
  /** Monotonic ms. */
  startedAt: number
}

/** Most changed functions without a worker that are loaded at once: more come from a checkout, not from an editor. */
const MAX_LOADED_AHEAD = 16
/** Milliseconds between two looks whether a function has been loaded. */
const LOAD_LOOK_MS = 10

export class Dispatcher {
  readonly #options: DispatcherOptions
  readonly #loads = new LoadTurns()
  readonly #processors = systemProcessors()
  readonly #sets = new Map<string, WorkerSet>()
  /** Sets that finish their last calls, or serve until a newer version is ready. */
  readonly #leaving = new Set<WorkerSet>()
  /** Of the functions that have a set. */
  readonly #stamps = new Map<string, string>()
  readonly lentWorkers = new Set<LentWorker>()
  #functions: ReadonlyMap<string, FunctionVersion> = new Map()
  #isClosing = false
  #emptied: (() => void) | null = null

  constructor(options: DispatcherOptions) {
    this.#options = options
  }

  /**
   * The set that serves a function.
   * @throws GatewayError RUNTIME_DOWN when its runtime is not enabled or the function refused, SHUTTING_DOWN
   */
  setOf(fn: FunctionVersion): WorkerSet {
    return this.#sets.get(fn.key) ?? this.#makeSet(fn)
  }

  warm(fn: FunctionVersion, count: number): void {
    if (!this.#isClosing && this.#isServable(fn)) this.setOf(fn).warm(count)
  }

  #isServable(fn: FunctionVersion): boolean {
    return this.#options.runtimes.has(fn.runtime) && this.#refusalOf(fn) === null
  }

  /** Live workers of one function, those that are starting too: for records, debug headers and tests. */
  workerCount(key: string): number {
    return this.#sets.get(key)?.serving.workers.length ?? 0
  }

  get #allSets(): WorkerSet[] {
    return [...this.#sets.values(), ...this.#leaving]
  }

  /** Every worker with its function, those of older versions of its files too. */
  workers(): { fn: FunctionVersion; worker: Worker }[] {
    return this.#allSets.flatMap(({ fn, workers }) => workers.map(worker => ({ fn, worker })))
  }

  /** Growth decisions of the functions that reached the processor limit. */
  growth(): { fn: FunctionVersion; growth: NonNullable<WorkerSet['growth']> }[] {
    return [...this.#sets.values()].flatMap(({ fn, growth }) => (growth === null ? [] : [{ fn, growth }]))
  }

  /** Functions that have workers, and how many, those of older versions of their files too; a key may come twice. */
  *liveWorkers(): Generator<readonly [key: string, workers: number]> {
    for (const { fn } of this.lentWorkers) yield [fn.key, 1]
    for (const { fn, workers } of this.#allSets) if (workers.length > 0) yield [fn.key, workers.length]
  }

  /** Workers of each function by what they do, those of its older versions too: for metrics. */
  workerStates(): Iterable<FunctionWorkers> {
    const byKey = new Map<string, FunctionWorkers>()
    const countsOf = (fn: FunctionVersion): FunctionWorkers['counts'] => {
      const row = byKey.get(fn.key) ?? { fn, counts: { starting: 0, idle: 0, busy: 0, ending: 0, lent: 0 } }
      byKey.set(fn.key, row)
      return row.counts
    }
    for (const { fn, workers } of this.#allSets) {
      const counts = countsOf(fn)
      for (const worker of workers) counts[worker.activity] += 1
    }
    for (const { fn } of this.lentWorkers) countsOf(fn).lent += 1
    return byKey.values()
  }

  /** Counts a worker that another process calls. @returns a function for its end */
  lend(worker: LentWorker): () => void {
    this.lentWorkers.add(worker)
    return () => {
      this.lentWorkers.delete(worker)
      this.#sets.get(worker.fn.key)?.watchIdle()
    }
  }

  isWarm(key: string): boolean {
    return this.#sets.get(key)?.serving.isWarm ?? false
  }

  /** Why the function cannot be built, installed or loaded; null when it can, or that was not tried. */
  loadErrorOf(key: string): GatewayError | null {
    return this.#sets.get(key)?.loadError ?? null
  }

  /**
   * Builds, installs and loads a function without a call. Workers that were started for this end right after.
   * @param limitMs - after which it counts as failed
   * @returns why it cannot be loaded; null when it can
   */
  async tryLoad(fn: FunctionVersion, limitMs: number): Promise<GatewayError | null> {
    const { clock } = this.#options
    const isServed = this.isServed(fn.key)
    try {
      const set = this.setOf(fn)
      const endsAt = clock.monotonic() + limitMs
      set.load()
      while (!set.isLoaded && set.loadError === null) {
        if (set.problem !== null) return new GatewayError('RUNTIME_DOWN', set.problem)
        if (clock.monotonic() > endsAt)
          return new GatewayError('TIMEOUT', `was not loaded within ${Math.round(limitMs / 1000)} s`)
        await new Promise<void>(resolve => clock.setTimeout(resolve, LOAD_LOOK_MS))
      }
      return set.loadError
    } catch (error) {
      return toGatewayError(error)
    } finally {
      const made = this.#sets.get(fn.key)
      if (!isServed && made !== undefined && minWarmOf(fn) === 0) this.#retire(fn.key, made)
    }
  }

  /** True while the previous version serves because the newest one cannot. */
  isStale(key: string): boolean {
    const set = this.#sets.get(key)
    return set !== undefined && set.loadError !== null && set.serving !== set
  }

  /** True while workers of a function may run. */
  isServed(key: string): boolean {
    return this.#sets.has(key) || [...this.#leaving].some(set => set.fn.key === key)
  }

  /** Takes over a new catalog's functions: sets of changed and deleted ones finish and end. */
  retain(functions: ReadonlyMap<string, FunctionVersion>): void {
    const changed = this.#options.loadsChanged === true ? this.#findChanged(functions) : []
    this.#functions = functions
    if (this.#isClosing) return
    for (const [key, set] of this.#sets) {
      const fn = functions.get(key)
      if (fn === undefined || !isSame(fn, set.fn) || this.#isMoved(fn)) this.#replace(key, set, fn)
      // The mistake may be in a file that it never came to load.
      else if (set.loadError !== null) set.load()
    }
    for (const fn of changed) if (this.#isServable(fn)) this.setOf(fn).load()
    const used = new Set<RuntimeName>()
    for (const fn of functions.values()) {
      const runtime = this.#options.runtimes.get(fn.runtime)
      if (runtime === undefined) continue
      if (!used.has(fn.runtime)) void runtime.start()
      used.add(fn.runtime)
      if (this.#refusalOf(fn) !== null) continue
      runtime.preparer?.prepareAhead(fn)
      if (minWarmOf(fn) > 0) this.warm(fn, minWarmOf(fn))
    }
    for (const runtime of this.#options.runtimes.values()) if (!used.has(runtime.name)) runtime.rest?.()
  }

  /** Resolves when every call is over or `timeoutMs` ms have passed; calls that still run then are killed. */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosing = true
    this.#loads.close()
    for (const [key, set] of this.#sets) this.#retire(key, set)
    if (this.#leaving.size > 0 && timeoutMs > 0) {
      const emptied = new Promise<void>(resolve => {
        this.#emptied = resolve
      })
      await within(this.#options.clock, timeoutMs, emptied)
    }
    for (const set of this.#leaving) set.close()
  }

  #retire(key: string, set: WorkerSet): void {
    this.#takeOut(key, set)
    set.retire()
  }

  #takeOut(key: string, set: WorkerSet): void {
    this.#sets.delete(key)
    this.#stamps.delete(key)
    this.#leaving.add(set)
  }

  /** @param fn - the new version, undefined when the function is gone */
  #replace(key: string, set: WorkerSet, fn: FunctionVersion | undefined): void {
    if (fn === undefined) {
      this.#retire(key, set)
      return
    }
    // A version that was not prepared yet, or half saved, never will be: its calls get the new version instead of an error.
    const waiting = set.takeHeld()
    const older = this.#isMoved(fn) ? null : set.standIn()
    this.#takeOut(key, set)
    if (older !== set) set.retire()
    // Also without a call: mistakes are found now, and the older one can end.
    if (older !== null || this.#options.loadsChanged === true) this.#makeSet(fn, older, set.loadError !== null).load()
    const refusal = this.#refusalOf(fn)
    for (const call of waiting) {
      if (refusal === null) this.setOf(fn).dispatch(call)
      else call.cut(refusal)
    }
  }

  /** Functions without a set that are new or have other files than before; none at the start, or when too many are. */
  #findChanged(functions: ReadonlyMap<string, FunctionVersion>): readonly FunctionVersion[] {
    const before = this.#functions
    if (before.size === 0) return []
    const changed: FunctionVersion[] = []
    for (const [key, fn] of functions) {
      if (before.get(key)?.signature === fn.signature || this.#sets.has(key)) continue
      changed.push(fn)
      if (changed.length > MAX_LOADED_AHEAD) return []
    }
    return changed
  }

  /** True for a function that runs as another user from now on, or not at all. */
  #isMoved(fn: FunctionVersion): boolean {
    const { tenancy } = this.#options
    if (tenancy === null) return false
    return tenancy.refusalOf(fn) !== null || tenancy.stampOf(fn) !== this.#stamps.get(fn.key)
  }

  #refusalOf(fn: FunctionVersion): GatewayError | null {
    const hint = this.#options.tenancy?.refusalOf(fn) ?? null
    return hint === null ? null : new GatewayError('RUNTIME_DOWN', 'runtime down', { detail: { hint } })
  }

  #successorOf(key: string): WorkerSet | null {
    const current = this.#functions.get(key)
    if (current === undefined || this.#isClosing) return null
    return this.#refusalOf(current) === null ? this.setOf(current) : null
  }

  /**
   * @param older - serves until the function is loaded; null when nothing does
   * @param isFix - true when the version that it replaces could not be loaded
   */
  #makeSet(asked: FunctionVersion, older: OlderSet | null = null, isFix = false): WorkerSet {
    const { runtimes } = this.#options
    if (this.#isClosing) throw new GatewayError('SHUTTING_DOWN', 'gateway is shutting down')
    const runtime = runtimes.get(asked.runtime)
    if (runtime === undefined) throw new GatewayError('RUNTIME_DOWN', `runtime down: ${asked.runtime} is not enabled`)
    const refusal = this.#refusalOf(asked)
    if (refusal !== null) throw refusal
    // A call that began with an older catalog is served by the version of today, when there is one.
    const current = this.#functions.get(asked.key)
    const fn = current ?? asked
    const set: WorkerSet = new WorkerSet({
      ...this.#options,
      fn,
      // `max_workers` bounds the calls; each socket has its turn all the same.
      maxWorkers: Math.max(
        Math.min(toMaxActive(fn.policy) || MAX_WORKERS_UNLIMITED, runtime.maxWorkers),
        runtime.sockets?.count ?? 1,
      ),
      processors: this.#processors,
      minWarm: minWarmOf(fn),
      idleTtlMs: idleTtlSecondsOf(fn) * 1000,
      sockets: runtime.sockets,
      preparer: runtime.preparer,
      older,
      isFix,
      loads: this.#loads,
      isRetired: current === undefined,
      isLent: () => [...this.lentWorkers].some(lent => lent.fn.key === fn.key),
      successor: () => this.#successorOf(fn.key),
      spawn: (owner, program) => runtime.spawn(owner, program),
      onEmpty: () => {
        this.#leaving.delete(set)
        if (this.#leaving.size === 0) this.#emptied?.()
      },
    })
    if (current === undefined) this.#leaving.add(set)
    else {
      this.#sets.set(fn.key, set)
      this.#stamps.set(fn.key, this.#options.tenancy?.stampOf(fn) ?? '')
    }
    return set
  }
}

/** True when workers started for one may serve the other. */
function isSame(a: FunctionVersion, b: FunctionVersion): boolean {
  return a === b || (isSameVersion(a, b) && JSON.stringify(a.policy) === JSON.stringify(b.policy))
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
