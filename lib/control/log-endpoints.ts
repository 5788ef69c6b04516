/** `GET /_fn/logs`: the newest lines of a log, and new ones as they are written. Owner: page control/logs. */

import { boolean, integer, oneOf, string } from '../config/fields.ts'
import { type Clock, Timer } from '../core/clock.ts'
import { isVersion, RUNTIMES } from '../core/identity.ts'
import type { Exchange } from '../http/exchange.ts'
import { isRequestId } from '../invocation/event.ts'
import type { Journal } from '../observe/journal.ts'
import { LOG_FILES, type LogFilter, toLogRecord } from '../observe/log-line.ts'
import type { LogQuery } from '../observe/log-store.ts'
import {
  badQuery,
  type ControlContext,
  type ControlReply,
  type Endpoint,
  endpoint,
  json,
  type JsonObject,
  type readQuery,
} from './endpoint.ts'

/** Lines of a response by default, and at most. */
const DEFAULT_LINES = 200
const MAX_LINES = 2000

export const LOG_QUERY = {
  file: oneOf([...LOG_FILES, 'all']),
  // A larger number is accepted and means the maximum.
  lines: integer({ min: 0, max: 1e15 }),
  format: oneOf(['text', 'json']),
  records: boolean(),
  follow: boolean(),
  runtime: oneOf(RUNTIMES),
  // A name of a function or a file route (`users/[id]`): neither absolute nor with `..`.
  fn: string({
    rule: 'the name of a function, such as hello',
    maxLength: 4096,
    parse: text =>
      !text.includes('\\') && text.split('/').every(part => !['', '.', '..'].includes(part)) ? text : null,
  }),
  version: string({ rule: 'a version, such as v2 or default', parse: text => (isVersion(text) ? text : null) }),
  stream: oneOf(['all', 'stdout', 'stderr']),
  request_id: string({
    rule: 'the id of a request, as X-Request-Id gives it',
    parse: text => (isRequestId(text) ? text : null),
  }),
  since: string({ rule: 'seconds since 1970, or a time such as 2026-11-22T07:00:00Z', parse: toLineTime }),
}

type LogFields = ReturnType<typeof readQuery<typeof LOG_QUERY>>

const SECONDS = /^\d{1,11}(?:\.\d{1,9})?$/
const ISO_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)$/

/** In the form of the lines, so that times can be compared as texts. */
function toLineTime(text: string): string | null {
  const ms = SECONDS.test(text) ? Number(text) * 1000 : ISO_TIME.test(text) ? Date.parse(text) : Number.NaN
  return Number.isNaN(ms) ? null : new Date(ms).toISOString()
}

/** One log, or all of them as one. */
interface FilesQuery extends LogFilter {
  file: (typeof LOG_FILES)[number] | 'all'
}

export function toFilesQuery(query: LogFields): FilesQuery {
  const { file = 'error', runtime = null, fn = null, version = null, stream = 'all', since = null } = query
  if (stream !== 'all' && file !== 'runtime')
    throw badQuery('stream', `selects lines of file=runtime only, got file=${file}`)
  const requestId = query.request_id ?? null
  return { file, runtime, fn, version, stream: stream === 'all' ? null : stream, requestId, since }
}

/** The query of each log. */
export function toLogQueries({ file, ...filter }: FilesQuery): LogQuery[] {
  return (file === 'all' ? LOG_FILES : [file]).map(one => ({ file: one, ...filter }))
}

export function createLogEndpoints(context: ControlContext, streams: OpenStreams): readonly Endpoint[] {
  return [endpoint('GET /_fn/logs', 'read', ({ query }) => readLogs(context, streams, query), LOG_QUERY)]
}

function readLogs({ clock, journal }: ControlContext, streams: OpenStreams, query: LogFields): ControlReply {
  const logQuery = toFilesQuery(query)
  const { format = 'text', records = false, follow = false } = query
  if (records && format !== 'json') throw badQuery('records', 'is for format=json only: add &format=json')
  const newest = (): FoundLine[] => tail(journal, logQuery, Math.min(MAX_LINES, query.lines ?? DEFAULT_LINES))
  if (!follow && format === 'json') return json(toRecord(logQuery, newest(), records))
  const form = records ? JSON_RECORDS : format === 'json' ? JSON_LINES : TEXT
  // With nosniff: a browser must not show log lines, which functions write, as a page.
  const headers = ['Content-Type', form.type, 'X-Content-Type-Options', 'nosniff', 'Cache-Control', 'no-store']
  return {
    send: exchange => {
      const { responder } = exchange
      if (!follow || exchange.method === 'HEAD') {
        responder.send(exchange, 200, headers, follow ? null : newest().map(form.toText).join(''))
        return
      }
      responder.openStream(exchange, 200, [...headers, 'X-Accel-Buffering', 'no'], null)
      const stream = new LogStream(exchange, clock, form)
      // In one go: no line is missed or sent twice between the two.
      stream.begin(newest())
      stream.stops = toLogQueries(logQuery).map(one =>
        journal.follow(one, line => stream.push({ file: one.file, line })),
      )
      const forget = streams.add(() => stream.end())
      exchange.work = {
        abandon: () => {
          forget()
          stream.stop()
        },
      }
    },
  }
}

/** A line and its log. */
interface FoundLine {
  file: LogQuery['file']
  line: string
}

/** The newest lines, oldest first; those of several logs by their time. */
function tail(journal: Journal, query: FilesQuery, lines: number): FoundLine[] {
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

function toRecord(query: FilesQuery, found: readonly FoundLine[], asRecords: boolean): JsonObject {
  const { file, runtime, fn, version, stream, requestId, since } = query
  const given = Object.entries({ runtime, fn, version, request_id: requestId, since })
  return {
    file,
    lines: found.length,
    ...Object.fromEntries(given.filter(([, value]) => value !== null)),
    stream: stream ?? 'all',
    ...(asRecords
      ? { records: found.map(one => toLogRecord(one.file, one.line)) }
      : { data: found.map(({ line }) => line) }),
  }
}

/** The text form of lines. */
interface LineForm {
  type: string
  /** The line with its end. */
  toText(line: FoundLine): string
  /** Replaces a number of skipped lines. */
  toSkipText(count: number): string
}

const TEXT: LineForm = {
  type: 'text/plain; charset=utf-8',
  toText: ({ line }) => `${line}\n`,
  toSkipText: count => `... ${count} lines were skipped: the client reads too slowly\n`,
}

const JSON_LINES: LineForm = {
  type: 'application/x-ndjson',
  toText: ({ line }) => `${JSON.stringify({ line })}\n`,
  toSkipText: count => `${JSON.stringify({ skipped: count })}\n`,
}

const JSON_RECORDS: LineForm = {
  ...JSON_LINES,
  toText: ({ file, line }) => `${JSON.stringify({ record: toLogRecord(file, line) })}\n`,
}

/** Open at once; with one more the oldest ends, because its client may have left without closing the connection. */
const MAX_OPEN_STREAMS = 64

/** Responses that go on until they are ended. */
export class OpenStreams {
  readonly #ends = new Set<() => void>()
  #isClosed = false

  /**
   * @param end - ends the response; called at most once, and at once when the gateway is closing
   * @returns a function that says that it has ended
   */
  add(end: () => void): () => void {
    if (this.#isClosed) end()
    else this.#ends.add(end)
    if (this.#ends.size > MAX_OPEN_STREAMS) {
      const [oldest] = this.#ends
      this.#ends.delete(oldest!)
      oldest!()
    }
    return () => this.#ends.delete(end)
  }

  /** Ends all: a stop does not wait for clients that would stay connected. */
  close(): void {
    this.#isClosed = true
    for (const end of [...this.#ends]) end()
    this.#ends.clear()
  }
}

/** Milliseconds that lines wait for others, so that a busy log does not need a system call for each line. */
const GATHER_MS = 50
/** Characters of lines that wait for a slow client. */
const MAX_WAITING_CHARS = 256 * 1024

/** Follows a log for a client. A slow client gets the number of lines that it missed; the waiting text is bounded. */
export class LogStream {
  readonly #exchange: Exchange
  readonly #form: LineForm
  readonly #timer: Timer
  #text = ''
  #skipped = 0
  #isBlocked = false
  /** End what gives it lines. */
  stops: readonly (() => void)[] = []

  /** @param exchange - with an open response */
  constructor(exchange: Exchange, clock: Clock, form: LineForm) {
    this.#exchange = exchange
    this.#timer = new Timer(clock)
    this.#form = form
  }

  /** Sends the existing lines, all of them. */
  begin(lines: readonly FoundLine[]): void {
    this.#text = lines.map(this.#form.toText).join('')
    this.flush()
  }

  push(line: FoundLine): void {
    if (this.#skipped > 0 || this.#text.length > MAX_WAITING_CHARS) this.#skipped += 1
    else this.#text += this.#form.toText(line)
    if (!this.#isBlocked && !this.#timer.isSet) this.#timer.set(GATHER_MS, () => this.flush())
  }

  /** Sends the waiting lines, unless the client is too slow for them. */
  flush(): void {
    this.#timer.clear()
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
    for (const stop of this.stops) stop()
    this.#timer.clear()
    this.#isBlocked = true
    this.#text = ''
  }
}
