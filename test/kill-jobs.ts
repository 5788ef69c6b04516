// Kills gateways, and processes that keep jobs, at random moments, and looks whether a job was lost, ran too often or is stuck.
// Usage: npm run test:kill-jobs [kills] [seed]
import { killGateways, killKeepers } from './kills/jobs.ts'

const kills = Number(process.argv[2] ?? 200)
const seed = Number(process.argv[3] ?? Date.now() % 1_000_000)
const say = (text: string): void => void process.stdout.write(`${text}\n`)

say(`seed ${seed}`)
const keepers = await killKeepers(kills, seed)
say(`processes that keep jobs: ${keepers.kills} kills, ${keepers.acknowledged} steps acknowledged`)
const gateways = await killGateways(kills, seed, say)
const wrong = [...keepers.wrong, ...gateways.wrong]
for (const text of wrong) say(`WRONG ${text}`)
say(
  wrong.length === 0
    ? `${kills} and ${kills} kills: nothing lost, nothing doubled, nothing stuck`
    : `${wrong.length} wrong`,
)
process.exit(wrong.length === 0 ? 0 : 1)
