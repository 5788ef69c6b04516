/** The gateway's own work for a hello: the request path against bare node:http, in one run. */

import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { QuietRounds, toMood } from './foreign.ts'
import { hasWrk, load, median, usageOf } from './load.ts'
import type { BenchRow } from './rows.ts'

const HERE = fileURLToPath(new URL('.', import.meta.url))
/** Microseconds of own work that performance.md allows. */
const OWN_WORK_US = 12

interface Server {
  child: ChildProcess
  url: string
}

async function start(args: string[], path: string): Promise<Server> {
  const child = spawn(process.execPath, args, { cwd: HERE, stdio: ['ignore', 'pipe', 'inherit'] })
  for await (const line of createInterface({ input: child.stdout! }))
    return { child, url: `http://127.0.0.1:${line}${path}` }
  throw new Error(`${args.join(' ')} ended before it listened`)
}

export async function run(): Promise<BenchRow[]> {
  if (!hasWrk()) throw new Error('wrk is missing: apt-get install wrk')
  const seconds = Number(process.env.FNGW_BENCH_SECONDS ?? 3)
  const rounds = Number(process.env.FNGW_BENCH_ROUNDS ?? 5)
  const bare = await start(['bare-server.mjs'], '/')
  const folder = mkdtempSync(join(tmpdir(), 'fngw-bench-'))
  const own = await start(['--import', 'tsx', 'own-work-server.ts'], '/hello')
  const logging = await start(['--import', 'tsx', 'own-work-server.ts', folder], '/hello')
  const ratios: number[] = []
  const quiet = new QuietRounds()
  const cpu = { bare: [] as number[], own: [] as number[], logging: [] as number[] }
  try {
    const measure = async ({ child, url }: Server, figures: number[]): Promise<number> => {
      const { result, cpu } = await quiet.run(async () => {
        const before = usageOf(child.pid!).ownSeconds
        const result = await load(url, 64, seconds)
        return { result, cpu: usageOf(child.pid!).ownSeconds - before }
      })
      if (result.failures > 0) throw new Error(`${url}: ${result.failures} failures`)
      figures.push((cpu / result.requests) * 1e6)
      return result.requestsPerSecond
    }
    await load(bare.url, 64, 1)
    await load(own.url, 64, 2)
    await load(logging.url, 64, 2)
    for (let round = 0; round < rounds; round++) {
      const yardstick = await measure(bare, cpu.bare)
      ratios.push((await measure(own, cpu.own)) / yardstick)
      await measure(logging, cpu.logging)
    }
  } finally {
    for (const { child } of [bare, own, logging]) child.kill('SIGTERM')
    rmSync(folder, { recursive: true, force: true })
  }
  const added = median(cpu.own) - median(cpu.bare)
  const ratio = median(cpu.own) / median(cpu.bare)
  return [
    { name: 'hello without a runtime, 64 connections, to bare node:http', value: median(ratios), unit: 'ratio' },
    { name: 'CPU a request, bare node:http', value: median(cpu.bare), unit: 'us' },
    { name: 'CPU a request, request path', value: median(cpu.own), unit: 'us' },
    { name: 'access log to a file, a request', value: median(cpu.logging) - median(cpu.own), unit: 'us' },
    { name: 'own work a request', value: added, unit: 'us', goal: `<= ${OWN_WORK_US}`, ok: added <= OWN_WORK_US },
    { name: 'CPU of request path to bare node', value: ratio, unit: 'ratio', goal: '<= 1.4', ok: ratio <= 1.4 },
    ...quiet.toRows(),
    toMood(median(cpu.bare)),
  ]
}
