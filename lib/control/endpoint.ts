/**
 * One endpoint of `/_fn/*`: method and path, access, query, request and response. Owner: §4.2.
 * A family of endpoints is a file `<family>-endpoints.ts` with `create<Family>Endpoints(context)`; `control-plane.ts` joins them.
 */

import { isUtf8 } from 'node:buffer'
import { type Field, type Finding, nearest, showText, showValue, toPlace } from '../config/fields.ts'
import { parseJsonText } from '../config/json-text.ts'
import type { Settings, SettingSource } from '../config/settings.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { badRequest, GatewayError } from '../core/errors.ts'
import { decodePercent, headerOf } from '../core/http-text.ts'
import type { RuntimeName } from '../core/identity.ts'
import { isObject } from '../core/json.ts'
import type { Lifecycle } from '../core/transitions.ts'
import type { Dependencies, SharedPacks } from '../dependencies/dependencies.ts'
import { collectBody } from '../http/body.ts'
import type { Exchange } from '../http/exchange.ts'
import type { ConstantAnswer } from '../http/respond.ts'
import type { InternalRequest, InternalResult } from '../invocation/internal-call.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { TARGET } from '../jobs/job-input.ts'
import type { JobsPart } from '../jobs/jobs.ts'
import type { History } from '../observe/history.ts'
import type { Journal } from '../observe/journal.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { Dispatcher } from '../runtime/dispatcher.ts'
import type { Runtime } from '../runtime/runtime.ts'
import type { Scheduler } from '../scheduler/scheduler.ts'
import type { Access, Caller } from './access.ts'
import type { CallFields } from './call-fields.ts'
import type { GatewayState } from './records.ts'

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
type QueryFields = Readonly<Record<string, Field<unknown>>>
/** The values of a query by the names of its fields; undefined when they are not given. */
type QueryOf<Fields extends QueryFields> = {
  readonly [Name in keyof Fields]?: Fields[Name] extends Field<infer Value> ? Value : never
}

export interface Endpoint {
  readonly method: Method
  /** Below `/_fn`; a segment `:id` takes any text, which is then `params.id`. */
  readonly path: string
  readonly access: Access
  /** The fields of its query: any other is 400. Null lets every query pass unread. */
  readonly query: QueryFields | null
  readonly handle: (request: ControlRequest<never>) => ControlReply | Promise<ControlReply>
}

/** @param query - without it the endpoint has no query fields */
export function endpoint<const Fields extends QueryFields = Record<never, never>>(
  route: `${Method} ${string}`,
  access: Access,
  handle: (request: ControlRequest<QueryOf<Fields>>) => ControlReply | Promise<ControlReply>,
  query: Fields | null = {} as Fields,
): Endpoint {
  const [method, path] = route.split(' ') as [Method, string]
  return { method, path, access, query, handle }
}

export interface ControlRequest<Query = unknown> {
  readonly exchange: Exchange
  /** Parameters of the path such as `:id`, decoded. */
  readonly params: Readonly<Record<string, string>>
  readonly query: Query
  readonly caller: Caller
  /** Paths, addresses and other inner facts may be shown. */
  readonly details: boolean
  /** The client uses https. */
  readonly isSecure: boolean
}

/** A JSON value with its status, prepared bytes, or a response that the endpoint sends itself. */
export type ControlReply =
  | {
      readonly status: number
      readonly body: unknown
      /** More headers, names and values in turn. */
      readonly headers?: readonly string[]
    }
  | ConstantAnswer
  | { readonly send: (exchange: Exchange) => void | Promise<void> }

export function json(body: unknown, status = 200, headers: readonly string[] = []): ControlReply {
  return { status, body, headers }
}

/** After a change of the tree that is in force here: the other gateways of a fleet take it too, and the body says which of them have it. */
export async function announce({ fleet }: Pick<ControlContext, 'fleet'>, reply: ControlReply): Promise<ControlReply> {
  if (fleet === null || !('body' in reply)) return reply
  return { ...reply, body: { ...(reply.body as JsonObject), fleet: await fleet.announceChange() } }
}

/** The gateway as its endpoints see it. */
export interface ControlContext {
  readonly settings: Settings
  /** By setting name, programs as `binaries.python`. */
  readonly sources: Readonly<Record<string, SettingSource>>
  /** Full path of the project file; null when there is none. */
  readonly configFile: string | null
  readonly clock: Clock
  readonly lifecycle: Readonly<Lifecycle>
  readonly journal: Journal
  readonly history: History
  readonly metrics: Metrics
  readonly jobs: JobsPart
  readonly scheduler: Scheduler
  readonly runtimes: ReadonlyMap<RuntimeName, Runtime>
  readonly dispatcher: Dispatcher
  readonly packs: SharedPacks
  readonly dependencies: Dependencies
  readonly calls: NamedCalls
  /** A function by its name. @throws GatewayError NOT_FOUND; ROUTE_CONFLICT when several runtimes have it */
  find(name: string, version: string | null, runtime: string | null): FunctionVersion
  /** The state now; `details` decides whether paths and addresses may be shown. */
  state(details: boolean): GatewayState
  /** Resolves when the new catalog is in force. */
  reload(): Promise<void>
  explain(method: string, path: string, host: string): object
  /** Null for a gateway that is not one of a fleet. */
  readonly fleet: Pick<
    Fleet,
    | 'id'
    | 'problem'
    | 'release'
    | 'members'
    | 'console'
    | 'announceChange'
    | 'serveRuns'
    | 'runElsewhere'
    | 'serveHistory'
    | 'askHistories'
  > | null
  /** The checks of `fngw doctor`, without loading functions. */
  doctor(): Promise<readonly object[]>
  /** Why a function of that name would never be served; null when it would. */
  unservedReason(name: string): string | null
  /** The file that each value of a function's policy comes from. */
  policySourcesOf(fn: FunctionVersion): object
  /** The other processes; null where there are none. */
  processes(): { count(): Promise<void>; readonly acceptors: readonly AcceptorFacts[] } | null
}

/** A process that accepts connections beside this one. */
interface AcceptorFacts {
  pid: number
  isServing: boolean
  /** Open ones. */
  connections: number
  /** Monotonic ms. */
  startedAt: number
}

/** Runs functions by name. */
export interface NamedCalls {
  /** @throws GatewayError for a name, route or params that lead nowhere */
  prepare(
    name: string,
    request: Omit<CallFields, 'name' | 'runtime' | 'query'> & {
      runtime?: string
      query: Readonly<Record<string, unknown>>
      signal: AbortSignal
    },
    asker: Pick<Exchange, 'id' | 'ip' | 'trace' | 'traceState'>,
  ): InternalRequest & { readonly pattern: string | null }
  /** Never rejects. */
  run(request: InternalRequest): Promise<InternalResult>
}

/**
 * Reads a query by the rules of its fields. An empty value counts as not given; a switch may stand by itself.
 * @param search - the part behind `?`, as the client wrote it
 * @throws GatewayError BAD_REQUEST for a field that is unknown, given twice, or breaks its rule
 */
export function readQuery<Fields extends QueryFields>(search: string, fields: Fields): QueryOf<Fields> {
  const values = new Map<string, unknown>()
  for (const pair of search.split('&')) {
    if (pair === '') continue
    const equals = `${pair}=`.indexOf('=')
    const name = decode(pair.slice(0, equals))
    const text = decode(pair.slice(equals + 1))
    const field = Object.hasOwn(fields, name) ? fields[name] : undefined
    if (field === undefined) throw toUnknown(name, Object.keys(fields))
    if (values.has(name)) throw badQuery(name, 'must be given once, got it twice')
    const isSwitch = field.schema.type === 'boolean'
    const findings: Finding[] = []
    const at = toPlace(null, `query field ${name}`, findings)
    values.set(name, text === '' ? isSwitch || undefined : field.readText(text, at))
    if (findings[0] !== undefined) throw new GatewayError('BAD_REQUEST', findings[0].message)
  }
  return Object.fromEntries(values) as QueryOf<Fields>
}

function decode(text: string): string {
  const decoded = decodePercent(text.replaceAll('+', ' '))
  if (decoded === null) throw new GatewayError('BAD_REQUEST', `query has a broken percent escape: "${showText(text)}"`)
  return decoded
}

function toUnknown(name: string, known: readonly string[]): GatewayError {
  const near = nearest(name, known)
  const fields = known.length === 0 ? 'this endpoint has none' : `it has ${known.join(', ')}`
  const hint = near === null ? fields : `did you mean ${near}?`
  return badRequest(`query field "${showText(name)}"`, `is not known: ${hint}`)
}

/** 400 that names a field of the query. */
export function badQuery(name: string, why: string): GatewayError {
  return badRequest(`query field ${name}`, why)
}

/** A query field that must be there. */
export function required<T>(value: T | undefined, name: string): T {
  if (value === undefined) throw badQuery(name, `is missing: add ?${name}=...`)
  return value
}

/** Values of `TARGET` in a query. */
export type TargetQuery = QueryOf<typeof TARGET>

/** @throws GatewayError BAD_REQUEST without a name, and as `ControlContext.find` */
export function findTarget(context: ControlContext, { name, version, runtime }: TargetQuery): FunctionVersion {
  return context.find(required(name, 'name'), version ?? null, runtime ?? null)
}

/** A header of a request by its lower-case name; null when it is absent. */
export function readHeader({ exchange }: Pick<ControlRequest, 'exchange'>, name: string): string | null {
  return headerOf(exchange.req.rawHeaders, name)
}

/** Bytes of a body, where an endpoint does not say otherwise. */
export const CONTROL_BODY_BYTES = 1024 * 1024

export type JsonObject = Record<string, unknown>

/**
 * The body as a JSON object, whatever its `Content-Type` says. Never settles when the client leaves.
 * @throws GatewayError BODY_TOO_LARGE, or BAD_REQUEST with the place of the fault
 */
export async function readJson(
  { exchange }: Pick<ControlRequest, 'exchange'>,
  limit: number = CONTROL_BODY_BYTES,
): Promise<JsonObject> {
  const body = await collectBody(exchange, limit)
  if (body === null || body.length === 0) throw badRequest('body', 'must be a JSON object, got nothing')
  if (!isUtf8(body)) throw badRequest('body', 'must be a JSON object, got bytes that are not UTF-8')
  const parsed = parseJsonText(body, limit)
  if (!parsed.ok) {
    const where = parsed.line === 0 ? '' : `line ${parsed.line}, column ${parsed.column}: `
    throw badRequest('body', `is not JSON: ${where}${parsed.reason}`)
  }
  if (!isObject(parsed.value)) throw badRequest('body', `must be a JSON object, got ${showValue(parsed.value, true)}`)
  return parsed.value
}

/** Writes a piece of an open response. Resolves when the client takes more, or has left: memory holds one piece. */
export function writePaced(exchange: Exchange, piece: Buffer): Promise<void> {
  const { responder } = exchange
  if (responder.writeStream(exchange, piece, true)) return Promise.resolve()
  return new Promise(resolve => {
    const { work } = exchange
    const goOn = (): void => {
      exchange.work = work
      resolve()
    }
    const abandon = (): void => {
      goOn()
      work?.abandon()
    }
    exchange.work = { abandon }
    responder.onDrain(exchange, goOn)
  })
}

/**
 * Sends pieces as the client takes them, and ends them when it leaves. When they fail before the first one the response is an
 * ordinary error; later the connection is cut, so that the client does not take a part for the whole.
 * @param length - bytes of all pieces; null when it is not known
 */
export async function sendPieces(
  exchange: Exchange,
  headers: readonly string[],
  pieces: AsyncGenerator<Buffer, void>,
  length: number | null = null,
): Promise<void> {
  const { responder } = exchange
  const all = [...headers, 'Cache-Control', 'no-store']
  try {
    let next = await pieces.next()
    if (exchange.method === 'HEAD') {
      responder.send(exchange, 200, all, null)
      return
    }
    responder.openStream(exchange, 200, all, length)
    for (; next.done !== true && !exchange.ended; next = await pieces.next()) await writePaced(exchange, next.value)
    responder.closeStream(exchange, null)
  } finally {
    await pieces.return()
  }
}
