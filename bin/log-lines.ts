/** Lines of the gateway's logs for a person or a program. Owner: page bin/logs. */

import { isObject } from '../lib/core/json.ts'
import { escapeUnsafe } from '../lib/core/text.ts'
import { readLogLine, toPrintable } from '../lib/observe/log-line.ts'
import type { Output } from './output.ts'

type Paint = Output['style']

const LEVEL_STYLE = { info: 'dim', warn: 'yellow', error: 'red' } as const

/** @param line - as the gateway sends it */
export function toShownLine(line: string, paint: Paint): string {
  const access = readAccess(line)
  if (access !== null) return toAccessText(access, paint)
  const read = readLogLine(line)
  if (read === null) return paint('dim', line)
  const { time, level, requestId, fn, version, stream, text } = read
  const parts = [paint('dim', toClockText(time))]
  if (level !== undefined) parts.push(paint(LEVEL_STYLE[level], level))
  if (fn !== undefined) parts.push(paint('cyan', toName(fn, version)))
  if (stream === 'stderr') parts.push(paint('yellow', 'stderr'))
  parts.push(level === 'error' ? paint('red', text) : text)
  if (requestId !== undefined) parts.push(paint('dim', requestId))
  return parts.join(' ')
}

/** One JSON object, with the names that the gateway's machine lines have. */
export function toJsonLine(line: string): string {
  const access = readAccess(line)
  if (access !== null) return toJson({ file: 'access', ...access })
  const read = readLogLine(line)
  if (read === null) return toJson({ note: line })
  const { time, level, requestId, traceId, runtime, fn, version, stream, text } = read
  const file = level === undefined ? 'runtime' : 'error'
  const origin = { req_id: requestId, trace_id: traceId, runtime, fn, version, stream }
  return toJson({ file, time, level, msg: text, ...origin })
}

function toJson(record: Readonly<Record<string, unknown>>): string {
  return escapeUnsafe(JSON.stringify(record))
}

function readAccess(line: string): Record<string, unknown> | null {
  if (!line.startsWith('{')) return null
  try {
    const value: unknown = JSON.parse(line)
    return isObject(value) ? value : null
  } catch {
    return null
  }
}

function toAccessText(access: Record<string, unknown>, paint: Paint): string {
  const { time, status, method, path, fn, version, dur_ms, bytes_out, req_id, error } = access
  const code = Number(status)
  const style = code >= 500 ? 'red' : code >= 400 ? 'yellow' : 'green'
  const parts = [paint('dim', toClockText(toText(time))), paint(style, toText(status)), toText(method), toText(path)]
  if (typeof fn === 'string') parts.push(paint('cyan', toName(toText(fn), toText(version))))
  parts.push(`${Number(dur_ms).toFixed(1)}ms`, `${Number(bytes_out)}B`)
  if (typeof error === 'string') parts.push(paint(style, toText(error)))
  return [...parts, paint('dim', toText(req_id))].join(' ')
}

/** What JSON held may be anything again. */
function toText(value: unknown): string {
  return toPrintable(String(value))
}

function toName(fn: string, version: string | undefined): string {
  return version === undefined || version === 'default' ? fn : `${fn}@${version}`
}

/** The time of day here; the text itself if it is not a time. */
function toClockText(time: string): string {
  const date = new Date(time)
  if (Number.isNaN(date.getTime())) return time
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(part => String(part).padStart(2, '0')).join(':')
}
