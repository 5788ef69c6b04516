/** What `GET /_fn/logs` is asked for: which logs, and which lines of them. Owner: page control/logs. */

import { showText } from '../config/findings.ts'
import { GatewayError } from '../core/errors.ts'
import { isVersion, RUNTIMES } from '../core/identity.ts'
import { isRequestId } from '../invocation/request-ids.ts'
import { LOG_FILES, type LogFilter } from '../observe/log-line.ts'
import type { LogQuery } from '../observe/log-store.ts'
import type { ControlQuery } from './control-query.ts'

export const LOG_QUERY = [
  'file',
  'lines',
  'format',
  'records',
  'follow',
  'runtime',
  'fn',
  'version',
  'stream',
  'request_id',
  'since',
] as const

/** One log, or all of them as one. */
export interface FilesQuery extends LogFilter {
  file: (typeof LOG_FILES)[number] | 'all'
}

export function toFilesQuery(query: ControlQuery): FilesQuery {
  const file = query.oneOf('file', [...LOG_FILES, 'all'], 'error')
  const runtime = query.text('runtime') === null ? null : query.oneOf('runtime', RUNTIMES, 'node')
  const fn = query.text('fn')
  if (fn !== null && !isPlainName(fn)) throw refuse('fn', 'the name of a function, such as hello', fn)
  const version = query.text('version')
  if (version !== null && !isVersion(version)) throw refuse('version', 'a version, such as v2 or default', version)
  const stream = query.oneOf('stream', ['all', 'stdout', 'stderr'], 'all')
  if (stream !== 'all' && file !== 'runtime')
    throw new GatewayError('BAD_REQUEST', `query field stream selects lines of file=runtime only, got file=${file}`)
  const requestId = query.text('request_id')
  if (requestId !== null && !isRequestId(requestId))
    throw refuse('request_id', 'the id of a request, as X-Request-Id gives it', requestId)
  return { file, runtime, fn, version, stream: stream === 'all' ? null : stream, requestId, since: readSince(query) }
}

/** The query of each log. */
export function toLogQueries({ file, ...filter }: FilesQuery): LogQuery[] {
  return (file === 'all' ? LOG_FILES : [file]).map(one => ({ file: one, ...filter }))
}

/** Routes have names too (`users/[id]`); what climbs or begins at a root is none. */
function isPlainName(text: string): boolean {
  return !text.includes('\\') && text.split('/').every(segment => !['', '.', '..'].includes(segment))
}

const SECONDS = /^\d{1,11}(?:\.\d{1,9})?$/
const ISO_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)$/

/** As lines have it: their times can be compared as texts. */
function readSince(query: ControlQuery): string | null {
  const text = query.text('since')
  if (text === null) return null
  const ms = SECONDS.test(text) ? Number(text) * 1000 : ISO_TIME.test(text) ? Date.parse(text) : Number.NaN
  if (Number.isNaN(ms)) throw refuse('since', 'seconds since 1970, or a time such as 2026-11-22T07:00:00Z', text)
  return new Date(ms).toISOString()
}

function refuse(name: string, what: string, got: string): GatewayError {
  return new GatewayError('BAD_REQUEST', `query field ${name} must be ${what}, got "${showText(got)}"`)
}
