import t from 'tap'
import { NO_COMPOSER } from '../helpers/composer-bed.ts'
import { killInstalls } from '../kills/installs.ts'

t.setTimeout(280_000)

// A few kills with a fixed seed; `npm run test:kill-installs` does 30 of each.
for (const [runtime, kills] of [
  ['node', 2],
  ['python', 2],
  ['php', 2],
] as const) {
  const title = `[dependencies/install.3, dependencies/php.15] a gateway is killed while it installs packages for ${runtime}`
  t.test(title, { skip: runtime === 'php' && NO_COMPOSER }, async t => {
    const report = await killInstalls(runtime, kills, 5)
    t.same(report.wrong, [])
    t.equal(report.old + report.fresh, kills, 'each kill left a whole set')
  })
}
