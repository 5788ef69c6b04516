import t from 'tap'
import type { FunctionTotals } from '../../console/data/history.ts'
import { toFailing, toSlowest } from '../../console/pages/overview/rankings.ts'

const row = (
  key: string,
  requests: number,
  p95: number | null,
  refused: number,
  failed: number,
  throttled = 0,
): FunctionTotals =>
  ({ key, requests, p95_ms: p95, errors_4xx: refused, errors_5xx: failed, throttled }) as FunctionTotals
const ROWS = [
  row('a', 10, 5, 0, 0),
  row('b', 0, null, 0, 0),
  row('c', 3, 700, 2, 0),
  row('d', 3, 20, 1, 1),
  row('e', 3, 20, 3, 1),
  row('f', 3, 5, 9, 0),
  row('g', 3, 1, 0, 0, 2),
]

t.test('[console/overview.6] the slowest by p95, the failing by 5xx, refusals and 4xx', async t => {
  const keys = (rows: readonly FunctionTotals[]) => rows.map(({ key }) => key).join('')
  t.equal(keys(toSlowest(ROWS, 10)), 'cdeafg', 'what was not called is not slow')
  t.equal(keys(toSlowest(ROWS, 2)), 'cd')
  t.equal(keys(toFailing(ROWS, 10)), 'edgfc')
  t.equal(keys(toFailing([], 10)), '')
  t.equal(keys(ROWS), 'abcdefg', 'what is given stays as it is')
})
