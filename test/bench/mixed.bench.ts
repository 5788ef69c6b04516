/**
 * The gateway's own work for clients that have little in common, beside clients that repeat one request: what is
 * remembered of the last request has to bring something for both. Ratios and differences to bare node:http in one run.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { hasWrk, load, median, usageOf } from './load.ts'
import type { BenchRow } from './rows.ts'

const HERE = fileURLToPath(new URL('.', import.meta.url))
const CONNECTIONS = [16, 64]

interface Server {
  child: ChildProcess
  origin: string
}

async function start(args: string[]): Promise<Server> {
  const child = spawn(process.execPath, args, { cwd: HERE, stdio: ['ignore', 'pipe', 'inherit'] })
  for await (const line of createInterface({ input: child.stdout! }))
    return { child, origin: `http://127.0.0.1:${line}` }
  throw new Error(`${args.join(' ')} ended before it listened`)
}

export async function run(): Promise<BenchRow[]> {
  if (!hasWrk()) throw new Error('wrk is missing: apt-get install wrk')
  const seconds = Number(process.env.FNGW_BENCH_SECONDS ?? 3)
  const rounds = Number(process.env.FNGW_BENCH_ROUNDS ?? 5)
  const bare = await start(['bare-server.mjs'])
  const own = await start(['--import', 'tsx', 'own-work-server.ts'])
  const figures = new Map<string, number[]>()
  const note = (name: string, value: number): void => {
    figures.set(name, [...(figures.get(name) ?? []), value])
  }
  const measure = async ({ child, origin }: Server, path: string, connections: number, script: string | null) => {
    const before = usageOf(child.pid!).ownSeconds
    const { requests, requestsPerSecond, failures } = await load(origin + path, connections, seconds, script)
    if (failures > 0) throw new Error(`${origin}${path}: ${failures} failures`)
    return { us: ((usageOf(child.pid!).ownSeconds - before) / requests) * 1e6, rate: requestsPerSecond }
  }
  try {
    for (const server of [bare, own]) {
      await load(`${server.origin}/hello`, 64, 1)
      await load(server.origin, 64, 2, 'mixed.lua')
    }
    for (let round = 0; round < rounds; round++) {
      for (const connections of CONNECTIONS) {
        for (const [name, path, script] of [
          ['repeated', '/hello', null],
          ['mixed', '', 'mixed.lua'],
        ] as const) {
          const yardstick = await measure(bare, path, connections, script)
          const { us, rate } = await measure(own, path, connections, script)
          note(`${name}, ${connections} connections, to bare node:http`, rate / yardstick.rate)
          note(`  own work a request, ${name}, ${connections}`, us - yardstick.us)
          note(`  CPU a request, bare, ${name}, ${connections}`, yardstick.us)
        }
      }
    }
  } finally {
    for (const { child } of [bare, own]) child.kill('SIGTERM')
  }
  return [...figures].map(([name, values]) => ({
    name,
    value: median(values),
    unit: name.includes('to bare') ? 'ratio' : 'us',
  }))
}
