// Runs mixed traffic against a gateway whose processes are killed and whose files are edited, and checks every response.
// Usage: npm run soak -- [--seconds 60] [--seed N] [--clients 12]
import { parseArgs } from 'node:util'
import { soak } from './soak/soak.ts'

const { values } = parseArgs({
  options: { seconds: { type: 'string' }, seed: { type: 'string' }, clients: { type: 'string' } },
})
const seed = Number(values.seed ?? Date.now() % 1_000_000)
const say = (text: string): void => void process.stdout.write(`${text}\n`)

say(`seed ${seed}`)
const { wrong, ...counts } = await soak({
  seconds: Number(values.seconds ?? 60),
  seed,
  clients: Number(values.clients ?? 12),
  say,
})
say(JSON.stringify(counts))
for (const text of wrong) say(`WRONG ${text}`)
say(
  wrong.length === 0
    ? 'each request had one whole response, each job and schedule its runs'
    : `${wrong.length} wrong, seed ${seed}`,
)
process.exit(wrong.length === 0 ? 0 : 1)
