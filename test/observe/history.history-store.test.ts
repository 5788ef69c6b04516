import t from 'tap'
import { HistoryStore, StepTime } from '../../lib/observe/history.ts'
import { FakeClock } from '../helpers/clock.ts'

function setup(maxFunctions: number) {
  const clock = new FakeClock()
  const store = new HistoryStore(new StepTime(clock), maxFunctions)
  const call = (...keys: string[]) => {
    store.open(store.time.now())
    return keys.map(key => store.called(key))
  }
  return { clock, store, call }
}

t.test('[observe/history.7] without room the one that was not called for the longest time goes', t => {
  const { clock, store, call } = setup(2)
  call('node/a@default', 'node/b@default')
  clock.advance(200_000)
  call('node/a@default')
  t.same(call('node/c@default'), [null], 'both were called within 5 minutes')
  t.same([...store.leftOut], ['node/c@default'])
  clock.advance(150_000)
  const [c] = call('node/c@default')
  t.equal(c!.knownFrom, store.takenAt, 'what it did before is not known')
  t.same([...store.functions.keys()], ['node/a@default', 'node/c@default'])
  t.same([...store.leftOut], ['node/b@default'])
  clock.advance(400_000)
  const [d] = call('node/d@default')
  t.equal(d!.knownFrom, store.startedAt, 'one that was never called has nothing to hide')
  t.same([...store.leftOut].sort(), ['node/a@default', 'node/b@default'])
  t.end()
})

t.test('[observe/history.6] what is gone is forgotten', t => {
  const { store, call } = setup(1)
  call('node/a@default', 'node/b@default')
  for (const key of ['node/a@default', 'node/b@default']) store.errors.set(key, { at: 1, message: 'x' })
  store.forget(key => key === 'node/b@default')
  t.same([store.functions.size, store.leftOut.size, store.errors.size], [1, 0, 1])
  store.forget(() => true)
  t.same([store.functions.size, store.errors.size], [0, 0])
  t.end()
})

t.test('[observe/history.3] a step is known when a sample was put there', t => {
  const { clock, store } = setup(1)
  const step = Math.floor(store.time.now() / 5000)
  store.open(store.time.now())
  clock.advance(10_000)
  store.open(store.time.now())
  t.same(
    [-1, 0, 1, 2, 3].map(more => store.isKnown('5m', step + more)),
    [false, true, false, true, false],
  )
  t.ok(store.isKnown('24h', Math.floor(store.time.now() / 600_000)))
  t.equal(store.runtimeOf('node'), store.runtimeOf('node'))
  t.end()
})
