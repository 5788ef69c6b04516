/** `GET /_fn/logs`: the newest lines of a log, and those that come. Owner: page control/logs. */

import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import type { Exchange } from '../http/exchange.ts'
import type { Journal } from '../observe/journal.ts'
import { toLogRecord } from '../observe/log-line.ts'
import type { LogQuery } from '../observe/log-store.ts'
import type { ControlQuery } from './control-query.ts'
import { type ControlReply, type Endpoint, READ } from './endpoint.ts'
import { type FilesQuery, LOG_QUERY, toFilesQuery, toLogQueries } from './log-query.ts'
import { type LineForm, LogStream } from './log-stream.ts'
import type { OpenStreams } from './open-streams.ts'

/** Lines of an answer, when nothing is said and at most. */
const DEFAULT_LINES = 200
const MAX_LINES = 2000

export interface LogEndpointsDeps {
  clock: Clock
  journal: Pick<Journal, 'tail' | 'follow'>
  streams: OpenStreams
}

export function createLogEndpoints(deps: LogEndpointsDeps): readonly Endpoint[] {
  return [
    { method: 'GET', path: '/_fn/logs', access: READ, query: LOG_QUERY, handle: ({ query }) => readLogs(deps, query) },
  ]
}

function readLogs(deps: LogEndpointsDeps, query: ControlQuery): ControlReply {
  const logQuery = toFilesQuery(query)
  const format = query.oneOf('format', ['text', 'json'], 'text')
  const asRecords = query.flag('records')
  if (asRecords && format !== 'json')
    throw new GatewayError('BAD_REQUEST', 'query field records is for format=json only: add &format=json')
  // More than there ever is to read is no mistake.
  const lines = Math.min(MAX_LINES, query.integer('lines', { min: 0, max: 1e15, default: DEFAULT_LINES }))
  if (query.flag('follow')) {
    const form = asRecords ? JSON_RECORDS : format === 'json' ? JSON_LINES : TEXT
    return { send: exchange => followLog(exchange, deps, logQuery, lines, form) }
  }
  const data = tail(deps, logQuery, lines)
  if (format === 'json') return { status: 200, body: toRecord(logQuery, data, asRecords) }
  const text = data.map(({ line }) => `${line}\n`).join('')
  return { send: exchange => exchange.responder.send(exchange, 200, toHeaders(TEXT), text) }
}

/** A line and the log that it is of. */
interface FoundLine {
  file: LogQuery['file']
  line: string
}

/** The newest lines, oldest first; those of several logs by their time. */
function tail({ journal }: LogEndpointsDeps, query: FilesQuery, lines: number): FoundLine[] {
  const logs = toLogQueries(query).map(one =>
    journal.tail({ ...one, lines }).map((line): FoundLine => ({ file: one.file, line })),
  )
  if (logs.length === 1) return logs[0]!
  const all = logs.flat().map(found => ({ ...found, time: timeOf(found.line) }))
  all.sort((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0))
  return all.slice(Math.max(0, all.length - lines))
}

/** Every line begins with its time, those of the access log behind the first name. */
function timeOf(line: string): string {
  const from = line.startsWith(ACCESS_START) ? ACCESS_START.length : 0
  return line.slice(from, from + ISO_CHARS)
}

const ACCESS_START = '{"time":"'
const ISO_CHARS = 24

function toRecord(
  { file, runtime, fn, version, stream, requestId, since }: FilesQuery,
  found: readonly FoundLine[],
  asRecords: boolean,
): Record<string, unknown> {
  return {
    file,
    lines: found.length,
    ...(runtime !== null && { runtime }),
    ...(fn !== null && { fn }),
    ...(version !== null && { version }),
    ...(requestId !== null && { request_id: requestId }),
    ...(since !== null && { since }),
    stream: stream ?? 'all',
    ...(asRecords
      ? { records: found.map(one => toLogRecord(one.file, one.line)) }
      : { data: found.map(({ line }) => line) }),
  }
}

interface AnswerForm extends LineForm {
  type: string
  /** What is gathered of a line; the line itself where this is not said. */
  read?: (found: FoundLine) => string
}

const TEXT: AnswerForm = {
  type: 'text/plain; charset=utf-8',
  toText: line => `${line}\n`,
  toSkipText: count => `... ${count} lines were skipped: nobody took them fast enough\n`,
}

const JSON_LINES: AnswerForm = {
  type: 'application/x-ndjson',
  toText: line => `${JSON.stringify({ line })}\n`,
  toSkipText: count => `${JSON.stringify({ skipped: count })}\n`,
}

const JSON_RECORDS: AnswerForm = {
  ...JSON_LINES,
  read: ({ file, line }) => JSON.stringify(toLogRecord(file, line)),
  toText: record => `{"record":${record}}\n`,
}

/** What others wrote must not be taken for a page. */
function toHeaders({ type }: AnswerForm): string[] {
  return ['Content-Type', type, 'X-Content-Type-Options', 'nosniff', 'Cache-Control', 'no-store']
}

function followLog(
  exchange: Exchange,
  deps: LogEndpointsDeps,
  query: FilesQuery,
  lines: number,
  form: AnswerForm,
): void {
  const { responder } = exchange
  if (exchange.method === 'HEAD') {
    responder.send(exchange, 200, toHeaders(form), null)
    return
  }
  responder.openStream(exchange, 200, [...toHeaders(form), 'X-Accel-Buffering', 'no'], null)
  const { clock, journal, streams } = deps
  const stream = new LogStream(exchange, clock, form)
  const read = form.read ?? (({ line }: FoundLine): string => line)
  stream.begin(tail(deps, query, lines).map(read))
  const stops = toLogQueries(query).map(({ file, ...filter }) =>
    journal.follow({ file, ...filter }, line => stream.push(read({ file, line }))),
  )
  const unfollow = (): void => {
    for (const stop of stops) stop()
  }
  const forget = streams.add(() => {
    unfollow()
    stream.end()
  })
  exchange.work = {
    abandon: () => {
      unfollow()
      forget()
      stream.stop()
    },
  }
}
