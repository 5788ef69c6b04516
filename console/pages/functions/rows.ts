/** The list of functions: what the catalog, the counters and the workers say of each, and which of them are wanted. Owner: page console/functions. */

import { type FunctionId, type Health, toKey } from '../../data/function-records.ts'
import type { FunctionTotals, History } from '../../data/history.ts'
import type { Catalog, RouteClaim } from '../../data/records.ts'

export const STATES = ['broken', 'failing', 'throttled', 'slow', 'warnings', 'warm', 'cold'] as const

/** Status of a function in one word, the worst first. */
export type State = (typeof STATES)[number]

export interface FunctionRow extends FunctionId {
  readonly key: string
  readonly file: string
  /** `GET,POST /users`, the shortest path first. */
  readonly routes: readonly string[]
  readonly warnings: number
  /** Null while it is not known. */
  readonly workers: number | null
  readonly rate: number | null
  readonly summary: FunctionTotals | null
  /** All that hold; `state` is the worst of them. */
  readonly states: ReadonlySet<State>
  readonly state: State | null
  /** The text that a search matches. */
  readonly text: string
}

/** From here on a function is called slow, ms of p95. */
export const SLOW_MS = 1000

interface Sources {
  readonly catalog: Catalog
  readonly metrics: History | null
  readonly health: Health | null
}

export function toRows({ catalog, metrics, health }: Sources): FunctionRow[] {
  const claims = toClaims(catalog)
  const warnings = countWarnings(catalog)
  const summaries = new Map(metrics?.functions.map(one => [one.key, one]))
  const states = health?.functions.states
  const workers = new Map(states?.map(one => [one.key, one]))
  // A gateway that began a minute ago had a minute only.
  const seconds = metrics === null ? null : toSeconds(metrics)
  return toIds(catalog).map(id => {
    const key = toKey(id)
    const own = claims.get(key) ?? []
    const file = own[0]?.file ?? id.file ?? ''
    const summary = summaries.get(key) ?? null
    const count = countOf(file, warnings)
    const warmth = workers.get(key)
    const found = toStates(summary, count, warmth)
    const mapped = own.map(claim => `${claim.methods.join()} ${claim.route}`)
    // A version is always answered under its name, too.
    const routes = id.version === 'default' ? mapped : [...mapped, `/${id.name}@${id.version}`]
    return {
      runtime: id.runtime,
      name: id.name,
      version: id.version,
      key,
      file,
      routes,
      warnings: count,
      workers: states === undefined ? null : (warmth?.workers ?? 0),
      rate: seconds === null || seconds <= 0 ? null : (summary?.requests ?? 0) / seconds,
      summary,
      states: found,
      state: STATES.find(state => found.has(state)) ?? null,
      text: `${key} ${file} ${routes.join(' ')} ${summary?.last_error ?? ''}`.toLowerCase(),
    }
  })
}

/** How long is counted. */
function toSeconds({ times, generated_at: now, started_at: start }: History): number {
  return now - Math.max(start, times[0] ?? start)
}

function toIds(catalog: Catalog): (FunctionId & { file: string | null })[] {
  return Object.entries(catalog.runtimes).flatMap(([runtime, { functions }]) =>
    functions.flatMap(({ name, has_default: hasDefault, versions, file }) =>
      [...(hasDefault ? ['default'] : []), ...versions].map(version => ({
        runtime,
        name,
        version,
        file: version === 'default' ? file : null,
      })),
    ),
  )
}

type RoutedClaim = RouteClaim & { route: string }

/** Routes by the function that answers them. */
function toClaims(catalog: Catalog): Map<string, RoutedClaim[]> {
  const claims = new Map<string, RoutedClaim[]>()
  for (const [route, owners] of Object.entries(catalog.mapped_routes))
    for (const owner of owners) {
      const key = toKey({ runtime: owner.runtime, name: owner.name, version: owner.version ?? 'default' })
      const list = claims.get(key) ?? []
      list.push({ ...owner, route })
      claims.set(key, list)
    }
  for (const list of claims.values()) list.sort((a, b) => a.route.length - b.route.length)
  return claims
}

/** Warnings by the path they are about. */
function countWarnings(catalog: Catalog): Map<string, number> {
  const counts = new Map<string, number>()
  for (const { path } of catalog.warnings) counts.set(path, (counts.get(path) ?? 0) + 1)
  return counts
}

/** Of its file, its folder and the files beside it that configure it. */
function countOf(file: string, warnings: ReadonlyMap<string, number>): number {
  if (warnings.size === 0) return 0
  const slash = file.lastIndexOf('/')
  const folder = slash === -1 ? '' : file.slice(0, slash)
  const beside = (name: string): string => (folder === '' ? name : `${folder}/${name}`)
  const paths = [file, beside('fn.config.json'), beside('fn.env.json'), beside('schema.json')]
  if (folder !== '') paths.push(folder)
  return paths.reduce((sum, path) => sum + (warnings.get(path) ?? 0), 0)
}

type Warmth = NonNullable<Health['functions']['states']>[number]

function toStates(summary: FunctionTotals | null, warnings: number, warmth: Warmth | undefined): Set<State> {
  const states = new Set<State>()
  if (warmth !== undefined && warmth.load_error !== null) states.add('broken')
  if (summary !== null && summary.errors_5xx > 0) states.add('failing')
  if (summary !== null && summary.throttled > 0) states.add('throttled')
  if ((summary?.p95_ms ?? 0) >= SLOW_MS) states.add('slow')
  if (warnings > 0) states.add('warnings')
  if (warmth !== undefined) states.add(warmth.state === 'cold' ? 'cold' : 'warm')
  return states
}

interface Filter {
  /** All words of it must be there. */
  readonly text: string
  /** '' for all. */
  readonly runtime: string
  readonly state: string
}

export function filterRows(rows: readonly FunctionRow[], { text, runtime, state }: Filter): readonly FunctionRow[] {
  const words = text.trim().toLowerCase().split(/\s+/).filter(Boolean)
  if (words.length === 0 && runtime === '' && state === '') return rows
  return rows.filter(
    row =>
      (runtime === '' || row.runtime === runtime) &&
      (state === '' || row.states.has(state as State)) &&
      words.every(word => row.text.includes(word)),
  )
}
