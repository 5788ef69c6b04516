// What 10,000 schedules cost: reading their configs, the start from a state file, ticks with nothing and with one due.
// Usage: node --import tsx test/bench/schedules.ts [count]
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { SchedulePolicy } from '../../lib/core/catalog.ts'
import { parseCron } from '../../lib/core/cron.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { RootLock } from '../../lib/files/root-lock.ts'
import { FileScheduleStore } from '../../lib/scheduler/schedule-store.ts'
import { Scheduler } from '../../lib/scheduler/scheduler.ts'
import { FakeClock } from '../helpers/clock.ts'
import { scheduled } from '../helpers/schedules-bed.ts'

const count = Number(process.argv[2] ?? 10_000)
const root = mkdtempSync(join(tmpdir(), 'fngw-bench-'))
const show = (what: string, ms: number, unit = 'ms'): void =>
  void process.stdout.write(`${what.padEnd(58)} ${ms.toFixed(2)} ${unit}\n`)

/** Half of them intervals, half cron texts of 1,440 times and four zones. */
function toPolicy(i: number): Partial<SchedulePolicy> {
  if (i % 2 === 0) return { everySeconds: 3600 + (i % 500) }
  const timezone = ['UTC', 'local', 'Europe/Berlin', '+05:30'][i % 4]!
  return { everySeconds: null, cron: `${i % 60} ${Math.floor(i / 60) % 24} * * *`, timezone }
}

const clock = new FakeClock()
const functions = new Map(
  Array.from({ length: count }, (_, i) => scheduled(`f${i}`, toPolicy(i))).map(fn => [fn.key, fn]),
)

function make() {
  const folder = new OwnFolder(root, '.svc')
  const lock = new RootLock(folder, clock)
  const store = new FileScheduleStore({ folder, lock, path: null, persists: true, now: () => clock.wall() })
  const scheduler = new Scheduler({
    clock,
    store,
    tickMs: 1000,
    enabled: true,
    persistMs: 15_000,
    call: async () => ({ status: 200, error: null, latencyMs: 0 }),
    ping: async () => ({ status: 200, error: null }),
    onEvent: () => {},
    onLog: () => {},
  })
  return { scheduler, lock }
}

async function start(what: string) {
  const begunAt = performance.now()
  const { scheduler, lock } = make()
  scheduler.adopt(functions)
  await scheduler.start()
  show(`${count} schedules: ${what}`, performance.now() - begunAt)
  return { scheduler, lock }
}

const first = await start('first start')
await first.scheduler.close(0)
first.lock.release()
const { scheduler, lock } = await start('start with the state of before')

const times: number[] = []
for (let i = 0; i < 600; i++) {
  const begunAt = performance.now()
  clock.advance(1000)
  times.push(performance.now() - begunAt)
  await new Promise(setImmediate)
}
times.sort((a, b) => a - b)
show('tick, median of 600 (2 to 3 runs begin in each)', times[300]!)
show('tick, longest of 600', times.at(-1)!)
const reloadAt = performance.now()
scheduler.adopt(functions)
show('reload that changes nothing', performance.now() - reloadAt)
await scheduler.close(0)
lock.release()
rmSync(root, { recursive: true })

const cronAt = performance.now()
for (let i = 0; i < 1000; i++) parseCron(`${i % 60} ${i % 24} 1-7 * MON`)
show('reading a cron text, as for each config', performance.now() - cronAt, 'us')
