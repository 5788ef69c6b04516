/**
 * One endpoint of `/_fn/*`: method and path, access, request and response. Owner: §4.2.
 * A family of endpoints is a file `<family>-endpoints.ts` with `create<Family>Endpoints(context)`; `control-plane.ts` joins them.
 */

import { isUtf8 } from 'node:buffer'
import { nearest, showText, showValue } from '../config/fields.ts'
import { parseJsonText } from '../config/json-text.ts'
import type { Settings } from '../config/settings.ts'
import type { SettingSource } from '../config/settings.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { badRequest, GatewayError } from '../core/errors.ts'
import { decodePercent, headerOf } from '../core/http-text.ts'
import { isRuntimeName, isVersion, type RuntimeName, RUNTIMES } from '../core/identity.ts'
import { isObject } from '../core/json.ts'
import type { Lifecycle } from '../core/transitions.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import { collectBody } from '../http/body.ts'
import type { Abandonable, Exchange } from '../http/exchange.ts'
import type { ConstantAnswer } from '../http/respond.ts'
import type { InternalRequest, InternalResult } from '../invocation/internal-call.ts'
import type { Jobs } from '../jobs/jobs.ts'
import type { History } from '../observe/history.ts'
import type { Journal } from '../observe/journal.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { Dispatcher } from '../runtime/dispatcher.ts'
import type { Runtime } from '../runtime/runtime.ts'
import type { Scheduler } from '../scheduler/scheduler.ts'
import type { Caller, EndpointAccess } from './access.ts'
import type { CallFields } from './call-fields.ts'
import type { GatewayState } from './records.ts'

export interface Endpoint {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Below `/_fn`; a segment `:id` takes any text, which is then `params.id`. */
  readonly path: string
  readonly access: EndpointAccess
  /** Names of its query fields: any other is 400. Absent: it takes none. `any` lets everything pass unread. */
  readonly query?: readonly string[] | 'any'
  readonly handle: (request: ControlRequest) => ControlReply | Promise<ControlReply>
}

/** A function by its name. @throws GatewayError NOT_FOUND; ROUTE_CONFLICT when several runtimes have it */
type FindFunction = (name: string, version: string | null, runtime: string | null) => FunctionVersion

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
  readonly jobs: Jobs
  readonly scheduler: Scheduler
  /** The enabled ones. */
  readonly runtimes: ReadonlyMap<RuntimeName, Runtime>
  readonly dispatcher: Dispatcher
  readonly packs: { readonly root: string; list: () => readonly PackFacts[] }
  readonly calls: NamedCalls
  readonly streams: OpenStreams
  readonly find: FindFunction
  /** The state now; `details` decides whether paths and addresses may be shown. */
  state(details: boolean): GatewayState
  /** Resolves when the new catalog is in force. */
  reload(): Promise<void>
  explain(method: string, path: string, host: string): object
  /** The checks of `fngw doctor`, without loading functions. */
  doctor(): Promise<readonly object[]>
  /** Why a function of that name would never be served; null when it would. */
  unservedReason(name: string): string | null
  /** The file that each value of a function's policy comes from. */
  policySourcesOf(fn: FunctionVersion): object
  readonly dependencies: {
    /** Each function of the catalog; null for one that needs nothing, or that was not called yet. */
    states(): Iterable<{ fn: FunctionVersion; state: PreparedState | null }>
    /** Null when nothing is known of the packages of a function. */
    recordOf(fn: FunctionVersion): object | null
  }
  /** The other processes; null where there are none. */
  processes(): { count(): Promise<void>; readonly acceptors: readonly AcceptorFacts[] } | null
}

/** A pack as it is shown; `dir` is a full path. */
interface PackFacts {
  readonly runtime: string
  readonly name: string
  readonly dir: string
  readonly facts: Readonly<Record<string, unknown>>
}

/** The preparation of a function before it can run. */
export interface PreparedState {
  state: 'preparing' | 'ready' | 'failed'
  /** Monotonic ms. */
  since: number
  error: GatewayError | null
  step: string | null
}

/** A process that accepts connections beside this one. */
export interface AcceptorFacts {
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

/** A JSON value with its status, prepared bytes, or a response that the endpoint sends itself: a stream. */
export type ControlReply =
  | {
      readonly status: number
      readonly body: unknown
      /** More headers, names and values in turn. */
      readonly headers?: readonly string[]
    }
  | ConstantAnswer
  | { readonly send: (exchange: Exchange) => void }

/** Open to every client. */
export const OPEN: EndpointAccess = { open: true, write: false, acts: false }
export const READ: EndpointAccess = { open: false, write: false, acts: false }
/** Does something, and changes no file. */
export const ACT: EndpointAccess = { open: false, write: false, acts: true }
/** Begins or ends a session, so that it needs none. */
export const LOGIN: EndpointAccess = { open: false, write: false, acts: true, beforeLogin: true }
/** Contains no data; it has the login form. */
export const CONSOLE_PAGE: EndpointAccess = { open: false, write: false, acts: false, beforeLogin: true }
/** Needs write permission. */
export const WRITE: EndpointAccess = { open: false, write: true, acts: true }

// The query of a control-plane request: each field read by its rule, everything else 400.

/** Longest value of a field, characters. */
const MAX_VALUE_CHARS = 4096

export class ControlQuery {
  readonly #values: ReadonlyMap<string, string>
  readonly #known: readonly string[]

  private constructor(values: ReadonlyMap<string, string>, known: readonly string[]) {
    this.#values = values
    this.#known = known
  }

  /**
   * @param search - what follows `?`, as the client wrote it
   * @param known - names of the fields; `any` reads nothing
   * @throws GatewayError BAD_REQUEST for a field that is unknown, given twice, or written wrong
   */
  static parse(search: string, known: readonly string[] | 'any'): ControlQuery {
    const values = new Map<string, string>()
    if (known === 'any') return new ControlQuery(values, [])
    for (const pair of search.split('&')) {
      if (pair === '') continue
      const equals = pair.indexOf('=')
      const name = decode(equals === -1 ? pair : pair.slice(0, equals))
      const value = decode(equals === -1 ? '' : pair.slice(equals + 1))
      if (!known.includes(name)) {
        const near = nearest(name, known)
        const fields = known.length === 0 ? 'this endpoint has none' : `it has ${known.join(', ')}`
        const hint = near === null ? fields : `did you mean ${near}?`
        throw badRequest(`query field "${showText(name)}"`, `is not known: ${hint}`)
      }
      if (values.has(name)) throw badQuery(name, 'must be given once, got it twice')
      if (value.length > MAX_VALUE_CHARS) throw badQuery(name, `must have at most ${MAX_VALUE_CHARS} characters`)
      if (value.includes('\0')) throw badQuery(name, 'must be text without NUL characters')
      values.set(name, value)
    }
    return new ControlQuery(values, known)
  }

  /** The value, null when it is not given or empty. */
  text(name: string): string | null {
    if (!this.#known.includes(name)) throw new Error(`the endpoint does not list the query field ${name}`)
    return this.#values.get(name) || null
  }

  /** A value that must be there. */
  required(name: string): string {
    const value = this.text(name)
    if (value === null) throw badQuery(name, `is missing: add ?${name}=...`)
    return value
  }

  /** A whole number between two bounds. */
  integer(name: string, { min, max, default: fallback }: { min: number; max: number; default: number }): number {
    const text = this.text(name)
    if (text === null) return fallback
    const value = /^-?\d{1,15}$/.test(text) ? Number(text) : Number.NaN
    if (value >= min && value <= max) return value
    throw badQuery(name, `must be an integer from ${min} to ${max}, got "${showText(text)}"`)
  }

  /** `1`, `true`, `yes`, `on` or the bare name; `0`, `false`, `no`, `off`; false when it is not given. */
  flag(name: string): boolean {
    const text = this.text(name)
    if (text === null) return this.#values.has(name)
    const word = text.toLowerCase()
    if (['1', 'true', 'yes', 'on'].includes(word)) return true
    if (['0', 'false', 'no', 'off'].includes(word)) return false
    throw badQuery(name, `must be 1 or 0, got "${showText(text)}"`)
  }

  /** One of some words. */
  oneOf<Word extends string>(name: string, words: readonly Word[], fallback: Word): Word {
    const text = this.text(name)
    if (text === null) return fallback
    const found = words.find(word => word === text)
    if (found !== undefined) return found
    throw badQuery(name, `must be one of ${words.join(', ')}, got "${showText(text)}"`)
  }
}

function decode(text: string): string {
  const decoded = decodePercent(text.replaceAll('+', ' '))
  if (decoded === null) throw new GatewayError('BAD_REQUEST', `query has a broken percent escape: "${showText(text)}"`)
  return decoded
}

/** 400 that names a field of the query. */
export function badQuery(name: string, why: string): GatewayError {
  return badRequest(`query field ${name}`, why)
}

/** Bytes of a body, where an endpoint does not say otherwise. */
export const CONTROL_BODY_BYTES = 1024 * 1024

export type JsonObject = Record<string, unknown>

export interface ControlRequest {
  readonly exchange: Exchange
  /** Parameters of the path such as `:id`, decoded. */
  readonly params: Readonly<Record<string, string>>
  readonly query: ControlQuery
  readonly caller: Caller
  /** Paths, addresses and other inner facts may be shown. */
  readonly details: boolean
  /** The client uses https. */
  readonly isSecure: boolean
}

/** A header of a request by its lower-case name; null when it is absent. */
export function readHeader({ exchange }: ControlRequest, name: string): string | null {
  return headerOf(exchange.req.rawHeaders, name)
}

/**
 * The body as a JSON object, whatever its `Content-Type` says. Never settles when the client leaves.
 * @throws GatewayError BODY_TOO_LARGE, or BAD_REQUEST with the place of the fault
 */
export async function readJson({ exchange }: ControlRequest, limit: number = CONTROL_BODY_BYTES): Promise<JsonObject> {
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

/** Query fields that name a function. */
export const TARGET_FIELDS = ['runtime', 'name', 'version'] as const

/** @throws GatewayError BAD_REQUEST, and as `FindFunction` */
export function findTarget(query: ControlQuery, find: FindFunction): FunctionVersion {
  return find(query.required('name'), readVersion(query), readRuntime(query))
}

/** @returns null when it is not given, or given as `default` */
export function readVersion(query: ControlQuery): string | null {
  const version = query.text('version')
  if (version === null || version === DEFAULT_VERSION_LABEL) return null
  if (isVersion(version)) return version
  throw badQuery('version', `must be letters, digits, _ . and -, got "${showText(version)}"`)
}

export function readRuntime(query: ControlQuery): RuntimeName | null {
  const runtime = query.text('runtime')
  if (runtime === null || isRuntimeName(runtime)) return runtime
  throw badQuery('runtime', `must be one of ${RUNTIMES.join(', ')}, got "${showText(runtime)}"`)
}

/** Open at once; with one more the oldest ends, because its client may have left without closing the connection. */
const MAX_OPEN_STREAMS = 64

/** Responses of the control plane that go on until they are ended. */
export class OpenStreams {
  readonly #ends = new Set<() => void>()
  #isClosed = false

  /**
   * @param end - ends the response; called at most once, and at once when the gateway is closing
   * @returns a function that says that it has ended
   */
  add(end: () => void): () => void {
    if (this.#isClosed) {
      end()
      return () => {}
    }
    const entry = (): void => end()
    this.#ends.add(entry)
    if (this.#ends.size > MAX_OPEN_STREAMS) {
      const [oldest] = this.#ends
      this.#ends.delete(oldest!)
      oldest!()
    }
    return () => this.#ends.delete(entry)
  }

  /** Ends all: a stop does not wait for clients that would stay connected. */
  close(): void {
    this.#isClosed = true
    for (const end of [...this.#ends]) end()
    this.#ends.clear()
  }
}

/** Writes an open response as fast as its client reads: memory holds one piece. As the work of its exchange it ends with the client. */
export class PacedWriter implements Abandonable {
  readonly #exchange: Exchange
  /** Ends a wait for the client. */
  #wake: (() => void) | null = null
  hasLeft = false

  constructor(exchange: Exchange) {
    this.#exchange = exchange
  }

  /** Resolves when the client takes more, or has left. @param isConstant - as of `Responder.writeStream` */
  async write(bytes: Buffer, isConstant: boolean): Promise<void> {
    const { responder } = this.#exchange
    if (this.hasLeft || responder.writeStream(this.#exchange, bytes, isConstant)) return
    await new Promise<void>(resolve => {
      this.#wake = resolve
      responder.onDrain(this.#exchange, resolve)
    })
  }

  abandon(): void {
    this.hasLeft = true
    this.#wake?.()
  }
}
