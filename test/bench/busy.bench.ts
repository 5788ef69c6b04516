/** A fast function beside eight processes of others that calculate all the time: its p99 to that of the fast function alone, in one run. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { QuietRounds } from './foreign.ts'
import { start } from './hello.bench.ts'
import { hasWrk, load, median, untilBuilt } from './load.ts'
import type { BenchRow } from './rows.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const BUSY = Array.from({ length: 8 }, (_, i) => `busy${i}`)
const CONNECTIONS = 4
/** A tenth of a second of work a call. */
const CALCULATES = `import time

def handler(event):
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    return {"done": True}
`

export async function run(): Promise<BenchRow[]> {
  if (!hasWrk()) throw new Error('wrk is missing: apt-get install wrk')
  const seconds = Number(process.env.FNGW_BENCH_SECONDS ?? 2)
  const rounds = Number(process.env.FNGW_BENCH_ROUNDS ?? 5)
  const root = mkdtempSync(join(tmpdir(), 'fngw-bench-busy-'))
  const write = (folder: string, file: string, text: string): void => {
    mkdirSync(join(root, folder))
    writeFileSync(join(root, folder, file), text)
  }
  write('hello', 'handler.js', "export const handler = () => ({ message: 'hello' })\n")
  for (const name of BUSY) write(name, 'handler.py', CALCULATES)
  const program = [join(ROOT, 'dist/bin/fngw.js'), 'run', root, '--native', '--port', '0']
  const { child, match } = await start(program, /^ready (http:\S+)$/m)
  const url = match[1]!
  const quiet = new QuietRounds()
  const figures: { p50: number; p99: number; calls: number }[] = []
  try {
    for (const name of ['hello', ...BUSY]) await untilBuilt(`${url}/${name}`)
    await load(`${url}/hello`, CONNECTIONS, 1)
    const round = async () => {
      const alone = await load(`${url}/hello`, CONNECTIONS, seconds)
      // Those begin before and end after.
      const others = Promise.all(BUSY.map(name => load(`${url}/${name}`, 1, seconds + 2)))
      await new Promise(done => setTimeout(done, 1000))
      const beside = await load(`${url}/hello`, CONNECTIONS, seconds)
      const busy = await others
      const failures = [alone, beside, ...busy].reduce((sum, one) => sum + one.failures, 0)
      if (failures > 0) throw new Error(`${failures} failures`)
      return {
        p50: beside.p50Us / alone.p50Us,
        p99: beside.p99Us / alone.p99Us,
        calls: busy.reduce((sum, one) => sum + one.requests, 0) / (seconds + 2),
      }
    }
    while (figures.length < rounds) figures.push(await quiet.run(round))
  } finally {
    child.kill('SIGTERM')
    await new Promise(done => child.on('exit', done))
    rmSync(root, { recursive: true, force: true })
  }
  const of = (key: 'p50' | 'p99' | 'calls'): number => median(figures.map(one => one[key]))
  return [
    { name: `p50 beside ${BUSY.length} busy processes, to alone`, value: of('p50'), unit: 'ratio' },
    { name: 'p99', value: of('p99'), unit: 'ratio', goal: '<= 2', ok: of('p99') <= 2 },
    { name: 'calls of the busy functions', value: of('calls'), unit: '/s' },
    ...quiet.toRows(),
  ]
}
