/** `/_fn/*`: finds the endpoint of a request, checks the access of its caller, and sends the response. Spec: §4.2. */

import { randomBytes } from 'node:crypto'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { headerOf, toAllow } from '../core/http-text.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { Exchange } from '../http/exchange.ts'
import { type Responder, sendConstant } from '../http/respond.ts'
import { ADMIN_TOKEN_HEADER, isForwarded, toProto } from '../invocation/forwarded-headers.ts'
import { EventFeed } from '../observe/event-feed.ts'
import { unescapeCanonical } from '../router/radix-tree.ts'
import { AccessState, type Caller, checkAccess, maySeeDetails, REQUEST_MARK } from './access.ts'
import { CONSOLE_PATH, ConsolePage } from './console-page.ts'
import { createDependencyEndpoints, createPackEndpoints } from './dependency-endpoints.ts'
import { CONSOLE_PAGE, type ControlContext, ControlQuery, type ControlReply, type Endpoint, READ } from './endpoint.ts'
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

/** Every endpoint, in the order of the documents, and the state that decides access to them. */
export function createControlParts(context: ControlContext): ControlParts {
  const { clock, settings, journal, history, streams, reload } = context
  const { functionsRoot } = settings
  const access = new AccessState(settings)
  const sessions = new Sessions({ clock, ttlMs: settings.consoleSessionTtlSeconds * 1000 })
  const id = randomBytes(4).toString('hex')
  const feed = new EventFeed({ clock, id, events: journal.events, builds: () => journal.builds })
  const files = new SourceFiles(functionsRoot, reload)
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
    // Before a 404: a caller who is refused does not learn which paths exist.
    const refused = checkAccess(caller, endpoint?.access ?? READ, flags)
    if (refused !== null) throw refused
    if (found === null) throw new GatewayError('NOT_FOUND', 'not found')
    if (endpoint === undefined) {
      const headers = { Allow: toAllow(found.endpoints.map(one => one.method)) }
      throw new GatewayError('METHOD_NOT_ALLOWED', 'method not allowed', { headers })
    }
    const query = ControlQuery.parse(exchange.search, endpoint.query ?? [])
    const details = maySeeDetails(caller, flags)
    const isSecure = toProto(exchange, this.#options.isTrustedProxy(exchange.connection.address)) === 'https'
    return endpoint.handle({ exchange, params: found.params, query, caller, details, isSecure })
  }

  /** The page needs no session: its data does. */
  #answerConsole(exchange: Exchange, path: string): Promise<ControlReply> {
    const { access } = this.#options
    if (!access.flags.uiEnabled) throw new GatewayError('NOT_FOUND', 'console ui disabled')
    const refused = checkAccess(this.#toCaller(exchange), CONSOLE_PAGE, access.flags)
    if (refused !== null) throw refused
    return this.#console.answer(exchange, path)
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

/** A path that exists, its endpoints, and the values of its parameters. */
interface FoundPath {
  endpoints: readonly Endpoint[]
  params: Readonly<Record<string, string>>
}

/** A path of the table with its methods, for documents. */
export interface EndpointPath {
  path: string
  methods: readonly string[]
}

export class EndpointTable {
  readonly #byPath: ReadonlyMap<string, readonly Endpoint[]>
  readonly #withParams: readonly { pattern: RegExp; endpoints: readonly Endpoint[] }[]

  /** @throws Error when two endpoints have the same method and path */
  constructor(endpoints: readonly Endpoint[]) {
    this.#byPath = groupByPath(endpoints)
    this.#withParams = [...this.#byPath]
      .filter(([path]) => path.includes('/:'))
      .map(([path, endpoints]) => ({ pattern: toPattern(path), endpoints }))
  }

  /** @param path - decoded; a parameter matches one segment that is not empty, a plain path is found before one with parameters */
  find(path: string): FoundPath | null {
    const plain = path.includes('/:') ? undefined : this.#byPath.get(path)
    if (plain !== undefined) return { endpoints: plain, params: {} }
    for (const { pattern, endpoints } of this.#withParams) {
      const params = pattern.exec(path)?.groups
      if (params !== undefined) return { endpoints, params }
    }
    return null
  }
}

/** `/_fn/jobs/:id` as an expression with the group `id`. */
function toPattern(path: string): RegExp {
  return new RegExp(`^${path.replaceAll(/:(\w+)/g, '(?<$1>[^/]+)')}$`)
}

/** The paths of endpoints in their order, each once. */
export function toEndpointPaths(endpoints: readonly Endpoint[]): EndpointPath[] {
  return [...groupByPath(endpoints)].map(([path, list]) => ({ path, methods: list.map(({ method }) => method) }))
}

function groupByPath(endpoints: readonly Endpoint[]): ReadonlyMap<string, readonly Endpoint[]> {
  const groups = new Map<string, readonly Endpoint[]>()
  for (const endpoint of endpoints) {
    const { method, path } = endpoint
    const list = groups.get(path) ?? []
    if (list.some(other => other.method === method)) throw new Error(`two endpoints for ${method} ${path}`)
    groups.set(path, [...list, endpoint])
  }
  return groups
}
