import t from 'tap'
import { WITHOUT_REDIS } from '../helpers/redis.ts'
import { killFleet } from '../kills/fleet.ts'

// A few kills with a fixed seed; `npm run test:kill-fleet` does 100.
t.test(
  '[fleet/fleet-jobs.9, fleet/fleet-jobs.10, fleet/schedule-lease.1] gateways of a fleet are killed, and its store is restarted',
  { skip: WITHOUT_REDIS },
  async t => {
    const report = await killFleet(t, { kills: 4, seed: 7, storeRestarts: 1 })
    t.same(report.wrong, [])
    t.equal(report.kills, 4)
    t.ok(report.acknowledged > 20)
  },
)
