import t from 'tap'
import { systemClock, WallTime } from '../../lib/core/clock.ts'
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
