/**
 * The public path of a request. Spec: §4.1.
 *
 *   target ─► check ─► reserved? ─► before steps ─► route ─► policy ─► body ─► admission ─► dispatch ─► respond
 *             400 414   /_fn         docs, homes,    400 404  413       413     429 503      500 502
 *                       /console     assets          405 409                                 503 504
 *                       control                      421
 *                                                     ├─ 404: after steps (assets), then 404
 *                                                     └─ 405: CORS preflight, then 405
 *
 * The catalog is taken once per request, so that a reload in between changes nothing for it.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { toAllow } from '../core/http-text.ts'
import { isReservedPath, METHODS } from '../core/identity.ts'
import { HeadReader, TrustedProxies } from '../invocation/forwarded-headers.ts'
import { type RequestIds, toCallHeader, toQueryJson } from '../invocation/event.ts'
import type { Invoker } from '../invocation/invoke.ts'
import { checkPolicy } from '../invocation/policy.ts'
import type { RequestTexts } from '../validation/request-schema.ts'
import { unescapeCanonical } from '../router/path.ts'
import { explain } from '../router/explain.ts'
import type { RouteRefusal, RouteTable } from '../router/route-table.ts'
import { needsOwnHead, toAdapterHead } from '../invocation/adapters.ts'
import { connectionOf, Exchange, type HttpRequest, type HttpResponse, type Step } from './exchange.ts'
import { Cors } from './cors.ts'
import { type DebugHeaders, HttpCall } from './http-call.ts'
import { NearestRoutes, Refusals } from './refusals.ts'
import { readBody, takeParsedBody, UploadMemory } from './body.ts'
import { RequestCheck } from './request-check.ts'
import type { Responder } from './respond.ts'

/** The part of the catalog that a request needs. */
export interface PublicCatalog {
  readonly routes: Pick<RouteTable, 'find' | 'leaves' | 'candidates'>
  /** In order: docs, homes, assets that come first. Each may answer, change `path`, or do nothing. */
  readonly before: readonly Step[]
  /** In order, for paths without a route: assets. */
  readonly after: readonly Step[]
}

interface PublicOptions {
  clock: Clock
  invoker: Invoker
  responder: Responder
  requestIds: RequestIds
  debug: DebugHeaders
  trustedProxyCidrs: readonly string[]
  /** Header by which those proxies name their clients; null or absent for the usual one. */
  trustedProxyHeader?: string | null
  /** A refusal of a request without a route names the near ones: for developers alone. */
  namesRoutes?: boolean
  /** The catalog in force now. */
  catalog: () => PublicCatalog
  /** Answers every path at or below `/_fn` and `/console`. */
  control: (exchange: Exchange) => void
}

/** Serves one request; node calls it, and so do inject, fetch and host applications. */
export type HttpHandler = (
  req: HttpRequest,
  res: HttpResponse,
  expectsContinue?: boolean,
  /** Takes requests without a route, in a host application. */
  next?: (() => void) | null,
) => void

const EVERY_METHOD = toAllow([...METHODS, 'OPTIONS'])
/** Claims that a refusal names in development. */
const MAX_CLAIMS = 5
const NO_ROUTE = { kind: 'refused', code: 'NOT_FOUND', message: 'not found', allow: null } as const

export class PublicHandler {
  readonly #options: PublicOptions
  readonly #heads = new HeadReader()
  readonly #check: RequestCheck
  readonly #proxies: TrustedProxies
  readonly #cors = new Cors()
  readonly #refusals = new Refusals()
  readonly #uploads: UploadMemory
  /** Null in production. */
  readonly #nearest: NearestRoutes | null

  constructor(options: PublicOptions) {
    this.#options = options
    this.#uploads = new UploadMemory(options.responder.pool)
    this.#proxies = new TrustedProxies(options.trustedProxyCidrs, options.trustedProxyHeader)
    this.#check = new RequestCheck(this.#proxies)
    this.#nearest = options.namesRoutes === true ? new NearestRoutes(options.clock) : null
  }

  /** @param expectsContinue - the client waits for `100 Continue`, which was not sent yet */
  readonly handle: HttpHandler = (req, res, expectsContinue = false, next = null) => {
    const { clock, responder, requestIds, invoker } = this.#options
    const connection = connectionOf(req.socket)
    if (connection.closing) return
    if (connection.isFull) {
      connection.wait(() => this.handle(req, res, expectsContinue, next))
      return
    }
    const head = this.#heads.read(req.rawHeaders)
    const id = requestIds.take(head.requestId)
    const exchange = new Exchange(req, res, connection, responder, head, id, clock.monotonic(), expectsContinue)
    connection.add(exchange)
    if (!exchange.hasBody) req.leaveBody?.()
    const { spans, traceIds } = invoker
    const { traceparent, tracestate } = head
    exchange.span = spans === null ? null : spans.request(exchange.method, exchange.path, traceparent, tracestate)
    traceIds.join(exchange, traceparent, tracestate)
    try {
      if (req.readableEnded && exchange.hasBody) takeParsedBody(exchange)
      const refused = this.#check.check(exchange)
      if (refused === null) {
        this.#walk(exchange, next)
      } else {
        // Bytes that could not be understood may hide a second request: nothing after them is read.
        connection.closing = true
        res.shouldKeepAlive = false
        responder.sendError(exchange, refused)
      }
    } catch (error) {
      responder.sendError(exchange, toGatewayError(error))
    }
  }

  #walk(exchange: Exchange, next: (() => void) | null): void {
    if (exchange.path === '*') {
      this.#options.responder.send(exchange, 204, ['Allow', EVERY_METHOD], null)
      return
    }
    if (isReserved(exchange.path)) {
      exchange.isControl = true
      this.#options.control(exchange)
      return
    }
    this.#before(exchange, this.#options.catalog(), next, 0)
  }

  #before(exchange: Exchange, catalog: PublicCatalog, next: (() => void) | null, from: number): void {
    const { before } = catalog
    for (let i = from; i < before.length; i++) {
      const outcome = before[i]!(exchange)
      if (outcome === false) continue
      if (outcome === 'later') this.#resume(exchange, () => this.#before(exchange, catalog, next, i + 1))
      return
    }
    const found = this.#route(exchange, catalog)
    if (found === null) return
    if (found.code === 'NOT_FOUND') this.#after(exchange, catalog, next, 0)
    else this.#refuse(exchange, catalog, found)
  }

  /** Calls the function at the exchange's path. @returns the refusal when there is none */
  #route(exchange: Exchange, { routes }: PublicCatalog): RouteRefusal | null {
    const found = routes.find(exchange.method, exchange.path, exchange.host)
    if (found.kind === 'refused') return found
    exchange.route = found.pattern
    this.#call(exchange, found.fn, found.params)
    return null
  }

  #after(
    exchange: Exchange,
    catalog: PublicCatalog,
    next: (() => void) | null,
    from: number,
    path = exchange.path,
  ): void {
    const { after } = catalog
    for (let i = from; i < after.length; i++) {
      const outcome = after[i]!(exchange)
      if (outcome === false) continue
      if (outcome === 'later') this.#resume(exchange, () => this.#after(exchange, catalog, next, i + 1, path))
      return
    }
    if (exchange.path !== path) {
      // A step that changed the path asks for the route of the new one.
      const refused = this.#route(exchange, catalog)
      if (refused !== null) this.#refuse(exchange, catalog, refused)
    } else if (next === null) {
      const near = this.#nearest?.find(path, catalog.routes.leaves) ?? []
      if (near.length === 0) this.#refusals.send(exchange, NO_ROUTE)
      else this.#options.responder.sendError(exchange, withHint(NO_ROUTE, `nearest routes: ${near.join(', ')}`))
    } else {
      exchange.passOn()
      next()
    }
  }

  /** Lets a step that holds the walk up go on with it; not when the client left meanwhile. */
  #resume(exchange: Exchange, goOn: () => void): void {
    exchange.resume = () => {
      exchange.resume = null
      if (exchange.ended) return
      try {
        goOn()
      } catch (error) {
        this.#options.responder.sendError(exchange, toGatewayError(error))
      }
    }
  }

  #refuse(exchange: Exchange, catalog: PublicCatalog, found: RouteRefusal): void {
    if (found.code === 'METHOD_NOT_ALLOWED') {
      if (this.#cors.isPreflight(exchange) && this.#cors.answerPreflight(exchange, catalog.routes)) return
      this.#cors.addForPath(exchange, catalog.routes)
    }
    const claims = this.#nearest === null ? [] : listClaims(exchange, catalog.routes)
    if (claims.length === 0) this.#refusals.send(exchange, found)
    else this.#options.responder.sendError(exchange, withHint(found, `claims of this path: ${claims.join('; ')}`))
  }

  /** Runs a function for an exchange. */
  #call(exchange: Exchange, fn: FunctionVersion, params: Readonly<Record<string, string>>): void {
    const { invoker, clock, debug } = this.#options
    exchange.fn = fn
    if (fn.policy.cors !== null) this.#cors.add(exchange, fn.policy.cors)
    const httpCall = new HttpCall(fn, invoker, exchange, debug)
    const { call } = httpCall
    exchange.work = call
    const { hasBody } = exchange
    const refused = checkPolicy(fn, hasBody ? exchange.declaredLength : 0)
    if (refused !== null) {
      call.fail(refused)
      return
    }
    if (fn.policy.validate && invoker.schemas !== null) {
      call.checkedAs = exchange.method
      const wrong = invoker.schemas.checkTexts(fn, toTexts(exchange, params))
      if (wrong !== null) {
        call.fail(wrong)
        return
      }
    }
    const isPlain = !needsOwnHead(fn.policy.adapter)
    const { json } = isPlain
      ? exchange.head
      : toAdapterHead(exchange, this.#proxies.isTrusted(exchange.connection.address))
    call.header = toHeader(exchange, clock.wall(), params, json)
    if (!hasBody) {
      call.handedAt = exchange.startedAt
      httpCall.onBody(null)
      return
    }
    exchange.bodyReceiver = httpCall
    readBody(exchange, fn.policy.maxBodyBytes, this.#uploads)
  }
}

/** The parts of a request that a schema may describe, beside the body. */
function toTexts({ method, search, head }: Exchange, params: Readonly<Record<string, string>>): RequestTexts {
  return { method, params, queryJson: search === '' ? '{}' : toQueryJson(search), headersJson: head.json }
}

/** @param ts - wall clock, ms */
function toHeader(
  exchange: Exchange,
  ts: number,
  params: Readonly<Record<string, string>>,
  headersJson: string,
): string {
  const { head, path } = exchange
  return toCallHeader({
    id: exchange.id,
    ts,
    method: exchange.method,
    path: path.includes('%') ? unescapeCanonical(path) : path,
    rawPath: exchange.rawPath,
    params,
    queryJson: exchange.search === '' ? '{}' : toQueryJson(exchange.search),
    headersJson,
    ip: exchange.ip,
    userAgent: head.userAgent,
    cookie: head.cookie,
    userJson: 'null',
    triggerJson: 'null',
    trace: exchange.trace,
    traceState: exchange.traceState,
  })
}

function withHint({ code, message, allow }: RouteRefusal, hint: string): GatewayError {
  return new GatewayError(code, message, { detail: { hint }, ...(allow !== null && { headers: { Allow: allow } }) })
}

/** As `fngw explain` shows a path that is refused: methods, route, function and file of each claim. */
function listClaims({ method, path, host }: Exchange, routes: PublicCatalog['routes']): string[] {
  const { losers } = explain(routes, method, path, host)
  const texts = losers.map(
    ({ methods, pattern, runtime, name, file }) => `${methods.join(',')} ${pattern} is ${runtime}/${name} (${file})`,
  )
  return texts.length > MAX_CLAIMS ? [...texts.slice(0, MAX_CLAIMS), `${texts.length - MAX_CLAIMS} more`] : texts
}

/** Reserved in any spelling: an escaped slash does not make `/_fn%2Fhealth` a public path. */
function isReserved(path: string): boolean {
  const first = path.charCodeAt(1)
  if (first !== 95 && first !== 99) return false
  return isReservedPath(path) || (path.includes('%') && isReservedPath(unescapeCanonical(path)))
}
