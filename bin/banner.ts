/** What `fngw dev` shows before it serves: runtimes, routes, warnings. Owner: page bin/dev. */

import type { Gateway, Warning } from '../lib/index.ts'
import type { Output } from './output.ts'
import { type RouteRow, toRouteRows, toTable } from './routes.ts'

const MAX_ROWS = 20

interface BannerFacts {
  gateway: Gateway
  url: string
  version: string
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

export function toBanner({ gateway, url, version, output }: BannerFacts): string {
  const { style, clean } = output
  const { runtimes, functions } = gateway.health() as unknown as HealthRecord
  const used = new Set(functions.states.map(state => state.runtime))
  // Those without functions are not started; one that cannot be is worth a word all the same.
  const shown = Object.entries(runtimes).filter(([name, { health }]) => used.has(name) || !health.up)
  const states = shown.map(([name, { health }]) =>
    health.up ? name : `${name} ${style('red', `(${clean(health.reason)})`)}`,
  )
  const rows: RouteRow[] = toRouteRows(gateway.catalog())
  const more = rows.length > MAX_ROWS ? [`  ... ${rows.length - MAX_ROWS} more: fngw routes`] : []
  const warnings = gateway.warnings.map(warning => toWarningText(warning, output))
  return [
    `${style('bold', 'fngw')} ${version}  ${style('cyan', url)}`,
    `  root      ${clean(gateway.settings.functionsRoot)}`,
    `  runtimes  ${states.join(', ') || 'none'}`,
    '',
    ...(rows.length === 0 ? ['  no routes yet: fngw init hello'] : toTable(rows.slice(0, MAX_ROWS)).map(clean)),
    ...more,
    ...(warnings.length === 0 ? [] : ['', ...warnings]),
    '',
  ].join('\n')
}
