/** Which route of its function a job calls, and the path that its params make of it. Spec: page jobs/jobs. */

import { showText } from '../config/findings.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import type { Method } from '../core/identity.ts'
import { parsePattern } from '../core/pattern.ts'
import { toFunctionPath } from '../core/versions.ts'
import { fillRoute } from '../router/call-route.ts'
import { normalizePath, unescapeCanonical } from '../router/path.ts'

interface JobTarget {
  /** null for a function that no route leads to. */
  routeTemplate: string | null
  path: string
  rawPath: string
  params: Readonly<Record<string, string>>
}

/**
 * @param route - as asked for; null takes the first one
 * @param routes - of the function and method, in text order
 * @throws GatewayError NOT_FOUND for a route that is none of them, BAD_REQUEST for params that are missing, not its own, or fit no path
 */
export function toJobTarget(
  fn: FunctionVersion,
  method: Method,
  route: string | null,
  routes: readonly string[],
  params: Readonly<Record<string, string>>,
): JobTarget {
  const template = route === null ? (routes[0] ?? null) : findRoute(fn, method, route, routes)
  if (template === null) {
    const path = toFunctionPath(fn.name, fn.version)
    return { routeTemplate: null, path, rawPath: path, params }
  }
  const rawPath = fillRoute(template, params)
  const canonical = normalizePath(rawPath)
  if (typeof canonical !== 'string') throw new GatewayError('BAD_REQUEST', `params: ${canonical.problem}`)
  return { routeTemplate: template, path: unescapeCanonical(canonical), rawPath, params }
}

function findRoute(fn: FunctionVersion, method: Method, route: string, routes: readonly string[]): string {
  const wanted = parsePattern(route)
  if (!('problem' in wanted) && routes.includes(wanted.text)) return wanted.text
  const has = routes.length === 0 ? 'it has none' : `it has ${routes.slice(0, 10).join(', ')}`
  throw new GatewayError('NOT_FOUND', `"${showText(route)}" is no route of ${fn.key} for ${method}: ${has}`)
}
