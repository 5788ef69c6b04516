/** Columns of log lines, and a line with everything that is known of it. Owner: page console/logs. */

import { formatBytes, formatClock, formatMs, formatNumberOf, NO_DATA } from '../../format.ts'
import type { Column } from '../../parts/table.tsx'
import { TextBox } from '../../parts/text-box.tsx'
import { toHref } from '../../router.ts'
import { type LogRecord, type LogRow, toFunctionKey } from './log-rows.ts'

const LEVEL_LOOKS: Readonly<Record<string, string>> = { warn: 'warning', error: 'error' }

const TIME: Column<LogRow> = {
  name: 'time',
  title: 'Time',
  width: '88px',
  cell: ({ record }) => (record.time === null ? NO_DATA : formatClock(Date.parse(record.time))),
}

const LEVEL: Column<LogRow> = {
  name: 'level',
  title: 'Level',
  width: '64px',
  cell: ({ record: { level } }) => <span class={LEVEL_LOOKS[level ?? '']}>{level ?? ''}</span>,
}

const FROM: Column<LogRow> = {
  name: 'from',
  title: 'Source',
  width: '88px',
  drop: 2,
  cell: ({ record: { file, stream } }) => stream ?? (file === 'runtime' ? 'output' : file),
}

const LINE: Column<LogRow> = {
  name: 'line',
  title: 'Line',
  width: '220px',
  long: ({ record }) => record.text,
  cell: ({ line, more }) => (
    <code class="log-line">
      <span>{line}</span>
      {more > 0 && <span class="quiet">+{formatNumberOf(more, 'line')}</span>}
    </code>
  ),
}

const FUNCTION: Column<LogRow> = {
  name: 'function',
  title: 'Function',
  drop: 2,
  cell: ({ record }) => {
    const key = toFunctionKey(record)
    return key === null ? '' : <a href={toHref(`functions/${key}`)}>{record.fn}</a>
  },
}

const REQUEST: Column<LogRow> = {
  name: 'request',
  title: 'Request',
  drop: 1,
  cell: ({ record: { request_id: id } }) => (id === null ? '' : <a href={toHref(`requests/${id}`)}>{id}</a>),
}

/** Of lines of many requests. */
export const LOG_COLUMNS: readonly Column<LogRow>[] = [TIME, LEVEL, FROM, LINE, FUNCTION, REQUEST]
/** Of lines of one. */
export const REQUEST_COLUMNS: readonly Column<LogRow>[] = [TIME, LEVEL, FROM, LINE]

export const stateOfRow = ({ record: { level } }: LogRow): string | null =>
  level === 'error' ? 'failing' : level === 'warn' ? 'degraded' : null

const NAMES: readonly (readonly [keyof LogRecord, string])[] = [
  ['time', 'Time'],
  ['level', 'Level'],
  ['file', 'Log'],
  ['stream', 'Stream'],
  ['method', 'Method'],
  ['path', 'Path'],
  ['route', 'Route'],
  ['status', 'Status'],
  ['duration_ms', 'Duration'],
  ['queue_ms', 'Queued'],
  ['bytes_in', 'Received'],
  ['bytes_out', 'Sent'],
  ['error', 'Error'],
  ['runtime', 'Runtime'],
  ['fn', 'Function'],
  ['version', 'Version'],
  ['request_id', 'Request'],
  ['trace_id', 'Trace'],
  ['ip', 'Client'],
  ['user_agent', 'User agent'],
]

function toShown(name: keyof LogRecord, value: string | number | null | undefined): string {
  if (typeof value !== 'number') return value ?? ''
  return name.endsWith('_ms') ? formatMs(value) : name.startsWith('bytes') ? formatBytes(value) : String(value)
}

/** All that a line says, by name. */
export function RecordFields({ record }: { record: LogRecord }) {
  const known = NAMES.filter(([name]) => record[name] !== null && record[name] !== undefined)
  return (
    <>
      {record.method === undefined && <TextBox label="Text" text={record.text} />}
      <dl class="pairs">
        {known.map(([name, title]) => (
          <div key={name}>
            <dt>{title}</dt>
            <dd>
              {name === 'request_id' ? (
                <a href={toHref(`requests/${String(record[name])}`)}>{String(record[name])}</a>
              ) : (
                toShown(name, record[name])
              )}
            </dd>
          </div>
        ))}
      </dl>
    </>
  )
}
