/** Access lines that a front has written, as lines and records of the first process. Owner: page processes/processes. */

import type { FunctionVersion } from '../core/catalog.ts'
import { isRuntimeName, toFunctionKey } from '../core/identity.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import type { RequestRecord } from '../observe/events.ts'
import type { WrittenLine } from '../observe/line-buffer.ts'

/**
 * A line as the record it was made of; texts from the client are as long as the line has them.
 * @param functions - by key: the handler's file is in no line
 */
export function toLineRecord(
  { bytes, from, to }: WrittenLine,
  functions: ReadonlyMap<string, FunctionVersion>,
): RequestRecord {
  const line = JSON.parse(bytes.toString('utf8', from, to))
  const { method, path, route, fn, version, runtime, status, ip, error = null } = line
  return {
    time: Date.parse(line.time),
    id: line.req_id,
    method,
    path,
    route,
    fn,
    version,
    runtime,
    entryFile: findEntry(functions, runtime, fn, version),
    status,
    durationMs: line.dur_ms,
    queuedMs: line.queue_ms,
    bytesIn: line.bytes_in,
    bytesOut: line.bytes_out,
    ip,
    userAgent: line.ua,
    traceId: line.trace_id,
    error,
  }
}

function findEntry(
  functions: ReadonlyMap<string, FunctionVersion>,
  runtime: unknown,
  name: unknown,
  version: unknown,
): string | null {
  if (typeof name !== 'string' || typeof version !== 'string' || !isRuntimeName(runtime)) return null
  const unversioned = version === DEFAULT_VERSION_LABEL ? functions.get(toFunctionKey(runtime, name, null)) : undefined
  return (unversioned ?? functions.get(toFunctionKey(runtime, name, version)))?.entryFile ?? null
}
