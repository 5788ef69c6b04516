/** Hello throughput, added latency and first calls per runtime, as ratios to bare node:http in the same run. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { hasWrk, load, median, usageOf } from './load.ts'
import type { BenchRow } from './rows.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

interface Language {
  name: string
  program: string
  file: string
  text: string
  goal: { c16: number; c64: number; firstMs: number; addedUs: number }
}

const LANGUAGES: Language[] = [
  {
    name: 'node',
    program: 'node',
    file: 'handler.js',
    text: "export const handler = () => ({ message: 'hello' })\n",
    goal: { c16: 0.6, c64: 0.8, firstMs: 5, addedUs: 60 },
  },
  {
    name: 'python',
    program: 'python3',
    file: 'handler.py',
    text: 'def handler(event):\n    return {"message": "hello"}\n',
    goal: { c16: 0.55, c64: 0.7, firstMs: 10, addedUs: 80 },
  },
  {
    name: 'php',
    program: 'php',
    file: 'handler.php',
    text: "<?php\nfunction handler($event) { return ['message' => 'hello']; }\n",
    goal: { c16: 0.65, c64: 0.85, firstMs: 5, addedUs: 60 },
  },
  {
    name: 'lua',
    program: 'node',
    file: 'handler.lua',
    text: 'function handler(event) return { message = "hello" } end\n',
    goal: { c16: 0.55, c64: 0.75, firstMs: 3, addedUs: 60 },
  },
]

const FIRST_CALLS = 8

function write(root: string, path: string, text: string): void {
  const file = join(root, path)
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, text)
}

async function start(args: string[], ready: RegExp): Promise<{ child: ChildProcess; match: RegExpExecArray }> {
  const child = spawn(process.execPath, args, { cwd: ROOT, stdio: ['pipe', 'pipe', 'inherit'] })
  for await (const line of createInterface({ input: child.stdout! })) {
    const match = ready.exec(line)
    if (match !== null) {
      child.stdout!.resume()
      return { child, match }
    }
  }
  throw new Error(`${args.join(' ')} ended before it was ready`)
}

export async function run(): Promise<BenchRow[]> {
  if (!hasWrk()) throw new Error('wrk is missing: apt-get install wrk')
  const seconds = Number(process.env.FNGW_BENCH_SECONDS ?? 4)
  const rounds = Number(process.env.FNGW_BENCH_ROUNDS ?? 3)
  const languages = LANGUAGES.filter(({ program }) => spawnSync(program, ['--version']).error === undefined)
  const root = mkdtempSync(join(tmpdir(), 'fngw-bench-'))
  write(root, 'fn.config.json', '{ "max_concurrency": 0 }')
  for (const { name, file, text } of languages) {
    write(root, `hello-${name}/${file}`, text)
    for (let i = 0; i <= FIRST_CALLS; i++) write(root, `first-${name}-${i}/${file}`, text)
  }
  const bare = await start([join(ROOT, 'test/bench/bare-server.mjs')], /^(\d+)$/)
  const gateway = await start(
    [join(ROOT, 'dist/bin/fngw.js'), 'run', root, '--native', '--port', '0', '--json'],
    /"url":"(http:[^"]+)"/,
  )
  const bareUrl = `http://127.0.0.1:${bare.match[1]}/`
  const baseUrl = gateway.match[1]!
  const rows: BenchRow[] = []
  try {
    for (const { name, goal } of languages) rows.push(await firstCalls(baseUrl, name, goal.firstMs))
    for (const connections of [16, 64]) {
      const ratios = new Map<string, number[]>()
      const cpu = new Map<string, number[]>()
      const own = new Map<string, number[]>()
      for (let round = 0; round < rounds; round++) {
        const bareBefore = usageOf(bare.child.pid!)
        const yardstick = await load(bareUrl, connections, seconds)
        const bareCpu = (usageOf(bare.child.pid!).ownSeconds - bareBefore.ownSeconds) / yardstick.requests
        for (const { name } of languages) {
          const url = `${baseUrl}/hello-${name}`
          await load(url, connections, 1)
          const before = usageOf(gateway.child.pid!)
          const result = await load(url, connections, seconds)
          const after = usageOf(gateway.child.pid!)
          if (result.failures > 0) throw new Error(`${name}: ${result.failures} failures`)
          const push = (map: Map<string, number[]>, value: number): void => {
            map.set(name, [...(map.get(name) ?? []), value])
          }
          push(ratios, result.requestsPerSecond / yardstick.requestsPerSecond)
          push(cpu, ((after.treeSeconds - before.treeSeconds) / result.requests) * 1e6)
          push(own, (after.ownSeconds - before.ownSeconds) / result.requests / bareCpu)
        }
      }
      for (const { name, goal } of languages) {
        const wanted = connections === 16 ? goal.c16 : goal.c64
        const ratio = median(ratios.get(name) ?? [])
        rows.push({
          name: `hello ${name}, ${connections} connections, to bare node:http`,
          value: ratio,
          unit: 'ratio',
          goal: `>= ${wanted}`,
          ok: ratio >= wanted,
        })
        rows.push({ name: `  CPU a request, gateway and workers`, value: median(cpu.get(name) ?? []), unit: 'us' })
        const ownRatio = median(own.get(name) ?? [])
        rows.push({
          name: `  gateway CPU a request to bare node's`,
          value: ownRatio,
          unit: 'ratio',
          goal: '<= 1.4',
          ok: ownRatio <= 1.4,
        })
      }
    }
    const yardstick = await load(bareUrl, 1, seconds)
    for (const { name, goal } of languages) {
      const one = await load(`${baseUrl}/hello-${name}`, 1, seconds)
      const added = one.p50Us - yardstick.p50Us
      rows.push({
        name: `added latency ${name}, 1 connection, p50`,
        value: added,
        unit: 'us',
        goal: `<= ${goal.addedUs}`,
        ok: added <= goal.addedUs,
      })
    }
    const { ownRssMb } = usageOf(gateway.child.pid!)
    rows.push({ name: 'gateway memory after the load', value: ownRssMb, unit: 'MB' })
  } finally {
    for (const { child } of [gateway, bare]) child.kill('SIGTERM')
    await Promise.all([gateway, bare].map(({ child }) => new Promise(done => child.on('exit', done))))
    rmSync(root, { recursive: true, force: true })
  }
  return rows
}

/** The daemon is warm (another function ran); the function was never called. */
async function firstCalls(baseUrl: string, name: string, goalMs: number): Promise<BenchRow> {
  const times: number[] = []
  await (await fetch(`${baseUrl}/first-${name}-0`)).text()
  for (let i = 1; i <= FIRST_CALLS; i++) {
    // Room for the daemon to prepare its next spare worker, as between the first calls of real traffic.
    await new Promise(done => setTimeout(done, 300))
    const from = performance.now()
    const response = await fetch(`${baseUrl}/first-${name}-${i}`)
    await response.text()
    times.push(performance.now() - from)
    if (response.status !== 200) throw new Error(`first call of ${name}: ${response.status}`)
  }
  const value = median(times)
  return {
    name: `first call ${name}, warm daemon, median of ${FIRST_CALLS}`,
    value,
    unit: 'ms',
    goal: `<= ${goalMs}`,
    ok: value <= goalMs,
  }
}
