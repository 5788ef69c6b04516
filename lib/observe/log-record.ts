/** A line of any log as one record with the same fields, for what shows them in columns. Owner: page observe/log-store. */

import { isObject } from '../core/json.ts'
import { readLogLine } from './log-origin.ts'
import type { LOG_FILES } from './log-store.ts'

interface LogRecordFields {
  file: (typeof LOG_FILES)[number]
  /** As ISO 8601 has it; null for a note about lines that are missing. */
  time: string | null
  level: 'info' | 'warn' | 'error' | null
  request_id: string | null
  trace_id: string | null
  runtime: string | null
  fn: string | null
  version: string | null
  stream: 'stdout' | 'stderr' | null
  text: string
}

/** Of a line of the access log, under the names of the other records of this API; values as the line has them. */
const REQUEST_FIELDS: Readonly<Record<string, string>> = {
  method: 'method',
  path: 'path',
  route: 'route',
  status: 'status',
  dur_ms: 'duration_ms',
  queue_ms: 'queue_ms',
  bytes_in: 'bytes_in',
  bytes_out: 'bytes_out',
  ip: 'ip',
  ua: 'user_agent',
  error: 'error',
}

/** A line of the access log has the fields of its request besides. */
export function toLogRecord(file: LogRecordFields['file'], line: string): LogRecordFields {
  return (file === 'access' ? readAccess(line) : readText(file, line)) ?? toNote(file, line)
}

function readText(file: LogRecordFields['file'], line: string): LogRecordFields | null {
  const parts = readLogLine(line)
  if (parts === null) return null
  const { time, level, requestId, traceId, runtime, fn, version, stream, text } = parts
  // Output has no level of its own: what goes to stderr is worth a look.
  const shown = level ?? (stream === 'stderr' ? 'warn' : 'info')
  return {
    ...{ file, time, level: shown, request_id: requestId ?? null, trace_id: traceId ?? null },
    ...{ runtime: runtime ?? null, fn: fn ?? null, version: version ?? null, stream: stream ?? null, text },
  }
}

function readAccess(line: string): LogRecordFields | null {
  const value = readObject(line)
  if (value === null || typeof value.time !== 'string') return null
  const word = (name: string): string | null => (typeof value[name] === 'string' ? value[name] : null)
  const level = (['warn', 'error'] as const).find(one => one === value.level) ?? 'info'
  const request = Object.entries(REQUEST_FIELDS).map(([name, shown]) => [shown, value[name] ?? null])
  return {
    ...{ file: 'access', time: value.time, level, request_id: word('req_id'), trace_id: word('trace_id') },
    ...{ runtime: word('runtime'), fn: word('fn'), version: word('version'), stream: null },
    text: `${word('method')} ${word('path')} ${String(value.status)}`,
    ...Object.fromEntries(request),
  }
}

function readObject(line: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(line)
    return isObject(value) ? value : null
  } catch {
    // A line of an earlier run may have been cut.
    return null
  }
}

function toNote(file: LogRecordFields['file'], text: string): LogRecordFields {
  const nothing = { time: null, level: null, request_id: null, trace_id: null, runtime: null, fn: null, version: null }
  return { file, ...nothing, stream: null, text }
}
