/**
 * The public path of a request. Spec: §4.1.
 *
 *   target ─► check ─► reserved? ─► before steps ─► route ─► policy ─► body ─► admission ─► dispatch ─► respond
 *             400 414   /_fn         docs, homes,    404 405  413       413     429 503      500 502
 *                       /console     assets          409 421                                 503 504
 *                       control
 *                                                     ├─ 404: after steps (assets), then 404
 *                                                     └─ 405: CORS preflight, then 405
 *
 * The catalog is taken once per request, so that a reload in between changes nothing for it.
 */

import { YoungGarbage } from '../core/byte-pool.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { headerOf, toAllow } from '../core/http-text.ts'
import { isReservedPath, METHODS } from '../core/identity.ts'
import { MAX_HEADER_BYTES, MAX_TARGET_BYTES } from '../core/limits.ts'
import { toAdapterHead } from '../invocation/adapters.ts'
import { type RequestIds, toCallHeader, toQueryJson } from '../invocation/event.ts'
import { HeadReader, lastEntry, TrustedProxies, withHeaders } from '../invocation/forwarded-headers.ts'
import { checkPolicy, type Invoker } from '../invocation/invoke.ts'
import { normalizePath, unescapeCanonical } from '../router/radix-tree.ts'
import { NOT_FOUND, type RouteTable } from '../router/route-table.ts'
import { readBody, takeParsedBody } from './body.ts'
import { addCors, answerPreflight } from './cors.ts'
import { connectionOf, Exchange, type HttpRequest, type HttpResponse, type Step } from './exchange.ts'
import { type DebugHeaders, HttpCall } from './http-call.ts'
import { Refusals } from './refusals.ts'
import type { Responder } from './respond.ts'

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

export class PublicHandler {
  readonly #options: PublicOptions
  readonly #heads = new HeadReader()
  readonly #proxies: TrustedProxies
  readonly #refusals: Refusals
  readonly #garbage = new YoungGarbage()

  constructor(options: PublicOptions) {
    this.#options = options
    this.#proxies = new TrustedProxies(options.trustedProxyCidrs, options.trustedProxyHeader)
    this.#refusals = new Refusals(options.namesRoutes === true ? options.clock : null)
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
      const refused = checkRequest(exchange, this.#proxies)
      if (refused === null) {
        this.#begin(exchange, next)
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

  #begin(exchange: Exchange, next: (() => void) | null): void {
    if (exchange.path === '*') {
      this.#options.responder.send(exchange, 204, ['Allow', EVERY_METHOD], null)
    } else if (isReserved(exchange.path)) {
      exchange.isControl = true
      this.#options.control(exchange)
    } else {
      this.#walk(exchange, this.#options.catalog(), next, 0, '')
    }
  }

  /**
   * Steps, then the route, then the steps for paths without one.
   * @param from - where a walk goes on that a step held up
   * @param routed - the path that has no route, behind the route
   */
  #walk(exchange: Exchange, catalog: PublicCatalog, next: (() => void) | null, from: number, routed: string): void {
    const { before, after, routes } = catalog
    let path = routed
    for (let at = from; at <= before.length + after.length; at++) {
      if (at === before.length) {
        path = exchange.path
        if (this.#route(exchange, routes, true)) return
        continue
      }
      const step = at < before.length ? before[at]! : after[at - before.length - 1]!
      const outcome = step(exchange)
      if (outcome === false) continue
      if (outcome === 'later') this.#holdUp(exchange, catalog, next, at + 1, path)
      return
    }
    if (exchange.path !== path) {
      // A step that changed the path asks for the route of the new one.
      this.#route(exchange, routes, false)
    } else if (next === null) {
      this.#refusals.send(exchange, NOT_FOUND, routes)
    } else {
      exchange.passOn()
      next()
    }
  }

  /** Lets a step go on with the walk; not when the client left meanwhile. */
  #holdUp(exchange: Exchange, catalog: PublicCatalog, next: (() => void) | null, from: number, routed: string): void {
    exchange.resume = () => {
      exchange.resume = null
      if (exchange.ended) return
      try {
        this.#walk(exchange, catalog, next, from, routed)
      } catch (error) {
        this.#options.responder.sendError(exchange, toGatewayError(error))
      }
    }
  }

  /** Calls the function at the exchange's path, or refuses. @returns false when the path has no route and others may have it */
  #route(exchange: Exchange, routes: PublicCatalog['routes'], hasOthers: boolean): boolean {
    const found = routes.find(exchange.method, exchange.path, exchange.host)
    if (found.kind === 'match') {
      exchange.route = found.pattern
      this.#call(exchange, found.fn, found.params)
      return true
    }
    if (hasOthers && found.code === 'NOT_FOUND') return false
    const isAnswered = found.code === 'METHOD_NOT_ALLOWED' && answerPreflight(exchange, routes)
    if (!isAnswered) this.#refusals.send(exchange, found, routes)
    return true
  }

  #call(exchange: Exchange, fn: FunctionVersion, params: Readonly<Record<string, string>>): void {
    const { invoker, clock, debug } = this.#options
    const { policy } = fn
    exchange.fn = fn
    if (policy.cors !== null) addCors(exchange, policy.cors)
    const call = new HttpCall(fn, invoker, exchange, debug)
    exchange.work = call
    const { hasBody, method, head } = exchange
    const refused = checkPolicy(fn, hasBody ? exchange.declaredLength : 0)
    if (refused !== null) {
      call.fail(refused)
      return
    }
    const queryJson = toQueryJson(exchange.search)
    if (policy.validate && invoker.schemas !== null) {
      call.checkedAs = method
      const wrong = invoker.schemas.checkTexts(fn, { method, params, queryJson, headersJson: head.json })
      if (wrong !== null) {
        call.fail(wrong)
        return
      }
    }
    const isTrusted = policy.adapter !== 'native' && this.#proxies.isTrusted(exchange.connection.address)
    call.header = toCallHeader({
      id: exchange.id,
      ts: clock.wall(),
      method,
      path: unescapeCanonical(exchange.path),
      rawPath: exchange.rawPath,
      params,
      queryJson,
      headersJson: policy.adapter === 'native' ? head.json : toAdapterHead(exchange, isTrusted).json,
      ip: exchange.ip,
      userAgent: head.userAgent,
      cookie: head.cookie,
      userJson: 'null',
      triggerJson: 'null',
      trace: exchange.trace,
      traceState: exchange.traceState,
    })
    if (!hasBody) {
      call.handedAt = exchange.startedAt
      call.onBody(null)
      return
    }
    exchange.bodyReceiver = call
    readBody(exchange, policy.maxBodyBytes, this.#garbage)
  }
}

/** Reserved in any spelling: an escaped slash does not make `/_fn%2Fhealth` a public path. */
function isReserved(path: string): boolean {
  const first = path.charCodeAt(1)
  if (first !== 95 && first !== 99) return false
  return isReservedPath(path) || isReservedPath(unescapeCanonical(path))
}

// Requests that node's parser lets pass and a gateway may not: each check names the attack it stops. Everything else that is malformed
// is refused by the parser itself (server.ts answers it).

/** Host of RFC 9110 7.2: a registered name or an address, with an optional port. */
const HOST = /^(?:[\w.~!$&'()*+,;=%-]+|\[[0-9a-f:.]+\])(?::\d{0,5})?$/i
const ABSOLUTE = /^https?:\/\/([^/?#]*)(\/[^?#]*)?(\?[^#]*)?$/i
const UPGRADE = /(?:^|[\s,])upgrade(?:$|[\s,])/i
/** The parser counts names and values, not what stands between them: with few headers the difference is nothing. */
const MANY_HEADERS = 400

/**
 * Checks an exchange and fills in what it asks for: path, search, host and address; of an absolute target its head too.
 * A request that asks for an upgrade is answered as any other and ends its connection.
 * @returns the refusal, after which the connection must close, or null
 */
function checkRequest(exchange: Exchange, proxies: TrustedProxies): GatewayError | null {
  const { req, target, head } = exchange
  if (req.httpVersion !== '1.1') {
    // HTTP/0.9 has no headers to check, so requests behind it cannot be separated.
    if (req.httpVersion !== '1.0') return bad(`HTTP version ${req.httpVersion} is not supported`)
    // A 1.0 proxy on the way may not understand chunks and read the body as the next request.
    if (head.transferEncoding !== null) return bad('Transfer-Encoding is not allowed in HTTP/1.0')
    if (head.hostCount > 1) return bad('more than one Host header')
  } else if (head.expect !== null && head.expect.toLowerCase() !== '100-continue') {
    return new GatewayError('BAD_REQUEST', 'expectation cannot be met', { status: 417 })
  } else if (head.hostCount !== 1) {
    // Two hosts: this gateway and a proxy before it may each believe another one.
    return bad(head.hostCount === 0 ? 'Host header is missing' : 'more than one Host header')
  }
  if (head.connection !== null && head.connection !== 'keep-alive' && UPGRADE.test(head.connection)) {
    const protocol = headerOf(head.raw, 'upgrade')
    if (protocol?.toLowerCase().includes('websocket') === true) {
      return new GatewayError(
        'NOT_IMPLEMENTED',
        'WebSocket is not supported: a handler can stream its answer, as server-sent events for example',
      )
    }
    // The parser drops the bytes that came in the same packet behind such a request: the next packet may begin in the middle of
    // a message and be read as a separate request.
    if (protocol !== null) {
      exchange.connection.closing = true
      exchange.res.shouldKeepAlive = false
    }
  }
  // The parser takes other codings before `chunked` and hands the body over as it is: the handler would take it for plain.
  if (head.transferEncoding !== null && head.transferEncoding.toLowerCase() !== 'chunked')
    return bad('Transfer-Encoding other than chunked is not supported')
  if (req.rawHeaders.length > MANY_HEADERS && sizeOf(req.rawHeaders) > MAX_HEADER_BYTES)
    return new GatewayError('HEADERS_TOO_LARGE', `request headers are larger than ${MAX_HEADER_BYTES} bytes`)
  if (target.length > MAX_TARGET_BYTES) return new GatewayError('TARGET_TOO_LONG', 'request target is too long')
  if (head.host !== null && !HOST.test(head.host)) return bad('malformed Host header')
  exchange.host = head.host ?? ''
  const refused = target.charCodeAt(0) === 47 ? readPath(exchange, target) : readOtherTarget(exchange)
  return refused === null && !proxies.isEmpty ? readForwarding(exchange, proxies) : refused
}

function sizeOf(rawHeaders: readonly string[]): number {
  let bytes = 0
  // Colon, blank or line end after each text.
  for (const text of rawHeaders) bytes += text.length + 2
  return bytes
}

function readPath(exchange: Exchange, target: string): GatewayError | null {
  const mark = target.indexOf('?')
  if (target.includes('#')) return bad('request target holds a fragment')
  const path = normalizePath(mark === -1 ? target : target.slice(0, mark))
  if (typeof path !== 'string') return bad(path.problem)
  exchange.path = path
  exchange.search = mark === -1 ? '' : target.slice(mark + 1)
  return null
}

/** `http://host/path` as sent to proxies, and `*` of OPTIONS. */
function readOtherTarget(exchange: Exchange): GatewayError | null {
  if (exchange.target === '*' && exchange.method === 'OPTIONS') {
    exchange.path = '*'
    return null
  }
  const match = ABSOLUTE.exec(exchange.target)
  if (match === null || !HOST.test(match[1]!)) return bad('malformed request target')
  const [, host = '', path = '/', search = ''] = match
  // RFC 9112 3.2.2: the target's authority takes the place of Host for all, or a handler would see another host
  // than the one that was checked.
  exchange.host = host
  if (exchange.head.host !== host) exchange.head = withHeaders(exchange.head, { host })
  exchange.rawPath = path + search
  return readPath(exchange, exchange.rawPath)
}

function readForwarding(exchange: Exchange, proxies: TrustedProxies): GatewayError | null {
  const { head } = exchange
  const { address } = exchange.connection
  if (!proxies.isTrusted(address)) return null
  exchange.ip = proxies.clientAddress(address, head.raw)
  if (head.forwardedHost === null) return null
  const host = lastEntry(head.forwardedHost)
  if (!HOST.test(host)) return bad('malformed X-Forwarded-Host header')
  exchange.host = host
  return null
}

function bad(message: string): GatewayError {
  return new GatewayError('BAD_REQUEST', message)
}
