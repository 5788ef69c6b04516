/**
 * Gateways of a fleet that are killed at random moments while jobs are made and run and a schedule ticks, and a store that is restarted
 * meanwhile. What must be true afterwards: every job that was acknowledged has ended, none ran more often than it may, no
 * attempt ran twice, the schedule went on with one run for a due time, and the store holds nothing but what is kept on purpose.
 */

import { existsSync, readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import type { Test } from 'tap'
import { createRandom } from '../helpers/random.ts'
import { startRedis } from '../helpers/redis.ts'
import { makeTree } from '../helpers/tree.ts'
import { killGateway, startGateway } from './jobs.ts'

const GATEWAYS = 3
/** Jobs that one gateway runs at once. */
const PLACES = 6
const MOST_ATTEMPTS = 3
/** Milliseconds in which everything that was acknowledged has ended: a lost lock, attempts and their delays. */
const END_MS = 90_000

const HANDLERS = {
  'work/handler.js': `const { appendFileSync } = require('node:fs')
exports.handler = async ({ context, query }) => {
  appendFileSync(__dirname + '/../runs.txt', 'job ' + context.trigger.id + ' ' + context.trigger.attempt + '\\n')
  await new Promise(resolve => setTimeout(resolve, Number(query.wait)))
  return { status: Number(query.status), body: 'x'.repeat(Number(query.bytes)) }
}`,
  'tick/handler.js': `const { appendFileSync } = require('node:fs')
exports.handler = async () => { appendFileSync(__dirname + '/../runs.txt', 'tick ' + Date.now() + '\\n'); return {} }`,
  'tick/fn.config.json': JSON.stringify({ schedule: { every_seconds: 1 } }),
}

/** Keys that stay on purpose: page fleet/fleet-store. */
const KEPT =
  /^\{fngw\}:(?:job:|part:|draft:|idempotency:|jobs|finished|callbacks|seq|leases|schedules|leader|gateways|release:|change$|sweep|tickets:(?:meta|id|events|stalled-check|stalled|marker)$)/

export interface FleetKillReport {
  kills: number
  acknowledged: number
  refused: number
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

/** @param storeRestarts - among the kills */
export async function killFleet(
  t: Pick<Test, 'teardown'>,
  { kills, seed, storeRestarts }: { kills: number; seed: number; storeRestarts: number },
  say: (text: string) => void = () => {},
): Promise<FleetKillReport> {
  const random = createRandom(seed)
  const report: FleetKillReport = { kills: 0, acknowledged: 0, refused: 0, done: 0, failed: 0, ticks: 0, wrong: [] }
  const redis = await startRedis(t as Test, ['--appendonly', 'yes', '--appendfsync', 'always'])
  const tree = makeTree(HANDLERS)
  const runs = tree.path('runs.txt')
  const env = { FN_STORE_URL: redis.url, FN_STORE_REQUIRED: '0' }
  const start = (): ReturnType<typeof startGateway> => startGateway(tree.root, { env })
  const fleet = await Promise.all(Array.from({ length: GATEWAYS }, start))
  /** Acknowledged jobs, and how often each may run. */
  const known = new Map<string, number>()
  const startedAt = Date.now()
  let isOver = false
  const make = async (): Promise<void> => {
    while (!isOver) {
      const maxAttempts = 1 + random(MOST_ATTEMPTS)
      const status = random(5) === 0 ? 500 : 200
      const query = { wait: random(400), status, bytes: random(10) === 0 ? 100_000 : 10 }
      const { url } = fleet[random(GATEWAYS)]!
      const body = JSON.stringify({ name: 'work', query, max_attempts: maxAttempts, retry_delay_ms: 50 })
      const headers = { 'content-type': 'application/json' }
      const answer = await fetch(`${url}/_fn/jobs`, { method: 'POST', headers, body }).catch(() => null)
      if (answer?.status === 201) {
        known.set(((await answer.json()) as { id: string }).id, maxAttempts)
        report.acknowledged += 1
      } else report.refused += 1
      await delay(random(60))
    }
  }
  try {
    const making = make()
    while (report.kills < kills) {
      await delay(500 + random(1500))
      const which = random(GATEWAYS)
      await killGateway(fleet[which]!)
      report.kills += 1
      if (report.kills % Math.max(1, Math.floor(kills / (storeRestarts + 1))) === 0 && storeRestarts-- > 0) {
        await redis.end()
        await delay(random(3000))
        await redis.begin()
      }
      fleet[which] = await start()
      if (report.kills % 10 === 0) say(`${report.kills} kills, ${report.acknowledged} jobs acknowledged`)
    }
    isOver = true
    await making
    await settle(known, fleet[0]!.url, report)
    const lines = existsSync(runs) ? readFileSync(runs, 'utf8').trim().split('\n') : []
    await compare(known, fleet[0]!.url, lines, startedAt, report)
    const keys = await redis.client().keys('*')
    for (const key of keys.filter(one => !KEPT.test(one))) report.wrong.push(`the store holds ${key}`)
  } finally {
    isOver = true
    for (const one of fleet) await killGateway(one)
    tree.cleanup()
  }
  return report
}

/** Waits until no job is open any more. */
async function settle(known: ReadonlyMap<string, number>, url: string, report: FleetKillReport): Promise<void> {
  const isOpen = async (state: string): Promise<boolean> => {
    const answer = await fetch(`${url}/_fn/jobs?state=${state}&limit=1`).catch(() => null)
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
  for (const line of lines) {
    const [kind, id, attempt] = line.split(' ')
    if (kind === 'tick') report.ticks += 1
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
    const answer = await fetch(`${url}/_fn/jobs?limit=200${cursor}`)
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
  // One for each second, and one that catches up for each leader that was lost.
  if (report.ticks > seconds + report.kills + 1) wrong(`the schedule ran ${report.ticks} times in ${seconds} seconds`)
  if (report.ticks === 0) wrong('the schedule never ran')
}
