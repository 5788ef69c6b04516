/**
 * A gateway as one of several that share jobs and schedules through a store. Loaded only where `FN_STORE_URL` is set.
 * Spec: page fleet/fleet.
 *
 *   start ─► connect, check the server ─► report to the others ─► take jobs, ask for the lease of the schedules
 */

import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import type { Settings } from '../config/settings.ts'
import type { Clock } from '../core/clock.ts'
import type { Warning } from '../core/errors.ts'
import { packageFile } from '../runtime/package-files.ts'
import { FleetJobs, type FleetJobsOptions } from './fleet-jobs.ts'
import { type Member, type MemberReport, Members } from './members.ts'
import { ScheduleLease } from './schedule-lease.ts'
import { importOptional, Store } from './fleet-store.ts'

export class Fleet {
  readonly id = `${hostname()}-${process.pid}-${randomBytes(3).toString('hex')}`
  readonly store: Store
  readonly lease: ScheduleLease
  readonly #clock: Clock
  readonly #bullmq: typeof import('bullmq')
  readonly #log: LateLog
  #members: Members | null = null

  private constructor(store: Store, clock: Clock, bullmq: typeof import('bullmq'), log: LateLog) {
    this.#log = log
    this.store = store
    this.#clock = clock
    this.#bullmq = bullmq
    this.lease = new ScheduleLease({ store, clock, id: this.id })
  }

  /** @throws GatewayError that names what is wrong: a package, the URL, the server */
  static async open({ storeUrl, storePrefix, storeRequired }: Settings, clock: Clock): Promise<Fleet> {
    const log = new LateLog()
    const onLog: Log = (level, message) => log.write(level, message)
    const bullmq = await importOptional('bullmq', () => import('bullmq'))
    const isRequiredAtStart = storeRequired !== false
    const store = await Store.open({ url: storeUrl!, prefix: storePrefix, isRequiredAtStart, onLog })
    return new Fleet(store, clock, bullmq, log)
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

  createJobs(options: Omit<FleetJobsOptions, 'store' | 'id' | 'hasOthers'>): FleetJobs {
    const hasOthers = (): boolean => this.#members?.hasOthers() ?? false
    return new FleetJobs({ ...options, store: this.store, id: this.id, hasOthers }, this.#bullmq)
  }

  /** Reports to the others from now on. */
  async join(report: () => Omit<MemberReport, 'version' | 'leads'>): Promise<void> {
    const { store, id } = this
    const clock = this.#clock
    const { version } = JSON.parse(readFileSync(packageFile('package.json'), 'utf8')) as { version: string }
    const toReport = (): MemberReport => ({ ...report(), version, leads: this.lease.isLeader })
    this.#members = new Members({ store, clock, id, report: toReport })
    await this.#members.start()
  }

  members(): Member[] {
    return this.#members?.list() ?? []
  }

  async close(): Promise<void> {
    await this.#members?.close()
    this.store.close()
  }
}

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
