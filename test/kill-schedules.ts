// Kills gateways at random moments while their schedules run, and looks whether a due time was lost, or had two runs.
// Usage: npm run test:kill-schedules [kills] [seed]
import { killSchedules } from './kills/schedules.ts'

const kills = Number(process.argv[2] ?? 100)
const seed = Number(process.argv[3] ?? Date.now() % 1_000_000)
const say = (text: string): void => void process.stdout.write(`${text}\n`)

say(`seed ${seed}`)
const { wrong, noted, began, cutOff } = await killSchedules(kills, seed, say)
for (const text of wrong) say(`WRONG ${text}`)
say(`${noted} runs noted, ${began} began, ${cutOff} cut off`)
say(wrong.length === 0 ? `${kills} kills: nothing lost, nothing doubled` : `${wrong.length} wrong`)
process.exit(wrong.length === 0 ? 0 : 1)
