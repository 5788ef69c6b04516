/** `fngw routes` and `fngw explain`: the route table and its reasons, without serving. Owner: page bin/routes. */

import { compareText } from '../lib/core/text.ts'
import { toVersionPath } from '../lib/core/versions.ts'
import type { Gateway } from '../lib/index.ts'
import { alignColumns } from './columns.ts'

export interface RouteRow {
  methods: string
  path: string
  runtime: string
  file: string
}

/** The part of a catalog that makes rows. */
interface RoutesRecord {
  mapped_routes: Record<string, RouteOwner[]>
  mapped_route_conflicts: Record<string, RouteOwner[]>
  homes: { folder: string; kind: 'route' | 'redirect'; target: string; origin: string }[]
  runtimes: Record<string, { functions: VersionedRecord[] }>
}

interface RouteOwner {
  runtime: string
  fn_name: string
  methods: string[]
  file: string
}

interface VersionedRecord {
  name: string
  /** Handler of the default version; null without one. */
  file: string | null
  version_files: Record<string, string>
  versions_policy: Record<string, { methods: string[]; private: boolean }>
}

/** The catalog's routes as rows, sorted by path; homes, addresses of versions, functions without a route and conflicts are rows too, marked so. */
export function toRouteRows(catalog: Record<string, unknown>): RouteRow[] {
  const { mapped_routes, mapped_route_conflicts, homes, runtimes } = catalog as unknown as RoutesRecord
  const rows: RouteRow[] = []
  for (const { folder, kind, target, origin } of homes) {
    const file = `${kind === 'redirect' ? 'redirect to ' : ''}${target}${origin === '.' ? '' : ` (${origin})`}`
    rows.push({ methods: 'GET', path: folder, runtime: 'home', file })
  }
  for (const [path, entries] of Object.entries(mapped_routes)) {
    for (const { methods, runtime, file } of entries) rows.push({ methods: methods.join(','), path, runtime, file })
  }
  const owners = [...Object.values(mapped_routes), ...Object.values(mapped_route_conflicts)].flat()
  const routed = new Set(owners.map(owner => `${owner.runtime} ${owner.fn_name}`))
  for (const [runtime, { functions }] of Object.entries(runtimes)) {
    for (const fn of functions) {
      rows.push(...toVersionRows(runtime, fn))
      if (fn.file !== null && !routed.has(`${runtime} ${fn.name}`))
        rows.push({ methods: 'private', path: fn.name, runtime, file: fn.file })
    }
  }
  for (const [path, entries] of Object.entries(mapped_route_conflicts)) {
    rows.push({ methods: '409', path, runtime: 'conflict', file: entries.map(entry => entry.file).join(', ') })
  }
  return rows.sort((a, b) => compareText(a.path, b.path) || compareText(a.methods, b.methods))
}

/** A version answers at its address, whatever its function's routes are. */
function toVersionRows(runtime: string, { name, version_files, versions_policy }: VersionedRecord): RouteRow[] {
  return Object.entries(version_files).map(([version, file]) => {
    const policy = versions_policy[version]
    if (policy?.private === true) return { methods: 'private', path: `${name}@${version}`, runtime, file }
    const methods = policy?.methods.join(',') ?? ''
    return { methods, path: toVersionPath(name, version), runtime, file }
  })
}

/** @param rows - rows shown at most */
export function toTable(rows: readonly RouteRow[]): string[] {
  const cells = rows.map(({ methods, path, runtime, file }) => [methods, path, runtime, file])
  return alignColumns([['METHODS', 'PATH', 'RUNTIME', 'FILE'], ...cells]).map(row => `  ${row.join('  ')}`.trimEnd())
}

/** The whole table. */
export function toRouteLines(catalog: Record<string, unknown>): string[] {
  return toTable(toRouteRows(catalog))
}

/** The matching route, the candidates that lost and why, and ignored files; for a terminal. */
export function toExplanationText(explained: ReturnType<Gateway['explain']>): string[] {
  const { winner, losers, refusal, ignored, warnings, beside } = explained
  const lines: string[] = []
  if (beside !== null) lines.push(`answered by ${beside.text}`)
  if (winner !== null) {
    const verb = beside === null ? 'answered by' : 'behind it:'
    lines.push(`${verb} ${winner.file} (${winner.runtime}, function ${winner.name}, route ${winner.pattern})`)
    for (const [name, value] of Object.entries(winner.params)) lines.push(`  ${name} = ${JSON.stringify(value)}`)
    if (refusal !== null) lines.push(`  its calls are refused: ${refusal.status} ${refusal.message}`)
  } else if (refusal !== null && beside === null) {
    const allow = refusal.allow === null ? '' : `, Allow: ${refusal.allow}`
    lines.push(`no route matches: ${refusal.status} ${refusal.message}${allow}`)
  }
  for (const { file, pattern, rule, reason } of losers)
    lines.push(`lost (${rule}): ${file}, route ${pattern}: ${reason}`)
  for (const { path, reason } of ignored) lines.push(`ignored: ${path}: ${reason}`)
  for (const { code, message, hint } of warnings) lines.push(`warning ${code}: ${message}`, `  fix: ${hint}`)
  return lines
}
