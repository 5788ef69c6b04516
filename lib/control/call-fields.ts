/** `POST /_fn/invoke` as JSON: the call that is asked for, and the record of its result. Owner: page control/invoke. */

import { isUtf8 } from 'node:buffer'
import { object, oneOf, readRequest } from '../config/fields.ts'
import type { GatewayError } from '../core/errors.ts'
import { toHeaderRecord } from '../core/http-text.ts'
import { METHODS } from '../core/identity.ts'
import type { Exchange } from '../http/exchange.ts'
import type { InternalResult } from '../invocation/internal-call.ts'
import { CALL_FIELDS, type CallParts, checkCall, toCallParts } from '../jobs/job-input.ts'
import { traceIdOf } from '../observe/trace.ts'

/** A requested call, checked; absent fields are null. */
export interface CallFields extends CallParts {
  /** Any HTTP method; whether the function allows it is checked with the call. */
  method: string
}

const CALL = object(
  { ...CALL_FIELDS, method: oneOf([...METHODS, 'HEAD', 'OPTIONS']) },
  { required: ['name', 'method'], strict: true },
)

/**
 * Reads a call.
 * @throws GatewayError BAD_REQUEST that names every wrong field with its rule and its value
 */
export function readCallFields(value: Readonly<Record<string, unknown>>): CallFields {
  const call = readRequest(CALL, value, checkCall)
  return { ...toCallParts(call), method: call.method! }
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
    ...(isUtf8(body) ? { body: body.toString('utf8') } : { is_base64: true, body_base64: body.toString('base64') }),
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
export function toCallRecord({ id, trace, queuedMs, latencyMs }: InternalResult): Record<string, unknown> {
  const queued = toShownMs(queuedMs)
  const total = toShownMs(latencyMs)
  return {
    timing: { queue_ms: queued, worker_ms: toShownMs(total - queued), total_ms: total },
    request_id: id,
    trace_id: traceIdOf(trace),
  }
}

export function toShownMs(ms: number): number {
  return Math.round(ms * 1000) / 1000
}
