/**
 * A gateway with a store: jobs a second beside bare BullMQ in alternating rounds, public requests while many jobs are done, what a job
 * costs Redis, and the start with and without the store. Page: performance/fleet.
 * `FNGW_BENCH_JOBS` jobs of one round, `FNGW_BENCH_DRAIN` jobs that are drained, `FNGW_BENCH_ROUNDS` rounds.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Redis } from 'ioredis'
import { type RedisBed, startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'
import { QuietRounds } from './foreign.ts'
import { start } from './hello.bench.ts'
import { median, READY, usageOf } from './load.ts'
import type { BenchRow } from './rows.ts'

const PROGRAM = fileURLToPath(new URL('../../dist/bin/fngw.js', import.meta.url))
const BARE = fileURLToPath(new URL('./bare-bullmq.mjs', import.meta.url))
/** Jobs that run at once, and jobs that are created at once. */
const CONCURRENCY = 16
const LANES = 32
/** Jobs whose commands are watched. */
const WATCHED = 200
/** Milliseconds between two public requests of the probe, which do not wait for each other. */
const PROBE_MS = 4
/** Seconds of the probe without jobs. */
const ALONE_S = 8
const STARTS = 5
/** Seconds in which an idle gateway is watched. */
const IDLE_S = 20
const LISTENERS = 100
/** Milliseconds between two looks whether jobs are done. */
const LOOK_MS = 20
const FILES = {
  'hello/handler.js': "export const handler = () => ({ message: 'hello' })\n",
  'work/handler.js': 'export const handler = () => ({ status: 200, body: "done" })\n',
}

const agent = new Agent({ keepAlive: true, maxSockets: LANES })

function call(url: string, body?: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = body === undefined ? {} : { 'content-type': 'application/json', 'content-length': body.length }
    const outgoing = request(url, { agent, method: body === undefined ? 'GET' : 'POST', headers }, response => {
      response.resume()
      response.on('end', () => {
        if (response.statusCode! < 300) resolve()
        else reject(new Error(`${url}: ${response.statusCode}`))
      })
    })
    outgoing.on('error', reject)
    outgoing.end(body)
  })
}

/** @param fields - of the nth job */
async function createJobs(url: string, count: number, fields: () => object = () => ({})): Promise<void> {
  let left = count
  const lane = async (): Promise<void> => {
    while (left-- > 0) await call(`${url}/_fn/jobs`, JSON.stringify({ name: 'work', context: { n: 1 }, ...fields() }))
  }
  await Promise.all(Array.from({ length: LANES }, lane))
}

/** Resolves when no job waits or runs. */
async function untilDone(redis: Redis): Promise<void> {
  const count = async (): Promise<number> =>
    (await redis.zcard('{fngw}:jobs:queued')) + (await redis.zcard('{fngw}:jobs:running'))
  while ((await count()) > 0) await delay(LOOK_MS)
}

interface Round {
  createdMs: number
  completedMs: number
}

async function runOfGateway(url: string, redis: Redis, jobs: number): Promise<Round> {
  const from = performance.now()
  await createJobs(url, jobs)
  const createdMs = performance.now() - from
  await untilDone(redis)
  return { createdMs, completedMs: performance.now() - from }
}

async function runOfBare(bare: ChildProcess, jobs: number): Promise<Round> {
  const answer = once(bare, 'message') as Promise<[Round]>
  bare.send(jobs)
  return (await answer)[0]
}

interface Usage {
  /** Received and sent. */
  bytes: number
  cpuMs: number
  commands: number
  clients: number
}

/** What Redis did since its start. */
async function usageOfRedis(redis: Redis): Promise<Usage> {
  const info = await redis.info()
  const read = (name: string): number => Number(new RegExp(`^${name}:([\\d.]+)`, 'm').exec(info)?.[1])
  return {
    bytes: read('total_net_input_bytes') + read('total_net_output_bytes'),
    cpuMs: (read('used_cpu_user') + read('used_cpu_sys')) * 1000,
    commands: read('total_commands_processed'),
    clients: read('connected_clients'),
  }
}

/** What Redis does for work. */
async function during(redis: Redis, work: () => Promise<unknown>): Promise<Usage> {
  const before = await usageOfRedis(redis)
  await work()
  const after = await usageOfRedis(redis)
  return {
    bytes: after.bytes - before.bytes,
    cpuMs: after.cpuMs - before.cpuMs,
    commands: after.commands - before.commands,
    clients: after.clients,
  }
}

/** Listeners for the events of jobs, as a hundred further gateways have one each. */
async function listen(redis: Redis): Promise<() => void> {
  const listeners = Array.from({ length: LISTENERS }, () => redis.duplicate())
  await Promise.all(listeners.map(listener => listener.subscribe('{fngw}:events')))
  return () => {
    for (const listener of listeners) listener.disconnect()
  }
}

/** Commands that clients sent. Those that scripts call do not count, nor do the looks of `untilDone`. */
async function commandsOf(redis: Redis, work: () => Promise<unknown>): Promise<Map<string, number>> {
  const monitor = await redis.monitor()
  const counts = new Map<string, number>()
  monitor.on('monitor', (_time: string, [name]: string[], source: string) => {
    const command = name!.toLowerCase()
    if (source !== 'lua' && command !== 'zcard') counts.set(command, (counts.get(command) ?? 0) + 1)
  })
  await work()
  // What was sent last arrives last.
  await redis.ping()
  await delay(100)
  monitor.disconnect()
  return counts
}

/** Public requests at a fixed rate, until stopped. @returns p50 and p99, ms */
function probe(url: string): () => Promise<{ p50: number; p99: number; failures: number }> {
  const times: number[] = []
  const going = new Set<Promise<void>>()
  let failures = 0
  const from = performance.now()
  let sent = 0
  const timer = setInterval(() => {
    // Requests that a late timer has missed count from when they were due.
    for (; from + sent * PROBE_MS <= performance.now(); sent++) {
      const due = from + sent * PROBE_MS
      const one: Promise<void> = call(`${url}/hello`)
        .then(() => {
          times.push(performance.now() - due)
        })
        .catch(() => {
          failures += 1
        })
        .finally(() => going.delete(one))
      going.add(one)
    }
  }, 1)
  return async () => {
    clearInterval(timer)
    await Promise.all(going)
    times.sort((a, b) => a - b)
    const at = (share: number): number => times[Math.floor((times.length - 1) * share)]!
    return { p50: at(0.5), p99: at(0.99), failures }
  }
}

async function measureStart(root: string, env: NodeJS.ProcessEnv): Promise<number> {
  const from = performance.now()
  const { child } = await start([PROGRAM, 'run', root, '--native', '--port', '0'], READY, env)
  const ms = performance.now() - from
  await stop(child)
  return ms
}

async function stop(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  await ended
}

export async function run(): Promise<BenchRow[]> {
  if (WITHOUT_REDIS !== false) throw new Error(WITHOUT_REDIS)
  const jobs = Number(process.env.FNGW_BENCH_JOBS ?? 3000)
  const drained = Number(process.env.FNGW_BENCH_DRAIN ?? 10_000)
  const rounds = Number(process.env.FNGW_BENCH_ROUNDS ?? 3)
  const ends: (() => unknown)[] = [() => agent.destroy()]
  const root = mkdtempSync(join(tmpdir(), 'fngw-bench-fleet-'))
  ends.unshift(() => rmSync(root, { recursive: true, force: true }))
  for (const [path, text] of Object.entries(FILES)) {
    mkdirSync(join(root, path, '..'), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  const quiet = new QuietRounds(undefined, rounds)
  try {
    const bed = await startRedis({ teardown: (end: () => unknown) => ends.unshift(end) } as never)
    return await measure(root, bed, quiet, { jobs, drained, rounds }, ends)
  } finally {
    for (const end of ends) await end()
  }
}

async function measure(
  root: string,
  bed: RedisBed,
  quiet: QuietRounds,
  { jobs, drained, rounds }: { jobs: number; drained: number; rounds: number },
  ends: (() => unknown)[],
): Promise<BenchRow[]> {
  const redis = bed.client()
  const withStore = { FN_RUNTIMES: 'node', FN_STORE_URL: bed.url, FN_JOBS_MAX_CONCURRENCY: `${CONCURRENCY}` }
  const starts = { with: [] as number[], without: [] as number[] }
  for (let i = 0; i < STARTS; i++) {
    starts.with.push(await quiet.run(() => measureStart(root, withStore)))
    starts.without.push(await quiet.run(() => measureStart(root, { FN_RUNTIMES: 'node' })))
  }

  const env = { ...withStore, FN_CONSOLE_WRITE_ENABLED: '1', FN_ACCESS_LOG: '0' }
  const without = await usageOfRedis(redis)
  const { child, match } = await start([PROGRAM, 'run', root, '--native', '--port', '0'], READY, env)
  ends.unshift(() => (child.exitCode === null ? stop(child) : undefined))
  const url = match[1]!
  await delay(2000)
  const idle = await during(redis, () => delay(IDLE_S * 1000))
  const bare = spawn(process.execPath, [BARE, `${bed.port}`, `${CONCURRENCY}`, `${LANES}`], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  ends.unshift(() => bare.disconnect())
  await once(bare, 'message')
  // Code is compiled meanwhile.
  await runOfGateway(url, redis, jobs)
  await runOfBare(bare, jobs)

  const ratios = { created: [] as number[], completed: [] as number[] }
  const cpu = { gateway: [] as number[], bare: [] as number[] }
  const perSecond = { gateway: [] as number[], bare: [] as number[] }
  for (let round = 0; round < rounds; round++) {
    const used = (process: ChildProcess): number => usageOf(process.pid!).treeSeconds
    const { ours, theirs, ms } = await quiet.run(async () => {
      const before = [used(child), used(bare)] as const
      const [ours, theirs] = [await runOfGateway(url, redis, jobs), await runOfBare(bare, jobs)]
      const ms = { gateway: (used(child) - before[0]) * 1000, bare: (used(bare) - before[1]) * 1000 }
      return { ours, theirs, ms }
    })
    cpu.gateway.push(ms.gateway / jobs)
    cpu.bare.push(ms.bare / jobs)
    ratios.created.push(theirs.createdMs / ours.createdMs)
    ratios.completed.push(theirs.completedMs / ours.completedMs)
    perSecond.gateway.push((jobs / ours.completedMs) * 1000)
    perSecond.bare.push((jobs / theirs.completedMs) * 1000)
  }

  const ours = await during(redis, () => runOfGateway(url, redis, jobs))
  const theirs = await during(redis, () => runOfBare(bare, jobs))
  const stopListening = await listen(redis)
  const heard = await during(redis, () => runOfGateway(url, redis, jobs))
  stopListening()
  const total = (counts: Map<string, number>): number => [...counts.values()].reduce((sum, count) => sum + count, 0)
  const commands = await commandsOf(redis, () => runOfGateway(url, redis, WATCHED))
  const bareCommands = await commandsOf(redis, () => runOfBare(bare, WATCHED))

  // With the concurrency that a gateway has by default.
  await stop(child)
  const defaults = { ...env, FN_JOBS_MAX_CONCURRENCY: undefined }
  const second = await start([PROGRAM, 'run', root, '--native', '--port', '0'], READY, defaults)
  ends.unshift(() => stop(second.child))
  const drainUrl = second.match[1]!
  const ratio99: number[] = []
  const drains: number[] = []
  const probes: { alone: number; drain: number }[] = []
  for (let round = 0; round < rounds; round++) {
    // All are due at once, after the measurement without jobs.
    const createdBy = performance.now() + (drained / median(perSecond.gateway)) * 1500 + 2000
    const due = createdBy + (ALONE_S + 1) * 1000
    await createJobs(drainUrl, drained, () => ({ delay_ms: Math.max(1, Math.round(due - performance.now())) }))
    const alone = probe(drainUrl)
    await delay(ALONE_S * 1000)
    const without = await alone()
    await delay(Math.max(0, due - performance.now()))
    const from = performance.now()
    const load = probe(drainUrl)
    // The last few wait for their turn and say nothing about load.
    while ((await redis.zcard('{fngw}:jobs:queued')) > drained / 100) await delay(100)
    const beside = await load()
    drains.push((drained / (performance.now() - from)) * 1000)
    if (without.failures + beside.failures > 0) throw new Error(`${without.failures + beside.failures} failures`)
    ratio99.push(beside.p99 / without.p99)
    probes.push({ alone: without.p99, drain: beside.p99 })
  }

  const completed = median(ratios.completed)
  const p99 = median(ratio99)
  const names = [...commands].filter(([, count]) => count >= WATCHED / 2).sort((a, b) => b[1] - a[1])
  const rows: BenchRow[] = [
    {
      name: `jobs created and completed, to bare BullMQ`,
      value: completed,
      unit: 'ratio',
      goal: '>= 0.5',
      ok: completed >= 0.5,
    },
    { name: '  created and completed', value: median(perSecond.gateway), unit: '/s' },
    { name: '  by bare BullMQ', value: median(perSecond.bare), unit: '/s' },
    { name: '  created, to bare BullMQ', value: median(ratios.created), unit: 'ratio' },
    { name: '  CPU a job, gateway and worker', value: median(cpu.gateway), unit: 'ms' },
    { name: '  CPU a job, bare BullMQ', value: median(cpu.bare), unit: 'ms' },
    {
      name: `p99 of public requests while ${drained} jobs are done, to without`,
      value: p99,
      unit: 'ratio',
      goal: '<= 1.3',
      ok: p99 <= 1.3,
    },
    { name: '  p99 without', value: median(probes.map(({ alone }) => alone)), unit: 'ms' },
    { name: '  p99 while they are done', value: median(probes.map(({ drain }) => drain)), unit: 'ms' },
    { name: '  jobs done meanwhile', value: median(drains), unit: '/s' },
    { name: 'commands to Redis a job', value: total(commands) / WATCHED, unit: '' },
    ...names.map(([name, count]) => ({ name: `  ${name}`, value: count / WATCHED, unit: '' })),
    { name: '  of bare BullMQ', value: total(bareCommands) / WATCHED, unit: '' },
    { name: 'bytes to and from Redis a job', value: ours.bytes / jobs, unit: 'B' },
    { name: '  of bare BullMQ', value: theirs.bytes / jobs, unit: 'B' },
    { name: 'CPU of Redis a job', value: ours.cpuMs / jobs, unit: 'ms' },
    { name: '  of bare BullMQ', value: theirs.cpuMs / jobs, unit: 'ms' },
    { name: `  with ${LISTENERS} further listeners`, value: heard.cpuMs / jobs, unit: 'ms' },
    { name: `  bytes then`, value: heard.bytes / jobs, unit: 'B' },
    { name: 'connections of a gateway', value: idle.clients - without.clients, unit: '' },
    { name: 'commands of an idle gateway', value: idle.commands / IDLE_S, unit: '/s' },
    { name: '  bytes', value: idle.bytes / IDLE_S, unit: 'B/s' },
    { name: 'start with the store', value: median(starts.with), unit: 'ms' },
    { name: 'start without it', value: median(starts.without), unit: 'ms' },
  ]
  return [...rows, ...quiet.toRows()]
}
