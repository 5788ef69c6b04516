/** When a schedule is due: an interval, or a cron text in its zone. Owner: page scheduler/schedule. */

import type { SchedulePolicy } from '../core/catalog.ts'
import { type Cron, parseCron } from '../core/cron.ts'
import { toZone, type Zone } from '../core/timezone.ts'
import { nextCronTime } from './cron-times.ts'

export interface Rule {
  /** The same for schedules that are due at the same times. */
  readonly text: string
  readonly zone: Zone
  /** True for due times that are times of the day; an interval counts what has passed. */
  readonly isCron: boolean
  /** @returns the first due time after a moment, ms; null when none comes */
  nextAfter(at: number): number | null
}

/** Rules of many schedules: what is equal in them is read and kept once. */
export class Rules {
  readonly #rules = new Map<string, Rule>()
  readonly #zones = new Map<string, Zone>()

  /** @throws Error for a cron text that the config parser would have refused */
  of({ everySeconds, cron, timezone }: Pick<SchedulePolicy, 'everySeconds' | 'cron' | 'timezone'>): Rule {
    const text = everySeconds === null ? `cron ${cron} ${timezone}` : `every ${everySeconds} ${timezone}`
    const known = this.#rules.get(text)
    if (known !== undefined) return known
    const zone = this.#zoneOf(timezone)
    const rule = everySeconds === null ? toCronRule(text, cron ?? '', zone) : toInterval(text, everySeconds, zone)
    this.#rules.set(text, rule)
    return rule
  }

  /** Forgets rules that nobody has any more. */
  retain(used: ReadonlySet<string>): void {
    for (const text of this.#rules.keys()) if (!used.has(text)) this.#rules.delete(text)
  }

  #zoneOf(name: string): Zone {
    const zone = this.#zones.get(name) ?? toZone(name)
    this.#zones.set(name, zone)
    return zone
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
