/** Pings that keep workers of some functions started. Spec: §2.9. */

import type { FunctionVersion, KeepWarmPolicy } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'

/** What is known of one function's pings. Times are wall clock, ms. */
interface KeepWarmState {
  /** Last good answer to a ping; null before the first. */
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
  /** Why there is no answer of the function; null when there is one. */
  error: string | null
}

interface KeepWarmOptions {
  clock: Clock
  /** Milliseconds between two looks at the functions. */
  tickMs: number
  /** Functions of the catalog in force, by key. */
  functions: () => ReadonlyMap<string, FunctionVersion>
  /** Calls the function through its own admission. Never rejects. */
  ping: (fn: FunctionVersion) => Promise<PingOutcome>
}

/** A ping is a call like any other: GET where it is allowed, else the first method. */
export function pingMethod(fn: FunctionVersion): string {
  return fn.policy.methods.includes('GET') ? 'GET' : (fn.policy.methods[0] ?? 'GET')
}

/** When the next ping is due after one that ended at `now`, ms; the clock may have been set back meanwhile. */
function nextPing(policy: KeepWarmPolicy, now: number): number {
  return now + policy.pingEverySeconds * 1000
}

/** True when a ping is due; a `next` further away than one interval is a leftover of another clock. */
function isPingDue(state: KeepWarmState, policy: KeepWarmPolicy, now: number): boolean {
  return now >= state.next || state.next - now > policy.pingEverySeconds * 1000
}

function policyOf(fn: FunctionVersion): KeepWarmPolicy | null {
  const { keepWarm } = fn.policy
  return keepWarm?.enabled && keepWarm.minWarm > 0 ? keepWarm : null
}

interface Entry {
  signature: string
  state: KeepWarmState
  running: boolean
}

/** Pings what is due, once per tick; a ping that still runs is not joined by another. */
export class KeepWarm {
  readonly #options: KeepWarmOptions
  readonly #entries = new Map<string, Entry>()
  #timer: NodeJS.Timeout | null = null
  #isStopped = false

  constructor(options: KeepWarmOptions) {
    this.#options = options
  }

  start(): void {
    if (this.#timer === null && !this.#isStopped) this.#arm()
  }

  stop(): void {
    this.#isStopped = true
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    this.#timer = null
  }

  /** One look at all functions. A function that is gone or changed loses its state with its old self. */
  tick(): void {
    const { clock, functions } = this.#options
    const now = clock.wall()
    const current = functions()
    for (const key of this.#entries.keys()) {
      const fn = current.get(key)
      if (fn === undefined || policyOf(fn) === null) this.#entries.delete(key)
    }
    for (const fn of current.values()) {
      const policy = policyOf(fn)
      if (policy === null) continue
      const entry = this.#entryOf(fn, now)
      if (!entry.running && isPingDue(entry.state, policy, now)) void this.#ping(fn, policy, entry)
    }
  }

  /** By key. */
  rows(): KeepWarmRow[] {
    const rows: KeepWarmRow[] = []
    for (const fn of this.#options.functions().values()) {
      const policy = policyOf(fn)
      if (policy !== null) rows.push({ fn, policy, state: this.#entryOf(fn, this.#options.clock.wall()).state })
    }
    return rows.sort((a, b) => (a.fn.key < b.fn.key ? -1 : 1))
  }

  #entryOf(fn: FunctionVersion, now: number): Entry {
    const known = this.#entries.get(fn.key)
    if (known?.signature === fn.signature) return known
    const state = { warmAt: null, next: now, last: null, lastStatus: null, lastError: null }
    const entry = { signature: fn.signature, state, running: false }
    this.#entries.set(fn.key, entry)
    return entry
  }

  async #ping(fn: FunctionVersion, policy: KeepWarmPolicy, entry: Entry): Promise<void> {
    const { clock, ping } = this.#options
    entry.running = true
    const { status, error } = await ping(fn)
    const now = clock.wall()
    entry.running = false
    entry.state.last = now
    entry.state.lastStatus = status
    entry.state.lastError = error
    if (error === null && status > 0 && status < 500) entry.state.warmAt = now
    entry.state.next = nextPing(policy, now)
  }

  #arm(): void {
    const { clock, tickMs } = this.#options
    this.#timer = clock.setTimeout(() => {
      this.tick()
      this.#arm()
    }, tickMs)
    this.#timer.unref?.()
  }
}
