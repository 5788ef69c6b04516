/** The state of everything as a line in words. Owner: page console/overview. */

import type { Health } from '../../data/health-record.ts'
import type { Totals } from '../../data/history.ts'
import { formatCount, formatMs, formatNumberOf, formatShare } from '../../format.ts'

interface Status {
  /** null: all is well. */
  state: 'failing' | 'degraded' | null
  /** Running parts and problems. */
  words: string
  /** Counters, which change all the time. */
  numbers: string
}

interface Facts {
  health: Health
  warnings: number
  conflicts: number
  /** null while nothing is counted. */
  totals: Totals | null
  /** "the last 5 minutes" */
  range: string
}

export function toStatus({ health, warnings, conflicts, totals, range }: Facts): Status {
  const failed = totals?.errors_5xx ?? 0
  const isDown = Object.values(health.runtimes).some(({ health: { up } }) => !up)
  const sentences = toRuntimesText(health)
  if (conflicts > 0) sentences.push(`${formatNumberOf(conflicts, 'route conflict')}.`)
  sentences.push(warnings === 0 ? 'No warnings.' : `${formatNumberOf(warnings, 'warning')}.`)
  return {
    state: isDown ? 'failing' : conflicts > 0 || failed > 0 ? 'degraded' : null,
    words: sentences.join(' '),
    numbers: totals === null ? '' : toRequestsText(totals, range).join(' '),
  }
}

function toRuntimesText({ runtimes }: Health): string[] {
  const all = Object.entries(runtimes)
  const down = all.filter(([, { health }]) => !health.up)
  if (down.length === 0) return [all.length === 1 ? `Runtime ${all[0]?.[0]} is up.` : `All ${all.length} runtimes up.`]
  return [
    ...down.map(([name, { health }]) => `${name} is down${health.reason === 'down' ? '' : `: ${health.reason}`}.`),
    `${all.length - down.length} of ${formatNumberOf(all.length, 'runtime')} up.`,
  ]
}

function toRequestsText(totals: Totals, range: string): string[] {
  const { requests, errors_5xx: failed, p95_ms: p95 } = totals
  if (requests === 0) return [`No requests in ${range}.`]
  const counted = `${formatNumberOf(requests, 'request')} in ${range}`
  if (failed === 0) return [`${counted}, none failed.`, `p95 ${formatMs(p95)}.`]
  return [`${counted}, ${formatCount(failed)} failed (${formatShare(failed / requests)}).`, `p95 ${formatMs(p95)}.`]
}
