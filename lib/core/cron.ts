/**
 * Cron texts as sets of numbers, and the wall-clock times that they mean. Reads fields with cron-parser and refuses what the
 * specification does not have; what times mean in a zone is the question of scheduler/cron-times. Spec: §2.13.
 */

import { createRequire } from 'node:module'

/** A cron text, read. Numbers are sorted. */
export interface Cron {
  /** With single spaces, macros in lower case. */
  text: string
  seconds: readonly number[]
  minutes: readonly number[]
  hours: readonly number[]
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
/** What the specification has; cron-parser would also take `L`, `#` and `H`, which stands for a random number. */
const ITEM = /^(\*|\?|\d{1,2}|[a-z]{3})(-(\d{1,2}|[a-z]{3}))?(\/\d{1,2})?$/i
const NAMES = /jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat/i
const ONE_DAY = 86_400_000
/** February 29 may be eight years away. */
const MAX_DAYS = 9 * 366

type FieldName = 'second' | 'minute' | 'hour' | 'dayOfMonth' | 'month' | 'dayOfWeek'
type Values = Readonly<Record<FieldName, readonly number[]>>
const FIELDS: readonly FieldName[] = ['second', 'minute', 'hour', 'dayOfMonth', 'month', 'dayOfWeek']
const FIELD_LABELS = ['second', 'minute', 'hour', 'day of month', 'month', 'day of week']

/** @returns why it is none, as the end of a sentence */
export function parseCron(given: string): Cron | { problem: string } {
  const text = given.trim().replace(/\s+/g, ' ')
  if (text.length > MAX_CRON_CHARS) return { problem: `it has more than ${MAX_CRON_CHARS} characters` }
  const macro = text.startsWith('@') ? text.toLowerCase() : null
  if (macro !== null && !Object.hasOwn(MACROS, macro)) return { problem: `there is no macro ${text}` }
  const parts = (macro === null ? text : MACROS[macro]!).split(' ')
  if (parts.length !== 5 && parts.length !== 6) return { problem: `it has ${parts.length} fields` }
  if (parts.length === 5) parts.unshift('0')
  const wrong = findWrong(parts)
  if (wrong !== null) return { problem: wrong }
  try {
    const cron = toCron(macro ?? text, parts, readValues(parts.map(toSundayLast)))
    return nextWallTime(cron, 0) === null ? { problem: 'no such date ever comes' } : cron
  } catch (error) {
    const { message } = error as Error
    return { problem: /explicit day of month/.test(message) ? 'no such date ever comes' : lowerFirst(message) }
  }
}

function findWrong(parts: readonly string[]): string | null {
  for (const [index, part] of parts.entries()) {
    const bad = part.split(',').find(item => !ITEM.test(item) || (/[a-z]/i.test(item) && !NAMES.test(item)))
    if (bad !== undefined) return `its ${FIELD_LABELS[index]} "${part}" has "${bad}"`
    if (part.includes('?') && index !== 3 && index !== 5) return `its ${FIELD_LABELS[index]} is "?"`
  }
  return null
}

/** `FRI-SUN` ends with day 7. */
function toSundayLast(part: string, index: number): string {
  return index === 5 ? part.replace(/-sun\b/gi, '-7') : part
}

function readValues(parts: readonly string[]): Values {
  try {
    return parseParts(parts)
  } catch (error) {
    // Numbers that a list names twice, as `0,7` and `1-5,3` do, are no fault.
    if (!/duplicate values/.test((error as Error).message)) throw error
  }
  const values = { ...parseParts(parts.map(part => (part.includes(',') ? '*' : part))) } as Record<FieldName, number[]>
  for (const [index, part] of parts.entries()) {
    if (!part.includes(',')) continue
    const name = FIELDS[index]!
    const items = part.split(',').flatMap(item => parseParts(parts.map((_, i) => (i === index ? item : '*')))[name])
    values[name] = [...new Set(items)]
  }
  return values
}

/** Only who uses cron texts pays for the package. */
const load = createRequire(import.meta.url)

function parseParts(parts: readonly string[]): Values {
  const { CronExpressionParser } = load('cron-parser') as typeof import('cron-parser')
  const { fields } = CronExpressionParser.parse(parts.join(' '), { tz: 'UTC', currentDate: 0 })
  return Object.fromEntries(FIELDS.map(name => [name, fields[name].values as readonly number[]])) as Values
}

function toCron(text: string, parts: readonly string[], values: Values): Cron {
  const isOpen = (part: string): boolean => part === '*' || part === '?'
  return {
    text,
    seconds: toSorted(values.second),
    minutes: toSorted(values.minute),
    hours: toSorted(values.hour),
    days: new Set(values.dayOfMonth),
    months: new Set(values.month),
    weekdays: new Set(values.dayOfWeek.map(day => day % 7)),
    hasDays: !isOpen(parts[3]!),
    hasWeekdays: !isOpen(parts[5]!),
  }
}

function toSorted(values: readonly number[]): number[] {
  return [...values].sort((a, b) => a - b)
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1)
}

/**
 * The first wall-clock time of a cron text after another one. Wall-clock times are ms as if their zone were UTC.
 * @returns null when none comes within nine years
 */
export function nextWallTime(cron: Cron, after: number): number | null {
  const start = Math.floor(after / 1000) * 1000 + 1000
  let day = Math.floor(start / ONE_DAY) * ONE_DAY
  const last = day + MAX_DAYS * ONE_DAY
  const time = isDay(cron, day) ? nextTimeOfDay(cron, (start - day) / 1000) : null
  if (time !== null) return day + time * 1000
  for (day += ONE_DAY; day <= last; ) {
    if (isDay(cron, day)) return day + nextTimeOfDay(cron, 0)! * 1000
    day = cron.months.has(new Date(day).getUTCMonth() + 1) ? day + ONE_DAY : toNextMonth(day)
  }
  return null
}

/** With both days restricted either one will do. */
function isDay({ days, months, weekdays, hasDays, hasWeekdays }: Cron, day: number): boolean {
  const date = new Date(day)
  if (!months.has(date.getUTCMonth() + 1)) return false
  const isOne = days.has(date.getUTCDate())
  const isOther = weekdays.has(date.getUTCDay())
  return hasDays && hasWeekdays ? isOne || isOther : isOne && isOther
}

function toNextMonth(day: number): number {
  const date = new Date(day)
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1)
}

/** @returns seconds of the day, at least `from`; null when the day has none any more */
function nextTimeOfDay({ seconds, minutes, hours }: Cron, from: number): number | null {
  for (const hour of hours) {
    if (hour * 3600 + 3599 < from) continue
    for (const minute of minutes) {
      const base = hour * 3600 + minute * 60
      if (base + 59 < from) continue
      const second = seconds.find(one => base + one >= from)
      if (second !== undefined) return base + second
    }
  }
  return null
}

// Time zones of schedules: how far the clocks of a place are ahead of UTC at a moment. Spec: §2.13.

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
  if (!REGION.test(text)) return null
  try {
    new Intl.DateTimeFormat('en-US', { timeZone: text })
    return text
  } catch {
    return null
  }
}

/** @param name - as `parseTimezone` gives it */
export function toZone(name: string): Zone {
  if (name === 'UTC' || name === 'Z') return { name, offsetAt: () => 0 }
  if (name === 'local') return { name, offsetAt: at => -new Date(at).getTimezoneOffset() * MINUTE }
  const parts = OFFSET.exec(name)
  if (parts === null) return new RegionZone(name)
  const offset = (Number(parts[2]) * 60 + Number(parts[3])) * MINUTE * (parts[1] === '-' ? -1 : 1)
  return { name, offsetAt: () => offset }
}

/** A zone by the rules that node has of it. */
class RegionZone implements Zone {
  readonly name: string
  readonly #format: Intl.DateTimeFormat
  readonly #known = new Map<number, number>()

  constructor(name: string) {
    this.name = name
    this.#format = new Intl.DateTimeFormat('en-US', {
      timeZone: name,
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    })
  }

  offsetAt(at: number): number {
    const quarter = Math.floor(at / QUARTER)
    const known = this.#known.get(quarter)
    if (known !== undefined) return known
    if (this.#known.size >= MAX_KNOWN) this.#known.clear()
    const offset = this.#read(quarter * QUARTER)
    this.#known.set(quarter, offset)
    return offset
  }

  #read(at: number): number {
    const [month, day, year, hour, minute, second] = this.#format.format(at).match(/\d+/g)!.map(Number)
    return Date.UTC(year!, month! - 1, day!, hour!, minute!, second!) - at
  }
}

/** A moment as people of a zone write it, with its offset: `2026-11-23T09:00:00+01:00`. */
export function toZonedText(at: number, zone: Zone): string {
  const offset = zone.offsetAt(at)
  const minutes = Math.abs(Math.round(offset / MINUTE))
  const clock = new Date(at + offset).toISOString().replace(/(\.000)?Z$/, '')
  const two = (value: number): string => String(value).padStart(2, '0')
  return `${clock}${offset < 0 ? '-' : '+'}${two(Math.trunc(minutes / 60))}:${two(minutes % 60)}`
}

// // The moments at which a cron text is due in a zone. Spec: page scheduler/schedule.
//   clocks go forward   a time that is skipped is due at the first moment after the gap
//   clocks go back      a time that comes twice is due the first time only
// A text whose hour is every hour follows the clock instead: nothing for the skipped hour, both passes of the repeated one.

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
