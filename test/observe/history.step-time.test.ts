import t from 'tap'
import { StepTime } from '../../lib/observe/history.ts'
import { FakeClock } from '../helpers/clock.ts'

function setup() {
  const clock = new FakeClock()
  const time = new StepTime(clock)
  return { clock, time, begin: time.now() }
}

t.test('[observe/history.8] time is the wall clock’s, and goes on when that is set back', t => {
  const { clock, time, begin } = setup()
  t.equal(begin, clock.wall())
  clock.advance(7000)
  t.equal(time.now(), begin + 7000)
  clock.jumpWall(-3_600_000)
  t.equal(time.now(), begin + 7000, 'an hour back')
  t.equal(time.toWall(time.now()), clock.wall(), 'and it is shown as the clock has it now')
  clock.advance(1000)
  t.equal(time.now(), begin + 8000)
  clock.jumpWall(3_600_000)
  t.equal(time.now(), begin + 8000, 'and forward again')
  t.equal(time.toWall(time.now()), clock.wall())
  t.end()
})

t.test('[observe/history.8] a sleep is time that passed', t => {
  const { clock, time, begin } = setup()
  clock.jumpWall(7_200_000)
  t.equal(time.now(), begin + 7_200_000)
  clock.jumpWall(-600_000)
  clock.jumpWall(0)
  t.equal(time.now(), begin + 7_200_000)
  clock.jumpWall(900_000)
  t.equal(time.now(), begin + 7_500_000, 'ahead of where it ever was')
  t.equal(time.toWall(time.now()), clock.wall())
  t.end()
})

t.test('[observe/history.8] what two clocks drift apart is no jump', t => {
  const { clock, time, begin } = setup()
  for (let i = 0; i < 10; i++) {
    clock.advance(1000)
    clock.jumpWall(50)
  }
  t.equal(time.now(), begin + 10_000)
  clock.jumpWall(600)
  t.equal(time.now(), clock.wall())
  t.end()
})
