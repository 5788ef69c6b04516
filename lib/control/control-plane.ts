/** `/_fn/*`: one table of endpoints, each with its access rule. Spec: §4.2. */

import type { Clock } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { toAllow } from '../core/http-text.ts'
import type { Settings } from '../config/settings.ts'
import { type ConstantAnswer, sendConstant, toConstantAnswer } from '../http/constant-answer.ts'
import type { Exchange } from '../http/exchange.ts'
import type { Responder } from '../http/respond.ts'
import { isForwarded } from '../invocation/client-address.ts'
import { ADMIN_TOKEN_HEADER, headerOf } from '../invocation/forwarded-headers.ts'
import { unescapeCanonical } from '../router/path.ts'
import type { KeepWarmRow } from '../scheduler/keep-warm.ts'
import { type Caller, checkAccess, type EndpointAccess, maySeeDetails, REQUEST_MARK } from './access.ts'
import { type GatewayState, toCatalogRecord, toHealthRecord, toReloadRecord, toSchedulesRecord } from './records.ts'

/** Milliseconds for which strangers get the same health record: making it looks at every function. */
export const STRANGERS_HEALTH_MS = 1000

export interface ControlOptions {
  settings: Settings
  responder: Responder
  /** The state now; `details` tells whether paths and addresses may be shown. */
  state: (details: boolean) => GatewayState
  keepWarm: () => readonly KeepWarmRow[]
  /** Resolves when the new catalog is in force. */
  reload: () => Promise<void>
  isTrustedProxy: (address: string) => boolean
  clock: Clock
}

interface ControlReply {
  status: number
  body: unknown
}

/** What an endpoint works with. */
interface ControlContext extends ControlOptions {
  /** Paths and addresses may be shown. */
  details: boolean
  strangersHealth: () => ConstantAnswer
}

interface Endpoint {
  method: string
  path: string
  access: EndpointAccess
  handle: (context: ControlContext) => ControlReply | ConstantAnswer | Promise<ControlReply>
}

const OPEN: EndpointAccess = { open: true, write: false, acts: false }
const READ: EndpointAccess = { open: false, write: false, acts: false }
const ACT: EndpointAccess = { open: false, write: false, acts: true }

const ENDPOINTS: readonly Endpoint[] = [
  { method: 'GET', path: '/_fn/health', access: OPEN, handle: readHealth },
  { method: 'GET', path: '/_fn/catalog', access: READ, handle: readCatalog },
  { method: 'GET', path: '/_fn/schedules', access: READ, handle: readSchedules },
  { method: 'POST', path: '/_fn/reload', access: ACT, handle: reload },
  // Watchers of older tools ask so.
  { method: 'GET', path: '/_fn/reload', access: ACT, handle: reload },
]

function readHealth({ details, state, strangersHealth }: ControlContext): ControlReply | ConstantAnswer {
  return details ? toHealthRecord(state(true)) : strangersHealth()
}

function readCatalog({ details, state }: ControlContext): ControlReply {
  return { status: 200, body: toCatalogRecord(state(details)) }
}

function readSchedules({ details, state, keepWarm, clock }: ControlContext): ControlReply {
  return { status: 200, body: toSchedulesRecord(keepWarm(), state(details), clock.wall()) }
}

async function reload({ details, state, clock, ...options }: ControlContext): Promise<ControlReply> {
  await options.reload()
  return { status: 200, body: toReloadRecord(state(details), clock.wall()) }
}

/** Path to its endpoints. */
const BY_PATH: ReadonlyMap<string, readonly Endpoint[]> = new Map(
  ENDPOINTS.map(({ path }) => [path, ENDPOINTS.filter(endpoint => endpoint.path === path)]),
)

/** Every endpoint, for the OpenAPI document. */
export const CONTROL_PATHS: readonly { path: string; methods: readonly string[] }[] = [...BY_PATH].map(
  ([path, endpoints]) => ({ path, methods: endpoints.map(({ method }) => method) }),
)

/** Answers everything at or below `/_fn` and `/console`. */
export class ControlPlane {
  readonly #options: ControlOptions
  #strangers: { health: ConstantAnswer; madeAt: number } | null = null

  constructor(options: ControlOptions) {
    this.#options = options
  }

  readonly handle = (exchange: Exchange): void => {
    const { responder } = this.#options
    this.#answer(exchange).then(
      reply => {
        if ('etag' in reply) sendConstant(exchange, reply)
        else responder.sendJson(exchange, reply.status, reply.body, ['Cache-Control', 'no-store'])
      },
      error => responder.sendError(exchange, toGatewayError(error), ['Cache-Control', 'no-store']),
    )
  }

  async #answer(exchange: Exchange): Promise<ControlReply | ConstantAnswer> {
    const { settings } = this.#options
    const path = exchange.path.includes('%') ? unescapeCanonical(exchange.path) : exchange.path
    if (path === '/console' || path.startsWith('/console/')) throw new GatewayError('NOT_FOUND', 'console ui disabled')
    const endpoints = BY_PATH.get(path)
    const method = exchange.method === 'HEAD' ? 'GET' : exchange.method
    const caller = this.#toCaller(exchange)
    const endpoint = endpoints?.find(one => one.method === method)
    // Refused before it is told whether the path exists.
    const refused = checkAccess(caller, endpoint?.access ?? READ, settings)
    if (refused !== null) throw refused
    if (endpoints === undefined) throw new GatewayError('NOT_FOUND', 'not found')
    if (endpoint === undefined) {
      const headers = { Allow: toAllow(endpoints.map(one => one.method)) }
      throw new GatewayError('METHOD_NOT_ALLOWED', 'method not allowed', { headers })
    }
    const details = maySeeDetails(caller, settings)
    return endpoint.handle({ ...this.#options, details, strangersHealth: this.#strangersHealth })
  }

  /** Whoever may not see details gets what was made for another one a moment ago. */
  readonly #strangersHealth = (): ConstantAnswer => {
    const { clock, state } = this.#options
    const now = clock.monotonic()
    if (this.#strangers === null || now - this.#strangers.madeAt >= STRANGERS_HEALTH_MS) {
      const { status, body } = toHealthRecord(state(false))
      this.#strangers = { health: toConstantAnswer(status, body), madeAt: now }
    }
    return this.#strangers.health
  }

  #toCaller(exchange: Exchange): Caller {
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
      contentType: headerOf(rawHeaders, 'content-type'),
      mark: headerOf(rawHeaders, REQUEST_MARK),
      token: headerOf(rawHeaders, ADMIN_TOKEN_HEADER),
    }
  }
}
