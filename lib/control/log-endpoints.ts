/** `GET /_fn/logs`: the newest lines of a log, and new ones as they are written. Owner: page control/logs. */

import { showText } from '../config/fields.ts'
import type { Clock } from '../core/clock.ts'
import type { GatewayError } from '../core/errors.ts'
import { isVersion, RUNTIMES } from '../core/identity.ts'
import type { Exchange } from '../http/exchange.ts'
import { isRequestId } from '../invocation/event.ts'
import { LOG_FILES, type LogFilter, toLogRecord } from '../observe/log-line.ts'
import type { LogQuery } from '../observe/log-store.ts'
import { badQuery, type ControlContext, type ControlQuery, type ControlReply, type Endpoint, READ } from './endpoint.ts'

/** Lines of a response by default, and at most. */
const DEFAULT_LINES = 200
const MAX_LINES = 2000

export function createLogEndpoints(context: ControlContext): readonly Endpoint[] {
  return [
    {
      method: 'GET',
      path: '/_fn/logs',
      access: READ,
      query: LOG_QUERY,
      handle: ({ query }) => readLogs(context, query),
    },
  ]
}

function readLogs(context: ControlContext, query: ControlQuery): ControlReply {
  const logQuery = toFilesQuery(query)
  const format = query.oneOf('format', ['text', 'json'], 'text')
  const asRecords = query.flag('records')
  if (asRecords && format !== 'json') throw badQuery('records', 'is for format=json only: add &format=json')
  // A larger number is accepted and means the maximum.
  const lines = Math.min(MAX_LINES, query.integer('lines', { min: 0, max: 1e15, default: DEFAULT_LINES }))
  if (query.flag('follow')) {
    const form = asRecords ? JSON_RECORDS : format === 'json' ? JSON_LINES : TEXT
    return { send: exchange => followLog(exchange, context, logQuery, lines, form) }
  }
  const data = tail(context, logQuery, lines)
  if (format === 'json') return { status: 200, body: toRecord(logQuery, data, asRecords) }
  const text = data.map(({ line }) => `${line}\n`).join('')
  return { send: exchange => exchange.responder.send(exchange, 200, toHeaders(TEXT), text) }
}

/** A line and its log. */
interface FoundLine {
  file: LogQuery['file']
  line: string
}

/** The newest lines, oldest first; those of several logs by their time. */
function tail({ journal }: ControlContext, query: FilesQuery, lines: number): FoundLine[] {
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

interface ResponseForm extends LineForm<FoundLine> {
  type: string
}

const TEXT: ResponseForm = {
  type: 'text/plain; charset=utf-8',
  toText: ({ line }) => `${line}\n`,
  toSkipText: count => `... ${count} lines were skipped: the client reads too slowly\n`,
}

const JSON_LINES: ResponseForm = {
  type: 'application/x-ndjson',
  toText: ({ line }) => `${JSON.stringify({ line })}\n`,
  toSkipText: count => `${JSON.stringify({ skipped: count })}\n`,
}

const JSON_RECORDS: ResponseForm = {
  ...JSON_LINES,
  toText: ({ file, line }) => `${JSON.stringify({ record: toLogRecord(file, line) })}\n`,
}

/** With nosniff: a browser must not show log lines, which functions write, as a page. */
function toHeaders({ type }: ResponseForm): string[] {
  return ['Content-Type', type, 'X-Content-Type-Options', 'nosniff', 'Cache-Control', 'no-store']
}

function followLog(
  exchange: Exchange,
  context: ControlContext,
  query: FilesQuery,
  lines: number,
  form: ResponseForm,
): void {
  const { responder } = exchange
  if (exchange.method === 'HEAD') {
    responder.send(exchange, 200, toHeaders(form), null)
    return
  }
  responder.openStream(exchange, 200, [...toHeaders(form), 'X-Accel-Buffering', 'no'], null)
  const { clock, journal, streams } = context
  const stream = new LogStream(exchange, clock, form)
  stream.begin(tail(context, query, lines))
  const stops = toLogQueries(query).map(one => journal.follow(one, line => stream.push({ file: one.file, line })))
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

// The query of `GET /_fn/logs`.

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
interface FilesQuery extends LogFilter {
  file: (typeof LOG_FILES)[number] | 'all'
}

export function toFilesQuery(query: ControlQuery): FilesQuery {
  const file = query.oneOf('file', [...LOG_FILES, 'all'], 'error')
  const runtime = query.text('runtime') === null ? null : query.oneOf('runtime', RUNTIMES, 'node')
  const fn = query.text('fn')
  if (fn !== null && !isPlainName(fn)) throw badValue('fn', 'the name of a function, such as hello', fn)
  const version = query.text('version')
  if (version !== null && !isVersion(version)) throw badValue('version', 'a version, such as v2 or default', version)
  const stream = query.oneOf('stream', ['all', 'stdout', 'stderr'], 'all')
  if (stream !== 'all' && file !== 'runtime')
    throw badQuery('stream', `selects lines of file=runtime only, got file=${file}`)
  const requestId = query.text('request_id')
  if (requestId !== null && !isRequestId(requestId))
    throw badValue('request_id', 'the id of a request, as X-Request-Id gives it', requestId)
  return { file, runtime, fn, version, stream: stream === 'all' ? null : stream, requestId, since: readSince(query) }
}

/** The query of each log. */
export function toLogQueries({ file, ...filter }: FilesQuery): LogQuery[] {
  return (file === 'all' ? LOG_FILES : [file]).map(one => ({ file: one, ...filter }))
}

/** A name of a function or a file route (`users/[id]`): neither absolute nor with `..`. */
function isPlainName(text: string): boolean {
  return !text.includes('\\') && text.split('/').every(segment => !['', '.', '..'].includes(segment))
}

const SECONDS = /^\d{1,11}(?:\.\d{1,9})?$/
const ISO_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)$/

/** In the form of the lines, so that times can be compared as texts. */
function readSince(query: ControlQuery): string | null {
  const text = query.text('since')
  if (text === null) return null
  const ms = SECONDS.test(text) ? Number(text) * 1000 : ISO_TIME.test(text) ? Date.parse(text) : Number.NaN
  if (Number.isNaN(ms)) throw badValue('since', 'seconds since 1970, or a time such as 2026-11-22T07:00:00Z', text)
  return new Date(ms).toISOString()
}

// Follows a log for a client. A slow client gets the number of lines that it missed; the waiting text is bounded.

/** Milliseconds that lines wait for others, so that a busy log does not need a system call for each line. */
const GATHER_MS = 50
/** Characters of lines that wait for a slow client. */
const MAX_WAITING_CHARS = 256 * 1024

/** The text form of lines. */
interface LineForm<Line> {
  /** The line with its end. */
  toText(line: Line): string
  /** Replaces a number of skipped lines. */
  toSkipText(count: number): string
}

export class LogStream<Line> {
  readonly #exchange: Exchange
  readonly #clock: Clock
  readonly #form: LineForm<Line>
  #text = ''
  #skipped = 0
  #isBlocked = false
  #timer: NodeJS.Timeout | null = null

  /** @param exchange - with an open response */
  constructor(exchange: Exchange, clock: Clock, form: LineForm<Line>) {
    this.#exchange = exchange
    this.#clock = clock
    this.#form = form
  }

  /** Sends the existing lines, all of them. */
  begin(lines: readonly Line[]): void {
    this.#text = lines.map(line => this.#form.toText(line)).join('')
    this.flush()
  }

  push(line: Line): void {
    if (this.#skipped > 0 || this.#text.length > MAX_WAITING_CHARS) this.#skipped += 1
    else this.#text += this.#form.toText(line)
    if (!this.#isBlocked) this.#timer ??= this.#clock.setTimeout(() => this.flush(), GATHER_MS)
  }

  /** Sends the waiting lines, unless the client is too slow for them. */
  flush(): void {
    this.#stopTimer()
    const { responder } = this.#exchange
    if (this.#isBlocked || this.#exchange.ended) return
    const text = this.#skipped === 0 ? this.#text : this.#text + this.#form.toSkipText(this.#skipped)
    this.#text = ''
    this.#skipped = 0
    if (text === '' || responder.writeStream(this.#exchange, Buffer.from(text), true)) return
    this.#isBlocked = true
    responder.onDrain(this.#exchange, () => {
      this.#isBlocked = false
      this.flush()
    })
  }

  /** Sends the last lines and ends the response. */
  end(): void {
    this.flush()
    this.stop()
    this.#exchange.responder.closeStream(this.#exchange, null)
  }

  /** The client has left. */
  stop(): void {
    this.#stopTimer()
    this.#isBlocked = true
    this.#text = ''
  }

  #stopTimer(): void {
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer)
    this.#timer = null
  }
}

function badValue(name: string, rule: string, got: string): GatewayError {
  return badQuery(name, `must be ${rule}, got "${showText(got)}"`)
}
