/**
 * Sessions, failed logins and the saved state of the console, shared by the gateways of a fleet. Spec: page control/console-store.
 *
 *   <prefix>:sessions, :sessions:of   keys by their end; what each one is
 *   <prefix>:logins, :logins:count    networks by their first failure; how many failures each one has
 *   <prefix>:ui-state                 JSON
 *
 * Times are those of the store. Each change is one script, so that gateways which act at once count together.
 */

import { parseObject } from '../core/json.ts'
import {
  LOGIN_FAILURE_MS,
  MAX_LOGIN_ADDRESSES,
  MAX_LOGIN_FAILURES,
  MAX_SESSIONS,
  UI_STORE_BYTES,
} from '../core/limits.ts'
import type { Store } from './fleet-store.ts'

const NOW = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)`

/** KEYS: ends, sessions. ARGV: key, session, ms, most. */
const BEGIN_SESSION = `${NOW}
local surplus = math.max(0, redis.call('ZCARD', KEYS[1]) - ARGV[4] + 1)
local old = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)
if #old < surplus then old = redis.call('ZRANGE', KEYS[1], 0, surplus - 1) end
for _, key in ipairs(old) do
  redis.call('ZREM', KEYS[1], key)
  redis.call('HDEL', KEYS[2], key)
end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) < tonumber(ARGV[3]) then redis.call('PEXPIRE', key, ARGV[3]) end
end`

/** KEYS: ends, sessions. ARGV: keys. @returns a session or '' for each */
const FIND_SESSIONS = `${NOW}
local found = {}
for i, key in ipairs(ARGV) do
  local ends = redis.call('ZSCORE', KEYS[1], key)
  found[i] = ends and tonumber(ends) > now and redis.call('HGET', KEYS[2], key) or ''
end
return found`

/** KEYS: ends, sessions. ARGV: keys. */
const END_SESSIONS = `
for _, key in ipairs(ARGV) do
  redis.call('ZREM', KEYS[1], key)
  redis.call('HDEL', KEYS[2], key)
end`

/** KEYS: networks by time, counts. ARGV: network, ms that a failure counts, most failures, most networks. @returns ms to wait, or -1 */
const BEGIN_LOGIN = `${NOW}
local since = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or '-1')
local left = since + ARGV[2] - now
if since >= 0 and left > 0 then
  if tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or '0') >= tonumber(ARGV[3]) then return math.ceil(left) end
  redis.call('HINCRBY', KEYS[2], ARGV[1], 1)
  return -1
end
local old = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
local surplus = redis.call('ZCARD', KEYS[1]) - ARGV[4] + 1
if #old < surplus then old = redis.call('ZRANGE', KEYS[1], 0, surplus - 1) end
for _, network in ipairs(old) do
  redis.call('ZREM', KEYS[1], network)
  redis.call('HDEL', KEYS[2], network)
end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], 1)
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[2]) end
return -1`

/** KEYS: networks by time, counts. ARGV: network. */
const SUCCEED_LOGIN = `
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then return end
if redis.call('HINCRBY', KEYS[2], ARGV[1], -1) > 0 then return end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])`

/** KEYS: state, where one goes that cannot be used. ARGV: state or '', state before or '', 1 for one that cannot be used. */
const WRITE_STATE = `
local before = redis.call('GET', KEYS[1]) or ''
-- One that is too large was not read.
if before ~= ARGV[2] and not (ARGV[3] == '1' and ARGV[2] == '') then return 0 end
if before ~= '' and ARGV[3] == '1' then redis.call('RENAME', KEYS[1], KEYS[2]) end
if ARGV[1] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[1]) end
return 1`

type Words = (string | number)[]

interface Scripts {
  fngwBeginSession(keys: number, ...words: Words): Promise<null>
  fngwFindSessions(keys: number, ...words: Words): Promise<string[]>
  fngwEndSessions(keys: number, ...words: Words): Promise<null>
  fngwBeginLogin(keys: number, ...words: Words): Promise<number>
  fngwSucceedLogin(keys: number, ...words: Words): Promise<null>
  fngwWriteState(keys: number, ...words: Words): Promise<number>
}

/** As `lib/control` describes it. */
export class FleetConsole {
  readonly statePlace = 'the state in the store'
  readonly #store: Store
  readonly #scripts: Scripts
  readonly #sessions: readonly [string, string]
  readonly #logins: readonly [string, string]
  readonly #states: readonly [string, string]

  constructor(store: Store) {
    this.#store = store
    this.#sessions = [store.key('sessions'), store.key('sessions', 'of')]
    this.#logins = [store.key('logins'), store.key('logins', 'count')]
    this.#states = [store.key('ui-state'), store.key('ui-state', 'unused')]
    const { redis } = store
    redis.defineCommand('fngwBeginSession', { lua: BEGIN_SESSION })
    redis.defineCommand('fngwFindSessions', { lua: FIND_SESSIONS })
    redis.defineCommand('fngwEndSessions', { lua: END_SESSIONS })
    redis.defineCommand('fngwBeginLogin', { lua: BEGIN_LOGIN })
    redis.defineCommand('fngwSucceedLogin', { lua: SUCCEED_LOGIN })
    redis.defineCommand('fngwWriteState', { lua: WRITE_STATE })
    this.#scripts = redis as unknown as Scripts
  }

  async beginSession(key: string, session: { owner: string; proof: string }, ttlMs: number): Promise<void> {
    const words = [...this.#sessions, key, JSON.stringify(session), ttlMs, MAX_SESSIONS]
    await this.#store.ask(() => this.#scripts.fngwBeginSession(2, ...words))
  }

  async findSessions(keys: readonly string[]): Promise<({ owner: string; proof: string } | null)[]> {
    if (keys.length === 0) return []
    const found = await this.#store.ask(() => this.#scripts.fngwFindSessions(2, ...this.#sessions, ...keys))
    return keys.map((_key, i) => parseSession(found[i]))
  }

  async endSessions(keys: readonly string[]): Promise<void> {
    if (keys.length > 0) await this.#store.ask(() => this.#scripts.fngwEndSessions(2, ...this.#sessions, ...keys))
  }

  /** A session that begins meanwhile is one after it. */
  async endSessionsOf(owner: string): Promise<void> {
    const all = await this.#store.ask(redis => redis.hgetall(this.#sessions[1]))
    await this.endSessions(Object.keys(all).filter(key => parseSession(all[key])?.owner === owner))
  }

  async beginLogin(network: string): Promise<number | null> {
    const words = [...this.#logins, network, LOGIN_FAILURE_MS, MAX_LOGIN_FAILURES, MAX_LOGIN_ADDRESSES]
    const waitMs = await this.#store.ask(() => this.#scripts.fngwBeginLogin(2, ...words))
    return waitMs < 0 ? null : waitMs
  }

  async succeedLogin(network: string): Promise<void> {
    await this.#store.ask(() => this.#scripts.fngwSucceedLogin(2, ...this.#logins, network))
  }

  async readState(): Promise<{ text: string | null; problem: string | null }> {
    const [key] = this.#states
    const size = await this.#store.ask(redis => redis.strlen(key))
    if (size > UI_STORE_BYTES) return { text: null, problem: `has ${size} bytes, at most ${UI_STORE_BYTES} are read` }
    return { text: size === 0 ? null : await this.#store.ask(redis => redis.get(key)), problem: null }
  }

  async writeState(text: string | null, before: { text: string | null; isUsed: boolean }): Promise<boolean> {
    const words = [...this.#states, text ?? '', before.text ?? '', Number(!before.isUsed)]
    return (await this.#store.ask(() => this.#scripts.fngwWriteState(2, ...words))) === 1
  }
}

/** Null for what no gateway has written. */
function parseSession(text: string | undefined): { owner: string; proof: string } | null {
  const { owner, proof } = parseObject(text ?? '') ?? {}
  return typeof owner === 'string' && typeof proof === 'string' ? { owner, proof } : null
}
