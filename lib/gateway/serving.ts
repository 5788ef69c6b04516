/**
 * HTTP as every process of a gateway serves it, the first one and its acceptors: the steps around the routes, the parts of a
 * handler, the schemas. Owner: §4.1.
 */

import { isAsset, toAssetSteps } from '../assets/static-assets.ts'
import type { Settings } from '../config/settings.ts'
import type { EndpointPath } from '../control/control-plane.ts'
import type { Clock } from '../core/clock.ts'
import { METHODS, type RuntimeName } from '../core/identity.ts'
import type { Discovery } from '../discovery/discover.ts'
import { createFileReader } from '../files/function-file.ts'
import {
  createOpenApiStep,
  DOCS_PATH,
  DocsPage,
  DOCUMENTS,
  findClaim,
  OPENAPI_PATH,
  toClaimWarning,
} from '../http/docs-page.ts'
import { toHomeSteps } from '../http/home.ts'
import { DebugHeaders } from '../http/http-call.ts'
import { Responder } from '../http/respond.ts'
import type { RequestIds } from '../invocation/event.ts'
import type { Invoker } from '../invocation/invoke.ts'
import { type DifferenceListener, SchemaGate } from '../invocation/policy.ts'
import type { Journal } from '../observe/journal.ts'
import { toDocumentedRoutes } from '../router/route-records.ts'
import type { RouteTable } from '../router/route-table.ts'
import { SchemaStore } from '../validation/schema-store.ts'
import type { CatalogSteps } from './catalog-loader.ts'

/** Routes that answer GET, in the bits of a leaf. */
const READ_BIT = 1 << METHODS.indexOf('GET')

/** Routes and files that are served at the paths of the gateway's documents instead of them, in words. */
export function findDocumentClaims({ leaves }: RouteTable, assets: Discovery['assets']): Map<string, string> {
  const patterns = leaves.filter(({ methods }) => (methods & READ_BIT) !== 0).map(({ pattern }) => pattern)
  const claims = new Map<string, string>()
  for (const path of DOCUMENTS.keys()) {
    const claim = findClaim(path, patterns, assets !== null && isAsset(path, assets))
    if (claim !== null) claims.set(path, claim)
  }
  return claims
}

interface StepsOptions {
  settings: Settings
  clock: Clock
  schemas: SchemaStore
  /** Paths of the control plane, for the OpenAPI document. */
  controlPaths: readonly EndpointPath[]
}

/** Makes the steps of a catalog, in the order of the public path. */
export function createCatalogSteps({ settings, clock, schemas, controlPaths }: StepsOptions) {
  const docs = new DocsPage(settings.publicBaseUrl)
  return ({ homes, assets, functions }: Discovery, routes: RouteTable): CatalogSteps => {
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
    const warnings = [...Array.from(claims, toClaimWarning), ...home.warnings]
    return { before, after: files.after, homes: home.homes, warnings }
  }
}

type ResponderOptions = ConstructorParameters<typeof Responder>[0]

export interface HandlerOptions extends Omit<ResponderOptions, 'production' | 'responseIdleTimeoutMs'> {
  settings: Settings
  invoker: Invoker
  requestIds: RequestIds
  /** How calls of a runtime find their socket. */
  routingOf: (runtime: RuntimeName) => 'single' | 'round_robin'
}

/** What every public handler of a process is made of. */
export function createHandlerParts(options: HandlerOptions) {
  const { settings, clock, invoker, requestIds, routingOf } = options
  const { production, responseIdleTimeoutMs, trustedProxyCidrs, trustedProxyHeader } = settings
  const responder = new Responder({ ...options, production, responseIdleTimeoutMs })
  const debug = new DebugHeaders(
    ({ fn, host, cold }) => ({ routing: routingOf(fn.runtime), socketIndex: host?.socketIndex ?? null, cold }),
    production,
  )
  const namesRoutes = !production
  return { clock, invoker, requestIds, responder, debug, trustedProxyCidrs, trustedProxyHeader, namesRoutes }
}

/** Reads the schemas of functions, and checks calls against them. */
export function createSchemas(
  settings: Pick<Settings, 'functionsRoot' | 'production' | 'isolation'>,
  journal: Pick<Journal, 'warn'>,
): { store: SchemaStore; gate: SchemaGate } {
  const { functionsRoot, production } = settings
  const store = new SchemaStore(functionsRoot, !production, createFileReader(settings))
  const report: DifferenceListener = (fn, method, status, { name, text }) => {
    const path = fn.schema?.path ?? fn.entryFile
    journal.warn({
      code: 'ANSWER_DIFFERS',
      path,
      message: `${fn.entryFile}: its answer ${status} to ${method} differs from ${path}: ${name} ${text}`,
      hint: 'Mend the handler or the schema. Answers are not looked at in production.',
    })
  }
  return { store, gate: new SchemaGate(store, production ? null : report) }
}

/** @returns what is left of the time now, ms, never below 0 */
export function countdown(clock: Clock, ms: number): () => number {
  const endsAt = clock.monotonic() + ms
  return () => Math.max(0, endsAt - clock.monotonic())
}
