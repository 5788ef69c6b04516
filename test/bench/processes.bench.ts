/**
 * Two gateway processes beside one, in turn, as ratios to bare node:http in the same round; through within two minutes, on a
 * busy machine too. Page: performance.
 */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { QuietRounds, SYSTEM_METER } from './foreign.ts'
import { start } from './hello.bench.ts'
import { hasWrk, load, median, READY, untilBuilt, usageOf } from './load.ts'
import type { BenchRow } from './rows.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const CONNECTIONS = 64
/** Seconds of load before a round: leases are asked for under load, and connections are shared out. */
const WARM_SECONDS = { first: 3, further: 1 }
/** Rounds of 5 s that may be repeated in all. */
const SPARE_ROUNDS = 3

/** Functions by language, and what two processes are to reach of bare node:http. */
const CASES = [
  { name: 'node', file: 'handler.js', text: "export const handler = () => ({ message: 'hello' })\n", goal: 1 },
  {
    name: 'php',
    file: 'handler.php',
    text: "<?php\nfunction handler($event) { return ['message' => 'hello']; }\n",
    goal: 1,
  },
] as const

interface Numbers {
  ratios: number[]
  cpuUs: number[]
}

export async function run(): Promise<BenchRow[]> {
  if (!hasWrk()) throw new Error('wrk is missing: apt-get install wrk')
  const seconds = Number(process.env.FNGW_BENCH_SECONDS ?? 1)
  const rounds = Number(process.env.FNGW_BENCH_ROUNDS ?? 7)
  const root = mkdtempSync(join(tmpdir(), 'fngw-bench-'))
  writeFileSync(join(root, 'fn.config.json'), '{ "max_concurrency": 0 }')
  for (const { name, file, text } of CASES) {
    mkdirSync(join(root, `hello-${name}`))
    writeFileSync(join(root, `hello-${name}`, file), text)
  }
  const bare = await start([join(ROOT, 'test/bench/bare-server.mjs')], /^(\d+)$/m)
  const serve = (count: number) =>
    start(
      [...[join(ROOT, 'dist/bin/fngw.js'), 'run', root, '--native', '--port', '0'], '--gateway-workers', String(count)],
      READY,
    )
  const gateways = [await serve(1), await serve(2)]
  const rows: BenchRow[] = []
  const quiet = new QuietRounds(SYSTEM_METER, SPARE_ROUNDS)
  try {
    for (const { name, goal } of CASES) {
      const numbers = gateways.map((): Numbers => ({ ratios: [], cpuUs: [] }))
      const measure = async (warmSeconds: number) => {
        const yardstick = await load(`http://127.0.0.1:${bare.match[1]}/`, CONNECTIONS, seconds)
        const results: { ratio: number; cpuUs: number }[] = []
        for (const { child, match } of gateways) {
          const url = `${match[1]}/hello-${name}`
          await load(url, CONNECTIONS, warmSeconds)
          const before = usageOf(child.pid!)
          const result = await load(url, CONNECTIONS, seconds)
          if (result.failures > 0) throw new Error(`${name}: ${result.failures} failures`)
          results.push({
            ratio: result.requestsPerSecond / yardstick.requestsPerSecond,
            cpuUs: ((usageOf(child.pid!).treeSeconds - before.treeSeconds) / result.requests) * 1e6,
          })
        }
        return results
      }
      for (const { match } of gateways) await untilBuilt(`${match[1]}/hello-${name}`)
      await measure(WARM_SECONDS.first)
      for (let round = 0; round < rounds; round++) {
        for (const [at, { ratio, cpuUs }] of (await quiet.run(() => measure(WARM_SECONDS.further))).entries()) {
          numbers[at]!.ratios.push(ratio)
          numbers[at]!.cpuUs.push(cpuUs)
        }
      }
      for (const [at, { ratios, cpuUs }] of numbers.entries()) {
        const ratio = median(ratios)
        const verdict = at === 0 ? {} : { goal: `>= ${goal}`, ok: ratio >= goal }
        rows.push({
          name: `hello ${name}, ${at + 1} gateway processes, to bare node:http`,
          value: ratio,
          unit: 'ratio',
          ...verdict,
        })
        rows.push({ name: '  CPU a request, gateway and workers', value: median(cpuUs), unit: 'us' })
      }
    }
  } finally {
    const all = [bare, ...gateways]
    for (const { child } of all) child.kill('SIGTERM')
    await Promise.all(all.map(({ child }) => new Promise(done => child.on('exit', done))))
    rmSync(root, { recursive: true, force: true })
  }
  return [...rows, ...quiet.toRows()]
}
