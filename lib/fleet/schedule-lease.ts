/**
 * The schedules of a fleet: one gateway leads, which is the one that holds the lease, and keeps their states in the store. Every write
 * contains the lease: a gateway that has lost it without noticing is refused, and a run that it cannot note does not begin.
 * Spec: page fleet/schedule-lease.
 */

import { type Clock, Timer } from '../core/clock.ts'
import { parseObject } from '../core/json.ts'
import {
  type KeptStates,
  type ScheduleState,
  type ScheduleStore,
  toScheduleState,
  toStateRecord,
} from '../scheduler/schedule-store.ts'
import type { Store } from './fleet-store.ts'

/** Milliseconds for which a lease holds, and between its renewals. */
export const LEASE_MS = 10_000
const RENEW_MS = 2500

/** KEYS: lease, number. ARGV: gateway, ms. */
const ACQUIRE = `
local holder = redis.call('GET', KEYS[1])
if holder then return {holder, 0} end
local lease = ARGV[1] .. '#' .. redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], lease, 'PX', ARGV[2])
return {lease, 1}`

/** KEYS: lease. ARGV: lease, ms; 0 gives it up. */
const RENEW = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then redis.call('DEL', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1`

/** KEYS: lease, states. ARGV: lease, then key and state in turn; '' deletes. */
const SAVE = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', KEYS[2], ARGV[i]) else redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
end
return 1`

/** Keys of states in one command. */
const BATCH = 500

interface Scripts {
  fngwAcquire(keys: number, ...words: (string | number)[]): Promise<[string, number]>
  fngwRenew(keys: number, ...words: (string | number)[]): Promise<number>
  fngwKeep(keys: number, ...words: (string | number)[]): Promise<number>
}

interface ScheduleLeaseOptions {
  store: Store
  clock: Clock
  /** Of this gateway. */
  id: string
}

export class ScheduleLease implements ScheduleStore {
  readonly isShared = true
  onLost: (() => void) | null = null
  readonly #options: ScheduleLeaseOptions
  readonly #scripts: Scripts
  /** null while another gateway leads. */
  #lease: string | null = null
  /** Monotonic, ms: until then no other gateway can have it. */
  #heldUntil = 0
  readonly #timer: Timer

  constructor(options: ScheduleLeaseOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock, true)
    const { redis } = options.store
    redis.defineCommand('fngwAcquire', { lua: ACQUIRE })
    redis.defineCommand('fngwRenew', { lua: RENEW })
    redis.defineCommand('fngwKeep', { lua: SAVE })
    this.#scripts = redis as unknown as Scripts
  }

  get isLeader(): boolean {
    return this.#lease !== null
  }

  async open(): ReturnType<ScheduleStore['open']> {
    const { store, id, clock } = this.#options
    try {
      const asked = clock.monotonic()
      const keys = [store.key('leader'), store.key('leases')]
      const [lease, isOurs] = await store.ask(() => this.#scripts.fngwAcquire(2, ...keys, id, LEASE_MS))
      if (isOurs === 0) return { heldBy: `gateway ${lease.slice(0, lease.lastIndexOf('#'))}` }
      this.#lease = lease
      this.#heldUntil = asked + LEASE_MS
      this.#renewLater()
      const states = new Map<string, ScheduleState>()
      for (const [key, text] of Object.entries(await store.ask(redis => redis.hgetall(store.key('schedules'))))) {
        const state = toScheduleState(parseObject(text))
        if (state !== null) states.set(key, state)
      }
      return { states, warnings: [] }
    } catch (error) {
      this.#lease = null
      this.#timer.clear()
      return { heldBy: (error as Error).message }
    }
  }

  /** Nothing: the leader shows its schedules. */
  peek(): ReadonlyMap<string, ScheduleState> {
    return new Map()
  }

  async save(changes: KeptStates): Promise<void> {
    const { store } = this.#options
    const all = [...changes]
    for (let at = 0; at < all.length; at += BATCH) {
      if (this.#lease === null) throw new Error('another gateway may lead')
      const words = all
        .slice(at, at + BATCH)
        .flatMap(([key, state]) => [key, state === null ? '' : JSON.stringify(toStateRecord(state))])
      const keys = [store.key('leader'), store.key('schedules')]
      const isKept = await store
        .ask(() => this.#scripts.fngwKeep(2, ...keys, this.#lease!, ...words))
        .catch(error => {
          this.#lose()
          throw error
        })
      if (isKept === 1) continue
      this.#lose()
      throw new Error('another gateway leads')
    }
  }

  async flush(): Promise<void> {}

  async close(): Promise<void> {
    this.#timer.clear()
    const { store } = this.#options
    const lease = this.#lease
    this.#lease = null
    if (lease !== null) await store.ask(() => this.#scripts.fngwRenew(1, store.key('leader'), lease, 0)).catch(() => {})
  }

  #renewLater(): void {
    this.#timer.set(RENEW_MS, () => void this.#renew())
  }

  async #renew(): Promise<void> {
    const { store, clock } = this.#options
    const lease = this.#lease
    if (lease === null) return
    const asked = clock.monotonic()
    const isOurs = await store
      .ask(() => this.#scripts.fngwRenew(1, store.key('leader'), lease, LEASE_MS))
      .catch(() => null)
    if (this.#lease !== lease) return
    if (isOurs === 1) this.#heldUntil = asked + LEASE_MS
    // The store may come back before the lease has ended.
    if (isOurs === 0 || clock.monotonic() + RENEW_MS >= this.#heldUntil) this.#lose()
    else this.#renewLater()
  }

  #lose(): void {
    if (this.#lease === null) return
    this.#lease = null
    this.#timer.clear()
    this.onLost?.()
  }
}
