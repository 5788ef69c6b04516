import t from 'tap'
import { StepRing } from '../../lib/observe/step-ring.ts'

function add(ring: StepRing, step: number, value: number): void {
  const at = ring.open(step)
  ring.numbers[at]! += value
  ring.numbers[at + 1]! += 1
}

function read(ring: StepRing, steps: readonly number[]): (number | null)[] {
  return steps.map(step => {
    const at = ring.find(step)
    return at === -1 ? null : ring.numbers[at]!
  })
}

t.test('[observe/history.1] a step is added to, and the oldest goes when a new one comes', t => {
  const ring = new StepRing(3, 2)
  t.same(read(ring, [0, 100]), [null, null], 'nothing was written')
  add(ring, 100, 1)
  add(ring, 100, 2)
  t.same(read(ring, [97, 98, 99, 100, 101]), [null, 0, 0, 3, null])
  t.equal(ring.numbers[ring.find(100) + 1], 2)
  add(ring, 101, 5)
  add(ring, 103, 7)
  t.same(read(ring, [100, 101, 102, 103]), [null, 5, 0, 7])
  t.end()
})

t.test('[observe/history.1] after a long time without a word nothing of the past is left', t => {
  for (const gap of [3, 4, 1000, 1e8]) {
    const ring = new StepRing(3, 2)
    for (const step of [0, 1, 2]) add(ring, step, 9)
    add(ring, 2 + gap, 1)
    const last = 2 + gap
    t.same(read(ring, [last - 2, last - 1, last]), [0, 0, 1], `${gap} steps later`)
  }
  t.end()
})
