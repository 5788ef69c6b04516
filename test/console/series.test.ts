import t from 'tap'
import { toKnownSeconds, toLast, toMost, toRates, toSeconds, toSum } from '../../console/series.ts'

/** Four steps of 5 s; counted from the middle of the second to the first second of the last. */
const STEPS = { times: [100, 105, 110, 115], step_ms: 5000, started_at: 107, generated_at: 116 }

t.test('[console/overview.2] a rate is of the seconds in which was counted', async t => {
  t.same(toSeconds(STEPS), [0, 3, 5, 1])
  t.same(toRates([null, 6, 20, 7], STEPS), [null, 2, 4, 7])
  t.same(toRates([null, 6, null, 0], STEPS), [null, 2, null, 0], 'a gap is no zero')
  t.same(toRates([null, null, null, 3], { ...STEPS, generated_at: 115.1 }), [null, null, null, 3])
  t.equal(toKnownSeconds([null, 6, null, 7], STEPS), 4)
})

t.test('[console/overview.2] sums, the greatest and the newest are of what is known', async t => {
  t.equal(toSum([null, 2, 3]), 5)
  t.equal(toMost([null, 2, 0]), 2)
  t.equal(toMost([null]), null)
  t.equal(toMost([0]), 0)
  t.equal(toLast([1, 2, null]), 2)
  t.equal(toLast([]), null)
})
