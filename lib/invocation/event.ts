/**
 * A request as the `call` frame's header, from which the worker makes the handler's event. Spec: §2.5.
 * The text is put together from parts; nothing is parsed, copied into objects and serialised again.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import { decodePercent } from '../core/http-text.ts'
import { toJsonRecord, toJsonString } from '../core/json.ts'
import { MAX_QUERY_PARAMS } from '../core/limits.ts'
import { toSnakeName } from '../core/text.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'

/** Parts of a call's event. Fields that end in `Json` are JSON text. */
export interface EventParts {
  id: string
  /** Wall clock, ms. */
  ts: number
  method: string
  path: string
  /** Target as the client wrote it, with query. */
  rawPath: string
  params: Readonly<Record<string, string>> | null
  queryJson: string
  headersJson: string
  ip: string
  userAgent: string | null
  cookie: string | null
  userJson: string
  triggerJson: string
  /** As TraceIds and readTracestate return them. */
  trace: string
  traceState: string | null
}

/** The `call` header (page runtime/wire-protocol, statement 12). */
export function toCallHeader(parts: EventParts): string {
  const path = toJsonString(parts.path)
  const rawPath = parts.rawPath === parts.path ? path : toJsonString(parts.rawPath)
  const params = parts.params === null ? '{}' : toJsonRecord(parts.params)
  const session = parts.cookie === null ? 'null' : toSessionJson(parts.cookie)
  const traceState = parts.traceState === null ? '' : `,"trace_state":${toJsonString(parts.traceState)}`
  return (
    `{"id":"${parts.id}","ts":${parts.ts},"trace":"${parts.trace}"${traceState}` +
    `,"method":"${parts.method}","path":${path},"raw_path":${rawPath}` +
    `,"params":${params},"query":${parts.queryJson},"headers":${parts.headersJson}` +
    `,"client":{"ip":${parts.ip === '' ? 'null' : toJsonString(parts.ip)},"ua":${parts.userAgent === null ? 'null' : toJsonString(parts.userAgent)}}` +
    `,"session":${session},"user":${parts.userJson},"trigger":${parts.triggerJson}}`
  )
}

/** Query values by name, in the order in which the names came; a list of a repeated one. */
type QueryValues = Map<string, string | string[]>

/**
 * A query string as the JSON text of `event.query`.
 * @param search - the text behind `?`, undecoded
 * @throws GatewayError BAD_REQUEST for more than MAX_QUERY_PARAMS parameters
 */
export function toQueryJson(search: string): string {
  if (search === '') return '{}'
  const values: QueryValues = new Map()
  let count = 0
  for (const pair of search.split('&')) {
    if (pair === '') continue
    count += 1
    if (count > MAX_QUERY_PARAMS)
      throw new GatewayError('BAD_REQUEST', `more than ${MAX_QUERY_PARAMS} query parameters`)
    const equals = pair.indexOf('=')
    const name = decodeQueryText(equals === -1 ? pair : pair.slice(0, equals))
    const value = equals === -1 ? '' : decodeQueryText(pair.slice(equals + 1))
    const earlier = values.get(name)
    if (earlier === undefined) values.set(name, value)
    else if (typeof earlier === 'string') values.set(name, [earlier, value])
    else earlier.push(value)
  }
  return writeQuery(values)
}

/**
 * A query given as an object (`/_fn/invoke`, schedules, jobs) as the JSON text of `event.query`: scalars become strings,
 * arrays stay arrays, null and objects become their JSON text.
 */
export function toQueryJsonOf(query: Readonly<Record<string, unknown>>): string {
  const toText = (item: unknown): string => (typeof item === 'string' ? item : (JSON.stringify(item) ?? ''))
  const values: QueryValues = new Map()
  for (const [name, value] of Object.entries(query))
    if (value !== undefined) values.set(name, Array.isArray(value) ? value.map(toText) : toText(value))
  return writeQuery(values)
}

function writeQuery(values: QueryValues): string {
  let text = ''
  for (const [name, value] of values) {
    const json = typeof value === 'string' ? toJsonString(value) : `[${value.map(toJsonString).join()}]`
    text += `${text === '' ? '{' : ','}${toJsonString(name)}:${json}`
  }
  return text === '' ? '{}' : `${text}}`
}

/** `+` is a space; text whose escapes are no UTF-8 stays as it is written, so that nothing is lost. */
function decodeQueryText(text: string): string {
  const spaced = text.includes('+') ? text.replaceAll('+', ' ') : text
  return decodePercent(spaced) ?? spaced
}

/** Cookies that usually hold a session's id, first match wins. */
const SESSION_ID_COOKIES = ['session_id', 'sessionid', 'sid']

/** The `session` of an event: `{id, raw, cookies}`; of a repeated cookie the first counts. */
export function toSessionJson(cookie: string): string {
  const cookies: Record<string, string> = Object.create(null)
  for (const pair of cookie.split(';')) {
    const equals = pair.indexOf('=')
    if (equals === -1) continue
    const name = pair.slice(0, equals).trim()
    if (name !== '' && !(name in cookies)) cookies[name] = unquote(pair.slice(equals + 1).trim())
  }
  const idCookie = SESSION_ID_COOKIES.find(name => name in cookies)
  const id = idCookie === undefined ? 'null' : toJsonString(cookies[idCookie]!)
  return `{"id":${id},"raw":${toJsonString(cookie)},"cookies":${toJsonRecord(cookies)}}`
}

function unquote(value: string): string {
  return value.length >= 2 && value.startsWith('"') && value.endsWith('"') ? value.slice(1, -1) : value
}

/** The part of `event.context` that is the same for every call of a function; sent once, with a worker's `start`. */
export function toStaticContext(fn: FunctionVersion) {
  const { policy } = fn
  const pool = policy.workerPool
  return {
    runtime: fn.runtime,
    function_name: fn.name,
    version: fn.version ?? DEFAULT_VERSION_LABEL,
    timeout_ms: policy.timeoutMs,
    max_concurrency: policy.maxConcurrency,
    max_body_bytes: policy.maxBodyBytes,
    worker_pool: pool && Object.fromEntries(Object.entries(pool).map(([name, value]) => [toSnakeName(name), value])),
    // Handlers expect the field. The real number would lead them to the gateway: to its environment, or to end it.
    gateway: { worker_pid: 0 },
    debug: { enabled: policy.includeDebugHeaders },
    // True when a handler may answer with a proxy directive (§2.10).
    edge: policy.edge !== null,
  }
}

const REQUEST_ID = /^[\w.-]{1,128}$/

/** True for an id that may stand in headers, logs and JSON as it is. */
export function isRequestId(text: string): boolean {
  return REQUEST_ID.test(text)
}

/** Ids of requests: taken from the client when well-formed, else made of a random prefix and a count, as no other process or gateway makes them. */
export class RequestIds {
  readonly #prefix: string
  #count = 0

  /** @param prefix - random text of id characters, at least 48 bits */
  constructor(prefix: string) {
    this.#prefix = `${prefix}-`
  }

  next(): string {
    this.#count += 1
    return this.#prefix + this.#count.toString(36)
  }

  /** The client's id when it is one, else a new one. */
  take(offered: string | null): string {
    return offered !== null && REQUEST_ID.test(offered) ? offered : this.next()
  }
}
