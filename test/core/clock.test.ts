import t from 'tap'
import { WallTime } from '../../lib/core/clock.ts'
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
