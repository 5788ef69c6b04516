/** What came of a call as the answer of `POST /_fn/invoke`. Owner: page control/invoke. */

import { isUtf8 } from 'node:buffer'
import type { GatewayError } from '../core/errors.ts'
import type { Exchange } from '../http/exchange.ts'
import type { InternalResult } from '../invocation/internal-call.ts'
import { traceIdOf } from '../observe/trace.ts'

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

/** The gateway's own response to a call that failed, with what is known of the call. */
export function sendFailure(exchange: Exchange, error: GatewayError, result: InternalResult): void {
  const { stdout, stderr } = result
  const facts = { ...toCallRecord(result), stdout, stderr }
  exchange.responder.sendError(exchange, error, ['Cache-Control', 'no-store'], facts)
}

/** Where the time of a call went, and what it is called in logs and traces. */
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

function toShownMs(ms: number): number {
  return Math.round(ms * 1000) / 1000
}

/** Lower-case names, whatever each language writes; one that comes again has a list. */
export function toHeaderRecord(headers: readonly string[]): Record<string, string | string[]> {
  const record: Record<string, string | string[]> = Object.create(null)
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const name = headers[i]!.toLowerCase()
    const before = record[name]
    record[name] = before === undefined ? headers[i + 1]! : [before, headers[i + 1]!].flat()
  }
  return record
}

/** Text as text; other bytes as base64. */
function toBodyFields(body: Buffer): Record<string, unknown> {
  if (isUtf8(body)) return { body: body.toString('utf8') }
  return { is_base64: true, body_base64: body.toString('base64') }
}
