/**
 * What people run: default settings (JSON access lines, the default limit with its queue) and requests that differ, beside bare node:http,
 * fastify and a bare pair of processes (the bound of every gateway whose functions run in another process) in the same rounds. The cost of
 * the limit and of the line, each against the same gateway without it. Two minutes.
 */

import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { QuietRounds, toMood } from './foreign.ts'
import { LANGUAGES, start } from './hello.bench.ts'
import { hasWrk, load, median, READY, untilBuilt, usageOf } from './load.ts'
import type { BenchRow } from './rows.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const SCRIPT = 'defaults.lua'
/** Of bare node:http, by connections; ahead of fastify too. */
const GOALS = { 64: 0.85, 16: 0.75 }
const MOST_LOST = { limit: 0.05, line: 0.08 }
/** Median of one connection, of bare node:http. */
const MOST_LATENCY = 1.8
const MANY = 1000
/** Rounds that may be thrown away in all: the case ends in time. */
const SPARE_ROUNDS = 10

interface Server {
  name: string
  origin: string
  pid: number
  stop(): void
}

/** The folder of fastify, installed for this run; null without a registry. */
function installFastify(folder: string): string | null {
  writeFileSync(join(folder, 'package.json'), '{}')
  const words = ['install', '--no-audit', '--no-fund', '--ignore-scripts', 'fastify@5']
  return spawnSync('npm', words, { cwd: folder, timeout: 60_000 }).status === 0 ? folder : null
}

function writeTree(root: string, languages: typeof LANGUAGES, config: object): void {
  for (const { name, file, text } of languages) {
    const folder = join(root, `hello-${name}/[id]`)
    mkdirSync(folder, { recursive: true })
    writeFileSync(join(folder, file), text)
    writeFileSync(join(folder, 'fn.config.json'), JSON.stringify({ invoke: { methods: ['GET', 'POST'] }, ...config }))
  }
}

export async function run(): Promise<BenchRow[]> {
  if (!hasWrk()) throw new Error('wrk is missing: apt-get install wrk')
  const seconds = Number(process.env.FNGW_BENCH_SECONDS ?? 1)
  const rounds = Number(process.env.FNGW_BENCH_ROUNDS ?? 3)
  const languages = LANGUAGES.filter(({ program }) => spawnSync(program, ['--version']).error === undefined)
  const temp = mkdtempSync(join(tmpdir(), 'fngw-bench-'))
  const servers: Server[] = []
  const serve = async (name: string, args: string[], ready: RegExp, env = {}): Promise<Server> => {
    const { child, match } = await start(args, ready, env)
    const origin = /^\d+$/.test(match[1]!) ? `http://127.0.0.1:${match[1]}` : match[1]!
    const server = { name, origin, pid: child.pid!, stop: () => child.kill('SIGTERM') }
    servers.push(server)
    return server
  }
  const gateway = async (name: string, config: object, of: typeof LANGUAGES, env = {}): Promise<Server> => {
    const root = join(temp, name)
    writeTree(root, of, config)
    const words = [join(ROOT, 'dist/bin/fngw.js'), 'run', root, '--native', '--port', '0']
    const server = await serve(name, words, READY, { FN_RUNTIMES: of.map(one => one.name).join(','), ...env })
    for (const one of of) await untilBuilt(`${server.origin}/hello-${one.name}/1`)
    return server
  }
  const rows: BenchRow[] = []
  const quiet = new QuietRounds(undefined, SPARE_ROUNDS)
  try {
    const bare = await serve('bare', [join(ROOT, 'test/bench/bare-server.mjs')], /^(\d+)$/m)
    const peer = installFastify(temp)
    const fastify =
      peer === null ? null : await serve('fastify', [join(ROOT, 'test/bench/fastify-server.mjs'), peer], READY)
    const pair = await serve('pair', [join(ROOT, 'test/bench/bare-pair.mjs')], /^(\d+)$/m)
    const own = await gateway('defaults', {}, languages)
    const node = LANGUAGES.filter(({ name }) => name === 'node')
    const variants = {
      limit: await gateway('no-limit', { max_concurrency: 0 }, node),
      line: await gateway('no-line', {}, node, { FN_ACCESS_LOG: '0' }),
    }
    const figures = new Map<string, { rate: number[]; cpu: number[]; p50: number[]; failures: number }>()
    const measure = async (server: Server, path: string, connections: number): Promise<void> => {
      const key = `${server.name}${path} ${connections}`
      const before = usageOf(server.pid).treeSeconds
      const result = await load(server.origin, connections, seconds, SCRIPT, [path])
      const row = figures.get(key) ?? { rate: [], cpu: [], p50: [], failures: 0 }
      row.rate.push(result.requestsPerSecond)
      row.cpu.push(((usageOf(server.pid).treeSeconds - before) / result.requests) * 1e6)
      row.p50.push(result.p50Us)
      row.failures += result.failures
      figures.set(key, row)
    }
    for (const server of servers)
      for (const { name } of server === own ? languages : node)
        await load(server.origin, 64, 1, SCRIPT, [server === fastify ? '/hello' : `/hello-${name}`])
    for (let round = 0; round < rounds; round++)
      for (const connections of [64, 16, 1]) {
        await quiet.run(() => measure(bare, '/hello', connections))
        await quiet.run(() => measure(pair, '/hello', connections))
        if (fastify !== null) await quiet.run(() => measure(fastify, '/hello', connections))
        for (const { name } of languages) await quiet.run(() => measure(own, `/hello-${name}`, connections))
        if (connections !== 64) continue
        for (const server of Object.values(variants)) await quiet.run(() => measure(server, '/hello-node', connections))
      }
    const figure = (server: Server, path: string, connections: number) =>
      figures.get(`${server.name}${path} ${connections}`)!
    const ratioTo = (yardstick: number[], rates: number[]): number =>
      median(rates.map((rate, i) => rate / yardstick[i]!))
    for (const connections of [64, 16] as const) {
      const { rate: yardstick, cpu } = figure(bare, '/hello', connections)
      const of = `${connections} connections, of bare node:http`
      const peerRatio = fastify === null ? 0 : ratioTo(yardstick, figure(fastify, '/hello', connections).rate)
      if (fastify !== null) rows.push({ name: `fastify, ${of}`, value: peerRatio, unit: 'ratio' })
      const pairRatio = ratioTo(yardstick, figure(pair, '/hello', connections).rate)
      rows.push({ name: `a bare pair of processes, ${of}`, value: pairRatio, unit: 'ratio' })
      for (const { name } of languages) {
        const { rate, cpu: ownCpu, failures } = figure(own, `/hello-${name}`, connections)
        const value = ratioTo(yardstick, rate)
        const goal = Math.max(GOALS[connections], peerRatio)
        rows.push(
          { name: `hello ${name}, ${of}`, value, unit: 'ratio', goal: `>= ${goal.toFixed(2)}`, ok: value >= goal },
          { name: '  CPU a request, gateway and workers', value: median(ownCpu), unit: 'us' },
          {
            name: '  slowest to fastest round',
            value: Math.min(...rate) / Math.max(...rate),
            unit: 'ratio',
            goal: '>= 0.85',
            ok: Math.min(...rate) / Math.max(...rate) >= 0.85,
          },
        )
        if (failures > 0) rows.push({ name: `  refused or failed`, value: failures, unit: '', goal: '0', ok: false })
      }
      if (connections === 64) rows.push(toMood(median(cpu)))
    }
    const { p50: bareWaits } = figure(bare, '/hello', 1)
    const latency = (name: string, { p50 }: { p50: number[] }, goal?: number): void => {
      const value = ratioTo(bareWaits, p50)
      rows.push({
        name: `p50 of ${name}, 1 connection, to bare`,
        value,
        unit: 'ratio',
        ...(goal !== undefined && { goal: `<= ${goal}`, ok: value <= goal }),
      })
    }
    latency('a bare pair of processes', figure(pair, '/hello', 1))
    for (const { name } of languages) latency(name, figure(own, `/hello-${name}`, 1), MOST_LATENCY)
    const { rate } = figure(own, '/hello-node', 64)
    for (const [name, server] of Object.entries(variants)) {
      const most = MOST_LOST[name as keyof typeof MOST_LOST]
      const value = 1 - ratioTo(figure(server, '/hello-node', 64).rate, rate)
      rows.push({
        name: `lost to the ${name}, node, 64 connections`,
        value,
        unit: 'share',
        goal: `<= ${most}`,
        ok: value <= most,
      })
    }
    const many = await load(own.origin, MANY, 3, SCRIPT, ['/hello-node'])
    rows.push({
      name: `refused, node, ${MANY} connections`,
      value: many.failures / many.requests,
      unit: 'share',
      goal: '0',
      ok: many.failures === 0,
    })
    rows.push(...quiet.toRows())
    if (fastify === null) process.stderr.write('fastify is left out: no registry\n')
  } finally {
    for (const server of servers) server.stop()
    rmSync(temp, { recursive: true, force: true })
  }
  return rows
}
