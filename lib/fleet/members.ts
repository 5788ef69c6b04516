/**
 * The gateways of a fleet: each writes a report to the store and reads those of the others. Spec: page fleet/members.
 * Times are those of the store, so that differing clocks of machines do not show a gateway as gone.
 */

import { hostname } from 'node:os'
import { type Clock, Timer } from '../core/clock.ts'
import { parseObject } from '../core/json.ts'
import type { Store } from './fleet-store.ts'

/** Milliseconds between two reports, and after which a silent gateway counts as gone, and is forgotten. */
const REPORT_MS = 2000
const GONE_MS = 10_000
const FORGOTTEN_MS = 300_000
/** Milliseconds for which a release is remembered without a gateway: one that restarts is not newer than it was. */
const RELEASE_MS = 3_600_000
/** Of a report: characters of one text, and addresses. */
const MAX_CHARS = 300
const MAX_ADDRESSES = 16

/**
 * KEYS: reports, times, since when the release runs. ARGV: id, report or '' to leave, ms until one is forgotten, ms for which a release
 * is remembered, since when it runs if that is known. @returns now, reports, times
 */
const REPORT = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
else
  local known = ARGV[5] == '' and string.format('%.0f', now) or ARGV[5]
  redis.call('SET', KEYS[3], known, 'NX')
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
  local since = redis.call('GET', KEYS[3])
  redis.call('HSET', KEYS[1], ARGV[1], '{"releaseSince":' .. since .. ',' .. string.sub(ARGV[2], 2))
  redis.call('ZADD', KEYS[2], now, ARGV[1])
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[3])) do
  redis.call('HDEL', KEYS[1], id)
  redis.call('ZREM', KEYS[2], id)
end
return {now, redis.call('HGETALL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')}`

interface Scripts {
  fngwReport(keys: number, ...words: (string | number)[]): Promise<[number, string[], string[]]>
}

/** The report of a gateway about itself. */
export interface MemberReport {
  version: string
  /** Of its functions: `FN_RELEASE`, or a digest of its tree. */
  release: string
  /** Addresses that it listens on. */
  addresses: readonly string[]
  state: 'starting' | 'ready' | 'draining'
  /** Wall clock of its machine, ms. */
  startedAt: number
  /** Calls that have a slot. */
  runningCalls: number
  /** Calls that wait for a slot. */
  queuedCalls: number
  /** Of its machine over the last minute: runnable threads, and processors to run them. */
  loadAverage: number
  cpus: number
  /** True for the one that runs the schedules. */
  leads: boolean
}

/** A gateway as the fleet shows it. */
export interface Member extends MemberReport {
  id: string
  host: string
  pid: number
  /** When the first gateway of its release reported, by the clock of the store, ms. */
  releaseSince: number
  /** Milliseconds since its last report. */
  seenAgoMs: number
  isGone: boolean
}

interface MembersOptions {
  store: Store
  clock: Clock
  /** Of this gateway. */
  id: string
  report: () => MemberReport
}

export class Members {
  readonly #options: MembersOptions
  readonly #timer: Timer
  #known: { at: number; members: Member[] } = { at: 0, members: [] }
  /** Since when the release of this gateway runs: a store that was away or has lost it is told. */
  #own: { release: string; since: string } | null = null
  #isClosed = false

  constructor(options: MembersOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock, true)
    options.store.redis.defineCommand('fngwReport', { lua: REPORT })
  }

  /** Never rejects: the store may come later. */
  async start(): Promise<void> {
    await this.report()
    if (!this.#isClosed) this.#timer.set(REPORT_MS, () => void this.start())
  }

  /** Reports now, and reads what the others reported. Never rejects. */
  async report(): Promise<void> {
    if (!this.#isClosed) await this.#exchange(this.#options.report()).catch(() => {})
  }

  /** As of the last report, by id. */
  list(): Member[] {
    const age = this.#options.clock.monotonic() - this.#known.at
    return this.#known.members.map(member => {
      const seenAgoMs = Math.round(member.seenAgoMs + age)
      return { ...member, seenAgoMs, isGone: seenAgoMs > GONE_MS }
    })
  }

  /** Whether there is another gateway. */
  hasOthers(): boolean {
    return this.list().some(({ id, isGone }) => !isGone && id !== this.#options.id)
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#timer.clear()
    await this.#exchange(null).catch(() => {})
  }

  async #exchange(report: MemberReport | null): Promise<void> {
    const { store, id, clock } = this.#options
    const text = report === null ? '' : JSON.stringify({ ...report, host: hostname(), pid: process.pid })
    const scripts = store.redis as unknown as Scripts
    const release = report?.release ?? ''
    const since = this.#own?.release === release ? this.#own.since : ''
    const keys = [store.key('gateways'), store.key('gateways', 'seen'), store.key('release', release)]
    const words = [id, text, FORGOTTEN_MS, RELEASE_MS, since]
    const [now, reports, times] = await store.ask(() => scripts.fngwReport(3, ...keys, ...words))
    const seen = new Map(toPairs(times).map(([name, time]) => [name, Number(time)]))
    const members = toPairs(reports).flatMap(([name, json]) => {
      const known = parseReport(json)
      return known === null ? [] : { id: name, ...known, seenAgoMs: now - (seen.get(name) ?? 0), isGone: false }
    })
    this.#known = { at: clock.monotonic(), members: members.sort((a, b) => (a.id < b.id ? -1 : 1)) }
    const own = members.find(member => member.id === id)
    if (own !== undefined && report !== null) this.#own = { release, since: String(own.releaseSince) }
  }
}

type ParsedReport = Omit<Member, 'id' | 'seenAgoMs' | 'isGone'>

/** Reports of other versions lack fields, and anyone who reaches the store can write one: each has the type that readers expect. */
function parseReport(json: string): ParsedReport | null {
  const given = parseObject(json)
  if (given === null) return null
  const text = (value: unknown): string => (typeof value === 'string' ? value.slice(0, MAX_CHARS) : '')
  const number = (value: unknown): number => (Number.isFinite(value) ? (value as number) : 0)
  const { addresses, state } = given
  return {
    version: text(given.version),
    release: text(given.release),
    releaseSince: number(given.releaseSince),
    addresses: Array.isArray(addresses) ? addresses.slice(0, MAX_ADDRESSES).map(text) : [],
    state: state === 'ready' || state === 'draining' ? state : 'starting',
    startedAt: number(given.startedAt),
    runningCalls: number(given.runningCalls),
    queuedCalls: number(given.queuedCalls),
    loadAverage: number(given.loadAverage),
    cpus: number(given.cpus),
    leads: given.leads === true,
    host: text(given.host),
    pid: number(given.pid),
  }
}

function toPairs(flat: readonly string[]): [string, string][] {
  return flat.flatMap((name, i) => (i % 2 === 0 ? [[name, flat[i + 1]!] as [string, string]] : []))
}
