/** Pings that keep workers of some functions started, and the queue that they share with schedules. Spec: §2.9. */

import type { FunctionVersion, KeepWarmPolicy } from '../core/catalog.ts'
import { type Clock, Timer } from '../core/clock.ts'
import { Heap, type HeapItem } from '../core/collections.ts'
import { isSameVersion, toFunctionPath } from '../core/versions.ts'
import { TRIGGER_HEADER } from '../invocation/forwarded-headers.ts'
import type { InternalRequest, InternalResult } from '../invocation/internal-call.ts'
import type { RequestIds } from '../invocation/event.ts'

/** The pings of one function. Times are wall clock, ms. */
interface KeepWarmState {
  /** Last good response to a ping; null before the first. */
  warmAt: number | null
  next: number
  last: number | null
  lastStatus: number | null
  lastError: string | null
}

export interface KeepWarmRow {
  fn: FunctionVersion
  policy: KeepWarmPolicy
  state: Readonly<KeepWarmState>
}

export interface PingOutcome {
  status: number
  /** Why the function did not respond; null when it did. */
  error: string | null
}

interface KeepWarmOptions {
  clock: Clock
  queue: WorkQueue
  /** Calls the function through its own admission. Never rejects. */
  ping: (fn: FunctionVersion) => Promise<PingOutcome>
}

/** A ping is a call like any other: GET where it is allowed, else the first method. */
export function pingMethod(fn: FunctionVersion): string {
  return fn.policy.methods.includes('GET') ? 'GET' : (fn.policy.methods[0] ?? 'GET')
}

function policyOf(fn: FunctionVersion): KeepWarmPolicy | null {
  const { keepWarm } = fn.policy
  return keepWarm?.enabled && keepWarm.minWarm > 0 ? keepWarm : null
}

/** One function that is pinged. */
class Entry implements Work {
  heapIndex = -1
  dueAt = Infinity
  fn: FunctionVersion
  policy: KeepWarmPolicy
  readonly state: KeepWarmState
  readonly onDue: () => void

  constructor(fn: FunctionVersion, policy: KeepWarmPolicy, now: number, onDue: (entry: Entry) => void) {
    this.fn = fn
    this.policy = policy
    this.state = { warmAt: null, next: now, last: null, lastStatus: null, lastError: null }
    this.onDue = () => onDue(this)
  }
}

/** Pings what is due; a ping that still runs is not joined by another. */
export class KeepWarm {
  readonly #options: KeepWarmOptions
  readonly #entries = new Map<string, Entry>()

  constructor(options: KeepWarmOptions) {
    this.#options = options
  }

  /** Takes the functions of a catalog. A function whose code or config changed begins with a new state. */
  adopt(functions: ReadonlyMap<string, FunctionVersion>): void {
    const { clock, queue } = this.#options
    const now = clock.wall()
    for (const [key, entry] of this.#entries) {
      const fn = functions.get(key)
      if (fn !== undefined && policyOf(fn) !== null && isSameVersion(fn, entry.fn)) continue
      this.#entries.delete(key)
      queue.remove(entry)
    }
    for (const fn of functions.values()) {
      const policy = policyOf(fn)
      if (policy === null) continue
      const known = this.#entries.get(fn.key)
      if (known !== undefined) {
        known.fn = fn
        known.policy = policy
        continue
      }
      const entry = new Entry(fn, policy, now, one => void this.#ping(one))
      this.#entries.set(fn.key, entry)
      queue.put(entry, now)
    }
  }

  /** A clock that was set back does not stop the pings: one that is further away than an interval is due now. */
  setBack(now: number): void {
    const { queue } = this.#options
    for (const entry of this.#entries.values()) {
      const { state, policy } = entry
      if (entry.heapIndex < 0 || state.next - now <= policy.pingEverySeconds * 1000) continue
      state.next = now
      queue.put(entry, now)
    }
  }

  /** By key. */
  rows(): KeepWarmRow[] {
    const rows = [...this.#entries.values()].map(({ fn, policy, state }) => ({ fn, policy, state }))
    return rows.sort((a, b) => (a.fn.key < b.fn.key ? -1 : 1))
  }

  async #ping(entry: Entry): Promise<void> {
    const { clock, queue, ping } = this.#options
    const { state } = entry
    const { status, error } = await ping(entry.fn)
    const now = clock.wall()
    state.last = now
    state.lastStatus = status
    state.lastError = error
    if (error === null && status > 0 && status < 500) state.warmAt = now
    state.next = now + entry.policy.pingEverySeconds * 1000
    if (this.#entries.get(entry.fn.key) === entry) queue.put(entry, state.next)
  }
}

/** Calls a function through its own admission, marked as a ping. Never rejects. */
export async function ping(
  invoke: (request: InternalRequest) => Promise<InternalResult>,
  ids: RequestIds,
  fn: FunctionVersion,
): Promise<PingOutcome> {
  const { status, error } = await invoke({
    fn,
    // The page of a request in the console reads from its id what it was.
    id: `ping-${ids.next()}`,
    method: pingMethod(fn),
    path: toFunctionPath(fn.name, fn.version),
    query: { __fn_keep_warm: '1' },
    headers: { [TRIGGER_HEADER]: 'keep_warm', 'user-agent': 'fngw-keep-warm' },
    trigger: { type: 'keep_warm' },
    isUnchecked: true,
  })
  return { status, error: error?.message ?? null }
}

// The clock of the scheduler: work in a heap by its due time, checked once per tick. A tick costs as much as there is due work.

export interface Work extends HeapItem {
  /** Wall clock, ms; kept by the queue. */
  dueAt: number
  /** The work is due and has left the queue. */
  onDue(now: number): void
}

/** Work begun in one turn of the event loop; the rest follows in the next ones. */
export const WORK_PER_TURN = 100
/** Milliseconds by which the wall clock must fall behind the steady one to count as set back. */
const SET_BACK_MS = 1000

interface WorkQueueOptions {
  clock: Clock
  /** Milliseconds between two ticks. */
  tickMs: number
  /** The wall clock was set back: due times have to be calculated again. */
  onSetBack: (now: number) => void
}

export class WorkQueue {
  readonly #options: WorkQueueOptions
  readonly #heap = new Heap<Work>((a, b) => a.dueAt < b.dueAt)
  readonly #timer: Timer
  #isStopped = false
  #lastWall: number | null = null
  #lastMonotonic = 0

  constructor(options: WorkQueueOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock, true)
  }

  get size(): number {
    return this.#heap.size
  }

  /** Puts work in, or moves it. */
  put(work: Work, dueAt: number): void {
    work.dueAt = dueAt
    this.#heap.put(work)
  }

  remove(work: Work): void {
    this.#heap.remove(work)
  }

  /** Ticks now and from now on. */
  start(): void {
    if (!this.#timer.isSet && !this.#isStopped) this.#run()
  }

  stop(): void {
    this.#isStopped = true
    this.#timer.clear()
  }

  /** Begins the due work. @returns true when there is more */
  tick(): boolean {
    const { clock, onSetBack } = this.#options
    const now = clock.wall()
    if (this.#wasSetBack(now)) onSetBack(now)
    for (let begun = 0; begun < WORK_PER_TURN; begun++) {
      const { first } = this.#heap
      if (first === undefined || first.dueAt > now) return false
      this.remove(first)
      first.onDue(now)
    }
    return (this.#heap.first?.dueAt ?? Infinity) <= now
  }

  #run(): void {
    const { clock, tickMs } = this.#options
    const hasMore = this.tick()
    if (this.#isStopped) return
    // At whole ticks of the wall clock: work that is due at a whole second begins at once.
    this.#timer.set(hasMore ? 0 : tickMs - (clock.wall() % tickMs), () => this.#run())
  }

  #wasSetBack(now: number): boolean {
    const monotonic = this.#options.clock.monotonic()
    const expected = this.#lastWall === null ? now : this.#lastWall + monotonic - this.#lastMonotonic
    this.#lastWall = now
    this.#lastMonotonic = monotonic
    return expected - now >= SET_BACK_MS
  }
}
