import t from 'tap'
import { type Meter, QuietRounds, SYSTEM_METER, toBusy, toForeign, toMood, toOwn } from './foreign.ts'

/** Text of /proc/<pid>/stat. */
const stat = (pid: number, parent: number, ...ticks: number[]): string =>
  `${pid} (a name) of it) S ${parent} 1 1 0 -1 0 0 0 0 0 ${ticks.join(' ')} 20 0 1 0`

t.test('[performance.1] the work of others is what neither this process nor what it started did', async t => {
  const family = [
    stat(1, 0, 500, 0, 0, 0),
    stat(10, 1, 3, 4, 20, 10),
    stat(11, 10, 5, 0, 0, 0),
    stat(12, 11, 1, 1, 1, 1),
  ]
  t.equal(toOwn([...family, stat(20, 1, 900, 0, 0, 0)], 10), 46, 'with children that ended')
  t.equal(toOwn([...family].reverse(), 10), 46, 'in any order')
  const text = 'cpu  100 10 50 800 40 5 5 2 0 0\ncpu0 50 5 25 400 20 2 3 1 0 0\ncpu1 50 5 25 400 20 3 2 1 0 0\nintr 1\n'
  t.same(toBusy(text), { busy: 172, possible: 1012, processors: 2 })
  const before = { busy: 0, possible: 0, own: 0 }
  t.equal(toForeign(before, { busy: 150, possible: 200, own: 50 }, 2), 1)
  t.equal(toForeign(before, { busy: 50, possible: 200, own: 52 }, 2), 0, 'readings are not of one moment')
  t.equal(toForeign(before, before, 2), 0)
  const { own, possible } = SYSTEM_METER.read()
  t.ok(own > 0 && possible > own)
})

t.test('[performance.1] rounds with work of others are repeated, and a machine that is never free says so', async t => {
  /** Each round takes a hundred ticks of two processors, of which others use so many. */
  const meterOf = (foreign: number[]): Meter => {
    const now = { busy: 0, possible: 0, own: 0 }
    let readings = 0
    return {
      processors: 2,
      read: () => {
        if (readings++ % 2 === 1) {
          now.possible += 200
          now.busy += 100 + (foreign.shift() ?? 0)
          now.own += 100
        }
        return { ...now }
      },
    }
  }
  let round = 0
  const measure = async () => ++round
  const quiet = new QuietRounds(meterOf([50, 30, 5, 0]))
  t.equal(await quiet.run(measure), 3)
  t.equal(await quiet.run(measure), 4)
  t.match(quiet.toRows(), [
    { name: /of 4$/, value: 2 },
    { value: 0.05, ok: true },
  ])
  const never = new QuietRounds(meterOf([90, 90, 90, 90, 90, 90]))
  t.equal(await never.run(measure), 9)
  t.match(never.toRows(), [{ value: 4 }, { value: 0.9, ok: false }])
  const short = new QuietRounds(meterOf([90, 90, 80, 70]), 2)
  t.equal(await short.run(measure), 12)
  t.equal(await short.run(measure), 13, 'no further round is to spare')
  t.match(short.toRows(), [{ value: 2 }, { value: 0.8, ok: false }])
})

t.test('[performance.1] the mood is told by the cost of a bare answer', async t => {
  t.match(toMood(12).name, /quick/)
  t.match(toMood(18).name, /dear/)
})
