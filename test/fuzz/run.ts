/**
 * `npm run fuzz -- [--seconds N] [--seed S] [--only NAME]`: random inputs for everything that reads input of others. The time
 * is shared by the targets. Ends with 1 when one of them failed; a failure prints its seed, and its input for the corpus.
 */

import { parseArgs } from 'node:util'
import { fuzz } from './fuzz.ts'
import { TARGETS } from './targets.ts'

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000_007) },
    only: { type: 'string' },
  },
})
const seconds = Number(values.seconds)
const seed = Number(values.seed)
const chosen = TARGETS.filter(({ name }) => values.only === undefined || name.startsWith(values.only))
if (!(seconds > 0) || !Number.isInteger(seed) || chosen.length === 0) {
  process.stderr.write(
    `usage: npm run fuzz -- [--seconds N] [--seed S] [--only NAME]\nnames: ${TARGETS.map(({ name }) => name).join(' ')}\n`,
  )
  process.exit(2)
}

process.stdout.write(`seed ${seed}\n`)
let failed = 0
for (const target of chosen) {
  if (typeof target.missing === 'string') {
    process.stdout.write(`skipped ${target.name}: ${target.missing}\n`)
    continue
  }
  const { name, runs, failure } = await fuzz(target, (seconds * 1000) / chosen.length, seed)
  if (failure === null) process.stdout.write(`passed  ${name}: ${runs} inputs\n`)
  else {
    failed++
    process.stdout.write(`FAILED  ${name} after ${runs} inputs\n${failure}\n`)
  }
}
process.stdout.write(`${chosen.length - failed} passed, ${failed} failed\n`)
process.exitCode = failed === 0 ? 0 : 1
