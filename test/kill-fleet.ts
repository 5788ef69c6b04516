// Kills gateways of a fleet, cuts them off and restarts its store at random moments. Usage: npm run test:kill-fleet [kills] [seed]
import { killFleet } from './kills/fleet.ts'

const kills = Number(process.argv[2] ?? 100)
const seed = Number(process.argv[3] ?? Date.now() % 1_000_000)
const say = (text: string): void => void process.stdout.write(`${text}\n`)
const ends: (() => unknown)[] = []

say(`seed ${seed}`)
const t = { teardown: (end: () => unknown) => ends.push(end) } as never
const { wrong, ...counts } = await killFleet(
  t,
  { kills, seed, storeRestarts: 3, storeStopMs: 20_000, partitions: Math.ceil(kills / 10), schedules: 4, clients: 3 },
  say,
)
for (const end of ends) await end()
for (const text of wrong) say(`WRONG ${text}`)
say(JSON.stringify(counts))
say(wrong.length === 0 ? `${kills} kills: nothing lost, nothing doubled` : `${wrong.length} wrong`)
process.exit(wrong.length === 0 ? 0 : 1)
