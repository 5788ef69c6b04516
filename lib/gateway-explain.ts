/** Who answers a request and why: routes, and what is answered around them. Owner: §3, page bin/routes. */

import { isAsset } from './assets/static-assets.ts'
import type { Catalog } from './catalog-loader.ts'
import type { Settings } from './config/settings.ts'
import { isReservedPath } from './core/identity.ts'
import { explainIgnored } from './discovery/explain-ignored.ts'
import { DOCS_PATH } from './http/docs-page.ts'
import type { BesideRoutes, GatewayExplanation } from './gateway-types.ts'
import { explain } from './router/explain.ts'
import { normalizePath, unescapeCanonical } from './router/path.ts'

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

/** What answers a reading request before the routes or, where no route does, after them. */
function findBeside(
  { homes, warnings, discovery: { assets } }: Catalog,
  { docsEnabled }: ExplainedSettings,
  path: string,
  hasRoute: boolean,
): BesideRoutes | null {
  if (docsEnabled && path === '/openapi.json') return { kind: 'document', text: 'the OpenAPI document' }
  const hasDocs = docsEnabled && !warnings.some(({ code }) => code === 'DOCS_HIDDEN')
  if (hasDocs && path === DOCS_PATH) return { kind: 'document', text: 'the documentation page' }
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
