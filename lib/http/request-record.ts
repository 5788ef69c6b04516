/** An ended exchange is counted, logged and traced here. Owner: §6. */

import { type Clock, WallTime } from '../core/clock.ts'
import { isThrottled } from '../core/errors.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import type { RequestRecord } from '../observe/events.ts'
import type { Journal } from '../observe/journal.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { OpenSpan } from '../observe/trace.ts'
import { traceIdOf } from '../observe/trace.ts'
import type { Exchange } from './exchange.ts'

/** Status in records of a client that left before its answer, after nginx's. */
const CLIENT_LEFT_STATUS = 499

/**
 * @param wall - wall clock at the end, ms
 * @param monotonic - monotonic clock at the end, ms
 */
export function toRequestRecord(exchange: Exchange, wall: number, monotonic: number): RequestRecord {
  const { fn, head } = exchange
  return {
    time: wall,
    id: exchange.id,
    method: exchange.method,
    path: exchange.path,
    route: exchange.route,
    fn: fn === null ? null : fn.name,
    version: fn === null ? null : (fn.version ?? DEFAULT_VERSION_LABEL),
    runtime: fn === null ? null : fn.runtime,
    entryFile: fn === null ? null : fn.entryFile,
    status: statusOf(exchange),
    durationMs: monotonic - exchange.startedAt,
    queuedMs: exchange.queuedMs,
    bytesIn: exchange.bytesIn,
    bytesOut: exchange.bytesOut,
    ip: exchange.ip,
    userAgent: head.userAgent,
    traceId: traceIdOf(exchange.trace),
    error: exchange.error === null ? null : exchange.error.message,
  }
}

function statusOf({ aborted, status }: Exchange): number {
  return aborted && status === 0 ? CLIENT_LEFT_STATUS : status
}

/** Counts every exchange that ended, and logs it where requests are listened to, and every failure. */
export function createRequestListener(
  journal: Pick<Journal, 'wantsRequests' | 'request' | 'callFailed'>,
  clock: Clock,
  metrics: Pick<Metrics, 'request'>,
): (exchange: Exchange) => void {
  const wall = new WallTime(clock)
  return exchange => {
    const now = exchange.answeredAt || clock.monotonic()
    const { method, fn, startedAt, queuedMs, isControl } = exchange
    metrics.request(method, statusOf(exchange), fn, now - startedAt, queuedMs, isControl, isThrottled(exchange.error))
    if (journal.wantsRequests) journal.request(toRequestRecord(exchange, wall.at(now), now))
    if (exchange.span !== null) endRequestSpan(exchange.span, exchange, statusOf(exchange))
    if (exchange.error !== null) journal.callFailed(exchange, exchange.error)
  }
}

/** Ends the span of an exchange under the name of its route, as tracers group requests. */
function endRequestSpan(span: OpenSpan, { method, route, fn, id }: Exchange, status: number): void {
  span.end({
    status,
    attributes: {
      'fngw.request_id': id,
      ...(route !== null && { 'http.route': route }),
      ...(fn !== null && { 'faas.name': fn.key }),
    },
    ...(route !== null && { name: `${method} ${route}` }),
  })
}
