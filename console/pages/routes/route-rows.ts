/** The catalog's routes as rows, and who answers a request in a sentence. Owner: page console/routes. */

import type { Catalog, Explanation, RouteClaim } from '../../data/records.ts'

export interface RouteRow {
  readonly pattern: string
  readonly claim: RouteClaim
  /** True for a route that several claim with equal right: none of them has it. */
  readonly isConflict: boolean
}

/** Name of a function as its page's address has it. */
export function toKey({
  runtime,
  name,
  version,
}: Pick<RouteClaim, 'runtime' | 'name'> & { version: string | null }): string {
  return `${runtime}/${name}@${version ?? 'default'}`
}

/** Conflicts first, then in the order of the catalog. */
export function toRouteRows({ mapped_routes: routes, mapped_route_conflicts: conflicts }: RouteLists): RouteRow[] {
  const rowsOf = (lists: RouteLists['mapped_routes'], isConflict: boolean): RouteRow[] =>
    Object.entries(lists).flatMap(([pattern, claims]) => claims.map(claim => ({ pattern, claim, isConflict })))
  return [...rowsOf(conflicts, true), ...rowsOf(routes, false)]
}

type RouteLists = Pick<Catalog, 'mapped_routes' | 'mapped_route_conflicts'>

/** Rows in which every word occurs: in the path, the methods, the function, its language, the file or where the claim is made. */
export function findRows(rows: readonly RouteRow[], search: string): readonly RouteRow[] {
  const words = search
    .toLowerCase()
    .split(/\s+/)
    .filter(word => word !== '')
  if (words.length === 0) return rows
  return rows.filter(({ pattern, claim, isConflict }) => {
    const { methods, runtime, name, version, file, source, origin } = claim
    const texts = [
      ...methods,
      pattern,
      runtime,
      name,
      version ?? '',
      file,
      source,
      origin,
      isConflict ? 'conflict' : '',
    ]
    const text = texts.join(' ').toLowerCase()
    return words.every(word => text.includes(word))
  })
}

/** The route that serves a request, or why there is none. */
export function toSentence({ method, path, winner, refusal, beside }: Explanation): string {
  const asked = `${method} ${path}`
  if (beside !== null) {
    const instead = winner === null ? '' : ` The route ${winner.pattern} of ${winner.file} has a lower priority.`
    return `${asked} is served by ${beside.text}.${instead}`
  }
  if (winner !== null) {
    const params = Object.entries(winner.params).map(([name, value]) => `${name} = ${JSON.stringify(value)}`)
    const filled = params.length === 0 ? '' : `, with ${params.join(', ')}`
    const refused = refusal === null ? '' : ` Its calls are rejected: ${refusal.status}, ${refusal.message}.`
    return `${asked} is served by ${winner.file} (${winner.runtime}): route ${winner.pattern}${filled}.${refused}`
  }
  if (refusal === null) return `${asked} is not served by any function.`
  const allowed = refusal.allow === null ? '' : `; allowed: ${refusal.allow}`
  return `${asked} is not served: ${refusal.status}, ${refusal.message}${allowed}.`
}
