import t from 'tap'
import { COUNTER } from '../../lib/observe/function-metrics.ts'
import { createStepNumbers, HistorySeries, TIERS, type WindowName } from '../../lib/observe/history-series.ts'

const START = 1_700_000_400_000

function numbers({ requests = 0, waits = 0, queued = 0, workers = 0 }) {
  const made = createStepNumbers()
  made.counts[COUNTER.durations + 3] = requests
  made.counts[COUNTER.errors5xx] = requests
  made.counts[COUNTER.waits + 1] = waits
  return Object.assign(made, { queued, workers })
}

function read(series: HistorySeries, name: WindowName, instant: number) {
  const into = createStepNumbers()
  series.addStep(name, Math.floor(instant / TIERS[name].stepMs), into)
  const { counts, queued, workers } = into
  return [counts[COUNTER.durations + 3], counts[COUNTER.errors5xx], counts[COUNTER.waits + 1], ...[queued, workers]]
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
