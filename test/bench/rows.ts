/** What a benchmark reports: one row per case. */

export interface BenchRow {
  name: string
  value: number
  /** Such as `ratio`, `ns`, `ms`. */
  unit: string
  /** The goal in words, where there is one. */
  goal?: string
  /** Whether the goal holds. */
  ok?: boolean
}

/** Prints rows as a table. */
export function printRows(title: string, rows: readonly BenchRow[]): void {
  const width = Math.max(...rows.map(row => row.name.length))
  const lines = rows.map(row => {
    const verdict = row.ok === undefined ? '' : row.ok ? 'ok' : 'MISSED'
    const value = row.value.toFixed(row.value < 10 ? 2 : 1).padStart(8)
    return `  ${row.name.padEnd(width)} ${value} ${row.unit.padEnd(6)} ${(row.goal ?? '').padEnd(14)} ${verdict}`.trimEnd()
  })
  process.stdout.write(`${title}\n${lines.join('\n')}\n`)
}
