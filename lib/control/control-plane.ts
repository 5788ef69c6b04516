/** `/_fn/*`: finds the endpoint of a request, checks the access of its caller, and sends the response. Spec: §4.2. */

import { randomBytes } from 'node:crypto'
import type { Settings } from '../config/settings.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { headerOf, toAllow } from '../core/http-text.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { Exchange } from '../http/exchange.ts'
import { sendConstant } from '../http/respond.ts'
import { ADMIN_TOKEN_HEADER, isForwarded, toProto, TrustedProxies } from '../invocation/forwarded-headers.ts'
import { EventFeed } from '../observe/event-feed.ts'
import { unescapeCanonical } from '../router/radix-tree.ts'
import {
  type Access,
  AccessState,
  type Caller,
  checkAccess,
  isAdminToken,
  maySeeDetails,
  REQUEST_MARK,
  type Session,
} from './access.ts'
import { CONSOLE_PATH, ConsolePage } from './console-page.ts'
import { OwnConsoleStore } from './console-store.ts'
import { createDependencyEndpoints } from './dependency-endpoints.ts'
import { type ControlContext, type ControlReply, type Endpoint, readQuery } from './endpoint.ts'
import { createEventsEndpoints } from './events-endpoints.ts'
import { createFunctionCreateEndpoints } from './function-create.ts'
import { createFunctionEndpoints, SourceFiles } from './function-endpoints.ts'
import { createInvokeEndpoints } from './invoke-endpoints.ts'
import { createJobsEndpoints } from './jobs-endpoints.ts'
import { createLogEndpoints, OpenStreams } from './log-endpoints.ts'
import { createMetricsEndpoints } from './metrics-endpoints.ts'
import { createScheduleEndpoints } from './schedule-endpoints.ts'
import { createSessionEndpoints, Sessions } from './session-endpoints.ts'
import { createSettingsEndpoints } from './settings-endpoints.ts'
import { createStateEndpoints } from './state-endpoints.ts'
import { createUiStateEndpoints, UiState } from './ui-state-endpoints.ts'
import { createWorkerEndpoints } from './worker-endpoints.ts'

/** The control plane of a gateway, with every endpoint in the order of the documents. */
export function createControlPlane(context: ControlContext): ControlPlane {
  const { clock, settings, journal, history, reload } = context
  const { functionsRoot } = settings
  const access = new AccessState(settings)
  const store = context.fleet?.console ?? new OwnConsoleStore(clock, new OwnFolder(functionsRoot, '.svc', 'console'))
  const sessions = new Sessions(store, settings)
  const id = randomBytes(4).toString('hex')
  const feed = new EventFeed({ clock, id, events: journal.events, builds: () => journal.builds })
  const files = new SourceFiles(functionsRoot, reload)
  const streams = new OpenStreams()
  const endpoints = [
    ...createStateEndpoints(context),
    ...createFunctionEndpoints(context, files),
    ...createFunctionCreateEndpoints(context, files),
    ...createInvokeEndpoints(context),
    ...createJobsEndpoints(context),
    ...createScheduleEndpoints(context),
    ...createEventsEndpoints(feed),
    ...createLogEndpoints(context, streams),
    ...createMetricsEndpoints(context),
    ...createSessionEndpoints(context, access, sessions, store),
    ...createUiStateEndpoints(access, new UiState(store), context.fleet?.id ?? null),
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
  return new ControlPlane({ settings, endpoints, access, sessions, close })
}

interface ControlPlaneOptions {
  settings: Settings
  endpoints: readonly Endpoint[]
  access: AccessState
  sessions: Sessions
  close?: () => void
}

const NO_STORE = ['Cache-Control', 'no-store']

/** Answers everything at or below `/_fn` and `/console`. */
export class ControlPlane {
  readonly endpoints: readonly Endpoint[]
  /** Ends the responses that would go on. */
  readonly close: () => void
  readonly #access: AccessState
  readonly #sessions: Sessions
  readonly #proxies: TrustedProxies
  readonly #adminToken: string | null
  readonly #table: EndpointTable
  readonly #console = new ConsolePage()

  constructor({ settings, endpoints, access, sessions, close = () => {} }: ControlPlaneOptions) {
    this.endpoints = endpoints
    this.close = close
    this.#access = access
    this.#sessions = sessions
    this.#adminToken = settings.adminToken
    this.#proxies = new TrustedProxies(settings.trustedProxyCidrs)
    this.#table = new EndpointTable(endpoints)
  }

  readonly handle = (exchange: Exchange): void => {
    // Pages of other origins may not embed it, either.
    exchange.extraHeaders = [...(exchange.extraHeaders ?? []), 'Cross-Origin-Resource-Policy', 'same-origin']
    this.#answer(exchange).catch(error => exchange.responder.sendError(exchange, toGatewayError(error), NO_STORE))
  }

  async #answer(exchange: Exchange): Promise<void> {
    const reply = await this.#toReply(exchange)
    if (reply === null || exchange.ended) return
    if ('send' in reply) await reply.send(exchange)
    else if ('etag' in reply) sendConstant(exchange, reply)
    else exchange.responder.sendJson(exchange, reply.status, reply.body, [...NO_STORE, ...(reply.headers ?? [])])
  }

  /** @returns null when the client left before anything was done */
  async #toReply(exchange: Exchange): Promise<ControlReply | null> {
    const path = exchange.path.includes('%') ? unescapeCanonical(exchange.path) : exchange.path
    const isPage = path === CONSOLE_PATH || path.startsWith(`${CONSOLE_PATH}/`)
    const found = isPage ? null : this.#table.find(path)
    const method = exchange.method === 'HEAD' ? 'GET' : exchange.method
    const endpoint = found?.endpoints.find(one => one.method === method)
    const access = isPage ? 'page' : (endpoint?.access ?? 'read')
    const caller = await this.#toCaller(exchange, access)
    if (exchange.ended) return null
    const { flags } = this.#access
    if (isPage) {
      if (!flags.uiEnabled) throw new GatewayError('NOT_FOUND', 'console ui disabled')
      // The page needs no session: its data does.
      const refused = checkAccess(caller, 'page', flags)
      if (refused !== null) throw refused
      return this.#console.answer(exchange, path)
    }
    // Before a 404: a caller who is refused does not learn which paths exist.
    const refused = checkAccess(caller, access, flags)
    if (refused !== null) throw refused
    if (found === null) throw new GatewayError('NOT_FOUND', 'not found')
    if (endpoint === undefined) {
      const headers = { Allow: toAllow(found.endpoints.map(one => one.method)) }
      throw new GatewayError('METHOD_NOT_ALLOWED', 'method not allowed', { headers })
    }
    const query = endpoint.query === null ? {} : readQuery(exchange.search, endpoint.query)
    const isSecure = toProto(exchange, this.#proxies.isTrusted(exchange.connection.address)) === 'https'
    const details = maySeeDetails(caller, flags)
    return endpoint.handle({ exchange, params: found.params, query: query as never, caller, details, isSecure })
  }

  async #toCaller(exchange: Exchange, access: Access): Promise<Caller> {
    const { rawHeaders } = exchange.req
    const header = (name: string): string | null => headerOf(rawHeaders, name)
    const token = header(ADMIN_TOKEN_HEADER)
    const socketAddress = exchange.connection.address
    return {
      method: exchange.method,
      socketAddress,
      clientAddress: exchange.ip,
      forwarded: !this.#proxies.isTrusted(socketAddress) && isForwarded(rawHeaders),
      host: exchange.host === '' ? null : exchange.host,
      origin: header('origin'),
      fetchSite: header('sec-fetch-site'),
      isBrowser: header('referer') !== null || BROWSER.test(header('user-agent') ?? ''),
      contentType: header('content-type'),
      mark: header(REQUEST_MARK),
      token,
      session: await this.#findSession(header('cookie'), token, access),
    }
  }

  /**
   * @throws GatewayError RUNTIME_DOWN when the store of sessions is away and the request may need one: not knowing a session is not the
   * same as having none
   */
  async #findSession(cookie: string | null, token: string | null, access: Access): Promise<Session | null> {
    if (!this.#access.flags.uiEnabled) return null
    try {
      return await this.#sessions.find(cookie)
    } catch (error) {
      if (access === 'open' || access === 'page' || isAdminToken(token, this.#adminToken)) return null
      throw error
    }
  }
}

/** Every browser calls itself so, and a page cannot make it call itself anything else. */
const BROWSER = /^Mozilla\//

/** A path that exists, its endpoints, and the values of its parameters. */
interface FoundPath {
  endpoints: readonly Endpoint[]
  params: Readonly<Record<string, string>>
}

export class EndpointTable {
  /** Those without parameters first. */
  readonly #paths: readonly { pattern: RegExp; endpoints: readonly Endpoint[] }[]

  /** @throws Error when two endpoints have the same method and path */
  constructor(endpoints: readonly Endpoint[]) {
    const groups = [...groupByPath(endpoints)]
    groups.sort(([a], [b]) => Number(a.includes('/:')) - Number(b.includes('/:')))
    // `/_fn/jobs/:id` is an expression with the group `id`.
    this.#paths = groups.map(([path, endpoints]) => {
      return { pattern: new RegExp(`^${path.replaceAll(/:(\w+)/g, '(?<$1>[^/]+)')}$`), endpoints }
    })
  }

  /** @param path - decoded; a parameter matches one segment that is not empty, a plain path is found before one with parameters */
  find(path: string): FoundPath | null {
    for (const { pattern, endpoints } of this.#paths) {
      const found = pattern.exec(path)
      if (found !== null) return { endpoints, params: found.groups ?? {} }
    }
    return null
  }
}

/** A path of the table with its methods, for documents. */
export interface EndpointPath {
  path: string
  methods: readonly string[]
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
