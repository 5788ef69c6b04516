/** The charts of everything, or of one function: throughput, latency, errors, queue, workers, cold starts. Owner: page console/overview. */

import { useMemo } from 'preact/hooks'
import type { History, Row } from '../data/history.ts'
import { formatCount, formatMs, formatNumberOf, formatRate, formatShare } from '../format.ts'
import { toKnownSeconds, toLast, toMost, toRates, toSum } from '../series.ts'
import { Chart } from './chart.tsx'

/** Redrawn only when its numbers change, however often the page renders. */
export function HistoryCharts({ history }: { history: History }) {
  return useMemo(() => <Charts history={history} />, [history])
}

function Charts({ history }: { history: History }) {
  const { times, series, totals } = history
  const scope = history.fleet == null ? '' : ', fleet'
  const count = { format: formatCount, isWhole: true } as const
  const time = { format: formatMs } as const
  const rates = toRates(series.requests, history)
  const perStep = `per ${formatMs(history.step_ms)}`
  const errors = [series.errors_4xx, series.errors_5xx, series.throttled]
  const errorShape = errors.every(row => toShape(row) === 'bars') ? 'bars' : 'line'
  return (
    <div class="charts">
      <Chart
        title="Throughput"
        unit={`requests per second${scope}`}
        times={times}
        lines={[
          { label: 'requests', values: rates, tone: 'accent', format: formatRate, shape: toShape(series.requests) },
        ]}
        summary={toThroughputText(history, rates)}
      />
      <Chart
        title="Latency"
        unit={`duration${scope}`}
        times={times}
        lines={[
          { label: 'p50', values: series.p50_ms, tone: 'quiet', ...time },
          { label: 'p95', values: series.p95_ms, tone: 'accent', ...time },
          { label: 'p99', values: series.p99_ms, tone: 'text', isDashed: true, ...time },
          { label: 'queue p95', values: series.queue_wait_p95_ms, tone: 'quiet', isDashed: true, ...time },
        ]}
        summary={
          totals.requests === 0
            ? 'No requests.'
            : `p50 ${formatMs(totals.p50_ms)}, p95 ${formatMs(totals.p95_ms)}, p99 ${formatMs(totals.p99_ms)}`
        }
      />
      <Chart
        title="Errors"
        unit={`responses ${perStep}${scope}`}
        times={times}
        lines={[
          { label: '4xx', values: series.errors_4xx, tone: 'degraded', isDashed: true, shape: errorShape, ...count },
          { label: '5xx', values: series.errors_5xx, tone: 'failing', shape: errorShape, ...count },
          { label: 'throttled', values: series.throttled, tone: 'text', shape: errorShape, ...count },
        ]}
        summary={toErrorsText(history)}
      />
      <Chart
        title="Queue"
        unit={`calls waiting${scope}`}
        times={times}
        lines={[{ label: 'waiting', values: series.queue_depth, tone: 'accent', shape: 'steps', ...count }]}
        summary={toQueueText(history)}
      />
      <Chart
        title="Workers"
        unit={`running${scope}`}
        times={times}
        lines={[{ label: 'workers', values: series.workers, tone: 'accent', shape: 'steps', ...count }]}
        summary={`${formatCount(toLast(series.workers))} now, up to ${formatCount(toMost(series.workers))}`}
      />
      <Chart
        title="Cold starts"
        unit={`starts ${perStep}${scope}`}
        times={times}
        lines={[{ label: 'cold starts', values: series.cold_starts, tone: 'accent', shape: 'bars', ...count }]}
        summary={formatNumberOf(toSum(series.cold_starts), 'cold start')}
      />
    </div>
  )
}

/** Up to this many in a step, each is seen as a bar: a line would suggest values between them. */
const FEW_A_STEP = 10

const toShape = (row: Row): 'bars' | 'line' => ((toMost(row) ?? 0) <= FEW_A_STEP ? 'bars' : 'line')

function toThroughputText(history: History, rates: readonly (number | null)[]): string {
  const { series, totals } = history
  const seconds = toKnownSeconds(series.requests, history)
  const mean = seconds === 0 ? null : totals.requests / seconds
  return `${formatNumberOf(totals.requests, 'request')}, ${formatRate(mean)}, up to ${formatRate(toMost(rates))}`
}

function toErrorsText({ totals: { requests, errors_4xx: refused, errors_5xx: failed, throttled } }: History): string {
  const share = (count: number): string => (count === 0 ? '' : ` (${formatShare(count / requests)})`)
  return `${formatCount(refused)} of 4xx${share(refused)}, ${formatCount(failed)} of 5xx${share(failed)}, ${formatCount(throttled)} throttled${share(throttled)}`
}

function toQueueText({ series }: History): string {
  const wait = toMost(series.queue_wait_p95_ms)
  const waiting = `Up to ${formatCount(toMost(series.queue_depth))} waiting`
  return wait === null ? `${waiting}, no call waited` : `${waiting}, wait p95 up to ${formatMs(wait)}`
}
