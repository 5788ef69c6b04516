/** One request: what caused it, its line in the access log, the output of its function and its failure. Owner: page console/logs. */

import { useEffect, useMemo, useState } from 'preact/hooks'
import { toJobId } from '../data/jobs.ts'
import { useLoad } from '../data/load.ts'
import { formatDate } from '../format.ts'
import { Dialog } from '../parts/dialog.tsx'
import { Empty } from '../parts/empty.tsx'
import { LoadState } from '../parts/load-state.tsx'
import { Page } from '../parts/page.tsx'
import { Table } from '../parts/table.tsx'
import { toHref } from '../router.ts'
import { RecordFields, REQUEST_COLUMNS, stateOfRow } from './logs/log-columns.tsx'
import { addRows, type LogRecord, type LogRow, toFunctionKey, toRow } from './logs/log-rows.ts'

const MOST_LINES = 2000
/** Milliseconds between two looks at a request that goes on. */
const AGAIN_MS = 2000

interface Answer {
  readonly records: readonly LogRecord[]
}

export function RequestPage({ rest }: { rest: string }) {
  const asked = { file: 'all', format: 'json', records: 1, lines: MOST_LINES, request_id: rest }
  const [isOver, setOver] = useState(false)
  const loaded = useLoad<Answer>('/_fn/logs', { query: asked, every: isOver ? 0 : AGAIN_MS })
  useEffect(() => setOver(loaded.data?.records.some(({ status }) => status !== undefined) ?? false), [loaded.data])
  const [open, setOpen] = useState<LogRow | null>(null)
  const rows = useMemo(() => addRows([], (loaded.data?.records ?? []).map(toRow), MOST_LINES), [loaded.data])
  const job = toJobId(rest)
  const access = rows.find(({ record }) => record.status !== undefined)
  return (
    <Page title={`Request ${rest}`} question="What happened?">
      <p>
        {job === null ? (
          toCause(rest, access)
        ) : (
          <>
            Attempt of job <a href={toHref('jobs', { id: job })}>{job}</a>.
          </>
        )}
      </p>
      <LoadState loaded={loaded} />
      {loaded.data !== null && rows.length === 0 && (
        <Empty title="No log lines for this request">
          <p>The gateway keeps the newest 1 MiB of each log. This request is older, or it wrote nothing.</p>
        </Empty>
      )}
      {rows.length > 0 && (
        <>
          <Summary records={rows.map(({ record }) => record)} access={access} />
          <Table
            label="Lines of the request"
            columns={REQUEST_COLUMNS}
            rows={rows}
            keyOf={({ id }) => String(id)}
            onOpen={setOpen}
            stateOf={stateOfRow}
          />
          {access !== undefined && (
            <section class="request-fields" aria-label="The request">
              <RecordFields record={access.record} />
            </section>
          )}
        </>
      )}
      <Dialog title="Line" isOpen={open !== null} onClose={() => setOpen(null)} class="line">
        {open !== null && <RecordFields record={open.record} />}
      </Dialog>
    </Page>
  )
}

/** Calls that no client made carry their cause in their id; only a request over HTTP has an access line. */
function toCause(id: string, access: LogRow | undefined): string {
  if (access !== undefined)
    return access.record.path === '/_fn/invoke' ? 'Invoked by name (console, command line or API).' : 'HTTP request.'
  if (id.startsWith('schedule-')) return 'Scheduled run.'
  if (id.startsWith('ping-')) return 'keep_warm ping.'
  return 'HTTP request that has not finished, or a call of the program that embeds the gateway.'
}

function Summary({ records, access }: { records: readonly LogRecord[]; access: LogRow | undefined }) {
  const keys = [...new Set(records.flatMap(record => toFunctionKey(record) ?? []))]
  const began = formatDate(Date.parse(records[0]?.time ?? ''))
  return (
    <>
      <p class="sentence mono">{access === undefined ? `Since ${began}.` : `${began}  ${access.line}`}</p>
      <p class="links">
        {keys.map(key => (
          <a href={toHref(`functions/${key}`)} key={key}>
            {key}
          </a>
        ))}
        {access?.record.path !== undefined && (
          <a href={toHref('routes', { method: access.record.method ?? null, path: access.record.path })}>
            Which function serves this?
          </a>
        )}
      </p>
    </>
  )
}
