/** One line per request, for people or for machines. Owner: page observe/log-store. */

import { escapeUnsafe, UNSAFE_CHARACTERS } from '../core/text.ts'
import type { RequestRecord } from './events.ts'
import { toLogLine } from './log-line.ts'
import { MAX_LOG_LINE_BYTES } from './line-buffer.ts'

/** What JSON escapes, and what would turn or break a line where the log is read. */
const NEEDS_ESCAPE = new RegExp(`["\\\\${UNSAFE_CHARACTERS}\\ud800-\\udfff]`)

/** Characters of a text from the client in a machine line; of an overlong line the second number. */
const TEXT_CHARS = 1024
const SHORT_TEXT_CHARS = 96

/**
 * Writes access lines, tens of thousands a second: the text of a second is made once, and a line goes straight into the
 * memory of the log.
 */
export class AccessLogFormat {
  #second = -1
  #clockText = ''
  #timeText = ''

  /** `12:03:04`, in local time. @param time - wall clock, ms */
  toClockText(time: number): string {
    this.#readSecond(time)
    return this.#clockText
  }

  /** `12:03:04 200 GET /users/7 node users/[id].js 3.1ms 312B`, in local time. */
  toDevLine(record: RequestRecord): string {
    const handler = record.runtime === null ? '' : ` ${record.runtime} ${record.entryFile}`
    const line =
      `${this.toClockText(record.time)} ${record.status} ${record.method} ${record.path}${handler}` +
      ` ${record.durationMs.toFixed(1)}ms ${record.bytesOut}B`
    return toLogLine(line)
  }

  /** One JSON object with the fields that log tools know, of at most MAX_LOG_LINE_BYTES. */
  toJsonLine(record: RequestRecord): string {
    this.#readSecond(record.time)
    const line = this.#toJson(record, TEXT_CHARS)
    // A unit of a string takes three bytes at most.
    if (line.length * 3 <= MAX_LOG_LINE_BYTES || Buffer.byteLength(line) <= MAX_LOG_LINE_BYTES) return line
    return this.#toJson(record, SHORT_TEXT_CHARS)
  }

  /**
   * Writes what `toJsonLine` returns.
   * @param bytes - with room for MAX_LOG_LINE_BYTES behind `from`
   * @returns where the line ends
   */
  write(record: RequestRecord, bytes: Buffer, from: number): number {
    return from + bytes.write(this.toJsonLine(record), from)
  }

  #toJson(record: RequestRecord, chars: number): string {
    const { time, id, method, path, route, fn, version, runtime, status, durationMs, queuedMs } = record
    const { bytesIn, bytesOut, ip, userAgent, traceId, error } = record
    const level = status >= 500 ? 'error' : status >= 400 ? 'warn' : 'info'
    const millis = String(Math.trunc(time) % 1000).padStart(3, '0')
    return (
      `{"time":"${this.#timeText}${millis}Z","level":"${level}","msg":"request","req_id":${toText(id, SHORT_TEXT_CHARS)}` +
      `,"method":${toText(method, chars)},"path":${toText(path, chars)},"route":${toText(route, chars)}` +
      `,"fn":${toText(fn, chars)},"version":${toText(version, chars)},"runtime":${toText(runtime, chars)}` +
      `,"status":${status},"dur_ms":${toMs(durationMs)},"queue_ms":${toMs(queuedMs)}` +
      `,"bytes_in":${bytesIn},"bytes_out":${bytesOut},"ip":${toText(ip, chars)},"ua":${toText(userAgent, chars)}` +
      `,"trace_id":"${traceId}"${error === null ? '' : `,"error":${toText(error, chars)}`}}`
    )
  }

  #readSecond(time: number): void {
    const second = Math.floor(time / 1000)
    if (second === this.#second) return
    this.#second = second
    const date = new Date(second * 1000)
    this.#timeText = `${date.toISOString().slice(0, 19)}.`
    this.#clockText = [date.getHours(), date.getMinutes(), date.getSeconds()]
      .map(part => String(part).padStart(2, '0'))
      .join(':')
  }
}

/** Milliseconds with three decimals; `0` for none. */
function toMs(ms: number): string {
  const us = Math.round(ms * 1000)
  if (us <= 0) return '0'
  const rest = us % 1000
  return `${(us - rest) / 1000}.${rest < 10 ? '00' : rest < 100 ? '0' : ''}${rest}`
}

function toText(text: string | null, chars: number): string {
  if (text === null) return 'null'
  const kept = text.length > chars ? `${text.slice(0, chars)}...` : text
  return NEEDS_ESCAPE.test(kept) ? escapeUnsafe(JSON.stringify(kept)) : `"${kept}"`
}
