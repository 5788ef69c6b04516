/**
 * Where a line of a log comes from, as text in the line, and the choice of lines by it. Owner: page observe/log-store.
 *
 *   runtime  <time> [req=<id> trace=<id>] [node] [fn:hello@default stdout] text
 *   error    <time> <level> [req=<id> trace=<id>] [[node] [fn:hello@default]] text
 *   access   one JSON object
 *
 * Everything before the text is the gateway's: ids are checked and names have no blanks, so no text can pass for it.
 */

import { isObject } from '../core/json.ts'

/** What is known of a line. */
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
  /^(\d\S+) (?:(info|warn|error) )?(?:req=(\S+) )?(?:trace=([0-9a-f]{32}) )?(?:\[(\w+)\] \[fn:(\S+)@(\S+?)(?: (stdout|stderr))?\] )?(.*)$/

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
  const match = LINE.exec(line)
  if (match === null) return null
  const [, time, level, requestId, traceId, runtime, fn, version, stream, text] = match
  const origin = { requestId, traceId, runtime, fn, version, stream: stream as LogOrigin['stream'] }
  return { time: time!, level: level as LogLine['level'], ...origin, text: text! }
}

/** @returns what tells whether a line is wanted; null when every line is */
export function createLineFilter(
  file: 'error' | 'access' | 'runtime',
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
  try {
    const value: unknown = JSON.parse(line)
    if (!isObject(value)) return null
    const { time, runtime, fn, version, req_id: requestId } = value
    return { time, runtime, fn, version, requestId, stream: undefined }
  } catch {
    // A line of an earlier run may have been cut.
    return null
  }
}
