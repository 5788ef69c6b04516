import t from 'tap'
import { LogHistogram, toTotal } from '../../lib/observe/metrics.ts'
import { createStepNumbers, HistorySeries, TIERS, type WindowName } from '../../lib/observe/history.ts'

const START = 1_700_000_400_000

function durationsOf(count: number) {
  const histogram = new LogHistogram()
  for (let i = 0; i < count; i++) histogram.observe(3)
  return histogram.take()
}

function numbers({ requests = 0, waits = 0, queued = 0, workers = 0 }) {
  const counts = { durations: durationsOf(requests), errors5xx: requests, waits: durationsOf(waits) }
  return { ...createStepNumbers(), ...counts, queued, workers }
}

function read(series: HistorySeries, name: WindowName, instant: number) {
  const numbers = series.stepOf(name, Math.floor(instant / TIERS[name].stepMs)) ?? createStepNumbers()
  const { durations, errors5xx, waits, queued, workers } = numbers
  return [toTotal(durations), errors5xx, toTotal(waits), queued, workers]
}

t.test('[observe/history.5] counts are added to the step of every window, gauges are the most that was seen', t => {
  const series = new HistorySeries(START)
  series.add(START, numbers({ requests: 3, queued: 5, workers: 1 }))
  series.add(START + 4999, numbers({ requests: 4, waits: 2, queued: 1, workers: 2 }))
  series.add(START + 5000, numbers({ requests: 10, workers: 1 }))
  t.same(read(series, '5m', START), [7, 7, 2, 5, 2])
  t.same(read(series, '5m', START + 5000), [10, 10, 0, 0, 1])
  t.same(read(series, '1h', START), [17, 17, 2, 5, 2])
  t.same(read(series, '24h', START), [17, 17, 2, 5, 2])
  t.same(read(series, '5m', START + 300_000), [0, 0, 0, 0, 0], 'of a step that nobody wrote')
  t.end()
})

t.test('[observe/history.1] each window keeps its steps, and no more', t => {
  const series = new HistorySeries(START)
  for (let instant = START; instant < START + 86_400_000; instant += 5000)
    series.add(instant, numbers({ requests: 1, waits: 1 }))
  const last = START + 86_400_000 - 5000
  for (const [name, { stepMs, steps }] of Object.entries(TIERS)) {
    const perStep = stepMs / 5000
    const window = name as WindowName
    t.same(read(series, window, last), [perStep, perStep, perStep, 0, 0], name)
    t.same(read(series, window, last - (steps - 1) * stepMs), [perStep, perStep, perStep, 0, 0], `${name}, the oldest`)
    t.same(read(series, window, last - steps * stepMs), [0, 0, 0, 0, 0], `${name}, before it`)
  }
  t.end()
})

/** Requests of steps of 5 s, numbered from the first; null where nothing is kept. */
function requestsOf(series: HistorySeries, steps: readonly number[]): (number | null)[] {
  return steps.map(step => {
    const numbers = series.stepOf('5m', START / 5000 + step)
    return numbers === null ? null : toTotal(numbers.durations)
  })
}

t.test('[observe/history.1] a step is written again, and the oldest is dropped when a new one comes', t => {
  const series = new HistorySeries(START)
  t.same(requestsOf(series, [0, 1]), [null, null], 'nothing was written')
  for (const [step, requests] of [
    [0, 1],
    [0, 2],
    [1, 5],
  ] as const)
    series.add(START + step * 5000, numbers({ requests }))
  t.same(requestsOf(series, [-1, 0, 1, 2]), [null, 3, 5, null])
  series.add(START + 60 * 5000, numbers({ requests: 7 }))
  t.same(requestsOf(series, [0, 1, 2, 59, 60]), [null, 5, null, null, 7])
  t.end()
})

t.test('[observe/history.1] after a long time without a word nothing of the past is left', t => {
  for (const gap of [60, 61, 1000, 1e6]) {
    const series = new HistorySeries(START)
    for (const step of [0, 1, 2]) series.add(START + step * 5000, numbers({ requests: 9 }))
    series.add(START + (2 + gap) * 5000, numbers({ requests: 1 }))
    t.same(requestsOf(series, [0, 1, 2, 1 + gap, 2 + gap]), [null, null, null, null, 1], `${gap} steps later`)
  }
  t.end()
})
