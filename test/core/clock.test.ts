import t from 'tap'
import { systemClock, Timer, WallTime, within } from '../../lib/core/clock.ts'
import { FakeClock } from '../helpers/clock.ts'

t.test('[observe/log-store.10] the time of a line follows the wall clock, also one that is set', async t => {
  const clock = new FakeClock()
  const wall = new WallTime(clock)
  const isRight = () => t.ok(Math.abs(wall.at(clock.monotonic()) - clock.wall()) <= 1)
  for (const ms of [0, 0.4, 1, 99, 1, 5000]) {
    clock.advance(ms)
    isRight()
  }
  clock.jumpWall(-3_600_000)
  clock.advance(100)
  isRight()
})

t.test('[core/limits.15] a timer beyond what the system takes does not run at once', async t => {
  let runs = 0
  const timers = [2 ** 31, 2 ** 40, Number.POSITIVE_INFINITY].map(ms => systemClock.setTimeout(() => runs++, ms))
  await new Promise(resolve => systemClock.setTimeout(() => resolve(null), 5))
  t.equal(runs, 0)
  for (const timer of timers) systemClock.clearTimeout(timer)
})

t.test('[core/limits.15] setting a timer again moves it, and a cleared one does not run', t => {
  const clock = new FakeClock()
  const timer = new Timer(clock)
  const runs: string[] = []
  timer.set(10, () => runs.push('first'))
  timer.set(20, () => runs.push(`second, set ${timer.isSet}`))
  clock.advance(15)
  t.same([runs, timer.isSet], [[], true])
  clock.advance(5)
  t.same([runs, timer.isSet], [['second, set false'], false])
  timer.set(1, () => runs.push('third'))
  timer.clear()
  clock.advance(1)
  t.equal(runs.length, 1)
  t.end()
})

t.test('[core/limits.15] work that takes too long is not waited for', async t => {
  const clock = new FakeClock()
  t.equal(await within(clock, 10, Promise.resolve('done')), 'done')
  await t.rejects(within(clock, 10, Promise.reject(new Error('no'))), { message: 'no' })
  t.equal(clock.pending, 0, 'no timer is left')
  const late = within(clock, 10, new Promise(() => {}))
  clock.advance(10)
  t.equal(await late, null)
})
