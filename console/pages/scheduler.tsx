/** Schedules and pings: what runs by itself, when, and how it went. Owner: page console/scheduler. */

import { useState } from 'preact/hooks'
import { type ApiError, send } from '../data/api.ts'
import { useLoad } from '../data/load.ts'
import { findNext, type Schedules, type ScheduleRow, toRule, toTarget } from '../data/schedules.ts'
import { formatMs } from '../format.ts'
import { Empty } from '../parts/empty.tsx'
import { LoadState } from '../parts/load-state.tsx'
import { NextRuns } from '../parts/next-runs.tsx'
import { Page } from '../parts/page.tsx'
import { Table } from '../parts/table.tsx'
import { query, setQuery } from '../router.ts'
import { PING_COLUMNS, stateOf, toScheduleColumns } from './scheduler/schedule-columns.tsx'

/** Milliseconds: "in 5 s" has to stay true. */
const AGAIN_MS = 5000

export function SchedulerPage() {
  const loaded = useLoad<Schedules>('/_fn/schedules', { every: AGAIN_MS, on: ['schedule', 'reload'] })
  const [notice, setNotice] = useState<{ text: string; isError: boolean } | null>(null)
  const [running, setRunning] = useState<string | null>(null)
  const { data } = loaded
  const run = async (row: ScheduleRow): Promise<void> => {
    setRunning(row.key)
    setNotice(null)
    try {
      const answer = await send<RunAnswer>('POST', '/_fn/schedules/run', toTarget(row))
      setNotice(toOutcome(row, answer))
    } catch (error) {
      setNotice({ text: `${row.key}: ${(error as ApiError).message}`, isError: true })
    } finally {
      setRunning(null)
      loaded.reload()
    }
  }
  const asked = query.value.get('key')
  const shown = data?.schedules.find(({ key }) => key === asked) ?? findNext(data?.schedules ?? [])
  return (
    <Page title="Schedules" question="What will run, and when?">
      <LoadState loaded={loaded} />
      {data !== null && (
        <>
          <p role="status" class={notice?.isError === true ? 'error notice' : 'notice'}>
            {notice?.text}
          </p>
          {shown !== null && (
            <section class="next-runs" aria-label="Next runs">
              <h2>
                Next runs of {shown.key} <small>{toRule(shown.schedule)}</small>
              </h2>
              <NextRuns row={shown} />
            </section>
          )}
          <h2>Schedules</h2>
          <Table
            label="Schedules"
            columns={toScheduleColumns(running, row => void run(row))}
            rows={data.schedules}
            keyOf={({ key }) => key}
            onOpen={({ key }) => setQuery({ key })}
            stateOf={stateOf}
            empty={<NoSchedules />}
          />
          <h2 class="section-head">Kept warm</h2>
          <Table
            label="Kept warm"
            columns={PING_COLUMNS}
            rows={data.keep_warm}
            keyOf={({ key }) => key}
            stateOf={stateOf}
            empty={<NoPings />}
          />
        </>
      )}
    </Page>
  )
}

interface RunAnswer {
  readonly status: number | null
  readonly error: string
  readonly latency_ms: number
}

function toOutcome({ key }: ScheduleRow, { status, error, latency_ms: ms }: RunAnswer) {
  const isError = error !== ''
  return { text: `${key} ran in ${formatMs(ms)}: ${isError ? error : `status ${status ?? 'unknown'}`}`, isError }
}

function NoSchedules() {
  return (
    <Empty title="No schedules">
      <p>Add this to a function's fn.config.json to run it on a schedule:</p>
      <pre>{'"schedule": { "cron": "0 7 * * 1-5", "timezone": "Europe/Berlin" }'}</pre>
    </Empty>
  )
}

function NoPings() {
  return (
    <Empty title="No functions are kept warm">
      <p>Add this to a function's fn.config.json to keep workers ready:</p>
      <pre>{'"keep_warm": { "enabled": true, "min_warm": 1 }'}</pre>
    </Empty>
  )
}
