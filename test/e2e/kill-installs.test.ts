import t from 'tap'
import { killInstalls } from '../helpers/kill-installs.ts'

t.setTimeout(280_000)

// A few kills with a fixed seed; `npm run test:kill-installs` does 30 of each.
for (const [runtime, kills] of [
  ['node', 4],
  ['python', 2],
] as const) {
  t.test(`[dependencies/install.3] a gateway is killed while it installs packages for ${runtime}`, async t => {
    const report = await killInstalls(runtime, kills, 5)
    t.same(report.wrong, [])
    t.equal(report.old + report.fresh, kills, 'each kill left a whole set')
  })
}
