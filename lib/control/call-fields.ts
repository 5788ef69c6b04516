/** A call of a function as JSON: the fields of a request for it, and the record of its result. Owner: page control/invoke. */

import { isUtf8 } from 'node:buffer'
import {
  boolean,
  hidden,
  json,
  jsonObject,
  mapOf,
  mapped,
  object,
  oneOf,
  readRequest,
  reportWrong,
  string,
} from '../config/fields.ts'
import { base64, toScalarText } from '../config/texts.ts'
import type { GatewayError } from '../core/errors.ts'
import { findUnsendable, isHeaderName, toHeaderRecord } from '../core/http-text.ts'
import { isVersion, MAX_NAME_CHARS, METHODS, type RuntimeName, RUNTIMES } from '../core/identity.ts'
import type { Exchange } from '../http/exchange.ts'
import { type InternalResult, toCallBody, withBodyType } from '../invocation/internal-call.ts'
import { traceIdOf } from '../observe/trace.ts'

/** A requested call, checked; absent fields are null. */
export interface CallFields {
  name: string
  runtime: RuntimeName | null
  version: string | null
  /** Any HTTP method; whether the function allows it is checked with the call. */
  method: string
  query: Readonly<Record<string, unknown>> | null
  /** Names as written; lists are joined. */
  headers: Readonly<Record<string, string>>
  body: Buffer | null
  context: Readonly<Record<string, unknown>> | null
  /** A path of the function, or one of its routes to put `params` into. */
  route: string | null
  params: Readonly<Record<string, string>> | null
}

const MAX_HEADER_CHARS = 16 * 1024

/** A list is one header with its texts joined, as when a client repeats it. */
const headerValue = mapped(json(), (value, at) => {
  const texts = (Array.isArray(value) ? value : [value]).map(toScalarText)
  const text = texts.includes(undefined) ? null : texts.join(', ')
  const isRight = text !== null && text.length <= MAX_HEADER_CHARS && findUnsendable(text) === null
  return isRight ? text : reportWrong(at, 'text that a header can carry, or a list of texts', value)
})

const param = mapped(json(), (value, at) => {
  const text = toScalarText(value)
  // Half a character has no percent escape.
  if (text === undefined || text === '' || /\p{Surrogate}/u.test(text))
    return reportWrong(at, 'text that is not empty, or a number', value)
  return text
})

/** Fields that name a function. */
export const TARGET = {
  name: string({ rule: 'the name of a function', maxLength: MAX_NAME_CHARS }),
  runtime: oneOf(RUNTIMES),
  version: string({ rule: 'the label of a version', parse: text => (isVersion(text) ? text : null) }),
}

/** The content of a call may be secret, and a refusal is logged: messages do not show hidden values. */
const CALL = object(
  {
    ...TARGET,
    method: oneOf([...METHODS, 'HEAD', 'OPTIONS']),
    query: hidden(jsonObject()),
    headers: hidden(mapOf(headerValue, { keyRule: 'a header name' })),
    body: json(),
    is_base64: boolean(),
    body_base64: hidden(base64),
    context: hidden(jsonObject()),
    route: string({ rule: 'a path that starts with /', pattern: /^\// }),
    params: hidden(mapOf(param)),
  },
  { required: ['name', 'method'], strict: true },
)

/**
 * Reads a call.
 * @throws GatewayError BAD_REQUEST that names every wrong field with its rule and its value
 */
export function readCallFields(value: Readonly<Record<string, unknown>>): CallFields {
  const call = readRequest(CALL, value, ({ headers, body, bodyBase64, isBase64 }, at) => {
    for (const name of Object.keys(headers ?? {})) {
      if (!isHeaderName(name)) reportWrong({ ...at, name: 'headers' }, 'an object of header names', name)
    }
    if (body !== undefined && bodyBase64 !== undefined)
      reportWrong({ ...at, name: 'body_base64' }, 'absent where body is given', 'both')
    if (isBase64 === true && bodyBase64 === undefined)
      reportWrong({ ...at, name: 'is_base64' }, 'false where body_base64 is not given', true)
  })
  const { body, bodyBase64 } = call
  return {
    name: call.name!,
    runtime: call.runtime ?? null,
    version: call.version ?? null,
    method: call.method!,
    query: call.query ?? null,
    headers: withBodyType(call.headers ?? {}, body),
    body: bodyBase64 ?? toCallBody(body),
    context: call.context ?? null,
    route: call.route ?? null,
    params: call.params ?? null,
  }
}

/**
 * A result of a function; the gateway's own refusals are no records.
 * @param route - the path that the handler saw
 * @param template - the route it was matched by; null for a call by name alone
 */
export function toInvokeRecord(
  result: InternalResult,
  route: string,
  template: string | null,
): Record<string, unknown> {
  const { status, headers, body, stdout, stderr, latencyMs } = result
  return {
    status,
    latency_ms: toShownMs(latencyMs),
    route,
    route_template: template,
    headers: toHeaderRecord(headers),
    ...toBodyFields(body),
    stdout,
    stderr,
    ...toCallRecord(result),
  }
}

/** The gateway's own response to a call that failed, with the output of the handler. */
export function sendFailure(exchange: Exchange, error: GatewayError, result: InternalResult): void {
  const { stdout, stderr } = result
  const facts = { ...toCallRecord(result), stdout, stderr }
  exchange.responder.sendError(exchange, error, ['Cache-Control', 'no-store'], facts)
}

/** The times of a call, and its ids in logs and traces. */
export function toCallRecord({ id, trace, queuedMs, latencyMs }: TimedCall): Record<string, unknown> {
  const queued = toShownMs(queuedMs)
  const total = toShownMs(latencyMs)
  return {
    timing: { queue_ms: queued, worker_ms: toShownMs(total - queued), total_ms: total },
    request_id: id,
    trace_id: traceIdOf(trace),
  }
}

type TimedCall = Pick<InternalResult, 'id' | 'trace' | 'queuedMs' | 'latencyMs'>

export function toShownMs(ms: number): number {
  return Math.round(ms * 1000) / 1000
}

/** Text as text; other bytes as base64. */
function toBodyFields(body: Buffer): Record<string, unknown> {
  if (isUtf8(body)) return { body: body.toString('utf8') }
  return { is_base64: true, body_base64: body.toString('base64') }
}
