/** Who answers a request and why: routes, and what is answered around them. Owner: §3, page bin/routes. */

import { isAsset } from './assets/static-assets.ts'
import type { Catalog } from './catalog-loader.ts'
import { type Discovery, explainIgnored } from './discovery/discover.ts'
import type { Settings } from './config/settings.ts'
import { isReservedPath, METHODS } from './core/identity.ts'
import { DOCUMENTS, findClaim } from './http/docs-page.ts'
import type { BesideRoutes, GatewayExplanation } from './gateway-types.ts'
import { explain } from './router/explain.ts'
import type { RouteTable } from './router/route-table.ts'
import { normalizePath, unescapeCanonical } from './router/path.ts'

/** Routes that answer GET, in the bits of a leaf. */
const READ_BIT = 1 << METHODS.indexOf('GET')

type ExplainedSettings = Pick<Settings, 'docsEnabled'>

/**
 * Explains one request without running it.
 * @param target - path in any spelling; a query is cut off
 */
export function explainRequest(
  catalog: Catalog,
  settings: ExplainedSettings,
  method: string,
  target: string,
  host: string,
): GatewayExplanation {
  const [asked = ''] = target.split(/[?#]/, 1)
  const canonical = normalizePath(asked)
  const explained = explain(catalog.routes, method, asked, host)
  // What cannot be read is answered 400, whoever has such a path.
  if (typeof canonical !== 'string') return { ...explained, beside: null, ...explainIgnored(catalog.discovery, asked) }
  const path = unescapeCanonical(canonical)
  const isRead = method === 'GET' || method === 'HEAD'
  const beside = isReservedPath(path)
    ? { kind: 'control' as const, text: 'the gateway itself: its control plane' }
    : isRead
      ? findBeside(catalog, settings, canonical, explained.winner !== null)
      : null
  return { ...explained, beside, ...explainIgnored(catalog.discovery, path) }
}

/** What is served at paths of the gateway's documents instead of them, in words. */
export function findDocumentClaims({ leaves }: RouteTable, assets: Discovery['assets']): Map<string, string> {
  const patterns = leaves.filter(({ methods }) => (methods & READ_BIT) !== 0).map(({ pattern }) => pattern)
  const claims = new Map<string, string>()
  for (const path of DOCUMENTS.keys()) {
    const claim = findClaim(path, patterns, assets !== null && isAsset(path, assets))
    if (claim !== null) claims.set(path, claim)
  }
  return claims
}

/** What answers a reading request before the routes or, where no route does, after them. */
function findBeside(
  { homes, routes, discovery: { assets } }: Catalog,
  { docsEnabled }: ExplainedSettings,
  path: string,
  hasRoute: boolean,
): BesideRoutes | null {
  const document = docsEnabled ? DOCUMENTS.get(path) : undefined
  if (document !== undefined && !findDocumentClaims(routes, assets).has(path))
    return { kind: 'document', text: document }
  const home = homes.find(({ folder }) => folder === path)
  // A folder's own route comes before its home; the root's comes after it.
  if (home !== undefined && (path === '/' || !hasRoute)) {
    const by = home.origin === '.' ? 'a setting' : home.origin
    return { kind: 'home', text: `the home of ${path}: ${home.kind} ${home.target}, by ${by}` }
  }
  if (assets === null || (hasRoute && assets.runWorkerFirst)) return null
  if (isAsset(path, assets)) return { kind: 'asset', text: `a file of the assets directory ${assets.directory}` }
  if (hasRoute || assets.notFoundHandling !== 'single-page-application') return null
  return { kind: 'asset', text: `index.html of the assets directory ${assets.directory} (single-page application)` }
}
