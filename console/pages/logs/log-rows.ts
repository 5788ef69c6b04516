/** Records of logs as rows: what they say in one line, and which of them are shown. Owner: page console/logs. */

import { formatBytes, formatMs } from '../../format.ts'

/** `GET /_fn/logs?format=json&records=1`; the fields of requests are there in the access log only. */
export interface LogRecord {
  readonly file: string
  /** As it is written, such as `2026-11-22T07:00:00.000Z`; null for a note about lines that are missing. */
  readonly time: string | null
  readonly level: string | null
  readonly request_id: string | null
  readonly trace_id: string | null
  readonly runtime: string | null
  readonly fn: string | null
  readonly version: string | null
  readonly stream: string | null
  readonly text: string
  readonly method?: string
  readonly path?: string
  readonly route?: string | null
  readonly status?: number
  readonly duration_ms?: number
  readonly queue_ms?: number
  readonly bytes_in?: number
  readonly bytes_out?: number
  readonly ip?: string
  readonly user_agent?: string | null
  readonly error?: string | null
}

export interface LogRow {
  /** Counts up; a row keeps it. */
  readonly id: number
  readonly record: LogRecord
  /** The text of the line. */
  readonly line: string
  /** Further lines of the same error. */
  readonly more: number
}

export const LEVELS: readonly string[] = ['info', 'warn', 'error']

interface RowFilter {
  /** The least level that is shown; '' all. */
  readonly level: string
  /** Words that all have to be in the line. */
  readonly search: string
  /** Requests of the console and of others to the gateway itself. */
  readonly hasOwn: boolean
}

export function toRow(record: LogRecord, id: number): LogRow {
  return { id, record, line: toLine(record), more: 0 }
}

/** True for a line that goes on with the error of the line before: the frames of a stack, the lines of a message. */
function isContinued({ record: before }: LogRow, { record }: LogRow): boolean {
  return (
    (record.file === 'error' || record.stream === 'stderr') &&
    (record.request_id ?? record.fn) !== null &&
    (['file', 'time', 'level', 'stream', 'request_id', 'runtime', 'fn'] as const).every(
      name => record[name] === before[name],
    )
  )
}

/** A request by what was asked and answered, anything else by its text. */
function toLine({ method, path, status, duration_ms: ms, bytes_out: bytes, error, text }: LogRecord): string {
  if (method === undefined || status === undefined) return text
  const why = error == null ? '' : ` – ${error}`
  return `${method} ${path ?? ''} → ${status} in ${formatMs(ms)}, ${formatBytes(bytes)}${why}`
}

/** The name of a function as its page's address has it; null for a line of no function. */
export function toFunctionKey({ runtime, fn, version }: Pick<LogRecord, 'runtime' | 'fn' | 'version'>): string | null {
  return runtime === null || fn === null ? null : `${runtime}/${fn}@${version ?? 'default'}`
}

const OWN_PATH = /^\/(?:_fn|console)(?:\/|$)/

export function findShown(rows: readonly LogRow[], { level, search, hasOwn }: RowFilter): readonly LogRow[] {
  const least = LEVELS.indexOf(level)
  const words = search
    .toLowerCase()
    .split(/\s+/)
    .filter(word => word !== '')
  if (least <= 0 && words.length === 0 && hasOwn) return rows
  return rows.filter(({ record, line }) => {
    if (!hasOwn && record.path !== undefined && OWN_PATH.test(record.path)) return false
    if (least > 0 && LEVELS.indexOf(record.level ?? '') < least) return false
    if (words.length === 0) return true
    const text = `${line} ${record.text} ${record.request_id ?? ''} ${record.fn ?? ''}`.toLowerCase()
    return words.every(word => text.includes(word))
  })
}

/** Rows that are kept: the newest, one for each error. */
export function addRows(rows: readonly LogRow[], added: readonly LogRow[], most: number): readonly LogRow[] {
  const all = [...rows]
  for (const row of added) {
    const before = all.at(-1)
    if (before === undefined || !isContinued(before, row)) all.push(row)
    else {
      const record = { ...before.record, text: `${before.record.text}\n${row.record.text}` }
      all[all.length - 1] = { ...before, record, more: before.more + 1 }
    }
  }
  return all.length > most ? all.slice(all.length - most) : all
}
