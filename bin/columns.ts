/** Tables and times of commands that list something. Owner: page bin/schedule. */

/** Cells of each row, padded to the widest of their column; the last column is left as it is. */
export function alignColumns(rows: readonly (readonly string[])[]): string[][] {
  const widths: number[] = []
  for (const cells of rows)
    for (const [at, cell] of cells.entries()) widths[at] = Math.max(widths[at] ?? 0, cell.length)
  return rows.map(cells => cells.map((cell, at) => (at === cells.length - 1 ? cell : cell.padEnd(widths[at]!))))
}

const UNITS = [
  ['d', 86_400],
  ['h', 3600],
  ['min', 60],
  ['s', 1],
] as const

/** `in 5 min`, `3 h ago`, `now`. @param at - as `now`, ms */
export function toRelativeTime(at: number, now: number): string {
  const seconds = Math.round(Math.abs(at - now) / 1000)
  if (seconds === 0) return 'now'
  // Two of a larger unit say enough; below that the smaller one is more exact.
  const [name, size] = UNITS.find(([, unit]) => seconds >= 2 * unit) ?? UNITS.at(-1)!
  const text = `${Math.round(seconds / size)} ${name}`
  return at > now ? `in ${text}` : `${text} ago`
}

/** A schedule in words: `every 60 s`, `0 9 * * MON-FRI (UTC)`. */
export function toRuleText(schedule: { every_seconds?: number; cron?: string; timezone: string } | null): string {
  if (schedule === null) return 'wrong'
  const { every_seconds: every, cron, timezone } = schedule
  if (every !== undefined) return `every ${every} s`
  return timezone === 'local' ? `${cron}` : `${cron} (${timezone})`
}
