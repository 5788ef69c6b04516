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
import { TrustedProxies } from '../invocation/client-address.ts'
import { toCallRest, toCallStart, toQueryJson } from '../invocation/event.ts'
import { HeadReader, type RequestHead } from '../invocation/forwarded-headers.ts'
import type { Invoker } from '../invocation/invoke.ts'
import { checkPolicy } from '../invocation/policy.ts'
import type { RequestIds } from '../invocation/request-ids.ts'
import type { RequestTexts } from '../validation/request-schema.ts'
import { unescapeCanonical } from '../router/path.ts'
import { explain } from '../router/explain.ts'
import type { RouteRefusal, RouteTable } from '../router/route-table.ts'
import { needsOwnHead, toAdapterHead } from './adapter-head.ts'
import { type ClientConnection, connectionOf } from './client-connection.ts'
import { Cors } from './cors.ts'
import type { DebugHeaders } from './debug-headers.ts'
import { Asked, Exchange, type HttpRequest, type HttpResponse, type Step } from './exchange.ts'
import { HttpCall } from './http-call.ts'
import { KnownCall, RequestMemo } from './request-memo.ts'
import { NearestRoutes } from './nearest-routes.ts'
import { takeParsedBody } from './parsed-body.ts'
import { readBody } from './read-body.ts'
import { Refusals } from './refusals.ts'
import { RequestCheck } from './request-check.ts'
import type { Responder } from './respond.ts'
import { UploadMemory } from './upload.ts'

/** What a request needs of the catalog it began with. */
export interface PublicCatalog {
  readonly routes: Pick<RouteTable, 'find' | 'epoch' | 'leaves' | 'candidates'>
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
  /** A request without a route is told which ones are near: for developers alone. */
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

const NO_PARAMS: Readonly<Record<string, string>> = {}
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

  /** @param expectsContinue - the client waits for `100 Continue`, and nobody has sent it yet */
  readonly handle: HttpHandler = (req, res, expectsContinue = false, next = null) => {
    const { clock, responder, requestIds, invoker } = this.#options
    const connection = connectionOf(req.socket)
    if (connection.closing) return
    if (connection.isFull) {
      connection.wait(() => this.handle(req, res, expectsContinue, next))
      return
    }
    const head = this.#heads.read(req.rawHeaders, connection.lastHead)
    connection.note(head, req.url)
    const id = requestIds.take(head.requestId)
    const memo = this.#recall(connection, req, head)
    const asked = memo?.asked ?? new Asked(head, req.url ?? '/', connection.address)
    const exchange = new Exchange(req, res, connection, responder, asked, id, clock.monotonic(), expectsContinue)
    connection.add(exchange)
    if (!exchange.hasBody) req.leaveBody?.()
    const { spans, traceIds } = invoker
    const { traceparent, tracestate } = head
    exchange.span = spans === null ? null : spans.request(exchange.method, exchange.path, traceparent, tracestate)
    traceIds.join(exchange, traceparent, tracestate)
    try {
      if (memo !== null) {
        this.#before(exchange, this.#options.catalog(), memo, next, 0)
        return
      }
      if (req.readableEnded && exchange.hasBody) takeParsedBody(exchange, asked)
      const refused = this.#check.check(exchange, asked)
      // From here on others rely on what was checked, the connection's next request among them.
      Object.freeze(asked)
      exchange.path = asked.path
      if (refused === null) {
        this.#walk(exchange, next)
      } else {
        // What could not be understood may hide a second request: nothing after it is read.
        connection.closing = true
        res.shouldKeepAlive = false
        responder.sendError(exchange, refused)
      }
    } catch (error) {
      responder.sendError(exchange, toGatewayError(error))
    }
  }

  /** What became of this request when it came before; null when it is another one, or its body was read elsewhere. */
  #recall({ isRepeating, memo }: ClientConnection, req: HttpRequest, head: RequestHead): RequestMemo | null {
    if (!isRepeating || memo === null || req.readableEnded) return null
    return memo.isSame(req, head, this.#check) ? memo : null
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
    this.#before(exchange, this.#options.catalog(), null, next, 0)
  }

  /** @param memo - the last request of the connection, when this one is the same again */
  #before(
    exchange: Exchange,
    catalog: PublicCatalog,
    memo: RequestMemo | null,
    next: (() => void) | null,
    from: number,
  ): void {
    const { before } = catalog
    for (let i = from; i < before.length; i++) {
      const outcome = before[i]!(exchange)
      if (outcome === false) continue
      if (outcome === 'later') this.#resume(exchange, () => this.#before(exchange, catalog, memo, next, i + 1))
      return
    }
    const found = this.#route(exchange, catalog, memo)
    if (found === null) return
    if (found.code === 'NOT_FOUND') this.#after(exchange, catalog, next, 0)
    else this.#refuse(exchange, catalog, found)
  }

  /** Calls the function at the exchange's path. @returns the refusal when there is none */
  #route(exchange: Exchange, catalog: PublicCatalog, memo: RequestMemo | null): RouteRefusal | null {
    const { routes } = catalog
    if (memo?.leads(exchange, routes.epoch)) {
      const { outcome } = memo
      if (outcome.kind === 'refused') return outcome
      exchange.route = memo.route
      this.#call(exchange, outcome.fn, NO_PARAMS, routes.epoch, outcome)
      return null
    }
    const found = routes.find(exchange.method, exchange.path, exchange.host)
    if (found.kind === 'refused') {
      const owner = repeaterOf(exchange)
      if (owner !== null) owner.memo = new RequestMemo(exchange, this.#check, routes.epoch, found)
      return found
    }
    exchange.route = found.pattern
    this.#call(exchange, found.fn, found.params, routes.epoch, null)
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
      const refused = this.#route(exchange, catalog, null)
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

  /** Runs a function for an exchange; the call header of a repeated request is at hand. */
  #call(
    exchange: Exchange,
    fn: FunctionVersion,
    params: Readonly<Record<string, string>>,
    epoch: object,
    known: KnownCall | null,
  ): void {
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
      // The same request again was found right before.
      const wrong = known === null ? invoker.schemas.checkTexts(fn, toTexts(exchange, params)) : null
      if (wrong !== null) {
        call.fail(wrong)
        return
      }
    }
    call.header = toCallStart(exchange.id, clock.wall(), exchange.trace, exchange.traceState)
    if (known !== null) {
      call.rest = known
    } else {
      const { connection, head } = exchange
      const isPlain = !needsOwnHead(fn.policy.adapter)
      const shown = isPlain ? head : toAdapterHead(exchange, this.#proxies.isTrusted(connection.address))
      const rest = readRest(exchange, params, shown.json)
      call.header += rest
      const owner = repeaterOf(exchange)
      if (owner !== null) owner.memo = new RequestMemo(exchange, this.#check, epoch, new KnownCall(fn, rest))
    }
    if (!hasBody) {
      call.handedAt = exchange.startedAt
      httpCall.onBody(null)
      return
    }
    exchange.bodyReceiver = httpCall
    readBody(exchange, fn.policy.maxBodyBytes, this.#uploads)
  }
}

/** The connection when it sends this request again and again; null when what becomes of it is not to be remembered. */
function repeaterOf({ req, path, asked }: Exchange): ClientConnection | null {
  const owner = connectionOf(req.socket)
  // A step (a home, an asset) may send the same request elsewhere next time.
  return owner.isRepeating && path === asked.path ? owner : null
}

/** What a schema says something about, beside the body. */
function toTexts({ method, search, head }: Exchange, params: Readonly<Record<string, string>>): RequestTexts {
  return { method, params, queryJson: search === '' ? '{}' : toQueryJson(search), headersJson: head.json }
}

/** The call header behind id and time. */
function readRest(exchange: Exchange, params: Readonly<Record<string, string>>, headersJson: string): string {
  const { head, path } = exchange
  return toCallRest({
    method: exchange.method,
    path: path.includes('%') ? unescapeCanonical(path) : path,
    rawPath: exchange.asked.rawPath,
    params,
    queryJson: exchange.search === '' ? '{}' : toQueryJson(exchange.search),
    headersJson,
    ip: exchange.ip,
    userAgent: head.userAgent,
    cookie: head.cookie,
    userJson: 'null',
    triggerJson: 'null',
  })
}

function withHint({ code, message, allow }: RouteRefusal, hint: string): GatewayError {
  return new GatewayError(code, message, { detail: { hint }, ...(allow !== null && { headers: { Allow: allow } }) })
}

/** What `fngw explain` says of a path that is refused: methods, route, function and file of each claim. */
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
