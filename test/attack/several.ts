/** Several gateways on one functions folder: one keeps the jobs and schedules, and the next one goes on when that is killed. */

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { endProduct, type Product, type RunningProduct, startProduct } from '../helpers/built.ts'
import { makeTree } from '../helpers/tree.ts'
import type { Outcome, Scale } from './attack.ts'

const WAIT_MS = 30_000
/** Given to each keeper, which is killed while some of them wait. */
const JOBS = 20
/** The attempt that a kill cuts counts. */
const JOB = { runtime: 'node', name: 'note', method: 'POST', max_attempts: 2, retry_delay_ms: 0 }

/** Notes each run; a schedule that two gateways keep would run twice a second. */
const NOTING = `import { appendFileSync } from 'node:fs'
export const handler = ({ body, env }) => {
  appendFileSync(env.NOTES, (body || 'tick') + ' ' + Date.now() + '\\n')
  return { status: 200, headers: {}, body: 'noted' }
}
`

interface Reply {
  status: number
  text: string
}

async function request(gateway: RunningProduct, path: string, body?: unknown): Promise<Reply> {
  const headers = { 'Content-Type': 'application/json', 'X-Fngw-Request': '1' }
  const init = body === undefined ? {} : { method: 'POST', headers, body: JSON.stringify(body) }
  const response = await fetch(`${gateway.url.replace(/\/$/, '')}${path}`, init)
  return { status: response.status, text: await response.text() }
}

async function until<T>(what: string, look: () => Promise<T | null>): Promise<T> {
  const limit = performance.now() + WAIT_MS
  for (;;) {
    const found = await look()
    if (found !== null) return found
    if (performance.now() > limit) throw new Error(`${what}: not within ${WAIT_MS} ms`)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

/** The gateway that has the lock of the folder, which the first schedule or job takes. */
async function findKeeper(root: string, gateways: readonly RunningProduct[]): Promise<RunningProduct> {
  return until('a gateway keeps the folder', async () => {
    try {
      const { pid } = JSON.parse(readFileSync(join(root, '.svc/gateway.lock'), 'utf8')) as { pid: number }
      return gateways.find(gateway => gateway.pid === pid) ?? null
    } catch {
      return null
    }
  })
}

/** Gives a job to every gateway: the keeper takes it, and the others refuse theirs. @returns what was answered otherwise */
async function giveJobs(name: string, keeper: RunningProduct, gateways: readonly RunningProduct[]): Promise<string[]> {
  const problems = gateways.map(async gateway => {
    const isKeeper = gateway === keeper
    const body = { ...JOB, body: isKeeper ? name : `refused-${name}` }
    const { status, text } = await request(gateway, '/_fn/jobs', body)
    return status === (isKeeper ? 201 : 503)
      ? []
      : [`${isKeeper ? 'the keeper' : 'another gateway'}: ${status} ${text}`]
  })
  return (await Promise.all(problems)).flat()
}

export async function attackSeveral(product: Product, scale: Scale): Promise<Outcome> {
  const notes = makeTree({})
  const file = notes.path('notes')
  const env = JSON.stringify({ NOTES: file })
  const tree = makeTree({
    'note/handler.mjs': NOTING,
    'note/fn.env.json': env,
    'note/fn.config.json': JSON.stringify({ invoke: { methods: ['POST'] } }),
    'tick/handler.mjs': NOTING,
    'tick/fn.env.json': env,
    'tick/fn.config.json': JSON.stringify({ schedule: { enabled: true, every_seconds: 1 } }),
  })
  const readNotes = (): string[][] =>
    existsSync(file)
      ? readFileSync(file, 'utf8')
          .split('\n')
          .map(line => line.split(' '))
      : []
  const readTicks = (): number[] => readNotes().flatMap(([name, at]) => (name === 'tick' ? [Number(at)] : []))
  const count = scale === 'quick' ? 2 : 4
  const settings = { FN_RUNTIMES: 'node', FN_JOBS_ENABLED: '1', FN_CONSOLE_WRITE_ENABLED: '1' }
  const gateways = await Promise.all(
    Array.from({ length: count }, () => startProduct(product, tree.root, { env: settings })),
  )
  try {
    const broken: string[] = []
    const accepted: string[] = []
    for (let left = gateways; left.length > 0; ) {
      const keeper = await findKeeper(tree.root, left)
      const ticks = readTicks().length
      await until('the schedule runs twice', async () => (readTicks().length >= ticks + 2 ? true : null))
      for (let i = 0; i < JOBS; i++) {
        const name = `job-${left.length}-${i}`
        broken.push(...(await giveJobs(name, keeper, left)))
        accepted.push(name)
      }
      left = left.filter(gateway => gateway !== keeper)
      // Not the last one: it runs what the others have accepted.
      if (left.length > 0) await endProduct(keeper)
    }
    const toMissing = (): string[] => {
      const ran = new Set(readNotes().map(([name]) => name))
      return accepted.filter(name => !ran.has(name))
    }
    await until('every accepted job runs', async () => (toMissing().length === 0 ? true : null))
    if (readNotes().some(([name]) => name?.startsWith('refused-'))) broken.push('a refused job ran')
    const ticks = readTicks()
    // A takeover may repeat the due time of the run that the kill has cut.
    const close = ticks.filter((at, i) => i > 0 && at - ticks[i - 1]! < 500).length
    if (close >= count) broken.push(`the schedule ran ${close} times too often`)
    const seen = `${count} gateways, ${count - 1} killed, ${accepted.length} jobs, ${ticks.length} runs of the schedule`
    return { broken, seen }
  } finally {
    await Promise.all(gateways.map(endProduct))
    tree.cleanup()
    notes.cleanup()
  }
}
