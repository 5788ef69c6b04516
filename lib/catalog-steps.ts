/** What a tree brings along beside its routes: documents, homes, assets, and packages that are missing. Owner: §4.1. */

import { isAsset, toAssetSteps } from './assets/static-assets.ts'
import type { CatalogSteps } from './catalog-loader.ts'
import type { Settings } from './config/settings.ts'
import type { EndpointPath } from './control/endpoint-table.ts'
import type { Clock } from './core/clock.ts'
import { findUnmet, SharedPacks } from './dependencies/shared-packs.ts'
import type { Discovery } from './discovery/discover.ts'
import { installedRuntimes } from './install-parts.ts'
import { toOffWarnings } from './discovery/layouts.ts'
import { findDocumentClaims } from './gateway-explain.ts'
import { DOCS_PATH, type DocsPage, toClaimWarning } from './http/docs-page.ts'
import { toHomeSteps } from './http/home.ts'
import { createOpenApiStep, OPENAPI_PATH } from './http/openapi-step.ts'
import { toDocumentedRoutes } from './router/route-records.ts'
import type { RouteTable } from './router/route-table.ts'
import type { SchemaStore } from './validation/schema-store.ts'

/** The steps of one catalog, in the order of the public path, and what is wrong with them. */
export function toCatalogSteps(
  settings: Settings,
  clock: Clock,
  { homes, assets, functions, ignored, manifests }: Discovery,
  routes: RouteTable,
  docs: DocsPage,
  schemas: SchemaStore,
  controlPaths: readonly EndpointPath[],
): CatalogSteps {
  const { homeFunction, homeRedirect, docsEnabled, publicBaseUrl, openapiIncludeInternal } = settings
  const home = toHomeSteps({ homes, homeFunction, homeRedirect, routes, isAsset: path => isAsset(path, assets) })
  const files = toAssetSteps(assets, routes, clock)
  const claims = docsEnabled ? findDocumentClaims(routes, assets) : new Map<string, string>()
  const { openapiTitle: title, openapiVersion: version, openapiDescription: description } = settings
  const openApi = createOpenApiStep({
    info: { title, version, description },
    functions,
    schemaOf: fn => schemas.fileOf(fn),
    routes: () => toDocumentedRoutes(routes),
    publicBaseUrl,
    // On another origin they are not below this document's server.
    internal: openapiIncludeInternal && settings.controlPort === null ? controlPaths : [],
    isClaimed: claims.has(OPENAPI_PATH),
  })
  const documents = !docsEnabled ? [] : claims.has(DOCS_PATH) ? [openApi] : [openApi, docs.step]
  const before = [...documents, ...home.before, ...files.before]
  const off = settings.runtimesExplicit ? [] : toOffWarnings(ignored, settings.runtimes)
  const { functionsRoot } = settings
  const isInstalling = (runtime: string) => installedRuntimes(settings).has(runtime)
  const packs = new SharedPacks(functionsRoot).check(functions, isInstalling)
  const missing = [...packs, ...findUnmet(manifests, functionsRoot, isInstalling)]
  return {
    before,
    after: files.after,
    homes: home.homes,
    warnings: [...off, ...Array.from(claims, toClaimWarning), ...home.warnings, ...missing],
  }
}
