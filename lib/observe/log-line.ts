/**
 * Lines of logs: as JSON, as text, read back, and failures in words. Owner: page observe/log-store.
 *
 *   runtime  <time> [req=<id> trace=<id>] [node] [fn:hello@default stdout] text
 *   error    <time> <level> [req=<id> trace=<id>] [[node] [fn:hello@default]] text
 *   access   one JSON object
 *
 * The gateway writes everything before the text: ids are checked and names have no blanks, so that no text can imitate it.
 */

import type { ErrorCode, ErrorDetail, GatewayError } from '../core/errors.ts'
import { parseObject } from '../core/json.ts'
import { cutText, escapeUnsafe, toUnicodeEscape } from '../core/text.ts'
import type { LogRecord } from './events.ts'
import { MAX_LOG_LINE_BYTES } from './line-buffer.ts'

/** Characters of one line's text; a longer text goes on in further lines. */
const PIECES = /.{1,16384}/gs
const MAX_STACK_CHARS = 8192
const MAX_NAME_CHARS = 1024

/**
 * One line per line of what a function wrote; a failure with its frames is one line.
 * @returns valid JSON without line ends and without characters that steer a terminal
 */
export function toJsonLogLines(record: LogRecord): string[] {
  const texts = record.stream === undefined ? [record.message] : toLines(record.message)
  return texts.flatMap(text => text.match(PIECES) ?? text).map(text => toLine(record, text))
}

/** What a function wrote, line by line. */
export function toLines(text: string): string[] {
  return (text.endsWith('\n') ? text.slice(0, -1) : text).split(/\r?\n/)
}

function toLine(record: LogRecord, text: string): string {
  const { time, level, requestId, traceId, method, path, runtime, fn, version, stream, code, detail = {} } = record
  return escapeUnsafe(
    JSON.stringify({
      time: new Date(time).toISOString(),
      level,
      msg: text,
      req_id: cut(requestId),
      trace_id: traceId,
      method: cut(method),
      path: cut(path),
      runtime,
      fn: cut(fn),
      version: cut(version),
      stream,
      code,
      file: cut(detail.file),
      line: detail.line,
      hint: cut(detail.hint),
      stack: cut(detail.stack, MAX_STACK_CHARS),
    }),
  )
}

function cut(text: string | undefined, chars = MAX_NAME_CHARS): string | undefined {
  return text && cutText(text, chars)
}

const SHORT_ESCAPES: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '  ' }

/** Escapes what would break the line or command a terminal (an attacker's escape sequences in a path). */
export function toPrintable(text: string): string {
  return escapeUnsafe(text, escapeCharacter)
}

function escapeCharacter(character: string): string {
  const short = SHORT_ESCAPES[character]
  if (short !== undefined) return short
  const code = character.charCodeAt(0)
  return code < 256 ? `\\x${code.toString(16).padStart(2, '0')}` : toUnicodeEscape(character)
}

/** A printable line of at most MAX_LOG_LINE_BYTES in UTF-8; what is cut off is said at its end. */
export function toLogLine(text: string): string {
  // No character is escaped to more than six, so a far longer text need not be looked at whole.
  const isCutEarly = text.length > MAX_LOG_LINE_BYTES
  const line = toPrintable(isCutEarly ? text.slice(0, MAX_LOG_LINE_BYTES) : text)
  if (!isCutEarly && line.length * 3 <= MAX_LOG_LINE_BYTES) return line
  if (!isCutEarly && Buffer.byteLength(line) <= MAX_LOG_LINE_BYTES) return line
  const note = '... (cut)'
  const bytes = Buffer.from(line).subarray(0, MAX_LOG_LINE_BYTES - note.length)
  // A character cut in two decodes to one replacement mark of three bytes: it goes.
  return `${bytes.toString('utf8').replace(/\ufffd$/, '')}${note}`
}

/** Facts about a line. */
export interface LogOrigin {
  requestId?: string | undefined
  traceId?: string | undefined
  runtime?: string | undefined
  fn?: string | undefined
  version?: string | undefined
  stream?: 'stdout' | 'stderr' | undefined
}

/** Which lines are wanted; what is null or absent does not matter. */
export interface LogFilter {
  runtime?: string | null
  fn?: string | null
  version?: string | null
  stream?: 'stdout' | 'stderr' | null
  requestId?: string | null
  /** Lines before this time are not wanted; as lines have it. */
  since?: string | null
}

/** The part of a line between its time and its text, with a blank at its end; empty when nothing is known. */
export function toOriginText({ requestId, traceId, runtime, fn, version, stream }: LogOrigin): string {
  let text = ''
  if (requestId !== undefined) text += `req=${requestId} `
  if (traceId !== undefined) text += `trace=${traceId} `
  if (fn !== undefined) text += `[${runtime}] [fn:${fn}@${version}${stream === undefined ? '' : ` ${stream}`}] `
  return text
}

const LINE =
  /^(?<time>\d\S+) (?:(?<level>info|warn|error) )?(?:req=(?<requestId>\S+) )?(?:trace=(?<traceId>[0-9a-f]{32}) )?(?:\[(?<runtime>\w+)\] \[fn:(?<fn>\S+)@(?<version>\S+?)(?: (?<stream>stdout|stderr))?\] )?(?<text>.*)$/

/** A line of the error or runtime log in its parts; what it does not say is undefined. */
interface LogLine extends LogOrigin {
  /** As ISO 8601 has it. */
  time: string
  /** Of the error log. */
  level: 'info' | 'warn' | 'error' | undefined
  text: string
}

/** @returns null for a line that is none of those: one of the access log, or a note about lines that are missing */
export function readLogLine(line: string): LogLine | null {
  return (LINE.exec(line)?.groups as LogLine | undefined) ?? null
}

/** @returns true for the lines of a filter; null when every line is one */
export function createLineFilter(
  file: LogFile,
  { since = null, ...filter }: LogFilter,
): ((line: string) => boolean) | null {
  const wanted = Object.entries(filter).filter(([, value]) => value !== null && value !== undefined)
  if (wanted.length === 0 && since === null) return null
  const read = file === 'access' ? readAccessOrigin : readLogLine
  return line => {
    const origin = read(line)
    if (origin === null || (since !== null && !(String(origin.time) >= since))) return false
    return wanted.every(([name, value]) => origin[name as keyof typeof filter] === value)
  }
}

function readAccessOrigin(line: string): Record<keyof Omit<LogFilter, 'since'> | 'time', unknown> | null {
  // A line of an earlier run may have been cut.
  const value = parseObject(line)
  if (value === null) return null
  const { time, runtime, fn, version, req_id: requestId } = value
  return { time, runtime, fn, version, requestId, stream: undefined }
}

export const LOG_FILES = ['error', 'access', 'runtime'] as const

export type LogFile = (typeof LOG_FILES)[number]

interface LogRecordFields {
  file: LogFile
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

/** Of a line of the access log; values as the line has them. */
const REQUEST_FIELDS = 'method path route status dur_ms queue_ms bytes_in bytes_out ip ua error'.split(' ')
/** Those that the other records of this API name differently. */
const RENAMED: Readonly<Record<string, string>> = { dur_ms: 'duration_ms', ua: 'user_agent' }

/** A line of the access log has the fields of its request besides. */
export function toLogRecord(file: LogFile, line: string): LogRecordFields {
  return (file === 'access' ? readAccess(line) : readText(file, line)) ?? toNote(file, line)
}

function readText(file: LogFile, line: string): LogRecordFields | null {
  const parts = readLogLine(line)
  if (parts === null) return null
  const { time, level, requestId, traceId, runtime, fn, version, stream, text } = parts
  // Output has no level; stderr counts as a warning.
  const shown = level ?? (stream === 'stderr' ? 'warn' : 'info')
  return {
    ...{ file, time, level: shown, request_id: requestId ?? null, trace_id: traceId ?? null },
    ...{ runtime: runtime ?? null, fn: fn ?? null, version: version ?? null, stream: stream ?? null, text },
  }
}

function readAccess(line: string): LogRecordFields | null {
  const value = parseObject(line)
  if (value === null || typeof value.time !== 'string') return null
  const word = (name: string): string | null => (typeof value[name] === 'string' ? value[name] : null)
  const level = (['warn', 'error'] as const).find(one => one === value.level) ?? 'info'
  const request = REQUEST_FIELDS.map(name => [RENAMED[name] ?? name, value[name] ?? null])
  return {
    ...{ file: 'access', time: value.time, level, request_id: word('req_id'), trace_id: word('trace_id') },
    ...{ runtime: word('runtime'), fn: word('fn'), version: word('version'), stream: null },
    text: `${word('method')} ${word('path')} ${String(value.status)}`,
    ...Object.fromEntries(request),
  }
}

function toNote(file: LogFile, text: string): LogRecordFields {
  const nothing = { time: null, level: null, request_id: null, trace_id: null, runtime: null, fn: null, version: null }
  return { file, ...nothing, stream: null, text }
}

/** Failures that need attention; refusals (limits, wrong requests, a stop) are part of normal service. */
const FAILURES: ReadonlySet<ErrorCode> = new Set([
  'HANDLER_FAILED',
  'LOAD_FAILED',
  'INTERNAL',
  'CONTRACT_BROKEN',
  'EDGE_FAILED',
  'RUNTIME_DOWN',
  'CONFIG_BROKEN',
  'WORKER_DIED',
  'TIMEOUT',
])

export function isFailure(error: GatewayError): boolean {
  return FAILURES.has(error.code)
}

/** Facts besides the message; for an exception of the gateway itself its own frames. */
export function toFailureDetail({ code, detail, cause }: GatewayError): ErrorDetail {
  if (detail !== undefined) return detail
  // The gateway's own frames help where the gateway is at fault, and nowhere else.
  return code === 'INTERNAL' && cause instanceof Error && cause.stack !== undefined ? { stack: cause.stack } : {}
}

interface FailureText {
  /** `users/[id].js:3: TypeError: x is undefined`: file and line stand there once. */
  headline: string
  /** The frames, without the line that repeats the message. */
  frames: readonly string[]
  hint: string | null
}

/**
 * @param message - may hold the file already
 * @param entryFile - handler file, named when nothing better is known
 */
export function toFailureText(message: string, entryFile: string | null, detail: ErrorDetail): FailureText {
  const lines = linesOf(detail.stack ?? '')
  // Stacks begin (python: end) with the message and the kind of exception, which the message alone does not have.
  const [first = '', ...rest] = message.split('\n')
  const titled = first === '' ? -1 : lines.findIndex(line => /^[\w.\\]+: /.test(line) && line.endsWith(`: ${first}`))
  const title = titled === -1 ? first : lines[titled]!
  const others = lines.filter((_, index) => index !== titled)
  // Output of a tool or interpreter in several lines, unless the stack repeats it.
  const frames = [...linesOf(rest.join('\n')).filter(line => !others.includes(line)), ...others]
  const file = detail.file ?? entryFile
  const where = detail.line === undefined ? file : `${file}:${detail.line}`
  const headline = file === null || title.includes(file) ? title : `${where}: ${title}`
  return { headline, frames, hint: detail.hint ?? null }
}

function linesOf(text: string): string[] {
  return text.split('\n').filter(line => line.trim() !== '')
}
