import t from 'tap'
import {
  DURATION_BOUNDS,
  Histogram,
  LogHistogram,
  sumCounts,
  toPercentileMs,
  toTotal,
} from '../../lib/observe/metrics.ts'

/** Samples by their labels. */
function read(text: string): Record<string, number> {
  return Object.fromEntries(
    text
      .trimEnd()
      .split('\n')
      .map(line => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  )
}

t.test('[observe/metrics.3] durations are counted in every bucket that holds them', async t => {
  const histogram = new Histogram(2)
  t.equal(histogram.toText(0, 'd', ''), '', 'nothing was observed')
  for (const ms of [0, 0.5, 0.50001, 3, 10_000, 10_000.1, 1e9]) histogram.observe(1, ms)
  t.equal(histogram.countOf(0), 0)
  t.equal(histogram.countOf(1), 7)
  t.equal(histogram.toText(0, 'd', 'a="b"'), '')
  const samples = read(histogram.toText(1, 'd', 'a="b"'))
  t.same(Object.keys(samples), [
    ...DURATION_BOUNDS.map(bound => `d_bucket{a="b",le="${bound}"}`),
    'd_bucket{a="b",le="+Inf"}',
    'd_sum{a="b"}',
    'd_count{a="b"}',
  ])
  t.match(samples, {
    'd_bucket{a="b",le="0.0005"}': 2,
    'd_bucket{a="b",le="0.001"}': 3,
    'd_bucket{a="b",le="0.0025"}': 3,
    'd_bucket{a="b",le="0.005"}': 4,
    'd_bucket{a="b",le="10"}': 5,
    'd_bucket{a="b",le="+Inf"}': 7,
    'd_count{a="b"}': 7,
  })
  t.ok(Math.abs(samples['d_sum{a="b"}']! - 1_000_020.0041) < 0.001)
  t.match(histogram.toText(1, 'd', ''), /^d_bucket\{le="0\.0005"\} 2\n.*d_count 7\n$/s)
})

const count = (...durations: readonly number[]) => {
  const histogram = new LogHistogram()
  for (const ms of durations) histogram.observe(ms)
  return histogram.take()
}

t.test('[observe/history.4] constant latencies are shown within 6 %, never above them', async t => {
  for (const ms of [0.07, 0.5, 3, 40, 1500, 2500, 60_000, 3_600_000]) {
    const counts = count(...Array<number>(100).fill(ms))
    for (const share of [0.5, 0.95, 0.99]) {
      const shown = toPercentileMs(counts, share)!
      t.ok(shown <= ms && shown > ms * 0.94, `p${share * 100} of ${ms} ms: ${shown}`)
    }
  }
  t.equal(toPercentileMs('', 0.5), null)
  for (const ms of [0, 0.001, -1, Number.NaN]) t.equal(toPercentileMs(count(ms), 1), 0, `${ms} ms`)
  t.ok(toPercentileMs(count(1e12), 0.5)! > 8e6, 'longer than 2 hours')
})

t.test('[observe/history.4] a percentile of many durations is near the true one, in parts as in one', async t => {
  const durations = Array.from({ length: 10_000 }, (_, i) => ((i * 7919) % 10_000) / 100)
  const whole = count(...durations)
  const parts = sumCounts(sumCounts('', count(...durations.slice(0, 3))), count(...durations.slice(3)))
  t.same(parts, whole)
  t.equal(toTotal(whole), 10_000)
  const many = new LogHistogram()
  for (let i = 0; i < 200; i++) many.add(whole)
  t.equal(toTotal(many.take()), 2_000_000, 'a bucket may have more than 65,535')
  durations.sort((a, b) => a - b)
  for (const share of [0.1, 0.5, 0.95, 0.99]) {
    const told = toPercentileMs(whole, share)!
    const wanted = durations[share * 10_000]!
    t.ok(Math.abs(told - wanted) < 0.05 * wanted + 0.1, `p${share * 100}: ${told} for ${wanted}`)
  }
})

t.test('[observe/history.4] taking begins at 0 again', async t => {
  const histogram = new LogHistogram()
  histogram.observe(3)
  histogram.observe(40)
  t.equal(toTotal(histogram.take()), 2)
  t.equal(histogram.take(), '')
  histogram.observe(1)
  t.equal(toTotal(histogram.take()), 1)
})
