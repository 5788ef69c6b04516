/**
 * The functions whose calls an acceptor runs itself, and the asking for them. In an acceptor. Owner: page processes/processes.
 *
 *   many calls go over the line ─ ask ─►   ◄─ lease ─   a worker starts; while it is ready and slots are free, calls run here
 *   recalled, idle, or the function changed: no call begins any more ─ returned ─►, and ─ freed ─► for each that still runs
 */

import type { BytePool } from '../core/byte-pool.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { MAX_WORKERS_UNLIMITED } from '../core/limits.ts'
import { type Processors, systemProcessors } from '../runtime/growth.ts'
import {
  type AskedWorker,
  FLUSH_FRAMES,
  SocketWorker,
  type StartedWorker,
  WorkerEnd,
  type WorkerSource,
} from '../runtime/socket-worker.ts'
import { type FunctionEvents, WorkerSet } from '../runtime/worker-set.ts'
import { type FromAcceptor, fromErrorHeader, type LeaseMessage, type WorkerMessage } from './link.ts'

/** Calls of a function within one look, from which on a lease is asked for. */
const MANY_CALLS = 32
/** Milliseconds without a call after which a lease is given back, and an idle worker of one is stopped. */
const LEASE_IDLE_MS = 30_000

/** A function whose calls run here. It is what its calls have in place of a slot. */
export class Lease {
  readonly id: number
  readonly set: WorkerSet
  /** Slots; 0 for as many as come. */
  readonly slots: number
  active = 0
  isOver = false
  /** Monotonic ms. */
  usedAt: number

  constructor(id: number, slots: number, set: WorkerSet) {
    this.id = id
    this.slots = slots
    this.set = set
    this.usedAt = set.clock.monotonic()
  }

  get hasRoom(): boolean {
    return (this.slots === 0 || this.active < this.slots) && this.set.isWarm
  }
}

interface AcceptorLeasesOptions extends Pick<FunctionEvents, 'onLog' | 'onFailure'> {
  clock: Clock
  /** Memory for bodies on their way from workers to clients. */
  pool: BytePool
  workers: RemoteWorkers
  processes: number
  post: (message: FromAcceptor) => void
}

export class AcceptorLeases {
  readonly #options: AcceptorLeasesOptions
  readonly #processors: Processors
  readonly #leases = new Map<string, Lease>()
  /** Calls that went over the line since the last look, by key. */
  readonly #relayed = new Map<string, number>()
  readonly #leaving = new Set<WorkerSet>()
  #functions: ReadonlyMap<string, FunctionVersion> = new Map()

  constructor(options: AcceptorLeasesOptions) {
    this.#options = options
    this.#processors = systemProcessors(options.processes)
  }

  /** The lease that a new call of a function may run on; without one it goes over the line. */
  find(fn: FunctionVersion): Lease | null {
    const lease = this.#leases.get(fn.key)
    if (lease?.set.fn === fn && lease.hasRoom) return lease
    if (lease === undefined) {
      const count = (this.#relayed.get(fn.key) ?? 0) + 1
      this.#relayed.set(fn.key, count)
      if (count === MANY_CALLS) this.#options.post({ kind: 'ask', key: fn.key })
    }
    return null
  }

  /** A call that ran on a lease is over. */
  leave(lease: Lease): void {
    lease.active -= 1
    if (lease.isOver && lease.slots > 0) this.#options.post({ kind: 'freed', id: lease.id })
  }

  /** @returns null for a lease that is of no use here: it went back */
  take({ id, key, slots, program, header }: LeaseMessage): Lease | null {
    const { clock, pool, workers, processes, onLog, onFailure, post } = this.#options
    const fn = this.#functions.get(key)
    if (fn === undefined || this.#leases.has(key)) {
      post({ kind: 'returned', id, used: 0 })
      return null
    }
    const set: WorkerSet = new WorkerSet({
      fn,
      clock,
      maxWorkers: slots === 0 ? Math.ceil(MAX_WORKERS_UNLIMITED / processes) : slots,
      processors: this.#processors,
      minWarm: 0,
      idleTtlMs: LEASE_IDLE_MS,
      sockets: null,
      preparer: null,
      spawn: owner =>
        new SocketWorker(owner, workers.sourceOf(program, header), header, pool, FLUSH_FRAMES.besideOthers),
      onLog,
      onFailure,
      onEmpty: () => this.#leaving.delete(set),
    })
    const lease = new Lease(id, slots, set)
    this.#leases.set(key, lease)
    set.warm(1)
    return lease
  }

  recall(id: number): void {
    for (const lease of this.#leases.values()) if (lease.id === id) this.#end(lease)
  }

  /** A tree is about to be in force: leases of what changed end. */
  adopt(functions: ReadonlyMap<string, FunctionVersion>): void {
    this.#functions = functions
    for (const lease of this.#leases.values()) if (functions.get(lease.set.fn.key) !== lease.set.fn) this.#end(lease)
  }

  /** Runs every now and then: unused leases end. */
  look(): void {
    this.#relayed.clear()
    const now = this.#options.clock.monotonic()
    for (const lease of this.#leases.values()) {
      if (lease.active > 0) lease.usedAt = now
      else if (now - lease.usedAt > LEASE_IDLE_MS) this.#end(lease)
    }
  }

  /** Calls that run on leases, by lease. */
  get used(): (readonly [id: number, calls: number])[] {
    return [...this.#leases.values()].map(({ id, active }) => [id, active] as const)
  }

  close(): void {
    for (const lease of this.#leases.values()) this.#end(lease)
    for (const set of this.#leaving) set.close()
  }

  #end(lease: Lease): void {
    lease.isOver = true
    this.#leases.delete(lease.set.fn.key)
    this.#options.post({ kind: 'returned', id: lease.id, used: lease.active })
    this.#leaving.add(lease.set)
    lease.set.retire()
  }
}

// Worker processes that the first process starts and ends for an acceptor, which connects to them itself. In an acceptor.

interface Asked {
  worker: AskedWorker
  resolve(worker: StartedWorker): void
  reject(error: GatewayError): void
}

export class RemoteWorkers {
  readonly #post: (message: FromAcceptor) => void
  readonly #asked = new Map<number, Asked>()
  readonly #live = new Map<number, WorkerEnd>()
  #lastAsk = 0

  constructor(post: (message: FromAcceptor) => void) {
    this.#post = post
  }

  /** @param header - JSON text of the workers' `start` frame */
  sourceOf(program: string | null, header: string): WorkerSource {
    return {
      startWorker: worker =>
        new Promise((resolve, reject) => {
          this.#lastAsk += 1
          this.#asked.set(this.#lastAsk, { worker, resolve, reject })
          this.#post({ kind: 'startWorker', ask: this.#lastAsk, key: worker.set.fn.key, program, header })
        }),
    }
  }

  handle(message: WorkerMessage): void {
    const { ask } = message
    if (message.kind === 'workerExit') {
      this.#live.get(ask)?.settle(message.exit)
      this.#live.delete(ask)
      return
    }
    const asked = this.#asked.get(ask)
    this.#asked.delete(ask)
    if (asked === undefined) return
    if (message.kind === 'noWorker') {
      asked.reject(fromErrorHeader(message.error) ?? new GatewayError('RUNTIME_DOWN', 'runtime down'))
      return
    }
    const end = new WorkerEnd()
    this.#live.set(ask, end)
    asked.worker.socketIndex = message.worker.socketIndex
    const kill = (graceMs: number): void => {
      if (end.exit === null) this.#post({ kind: 'stopWorker', ask, graceMs })
    }
    asked.resolve({ ...message.worker, kill, ended: end.ended })
  }
}
