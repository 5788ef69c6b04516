import t from 'tap'
import { DURATION_BOUNDS, Histogram } from '../../lib/observe/histogram.ts'

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
