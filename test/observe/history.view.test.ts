import t from 'tap'
import { LogHistogram } from '../../lib/observe/metrics.ts'
import { createStepNumbers, HistoryStore, StepTime, TIERS, WINDOWS, HistoryView } from '../../lib/observe/history.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'

const HELLO = makeFn({ name: 'hello' })

function setup() {
  const clock = new FakeClock()
  clock.advance(600_000 - (clock.wall() % 600_000))
  const store = new HistoryStore(new StepTime(clock), 10)
  /** Counts so many requests of a duration now. */
  const count = (requests: number, ms: number) => {
    store.open(store.time.now())
    const durations = new LogHistogram()
    for (let i = 0; i < requests; i++) durations.observe(ms)
    store.called(HELLO.key)!.add(store.takenAt, { ...createStepNumbers(), durations: durations.take() })
  }
  return { clock, store, count }
}

t.test('[observe/history.1] each window has its steps, and the last one is now', t => {
  const { clock, store, count } = setup()
  count(1, 1)
  clock.advance(7000)
  store.open(store.time.now())
  for (const window of WINDOWS) {
    const view = new HistoryView(store, window)
    const { stepMs, steps } = TIERS[window]
    const { times } = view
    t.equal(view.stepMs, stepMs)
    t.equal(times.length, steps)
    t.equal(times.at(-1), Math.floor(clock.wall() / stepMs) * (stepMs / 1000))
    t.equal(times.at(-1)! - times[0]!, ((steps - 1) * stepMs) / 1000)
    const series = view.toFunctionSeries(HELLO.key)
    for (const row of Object.values(series)) t.equal(row.length, steps)
  }
  t.end()
})

t.test('[observe/history.3] a percentile of nothing is null where a count is 0', t => {
  const { clock, store, count } = setup()
  count(2, 1)
  clock.advance(5000)
  store.open(store.time.now())
  const { requests, p50_ms, queue_wait_p95_ms, workers } = new HistoryView(store, '5m').toFunctionSeries(HELLO.key)
  t.same(
    [requests.slice(-3), p50_ms.slice(-3)],
    [
      [null, 2, 0],
      [null, 1, null],
    ],
  )
  t.same(
    [queue_wait_p95_ms.slice(-2), workers.slice(-2)],
    [
      [null, null],
      [0, 0],
    ],
  )
  t.end()
})

t.test('[observe/history.4] percentiles of several steps come from their buckets', t => {
  const { clock, store, count } = setup()
  count(99, 1)
  clock.advance(5000)
  count(1, 5000)
  const view = new HistoryView(store, '5m')
  const { p50_ms, p99_ms } = view.toFunctionSeries(HELLO.key)
  t.same(
    p99_ms.slice(-2).map(value => value! > 2500),
    [false, true],
  )
  t.match(view.toSummary(HELLO), { requests: 100, p50_ms: Number, p99_ms: 1 })
  t.ok(p50_ms.at(-1)! > 2500)
  clock.advance(5000)
  count(100, 1e6)
  const { p99_ms: most } = new HistoryView(store, '5m').toSummary(HELLO)
  t.ok(most! > 940_000 && most! <= 1e6, `${most} of 1,000,000 ms`)
  t.end()
})

t.test('[observe/history.1] thirty columns hold what the window holds', t => {
  for (const window of WINDOWS) {
    const { clock, store, count } = setup()
    const { stepMs, steps } = TIERS[window]
    for (let i = 0; i < steps; i++) {
      count(i === steps - 1 ? 5 : 1, 1)
      if (i < steps - 1) clock.advance(stepMs)
    }
    const { spark, requests } = new HistoryView(store, window).toSummary(HELLO)
    t.equal(spark.length, 30, window)
    t.equal(requests, steps + 4)
    t.equal(
      spark.reduce((a, b) => a + b, 0),
      requests,
    )
    t.ok(spark.at(-1)! > spark[0]!, JSON.stringify(spark))
  }
  t.end()
})

t.test('[observe/history.7] what was not known is not nothing', t => {
  const { clock, store, count } = setup()
  clock.advance(60_000)
  store.open(store.time.now())
  store.leftOut.add(HELLO.key)
  const left = new HistoryView(store, '5m').toFunctionSeries(HELLO.key)
  t.same(left.requests.slice(-1), [null])
  clock.advance(5000)
  count(3, 1)
  const back = new HistoryView(store, '5m').toFunctionSeries(HELLO.key)
  t.same(back.requests.slice(-2), [null, 3])
  const never = new HistoryView(store, '5m').toSeries(null)
  t.same(never.requests.slice(-2), [0, 0])
  t.end()
})
