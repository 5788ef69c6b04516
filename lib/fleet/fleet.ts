/**
 * A gateway as one of several that share jobs and schedules through a store. Loaded only where `FN_STORE_URL` is set.
 * Spec: page fleet/fleet.
 *
 *   start ─► connect, check the server ─► report to the others ─► take jobs and runs, ask for the lease of the schedules
 */

import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import type { Settings } from '../config/settings.ts'
import type { Clock } from '../core/clock.ts'
import { getOrMake } from '../core/collections.ts'
import { GatewayError, type Warning } from '../core/errors.ts'
import { FolderReader } from '../files/folder-content.ts'
import { HISTORY_FORMAT } from '../observe/history-report.ts'
import { packageFile } from '../runtime/package-files.ts'
import { FleetConsole } from './fleet-console.ts'
import { FleetJobs, type FleetJobsOptions } from './fleet-jobs.ts'
import { FleetRuns, type FleetRunsOptions } from './fleet-runs.ts'
import { type ChangeReach, type Member, type MemberReport, Members } from './members.ts'
import { type GatewayReply, GatewayRequests } from './gateway-requests.ts'
import { ScheduleLease } from './schedule-lease.ts'
import { importOptional, Store } from './fleet-store.ts'

/** Files that installs write beside a function: with them a gateway would get another release by running. */
const WRITTEN_FILES = ['package-lock.json', 'requirements.lock.txt', 'composer.lock']
const DIGEST_CHARS = 12
/** Milliseconds that a run may take beyond the time limit of its function: it may wait for a gateway with room, and for a slot. */
const RUN_WAIT_MS = 60_000
/** Milliseconds in which another gateway sends its history. */
const HISTORY_MS = 1000
/** Seconds in which another gateway leads the schedules. */
const LEAD_SECONDS = '10'

interface FleetOptions {
  settings: Settings
  clock: Clock
  /** True for names of files that functions are made of; others may change at every call. */
  isSource: (name: string) => boolean
}

export class Fleet {
  readonly id = `${hostname()}-${process.pid}-${randomBytes(3).toString('hex')}`
  readonly store: Store
  readonly lease: ScheduleLease
  readonly console: FleetConsole
  readonly #bullmq: Bullmq
  readonly #log: LateLog
  readonly #tree: FolderReader
  readonly #setRelease: string | null
  #release: string
  /** One reading after the other: the last one reads what was adopted last. */
  #adopting: Promise<void> = Promise.resolve()
  readonly #members: Members
  readonly #requests: GatewayRequests
  /** Questions under way, by window. */
  readonly #asked = new Map<string, Promise<HistoryReply[]>>()
  #report: (() => OwnReport) | null = null
  #reload: () => Promise<void> = async () => {}

  private constructor({ settings, clock, isSource }: FleetOptions, store: Store, bullmq: Bullmq, log: LateLog) {
    const { release, functionsRoot } = settings
    this.#log = log
    this.store = store
    this.#bullmq = bullmq
    this.#tree = new FolderReader(functionsRoot, name => isSource(name) && !WRITTEN_FILES.includes(name))
    this.#setRelease = release
    this.#release = release ?? UNKNOWN
    const { version } = JSON.parse(readFileSync(packageFile('package.json'), 'utf8')) as { version: string }
    this.#members = new Members({
      ...{ store, clock, id: this.id },
      report: () => ({ ...this.#report!(), version, release: this.#release, leads: this.lease.isLeader }),
      follow: async () => {
        await this.#reload()
        await this.#adopting
      },
    })
    this.#requests = new GatewayRequests({ ...{ store, clock }, id: this.id, isThere: id => this.#isThere({ id }) })
    this.console = new FleetConsole(store)
    this.lease = new ScheduleLease({ store, clock, id: this.id, rivals: () => this.#members.rivals() })
  }

  /** @throws GatewayError that names what is wrong: a package, the URL, the server */
  static async open(options: FleetOptions): Promise<Fleet> {
    const { storeUrl, storePrefix, storeRequired } = options.settings
    const log = new LateLog()
    const onLog: Log = (level, message) => log.write(level, message)
    const bullmq = await importOptional('bullmq', () => import('bullmq'))
    const isRequiredAtStart = storeRequired !== false
    const store = await Store.open({ url: storeUrl!, prefix: storePrefix, isRequiredAtStart, onLog })
    return new Fleet(options, store, bullmq, log)
  }

  /** Passes on what was and will be logged. */
  logTo(log: Log): void {
    this.#log.passTo(log)
  }

  get warnings(): readonly Warning[] {
    return this.store.warnings
  }

  /** Why the store cannot be used; null while it can. */
  get problem(): string | null {
    return this.store.problem
  }

  /** Of the functions in force here. */
  get release(): string {
    return this.#release
  }

  /** Takes the tree that is in force now. Never rejects. */
  adoptTree(): Promise<void> {
    if (this.#setRelease === null) this.#adopting = this.#adopting.then(() => this.#readRelease())
    return this.#adopting
  }

  async #readRelease(): Promise<void> {
    const release = (await this.#tree.read())?.hash.slice(0, DIGEST_CHARS) ?? UNKNOWN
    if (release === this.#release) return
    this.#release = release
    await this.#members.report()
  }

  createJobs(options: Omit<FleetJobsOptions, 'store' | 'id' | 'hasOthers'>): FleetJobs {
    const hasOthers = (): boolean => this.#members.hasOthers()
    return new FleetJobs({ ...options, store: this.store, id: this.id, hasOthers }, this.#bullmq)
  }

  createRuns(options: Omit<FleetRunsOptions, 'store' | 'id' | 'release' | 'isThere'>): FleetRuns {
    const release = (): string => this.#release
    const isThere: FleetRunsOptions['isThere'] = which => this.#isThere(which)
    return new FleetRuns({ ...options, store: this.store, id: this.id, release, isThere }, this.#bullmq)
  }

  /** Follows changes of other gateways. Called before the tree is read; never rejects. */
  follow(reload: () => Promise<void>): Promise<void> {
    this.#reload = reload
    return this.#members.open()
  }

  /** Reports to the others from now on. */
  async join(report: () => OwnReport): Promise<void> {
    this.#report = report
    await this.#members.start()
  }

  members(): Member[] {
    return this.#members.list()
  }

  /** @param run - runs a schedule of this gateway by its key, when another gateway is asked to */
  serveRuns(run: (key: string) => Promise<GatewayReply>): void {
    this.#requests.serve('run', run)
  }

  /**
   * Has a schedule run through the gateway that leads it.
   * @returns null when that is this one, or schedules are switched off at all gateways
   * @throws GatewayError of that gateway; RUNTIME_DOWN while none leads
   */
  async runElsewhere(key: string, timeoutMs: number): Promise<GatewayReply | null> {
    const holder = await this.lease.holderOf(key)
    if (holder === this.id) return null
    if (holder !== null) return this.#requests.ask(holder, 'run', key, timeoutMs + RUN_WAIT_MS)
    if (!this.#members.list().some(({ isGone, canLead }) => !isGone && canLead)) return null
    const message = 'no gateway leads the schedules right now: the next one takes over within seconds'
    throw new GatewayError('RUNTIME_DOWN', message, { headers: { 'Retry-After': LEAD_SECONDS } })
  }

  /** Whether a gateway that has not ended has an id, or runs the schedules of a release. */
  #isThere(which: { id: string } | { release: string }): boolean {
    return this.#members.list().some(({ id, isGone, state, release, canLead }) => {
      if ('id' in which) return id === which.id && !isGone
      return release === which.release && !isGone && canLead && state === 'ready'
    })
  }

  /** @param read - the history of this gateway over a window, in `HISTORY_FORMAT` */
  serveHistory(read: (window: string) => Promise<GatewayReply>): void {
    this.#requests.serve('history', read)
  }

  /** Asks the other gateways for their histories over a window; one question at a time. Never rejects. */
  askHistories(window: string): Promise<HistoryReply[]> {
    return getOrMake(this.#asked, window, () => this.#askAll(window).finally(() => void this.#asked.delete(window)))
  }

  async #askAll(window: string): Promise<HistoryReply[]> {
    const others = this.#members.list().filter(({ id, isGone }) => id !== this.id && !isGone)
    const ask = async ({ id, historyFormat }: Member): Promise<HistoryReply> => {
      if (historyFormat !== HISTORY_FORMAT)
        return { id, problem: 'its console is off, or it has another version of fngw' }
      return this.#requests.ask(id, 'history', window, HISTORY_MS).then(
        history => ({ id, history }),
        error => ({ id, problem: (error as Error).message.replace(`gateway ${id}`, 'it') }),
      )
    }
    return Promise.all(others.map(ask))
  }

  /** Announces a change of the tree that is in force here to the other gateways. Resolves when it is in force there too, or after 5 s. */
  async announceChange(): Promise<ChangeReach> {
    await this.#adopting
    return this.#members.announce()
  }

  async close(): Promise<void> {
    this.#requests.close()
    await this.#members.close()
    this.store.close()
  }
}

/** What another gateway sent, or why it did not. */
type HistoryReply = { id: string } & ({ history: GatewayReply } | { problem: string })

/** The report of a gateway about itself, without the fields that the fleet adds. */
type OwnReport = Omit<MemberReport, 'version' | 'release' | 'leads'>
type Bullmq = typeof import('bullmq')
/** The release of a tree that is too large to be compared. */
const UNKNOWN = 'unknown'

type Log = (level: 'info' | 'warn', message: string) => void

/** The store is there before the log is. */
class LateLog {
  #early: Parameters<Log>[] | null = []
  #log: Log | null = null

  write(...line: Parameters<Log>): void {
    if (this.#log === null) this.#early?.push(line)
    else this.#log(...line)
  }

  passTo(log: Log): void {
    this.#log = log
    for (const line of this.#early ?? []) log(...line)
    this.#early = null
  }
}
