/** One line per request, for people or for machines. Owner: page observe/log-store. */

import { toJsonString, toJsonStringOrNull } from '../core/json-text.ts'
import type { RequestRecord } from './events.ts'
import { toPrintable } from './log-text.ts'

/** Writes access lines; keeps the text of the current second. */
export class AccessLogFormat {
  #second = -1
  #clockText = ''
  #isoText = ''

  /** `12:03:04 200 GET /users/7 node users/[id].js 3.1ms 312B`, in local time. */
  toDevLine(record: RequestRecord): string {
    this.#readSecond(record.time)
    const handler = record.runtime === null ? '' : ` ${record.runtime} ${record.entryFile}`
    const line =
      `${this.#clockText} ${record.status} ${record.method} ${record.path}${handler}` +
      ` ${record.durationMs.toFixed(1)}ms ${record.bytesOut}B`
    return toPrintable(line)
  }

  /** One JSON object with the fields that log tools know. */
  toJsonLine(record: RequestRecord): string {
    this.#readSecond(record.time)
    const ms = String(Math.floor(record.time % 1000)).padStart(3, '0')
    const level = record.status >= 500 ? 'error' : record.status >= 400 ? 'warn' : 'info'
    return (
      `{"time":"${this.#isoText}.${ms}Z","level":"${level}","msg":"request","req_id":${toJsonString(record.id)}` +
      `,"method":${toJsonString(record.method)},"path":${toJsonString(record.path)}` +
      `,"route":${toJsonStringOrNull(record.route)},"fn":${toJsonStringOrNull(record.fn)}` +
      `,"version":${toJsonStringOrNull(record.version)},"runtime":${toJsonStringOrNull(record.runtime)}` +
      `,"status":${record.status},"dur_ms":${toMs(record.durationMs)},"queue_ms":${toMs(record.queuedMs)}` +
      `,"bytes_in":${record.bytesIn},"bytes_out":${record.bytesOut},"ip":${toJsonString(record.ip)}` +
      `,"ua":${toJsonStringOrNull(record.userAgent)},"trace_id":${toJsonStringOrNull(record.traceId)}` +
      `${record.error === null ? '' : `,"error":${toJsonString(record.error)}`}}`
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
}

/** Milliseconds with three decimals at most; toFixed costs three times as much. */
function toMs(ms: number): number {
  return Math.round(ms * 1000) / 1000
}
