/**
 * The moments at which a cron text is due in a zone. Spec: page scheduler/schedule.
 *
 *   clocks go forward   a time that is skipped is due at the first moment after the gap
 *   clocks go back      a time that comes twice is due the first time only
 *
 * A text whose hour is every hour follows the clock instead: nothing for the skipped hour, both passes of the repeated one.
 */

import { type Cron, nextWallTime } from '../core/cron.ts'
import type { Zone } from '../core/timezone.ts'

const HOUR = 3_600_000
/** Further than this no clock is from another one of its zone within a few days. */
const AROUND = 36 * HOUR
/** Farthest that a summer time goes back. */
const MAX_BACK = 3 * HOUR

/** @returns null when nothing is due within nine years */
export function nextCronTime(cron: Cron, zone: Zone, after: number): number | null {
  if (cron.hours.length === 24) return nextOfEveryHour(cron, zone, after)
  let wall = nextWallTime(cron, after + zone.offsetAt(after))
  while (wall !== null) {
    const at = momentsOf(wall, zone)[0] ?? endOfGap(wall, zone)
    if (at > after) return at
    wall = nextWallTime(cron, wall)
  }
  return null
}

function nextOfEveryHour(cron: Cron, zone: Zone, after: number): number | null {
  const offset = zone.offsetAt(after)
  let wall = nextWallTime(cron, after + offset)
  let found: number | null = null
  while (wall !== null && found === null) {
    found = momentsOf(wall, zone).find(at => at > after) ?? null
    if (found === null) wall = nextWallTime(cron, wall)
  }
  if (zone.offsetAt(after + MAX_BACK) >= offset) return found
  // The clocks go back soon: the second pass has times that lie behind the wall clock of now.
  const change = findChange(zone, after, after + MAX_BACK)
  const again = nextWallTime(cron, change + zone.offsetAt(change) - 1)
  const second = again === null ? null : again - zone.offsetAt(change)
  return found === null || (second !== null && second > after && second < found) ? second : found
}

/** When the clocks show a time: once as a rule, twice after they went back, never when they skip it. */
function momentsOf(wall: number, zone: Zone): number[] {
  const offsets = new Set([zone.offsetAt(wall - AROUND), zone.offsetAt(wall + AROUND)])
  const moments = [...offsets].map(offset => wall - offset).filter(at => at + zone.offsetAt(at) === wall)
  return moments.sort((a, b) => a - b)
}

function endOfGap(wall: number, zone: Zone): number {
  return findChange(zone, wall - AROUND, wall + AROUND)
}

/** The first moment with the offset of `to`, which is another one than that of `from`. */
function findChange(zone: Zone, from: number, to: number): number {
  const offset = zone.offsetAt(to)
  let [before, since] = [from, to]
  while (since - before > 1) {
    const middle = Math.floor((before + since) / 2)
    if (zone.offsetAt(middle) === offset) since = middle
    else before = middle
  }
  return since
}
