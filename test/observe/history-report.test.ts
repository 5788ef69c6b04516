import t from 'tap'
import { parseHistoryReport, sumHistoryReports, toHistoryReport } from '../../lib/observe/history-report.ts'
import { History, HistoryView } from '../../lib/observe/history.ts'
import { fromReported, LogHistogram, Metrics, sumCounts, toReported, toTotal } from '../../lib/observe/metrics.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'

const HELLO = makeFn({ name: 'hello' })

/** A gateway that counts. @param aheadMs - of its wall clock */
function gateway(functions = [HELLO], aheadMs = 0) {
  const clock = new FakeClock()
  if (aheadMs > 0) clock.advance(aheadMs)
  const metrics = new Metrics()
  metrics.functions.adopt(new Map(functions.map(fn => [fn.key, fn])))
  const gauges = { waiting: 0, workers: 0 }
  const history = new History({
    ...{ clock, metrics, onProblem: problem => t.fail(problem) },
    waiting: () => [[HELLO.key, gauges.waiting]],
    workers: () => [[HELLO.key, gauges.workers]],
  })
  // The middle of a step, so that no reading is near an edge.
  clock.advance(5000 - (clock.wall() % 5000) + 2500)
  history.start()
  /** As it is received. */
  const send = async (window: '5m' | '24h' = '5m') =>
    JSON.parse(JSON.stringify(await toHistoryReport(history.read()!, functions, window))) as Record<string, unknown>
  return { clock, metrics, gauges, history, send }
}

t.test('[observe/history-report.1] the report of one gateway has the numbers of its history', async t => {
  const one = gateway()
  for (let i = 1; i <= 100; i++) one.metrics.request('GET', i > 97 ? 500 : i > 90 ? 404 : 200, HELLO, i, i > 50 ? i : 0)
  one.metrics.request('GET', 429, HELLO, 0, 0, false, true)
  one.gauges.waiting = 3
  one.clock.advance(5000)
  one.gauges.workers = 2
  const sum = sumHistoryReports([parseHistoryReport(await one.send(), '5m')], '5m', one.clock.wall())
  const view = new HistoryView(one.history.read()!, '5m')
  const { all } = one.history.read()!
  t.same(sum.series, view.toSeries(all))
  t.same(sum.times, view.times)
  t.same(sum.totals, view.toTotals(all))
  t.same(sum.runtimes, { node: view.toTotals(one.history.read()!.runtimes.get('node')!) })
  t.same(sum.functions, [view.toSummary(HELLO)])
  t.equal(sum.started_at, one.history.read()!.startedAt / 1000)
})

t.test('[observe/history-report.2] gateways are added, and percentiles come from all requests', async t => {
  const [fast, slow] = [gateway(), gateway()]
  for (let i = 0; i < 99; i++) fast.metrics.request('GET', 200, HELLO, 1, 0)
  slow.clock.advance(1)
  slow.history.failed(HELLO.key, 'the newer')
  fast.history.failed(HELLO.key, 'the older')
  slow.metrics.request('GET', 500, HELLO, 1000, 0)
  Object.assign(fast.gauges, { waiting: 1, workers: 2 })
  Object.assign(slow.gauges, { waiting: 4, workers: 3 })
  const reports = [parseHistoryReport(await fast.send(), '5m'), parseHistoryReport(await slow.send(), '5m')]
  const { series, totals, functions } = sumHistoryReports(reports, '5m', fast.clock.wall())
  t.match(totals, { requests: 100, errors_5xx: 1, p50_ms: 1, p95_ms: 1 })
  t.equal(series.queue_depth.at(-1), 5)
  t.equal(series.workers.at(-1), 5)
  t.match(functions, [{ key: HELLO.key, name: 'hello', version: 'default', requests: 100, last_error: 'the newer' }])
  for (let i = 0; i < 20; i++) slow.metrics.request('GET', 200, HELLO, 1000, 0)
  reports[1] = parseHistoryReport(await slow.send(), '5m')
  const { p50_ms: half, p95_ms: most } = sumHistoryReports(reports, '5m', fast.clock.wall()).totals
  t.equal(half, 1)
  t.ok(most! > 940 && most! <= 1000, `${most}, not the mean of two percentiles`)
})

t.test('[observe/history-report.3] a step that no gateway knows is unknown, and one that is to come waits', async t => {
  const [early, late] = [gateway(), gateway([HELLO], 100_000)]
  early.metrics.request('GET', 200, HELLO, 1, 0)
  late.metrics.request('GET', 200, HELLO, 1, 0)
  const reports = [parseHistoryReport(await early.send(), '5m'), parseHistoryReport(await late.send(), '5m')]
  const sumAt = (now: number) =>
    sumHistoryReports(reports, '5m', now).series.requests.flatMap((count, index) =>
      count === null ? [] : [[index, count]],
    )
  t.same(sumAt(early.clock.wall()), [[59, 1]], 'a clock that is ahead')
  t.same(sumAt(late.clock.wall()), [
    [39, 1],
    [59, 1],
  ])
  t.same(sumHistoryReports(reports, '24h', late.clock.wall()).times.length, 144)
})

t.test('[observe/history-report.4] a report has 100 functions: those that failed most, and the slowest', async t => {
  const functions = Array.from({ length: 300 }, (_, i) => makeFn({ name: `f${i}` }))
  const one = gateway(functions)
  for (const [i, fn] of functions.entries()) one.metrics.request('GET', i < 3 ? 500 : 200, fn, i + 1, 0)
  const sent = await one.send('24h')
  const names = (sent.functions as [string][]).map(([key]) => key)
  t.equal(names.length, 100)
  for (const key of [functions[0]!.key, functions[2]!.key, functions[299]!.key, functions[260]!.key])
    t.ok(names.includes(key), key)
  t.equal(sent.left_out, 200)
  t.ok(JSON.stringify(sent).length < 30_000, `${JSON.stringify(sent).length} characters`)
})

t.test('[observe/history-report.4] a histogram stays small at any count', async t => {
  const counts = new LogHistogram()
  counts.observe(1)
  let many = counts.take()
  // 2^30 requests.
  for (let i = 0; i < 30; i++) many = sumCounts(many, many)
  const reported = toReported(many)
  t.same([reported.length, reported[1]], [2, 2 ** 30], 'empty buckets, and the count')
  t.equal(toTotal(fromReported(reported)!), 2 ** 30)
})

t.test('[observe/history-report.5] what is not a report is refused', async t => {
  const one = gateway()
  one.metrics.request('GET', 500, HELLO, 1, 0)
  const sent = await one.send()
  const step = (sent.steps as unknown[][])[0]!
  const fn = (sent.functions as unknown[][])[0]!
  const swap = (row: unknown[], at: number, value: unknown): unknown[] => row.map((old, i) => (i === at ? value : old))
  t.ok(parseHistoryReport(sent, '5m'))
  for (const [name, broken] of Object.entries({
    nothing: {},
    'no list': { ...sent, steps: 'x' },
    'too many steps': { ...sent, steps: Array(61).fill(step) },
    'a step of text': { ...sent, steps: ['x'] },
    'a negative count': { ...sent, steps: [swap(step, 3, -1)] },
    'no number': { ...sent, steps: [swap(step, 3, null)] },
    'no such bucket': { ...sent, steps: [swap(step, 7, [-400, 1, -100, 1])] },
    'an endless count': { ...sent, steps: [swap(step, 7, [5, 1e300])] },
    'half a count': { ...sent, steps: [swap(step, 7, [5, 0.5])] },
    'a histogram that is long': { ...sent, steps: [swap(step, 7, Array(500).fill(1))] },
    'a far bucket': { ...sent, steps: [swap(step, 7, [-1e9, 1])] },
    'a short row': { ...sent, steps: [step.slice(0, 5)] },
    'too many functions': { ...sent, functions: Array(101).fill(fn) },
    'a long key': { ...sent, functions: [swap(fn, 0, 'x'.repeat(501))] },
    'a key of no text': { ...sent, functions: [swap(fn, 0, 5)] },
    'too many columns': { ...sent, functions: [swap(fn, 3, Array(41).fill(1))] },
    'too many runtimes': { ...sent, runtimes: Array(21).fill((sent.runtimes as unknown[])[0]) },
    'no start': { ...sent, started_at: 'now' },
  }))
    t.throws(() => parseHistoryReport(broken, '5m'), { message: 'the report has another form' }, name)
  const proto = parseHistoryReport({ ...sent, functions: [swap(fn, 0, '__proto__')] }, '5m')
  t.match(sumHistoryReports([proto], '5m', one.clock.wall()).functions, [{ key: '__proto__', name: '__proto__' }])
})
