/**
 * Gateways of a fleet that are killed or cut off from the store at random moments while jobs are made and run and schedules tick, and a store
 * that is restarted meanwhile. What must be true afterwards: every job that was acknowledged has ended once, none ran more often than it may,
 * no attempt ran twice, no schedule ran more often than it was due, and the store holds nothing but what is kept on purpose.
 */

import { existsSync, readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import type { Redis } from 'ioredis'
import type { Test } from 'tap'
import { createRandom } from '../helpers/random.ts'
import { type Link, startLink, startNetwork, WITHOUT_NAMESPACES } from '../helpers/link.ts'
import { startRedis } from '../helpers/redis.ts'
import { makeTree } from '../helpers/tree.ts'
import { killGateway, startGateway } from './jobs.ts'

const GATEWAYS = 3
/** Jobs that one gateway runs at once. */
const PLACES = 6
const MOST_ATTEMPTS = 3
/** Milliseconds in which everything that was acknowledged has ended: a lost lock, attempts and their delays. */
const END_MS = 90_000
/** Milliseconds for which a gateway is cut off: longer than it holds a job or the lease of the schedules. */
const CUT_MS = 13_000
/** Milliseconds in which it is back then. */
const BACK_MS = 20_000
const TOKEN = 'a'.repeat(32)
const ADMIN = { 'x-fn-admin-token': TOKEN }

const toHandlers = (schedules: number): { [path: string]: string } => ({
  'work/handler.js': `const { appendFileSync } = require('node:fs')
exports.handler = async ({ context, query }) => {
  appendFileSync(__dirname + '/../runs.txt', 'job ' + context.trigger.id + ' ' + context.trigger.attempt + '\\n')
  await new Promise(resolve => setTimeout(resolve, Number(query.wait)))
  return { status: Number(query.status), body: 'x'.repeat(Number(query.bytes)) }
}`,
  ...Object.fromEntries(
    Array.from({ length: schedules }, (_, i) => [
      [
        `tick${i}/handler.js`,
        `const { appendFileSync } = require('node:fs')
exports.handler = async () => { appendFileSync(__dirname + '/../runs.txt', 'tick ${i} ' + Date.now() + '\\n'); return {} }`,
      ],
      [`tick${i}/fn.config.json`, JSON.stringify({ schedule: { every_seconds: 1 } })],
    ]).flat(),
  ),
})

/** Keys that stay on purpose: page fleet/fleet-store. */
const KEPT =
  /^\{fngw\}:(?:job:|part:|draft:|idempotency:|jobs|finished|callbacks|seq|leases|schedules|leader|gateways|release:|change$|sweep|(?:tickets|runs):(?:meta|id|events|stalled-check|stalled|marker)$)/
/** Schedules go on while keys are read: the tickets of their runs come and go. */
const LASTING_MS = 3000

export interface FleetKillReport {
  kills: number
  partitions: number
  acknowledged: number
  refused: number
  /** Jobs whose end was seen; one of those that a restart of the store hides is not. */
  ended: number
  /** Of the jobs that are kept. */
  done: number
  failed: number
  ticks: number
  wrong: string[]
}

/** Of a job, as the API shows it. */
interface Record {
  id: string
  status: string
  attempt: number
  max_attempts: number
}

export interface FleetKillOptions {
  kills: number
  seed: number
  /** Among the kills. */
  storeRestarts: number
  /** Milliseconds for which the store is stopped after half of the kills. */
  storeStopMs?: number
  /** Times that a gateway is cut off from the store, among the kills. */
  partitions?: number
  /** Schedules that are due every second. */
  schedules?: number
  /** Clients that create jobs one after the other. */
  clients?: number
}

export async function killFleet(
  t: Pick<Test, 'teardown'>,
  { kills, seed, storeRestarts, storeStopMs = 0, partitions = 0, schedules = 1, clients = 1 }: FleetKillOptions,
  say: (text: string) => void = () => {},
): Promise<FleetKillReport> {
  const random = createRandom(seed)
  const zero = { kills: 0, partitions: 0, acknowledged: 0, refused: 0, ended: 0, done: 0, failed: 0, ticks: 0 }
  const report: FleetKillReport = { ...zero, wrong: [] }
  const numbers = Array.from({ length: GATEWAYS }, (_, i) => i)
  const hasNetworks = partitions > 0 && WITHOUT_NAMESPACES === false
  if (partitions > 0) say(hasNetworks ? 'partitions: network namespaces' : `partitions: a proxy; ${WITHOUT_NAMESPACES}`)
  // The server listens on their addresses.
  const networks = hasNetworks ? numbers.map(i => startNetwork(t, i)) : []
  const bind = ['--protected-mode', 'no', '--bind', '127.0.0.1', ...networks.map(({ server }) => server)]
  const redis = await startRedis(t as Test, ['--appendonly', 'yes', '--appendfsync', 'always', ...bind])
  const tree = makeTree(toHandlers(schedules))
  const runs = tree.path('runs.txt')
  const links: Link[] = hasNetworks
    ? networks.map(network => ({ ...network, port: redis.port }))
    : await Promise.all(numbers.map(() => startLink(t, redis.port)))
  /** What the gateways logged, by their numbers. */
  const logs = numbers.map(() => '')
  const start = (which: number): ReturnType<typeof startGateway> => {
    const { server, port, host, prefix } = links[which]!
    const FN_STORE_URL = `redis://${server}:${port}`
    return startGateway(tree.root, {
      env: { FN_STORE_URL, FN_STORE_REQUIRED: '0', FN_ADMIN_TOKEN: TOKEN },
      ...{ host, prefix },
      onLog: text => (logs[which] += text),
    })
  }
  const fleet = await Promise.all(numbers.map(start))
  const ends = await countEnds(redis.client())
  /** Acknowledged jobs, and how often each may run. */
  const known = new Map<string, number>()
  const startedAt = Date.now()
  let isOver = false
  let restarts = 0
  const make = async (): Promise<void> => {
    while (!isOver) {
      const maxAttempts = 1 + random(MOST_ATTEMPTS)
      const status = random(5) === 0 ? 500 : 200
      const query = { wait: random(400), status, bytes: random(10) === 0 ? 100_000 : 10 }
      const { url } = fleet[random(GATEWAYS)]!
      const body = JSON.stringify({ name: 'work', query, max_attempts: maxAttempts, retry_delay_ms: 50 })
      const headers = { ...ADMIN, 'content-type': 'application/json' }
      const answer = await fetch(`${url}/_fn/jobs`, { method: 'POST', headers, body }).catch(() => null)
      if (answer?.status === 201) {
        known.set(((await answer.json()) as { id: string }).id, maxAttempts)
        report.acknowledged += 1
      } else report.refused += 1
      await delay(random(60))
    }
  }
  const isTurn = (count: number): boolean =>
    count > 0 && report.kills % Math.max(1, Math.floor(kills / (count + 1))) === 0
  try {
    const making = Promise.all(Array.from({ length: clients }, make))
    while (report.kills < kills) {
      await delay(500 + random(1500))
      const which = random(GATEWAYS)
      if (isTurn(partitions) && report.partitions < partitions) {
        report.partitions += 1
        const { cut, mend } = links[which]!
        const said = logs[which]!.length
        cut()
        await delay(CUT_MS)
        mend()
        await waitForLog(() => logs[which]!.slice(said), report)
        await delay(random(2000))
      }
      await killGateway(fleet[which]!)
      report.kills += 1
      if (isTurn(storeRestarts) && restarts++ < storeRestarts) {
        await redis.end()
        await delay(random(3000))
        await redis.begin()
      }
      if (storeStopMs > 0 && report.kills === Math.ceil(kills / 2)) {
        await redis.end()
        await delay(storeStopMs)
        await redis.begin()
      }
      fleet[which] = await start(which)
      if (report.kills % 10 === 0) say(`${report.kills} kills, ${report.acknowledged} jobs acknowledged`)
    }
    isOver = true
    await making
    await settle(known, fleet[0]!.url, report)
    const lines = existsSync(runs) ? readFileSync(runs, 'utf8').trim().split('\n') : []
    report.ended = [...ends.keys()].filter(id => known.has(id)).length
    for (const [id, count] of ends) if (count > 1) report.wrong.push(`${id} ended ${count} times`)
    await compare(known, fleet[0]!.url, lines, startedAt, report)
    const others = async (): Promise<string[]> => (await redis.client().keys('*')).filter(key => !KEPT.test(key))
    const before = await others()
    if (before.length > 0) await delay(LASTING_MS)
    const after = (await others()).filter(key => !/:runs:(?:active|wait|delayed)$/.test(key))
    for (const key of after.filter(one => before.includes(one))) report.wrong.push(`the store holds ${key}`)
  } finally {
    isOver = true
    for (const one of fleet) await killGateway(one)
    tree.cleanup()
  }
  return report
}

/** A gateway that was cut off says that the store is away, and that it is back. */
async function waitForLog(read: () => string, report: FleetKillReport): Promise<void> {
  const end = Date.now() + BACK_MS
  while (!/the store is away[\s\S]*the store is back/.test(read())) {
    if (Date.now() > end) return void report.wrong.push(`after a partition a gateway said only: ${read()}`)
    await delay(100)
  }
}

/** How often each job ended. Ends while the connection is lost are not seen. */
async function countEnds(redis: Redis): Promise<ReadonlyMap<string, number>> {
  const ends = new Map<string, number>()
  redis.on('error', () => {})
  redis.on('message', (_channel, text) => {
    const { job } = JSON.parse(text) as { job?: { id: string; state: string } }
    if (job?.state === 'done' || job?.state === 'failed') ends.set(job.id, (ends.get(job.id) ?? 0) + 1)
  })
  await redis.subscribe('{fngw}:events')
  return ends
}

/** Waits until no job is open any more. */
async function settle(known: ReadonlyMap<string, number>, url: string, report: FleetKillReport): Promise<void> {
  const isOpen = async (state: string): Promise<boolean> => {
    const answer = await fetch(`${url}/_fn/jobs?state=${state}&limit=1`, { headers: ADMIN }).catch(() => null)
    // The store may be away still.
    const { jobs = [null] } = ((await answer?.json()) ?? {}) as { jobs?: unknown[] }
    return jobs.length > 0
  }
  const end = Date.now() + END_MS
  // Between the two looks a job may go from one state to the other.
  for (let quiet = 0; known.size > 0 && quiet < 3; ) {
    if (Date.now() > end) return void report.wrong.push(`jobs are open after ${END_MS / 1000} s`)
    quiet = (await isOpen('queued')) || (await isOpen('running')) ? 0 : quiet + 1
    await delay(200)
  }
}

async function compare(
  known: ReadonlyMap<string, number>,
  url: string,
  lines: readonly string[],
  startedAt: number,
  report: FleetKillReport,
): Promise<void> {
  const wrong = (text: string): void => void report.wrong.push(text)
  const runs = new Set<string>()
  const ticks = new Map<string, number>()
  for (const line of lines) {
    const [kind, id, attempt] = line.split(' ')
    if (kind === 'tick') ticks.set(id!, (ticks.get(id!) ?? 0) + 1)
    else if (runs.has(`${id} ${attempt}`)) wrong(`attempt ${attempt} of ${id} ran twice`)
    else runs.add(`${id} ${attempt}`)
  }
  for (const run of runs) {
    const [id, attempt] = run.split(' ')
    // Unknown where the gateway was killed before it acknowledged the job.
    const most = known.get(id!) ?? MOST_ATTEMPTS
    if (Number(attempt) > most) wrong(`${id} ran attempt ${attempt} of ${most}`)
  }
  const begun = new Set([...runs].map(run => run.split(' ')[0]!))
  const lost = [...known.keys()].filter(id => !begun.has(id))
  // A gateway that is killed between the note of an attempt and its handler ends that attempt.
  if (lost.length > report.kills * PLACES) wrong(`${lost.length} acknowledged jobs never ran, such as ${lost[0]}`)
  for (let cursor = ''; ; ) {
    const answer = await fetch(`${url}/_fn/jobs?limit=200${cursor}`, { headers: ADMIN })
    const page = (await answer.json()) as { jobs: Record[]; next_cursor: string | null }
    for (const { id, status, attempt, max_attempts } of page.jobs) {
      if (status === 'done') report.done += 1
      else if (status === 'failed') report.failed += 1
      else wrong(`${id} is ${status}`)
      if (attempt < 1 || attempt > max_attempts) wrong(`${id} has attempt ${attempt} of ${max_attempts}`)
      if (status === 'done' && !runs.has(`${id} ${attempt}`)) wrong(`${id} is done without a run`)
    }
    if (page.next_cursor === null) break
    cursor = `&cursor=${page.next_cursor}`
  }
  const seconds = Math.ceil((Date.now() - startedAt) / 1000)
  // Once for each second. A run that catches up takes the place of those that were missed.
  for (const [schedule, count] of ticks)
    if (count > seconds + 1) wrong(`schedule ${schedule} ran ${count} times in ${seconds} seconds`)
  report.ticks = [...ticks.values()].reduce((sum, count) => sum + count, 0)
  if (report.ticks === 0) wrong('no schedule ran')
}
