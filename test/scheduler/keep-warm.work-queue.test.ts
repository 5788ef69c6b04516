import t from 'tap'
import { type Work, WORK_PER_TURN, WorkQueue } from '../../lib/scheduler/keep-warm.ts'
import { FakeClock } from '../helpers/clock.ts'
import { createRandom } from '../helpers/random.ts'

function bed(tickMs = 1000) {
  const clock = new FakeClock()
  const begun: string[] = []
  const setBacks: number[] = []
  const queue = new WorkQueue({ clock, tickMs, onSetBack: now => setBacks.push(now) })
  const make = (name: string): Work => ({ heapIndex: -1, dueAt: Infinity, onDue: () => begun.push(name) })
  return { clock, queue, begun, setBacks, make }
}

t.test('[scheduler/scheduler.1] one clock: what is due begins at its tick, in the order of its times', async t => {
  const { clock, queue, begun, make } = bed()
  const start = clock.wall()
  const late = make('late')
  queue.put(late, start + 5000)
  queue.put(make('second'), start + 1500)
  queue.put(make('first'), start + 1400)
  queue.start()
  queue.start()
  t.equal(clock.pending, 1, 'one timer, however much there is and however often it is started')
  clock.advance(1000)
  t.same(begun, [])
  clock.advance(1000)
  t.same(begun, ['first', 'second'])
  queue.put(late, start + 2500)
  clock.advance(1000)
  t.same(begun, ['first', 'second', 'late'], 'moved nearer')
  queue.put(late, start + 4000)
  queue.remove(late)
  queue.remove(late)
  clock.advance(10_000)
  t.equal(begun.length, 3, 'taken out')
  t.equal(queue.size, 0)
  queue.stop()
  t.equal(clock.pending, 0)
  queue.start()
  t.equal(clock.pending, 0, 'stopped for good')
})

t.test('[scheduler/scheduler.1] the heap against a sorted list', async t => {
  const random = createRandom(5)
  const { clock, queue } = bed()
  const due = new Map<Work, number>()
  const begun: Work[] = []
  const works = Array.from({ length: 300 }, () => {
    const work: Work = { heapIndex: -1, dueAt: Infinity, onDue: () => begun.push(work) }
    return work
  })
  for (let step = 0; step < 20_000; step++) {
    const work = works[random(works.length)]!
    const what = random(20)
    if (what < 12) {
      const at = clock.wall() + random(5000)
      queue.put(work, at)
      due.set(work, at)
    } else if (what < 19) {
      queue.remove(work)
      due.delete(work)
    } else {
      clock.stall(random(1000))
      begun.length = 0
      while (queue.tick());
      const expected = [...due].filter(([, at]) => at <= clock.wall())
      const times = begun.map(one => due.get(one))
      if (begun.length !== expected.length || new Set(begun).size !== begun.length) return t.fail(`step ${step}`)
      if (times.some((at, i) => i > 0 && at! < times[i - 1]!)) return t.fail(`step ${step}: order`)
      for (const one of begun) due.delete(one)
    }
    if (queue.size !== due.size) return t.fail(`step ${step}: ${queue.size} and ${due.size}`)
  }
  t.pass('20,000 steps')
})

t.test('[scheduler/scheduler.2] a tick looks at what is due only, and a crowd is begun in several turns', async t => {
  const { clock, queue, begun, make } = bed()
  let looks = 0
  for (let i = 0; i < 10_000; i++) {
    const work = make(`far ${i}`)
    queue.put(work, clock.wall() + 1e9 + i)
    let at = work.dueAt
    Object.defineProperty(work, 'dueAt', {
      get: () => {
        looks += 1
        return at
      },
      set: (value: number) => (at = value),
    })
  }
  looks = 0
  queue.tick()
  t.ok(looks < 10, `${looks} looks at 10,000 pieces of work`)
  for (let i = 0; i < 3 * WORK_PER_TURN; i++) queue.put(make(`now ${i}`), clock.wall() + 500)
  queue.start()
  clock.stall(1000)
  t.equal(queue.tick(), true)
  t.equal(begun.length, WORK_PER_TURN)
  clock.advance(0)
  t.equal(begun.length, 3 * WORK_PER_TURN, 'the rest follows without waiting for a tick')
  queue.stop()
})

t.test(
  '[scheduler/scheduler.3] a wall clock that was set back is told, one that goes forward or a process that stood still is not',
  async t => {
    const { clock, queue, setBacks } = bed()
    queue.start()
    clock.advance(5000)
    clock.jumpWall(3_600_000)
    clock.advance(2000)
    clock.stall(100_000)
    clock.advance(2000)
    t.same(setBacks, [])
    clock.jumpWall(-500)
    clock.advance(2000)
    t.same(setBacks, [], 'half a second is how clocks are kept right')
    clock.jumpWall(-60_000)
    clock.advance(1000)
    t.equal(setBacks.length, 1)
    clock.advance(5000)
    t.equal(setBacks.length, 1, 'once')
    queue.stop()
  },
)
