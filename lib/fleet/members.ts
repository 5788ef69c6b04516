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
/** Milliseconds in which the gateways take a change, and for which messages about changes are gathered. */
const CHANGE_MS = 5000
const GATHER_MS = 10
/** Newest reports that are read, and bytes of one: a store with more of them must not hold up the gateways. */
const MAX_REPORTS = 1000
const MAX_REPORT_BYTES = 65_536
/** Of a report: characters of one text, and addresses. */
const MAX_CHARS = 300
const MAX_ADDRESSES = 16

/**
 * KEYS: reports, times, since when the release runs, number of the last change. ARGV: id, report or '' to leave, ms until one is forgotten, ms for which a release
 * is remembered, since when it runs if that is known, most reports, most bytes of one. @returns now, ids and times, reports, number of the last change
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
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[3], 'LIMIT', 0, ARGV[6])) do
  redis.call('HDEL', KEYS[1], id)
  redis.call('ZREM', KEYS[2], id)
end
local times = redis.call('ZREVRANGEBYSCORE', KEYS[2], now, '-inf', 'WITHSCORES', 'LIMIT', 0, ARGV[6])
local reports = {}
for i = 1, #times, 2 do
  local isRead = redis.call('HSTRLEN', KEYS[1], times[i]) <= tonumber(ARGV[7])
  reports[#reports + 1] = isRead and redis.call('HGET', KEYS[1], times[i]) or ''
end
return {now, times, reports, redis.call('GET', KEYS[4]) or '0'}`

/** KEYS: number of the last change. ARGV: channel, id. A store that lost the number goes on with a greater one. @returns the one before, this one */
const CHANGE = `
local time = redis.call('TIME')
local before = redis.call('GET', KEYS[1]) or '0'
local change = math.max((tonumber(before) or 0) + 1, time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('SET', KEYS[1], string.format('%.0f', change))
redis.call('PUBLISH', ARGV[1], ARGV[2])
return {before, string.format('%.0f', change)}`

interface Scripts {
  fngwReport(keys: number, ...words: (string | number)[]): Promise<[number, string[], string[], string]>
  fngwChange(keys: number, ...words: (string | number)[]): Promise<[string, string]>
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
  /** True for the one that runs the schedules; whether it would. */
  leads: boolean
  canLead: boolean
  /** In which it sends its history to other gateways; 0 for one that has none. */
  historyFormat: number
}

/** A gateway as the fleet shows it. */
export interface Member extends MemberReport {
  id: string
  /** Number of the last change that it has in force. */
  change: number
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
  /** Puts in force what another gateway has changed in the tree. */
  follow: () => Promise<void>
}

/** How far a change of the tree has come. */
export interface ChangeReach {
  /** Gateways that should have it, and those that have it in force. */
  gateways: number
  in_force: number
  /** Ids of the others. */
  missing: string[]
  /** Why the change is not announced yet. */
  problem?: string
}

export class Members {
  readonly #options: MembersOptions
  readonly #timer: Timer
  #known: { at: number; members: Member[] } = { at: 0, members: [] }
  /** Since when the release of this gateway runs: reported again to a store that lost it. */
  #own: { release: string; since: string } | null = null
  /** Number of the last change in the store, of the one in force here, and of the last one that was tried. */
  #change = 0
  #inForce: number | null = null
  #tried: number | null = null
  #isFollowing = false
  /** A change was made while the store was away. */
  #isUnannounced = false
  readonly #gather: Timer
  /** Called after each exchange. */
  readonly #watchers = new Set<() => void>()
  #isStarted = false
  #isClosed = false

  constructor(options: MembersOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock, true)
    this.#gather = new Timer(options.clock, true)
    const { redis } = options.store
    redis.defineCommand('fngwReport', { lua: REPORT })
    redis.defineCommand('fngwChange', { lua: CHANGE })
  }

  /** Follows changes from now on; called before the tree is read. Never rejects. */
  async open(): Promise<void> {
    const { store, id } = this.#options
    // The content of a message is not used: it is only a reason to read the store.
    const onMessage = (from: string): void => {
      if (from !== id && !this.#isClosed && !this.#gather.isSet) this.#gather.set(GATHER_MS, () => void this.report())
    }
    void store.listen(this.#channel, onMessage)
    const change = await store.ask(redis => redis.get(store.key('change'))).catch(() => undefined)
    this.#inForce = change === undefined ? null : toNumber(change)
  }

  /** Never rejects: the store may come later. */
  async start(): Promise<void> {
    this.#isStarted = true
    await this.report()
    if (!this.#isClosed) this.#timer.set(REPORT_MS, () => void this.start())
  }

  /** Reports now, and reads what the others reported. Never rejects. */
  async report(): Promise<void> {
    if (this.#isStarted && !this.#isClosed) await this.#exchange(this.#options.report()).catch(() => {})
  }

  /** Announces a change of the tree that is in force here. Resolves when it is in force at all gateways, or after CHANGE_MS. */
  async announce(): Promise<ChangeReach> {
    this.#isUnannounced = true
    try {
      await this.#publishChange()
    } catch (error) {
      return { ...this.#reachOf(Infinity), problem: (error as Error).message }
    }
    const change = this.#change
    await this.report()
    await new Promise<void>(resolve => {
      const timer = new Timer(this.#options.clock, true)
      const end = (): void => {
        timer.clear()
        this.#watchers.delete(check)
        resolve()
      }
      const check = (): void => void ((this.#isClosed || this.#others().every(one => one.change >= change)) && end())
      this.#watchers.add(check)
      timer.set(CHANGE_MS, end)
      check()
    })
    return this.#reachOf(change)
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

  /** Whether gateways that are ready have another release, by its age. A gateway that is not ready yet takes nothing over. */
  rivals(): { hasNewer: boolean; hasOlder: boolean } {
    const members = this.list()
    const own = members.find(({ id }) => id === this.#options.id)
    const others = members.filter(
      one => !one.isGone && one.state === 'ready' && one.canLead && own !== undefined && one.release !== own.release,
    )
    const isNewer = (one: Member): boolean =>
      one.releaseSince > own!.releaseSince || (one.releaseSince === own!.releaseSince && one.release > own!.release)
    return { hasNewer: others.some(isNewer), hasOlder: others.some(one => !isNewer(one)) }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#timer.clear()
    this.#gather.clear()
    this.#options.store.ignore(this.#channel)
    for (const check of [...this.#watchers]) check()
    await this.#exchange(null).catch(() => {})
  }

  async #exchange(report: MemberReport | null): Promise<void> {
    const { store, id, clock } = this.#options
    const text =
      report === null
        ? ''
        : JSON.stringify({ ...report, change: this.#inForce ?? 0, host: hostname(), pid: process.pid })
    const scripts = store.redis as unknown as Scripts
    const release = report?.release ?? ''
    const since = this.#own?.release === release ? this.#own.since : ''
    const keys = [
      store.key('gateways'),
      store.key('gateways', 'seen'),
      store.key('release', release),
      store.key('change'),
    ]
    const words = [id, text, FORGOTTEN_MS, RELEASE_MS, since, MAX_REPORTS, MAX_REPORT_BYTES]
    const [now, times, reports, change] = await store.ask(() => scripts.fngwReport(4, ...keys, ...words))
    const members = reports.flatMap((json, i) => {
      const known = parseReport(json)
      const [name, seen] = times.slice(2 * i) as [string, string]
      return known === null ? [] : { id: name, ...known, seenAgoMs: now - Number(seen), isGone: false }
    })
    this.#known = { at: clock.monotonic(), members: members.sort((a, b) => (a.id < b.id ? -1 : 1)) }
    const own = members.find(member => member.id === id)
    if (own !== undefined && report !== null) this.#own = { release, since: String(own.releaseSince) }
    this.#change = toNumber(change)
    if (report === null) return
    if (this.#isUnannounced) await this.#publishChange()
    if (this.#change !== this.#inForce && this.#change !== this.#tried) void this.#follow()
    for (const check of [...this.#watchers]) check()
  }

  async #publishChange(): Promise<void> {
    const { store, id } = this.#options
    const scripts = store.redis as unknown as Scripts
    const [before, change] = await store.ask(() => scripts.fngwChange(1, store.key('change'), this.#channel, id))
    this.#isUnannounced = false
    this.#change = toNumber(change)
    // Otherwise a change of another gateway may have come after the tree was read here.
    if (toNumber(before) === this.#inForce) this.#inForce = this.#change
  }

  /** Reads the tree until the last change is in force. */
  async #follow(): Promise<void> {
    if (this.#isFollowing) return
    this.#isFollowing = true
    try {
      while (this.#change !== this.#inForce && this.#change !== this.#tried && !this.#isClosed) {
        const change = this.#change
        // One that fails is not tried every time that gateways report: the next change is.
        this.#tried = change
        await this.#options.follow()
        this.#inForce = change
        await this.report()
        const { store, id } = this.#options
        await store.ask(redis => redis.publish(this.#channel, id))
      }
    } catch {
      // The log has it.
    } finally {
      this.#isFollowing = false
    }
  }

  #reachOf(change: number): ChangeReach {
    const others = this.#others()
    // With another release it has another tree.
    const isMissing = (one: Member): boolean => one.change < change || one.release !== this.#options.report().release
    const missing = others.filter(isMissing).map(({ id }) => id)
    return { gateways: others.length + 1, in_force: others.length + 1 - missing.length, missing }
  }

  /** The other gateways that are to have a change. */
  #others(): Member[] {
    return this.list().filter(({ id, state, isGone }) => id !== this.#options.id && !isGone && state !== 'draining')
  }

  get #channel(): string {
    return this.#options.store.key('changes')
  }
}

/** A number in the store; 0 when it is missing or not a number. */
function toNumber(text: string | null): number {
  return Number(text) || 0
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
    change: number(given.change),
    addresses: Array.isArray(addresses) ? addresses.slice(0, MAX_ADDRESSES).map(text) : [],
    state: state === 'ready' || state === 'draining' ? state : 'starting',
    startedAt: number(given.startedAt),
    runningCalls: number(given.runningCalls),
    queuedCalls: number(given.queuedCalls),
    loadAverage: number(given.loadAverage),
    cpus: number(given.cpus),
    leads: given.leads === true,
    // Versions without the field can.
    canLead: given.canLead !== false,
    historyFormat: number(given.historyFormat),
    host: text(given.host),
    pid: number(given.pid),
  }
}
