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
  /^\{fngw\}:(?:job:|part:|draft:|idempotency:|jobs|finished|callbacks|seq|leases|schedules|leader|gateways|sweep|tickets:(?:meta|id|events|stalled-check|stalled|marker)$)/

export interface FleetKillReport {
  kills: number
  acknowledged: number
  refused: number
  done: number
  failed: number
  ticks: number
  wrong: string[]
}

interface Known {
  maxAttempts: number
  status: number
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
  const known = new Map<string, Known>()
  const startedAt = Date.now()
  let isOver = false
  const make = async (): Promise<void> => {
    while (!isOver) {
      const maxAttempts = 1 + random(3)
      const status = random(5) === 0 ? 500 : 200
      const query = { wait: random(400), status, bytes: random(10) === 0 ? 100_000 : 10 }
      const { url } = fleet[random(GATEWAYS)]!
      const body = JSON.stringify({ name: 'work', query, max_attempts: maxAttempts, retry_delay_ms: 50 })
      const headers = { 'content-type': 'application/json' }
      const answer = await fetch(`${url}/_fn/jobs`, { method: 'POST', headers, body }).catch(() => null)
      if (answer?.status === 201) {
        known.set(((await answer.json()) as { id: string }).id, { maxAttempts, status })
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
    await settle(known, () => fleet[0]!.url, report)
    await compare(known, runs, startedAt, report)
    const keys = await redis.client().keys('*')
    for (const key of keys.filter(one => !KEPT.test(one))) report.wrong.push(`the store holds ${key}`)
  } finally {
    isOver = true
    for (const one of fleet) await killGateway(one)
    tree.cleanup()
  }
  return report
}

/** Waits until nothing is open any more. */
async function settle(known: ReadonlyMap<string, Known>, url: () => string, report: FleetKillReport): Promise<void> {
  const end = Date.now() + END_MS
  const open = new Set(known.keys())
  while (open.size > 0 && Date.now() < end) {
    for (const state of ['queued', 'running']) {
      const answer = await fetch(`${url()}/_fn/jobs?state=${state}&limit=1`).catch(() => null)
      // The store may be away still.
      const { jobs = [null] } = ((await answer?.json()) ?? {}) as { jobs?: unknown[] }
      if (jobs.length === 0 && state === 'running') return
      if (jobs.length > 0) break
    }
    await delay(200)
  }
  if (Date.now() >= end) report.wrong.push(`jobs are open after ${END_MS / 1000} s`)
}

async function compare(
  known: ReadonlyMap<string, Known>,
  runs: string,
  startedAt: number,
  report: FleetKillReport,
): Promise<void> {
  const lines = existsSync(runs) ? readFileSync(runs, 'utf8').trim().split('\n') : []
  const attempts = new Map<string, number>()
  for (const line of lines) {
    const [kind, id, attempt] = line.split(' ')
    if (kind === 'tick') report.ticks += 1
    else if (attempts.has(`${id} ${attempt}`)) report.wrong.push(`attempt ${attempt} of ${id} ran twice`)
    else attempts.set(`${id} ${attempt}`, 1)
  }
  for (const key of attempts.keys()) {
    const [id, attempt] = key.split(' ')
    const most = known.get(id!)?.maxAttempts ?? 3
    if (Number(attempt) > most) report.wrong.push(`${id} ran attempt ${attempt} of ${most}`)
  }
  for (const [id, { maxAttempts, status }] of known) {
    const count = Array.from({ length: maxAttempts }, (_, i) => attempts.has(`${id} ${i + 1}`)).filter(Boolean).length
    // Finished ones beyond those that are kept are gone: that it ran is what counts then.
    if (count === 0 && maxAttempts > report.kills) report.wrong.push(`${id} never ran`)
    if (status === 200) report.done += count > 0 ? 1 : 0
    else report.failed += 1
  }
  const seconds = Math.ceil((Date.now() - startedAt) / 1000)
  // One for each second, and one that catches up for each leader that was lost.
  if (report.ticks > seconds + report.kills + 1)
    report.wrong.push(`the schedule ran ${report.ticks} times in ${seconds} seconds`)
  if (report.ticks === 0) report.wrong.push('the schedule never ran')
}
