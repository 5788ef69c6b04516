import t from 'tap'
import { killGateways, killKeepers } from '../kills/jobs.ts'

// A few kills with a fixed seed; `npm run test:kill-jobs` does 200 of each.
t.test('[jobs/jobs.3, jobs/jobs.4] a gateway is killed while jobs are made, run and canceled', async t => {
  const report = await killGateways(3, 11, () => {})
  t.same(report.wrong, [])
  t.equal(report.kills, 3)
  t.ok(report.acknowledged > 0)
})

t.test(
  '[jobs/file-store.2, jobs/file-store.4] a process is killed while it keeps jobs and writes its log anew',
  async t => {
    const report = await killKeepers(3, 12)
    t.same(report.wrong, [])
    t.equal(report.kills, 3)
    t.ok(report.acknowledged > 0)
  },
)
