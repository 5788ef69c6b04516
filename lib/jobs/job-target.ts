/** Which route of its function a job calls, and the path that its params make of it. Spec: page jobs/jobs. */

import { showText } from '../config/findings.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import type { Method } from '../core/identity.ts'
import { parsePattern, type Segment } from '../core/pattern.ts'
import { toFunctionPath } from '../core/versions.ts'

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
 * @throws GatewayError NOT_FOUND for a route that is none of them, BAD_REQUEST for params that are missing
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
  const pattern = parsePattern(template)
  if ('problem' in pattern) throw new GatewayError('INTERNAL', 'gateway exception', { cause: pattern.problem })
  const missing = pattern.segments.filter(segment => isNeeded(segment) && !params[segment.text])
  if (missing.length > 0) {
    const names = missing.map(({ text }) => text).join(', ')
    throw new GatewayError('BAD_REQUEST', `missing required path params: ${names} (route ${template})`)
  }
  const parts = pattern.segments.flatMap(segment => toParts(segment, params))
  return {
    routeTemplate: template,
    path: `/${parts.join('/')}`,
    rawPath: `/${parts.map(encodeURIComponent).join('/')}`,
    params,
  }
}

function findRoute(fn: FunctionVersion, method: Method, route: string, routes: readonly string[]): string {
  const wanted = parsePattern(route)
  if (!('problem' in wanted) && routes.includes(wanted.text)) return wanted.text
  const has = routes.length === 0 ? 'it has none' : `it has ${routes.slice(0, 10).join(', ')}`
  throw new GatewayError('NOT_FOUND', `"${showText(route)}" is no route of ${fn.key} for ${method}: ${has}`)
}

function isNeeded({ kind }: Segment): boolean {
  return kind !== 'static' && kind !== 'optional-catch-all'
}

/** Decoded segments that one of the pattern stands for. */
function toParts({ kind, text }: Segment, params: Readonly<Record<string, string>>): string[] {
  if (kind === 'static') return [decodeURIComponent(text)]
  const value = params[text] ?? ''
  return kind === 'param' ? [value] : value.split('/').filter(part => part !== '')
}
