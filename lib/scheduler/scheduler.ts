/**
 * The scheduler of a gateway: one clock and one queue for schedules and for the pings that keep functions warm.
 * Spec: page scheduler/scheduler.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { KeepWarm, type PingOutcome } from './keep-warm.ts'
import { Rules } from './rule.ts'
import { Schedules, type SchedulesOptions } from './schedules.ts'
import { WorkQueue } from './work-queue.ts'

interface SchedulerOptions extends Omit<SchedulesOptions, 'queue' | 'rules'> {
  /** Milliseconds between two ticks. */
  tickMs: number
  /** Calls a function to keep it warm. Never rejects. */
  ping: (fn: FunctionVersion) => Promise<PingOutcome>
}

export class Scheduler {
  readonly schedules: Schedules
  readonly keepWarm: KeepWarm
  readonly #enabled: boolean
  readonly #queue: WorkQueue

  constructor(options: SchedulerOptions) {
    const { clock, tickMs, enabled, ping } = options
    this.#enabled = enabled
    this.#queue = new WorkQueue({ clock, tickMs, onSetBack: now => this.#setBack(now) })
    this.schedules = new Schedules({ ...options, queue: this.#queue, rules: new Rules() })
    this.keepWarm = new KeepWarm({ clock, queue: this.#queue, ping })
  }

  get warnings(): readonly Warning[] {
    return this.schedules.warnings
  }

  /** Takes the functions of a new catalog. */
  adopt(functions: ReadonlyMap<string, FunctionVersion>): void {
    this.schedules.adopt(functions)
    this.keepWarm.adopt(functions)
  }

  /** Begins to run what is due. Never rejects. */
  async start(): Promise<void> {
    await this.schedules.start()
    if (this.#enabled) this.#queue.start()
  }

  /** Begins nothing any more. */
  stop(): void {
    this.#queue.stop()
  }

  /** Lets runs end within a time, and keeps the state. */
  async close(timeoutMs: number): Promise<void> {
    this.#queue.stop()
    await this.schedules.close(timeoutMs)
  }

  #setBack(now: number): void {
    this.schedules.setBack(now)
    this.keepWarm.setBack(now)
  }
}
