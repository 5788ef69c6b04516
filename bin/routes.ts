/** `fngw routes` and `fngw explain`: the route table and its reasons, without serving. Owner: page bin/routes. */

import type { Gateway } from '../lib/index.ts'

export interface RouteRow {
  methods: string
  path: string
  runtime: string
  file: string
}

interface MappedRoute {
  runtime: string
  name: string
  version: string | null
  methods: string[]
  origin: string
  file: string
}

/** The catalog's routes as rows, sorted by path; conflicts are rows too, marked so. */
export function toRouteRows(catalog: Record<string, unknown>): RouteRow[] {
  const mapped = catalog.mapped_routes as Record<string, MappedRoute[]>
  const conflicts = catalog.mapped_route_conflicts as Record<string, MappedRoute[]>
  const rows: RouteRow[] = []
  for (const [path, entries] of Object.entries(mapped)) {
    for (const entry of entries) {
      rows.push({ methods: entry.methods.join(','), path, runtime: entry.runtime, file: entry.file })
    }
  }
  for (const [path, entries] of Object.entries(conflicts)) {
    rows.push({ methods: '409', path, runtime: 'conflict', file: entries.map(entry => entry.file).join(', ') })
  }
  return rows.sort((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : a.methods < b.methods ? -1 : 1))
}

export function toTable(rows: readonly RouteRow[]): string[] {
  const head: RouteRow = { methods: 'METHODS', path: 'PATH', runtime: 'RUNTIME', file: 'FILE' }
  const all = [head, ...rows]
  const width = (field: keyof RouteRow): number => Math.max(...all.map(row => row[field].length))
  const widths = { methods: width('methods'), path: width('path'), runtime: width('runtime') }
  return all.map(row =>
    `  ${row.methods.padEnd(widths.methods)}  ${row.path.padEnd(widths.path)}  ${row.runtime.padEnd(widths.runtime)}  ${row.file}`.trimEnd(),
  )
}

/** Who answers, who lost and why, what was ignored; for a person. */
export function toExplanationText(explained: ReturnType<Gateway['explain']>): string {
  const { winner, losers, refusal, ignored, warnings } = explained
  const lines: string[] = []
  if (winner !== null) {
    lines.push(`answered by ${winner.file} (${winner.runtime}, function ${winner.name}, route ${winner.pattern})`)
    for (const [name, value] of Object.entries(winner.params)) lines.push(`  ${name} = ${JSON.stringify(value)}`)
  } else if (refusal !== null) {
    const allow = refusal.allow === null ? '' : `, Allow: ${refusal.allow}`
    lines.push(`nobody answers: ${refusal.status} ${refusal.message}${allow}`)
  }
  for (const { file, pattern, rule, reason } of losers)
    lines.push(`lost (${rule}): ${file}, route ${pattern}: ${reason}`)
  for (const { path, reason } of ignored) lines.push(`ignored: ${path}: ${reason}`)
  for (const { code, message, hint } of warnings) lines.push(`warning ${code}: ${message}`, `  fix: ${hint}`)
  return lines.join('\n')
}
