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
import { FLUSH_FRAMES, SocketWorker } from '../runtime/socket-worker.ts'
import { type StartedWorker, WorkerEnd, type WorkerSource } from '../runtime/started-worker.ts'
import { WorkerSet } from '../runtime/worker-set.ts'
import { type FromAcceptor, fromErrorHeader, type LeaseMessage, type WorkerMessage } from './link.ts'

/** Calls of a function within one look, from which on a lease is asked for. */
const MANY_CALLS = 32
/** Milliseconds without a call after which a lease is given back, and an idle worker of one is stopped. */
const LEASE_IDLE_MS = 30_000

/** A function whose calls run here. It is what its calls have in place of a slot. */
class Lease {
  readonly id: number
  readonly key: string
  readonly fn: FunctionVersion
  readonly set: WorkerSet
  /** Slots; 0 for as many as come. */
  readonly slots: number
  /** Calls that run on it. */
  active = 0
  isOver = false
  /** Monotonic ms. */
  usedAt: number

  constructor(id: number, fn: FunctionVersion, slots: number, set: WorkerSet) {
    this.id = id
    this.key = fn.key
    this.fn = fn
    this.slots = slots
    this.set = set
    this.usedAt = set.clock.monotonic()
  }

  get hasRoom(): boolean {
    return (this.slots === 0 || this.active < this.slots) && this.set.isWarm
  }
}

interface AcceptorLeasesOptions {
  clock: Clock
  /** Memory for bodies on their way from workers to clients. */
  pool: BytePool
  workers: RemoteWorkers
  /** Processes of the gateway. */
  processes: number
  post: (message: FromAcceptor) => void
  onLog(fn: FunctionVersion, stream: 'stdout' | 'stderr', text: string): void
  onFailure: ConstructorParameters<typeof WorkerSet>[0]['onFailure']
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
    if (lease !== undefined && lease.fn === fn && lease.hasRoom) return lease
    if (lease === undefined) this.#count(fn.key)
    return null
  }

  /** Takes a slot of the lease. */
  enter(lease: Lease): void {
    lease.active += 1
  }

  leave(lease: Lease): void {
    lease.active -= 1
    if (lease.isOver && lease.slots > 0) this.#options.post({ kind: 'freed', id: lease.id })
  }

  /** True for a slot that is of a lease. */
  isOf(slots: object | null): slots is Lease {
    return slots instanceof Lease
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
    const lease = new Lease(id, fn, slots, set)
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
    for (const lease of [...this.#leases.values()]) if (functions.get(lease.key) !== lease.fn) this.#end(lease)
  }

  /** Runs every now and then: unused leases end. */
  look(): void {
    this.#relayed.clear()
    const now = this.#options.clock.monotonic()
    for (const lease of [...this.#leases.values()]) {
      if (lease.active > 0) lease.usedAt = now
      else if (now - lease.usedAt > LEASE_IDLE_MS) this.#end(lease)
    }
  }

  /** Calls that run on leases, by lease. */
  get used(): (readonly [id: number, calls: number])[] {
    return [...this.#leases.values()].map(({ id, active }) => [id, active] as const)
  }

  /** Ends every worker. */
  close(): void {
    for (const lease of [...this.#leases.values()]) this.#end(lease)
    for (const set of [...this.#leaving]) set.close()
  }

  #count(key: string): void {
    const count = (this.#relayed.get(key) ?? 0) + 1
    this.#relayed.set(key, count)
    if (count === MANY_CALLS) this.#options.post({ kind: 'ask', key })
  }

  #end(lease: Lease): void {
    lease.isOver = true
    this.#leases.delete(lease.key)
    this.#options.post({ kind: 'returned', id: lease.id, used: lease.active })
    this.#leaving.add(lease.set)
    lease.set.retire()
  }
}

// Worker processes that the first process starts and ends for an acceptor, which connects to them itself. In an acceptor.

interface Asked {
  resolve(worker: StartedWorker): void
  reject(error: GatewayError): void
  onSocket(socketIndex: number): void
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
      startWorker: (fn, _loadOf, onSocket) =>
        new Promise((resolve, reject) => {
          this.#lastAsk += 1
          this.#asked.set(this.#lastAsk, { resolve, reject, onSocket })
          this.#post({ kind: 'startWorker', ask: this.#lastAsk, key: fn.key, program, header })
        }),
    }
  }

  handle(message: WorkerMessage): void {
    if (message.kind === 'workerExit') {
      this.#live.get(message.ask)?.settle(message.exit)
      this.#live.delete(message.ask)
    } else if (message.kind === 'worker') this.#handleStarted(message)
    else {
      this.#asked
        .get(message.ask)
        ?.reject(fromErrorHeader(message.error) ?? new GatewayError('RUNTIME_DOWN', 'runtime down'))
      this.#asked.delete(message.ask)
    }
  }

  #handleStarted({ ask, worker }: Extract<WorkerMessage, { kind: 'worker' }>): void {
    const asked = this.#asked.get(ask)
    if (asked === undefined) return
    this.#asked.delete(ask)
    const end = new WorkerEnd()
    this.#live.set(ask, end)
    asked.onSocket(worker.socketIndex)
    asked.resolve({
      ...worker,
      kill: graceMs => {
        if (end.exit === null) this.#post({ kind: 'stopWorker', ask, graceMs })
      },
      onExit: listener => end.listen(listener),
    })
  }
}
