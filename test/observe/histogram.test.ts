import t from 'tap'
import { BUCKETS, DURATION_BOUNDS, Histogram, toPercentileMs } from '../../lib/observe/histogram.ts'

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

t.test('[observe/history.4] a percentile lies within its bucket, by share', async t => {
  const counts = (entries: Record<number, number>) => Array.from({ length: BUCKETS }, (_, i) => entries[i] ?? 0)
  t.equal(toPercentileMs(counts({}), 0, 0.5), null)
  t.equal(toPercentileMs(counts({ 0: 1 }), 0, 1), 0.5)
  t.equal(toPercentileMs(counts({ 0: 10 }), 0, 0.5), 0.25)
  t.equal(toPercentileMs(counts({ 1: 4 }), 0, 0.5), 0.75, 'between 0.5 and 1')
  t.equal(toPercentileMs(counts({ 1: 50, 4: 50 }), 0, 0.5), 1)
  t.equal(toPercentileMs(counts({ 1: 50, 4: 50 }), 0, 0.75), 7.5, 'between 5 and 10')
  t.equal(toPercentileMs(counts({ [BUCKETS - 1]: 3 }), 0, 0.5), 10_000)
  t.equal(toPercentileMs([9, 9, ...counts({ 0: 10 })], 2, 0.5), 0.25, 'from an index on')
})

t.test('[observe/history.4] a percentile told of many durations is near the true one', async t => {
  const histogram = new Histogram(1)
  const durations = Array.from({ length: 10_000 }, (_, i) => ((i * 7919) % 10_000) / 100)
  for (const ms of durations) histogram.observe(0, ms)
  const counts = new Float64Array(BUCKETS)
  histogram.addBuckets(0, counts, 0)
  durations.sort((a, b) => a - b)
  for (const share of [0.1, 0.5, 0.95, 0.99]) {
    const told = toPercentileMs(counts, 0, share)!
    const wanted = durations[share * 10_000]!
    t.ok(Math.abs(told - wanted) < 0.05 * wanted + 0.1, `p${share * 100}: ${told} for ${wanted}`)
  }
})

t.test('[observe/metrics.2] all classes together', async t => {
  const histogram = new Histogram(2)
  histogram.observe(0, 3)
  histogram.observe(1, 3)
  t.match(read(histogram.toText(null, 'd', '')), { d_count: 2, d_sum: 0.006, 'd_bucket{le="0.005"}': 2 })
})
