/**
 * The schedules of a fleet: one gateway leads, which is the one that holds the lease, and keeps their states in the store. Every write
 * contains the lease: a gateway that has lost it without noticing is refused, and a run that it cannot note does not begin.
 * Spec: page fleet/schedule-lease.
 *
 *   newest release   holds `leader`       times all schedules of its tree     states in `schedules`
 *   an older one     holds `leader:old`   times those that are not in there   states in `schedules:old`
 *
 * Runs take place at any gateway (fleet-runs.ts), so a lease changes hands while they go on: the next leader follows them.
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
import { RUNS, toRunId } from './fleet-runs.ts'
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

/** A run that was taken meanwhile stays taken. One that is not noted any more must not be taken. */
const NOTE_RUN = `
local function note(key, run)
  if run == '' then return redis.call('HDEL', KEYS[4], key) end
  local known = redis.call('HGET', KEYS[4], key)
  if not known or string.match(known, '^%S+') ~= run then redis.call('HSET', KEYS[4], key, run) end
end`

/**
 * KEYS: lease, states of the newest release, of older ones, runs. ARGV: lease, ms for which states of older releases are kept or '' where
 * there is no older gateway, then key, state and run in turn; '' deletes.
 */
const SAVE = `${NOTE_RUN}
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
for i = 3, #ARGV, 3 do
  local key, state = ARGV[i], ARGV[i + 1]
  -- An older gateway may follow the run of a schedule that goes.
  if state ~= '' or ARGV[2] == '' then note(key, ARGV[i + 2]) end
  if state ~= '' then
    redis.call('HSET', KEYS[2], key, state)
  else
    local before = redis.call('HGET', KEYS[2], key)
    if before and ARGV[2] ~= '' then
      redis.call('HSET', KEYS[3], key, before)
      redis.call('PEXPIRE', KEYS[3], ARGV[2])
    end
    redis.call('HDEL', KEYS[2], key)
  end
end
return 1`

/** As SAVE, for an older release: of what the newest one has nothing is written. */
const SAVE_OLD = `${NOTE_RUN}
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
for i = 3, #ARGV, 3 do
  if ARGV[i + 1] ~= '' and redis.call('HEXISTS', KEYS[2], ARGV[i]) == 1 then return 0 end
end
for i = 3, #ARGV, 3 do
  if redis.call('HEXISTS', KEYS[2], ARGV[i]) == 0 then note(ARGV[i], ARGV[i + 2]) end
  if ARGV[i + 1] == '' then redis.call('HDEL', KEYS[3], ARGV[i]) else redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end
end
redis.call('PEXPIRE', KEYS[3], ARGV[2])
return 1`

/** Keys of states in one command. */
const BATCH = 500
/** Milliseconds for which states are kept that only older releases have. */
const OLD_STATES_MS = 86_400_000

type Role = 'newest' | 'older'
const LEASES: Readonly<Record<Role, readonly string[]>> = { newest: ['leader'], older: ['leader', 'old'] }

interface Scripts {
  fngwAcquire(keys: number, ...words: (string | number)[]): Promise<[string, number]>
  fngwRenew(keys: number, ...words: (string | number)[]): Promise<number>
  fngwKeep(keys: number, ...words: (string | number)[]): Promise<number>
  fngwKeepOld(keys: number, ...words: (string | number)[]): Promise<number>
}

interface ScheduleLeaseOptions {
  store: Store
  clock: Clock
  /** Of this gateway. */
  id: string
  /** Whether live gateways have a newer release than this one, or an older one. */
  rivals: () => { hasNewer: boolean; hasOlder: boolean }
}

export class ScheduleLease implements ScheduleStore {
  readonly isShared = true
  onLost: (() => void) | null = null
  readonly #options: ScheduleLeaseOptions
  readonly #scripts: Scripts
  /** null while another gateway leads. */
  #lease: string | null = null
  /** Of the lease that is held, or was held last. */
  #role: Role = 'newest'
  /** Schedules of the newest release, which an older one leaves alone. */
  #elsewhere: ReadonlySet<string> = new Set()
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
    redis.defineCommand('fngwKeepOld', { lua: SAVE_OLD })
    this.#scripts = redis as unknown as Scripts
  }

  get isLeader(): boolean {
    return this.#lease !== null
  }

  /** Id of the gateway that runs a schedule; null when none does. @throws GatewayError RUNTIME_DOWN */
  async holderOf(key: string): Promise<string | null> {
    const { store } = this.#options
    const isNewest = (await store.ask(redis => redis.hexists(store.key('schedules'), key))) === 1
    const lease = await store.ask(redis => redis.get(store.key(...LEASES[isNewest ? 'newest' : 'older'])))
    return lease === null ? null : lease.slice(0, lease.lastIndexOf('#'))
  }

  async open(): ReturnType<ScheduleStore['open']> {
    const { store, id, clock } = this.#options
    try {
      const asked = clock.monotonic()
      const role = this.#wantedRole
      const keys = [store.key(...LEASES[role]), store.key('leases')]
      const [lease, isOurs] = await store.ask(() => this.#scripts.fngwAcquire(2, ...keys, id, LEASE_MS))
      if (isOurs === 0) return { heldBy: `gateway ${lease.slice(0, lease.lastIndexOf('#'))}` }
      this.#lease = lease
      this.#role = role
      this.#heldUntil = asked + LEASE_MS
      this.#renewLater()
      const [newest, old] = [await this.#read('schedules'), await this.#read('schedules', 'old')]
      this.#elsewhere = new Set(role === 'older' ? newest.keys() : [])
      // States that the newest release does not have are those of older ones: after a rollback it continues from there.
      return { states: role === 'older' ? old : new Map([...old, ...newest]), elsewhere: this.#elsewhere, warnings: [] }
    } catch (error) {
      this.#lease = null
      this.#timer.clear()
      return { problem: (error as Error).message }
    }
  }

  async peek(): Promise<ReadonlyMap<string, ScheduleState>> {
    try {
      return new Map([...(await this.#read('schedules', 'old')), ...(await this.#read('schedules'))])
    } catch {
      // The store is away: shown without their last runs.
      return new Map()
    }
  }

  async save(changes: KeptStates): Promise<void> {
    const { store } = this.#options
    const all = [...changes]
    for (let at = 0; at < all.length; at += BATCH) {
      if (this.#lease === null) throw new Error('another gateway may lead')
      const words = all
        .slice(at, at + BATCH)
        .flatMap(([key, state]) => [key, ...(state === null ? ['', ''] : [toText(state), toRunId(key, state)])])
      const isOld = this.#role === 'older'
      const keepMs = isOld || this.#options.rivals().hasOlder ? OLD_STATES_MS : ''
      const states = [store.key('schedules'), store.key('schedules', 'old')]
      const args = [store.key(...LEASES[this.#role]), ...states, store.key(...RUNS), this.#lease, keepMs, ...words]
      const isKept = await store
        .ask(() => (isOld ? this.#scripts.fngwKeepOld(4, ...args) : this.#scripts.fngwKeep(4, ...args)))
        .catch(error => {
          this.#lose()
          throw error
        })
      if (isKept === 1) continue
      // Refused for a schedule of the newest release, it may still hold its lease.
      if (this.#lease !== null) await this.#giveUp(this.#lease)
      this.#lose()
      throw new Error('another gateway leads')
    }
  }

  async flush(): Promise<void> {}

  async close(): Promise<void> {
    this.#timer.clear()
    const lease = this.#lease
    this.#lease = null
    if (lease !== null) await this.#giveUp(lease)
  }

  get #wantedRole(): Role {
    return this.#options.rivals().hasNewer ? 'older' : 'newest'
  }

  async #read(...names: string[]): Promise<Map<string, ScheduleState>> {
    const { store } = this.#options
    const states = new Map<string, ScheduleState>()
    for (const [key, text] of Object.entries(await store.ask(redis => redis.hgetall(store.key(...names))))) {
      const state = toScheduleState(parseObject(text))
      if (state !== null) states.set(key, state)
    }
    return states
  }

  async #giveUp(lease: string): Promise<void> {
    const { store } = this.#options
    const key = store.key(...LEASES[this.#role])
    await store.ask(() => this.#scripts.fngwRenew(1, key, lease, 0)).catch(() => {})
  }

  /** Whether this gateway should have another lease, or leave other schedules alone. */
  async #hasOtherRole(): Promise<boolean> {
    const { store } = this.#options
    if (this.#wantedRole !== this.#role) return true
    if (this.#role === 'newest') return false
    const keys = await store.ask(redis => redis.hkeys(store.key('schedules'))).catch(() => null)
    return keys !== null && (keys.length !== this.#elsewhere.size || keys.some(key => !this.#elsewhere.has(key)))
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
      .ask(() => this.#scripts.fngwRenew(1, store.key(...LEASES[this.#role]), lease, LEASE_MS))
      .catch(() => null)
    if (this.#lease !== lease) return
    if (isOurs === 1) this.#heldUntil = asked + LEASE_MS
    // The store may come back before the lease has ended.
    if (isOurs === 0 || clock.monotonic() + RENEW_MS >= this.#heldUntil) this.#lose()
    else {
      this.#renewLater()
      if (!(await this.#hasOtherRole()) || this.#lease !== lease) return
      await this.#giveUp(lease)
      this.#lose()
    }
  }

  #lose(): void {
    if (this.#lease === null) return
    this.#lease = null
    this.#timer.clear()
    this.onLost?.()
  }
}

function toText(state: ScheduleState): string {
  return JSON.stringify(toStateRecord(state))
}
