/**
 * Cron texts, time zones, and the moments at which a text is due in a zone. cron-parser reads the fields; anything that the
 * specification does not have is refused. Spec: §2.13, page scheduler/schedule.
 */

import { createRequire } from 'node:module'
import { getOrMake } from './collections.ts'
import { orNull } from './errors.ts'

export interface Cron {
  /** With single spaces, macros in lower case. */
  text: string
  seconds: ReadonlySet<number>
  minutes: ReadonlySet<number>
  hours: ReadonlySet<number>
  days: ReadonlySet<number>
  /** 1 to 12. */
  months: ReadonlySet<number>
  /** 0 is Sunday. */
  weekdays: ReadonlySet<number>
  /** Neither `*` nor `?`. */
  hasDays: boolean
  hasWeekdays: boolean
}

const MACROS: Readonly<Record<string, string>> = {
  '@hourly': '0 * * * *',
  '@daily': '0 0 * * *',
  '@midnight': '0 0 * * *',
  '@weekly': '0 0 * * 0',
  '@monthly': '0 0 1 * *',
  '@yearly': '0 0 1 1 *',
  '@annually': '0 0 1 1 *',
}

export const CRON_RULE = `a cron text of 5 or 6 fields, or one of ${Object.keys(MACROS).join(' ')}`

const MAX_CRON_CHARS = 200
/** cron-parser would also accept `L`, `#` and `H`, which stands for a random number. */
const ITEM = /^(\*|\?|\d{1,2}|[a-z]{3})(-(\d{1,2}|[a-z]{3}))?(\/\d{1,2})?$/i
const NAMES = /jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat/i

const FIELDS = ['second', 'minute', 'hour', 'dayOfMonth', 'month', 'dayOfWeek'] as const
const FIELD_LABELS = ['second', 'minute', 'hour', 'day of month', 'month', 'day of week']
const DAY_FIELDS = [3, 5]

/** @returns why it is not a cron text, as the end of a sentence */
export function parseCron(given: string): Cron | { problem: string } {
  const text = given.trim().replace(/\s+/g, ' ')
  if (text.length > MAX_CRON_CHARS) return { problem: `it has more than ${MAX_CRON_CHARS} characters` }
  const macro = text.startsWith('@') ? text.toLowerCase() : null
  if (macro !== null && !Object.hasOwn(MACROS, macro)) return { problem: `there is no macro ${text}` }
  const parts = (macro === null ? text : MACROS[macro]!).split(' ')
  if (parts.length !== 5 && parts.length !== 6) return { problem: `it has ${parts.length} fields` }
  if (parts.length === 5) parts.unshift('0')
  for (const [index, part] of parts.entries()) {
    const bad = part.split(',').find(item => !ITEM.test(item) || (/[a-z]/i.test(item) && !NAMES.test(item)))
    if (bad !== undefined) return { problem: `its ${FIELD_LABELS[index]} "${part}" has "${bad}"` }
    if (part.includes('?') && !DAY_FIELDS.includes(index)) return { problem: `its ${FIELD_LABELS[index]} is "?"` }
  }
  try {
    return { text: macro ?? text, ...readParts(parts) }
  } catch (error) {
    const { message } = error as Error
    if (/explicit day of month/.test(message)) return { problem: 'no such date ever comes' }
    return { problem: message.charAt(0).toLowerCase() + message.slice(1) }
  }
}

/** @throws Error with the reason, in words of cron-parser */
function readParts(parts: readonly string[]): Omit<Cron, 'text'> {
  // `FRI-SUN` ends with day 7.
  const numbered = parts.with(5, parts[5]!.replace(/-sun\b/gi, '-7'))
  const fields = parseFields(numbered.map(withoutRepeats))
  const valuesOf = (name: (typeof FIELDS)[number]) => new Set(fields[name].values as readonly number[])
  return {
    seconds: valuesOf('second'),
    minutes: valuesOf('minute'),
    hours: valuesOf('hour'),
    days: valuesOf('dayOfMonth'),
    months: valuesOf('month'),
    weekdays: new Set([...valuesOf('dayOfWeek')].map(day => day % 7)),
    hasDays: !fields.dayOfMonth.isWildcard,
    hasWeekdays: !fields.dayOfWeek.isWildcard,
  }
}

/** A list with each number once: cron-parser refuses `0,7` and `1-5,3`. */
function withoutRepeats(part: string, index: number): string {
  if (!part.includes(',')) return part
  const values = part.split(',').flatMap((item): readonly unknown[] => {
    const { values } = parseFields(FIELDS.map((_, at) => (at === index ? item : '*')))[FIELDS[index]!]
    return values
  })
  return [...new Set(values)].join(',')
}

/** Loads the package for the first cron text. */
const load = createRequire(import.meta.url)

function parseFields(parts: readonly string[]) {
  const { CronExpressionParser } = load('cron-parser') as typeof import('cron-parser')
  return CronExpressionParser.parse(parts.join(' '), { tz: 'UTC', currentDate: 0 }).fields
}

/** February 29 may be eight years away. */
const MAX_YEARS = 9

/**
 * The first wall-clock time of a cron text after another one. Wall-clock times are ms as if their zone were UTC.
 * @returns null when none comes within nine years
 */
export function nextWallTime(cron: Cron, after: number): number | null {
  const { months, hours, minutes, seconds } = cron
  const date = new Date(Math.floor(after / 1000) * 1000 + 1000)
  const lastYear = date.getUTCFullYear() + MAX_YEARS
  while (date.getUTCFullYear() <= lastYear) {
    if (!months.has(date.getUTCMonth() + 1)) {
      date.setUTCMonth(date.getUTCMonth() + 1, 1)
      date.setUTCHours(0, 0, 0)
    } else if (!isDay(cron, date)) date.setUTCHours(24, 0, 0)
    else if (!hours.has(date.getUTCHours())) date.setUTCHours(date.getUTCHours() + 1, 0, 0)
    else if (!minutes.has(date.getUTCMinutes())) date.setUTCMinutes(date.getUTCMinutes() + 1, 0)
    else if (!seconds.has(date.getUTCSeconds())) date.setUTCSeconds(date.getUTCSeconds() + 1)
    else return date.getTime()
  }
  return null
}

/** When both days are restricted, one of them is enough. */
function isDay({ days, weekdays, hasDays, hasWeekdays }: Cron, date: Date): boolean {
  const isOne = days.has(date.getUTCDate())
  const isOther = weekdays.has(date.getUTCDay())
  return hasDays && hasWeekdays ? isOne || isOther : isOne && isOther
}

export interface Zone {
  name: string
  /** Milliseconds ahead of UTC. @param at - ms since the epoch */
  offsetAt(at: number): number
}

export const TIMEZONE_RULE = 'UTC, Z, local, an offset such as +02:00 or -0500, or a name such as Europe/Berlin'

const OFFSET = /^([+-])(0\d|1[0-4]):?([0-5]\d)$/
const REGION = /^[A-Za-z][A-Za-z0-9_+-]*(\/[A-Za-z0-9_+-]+)*$/
const MINUTE = 60_000
/** Clocks change at quarters of an hour. */
const QUARTER = 15 * MINUTE
/** Quarters whose offset a zone remembers. */
const MAX_KNOWN = 512

/** @returns the text to keep; null when it names no zone */
export function parseTimezone(text: string): string | null {
  const known = { utc: 'UTC', z: 'Z', local: 'local' }[text.toLowerCase()]
  if (known !== undefined) return known
  if (OFFSET.test(text)) return text
  return REGION.test(text) && orNull(() => new Intl.DateTimeFormat('en-US', { timeZone: text })) !== null ? text : null
}

/** @param name - from `parseTimezone` */
export function toZone(name: string): Zone {
  if (name === 'UTC' || name === 'Z') return { name, offsetAt: () => 0 }
  if (name === 'local') return { name, offsetAt: at => -new Date(at).getTimezoneOffset() * MINUTE }
  const parts = OFFSET.exec(name)
  if (parts === null) return toRegionZone(name)
  const offset = (Number(parts[2]) * 60 + Number(parts[3])) * MINUTE * (parts[1] === '-' ? -1 : 1)
  return { name, offsetAt: () => offset }
}

/** A zone by the rules of Node's time zone data. */
function toRegionZone(name: string): Zone {
  const date = { year: 'numeric', month: 'numeric', day: 'numeric' } as const
  const time = { hour: 'numeric', minute: 'numeric', second: 'numeric' } as const
  const format = new Intl.DateTimeFormat('en-US', { timeZone: name, hourCycle: 'h23', ...date, ...time })
  const known = new Map<number, number>()
  return {
    name,
    offsetAt: at => {
      const quarter = Math.floor(at / QUARTER) * QUARTER
      if (known.size >= MAX_KNOWN) known.clear()
      return getOrMake(known, quarter, () => {
        const [month, day, year, hour, minute, second] = format.format(quarter).match(/\d+/g)!.map(Number)
        return Date.UTC(year!, month! - 1, day!, hour!, minute!, second!) - quarter
      })
    },
  }
}

/** A moment in the notation of a zone, with its offset: `2026-11-23T09:00:00+01:00`. */
export function toZonedText(at: number, zone: Zone): string {
  const offset = zone.offsetAt(at)
  const minutes = Math.abs(Math.round(offset / MINUTE))
  const clock = new Date(at + offset).toISOString().replace(/(\.000)?Z$/, '')
  const two = (value: number): string => String(value).padStart(2, '0')
  return `${clock}${offset < 0 ? '-' : '+'}${two(Math.trunc(minutes / 60))}:${two(minutes % 60)}`
}

const HOUR = 3_600_000
/** The maximum difference between two offsets of one zone within a few days. */
const AROUND = 36 * HOUR
/** The maximum by which clocks go back. */
const MAX_BACK = 3 * HOUR

/**
 * The next moment at which a cron text is due in a zone.
 *
 *   clocks go forward   a time that is skipped is due at the first moment after the gap
 *   clocks go back      a time that comes twice is due the first time only
 *
 * A text whose hour is every hour follows the clock instead: nothing for the skipped hour, both passes of the repeated one.
 * @returns null when nothing is due within nine years
 */
export function nextCronTime(cron: Cron, zone: Zone, after: number): number | null {
  const isHourly = cron.hours.size === 24
  const offset = zone.offsetAt(after)
  let next: number | null = null
  let wall = nextWallTime(cron, after + offset)
  while (wall !== null && next === null) {
    const moments = momentsOf(wall, zone)
    if (moments.length === 0 && !isHourly) moments.push(findChange(zone, wall - AROUND, wall + AROUND))
    next = (isHourly ? moments : moments.slice(0, 1)).find(at => at > after) ?? null
    if (next === null) wall = nextWallTime(cron, wall)
  }
  if (!isHourly || zone.offsetAt(after + MAX_BACK) >= offset) return next
  // The clocks go back soon: the second pass has times that are before the wall clock of now.
  const change = findChange(zone, after, after + MAX_BACK)
  const wallAgain = nextWallTime(cron, change + zone.offsetAt(change) - 1)
  const again = wallAgain === null ? null : wallAgain - zone.offsetAt(change)
  return again !== null && again > after && (next === null || again < next) ? again : next
}

/** The moments at which the clocks show a time: usually one, two after they went back, none when they skip it. */
function momentsOf(wall: number, zone: Zone): number[] {
  const offsets = new Set([zone.offsetAt(wall - AROUND), zone.offsetAt(wall + AROUND)])
  const moments = [...offsets].map(offset => wall - offset).filter(at => at + zone.offsetAt(at) === wall)
  return moments.sort((a, b) => a - b)
}

/** The first moment with the offset of `to`, which differs from that of `from`. */
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
