import t from 'tap'
import { StepRing } from '../../lib/observe/history.ts'

const read = (ring: StepRing<number>, steps: readonly number[]): (number | null)[] => steps.map(step => ring.get(step))

t.test('[observe/history.1] a step is written again, and the oldest is dropped when a new one comes', t => {
  const ring = new StepRing<number>(3)
  t.same(read(ring, [0, 100]), [null, null], 'nothing was written')
  ring.set(100, 1)
  ring.set(100, 3)
  t.same(read(ring, [97, 98, 99, 100, 101]), [null, null, null, 3, null])
  ring.set(101, 5)
  ring.set(103, 7)
  t.same(read(ring, [100, 101, 102, 103]), [null, 5, null, 7])
  t.end()
})

t.test('[observe/history.1] after a long time without a word nothing of the past is left', t => {
  for (const gap of [3, 4, 1000, 1e8]) {
    const ring = new StepRing<number>(3)
    for (const step of [0, 1, 2]) ring.set(step, 9)
    ring.set(2 + gap, 1)
    const last = 2 + gap
    t.same(read(ring, [last - 2, last - 1, last]), [null, null, 1], `${gap} steps later`)
  }
  t.end()
})
