/** When a function runs by itself, how it went, and running it now. Owner: page console/function. */

import { useState } from 'preact/hooks'
import { type ApiError, send } from '../../data/api.ts'
import { type FunctionId, toFunctionPage, toKey, toTarget } from '../../data/function-records.ts'
import { useLoad } from '../../data/load.ts'
import { type ScheduleRow, type Schedules, toMs, toRule } from '../../data/schedules.ts'
import { formatAgo, formatDate, formatMs, NO_DATA } from '../../format.ts'
import { Empty } from '../../parts/empty.tsx'
import { LoadState } from '../../parts/load-state.tsx'
import { NextRuns } from '../../parts/next-runs.tsx'
import { toHref } from '../../router.ts'
import { whyReadOnly } from '../../session.ts'
import { Facts } from '../../parts/facts.tsx'

export function ScheduleTab({ id }: { id: FunctionId }) {
  const loaded = useLoad<Schedules>('/_fn/schedules', {
    every: 5000,
    on: ['reload', 'schedule'],
  })
  if (loaded.data === null) return <LoadState loaded={loaded} />
  const row = loaded.data.schedules.find(({ key }) => key === toKey(id))
  return (
    <>
      <LoadState loaded={loaded} />
      {row === undefined ? <NoSchedule id={id} /> : <Schedule id={id} row={row} />}
    </>
  )
}

function NoSchedule({ id }: { id: FunctionId }) {
  return (
    <Empty title="No schedule">
      <p>
        Add this block to the function's fn.config.json to run it on a schedule (
        <a href={toHref(toFunctionPage(id), { tab: 'config', view: 'json' })}>edit</a>):
      </p>
      <pre>{'"schedule": { "cron": "0 7 * * 1-5", "timezone": "Europe/Berlin" }'}</pre>
    </Empty>
  )
}

function Schedule({ id, row }: { id: FunctionId; row: ScheduleRow }) {
  const [notice, setNotice] = useState<{ text: string; isError: boolean } | null>(null)
  const [isBusy, setBusy] = useState(false)
  const run = async (): Promise<void> => {
    setBusy(true)
    setNotice(null)
    try {
      const answer = await send<{ status: number | null; error: string | null; latency_ms: number }>(
        'POST',
        '/_fn/schedules/run',
        toTarget(id),
      )
      const isError = answer.error !== null && answer.error !== ''
      const status = answer.status === null ? 'no status' : `status ${answer.status}`
      setNotice({
        text: `${answer.error || `Returned ${status}`} after ${formatMs(answer.latency_ms)}.`,
        isError,
      })
    } catch (error) {
      setNotice({ text: (error as ApiError).message, isError: true })
    } finally {
      setBusy(false)
    }
  }
  return (
    <>
      <div class="bar-of-tab">
        <p role="status" class={notice?.isError === true ? 'error' : 'quiet'}>
          {notice?.text ?? whyReadOnly.value}
        </p>
        <button
          type="button"
          disabled={isBusy || whyReadOnly.value !== null}
          title={whyReadOnly.value ?? undefined}
          onClick={() => void run()}
        >
          Run now
        </button>
      </div>
      <Facts
        facts={[
          ['Runs', toRule(row.schedule)],
          [
            'Next',
            row.next === null ? 'never: the schedule is disabled' : `${formatAgo(toMs(row.next))} (${row.next_at})`,
          ],
          ['Last', row.last === null ? 'never' : `${formatDate(toMs(row.last))}, ${formatAgo(toMs(row.last))}`],
          ['Last status', row.last_status ?? NO_DATA],
          ['Last error', row.last_error === '' ? 'none' : <span class="error">{row.last_error}</span>],
          ...(row.retry_due === undefined
            ? []
            : ([['Next retry', `${formatAgo(toMs(row.retry_due))}, attempt ${row.retry_attempt}`]] as const)),
          ['Now', row.running ? 'running' : 'waiting'],
        ]}
      />
      {row.schedule !== null && (
        <div class="next-runs">
          <h3>Next runs</h3>
          <NextRuns row={row} />
        </div>
      )}
    </>
  )
}
