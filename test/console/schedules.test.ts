import t from 'tap'
import { findNext, type ScheduleRow, toMs, toRule, toTarget } from '../../console/data/schedules.ts'

const row = (key: string, next: number | null): ScheduleRow => ({
  runtime: 'node',
  name: key,
  version: 'default',
  key,
  schedule: null,
  next_at: null,
  running: false,
  next,
  last: null,
  last_status: null,
  last_error: '',
})

t.test('[console/scheduler.1] a schedule in words, and the soonest', async t => {
  t.equal(toRule(null), 'wrong')
  t.equal(toRule({ enabled: true, every_seconds: 30, timezone: 'UTC' }), 'every 30 s')
  t.equal(toRule({ enabled: true, cron: '0 7 * * *', timezone: 'Asia/Tokyo' }), '0 7 * * * in Asia/Tokyo')
  t.equal(toRule({ enabled: false, every_seconds: 7200 }), 'every 2 h, disabled')
  t.equal(findNext([]), null)
  t.equal(findNext([row('a', null)]), null)
  t.equal(findNext([row('a', null), row('b', 20), row('c', 10), row('d', 30)])?.key, 'c')
  t.same(toTarget(row('a', 1)), { runtime: 'node', name: 'a' })
  t.same(toTarget({ ...row('a', 1), version: 'v2' }), { runtime: 'node', name: 'a', version: 'v2' })
  t.equal(toMs(null), null)
  t.equal(toMs(2), 2000)
})
