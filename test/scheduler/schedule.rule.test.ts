import t from 'tap'
import { Rules } from '../../lib/scheduler/schedule.ts'

const interval = (everySeconds: number) => ({ everySeconds, cron: '* * * * *', timezone: 'UTC' })
const cron = (text: string, timezone = 'UTC') => ({ everySeconds: null, cron: text, timezone })

t.test('[scheduler/schedule.1] multiples of the interval since the epoch, and before cron', async t => {
  const rules = new Rules()
  const rule = rules.of(interval(90))
  t.equal(rule.isCron, false)
  t.equal(rule.nextAfter(0), 90_000)
  t.equal(rule.nextAfter(89_999), 90_000)
  t.equal(rule.nextAfter(90_000), 180_000)
  t.equal(rules.of(interval(31_536_000)).nextAfter(1_700_000_000_000), 1_702_944_000_000)
})

t.test('[scheduler/schedule.6, scheduler/schedule.11] equal times are one rule, others are another', async t => {
  const rules = new Rules()
  const daily = rules.of(cron('0 9 * * *', 'Europe/Berlin'))
  t.equal(rules.of(cron('0 9 * * *', 'Europe/Berlin')), daily)
  t.equal(new Date(daily.nextAfter(Date.UTC(2026, 6, 1))!).toISOString(), '2026-07-01T07:00:00.000Z')
  t.not(rules.of(cron('0 9 * * *')).text, daily.text)
  t.not(rules.of(interval(60)).text, rules.of(interval(61)).text)
  rules.retain(new Set([daily.text]))
  t.equal(rules.of(cron('0 9 * * *', 'Europe/Berlin')), daily)
  t.throws(() => rules.of(cron('0 9 30 2 *')), /no such date/)
})
