/**
 * One schedule: when it is due, what its runs leave, and what a restart, a changed config or a changed clock make of it.
 * It makes no calls. Spec: §2.13, page scheduler/schedule.
 *
 *   idle ─ due ─► begin ─► run ─► end ─┬─ fine, or no attempt left ─► idle, due next
 *     ▲                                └─ failed, attempts left ────► retry pending ─ retry due ─► begin
 *     └── due times that pass meanwhile are one late run
 */

import type { FunctionVersion, SchedulePolicy } from '../core/catalog.ts'
import { getOrMake } from '../core/collections.ts'
import { type Cron, nextCronTime, parseCron, toZone, type Zone } from '../core/cron.ts'
import { nextRetry } from '../core/transitions.ts'
import { NEW_STATE, type ScheduleState } from './schedule-store.ts'

/** A clock that goes back at most this far was right before: no due time of it comes again. Further, it was wrong. */
export const SMALL_SET_BACK_MS = 3 * 3_600_000

/** How a run ended. */
export interface RunResult {
  /** 0 when there is none. */
  status: number
  /** Why the response is not good; null when it is. */
  error: string | null
}

/** The result of a run that was cut off. */
export const INTERRUPTED: RunResult = { status: 0, error: 'the gateway ended during the run' }

export class Schedule {
  fn: FunctionVersion
  /** null: it does not run, because it is switched off or wrong. */
  policy: SchedulePolicy | null = null
  rule: Rule | null = null
  state: ScheduleState = { ...NEW_STATE }

  constructor(fn: FunctionVersion) {
    this.fn = fn
  }

  /** When something is to be done; Infinity for never. */
  get nextDue(): number {
    if (this.policy === null) return Infinity
    return this.state.retryDue ?? this.state.next ?? Infinity
  }

  /** Takes what the config says now. @param rule - of the policy; null without one. @returns true when the state changed */
  adopt(fn: FunctionVersion, policy: SchedulePolicy | null, rule: Rule | null, now: number): boolean {
    this.fn = fn
    this.policy = policy
    this.rule = rule
    const text = rule?.text ?? ''
    const isNew = text !== this.state.rule
    if (isNew) this.state = { ...this.state, rule: text, next: this.#nextAfter(now) }
    return this.#dropRetry() || isNew
  }

  /**
   * Takes what an earlier process kept. A due time that passed since is one late run; a run that was cut off has failed.
   * @param random - in [0, 1)
   * @param goesOn - true: a run that was begun has not ended with its process
   */
  restore(kept: ScheduleState, now: number, random: number, goesOn = false): void {
    const isSame = kept.rule === this.state.rule
    const { rule } = this.state
    this.state = { ...kept, rule }
    const isMissed = isSame && kept.next !== null && kept.next <= now
    if (!isMissed) this.state.next = this.#nextAfter(now)
    if (kept.running !== null && !goesOn) this.end(INTERRUPTED, now, random)
    this.#dropRetry()
    this.#boundRetry(now)
  }

  /** Shows how the last run went, of a schedule that does not run here. */
  recall({ last, lastStatus, lastError }: ScheduleState): void {
    this.state = { ...this.state, last, lastStatus, lastError }
  }

  /** The clock was set back: due times of the old one become due times of the new one. */
  setBack(now: number): void {
    const { next } = this.state
    if (next !== null && next > now) this.state.next = this.#nextAfter(now)
    this.#boundRetry(now)
  }

  /** A run begins that is due. */
  begin(now: number): void {
    const { next, retryDue, retryAttempt } = this.state
    if (retryDue !== null) {
      const begun = { running: retryAttempt ?? 1, runningDue: retryDue }
      this.state = { ...this.state, ...begun, retryDue: null, retryAttempt: null }
      return
    }
    this.state = { ...this.state, running: 1, runningDue: next ?? now, doneUpTo: now }
    this.state.next = this.#nextAfter(now)
  }

  /** A run begins that was requested: its retries and due times stay. */
  beginNow(now: number): void {
    this.state = { ...this.state, running: 0, runningDue: now }
  }

  /** A run that was begun did not take place, and is due again. @param before - the state before `begin` */
  undo(before: ScheduleState): void {
    const { retryDue, retryAttempt } = before
    const isSame = before.rule === this.state.rule
    this.state = isSame ? before : { ...this.state, retryDue, retryAttempt, running: null, runningDue: null }
  }

  /** The run ends that goes on. @param random - in [0, 1) */
  end({ status, error }: RunResult, now: number, random: number): void {
    const attempt = this.state.running
    const retry = this.policy?.retry ?? null
    // A requested run has no retry.
    const plan = attempt ? nextRetry({ status, attempt, retry, random }) : null
    const ended = { ...this.state, running: null, runningDue: null, last: now, lastStatus: status }
    if (plan === null) {
      this.state = { ...ended, lastError: error }
      return
    }
    const wait = plan.delaySeconds.toFixed(2)
    this.state = {
      ...ended,
      lastError: `retrying ${plan.attempt}/${retry!.maxAttempts} in ${wait}s: ${error ?? `HTTP ${status}`}`,
      retryDue: now + Math.round(plan.delaySeconds * 1000),
      retryAttempt: plan.attempt,
    }
  }

  #nextAfter(now: number): number | null {
    if (this.rule === null) return null
    const { doneUpTo } = this.state
    return this.rule.nextAfter(this.rule.isCron && isAhead(doneUpTo, now) ? doneUpTo : now)
  }

  /** A retry that the config allows no more. @returns true when there was one */
  #dropRetry(): boolean {
    const { retryAttempt, retryDue } = this.state
    if (retryDue === null || this.policy === null) return false
    const { retry } = this.policy
    if (retry !== null && (retryAttempt ?? 1) <= retry.maxAttempts) return false
    this.state = { ...this.state, retryDue: null, retryAttempt: null }
    return true
  }

  /** No retry is further away than its longest delay, whatever the clock was when it was planned. */
  #boundRetry(now: number): void {
    const retry = this.policy?.retry ?? null
    if (this.state.retryDue === null || retry === null) return
    const longest = now + retry.maxDelaySeconds * (1 + retry.jitter) * 1000
    this.state.retryDue = Math.min(this.state.retryDue, longest)
  }
}

/** True for a moment that a clock which was set back a little has yet to reach again. */
function isAhead(moment: number | null, now: number): moment is number {
  return moment !== null && moment > now && moment - now <= SMALL_SET_BACK_MS
}

/** When a schedule is due: an interval, or a cron text in its zone. */
export interface Rule {
  /** The same for schedules that are due at the same times. */
  readonly text: string
  readonly zone: Zone
  /** True for due times that are times of the day; an interval counts what has passed. */
  readonly isCron: boolean
  /** @returns the first due time after a moment, ms; null when none comes */
  nextAfter(at: number): number | null
}

/** Rules of many schedules: equal ones are read and kept once. */
export class Rules {
  readonly #rules = new Map<string, Rule>()
  readonly #zones = new Map<string, Zone>()

  /** @throws Error for a cron text that the config parser would have refused */
  of({ everySeconds, cron, timezone }: Pick<SchedulePolicy, 'everySeconds' | 'cron' | 'timezone'>): Rule {
    const text = everySeconds === null ? `cron ${cron} ${timezone}` : `every ${everySeconds} ${timezone}`
    return getOrMake(this.#rules, text, () => {
      const zone = getOrMake(this.#zones, timezone, () => toZone(timezone))
      return everySeconds === null ? toCronRule(text, cron ?? '', zone) : toInterval(text, everySeconds, zone)
    })
  }

  /** Forgets unused rules. */
  retain(used: ReadonlySet<string>): void {
    for (const text of this.#rules.keys()) if (!used.has(text)) this.#rules.delete(text)
  }
}

/** Multiples of the interval since the epoch, so that a restart does not move them. */
function toInterval(text: string, everySeconds: number, zone: Zone): Rule {
  const every = everySeconds * 1000
  return { text, zone, isCron: false, nextAfter: at => (Math.floor(at / every) + 1) * every }
}

function toCronRule(text: string, given: string, zone: Zone): Rule {
  const cron = parseCron(given)
  if ('problem' in cron) throw new Error(cron.problem)
  return { text, zone, isCron: true, nextAfter: at => nextCronTime(cron as Cron, zone, at) }
}
