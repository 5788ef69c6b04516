/**
 * Cross-origin access as `cors` of a function's config allows it. Spec: page http/cors.
 *
 * A function without `cors` costs nothing: the public handler asks here only when the policy has one, or when a request
 * was refused for its method, which every preflight is (no function can have OPTIONS).
 */

import type { CorsPolicy } from '../core/catalog.ts'
import { headerOf } from '../core/http-text.ts'
import { METHODS } from '../core/identity.ts'
import type { RouteTable } from '../router/route-table.ts'
import type { Exchange } from './exchange.ts'

type Routes = Pick<RouteTable, 'find'>

const REQUEST_METHOD = 'access-control-request-method'
const REQUEST_HEADERS = 'access-control-request-headers'
const HEADER_LIST = /^[\w!#$%&'*+.^`|~-]+(?:\s*,\s*[\w!#$%&'*+.^`|~-]+)*$/

/** Gives an answer its headers, errors of the gateway included. */
export function addCors(exchange: Exchange, policy: CorsPolicy): void {
  exchange.cors = toHeaders(policy, exchange.head.origin, exchange.method)
}

/**
 * The method of a request was refused: answers a preflight, and lets the page of any other request read the refusal.
 * @returns true when it has answered
 */
export function answerPreflight(exchange: Exchange, routes: Routes): boolean {
  const { head, method } = exchange
  if (head.origin === null) return false
  const asked = method === 'OPTIONS' ? headerOf(exchange.req.rawHeaders, REQUEST_METHOD) : null
  const policy = asked === null ? null : policyOf(exchange, routes, asked)
  if (policy !== null) {
    exchange.responder.send(exchange, 204, toPreflightHeaders(exchange, routes, policy, head.origin), null)
    return true
  }
  const allowed = METHODS.find(name => policyOf(exchange, routes, name) !== null)
  if (allowed !== undefined) exchange.cors = toHeaders(policyOf(exchange, routes, allowed)!, head.origin, allowed)
  return false
}

function toPreflightHeaders(exchange: Exchange, routes: Routes, policy: CorsPolicy, origin: string): string[] {
  const asks = `${REQUEST_METHOD}, ${REQUEST_HEADERS}`
  const isOpen = isEveryOrigin(policy)
  const headers = ['Vary', isOpen ? asks : `Origin, ${asks}`]
  if (!isAllowedOrigin(policy, origin)) return headers
  headers.push('Access-Control-Allow-Origin', isOpen ? '*' : origin)
  if (policy.credentials) headers.push('Access-Control-Allow-Credentials', 'true')
  const methods = METHODS.filter(method => {
    const other = policyOf(exchange, routes, method)
    return other !== null && isAllowedOrigin(other, origin) && isAllowedMethod(other, method)
  })
  headers.push('Access-Control-Allow-Methods', methods.join(', '))
  const asksBack = policy.headers.length === 0 || (policy.credentials && policy.headers.includes('*'))
  const asked = headerOf(exchange.req.rawHeaders, REQUEST_HEADERS)
  // Text that is no list of names is not repeated into an answer.
  const repeated = asked !== null && HEADER_LIST.test(asked) ? asked : ''
  const allowed = asksBack ? repeated : policy.headers.join(', ')
  if (allowed !== '') headers.push('Access-Control-Allow-Headers', allowed)
  headers.push('Access-Control-Max-Age', String(policy.maxAgeSeconds))
  return headers
}

function toHeaders(policy: CorsPolicy, origin: string | null, method: string): string[] {
  const isOpen = isEveryOrigin(policy)
  // A cache may keep this answer for another origin, so it says that the origin matters even when there is none.
  const vary = isOpen ? [] : ['Vary', 'Origin']
  if (!isAllowedOrigin(policy, origin) || !isAllowedMethod(policy, method)) return vary
  const headers = ['Access-Control-Allow-Origin', isOpen ? '*' : origin!]
  if (policy.credentials) headers.push('Access-Control-Allow-Credentials', 'true')
  if (policy.expose.length > 0) headers.push('Access-Control-Expose-Headers', policy.expose.join(', '))
  headers.push(...vary)
  return headers
}

/** With credentials browsers take `*` for a name; an origin list that has both is read as the narrower one. */
function isEveryOrigin({ origins, credentials }: CorsPolicy): boolean {
  return origins.includes('*') && !credentials
}

function isAllowedOrigin(policy: CorsPolicy, origin: string | null): boolean {
  return isEveryOrigin(policy) || (origin !== null && origin !== '*' && policy.origins.includes(origin))
}

function isAllowedMethod({ methods }: CorsPolicy, method: string): boolean {
  return methods.length === 0 || (methods as readonly string[]).includes(method === 'HEAD' ? 'GET' : method)
}

function policyOf(exchange: Exchange, routes: Routes, method: string): CorsPolicy | null {
  const found = routes.find(method, exchange.path, exchange.host)
  return found.kind === 'match' ? found.fn.policy.cors : null
}
