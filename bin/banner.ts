/** What `fngw dev` shows before it serves: runtimes, routes, warnings. Owner: page bin/dev. */

import type { Gateway, Warning } from '../lib/index.ts'
import { alignColumns, toRuleText } from './columns.ts'
import type { Output } from './output.ts'
import { type RouteRow, toRouteRows, toTable } from './routes.ts'

const MAX_ROWS = 20
const MAX_WARNINGS = 20

interface BannerFacts {
  gateway: Gateway
  url: string
  /** Address of the control plane, where it has its own. */
  control: string | null
  version: string
  /** How `fngw` is typed here. */
  program: string
  output: Pick<Output, 'style' | 'clean'>
}

interface HealthRecord {
  runtimes: Record<string, { version?: string; health: { up: boolean; reason: string } }>
  functions: { states: { runtime: string }[] }
}

/** A problem and how to mend it. */
export function toWarningText(
  { code, message, hint }: Warning,
  { clean, style }: Pick<Output, 'clean' | 'style'>,
): string {
  return `${style('yellow', 'warning')} ${clean(`${code}: ${message}`)}\n  fix: ${clean(hint)}`
}

/** The pages that are served, without those whose path a function has taken. */
function toPageLines(gateway: Gateway, url: string, control: string | null): string[] {
  const hasDocs = gateway.explain('GET', '/docs').beside?.kind === 'document'
  return [
    ...(hasDocs ? [`  docs      ${url}/docs`] : []),
    ...(gateway.settings.uiEnabled ? [`  console   ${control ?? url}/console`] : []),
  ]
}

type SchedulePolicy = { schedule?: Parameters<typeof toRuleText>[0] & { enabled: boolean } }

interface ScheduledRecord {
  name: string
  policy: SchedulePolicy
  versions_policy: Record<string, SchedulePolicy>
}

/** Functions that run without a request. */
function toScheduleLines(catalog: Record<string, unknown>, program: string): string[] {
  const runtimes = catalog.runtimes as Record<string, { functions: ScheduledRecord[] }>
  const all = Object.values(runtimes).flatMap(({ functions }) =>
    functions.flatMap(({ name, policy, versions_policy: versions }) => [
      [name, policy] as const,
      ...Object.entries(versions).map(([version, own]) => [`${name}@${version}`, own] as const),
    ]),
  )
  const rows = all.flatMap(([name, { schedule }]) => (schedule?.enabled === true ? [[name, toRuleText(schedule)]] : []))
  if (rows.length === 0) return []
  const more = rows.length > MAX_ROWS ? [`  ... ${rows.length - MAX_ROWS} more: ${program} schedule ls`] : []
  return [
    '',
    ...alignColumns([['SCHEDULE', 'RULE'], ...rows.slice(0, MAX_ROWS)]).map(row => `  ${row.join('  ')}`),
    ...more,
  ]
}

export function toBanner({ gateway, url, control, version, program, output }: BannerFacts): string {
  const { style, clean } = output
  const { runtimes, functions } = gateway.health() as unknown as HealthRecord
  const used = new Set(functions.states.map(state => state.runtime))
  // Those without functions are not started; one that cannot be is worth a word all the same.
  const shown = Object.entries(runtimes).filter(([name, { health }]) => used.has(name) || !health.up)
  const states = shown.map(([name, { version: found, health }]) => {
    if (!health.up) return `${name} ${style('red', `(${clean(health.reason)})`)}`
    return found === undefined ? name : `${name} ${clean(found)}`
  })
  const catalog = gateway.catalog()
  const rows: RouteRow[] = toRouteRows(catalog)
  const more = rows.length > MAX_ROWS ? [`  ... ${rows.length - MAX_ROWS} more: ${program} routes`] : []
  const warnings = gateway.warnings.slice(0, MAX_WARNINGS).map(warning => toWarningText(warning, output))
  const rest = gateway.warnings.length - warnings.length
  if (rest > 0) warnings.push(`... ${rest} more warnings: ${program} routes`)
  return [
    `${style('bold', 'fngw')} ${version}  ${style('cyan', url)}`,
    `  root      ${clean(gateway.settings.functionsRoot)}`,
    `  runtimes  ${states.join(', ') || 'none'}`,
    ...toPageLines(gateway, url, control),
    '',
    ...(rows.length === 0 ? [`  no routes yet: ${program} init hello`] : toTable(rows.slice(0, MAX_ROWS)).map(clean)),
    ...more,
    ...(gateway.settings.schedulerEnabled ? toScheduleLines(catalog, program) : []).map(clean),
    ...(warnings.length === 0 ? [] : ['', ...warnings]),
    '',
  ].join('\n')
}
