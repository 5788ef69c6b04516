import t from 'tap'
import {
  formatAgo,
  formatBytes,
  formatClock,
  formatCount,
  formatDate,
  formatMs,
  formatNumberOf,
  formatRate,
  formatShare,
} from '../../console/format.ts'

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
    [formatMs(7_200_000), '2 h'],
    [formatMs(259_200_000), '3 d'],
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
    [formatRate(null), '–'],
    [formatBytes(null), '–'],
    [formatBytes(5 * 1024 ** 5), '5120 TiB'],
    [formatAgo(undefined), '–'],
    [formatAgo(1000, 1500), 'now'],
    [formatAgo(1000, 3500), '2 s ago'],
    [formatAgo(121_000, 1000), 'in 2 min'],
  ])
    t.equal(shown, wanted)
})

t.test('[console/overview.1] times are those of the reader', async t => {
  const time = new Date(2026, 0, 2, 3, 4, 5).getTime()
  t.equal(formatClock(time), '03:04:05')
  t.equal(formatDate(time), '2026-01-02 03:04:05')
  t.same([formatClock(null), formatDate(null)], ['–', '–'])
})
