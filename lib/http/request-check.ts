/**
 * Requests that node's parser lets pass and a gateway may not: each check names the attack it stops. Owner: §4.1.
 * Everything else that is malformed is refused by the parser itself (server.ts answers it).
 */

import { GatewayError } from '../core/errors.ts'
import { headerOf } from '../core/http-text.ts'
import { MAX_HEADER_BYTES, MAX_TARGET_BYTES } from '../core/limits.ts'
import { type TrustedProxies, withHeaders } from '../invocation/forwarded-headers.ts'
import { normalizePath } from '../router/path.ts'
import type { Exchange } from './exchange.ts'

/** Host of RFC 9110 7.2: a registered name or an address, with an optional port. */
const HOST = /^(?:[\w.~!$&'()*+,;=%-]+|\[[0-9a-f:.]+\])(?::\d{0,5})?$/i
const ABSOLUTE = /^https?:\/\/([^/?#]*)(\/[^?#]*)?(\?[^#]*)?$/i

const UPGRADE = /(?:^|[\s,])upgrade(?:$|[\s,])/i

/** The parser counts names and values, not what stands between them: with few headers the difference is nothing. */
const MANY_HEADERS = 400

function sizeOf(rawHeaders: readonly string[]): number {
  let bytes = 0
  // Colon, blank or line end after each text.
  for (const text of rawHeaders) bytes += text.length + 2
  return bytes
}

export class RequestCheck {
  readonly #proxies: TrustedProxies

  constructor(proxies: TrustedProxies) {
    this.#proxies = proxies
  }

  /**
   * Checks an exchange and fills in what it asks for: path, search, host and address; of an absolute target its head too.
   * A request that asks for an upgrade is answered as any other and ends its connection.
   * @returns the refusal, after which the connection must close, or null
   */
  check(exchange: Exchange): GatewayError | null {
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
      if (protocol?.toLowerCase().includes('websocket') === true) return webSocket()
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
    const refused = target.charCodeAt(0) === 47 ? this.#readPath(exchange, target) : this.#readOtherTarget(exchange)
    if (refused !== null) return refused
    return this.#proxies.isEmpty ? null : this.#readForwarding(exchange)
  }

  #readPath(exchange: Exchange, target: string): GatewayError | null {
    const mark = target.indexOf('?')
    const raw = mark === -1 ? target : target.slice(0, mark)
    if (target.includes('#')) return bad('request target holds a fragment')
    const path = normalizePath(raw)
    if (typeof path !== 'string') return bad(path.problem)
    exchange.path = path
    exchange.search = mark === -1 ? '' : target.slice(mark + 1)
    return null
  }

  /** `http://host/path` as sent to proxies, and `*` of OPTIONS. */
  #readOtherTarget(exchange: Exchange): GatewayError | null {
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
    return this.#readPath(exchange, exchange.rawPath)
  }

  #readForwarding(exchange: Exchange): GatewayError | null {
    const { head } = exchange
    const { address } = exchange.connection
    if (!this.#proxies.isTrusted(address)) return null
    exchange.ip = this.#proxies.clientAddress(address, head.raw)
    if (head.forwardedHost === null) return null
    // The text left of the last entry was there when the request came to the proxy: its client wrote it.
    const host = head.forwardedHost.slice(head.forwardedHost.lastIndexOf(',') + 1).trim()
    if (!HOST.test(host)) return bad('malformed X-Forwarded-Host header')
    exchange.host = host
    return null
  }
}

function webSocket(): GatewayError {
  return new GatewayError(
    'NOT_IMPLEMENTED',
    'WebSocket is not supported: a handler can stream its answer, as server-sent events for example',
  )
}

function bad(message: string): GatewayError {
  return new GatewayError('BAD_REQUEST', message)
}
