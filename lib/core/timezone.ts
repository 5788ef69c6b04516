/** Time zones of schedules: how far the clocks of a place are ahead of UTC at a moment. Spec: §2.13. */

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
