import t from 'tap'
import { History, type HistorySeries, type TIERS, WINDOWS, HistoryView } from '../../lib/observe/history.ts'
import { Metrics, toTotal } from '../../lib/observe/metrics.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'

const HELLO = makeFn({ name: 'hello' })
const OTHER = makeFn({ name: 'other', runtime: 'python' })

function setup({ maxFunctions = 10 } = {}) {
  const clock = new FakeClock()
  const metrics = new Metrics()
  const adopt = (...functions: ReturnType<typeof makeFn>[]) =>
    metrics.functions.adopt(new Map(functions.map(fn => [fn.key, fn])))
  adopt(HELLO, OTHER)
  const problems: string[] = []
  const gauges = { waiting: [] as [string, number][], workers: [] as [string, number][] }
  const history = new History({
    clock,
    metrics,
    waiting: () => gauges.waiting,
    workers: () => gauges.workers,
    maxFunctions,
    onProblem: message => problems.push(message),
  })
  const view = (window: keyof typeof TIERS = '5m') => new HistoryView(history.read()!, window)
  /** Counts of everything in the last steps. */
  const requests = (last: number, window: keyof typeof TIERS = '5m') =>
    view(window).toSeries(history.read()!.all).requests.slice(-last)
  /** To the middle of the next step, so that no reading is near an edge. */
  clock.advance(5000 - (clock.wall() % 5000) + 2500)
  return { clock, metrics, adopt, gauges, problems, history, view, requests }
}

const sum = (row: (number | null)[]): number => row.reduce<number>((total, value) => total + (value ?? 0), 0)

/** Requests of a series since it began. */
function totalOf(series: HistorySeries | undefined, instant: number): number {
  return toTotal(series?.stepOf('24h', Math.floor(instant / 600_000))?.durations ?? '')
}

t.test('[observe/history.1, observe/history.3] what is counted is in the step in which it was, and at once', t => {
  const { clock, metrics, history, requests } = setup()
  t.equal(history.read(), null, 'nothing is kept before somebody wants it')
  metrics.request('GET', 200, HELLO, 1, 0)
  history.start()
  history.start()
  t.equal(clock.pending, 1)
  t.same(requests(3), [null, null, 0], 'what was before is not known')
  for (let i = 0; i < 7; i++) metrics.request('GET', 200, HELLO, 1, 0)
  t.same(requests(2), [null, 7])
  metrics.request('GET', 200, null, 1, 0)
  clock.advance(5000)
  t.same(requests(2), [8, 0])
  metrics.request('GET', 200, null, 1, 0)
  t.same(requests(3), [null, 8, 1])
  clock.advance(5000)
  clock.advance(300_000)
  t.same(new Set(requests(60)), new Set([0]))
  t.equal(sum(requests(60, '1h')), 9)
  t.equal(sum(requests(144, '24h')), 9)
  history.close()
  t.equal(clock.pending, 0)
  metrics.request('GET', 200, null, 1, 0)
  t.equal(sum(requests(60, '1h')), 10, 'it is told as long as somebody asks')
  history.stop()
  t.equal(history.read(), null)
  t.end()
})

t.test('[observe/history.2] everything is public requests; functions and runtimes are called through every door', t => {
  const { metrics, history, view } = setup()
  history.start()
  metrics.request('GET', 200, HELLO, 1, 0)
  metrics.request('GET', 404, null, 1, 0)
  metrics.request('GET', 499, null, 1, 0)
  metrics.request('GET', 500, OTHER, 1, 0)
  metrics.request('GET', 200, null, 1, 0, true)
  metrics.request('GET', 503, null, 1, 0, true)
  metrics.functions.count(HELLO, 502, 1, 30)
  metrics.functions.coldStart(OTHER)
  const store = history.read()!
  t.match(view().toTotals(store.all), { requests: 4, errors_4xx: 2, errors_5xx: 1 })
  t.match(view().toTotals(store.runtimes.get('node')!), { requests: 2, errors_4xx: 0, errors_5xx: 1 })
  t.match(view().toTotals(store.runtimes.get('python')!), { requests: 1, errors_5xx: 1 })
  const series = view().toSeries(store.all)
  t.equal(sum(series.cold_starts), 1)
  t.ok(sum(series.queue_wait_p95_ms) > 0)
  t.end()
})

t.test('[observe/history.12] refusals by admission are throttled calls, not errors', t => {
  const { metrics, history, view } = setup()
  history.start()
  for (const status of [429, 503]) metrics.request('GET', status, HELLO, 1, 0, false, true)
  metrics.functions.count(HELLO, 429, 1, 0, true)
  metrics.request('GET', 429, HELLO, 1, 0)
  const store = history.read()!
  t.match(view().toSummary(HELLO), { requests: 4, throttled: 3, errors_4xx: 1, errors_5xx: 0, last_error: null })
  t.match(view().toTotals(store.all), { requests: 3, throttled: 2, errors_4xx: 1, errors_5xx: 0 })
  t.equal(sum(view().toSeries(store.all).throttled), 2)
  t.equal(sum(view().toSeries(store.all).requests), 3)
  t.end()
})

t.test('[observe/history.12] refusals do not lower the latency of a function', t => {
  const { metrics, history, view } = setup()
  history.start()
  for (let i = 0; i < 10; i++) metrics.request('GET', 200, HELLO, 40, 0)
  for (let i = 0; i < 990; i++) metrics.request('GET', 429, HELLO, 0.1, 0, false, true)
  history.read()
  const summary = view().toSummary(HELLO)
  t.equal(summary.requests, 1000)
  t.ok(Math.abs(summary.p50_ms! - 40) <= 4, `p50 is ${summary.p50_ms} ms`)
  t.end()
})

t.test('[observe/history.4] constant latencies are shown within 10 % in every window', t => {
  for (const ms of [3, 40, 1500]) {
    const { clock, metrics, history, view } = setup()
    history.start()
    for (let step = 0; step < 30; step++) {
      metrics.request('GET', 200, HELLO, ms, 0)
      clock.advance(5000)
    }
    const store = history.read()!
    for (const window of WINDOWS) {
      const { requests, p50_ms, p95_ms, p99_ms } = view(window).toSummary(HELLO)
      t.equal(requests, 30, window)
      const shown = [
        p50_ms,
        p95_ms,
        p99_ms,
        ...view(window)
          .toSeries(store.all)
          .p95_ms.filter(value => value !== null),
      ]
      t.ok(shown.length > 3, window)
      for (const value of shown) t.ok(value! > ms * 0.9 && value! <= ms, `${window}: ${value} for ${ms} ms`)
    }
  }
  t.end()
})

t.test('[observe/history.5] workers and queues of every function, called or not', t => {
  const { clock, metrics, gauges, history, view } = setup()
  history.start()
  metrics.request('GET', 200, HELLO, 1, 0)
  history.read()
  gauges.workers = [
    [HELLO.key, 2],
    [HELLO.key, 1],
    [OTHER.key, 4],
  ]
  gauges.waiting = [[HELLO.key, 5]]
  clock.advance(5000)
  gauges.waiting = []
  gauges.workers = [[OTHER.key, 4]]
  clock.advance(5000)
  const store = history.read()!
  const last = (row: (number | null)[]) => row.slice(-3)
  const all = view().toSeries(store.all)
  t.same(
    [last(all.workers), last(all.queue_depth)],
    [
      [7, 4, 4],
      [5, 0, 0],
    ],
  )
  const hello = view().toFunctionSeries(HELLO.key)
  t.same(
    [last(hello.workers), last(hello.queue_depth), last(hello.requests)],
    [
      [3, 0, 0],
      [5, 0, 0],
      [1, 0, 0],
    ],
  )
  t.same(last(view().toSeries(store.runtimes.get('python')!).workers), [4, 4, 4])
  t.end()
})

t.test('[observe/history.6] a reload keeps the history of what stays and forgets what is gone', t => {
  const { clock, metrics, adopt, history } = setup()
  history.start()
  for (const fn of [HELLO, OTHER]) metrics.request('GET', 500, fn, 1, 0)
  history.failed(HELLO.key, 'boom')
  t.same([...history.read()!.functions.keys()].sort(), [HELLO.key, OTHER.key].sort())
  adopt({ ...HELLO, signature: '2' })
  metrics.request('GET', 200, HELLO, 1, 0)
  const store = history.read()!
  t.same([...store.functions.keys()], [HELLO.key])
  t.same([...store.errors.keys()], [HELLO.key])
  t.equal(totalOf(store.functions.get(HELLO.key), store.takenAt), 2)
  adopt(HELLO, OTHER)
  metrics.request('GET', 200, OTHER, 1, 0)
  clock.advance(5000)
  t.equal(totalOf(history.read()!.functions.get(OTHER.key), store.takenAt), 1, 'it begins anew')
  t.equal(totalOf(store.runtimes.get('python'), store.takenAt), 2, 'its runtime knows of both')
  t.end()
})

t.test('[observe/history.7] a function without room is counted in its runtime, and is told of', t => {
  const { metrics, history, view } = setup({ maxFunctions: 1 })
  history.start()
  for (const fn of [HELLO, OTHER]) metrics.request('GET', 200, fn, 1, 0)
  const store = history.read()!
  t.same([...store.leftOut], [OTHER.key])
  t.match(view().toTotals(store.runtimes.get('python')!), { requests: 1 })
  t.same(new Set(view().toFunctionSeries(OTHER.key).requests), new Set([null]))
  t.end()
})

t.test(
  '[observe/history.3, observe/history.8] a process that stood still or slept leaves a gap, and no count is lost',
  t => {
    const { clock, metrics, history, requests } = setup()
    history.start()
    metrics.request('GET', 200, null, 1, 0)
    clock.stall(20_000)
    t.equal(sum(requests(60)), 1)
    t.same(
      requests(60).filter(value => value !== null),
      [1],
      'the steps between are not known',
    )
    clock.jumpWall(60_000)
    clock.advance(5000)
    const after = requests(20)
    t.ok(after.filter(value => value === null).length >= 11, JSON.stringify(after))
    clock.jumpWall(-3_600_000)
    metrics.request('GET', 200, null, 1, 0)
    clock.advance(5000)
    t.equal(sum(requests(60)), 2)
    t.end()
  },
)

t.test('[observe/history.9] the last failure, in words or as what the function said', t => {
  const { clock, metrics, history, view } = setup()
  history.start()
  metrics.request('GET', 500, HELLO, 1, 0)
  history.failed(HELLO.key, `handler.js:3: ${'x'.repeat(1000)}`)
  metrics.request('GET', 503, OTHER, 1, 0)
  const at = clock.wall() / 1000
  const hello = view().toSummary(HELLO)
  t.match(hello, { last_error_at: at, last_error: /^handler\.js:3: x+$/ })
  t.equal(hello.last_error!.length, 300)
  t.match(view().toSummary(OTHER), { last_error_at: at, last_error: 'answered with a 5xx status' })
  clock.advance(10_000)
  metrics.request('GET', 200, HELLO, 1, 0)
  metrics.request('GET', 500, HELLO, 1, 0)
  t.match(view().toSummary(HELLO), { last_error_at: clock.wall() / 1000, last_error: 'answered with a 5xx status' })
  t.match(view().toSummary(makeFn({ name: 'never' })), { requests: 0, p95_ms: null, last_error: null })
  t.end()
})

t.test('[observe/history.11] a reading that fails ends the history, never the gateway', async t => {
  const { clock, gauges, problems, history } = setup()
  history.start()
  Object.defineProperty(gauges, 'workers', {
    get: () => {
      throw new RangeError('no memory left')
    },
  })
  t.doesNotThrow(() => clock.advance(5000))
  t.same(problems, ['the history of the console is given up: no memory left'])
  t.equal(history.read(), null)
  t.equal(clock.pending, 0)
})
