/** One line per request, for people or for machines. Owner: page observe/log-store. */

import { cutText, escapeUnsafe, UNSAFE_CHARACTERS } from '../core/text.ts'
import type { RequestRecord } from './events.ts'
import { toLogLine } from './log-line.ts'
import { MAX_LOG_LINE_BYTES } from './line-buffer.ts'

/** What JSON escapes, and what would turn or break a line where the log is read. */
const NEEDS_ESCAPE = new RegExp(`["\\\\${UNSAFE_CHARACTERS}\\ud800-\\udfff]`)

/** Characters of a text from the client in a machine line; of an overlong line the second number. */
const TEXT_CHARS = 1024
const SHORT_TEXT_CHARS = 96

/** Routes whose part of a line is kept. */
const MAX_TARGETS = 1000

interface Target extends Pick<RequestRecord, 'fn' | 'version' | 'runtime'> {
  chars: number
  text: string
}

/**
 * Writes access lines, tens of thousands a second: the text of a second is made once, and a line goes straight into the
 * memory of the log.
 */
export class AccessLogFormat {
  #second = -1
  #clockText = ''
  #timeText = ''
  /** The part of a line that names a route and its function, by route. */
  readonly #targets = new Map<string | null, Target>()

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
    // A character takes three bytes at most per unit of its string.
    const fits = line.length * 3 <= MAX_LOG_LINE_BYTES || Buffer.byteLength(line) <= MAX_LOG_LINE_BYTES
    return fits ? line : this.#toJson(record, SHORT_TEXT_CHARS)
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
    const { time, id, method, path, status, durationMs, queuedMs, bytesIn, bytesOut, ip, userAgent, traceId } = record
    const level = status >= 500 ? 'error' : status >= 400 ? 'warn' : 'info'
    const millis = String(Math.trunc(time) % 1000).padStart(3, '0')
    return (
      `{"time":"${this.#timeText}${millis}Z","level":"${level}","msg":"request","req_id":${this.#toText(id, SHORT_TEXT_CHARS)}` +
      `,"method":${this.#toText(method, chars)},"path":${this.#toText(path, chars)}${this.#toTarget(record, chars)}` +
      `,"status":${status},"dur_ms":${toMs(durationMs)},"queue_ms":${toMs(queuedMs)}` +
      `,"bytes_in":${bytesIn},"bytes_out":${bytesOut},"ip":${this.#toText(ip, chars)},"ua":${this.#toText(userAgent, chars)}` +
      `,"trace_id":"${traceId}"${record.error === null ? '' : `,"error":${this.#toText(record.error, chars)}`}}`
    )
  }

  #toTarget(record: RequestRecord, chars: number): string {
    const { route, fn, version, runtime } = record
    const known = this.#targets.get(route)
    if (known?.fn === fn && known.version === version && known.runtime === runtime && known.chars === chars)
      return known.text
    const text =
      `,"route":${this.#toText(route, chars)},"fn":${this.#toText(fn, chars)}` +
      `,"version":${this.#toText(version, chars)},"runtime":${this.#toText(runtime, chars)}`
    if (this.#targets.size >= MAX_TARGETS) this.#targets.clear()
    this.#targets.set(route, { fn, version, runtime, chars, text })
    return text
  }

  #toText(text: string | null, chars: number): string {
    if (text === null) return 'null'
    const kept = cutText(text, chars)
    return NEEDS_ESCAPE.test(kept) ? escapeUnsafe(JSON.stringify(kept)) : `"${kept}"`
  }

  #readSecond(time: number): void {
    const second = Math.floor(time / 1000)
    if (second === this.#second) return
    this.#second = second
    const date = new Date(second * 1000)
    this.#timeText = `${date.toISOString().slice(0, 19)}.`
    this.#clockText = date.toTimeString().slice(0, 8)
  }
}

/** Note in the line of a request that a debugger stopped. */
export const PAUSED_NOTE = 'paused by debugger'

/** Lines of requests that a debugger paused. */
export class PausedLogFormat extends AccessLogFormat {
  override toJsonLine(record: RequestRecord): string {
    return `${super.toJsonLine(record).slice(0, -1)},"note":"${PAUSED_NOTE}"}`
  }
}

/** Milliseconds with three decimals; `0` for none. */
function toMs(ms: number): string {
  const us = Math.round(ms * 1000)
  if (us <= 0) return '0'
  const rest = us % 1000
  return `${(us - rest) / 1000}.${rest < 10 ? '00' : rest < 100 ? '0' : ''}${rest}`
}
