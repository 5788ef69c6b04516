/** Hello throughput and added latency per runtime, as ratios to bare node:http in the same run. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { QuietRounds, toMood } from './foreign.ts'
import { hasWrk, load, median, READY, untilBuilt, usageOf } from './load.ts'
import type { BenchRow } from './rows.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

interface Language {
  name: string
  program: string
  file: string
  text: string
  goal: { c16: number; c64: number; addedUs: number }
}

export const LANGUAGES: Language[] = [
  {
    name: 'node',
    program: 'node',
    file: 'handler.js',
    text: "export const handler = () => ({ message: 'hello' })\n",
    goal: { c16: 0.6, c64: 0.8, addedUs: 60 },
  },
  {
    name: 'python',
    program: 'python3',
    file: 'handler.py',
    text: 'def handler(event):\n    return {"message": "hello"}\n',
    goal: { c16: 0.55, c64: 0.7, addedUs: 80 },
  },
  {
    name: 'php',
    program: 'php',
    file: 'handler.php',
    text: "<?php\nfunction handler($event) { return ['message' => 'hello']; }\n",
    goal: { c16: 0.65, c64: 0.85, addedUs: 60 },
  },
  {
    name: 'lua',
    program: 'node',
    file: 'handler.lua',
    text: 'function handler(event) return { message = "hello" } end\n',
    goal: { c16: 0.55, c64: 0.75, addedUs: 60 },
  },
  {
    name: 'go',
    program: 'go',
    file: 'handler.go',
    text: `package main

func Handler(event map[string]any) map[string]any {
	return map[string]any{"status": 200, "headers": map[string]any{"Content-Type": "application/json"}, "body": "{\\"message\\":\\"hello\\"}"}
}
`,
    goal: { c16: 0.65, c64: 0.85, addedUs: 60 },
  },
  {
    name: 'rust',
    program: 'cargo',
    file: 'handler.rs',
    text: `use serde_json::{json, Value};

pub fn handler(_event: Value) -> Value {
    json!({"status": 200, "headers": {"Content-Type": "application/json"}, "body": "{\\"message\\":\\"hello\\"}"})
}
`,
    goal: { c16: 0.65, c64: 0.85, addedUs: 60 },
  },
]

function write(root: string, path: string, text: string): void {
  const file = join(root, path)
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, text)
}

export async function start(
  args: string[],
  ready: RegExp,
  more: NodeJS.ProcessEnv = {},
): Promise<{ child: ChildProcess; match: RegExpExecArray }> {
  const env = { ...process.env, FN_RUNTIMES: LANGUAGES.map(({ name }) => name).join(','), ...more }
  // Into a file, as a service manager has it: reading access lines here would take the processor that is measured.
  const folder = mkdtempSync(join(tmpdir(), 'fngw-bench-out-'))
  const outPath = join(folder, 'out.log')
  const out = openSync(outPath, 'w')
  const child = spawn(process.execPath, args, { cwd: ROOT, env, stdio: ['pipe', out, 'inherit'] })
  closeSync(out)
  child.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  while (child.exitCode === null) {
    const match = ready.exec(readFileSync(outPath, 'utf8'))
    if (match !== null) return { child, match }
    await new Promise(resolve => setTimeout(resolve, 10))
  }
  throw new Error(`${args.join(' ')} ended before it was ready`)
}

export async function run(): Promise<BenchRow[]> {
  if (!hasWrk()) throw new Error('wrk is missing: apt-get install wrk')
  const seconds = Number(process.env.FNGW_BENCH_SECONDS ?? 4)
  const rounds = Number(process.env.FNGW_BENCH_ROUNDS ?? 3)
  const only = process.env.FNGW_BENCH_LANGUAGES?.split(',')
  const languages = LANGUAGES.filter(
    ({ name, program }) => (only?.includes(name) ?? true) && spawnSync(program, ['--version']).error === undefined,
  )
  const root = mkdtempSync(join(tmpdir(), 'fngw-bench-'))
  write(root, 'fn.config.json', '{ "max_concurrency": 0 }')
  for (const { name, file, text } of languages) {
    write(root, `hello-${name}/${file}`, text)
  }
  const bare = await start([join(ROOT, 'test/bench/bare-server.mjs')], /^(\d+)$/m)
  const gateway = await start([join(ROOT, 'dist/bin/fngw.js'), 'run', root, '--native', '--port', '0'], READY)
  const bareUrl = `http://127.0.0.1:${bare.match[1]}/`
  const baseUrl = gateway.match[1]!
  const rows: BenchRow[] = []
  const quiet = new QuietRounds()
  const bareCpus: number[] = []
  try {
    for (const { name } of languages) await untilBuilt(`${baseUrl}/hello-${name}`)
    for (const connections of [16, 64]) {
      const ratios = new Map<string, number[]>()
      const cpu = new Map<string, number[]>()
      const own = new Map<string, number[]>()
      for (let round = 0; round < rounds; round++) {
        const [yardstick, bareCpu] = await quiet.run(async () => {
          const before = usageOf(bare.child.pid!)
          const result = await load(bareUrl, connections, seconds)
          return [result, (usageOf(bare.child.pid!).ownSeconds - before.ownSeconds) / result.requests] as const
        })
        bareCpus.push(bareCpu * 1e6)
        for (const { name } of languages) {
          const url = `${baseUrl}/hello-${name}`
          await load(url, connections, 1)
          const { before, result, after } = await quiet.run(async () => ({
            before: usageOf(gateway.child.pid!),
            result: await load(url, connections, seconds),
            after: usageOf(gateway.child.pid!),
          }))
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
    rows.push(
      { name: 'gateway memory after the load', value: ownRssMb, unit: 'MB' },
      ...quiet.toRows(),
      toMood(median(bareCpus)),
    )
  } finally {
    for (const { child } of [gateway, bare]) child.kill('SIGTERM')
    await Promise.all([gateway, bare].map(({ child }) => new Promise(done => child.on('exit', done))))
    rmSync(root, { recursive: true, force: true })
  }
  return rows
}
