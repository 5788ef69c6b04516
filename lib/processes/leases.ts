/**
 * Which acceptor may run calls of which function itself, on how many slots. In the first process. Owner: page processes/processes.
 *
 *   ask ─► lease ─► live ─(recalled, idle, changed)─► returned: free slots at once, used ones as their calls end ─► gone
 *
 * The slots of a lease count as taken here, so no more calls run than the limit says; and before a call is refused or has to
 * wait for long, every leased slot is asked back.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import { backoffDelay, type Clock, Timer } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import type { Admission } from '../invocation/admission.ts'
import { toAdmissionLimits } from '../invocation/policy.ts'
import type { Dispatcher } from '../runtime/dispatcher.ts'
import type { WorkerSource } from '../runtime/socket-worker.ts'
import { type FromAcceptor, type LeaseMessage, type ToAcceptor, toErrorHeader, type WorkerMessage } from './link.ts'

/** A smaller share of a limit is not worth a lease: such a function lives in the first process. */
const MIN_SHARE = 2
/** Milliseconds an acceptor has to answer a recall; calls that wait are then answered without it. */
const RECALL_TIMEOUT_MS = 1000
/** Milliseconds for which a function that was recalled is not leased again: first, largest, doubled each time. */
const REST_MS = { first: 1000, max: 60_000 } as const

export interface Lessee {
  post(message: ToAcceptor): void
}

interface Lease {
  readonly lessee: Lessee
  readonly key: string
  /** Slots that count here; 0 for an unlimited function. */
  slots: number
  isLive: boolean
  /** Calls that run on it, as reported last. */
  calls: number
}

/** Of a function that was asked back: until when (monotonic ms), and how often in a row. */
interface Rest {
  until: number
  times: number
}

interface LeasesOptions {
  clock: Clock
  admission: Pick<Admission, 'lease' | 'endLease' | 'giveBack' | 'settleRecall' | 'noteElsewhere' | 'onRecall'>
  /** Processes that share a limit. */
  processes: number
  /** The facts with which an acceptor starts workers of a function; null where only the first process can run it, or not now. */
  prepare(fn: FunctionVersion): Promise<Pick<LeaseMessage, 'program' | 'header'> | null>
  /** The function of a key in the catalog in force. */
  findFunction(key: string): FunctionVersion | null
}

export class Leases {
  readonly #options: LeasesOptions
  readonly #leases = new Map<number, Lease>()
  readonly #rests = new Map<string, Rest>()
  /** Of recalls that are not answered yet. */
  readonly #timers = new Map<string, Timer>()
  #lastId = 0

  constructor(options: LeasesOptions) {
    this.#options = options
    options.admission.onRecall = key => this.#recall(key)
  }

  /** An acceptor has many calls of a function. It gets a lease, or hears nothing. */
  async ask(lessee: Lessee, key: string): Promise<void> {
    const { clock, admission, processes, prepare, findFunction } = this.#options
    const fn = findFunction(key)
    if (fn === null || clock.monotonic() < (this.#rests.get(key)?.until ?? 0)) return
    const { maxWorkers } = toAdmissionLimits(fn.policy)
    const share = Math.floor(maxWorkers / processes)
    if (maxWorkers !== 0 && share < MIN_SHARE) return
    const prepared = await prepare(fn)
    const isLeased = (one: Lease): boolean => one.lessee === lessee && one.key === key && one.isLive
    if (prepared === null || findFunction(key) !== fn || [...this.#leases.values()].some(isLeased)) return
    const slots = maxWorkers === 0 ? 0 : admission.lease(fn, share)
    if (maxWorkers !== 0 && slots < MIN_SHARE) {
      admission.endLease(key, slots, 0)
      return
    }
    this.#lastId += 1
    this.#leases.set(this.#lastId, { lessee, key, slots, isLive: true, calls: 0 })
    lessee.post({ kind: 'lease', id: this.#lastId, key, slots, ...prepared })
  }

  /** An acceptor gives a lease back. @param used - slots with calls, each given back by `free` when its call ends */
  end(lessee: Lessee, id: number, used: number): void {
    const lease = this.#leases.get(id)
    if (lease?.lessee !== lessee || !lease.isLive) return
    const taken = Math.max(0, Math.min(used, lease.slots))
    const free = lease.slots - taken
    this.#note(lease, 0)
    lease.isLive = false
    lease.slots = taken
    if (taken === 0) this.#leases.delete(id)
    this.#options.admission.endLease(lease.key, free, taken)
  }

  /** A call that ran on a lease that was given back has ended. */
  free(lessee: Lessee, id: number): void {
    const lease = this.#leases.get(id)
    if (lease?.lessee !== lessee || lease.isLive || lease.slots === 0) return
    lease.slots -= 1
    if (lease.slots === 0) this.#leases.delete(id)
    this.#options.admission.giveBack(lease.key, 1)
  }

  /** @param used - calls that run now, by lease */
  note(lessee: Lessee, used: readonly (readonly [id: number, calls: number])[]): void {
    for (const [id, calls] of used) {
      const lease = this.#leases.get(id)
      if (lease?.lessee === lessee && lease.isLive) this.#note(lease, calls)
    }
  }

  /** An acceptor is gone, and every call that it ran. */
  drop(lessee: Lessee): void {
    for (const [id, lease] of this.#leases) {
      if (lease.lessee !== lessee) continue
      this.#note(lease, 0)
      this.#leases.delete(id)
      if (lease.isLive) this.#options.admission.endLease(lease.key, lease.slots, 0)
      else this.#options.admission.giveBack(lease.key, lease.slots)
    }
  }

  close(): void {
    this.#options.admission.onRecall = null
    for (const timer of this.#timers.values()) timer.clear()
  }

  #note(lease: Lease, calls: number): void {
    lease.calls = calls
    let sum = 0
    for (const other of this.#leases.values()) if (other.key === lease.key) sum += other.calls
    this.#options.admission.noteElsewhere(lease.key, sum)
  }

  #recall(key: string): void {
    const { clock, admission } = this.#options
    const now = clock.monotonic()
    const { until, times } = this.#rests.get(key) ?? { until: 0, times: 0 }
    const recent = now - until > REST_MS.max ? 0 : times
    this.#rests.set(key, { until: now + backoffDelay(recent, REST_MS), times: recent + 1 })
    for (const [id, lease] of this.#leases)
      if (lease.key === key && lease.isLive) lease.lessee.post({ kind: 'recall', id })
    if (this.#timers.has(key)) return
    const timer = new Timer(clock, true)
    this.#timers.set(key, timer)
    timer.set(RECALL_TIMEOUT_MS, () => {
      this.#timers.delete(key)
      admission.settleRecall(key)
    })
  }
}

// Workers that the first process has started for one acceptor, and ends on request or when the acceptor is gone.

type StartMessage = Extract<FromAcceptor, { kind: 'startWorker' }>

interface LentWorkersOptions {
  clock: Pick<Clock, 'monotonic'>
  dispatcher: Pick<Dispatcher, 'lend'>
  /** The source of workers of a function; null where there is none. */
  sourceOf(fn: FunctionVersion, program: string | null): WorkerSource | null
  findFunction(key: string): FunctionVersion | null
  post(message: WorkerMessage): void
}

export class LentWorkers {
  readonly #options: LentWorkersOptions
  readonly #kills = new Map<number, (graceMs: number) => void>()
  #isClosed = false

  constructor(options: LentWorkersOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#kills.size
  }

  start({ ask, key, program }: StartMessage): void {
    this.#start(ask, key, program).catch(error =>
      this.#options.post({ kind: 'noWorker', ask, error: toErrorHeader(toGatewayError(error)) }),
    )
  }

  stop(ask: number, graceMs: number): void {
    this.#kills.get(ask)?.(graceMs)
  }

  /** The acceptor is gone: nothing else would end its workers. */
  close(): void {
    this.#isClosed = true
    for (const kill of this.#kills.values()) kill(0)
  }

  async #start(ask: number, key: string, program: string | null): Promise<void> {
    const { clock, dispatcher, findFunction, sourceOf, post } = this.#options
    const fn = findFunction(key)
    const source = fn === null ? null : sourceOf(fn, program)
    if (fn === null || source === null) throw new GatewayError('RUNTIME_DOWN', 'runtime down')
    // The acceptor has no sockets to choose from.
    const started = await source.startWorker({ set: { fn, loadOf: () => 0 }, socketIndex: 0 })
    if (this.#isClosed) {
      started.kill(0)
      return
    }
    this.#kills.set(ask, graceMs => started.kill(graceMs))
    const { id, uri, isShared, trust, socketIndex, pid } = started
    const forget = dispatcher.lend({ fn, socketIndex, pid, startedAt: clock.monotonic() })
    post({ kind: 'worker', ask, worker: { id, uri, isShared, trust, socketIndex, pid } })
    const exit = await started.ended
    forget()
    this.#kills.delete(ask)
    post({ kind: 'workerExit', ask, exit })
  }
}
