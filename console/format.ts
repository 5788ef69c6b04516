/** Numbers, times and sizes as text, always with a unit. Owner: page console/console. */

/** Shown for an unknown value, which is not zero. */
export const NO_DATA = '–'

type Known = number | null | undefined

function isKnown(value: Known): value is number {
  return typeof value === 'number' && Number.isFinite(value)
}

/** Three digits that count: 0.12, 3.4, 56, 789. */
function toShort(value: number): string {
  if (value === 0) return '0'
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2
  // Number() takes the zeros behind the point, and those alone.
  return String(Number(value.toFixed(digits)))
}

/** @param ms - milliseconds */
export function formatMs(ms: Known): string {
  if (!isKnown(ms)) return NO_DATA
  if (ms < 1000) return `${toShort(ms)} ms`
  if (ms < 120_000) return `${toShort(ms / 1000)} s`
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`
  return `${Math.round(ms / 86_400_000)} d`
}

/** 12,345 */
export function formatCount(count: Known): string {
  return isKnown(count) ? Math.round(count).toLocaleString('en-US') : NO_DATA
}

/** Requests a second. */
export function formatRate(perSecond: Known): string {
  if (!isKnown(perSecond)) return NO_DATA
  return `${perSecond >= 1000 ? formatCount(perSecond) : toShort(perSecond)}/s`
}

/** @param share - 0 to 1 */
export function formatShare(share: Known): string {
  return isKnown(share) ? `${toShort(share * 100)} %` : NO_DATA
}

const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB']

export function formatBytes(bytes: Known): string {
  if (!isKnown(bytes)) return NO_DATA
  let value = bytes
  let unit = 0
  while (value >= 1024 && unit < BYTE_UNITS.length - 1) {
    value /= 1024
    unit += 1
  }
  return `${toShort(value)} ${BYTE_UNITS[unit]}`
}

const two = (value: number): string => String(value).padStart(2, '0')

/** 14:03:22, in the reader's zone. @param ms - since the epoch */
export function formatClock(ms: Known): string {
  if (!isKnown(ms)) return NO_DATA
  const time = new Date(ms)
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`
}

/** 2026-01-31 14:03:22, in the reader's zone. @param ms - since the epoch */
export function formatDate(ms: Known): string {
  if (!isKnown(ms)) return NO_DATA
  const time = new Date(ms)
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${formatClock(ms)}`
}

/** "3 s ago", "in 2 min". */
export function formatAgo(ms: Known, now: number = Date.now()): string {
  if (!isKnown(ms)) return NO_DATA
  const distance = now - ms
  if (Math.abs(distance) < 1000) return 'now'
  const text = formatMs(Math.floor(Math.abs(distance) / 1000) * 1000)
  return distance > 0 ? `${text} ago` : `in ${text}`
}

/** "1 function", "2 functions". */
export function formatNumberOf(count: number, one: string, many = `${one}s`): string {
  return `${formatCount(count)} ${count === 1 ? one : many}`
}
