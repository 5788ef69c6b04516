/** What `fngw dev` shows before it serves: runtimes, routes, warnings. Owner: page bin/dev. */

import type { Gateway, Warning } from '../lib/index.ts'
import type { IgnoredPath } from '../lib/core/catalog.ts'
import { PUBLISH_TOOL } from '../lib/discovery/layouts.ts'
import type { Output } from './output.ts'
import { type RouteRow, toRouteRows, toTable } from './routes.ts'

const MAX_ROWS = 20
const MAX_WARNINGS = 20
/** Ignored files named in the line that sums them up. */
const MAX_NAMED = 3

interface BannerFacts {
  gateway: Gateway
  url: string
  version: string
  /** How `fngw` is typed here. */
  program: string
  output: Pick<Output, 'style' | 'clean'>
}

interface HealthRecord {
  runtimes: Record<string, { health: { up: boolean; reason: string } }>
  functions: { states: { runtime: string }[] }
}

/** A problem and how to mend it. */
export function toWarningText(
  { code, message, hint }: Warning,
  { clean, style }: Pick<Output, 'clean' | 'style'>,
): string {
  return `${style('yellow', 'warning')} ${clean(`${code}: ${message}`)}\n  fix: ${clean(hint)}`
}

/** Files of tests and tools were never meant as routes; a name that looks like one by chance is worth a line. */
function toIgnoredLines(ignored: readonly IgnoredPath[], program: string): string[] {
  const tools = ignored.filter(({ reason }) => reason.includes(PUBLISH_TOOL)).map(({ path }) => path)
  if (tools.length === 0) return []
  const rest = tools.length > MAX_NAMED ? ` and ${tools.length - MAX_NAMED} more` : ''
  const files = `${tools.slice(0, MAX_NAMED).join(', ')}${rest}`
  return [`  no routes ${files}: tests and tools; how to publish one: ${program} explain GET /${toUrlGuess(tools[0]!)}`]
}

/** The URL that a file would have if it were a route. */
function toUrlGuess(path: string): string {
  return path.replace(/\.[a-z]+$/, '')
}

export function toBanner({ gateway, url, version, program, output }: BannerFacts): string {
  const { style, clean } = output
  const { runtimes, functions } = gateway.health() as unknown as HealthRecord
  const used = new Set(functions.states.map(state => state.runtime))
  // Those without functions are not started; one that cannot be is worth a word all the same.
  const shown = Object.entries(runtimes).filter(([name, { health }]) => used.has(name) || !health.up)
  const states = shown.map(([name, { health }]) =>
    health.up ? name : `${name} ${style('red', `(${clean(health.reason)})`)}`,
  )
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
    ...toIgnoredLines(catalog.ignored as IgnoredPath[], program).map(clean),
    '',
    ...(rows.length === 0 ? [`  no routes yet: ${program} init hello`] : toTable(rows.slice(0, MAX_ROWS)).map(clean)),
    ...more,
    ...(warnings.length === 0 ? [] : ['', ...warnings]),
    '',
  ].join('\n')
}
