/** One line per request, for people or for machines. Owner: page observe/log-store. */

import { MAX_LOG_LINE_BYTES } from '../core/limits.ts'
import type { RequestRecord } from './events.ts'
import { toLogLine } from './log-text.ts'

/** What JSON escapes, and what would turn or break a line where the log is read. */
const NEEDS_ESCAPE = /["\\\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/
const UNSAFE_ALL = /[\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g

/** Characters of a text from the client in a machine line; of an overlong line only the second so many. */
const TEXT_CHARS = 1024
const SHORT_TEXT_CHARS = 128

/** `000` to `999`: numbers with decimals are dear to print. */
const THOUSANDTHS = Array.from({ length: 1000 }, (_, n) => String(n).padStart(3, '0'))

/** Writes access lines; keeps the text of the current second and of the last route. */
export class AccessLogFormat {
  #second = -1
  #clockText = ''
  #isoText = ''
  #route: string | null = null
  #fn: string | null = null
  #version: string | null = null
  #runtime: string | null = null
  #routeText = ''

  /** `12:03:04 200 GET /users/7 node users/[id].js 3.1ms 312B`, in local time. */
  toDevLine(record: RequestRecord): string {
    this.#readSecond(record.time)
    const handler = record.runtime === null ? '' : ` ${record.runtime} ${record.entryFile}`
    const line =
      `${this.#clockText} ${record.status} ${record.method} ${record.path}${handler}` +
      ` ${record.durationMs.toFixed(1)}ms ${record.bytesOut}B`
    return toLogLine(line)
  }

  /** One JSON object with the fields that log tools know, of at most MAX_LOG_LINE_BYTES. */
  toJsonLine(record: RequestRecord): string {
    const line = this.#toJson(record, TEXT_CHARS)
    const isShort = line.length * 3 <= MAX_LOG_LINE_BYTES || Buffer.byteLength(line) <= MAX_LOG_LINE_BYTES
    return isShort ? line : this.#toJson(record, SHORT_TEXT_CHARS)
  }

  #toJson(record: RequestRecord, chars: number): string {
    this.#readSecond(record.time)
    this.#readRoute(record, chars)
    const level = record.status >= 500 ? 'error' : record.status >= 400 ? 'warn' : 'info'
    const error = record.error === null ? '' : `,"error":${toText(record.error, chars)}`
    return (
      `{"time":"${this.#isoText}.${THOUSANDTHS[Math.trunc(record.time) % 1000]}Z","level":"${level}","msg":"request"` +
      `,"req_id":${toText(record.id, chars)},"method":${toText(record.method, chars)},"path":${toText(record.path, chars)}` +
      `${this.#routeText},"status":${record.status},"dur_ms":${toMs(record.durationMs)}` +
      `,"queue_ms":${toMs(record.queuedMs)},"bytes_in":${record.bytesIn},"bytes_out":${record.bytesOut}` +
      `,"ip":${toText(record.ip, chars)},"ua":${toTextOrNull(record.userAgent, chars)}` +
      `,"trace_id":${toTextOrNull(record.traceId, chars)}${error}}`
    )
  }

  #readSecond(time: number): void {
    const second = Math.floor(time / 1000)
    if (second === this.#second) return
    this.#second = second
    const date = new Date(second * 1000)
    this.#isoText = date.toISOString().slice(0, 19)
    this.#clockText = [date.getHours(), date.getMinutes(), date.getSeconds()]
      .map(part => String(part).padStart(2, '0'))
      .join(':')
  }

  #readRoute({ route, fn, version, runtime }: RequestRecord, chars: number): void {
    const isSame = route === this.#route && fn === this.#fn && version === this.#version && runtime === this.#runtime
    if (isSame && this.#routeText !== '' && chars === TEXT_CHARS) return
    this.#route = route
    this.#fn = fn
    this.#version = version
    this.#runtime = runtime
    this.#routeText =
      `,"route":${toTextOrNull(route, chars)},"fn":${toTextOrNull(fn, chars)}` +
      `,"version":${toTextOrNull(version, chars)},"runtime":${toTextOrNull(runtime, chars)}`
  }
}

function toText(text: string, chars: number): string {
  const kept = text.length > chars ? `${text.slice(0, chars)}...` : text
  if (!NEEDS_ESCAPE.test(kept)) return `"${kept}"`
  return JSON.stringify(kept).replace(UNSAFE_ALL, character => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
  })
}

function toTextOrNull(text: string | null, chars: number): string {
  return text === null ? 'null' : toText(text, chars)
}

function toMs(ms: number): string {
  if (ms === 0) return '0'
  const us = Math.round(ms * 1000)
  return `${Math.trunc(us / 1000)}.${THOUSANDTHS[us % 1000]}`
}
