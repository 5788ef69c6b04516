/** `GET /_fn/logs`: the newest lines of a log, and those that come. Owner: page control/logs. */

import type { Clock } from '../core/clock.ts'
import { showText } from '../config/findings.ts'
import { GatewayError } from '../core/errors.ts'
import { isVersion, RUNTIMES } from '../core/identity.ts'
import type { Exchange } from '../http/exchange.ts'
import type { Journal } from '../observe/journal.ts'
import type { LogFilter } from '../observe/log-origin.ts'
import { LOG_FILES, type LogQuery } from '../observe/log-store.ts'
import type { ControlQuery } from './control-query.ts'
import { type ControlReply, type Endpoint, READ } from './endpoint.ts'
import { type LineForm, LogStream } from './log-stream.ts'
import type { OpenStreams } from './open-streams.ts'

/** Lines of an answer, when nothing is said and at most. */
const DEFAULT_LINES = 200
const MAX_LINES = 2000

const QUERY = ['file', 'lines', 'format', 'follow', 'runtime', 'fn', 'version', 'stream'] as const

export interface LogEndpointsDeps {
  clock: Clock
  journal: Pick<Journal, 'tail' | 'follow'>
  streams: OpenStreams
}

export function createLogEndpoints(deps: LogEndpointsDeps): readonly Endpoint[] {
  return [
    { method: 'GET', path: '/_fn/logs', access: READ, query: QUERY, handle: ({ query }) => readLogs(deps, query) },
  ]
}

function readLogs(deps: LogEndpointsDeps, query: ControlQuery): ControlReply {
  const logQuery = toFilesQuery(query)
  const format = query.oneOf('format', ['text', 'json'], 'text')
  // More than there ever is to read is no mistake.
  const lines = Math.min(MAX_LINES, query.integer('lines', { min: 0, max: 1e15, default: DEFAULT_LINES }))
  if (query.flag('follow')) {
    const form = format === 'json' ? JSON_LINES : TEXT
    return { send: exchange => followLog(exchange, deps, logQuery, lines, form) }
  }
  const data = tail(deps, logQuery, lines)
  if (format === 'json') return { status: 200, body: toRecord(logQuery, data) }
  const text = data.map(line => `${line}\n`).join('')
  return { send: exchange => exchange.responder.send(exchange, 200, toHeaders(TEXT), text) }
}

/** One log, or all of them as one. */
interface FilesQuery extends LogFilter {
  file: (typeof LOG_FILES)[number] | 'all'
}

function toQueries({ file, ...filter }: FilesQuery): LogQuery[] {
  return (file === 'all' ? LOG_FILES : [file]).map(one => ({ file: one, ...filter }))
}

/** The newest lines, oldest first; those of several logs by their time. */
function tail({ journal }: LogEndpointsDeps, query: FilesQuery, lines: number): string[] {
  const logs = toQueries(query).map(one => journal.tail({ ...one, lines }))
  if (logs.length === 1) return logs[0]!
  const all = logs.flat().map(line => ({ line, time: timeOf(line) }))
  all.sort((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0))
  return all.slice(Math.max(0, all.length - lines)).map(({ line }) => line)
}

/** Every line begins with its time, those of the access log behind the first name. */
function timeOf(line: string): string {
  const from = line.startsWith(ACCESS_START) ? ACCESS_START.length : 0
  return line.slice(from, from + ISO_CHARS)
}

const ACCESS_START = '{"time":"'
const ISO_CHARS = 24

function toFilesQuery(query: ControlQuery): FilesQuery {
  const file = query.oneOf('file', [...LOG_FILES, 'all'], 'error')
  const runtime = query.text('runtime') === null ? null : query.oneOf('runtime', RUNTIMES, 'node')
  const fn = query.text('fn')
  if (fn !== null && !isPlainName(fn)) throw refuse('fn', 'the name of a function, such as hello', fn)
  const version = query.text('version')
  if (version !== null && !isVersion(version)) throw refuse('version', 'a version, such as v2 or default', version)
  const stream = query.oneOf('stream', ['all', 'stdout', 'stderr'], 'all')
  if (stream !== 'all' && file !== 'runtime')
    throw new GatewayError('BAD_REQUEST', `query field stream selects lines of file=runtime only, got file=${file}`)
  return { file, runtime, fn, version, stream: stream === 'all' ? null : stream }
}

/** Routes have names too (`users/[id]`); what climbs or begins at a root is none. */
function isPlainName(text: string): boolean {
  return !text.includes('\\') && text.split('/').every(segment => !['', '.', '..'].includes(segment))
}

function refuse(name: string, what: string, got: string): GatewayError {
  return new GatewayError('BAD_REQUEST', `query field ${name} must be ${what}, got "${showText(got)}"`)
}

function toRecord(
  { file, runtime, fn, version, stream }: FilesQuery,
  data: readonly string[],
): Record<string, unknown> {
  return {
    file,
    lines: data.length,
    ...(runtime !== null && { runtime }),
    ...(fn !== null && { fn }),
    ...(version !== null && { version }),
    stream: stream ?? 'all',
    data,
  }
}

interface AnswerForm extends LineForm {
  type: string
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
  stream.begin(tail(deps, query, lines))
  const stops = toQueries(query).map(one => journal.follow(one, line => stream.push(line)))
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
