import t from 'tap'
import { killSchedules } from '../kills/schedules.ts'

// A few kills with a fixed seed; `npm run test:kill-schedules` does 100.
t.test(
  '[scheduler/schedule.15, scheduler/schedule.17, scheduler/schedule-store.3] a gateway is killed while schedules run',
  async t => {
    const report = await killSchedules(4, 7)
    t.same(report.wrong, [])
    t.equal(report.kills, 4)
  },
)
