import t from 'tap'
import { LoadRetry } from '../../lib/runtime/backlog.ts'
import { FakeClock } from '../helpers/clock.ts'

function makeBed() {
  const clock = new FakeClock()
  const state = { change: null as string | null, due: 0 }
  const retry = new LoadRetry({ clock, changeOf: () => state.change, onDue: () => state.due++ })
  /** A worker starts now and fails at once. */
  const fail = () => retry.wait(clock.monotonic())
  return { clock, state, retry, fail }
}

t.test('[runtime/worker-set.19] a failure to load is worth another try only while the files change', async t => {
  const { clock, state, retry, fail } = makeBed()
  t.equal(fail(), false, 'the files are as they were discovered')
  state.change = 'empty'
  t.equal(fail(), true)
  t.equal(fail(), true, 'others that fail meanwhile wait along')
  t.equal(retry.isWaiting, true)
  clock.advance(99)
  t.equal(state.due, 0)
  clock.advance(1)
  t.same([state.due, retry.isWaiting], [1, false])
  t.equal(fail(), false, 'the same files again: they are meant so')
  state.change = 'half'
  t.equal(fail(), true)
  clock.advance(100)
  t.same([state.due, clock.pending], [2, 0])
})

t.test('[runtime/worker-set.19] one that started before the last look may have seen older files', async t => {
  const { clock, state, retry, fail } = makeBed()
  const early = clock.monotonic()
  clock.advance(1)
  state.change = 'empty'
  t.equal(fail(), true)
  clock.advance(100)
  t.equal(retry.wait(early), true)
})

t.test('[runtime/worker-set.19] files that never come to rest are waited for 20 times', async t => {
  const { clock, state, fail } = makeBed()
  for (let i = 0; i < 20; i++) {
    state.change = `${i}`
    t.equal(fail(), true)
    clock.advance(100)
  }
  state.change = 'one more'
  t.equal(fail(), false)
})

t.test('[runtime/worker-set.19] stopped, nothing follows', async t => {
  const { clock, state, retry, fail } = makeBed()
  retry.stop()
  state.change = 'empty'
  fail()
  retry.stop()
  t.same([retry.isWaiting, clock.pending], [false, 0])
  clock.advance(1000)
  t.equal(state.due, 0)
})
