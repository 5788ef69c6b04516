/** One line per request, for people or for machines. Owner: page observe/log-store. */

import { escapeUnsafe, UNSAFE_CHARACTERS } from '../core/text.ts'
import type { RequestRecord } from './events.ts'
import { toLogLine } from './log-line.ts'
import { MAX_LOG_LINE_BYTES } from './line-buffer.ts'

/** What JSON escapes, and what would turn or break a line where the log is read. */
const NEEDS_ESCAPE = new RegExp(`["\\\\${UNSAFE_CHARACTERS}\\ud800-\\udfff]`)

/** Characters of a text from the client in a machine line; of an overlong line only the second so many. */
const TEXT_CHARS = 1024
const SHORT_TEXT_CHARS = 96

const QUOTE = 34
const DOT = 46
const DIGIT_0 = 48
const PLAIN_ID = /^[\w.-]{1,128}$/

/** A piece of a line as bytes, made anew only when what it says changes. */
class Segment {
  bytes: Buffer = Buffer.alloc(0)

  set(text: string): void {
    this.bytes = Buffer.from(text)
  }
}

const LEVELS = (['info', 'warn', 'error'] as const).map(level =>
  Buffer.from(`Z","level":"${level}","msg":"request","req_id":`),
)
const QUEUE_MS = Buffer.from(',"queue_ms":')
const BYTES_IN = Buffer.from(',"bytes_in":')
const NO_QUEUE_NO_BODY = Buffer.from(',"queue_ms":0,"bytes_in":0,"bytes_out":')
const BYTES_OUT = Buffer.from(',"bytes_out":')
/** Digits and punctuation of a line beside its segments and its id, at most. */
const NUMBER_BYTES = 200

/**
 * Writes access lines. A machine line goes straight into the log's memory, from segments that are kept while route, client
 * and the rest stay the same: at tens of thousands of lines a second the strings of each would cost more than the call.
 */
export class AccessLogFormat {
  #second = -1
  #clockText = ''
  readonly #time = new Segment()
  readonly #head = new Segment()
  readonly #tail = new Segment()
  readonly #end = new Segment()
  /** What the head, the tail and the end say; nothing before the first line. */
  #headOf: RequestRecord | null = null
  #tailOf: RequestRecord | null = null
  #endOf: string | null | undefined
  #scratch: Buffer | null = null

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
    this.#scratch ??= Buffer.allocUnsafe(MAX_LOG_LINE_BYTES)
    return this.#scratch.toString('utf8', 0, this.write(record, this.#scratch, 0))
  }

  /**
   * Writes what `toJsonLine` returns.
   * @param bytes - with room for MAX_LOG_LINE_BYTES behind `from`
   * @returns where the line ends
   */
  write(record: RequestRecord, bytes: Buffer, from: number): number {
    this.#readSecond(record.time)
    this.#readSegments(record, TEXT_CHARS)
    const idText = PLAIN_ID.test(record.id) ? null : toText(record.id, SHORT_TEXT_CHARS)
    if (this.#bytesOfTexts > MAX_LOG_LINE_BYTES - NUMBER_BYTES - SHORT_TEXT_CHARS * 6)
      this.#readSegments(record, SHORT_TEXT_CHARS)
    let at = put(bytes, from, this.#time.bytes)
    at = putThousandths(bytes, at, Math.trunc(record.time) % 1000)
    at = put(bytes, at, LEVELS[record.status >= 500 ? 2 : record.status >= 400 ? 1 : 0]!)
    at = idText === null ? putPlain(bytes, at, record.id) : at + bytes.write(idText, at)
    at = put(bytes, at, this.#head.bytes)
    at = putMs(bytes, at, record.durationMs)
    if (record.queuedMs === 0 && record.bytesIn === 0) {
      at = put(bytes, at, NO_QUEUE_NO_BODY)
    } else {
      at = put(bytes, at, QUEUE_MS)
      at = putMs(bytes, at, record.queuedMs)
      at = put(bytes, at, BYTES_IN)
      at = putInteger(bytes, at, record.bytesIn)
      at = put(bytes, at, BYTES_OUT)
    }
    at = putInteger(bytes, at, record.bytesOut)
    at = put(bytes, at, this.#tail.bytes)
    at = putPlain(bytes, at, record.traceId)
    return put(bytes, at, this.#end.bytes)
  }

  get #bytesOfTexts(): number {
    return this.#head.bytes.length + this.#tail.bytes.length + this.#end.bytes.length
  }

  #readSecond(time: number): void {
    const second = Math.floor(time / 1000)
    if (second === this.#second) return
    this.#second = second
    const date = new Date(second * 1000)
    this.#time.set(`{"time":"${date.toISOString().slice(0, 19)}.`)
    this.#clockText = [date.getHours(), date.getMinutes(), date.getSeconds()]
      .map(part => String(part).padStart(2, '0'))
      .join(':')
  }

  #readSegments(record: RequestRecord, chars: number): void {
    if (chars !== TEXT_CHARS || this.#headOf === null || !isSameHead(this.#headOf, record)) {
      const { method, path, route, fn, version, runtime, status } = record
      this.#headOf = chars === TEXT_CHARS ? record : null
      this.#head.set(
        `,"method":${toText(method, chars)},"path":${toText(path, chars)},"route":${toTextOrNull(route, chars)}` +
          `,"fn":${toTextOrNull(fn, chars)},"version":${toTextOrNull(version, chars)}` +
          `,"runtime":${toTextOrNull(runtime, chars)},"status":${status},"dur_ms":`,
      )
    }
    if (chars !== TEXT_CHARS || this.#tailOf === null || !isSameTail(this.#tailOf, record)) {
      const { ip, userAgent } = record
      this.#tailOf = chars === TEXT_CHARS ? record : null
      this.#tail.set(`,"ip":${toText(ip, chars)},"ua":${toTextOrNull(userAgent, chars)},"trace_id":`)
    }
    const { error } = record
    if (chars !== TEXT_CHARS || this.#endOf !== error) {
      this.#endOf = chars === TEXT_CHARS ? error : undefined
      this.#end.set(error === null ? '}' : `,"error":${toText(error, chars)}}`)
    }
  }
}

function isSameHead(a: RequestRecord, b: RequestRecord): boolean {
  return (
    a.path === b.path &&
    a.status === b.status &&
    a.method === b.method &&
    a.route === b.route &&
    a.fn === b.fn &&
    a.version === b.version &&
    a.runtime === b.runtime
  )
}

function isSameTail(a: RequestRecord, b: RequestRecord): boolean {
  return a.ip === b.ip && a.userAgent === b.userAgent
}

function put(bytes: Buffer, at: number, segment: Buffer): number {
  bytes.set(segment, at)
  return at + segment.length
}

/** A short text of plain characters, in quotes. */
function putPlain(bytes: Buffer, from: number, text: string): number {
  let at = from
  bytes[at++] = QUOTE
  for (let i = 0; i < text.length; i++) bytes[at++] = text.charCodeAt(i)
  bytes[at++] = QUOTE
  return at
}

function putInteger(bytes: Buffer, at: number, value: number): number {
  let digits = 1
  for (let limit = 10; value >= limit; limit *= 10) digits += 1
  let rest = value
  for (let i = at + digits - 1; i >= at; i--) {
    bytes[i] = DIGIT_0 + (rest % 10)
    rest = Math.trunc(rest / 10)
  }
  return at + digits
}

function putThousandths(bytes: Buffer, at: number, value: number): number {
  bytes[at] = DIGIT_0 + Math.trunc(value / 100)
  bytes[at + 1] = DIGIT_0 + (Math.trunc(value / 10) % 10)
  bytes[at + 2] = DIGIT_0 + (value % 10)
  return at + 3
}

/** Milliseconds with three decimals; `0` for none. */
function putMs(bytes: Buffer, at: number, ms: number): number {
  const us = Math.round(ms * 1000)
  if (us <= 0) return putInteger(bytes, at, 0)
  const end = putInteger(bytes, at, Math.trunc(us / 1000))
  bytes[end] = DOT
  return putThousandths(bytes, end + 1, us % 1000)
}

function toText(text: string, chars: number): string {
  const kept = text.length > chars ? `${text.slice(0, chars)}...` : text
  if (!NEEDS_ESCAPE.test(kept)) return `"${kept}"`
  return escapeUnsafe(JSON.stringify(kept))
}

function toTextOrNull(text: string | null, chars: number): string {
  return text === null ? 'null' : toText(text, chars)
}
