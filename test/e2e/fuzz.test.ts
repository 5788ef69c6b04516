import t from 'tap'
import { fuzz } from '../fuzz/fuzz.ts'
import { TARGETS } from '../fuzz/targets.ts'

// Builds of Go and Rust come on top of the time that the targets share. `npm run fuzz` takes a minute, or as long as it is given.
t.setTimeout(280_000)

const FUZZ_MS = 10_000
const seed = Date.now() % 1_000_000_007

for (const target of TARGETS) {
  const skip = target.missing ?? false
  t.test(`[reliability.9] ${target.name} accepts or refuses every input and keeps working`, { skip }, async t => {
    const { runs, failure } = await fuzz(target, FUZZ_MS / TARGETS.length, seed)
    t.comment(`${runs} inputs, seed ${seed}`)
    t.equal(failure, null)
  })
}
