// Kills gateways at random moments while they install packages, and looks whether a function was left with half of a set.
// Usage: npm run test:kill-installs [kills] [seed] [node|python|php ...]
import { type KilledRuntime, killInstalls } from './kills/installs.ts'

const kills = Number(process.argv[2] ?? 30)
const seed = Number(process.argv[3] ?? Date.now() % 1_000_000)
const named = process.argv.slice(4) as KilledRuntime[]
const say = (text: string): void => void process.stdout.write(`${text}\n`)

say(`seed ${seed}`)
let wrong = 0
for (const runtime of named.length > 0 ? named : (['node', 'python', 'php'] as const)) {
  const report = await killInstalls(runtime, kills, seed)
  say(
    `${runtime}: ${report.kills} kills, ${report.within} after an install began; ${report.old} left the old set, ${report.fresh} the new one`,
  )
  for (const text of report.wrong) say(`WRONG ${text}`)
  wrong += report.wrong.length
}
say(wrong === 0 ? 'no half set, every next gateway had the new one' : `${wrong} wrong`)
process.exit(wrong === 0 ? 0 : 1)
