/** `/_fn/*`: finds the endpoint of a request, decides whether the caller may, and sends the answer. Spec: §4.2. */

import { randomBytes } from 'node:crypto'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { headerOf, toAllow } from '../core/http-text.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { Exchange } from '../http/exchange.ts'
import { type Responder, sendConstant } from '../http/respond.ts'
import { toProto } from '../invocation/adapters.ts'
import { ADMIN_TOKEN_HEADER, isForwarded } from '../invocation/forwarded-headers.ts'
import { EventFeed } from '../observe/event-feed.ts'
import { unescapeCanonical } from '../router/path.ts'
import { AccessState, type Caller, checkAccess, maySeeDetails, REQUEST_MARK } from './access.ts'
import { CONSOLE_PATH, ConsolePage } from './console-page.ts'
import { createDependencyEndpoints, createPackEndpoints } from './dependency-endpoints.ts'
import {
  CONSOLE_PAGE,
  type ControlContext,
  ControlQuery,
  type ControlReply,
  ControlRequest,
  type Endpoint,
  READ,
} from './endpoint.ts'
import { createEventsEndpoints } from './events-endpoints.ts'
import { createFunctionEditEndpoints } from './function-edit-endpoints.ts'
import { createFunctionEndpoints } from './function-endpoints.ts'
import { SourceFiles } from './function-record.ts'
import { createInvokeEndpoints } from './invoke-endpoints.ts'
import { createJobsEndpoints } from './jobs-endpoints.ts'
import { createLogEndpoints } from './log-endpoints.ts'
import { createMetricsEndpoints } from './metrics-endpoints.ts'
import { createScheduleEndpoints } from './schedule-endpoints.ts'
import { createSessionEndpoints, Sessions } from './session-endpoints.ts'
import { createSettingsEndpoints } from './settings-endpoints.ts'
import { createStateEndpoints } from './state-endpoints.ts'
import { createUiStateEndpoints, UiStore } from './ui-state-endpoints.ts'
import { createWorkerEndpoints } from './worker-endpoints.ts'

interface ControlOptions extends Omit<ControlParts, 'close'> {
  responder: Responder
  isTrustedProxy: (address: string) => boolean
}

export interface ControlParts {
  endpoints: readonly Endpoint[]
  access: AccessState
  sessions: Sessions
  /** Ends the responses that would go on. */
  close: () => void
}

/** Every endpoint, in the order of the documents, and what decides who may use them. */
export function createControlParts(context: ControlContext): ControlParts {
  const { clock, settings, journal, history, streams, reload } = context
  const { functionsRoot } = settings
  const access = new AccessState(settings)
  const sessions = new Sessions({ clock, ttlMs: settings.consoleSessionTtlSeconds * 1000 })
  const id = randomBytes(4).toString('hex')
  const feed = new EventFeed({ clock, id, events: journal.events, builds: () => journal.builds })
  const files = new SourceFiles({ functionsRoot, reload })
  const endpoints = [
    ...createStateEndpoints(context),
    ...createPackEndpoints(context),
    ...createFunctionEndpoints(context, files),
    ...createFunctionEditEndpoints(context, files),
    ...createInvokeEndpoints(context),
    ...createJobsEndpoints(context),
    ...createScheduleEndpoints(context),
    ...createEventsEndpoints(feed),
    ...createLogEndpoints(context),
    ...createMetricsEndpoints(context),
    ...createSessionEndpoints(context, access, sessions),
    ...createUiStateEndpoints(access, new UiStore(new OwnFolder(functionsRoot, '.svc', 'console'))),
    ...createSettingsEndpoints(context),
    ...createDependencyEndpoints(context),
    ...createWorkerEndpoints(context),
  ]
  // Nothing reads the history where the console is off.
  const followSwitch = (): void => (access.flags.uiEnabled ? history.start() : history.stop())
  access.onChange = followSwitch
  followSwitch()
  const close = (): void => {
    access.onChange = null
    history.close()
    feed.close()
    streams.close()
  }
  return { endpoints, access, sessions, close }
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

// The endpoints by path: a map for plain paths, a short list for those with parameters.

/** A path that exists, its endpoints, and what stands in its parameters. */
interface FoundPath {
  endpoints: readonly Endpoint[]
  params: Readonly<Record<string, string>>
}

/** A path of the table with its methods, for documents. */
export interface EndpointPath {
  path: string
  methods: readonly string[]
}

const NO_PARAMS: Readonly<Record<string, string>> = Object.freeze(Object.create(null))

export class EndpointTable {
  readonly #plain = new Map<string, Endpoint[]>()
  readonly #withParams = new Map<string, { segments: readonly string[]; endpoints: Endpoint[] }>()

  /** @throws Error when two endpoints have the same method and path */
  constructor(endpoints: readonly Endpoint[]) {
    for (const endpoint of endpoints) this.#add(endpoint)
  }

  #add(endpoint: Endpoint): void {
    const { method, path } = endpoint
    const list = this.#listOf(path)
    if (list.some(other => other.method === method)) throw new Error(`two endpoints for ${method} ${path}`)
    list.push(endpoint)
  }

  #listOf(path: string): Endpoint[] {
    if (!path.includes('/:')) return setDefault(this.#plain, path, [])
    return setDefault(this.#withParams, path, { segments: path.split('/'), endpoints: [] }).endpoints
  }

  /** @param path - decoded; a parameter takes one segment that is not empty, a plain path is found before one with parameters */
  find(path: string): FoundPath | null {
    const plain = this.#plain.get(path)
    if (plain !== undefined) return { endpoints: plain, params: NO_PARAMS }
    const given = path.split('/')
    for (const { segments, endpoints } of this.#withParams.values()) {
      const params = matchSegments(segments, given)
      if (params !== null) return { endpoints, params }
    }
    return null
  }
}

/** The paths of endpoints in their order, each once. */
export function toEndpointPaths(endpoints: readonly Endpoint[]): EndpointPath[] {
  const methods = new Map<string, string[]>()
  for (const { path, method } of endpoints) setDefault(methods, path, []).push(method)
  return [...methods].map(([path, list]) => ({ path, methods: list }))
}

function matchSegments(segments: readonly string[], given: readonly string[]): Record<string, string> | null {
  if (segments.length !== given.length) return null
  const params: Record<string, string> = Object.create(null)
  for (const [index, segment] of segments.entries()) {
    const text = given[index]!
    if (!segment.startsWith(':')) {
      if (segment !== text) return null
    } else if (text === '') return null
    else params[segment.slice(1)] = text
  }
  return params
}

function setDefault<T>(map: Map<string, T>, key: string, value: T): T {
  const known = map.get(key)
  if (known !== undefined) return known
  map.set(key, value)
  return value
}
