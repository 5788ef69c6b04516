/** A log record as lines of JSON, with the fields that log tools know. Owner: page observe/log-store. */

import { escapeUnsafe } from '../core/text.ts'
import type { LogRecord } from './events.ts'

/** Characters of one line's text; a longer text goes on in further lines. */
const MAX_TEXT_CHARS = 16_384
const MAX_STACK_CHARS = 8192
const MAX_NAME_CHARS = 1024

/**
 * One line per line of what a function wrote; a failure with its frames is one line.
 * @returns valid JSON without line ends and without characters that steer a terminal
 */
export function toJsonLogLines(record: LogRecord): string[] {
  const texts = record.stream === undefined ? [record.message] : toLines(record.message)
  return texts.flatMap(toPieces).map(text => toLine(record, text))
}

/** What a function wrote, line by line. */
export function toLines(text: string): string[] {
  return (text.endsWith('\n') ? text.slice(0, -1) : text).split(/\r?\n/)
}

function toPieces(text: string): string[] {
  if (text.length <= MAX_TEXT_CHARS) return [text]
  const pieces: string[] = []
  for (let at = 0; at < text.length; at += MAX_TEXT_CHARS) pieces.push(text.slice(at, at + MAX_TEXT_CHARS))
  return pieces
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
  return text === undefined || text.length <= chars ? text : `${text.slice(0, chars)}...`
}
