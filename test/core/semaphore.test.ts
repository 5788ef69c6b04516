import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { backoffDelay } from '../../lib/core/clock.ts'
import { KeyedMutex, mapSome, Semaphore } from '../../lib/core/semaphore.ts'

/** Work that ends when it is told to. */
function makeWork() {
  const started: string[] = []
  const ends = new Map<string, (error?: Error) => void>()
  const work = (name: string) => () => {
    started.push(name)
    return new Promise<string>((resolve, reject) => {
      ends.set(name, error => (error === undefined ? resolve(name) : reject(error)))
    })
  }
  return { started, ends, work }
}

t.test('[dependencies/resolve.6] a semaphore runs as much at once as it has slots, and the rest in order', async t => {
  const { started, ends, work } = makeWork()
  const slots = new Semaphore<string>(2)
  const results = Promise.allSettled(['a', 'b', 'c', 'd', 'e'].map(name => slots.run(work(name), name)))
  await turn()
  t.same(started, ['a', 'b'])
  slots.putFirst('e')
  slots.putFirst('e')
  slots.putFirst('a')
  ends.get('a')!()
  await turn()
  t.same(started, ['a', 'b', 'e'], 'what was put first is next')
  ends.get('b')!(new Error('broken'))
  await turn()
  t.same(started, ['a', 'b', 'e', 'c'], 'failed work releases its slot')
  for (const name of ['e', 'c']) ends.get(name)!()
  await turn()
  ends.get('d')!()
  t.same(
    (await results).map(({ status }) => status),
    ['fulfilled', 'rejected', 'fulfilled', 'fulfilled', 'fulfilled'],
  )
  t.ok(slots.tryTake() && slots.tryTake())
  t.notOk(slots.tryTake(), 'all slots are taken')
  slots.release()
  t.ok(slots.tryTake())
})

t.test('[dependencies/resolve.6] a slot goes to the next in line and to nothing that comes later', async t => {
  const slots = new Semaphore(1)
  const { started, work, ends } = makeWork()
  slots.tryTake()
  void slots.run(work('waits'))
  slots.release()
  t.notOk(slots.tryTake())
  await turn()
  t.same(started, ['waits'])
  ends.get('waits')!()
  await turn()
  t.ok(slots.tryTake())
})

t.test(
  '[dependencies/install.1] a keyed mutex runs work of one key in order, and of different keys at once',
  async t => {
    const { started, ends, work } = makeWork()
    const mutex = new KeyedMutex()
    const first = mutex.run('x', work('first'))
    const second = mutex.run('x', work('second'))
    const other = mutex.run('y', work('other'))
    await turn()
    t.same(started, ['first', 'other'])
    const isBroken = t.rejects(first, /broken/)
    ends.get('first')!(new Error('broken'))
    await isBroken
    await turn()
    t.same(started, ['first', 'other', 'second'], 'failed work does not stop the next')
    ends.get('second')!()
    ends.get('other')!()
    t.same(await Promise.all([second, other]), ['second', 'other'])
    const later = mutex.run('x', work('later'))
    await turn()
    ends.get('later')!()
    t.equal(await later, 'later')
  },
)

t.test('[runtime/daemon.7] a delay grows by its factor up to its bound', async t => {
  t.same(
    [0, 1, 2, 3, 5000].map(earlier => backoffDelay(earlier, { first: 100, max: 500 })),
    [100, 200, 400, 500, 500],
  )
  t.same(
    [0, 1, 2].map(earlier => backoffDelay(earlier, { first: 1000, factor: 4 })),
    [1000, 4000, 16_000],
  )
})

t.test(
  '[dependencies/install.3] work on a list: a few items at a time, results in order, and none begins after a failure',
  async t => {
    const { started, ends, work } = makeWork()
    const results = mapSome(['a', 'b', 'c'], name => work(name)(), 2)
    await turn()
    t.same(started, ['a', 'b'])
    ends.get('b')!()
    await turn()
    t.same(started, ['a', 'b', 'c'], 'a slow item holds up no other')
    ends.get('c')!()
    ends.get('a')!()
    t.same(await results, ['a', 'b', 'c'])
    const failing = mapSome(['d', 'e', 'f'], name => work(name)(), 2)
    await turn()
    ends.get('d')!(new Error('no disk'))
    await t.rejects(failing, { message: 'no disk' })
    ends.get('e')!()
    await turn()
    t.same(started.slice(3), ['d', 'e'])
  },
)
