import t from 'tap'
import { ChangeQueue } from '../../lib/discovery/watch.ts'
import { FakeClock } from '../helpers/clock.ts'

function setUp(halves: boolean[] = []) {
  const clock = new FakeClock()
  const told: string[][] = []
  const looked: string[][] = []
  let finish: () => void = () => {}
  const queue = new ChangeQueue({
    clock,
    delayMs: 25,
    isHalfSaved: paths => {
      looked.push([...paths])
      return halves.shift() ?? false
    },
    onChange: paths => {
      told.push([...paths])
      return new Promise(resolve => {
        finish = resolve
      })
    },
  })
  /** The reload ends, and what waits for that happens. */
  const end = async (): Promise<void> => {
    finish()
    await new Promise(setImmediate)
  }
  return { clock, queue, told, looked, end }
}

t.test('[discovery/layouts.37] the first change begins the wait, later ones join it', async t => {
  const { clock, queue, told } = setUp()
  queue.add('a')
  clock.advance(20)
  queue.add('b')
  queue.add('a')
  clock.advance(4)
  t.same(told, [])
  clock.advance(1)
  t.same(told, [['a', 'b']])
  t.equal(clock.pending, 0)
})

t.test('[discovery/layouts.37] one call at a time: changes during a reload are told after it', async t => {
  const { clock, queue, told, end } = setUp()
  queue.add('a')
  clock.advance(25)
  queue.add('b')
  clock.advance(1000)
  t.same(told, [['a']])
  await end()
  clock.advance(25)
  t.same(told, [['a'], ['b']])
  await end()
  t.equal(clock.pending, 0)
})

t.test('[discovery/layouts.44] a half saved file holds all changes for one more wait', async t => {
  const { clock, queue, told, looked } = setUp([true])
  queue.add('a')
  clock.advance(25)
  t.same(told, [])
  queue.add('b')
  clock.advance(99)
  t.same(told, [])
  clock.advance(1)
  t.same(told, [['a', 'b']])
  t.same(looked, [['a'], ['a', 'b']])
})

t.test('[discovery/layouts.44] a file that never settles is told in the end', async t => {
  const { clock, queue, told, looked } = setUp(Array(100).fill(true))
  queue.add('a')
  clock.advance(25 + 19 * 100)
  t.same(told, [])
  clock.advance(100)
  t.same(told, [['a']])
  t.equal(looked.length, 20)
})

t.test('[discovery/layouts.38] closed, it tells nothing', async t => {
  const { clock, queue, told, end } = setUp([true])
  queue.add('a')
  clock.advance(25)
  queue.close()
  clock.advance(1000)
  queue.add('b')
  clock.advance(1000)
  t.same(told, [])
  t.equal(clock.pending, 0)
  const during = setUp()
  during.queue.add('a')
  during.clock.advance(25)
  during.queue.add('b')
  during.queue.close()
  await during.end()
  during.clock.advance(1000)
  t.same(during.told, [['a']])
  await end()
})
