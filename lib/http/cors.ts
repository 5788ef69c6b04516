/**
 * Cross-origin access as `cors` of a function's config allows it. Spec: page http/cors.
 *
 * A function without `cors` costs nothing: the public handler asks here only when the policy has one, or when a request
 * was refused for its method, which every preflight is (no function can have OPTIONS).
 */

import type { CorsPolicy } from '../core/catalog.ts'
import { headerOf } from '../core/http-text.ts'
import { METHODS, type Method } from '../core/identity.ts'
import type { RouteTable } from '../router/route-table.ts'
import type { Exchange } from './exchange.ts'

type Routes = Pick<RouteTable, 'find'>

const REQUEST_METHOD = 'access-control-request-method'
const REQUEST_HEADERS = 'access-control-request-headers'
const HEADER_LIST = /^[\w!#$%&'*+.^`|~-]+(?:\s*,\s*[\w!#$%&'*+.^`|~-]+)*$/

/** A policy as header texts. */
interface CompiledCors {
  isEveryOrigin: boolean
  origins: ReadonlySet<string>
  /** Null when every method may be used. */
  methods: ReadonlySet<string> | null
  /** Answer headers for any origin, or for one that is not allowed. */
  fixed: readonly string[]
  /** Those that follow the origin of one that is allowed. */
  rest: readonly string[]
  /** Value of the preflight's header; null when it repeats what was asked for. */
  allowedHeaders: string | null
  maxAge: string
}

export class Cors {
  readonly #compiled = new WeakMap<CorsPolicy, CompiledCors>()

  /** Gives an answer its headers, errors of the gateway included. */
  add(exchange: Exchange, policy: CorsPolicy): void {
    const cors = this.#compile(policy)
    exchange.cors = toHeaders(cors, exchange.head.origin, exchange.method)
  }

  /** Lets a page read that its method was refused: as the path's functions allow it. */
  addForPath(exchange: Exchange, routes: Routes): void {
    if (exchange.head.origin === null) return
    for (const method of METHODS) {
      const policy = policyOf(exchange, routes, method)
      if (policy === null) continue
      exchange.cors = toHeaders(this.#compile(policy), exchange.head.origin, method)
      return
    }
  }

  isPreflight(exchange: Exchange): boolean {
    return exchange.method === 'OPTIONS' && exchange.head.origin !== null
  }

  /** @returns false when the method that is asked about has no function with `cors` at this path */
  answerPreflight(exchange: Exchange, routes: Routes): boolean {
    const { rawHeaders } = exchange.req
    const asked = headerOf(rawHeaders, REQUEST_METHOD)
    if (asked === null) return false
    const policy = policyOf(exchange, routes, asked)
    if (policy === null) return false
    const cors = this.#compile(policy)
    const { origin } = exchange.head
    const asks = `${REQUEST_METHOD}, ${REQUEST_HEADERS}`
    const headers = ['Vary', cors.isEveryOrigin ? asks : `Origin, ${asks}`]
    if (isAllowedOrigin(cors, origin)) {
      headers.push('Access-Control-Allow-Origin', cors.isEveryOrigin ? '*' : origin!)
      if (policy.credentials) headers.push('Access-Control-Allow-Credentials', 'true')
      headers.push('Access-Control-Allow-Methods', this.#methodsAt(exchange, routes, origin).join(', '))
      const allowed = cors.allowedHeaders ?? toHeaderList(headerOf(rawHeaders, REQUEST_HEADERS))
      if (allowed !== '') headers.push('Access-Control-Allow-Headers', allowed)
      headers.push('Access-Control-Max-Age', cors.maxAge)
    }
    exchange.responder.send(exchange, 204, headers, null)
    return true
  }

  /** Methods of a path that this origin may use. */
  #methodsAt(exchange: Exchange, routes: Routes, origin: string | null): Method[] {
    return METHODS.filter(method => {
      const policy = policyOf(exchange, routes, method)
      if (policy === null) return false
      const cors = this.#compile(policy)
      return isAllowedOrigin(cors, origin) && isAllowedMethod(cors, method)
    })
  }

  #compile(policy: CorsPolicy): CompiledCors {
    const known = this.#compiled.get(policy)
    if (known !== undefined) return known
    const compiled = compile(policy)
    this.#compiled.set(policy, compiled)
    return compiled
  }
}

function compile(policy: CorsPolicy): CompiledCors {
  const { credentials } = policy
  // With credentials browsers take `*` for a name; an origin list that has both is read as the narrower one.
  const isEveryOrigin = policy.origins.includes('*') && !credentials
  const rest: string[] = []
  if (credentials) rest.push('Access-Control-Allow-Credentials', 'true')
  if (policy.expose.length > 0) rest.push('Access-Control-Expose-Headers', policy.expose.join(', '))
  const asksBack = policy.headers.length === 0 || (credentials && policy.headers.includes('*'))
  return {
    isEveryOrigin,
    origins: new Set(policy.origins.filter(origin => origin !== '*')),
    methods: policy.methods.length === 0 ? null : new Set(policy.methods),
    fixed: isEveryOrigin ? ['Access-Control-Allow-Origin', '*', ...rest] : ['Vary', 'Origin'],
    rest,
    allowedHeaders: asksBack ? null : policy.headers.join(', '),
    maxAge: String(policy.maxAgeSeconds),
  }
}

function toHeaders(cors: CompiledCors, origin: string | null, method: string): readonly string[] {
  const { isEveryOrigin, fixed, rest } = cors
  const isAllowed = isAllowedOrigin(cors, origin) && isAllowedMethod(cors, method)
  // A cache may keep this answer for another origin, so it says that the origin matters even when there is none.
  if (!isAllowed) return isEveryOrigin ? [] : fixed
  return isEveryOrigin ? fixed : ['Access-Control-Allow-Origin', origin!, ...rest, ...fixed]
}

function isAllowedOrigin(cors: CompiledCors, origin: string | null): boolean {
  return cors.isEveryOrigin || (origin !== null && cors.origins.has(origin))
}

function isAllowedMethod(cors: CompiledCors, method: string): boolean {
  return cors.methods === null || cors.methods.has(method === 'HEAD' ? 'GET' : method)
}

function policyOf(exchange: Exchange, routes: Routes, method: string): CorsPolicy | null {
  const found = routes.find(method, exchange.path, exchange.host)
  return found.kind === 'match' ? found.fn.policy.cors : null
}

/** The headers that a page asked for, when they are a list of names; anything else is not repeated into an answer. */
function toHeaderList(asked: string | null): string {
  return asked !== null && HEADER_LIST.test(asked) ? asked : ''
}
