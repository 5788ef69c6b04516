import t from 'tap'
import type { Health } from '../../console/data/health-record.ts'
import type { Totals } from '../../console/data/history.ts'
import { toStatus } from '../../console/pages/overview/status.ts'

/** @param up - reason why it is down, null for up, by runtime */
const healthOf = (up: Record<string, string | null>): Health =>
  ({
    runtimes: Object.fromEntries(
      Object.entries(up).map(([name, reason]) => [name, { health: { up: reason === null, reason: reason ?? 'ok' } }]),
    ),
  }) as unknown as Health
const totalsOf = (requests: number, failed: number, p95: number | null): Totals =>
  ({ requests, errors_4xx: 0, errors_5xx: failed, p95_ms: p95 }) as Totals
const WELL = { health: healthOf({ node: null, lua: null }), warnings: 0, conflicts: 0, range: 'the last hour' }

t.test('[console/overview.3] the state in words', async t => {
  for (const [facts, state, words, numbers] of [
    [
      { ...WELL, totals: totalsOf(2000, 0, 12) },
      null,
      'All 2 runtimes up. No warnings.',
      '2,000 requests in the last hour, none failed. p95 12 ms.',
    ],
    [
      { ...WELL, totals: totalsOf(0, 0, null) },
      null,
      'All 2 runtimes up. No warnings.',
      'No requests in the last hour.',
    ],
    [{ ...WELL, warnings: 1, totals: null }, null, 'All 2 runtimes up. 1 warning.', ''],
    [
      { ...WELL, conflicts: 2, warnings: 3, totals: null },
      'degraded',
      'All 2 runtimes up. 2 route conflicts. 3 warnings.',
      '',
    ],
    [
      { ...WELL, totals: totalsOf(4, 1, 1200) },
      'degraded',
      'All 2 runtimes up. No warnings.',
      '4 requests in the last hour, 1 failed (25 %). p95 1.2 s.',
    ],
    [
      { ...WELL, health: healthOf({ node: 'no program "node"', lua: null, php: 'down' }), totals: null },
      'failing',
      'node is down: no program "node". php is down. 1 of 3 runtimes up. No warnings.',
      '',
    ],
    [{ ...WELL, health: healthOf({ lua: null }), totals: null }, null, 'Runtime lua is up. No warnings.', ''],
  ] as const)
    t.same(toStatus(facts), { state, words, numbers })
})
