import t from 'tap'
import {
  formatAgo,
  formatBytes,
  formatCount,
  formatMs,
  formatNumberOf,
  formatRate,
  formatShare,
} from '../../lib/console/format.ts'

t.test('[console/overview.1] numbers have a unit and three digits that count; what is not known is a dash', async t => {
  for (const [shown, wanted] of [
    [formatMs(0), '0 ms'],
    [formatMs(0.123), '0.12 ms'],
    [formatMs(10), '10 ms'],
    [formatMs(100), '100 ms'],
    [formatMs(200), '200 ms'],
    [formatMs(250.4), '250 ms'],
    [formatMs(1000), '1 s'],
    [formatMs(100_000), '100 s'],
    [formatMs(600_000), '10 min'],
    [formatMs(null), '–'],
    [formatMs(Number.NaN), '–'],
    [formatRate(0), '0/s'],
    [formatRate(0.05), '0.05/s'],
    [formatRate(100), '100/s'],
    [formatRate(120_000), '120,000/s'],
    [formatShare(1), '100 %'],
    [formatShare(0.005), '0.5 %'],
    [formatBytes(0), '0 B'],
    [formatBytes(500), '500 B'],
    [formatBytes(104_857_600), '100 MiB'],
    [formatCount(1_234_567), '1,234,567'],
    [formatCount(undefined), '–'],
    [formatNumberOf(1, 'function'), '1 function'],
    [formatNumberOf(0, 'function'), '0 functions'],
    [formatAgo(1000, 3500), '2 s ago'],
    [formatAgo(121_000, 1000), 'in 2 min'],
  ])
    t.equal(shown, wanted)
})
