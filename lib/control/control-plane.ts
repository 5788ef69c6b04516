/** `/_fn/*`: finds the endpoint of a request, decides whether the caller may, and sends the answer. Spec: §4.2. */

import { GatewayError, toGatewayError } from '../core/errors.ts'
import { toAllow } from '../core/http-text.ts'
import { type Responder, sendConstant } from '../http/respond.ts'
import { toProto } from '../invocation/adapters.ts'
import type { Exchange } from '../http/exchange.ts'
import { ADMIN_TOKEN_HEADER, headerOf, isForwarded } from '../invocation/forwarded-headers.ts'
import { unescapeCanonical } from '../router/path.ts'
import type { AccessState } from './access-state.ts'
import { type Caller, checkAccess, maySeeDetails, REQUEST_MARK } from './access.ts'
import { ControlQuery } from './control-query.ts'
import { ControlRequest } from './control-request.ts'
import { CONSOLE_PATH, ConsolePage } from './console-page.ts'
import { CONSOLE_PAGE, type ControlReply, type Endpoint, READ } from './endpoint.ts'
import { EndpointTable } from './endpoint-table.ts'
import type { Sessions } from './sessions.ts'

interface ControlOptions {
  responder: Responder
  endpoints: readonly Endpoint[]
  access: AccessState
  sessions: Sessions
  isTrustedProxy: (address: string) => boolean
}

/** Answers everything at or below `/_fn` and `/console`. */
export class ControlPlane {
  readonly #options: ControlOptions
  readonly #table: EndpointTable
  readonly #console = new ConsolePage()

  constructor(options: ControlOptions) {
    this.#options = options
    this.#table = new EndpointTable(options.endpoints)
  }

  readonly handle = (exchange: Exchange): void => {
    const { responder } = this.#options
    // Pages of other origins may not embed it, either.
    exchange.extraHeaders = [...(exchange.extraHeaders ?? []), 'Cross-Origin-Resource-Policy', 'same-origin']
    this.#answer(exchange).then(
      reply => this.#send(exchange, reply),
      error => responder.sendError(exchange, toGatewayError(error), ['Cache-Control', 'no-store']),
    )
  }

  #send(exchange: Exchange, reply: ControlReply): void {
    if (exchange.ended) return
    if ('send' in reply) reply.send(exchange)
    else if ('etag' in reply) sendConstant(exchange, reply)
    else {
      const headers = ['Cache-Control', 'no-store', ...(reply.headers ?? [])]
      this.#options.responder.sendJson(exchange, reply.status, reply.body, headers)
    }
  }

  async #answer(exchange: Exchange): Promise<ControlReply> {
    const { flags } = this.#options.access
    const path = exchange.path.includes('%') ? unescapeCanonical(exchange.path) : exchange.path
    if (path === CONSOLE_PATH || path.startsWith(`${CONSOLE_PATH}/`)) return this.#answerConsole(exchange, path)
    const found = this.#table.find(path)
    const method = exchange.method === 'HEAD' ? 'GET' : exchange.method
    const caller = this.#toCaller(exchange)
    const endpoint = found?.endpoints.find(one => one.method === method)
    // Refused before it is told whether the path exists.
    const refused = checkAccess(caller, endpoint?.access ?? READ, flags)
    if (refused !== null) throw refused
    if (found === null) throw new GatewayError('NOT_FOUND', 'not found')
    if (endpoint === undefined) {
      const headers = { Allow: toAllow(found.endpoints.map(one => one.method)) }
      throw new GatewayError('METHOD_NOT_ALLOWED', 'method not allowed', { headers })
    }
    const query = ControlQuery.parse(exchange.search, endpoint.query ?? [])
    const details = maySeeDetails(caller, flags)
    const isSecure = this.#isSecure(exchange)
    return endpoint.handle(new ControlRequest({ exchange, params: found.params, query, caller, details, isSecure }))
  }

  /** The page is for who may log in, too; what it shows is asked for by itself. */
  #answerConsole(exchange: Exchange, path: string): Promise<ControlReply> {
    const { access } = this.#options
    if (!access.flags.uiEnabled) throw new GatewayError('NOT_FOUND', 'console ui disabled')
    const refused = checkAccess(this.#toCaller(exchange), CONSOLE_PAGE, access.flags)
    if (refused !== null) throw refused
    return this.#console.answer(exchange, path)
  }

  #isSecure(exchange: Exchange): boolean {
    return toProto(exchange, this.#options.isTrustedProxy(exchange.connection.address)) === 'https'
  }

  #toCaller(exchange: Exchange): Caller {
    const { access, sessions } = this.#options
    const { rawHeaders } = exchange.req
    const socketAddress = exchange.connection.address
    return {
      method: exchange.method,
      socketAddress,
      clientAddress: exchange.ip,
      forwarded: !this.#options.isTrustedProxy(socketAddress) && isForwarded(rawHeaders),
      host: exchange.host === '' ? null : exchange.host,
      origin: headerOf(rawHeaders, 'origin'),
      fetchSite: headerOf(rawHeaders, 'sec-fetch-site'),
      isBrowser: isFromBrowser(rawHeaders),
      contentType: headerOf(rawHeaders, 'content-type'),
      mark: headerOf(rawHeaders, REQUEST_MARK),
      token: headerOf(rawHeaders, ADMIN_TOKEN_HEADER),
      session: access.flags.uiEnabled ? sessions.find(headerOf(rawHeaders, 'cookie')) : null,
    }
  }
}

/** Every browser calls itself so, and a page cannot make it call itself anything else. */
const BROWSER = /^Mozilla\//

function isFromBrowser(rawHeaders: readonly string[]): boolean {
  return headerOf(rawHeaders, 'referer') !== null || BROWSER.test(headerOf(rawHeaders, 'user-agent') ?? '')
}
