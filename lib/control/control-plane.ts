/** `/_fn/*`: one table of endpoints, each with its access rule. Spec: §4.2. */

import { GatewayError, toGatewayError } from '../core/errors.ts'
import { toAllow } from '../core/http-text.ts'
import type { Settings } from '../config/settings.ts'
import type { Exchange } from '../http/exchange.ts'
import type { Responder } from '../http/respond.ts'
import { isForwarded } from '../invocation/client-address.ts'
import type { KeepWarmRow } from '../scheduler/keep-warm.ts'
import { unescapeCanonical } from '../router/path.ts'
import { type Caller, checkAccess, type EndpointAccess, maySeeDetails } from './access.ts'
import { type GatewayState, toCatalogRecord, toHealthRecord, toReloadRecord, toSchedulesRecord } from './records.ts'

interface ControlOptions {
  settings: Settings
  responder: Responder
  /** The state now; `details` tells whether paths and addresses may be shown. */
  state: (details: boolean) => GatewayState
  keepWarm: () => readonly KeepWarmRow[]
  /** Resolves when the new catalog is in force. */
  reload: () => Promise<void>
  isTrustedProxy: (address: string) => boolean
  /** Wall clock, ms. */
  now: () => number
}

interface ControlRequest {
  exchange: Exchange
  details: boolean
}

interface ControlReply {
  status: number
  body: unknown
}

interface Endpoint {
  access: EndpointAccess
  handle: (request: ControlRequest, options: ControlOptions) => ControlReply | Promise<ControlReply>
}

const OPEN: EndpointAccess = { open: true, write: false }
const READ: EndpointAccess = { open: false, write: false }

const reload: Endpoint = {
  access: READ,
  handle: async ({ details }, options) => {
    await options.reload()
    return { status: 200, body: toReloadRecord(options.state(details), options.now()) }
  },
}

/** Path to method to endpoint. */
const ENDPOINTS: ReadonlyMap<string, ReadonlyMap<string, Endpoint>> = new Map([
  [
    '/_fn/health',
    new Map([
      [
        'GET',
        {
          access: OPEN,
          handle: ({ details }: ControlRequest, options: ControlOptions) => toHealthRecord(options.state(details)),
        },
      ],
    ]),
  ],
  [
    '/_fn/catalog',
    new Map([
      [
        'GET',
        {
          access: READ,
          handle: ({ details }: ControlRequest, options: ControlOptions) => ({
            status: 200,
            body: toCatalogRecord(options.state(details)),
          }),
        },
      ],
    ]),
  ],
  [
    '/_fn/schedules',
    new Map([
      [
        'GET',
        {
          access: READ,
          handle: ({ details }: ControlRequest, options: ControlOptions) => ({
            status: 200,
            body: toSchedulesRecord(options.keepWarm(), options.state(details), options.now()),
          }),
        },
      ],
    ]),
  ],
  // GET as well: a rescan harms nothing, and watchers of older tools use it.
  [
    '/_fn/reload',
    new Map([
      ['POST', reload],
      ['GET', reload],
    ]),
  ],
])

/** Every endpoint, for the OpenAPI document. */
export const CONTROL_PATHS: readonly { path: string; methods: readonly string[] }[] = [...ENDPOINTS].map(
  ([path, methods]) => ({ path, methods: [...methods.keys()] }),
)

/** Answers everything at or below `/_fn` and `/console`. */
export class ControlPlane {
  readonly #options: ControlOptions

  constructor(options: ControlOptions) {
    this.#options = options
  }

  readonly handle = (exchange: Exchange): void => {
    this.#answer(exchange).then(
      ({ status, body }) => this.#options.responder.sendJson(exchange, status, body, ['Cache-Control', 'no-store']),
      error => this.#options.responder.sendError(exchange, toGatewayError(error), ['Cache-Control', 'no-store']),
    )
  }

  async #answer(exchange: Exchange): Promise<ControlReply> {
    const { settings } = this.#options
    const path = exchange.path.includes('%') ? unescapeCanonical(exchange.path) : exchange.path
    if (path === '/console' || path.startsWith('/console/')) throw new GatewayError('NOT_FOUND', 'console ui disabled')
    const methods = ENDPOINTS.get(path)
    const method = exchange.method === 'HEAD' ? 'GET' : exchange.method
    const caller = this.#toCaller(exchange)
    const endpoint = methods?.get(method)
    // Refused before it is told whether the path exists.
    const refused = checkAccess(caller, endpoint?.access ?? READ, settings)
    if (refused !== null) throw refused
    if (methods === undefined) throw new GatewayError('NOT_FOUND', 'not found')
    if (endpoint === undefined) {
      throw new GatewayError('METHOD_NOT_ALLOWED', 'method not allowed', {
        headers: { Allow: toAllow([...methods.keys()]) },
      })
    }
    return endpoint.handle({ exchange, details: maySeeDetails(caller, settings) }, this.#options)
  }

  #toCaller(exchange: Exchange): Caller {
    const headers = new Map<string, string>()
    const { rawHeaders } = exchange.req
    for (let i = 0; i + 1 < rawHeaders.length; i += 2) headers.set(rawHeaders[i]!.toLowerCase(), rawHeaders[i + 1]!)
    const socketAddress = exchange.connection.address
    return {
      method: exchange.method,
      socketAddress,
      clientAddress: exchange.ip,
      forwarded: !this.#options.isTrustedProxy(socketAddress) && isForwarded(rawHeaders),
      host: exchange.host === '' ? null : exchange.host,
      origin: headers.get('origin') ?? null,
      fetchSite: headers.get('sec-fetch-site') ?? null,
      token: headers.get('x-fn-admin-token') ?? null,
    }
  }
}
