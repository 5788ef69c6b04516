/** What `fngw dev` shows before it serves: runtimes, routes, warnings. Owner: page bin/dev. */

import type { Gateway } from '../lib/index.ts'
import type { Output } from './output.ts'
import { type RouteRow, toRouteRows, toTable } from './routes.ts'

const MAX_ROWS = 20

interface BannerFacts {
  gateway: Gateway
  url: string
  version: string
  style: Output['style']
}

interface HealthRecord {
  runtimes: Record<string, { health: { up: boolean; reason: string } }>
}

export function toBanner({ gateway, url, version, style }: BannerFacts): string {
  const { runtimes } = gateway.health() as unknown as HealthRecord
  const states = Object.entries(runtimes).map(([name, { health }]) =>
    health.up ? name : `${name} ${style('red', `(${health.reason})`)}`,
  )
  const rows: RouteRow[] = toRouteRows(gateway.catalog())
  const more = rows.length > MAX_ROWS ? [`  ... ${rows.length - MAX_ROWS} more: fngw routes`] : []
  const warnings = gateway.warnings.flatMap(warning => [
    `${style('yellow', 'warning')} ${warning.code}: ${warning.message}`,
    `  fix: ${warning.hint}`,
  ])
  return [
    `${style('bold', 'fngw')} ${version}  ${style('cyan', url)}`,
    `  root      ${gateway.settings.functionsRoot}`,
    `  runtimes  ${states.join(', ') || 'none'}`,
    '',
    ...(rows.length === 0 ? ['  no routes yet: fngw init hello'] : toTable(rows.slice(0, MAX_ROWS))),
    ...more,
    ...(warnings.length === 0 ? [] : ['', ...warnings]),
    '',
  ].join('\n')
}
