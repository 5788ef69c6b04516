/**
 * Gateways that are killed at random moments while jobs are made, run and canceled, and what must be true afterwards:
 * every job that was acknowledged is there, none ran more often than it may, and none is stuck.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { FROM_SOURCES } from '../helpers/cli.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'
import { createRandom } from '../helpers/random.ts'

const LIB = new URL('../../lib/', import.meta.url)
const moduleUrl = (path: string): string => JSON.stringify(fileURLToPath(new URL(path, LIB)))

/** Each run leaves a line, written before anything else happens. */
const HANDLER = `const { appendFileSync } = require('node:fs')
exports.handler = async event => {
  const { id, attempt } = event.context.trigger
  appendFileSync(process.env.RUNS ?? __dirname + '/runs.txt', id + ' ' + attempt + '\\n')
  await new Promise(resolve => setTimeout(resolve, Number(event.query.wait)))
  return { status: Number(event.query.status), headers: {}, body: (event.body ?? '') + id }
}`

const GATEWAY = `
const { createGateway } = await import(${moduleUrl('index.ts')})
const gateway = await createGateway({
  functionsRoot: process.argv[1], consoleWriteEnabled: true, jobsMaxConcurrency: 6, env: process.env,
  runtimes: JSON.parse(process.argv[2]), depsWaitMs: 250_000,
})
if (process.argv[4] === 'log') gateway.on('log', ({ level, message }) => console.error(level + ' ' + message))
const { url } = await gateway.listen({ port: 0, host: process.argv[3] })
console.log(url)`

interface Running {
  child: ChildProcess
  url: string
}

interface StartOptions {
  runtimes?: readonly string[]
  env?: NodeJS.ProcessEnv
  /** Address that it listens on. */
  host?: string
  /** Command line that starts it, such as `ip netns exec`. */
  prefix?: readonly string[]
  /** Takes what it prints to standard error. */
  onLog?: ((text: string) => void) | null
}

export async function startGateway(
  root: string,
  { runtimes = ['node'], env = {}, host = '127.0.0.1', prefix = [], onLog = null }: StartOptions = {},
): Promise<Running> {
  const program = [process.execPath, ...FROM_SOURCES, '--input-type=module', '-e', GATEWAY, root]
  const [command, ...words] = [...prefix, ...program, JSON.stringify(runtimes), host, onLog === null ? '' : 'log']
  const child = spawn(command!, words, {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', onLog === null ? 'inherit' : 'pipe'],
    detached: true,
  })
  child.stderr?.on('data', chunk => onLog?.(String(chunk)))
  for await (const line of createInterface({ input: child.stdout! })) return { child, url: line }
  throw new Error('the gateway ended before it was ready')
}

/** The gateway alone is killed; what it started notices by itself, and is ended so that nothing piles up. */
export async function killGateway({ child }: Running): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = new Promise(resolve => child.once('exit', resolve))
  child.kill('SIGKILL')
  await ended
  try {
    process.kill(-child.pid!, 'SIGKILL')
  } catch {
    // Nothing is left of its group.
  }
}

/** What was acknowledged of a job. */
interface Known {
  maxAttempts: number
  /** Status that every run answers with. */
  status: number
  bytes: number
  isCanceled: boolean
  /** True when it was to be deleted if it is over, and nobody was told whether it is. */
  mayBeGone: boolean
}

interface Record {
  id: string
  status: string
  attempt: number
  last_error: string | null
}

export interface KillReport {
  kills: number
  acknowledged: number
  interrupted: number
  runs: number
  /** What must not be, each with its job. */
  wrong: string[]
}

async function call(url: string, method: string, body?: unknown): Promise<{ status: number; body: unknown } | null> {
  try {
    const answer = await fetch(url, {
      method,
      headers: { 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    return { status: answer.status, body: await answer.json() }
  } catch {
    // Killed before it answered.
    return null
  }
}

/** Makes jobs, and cancels some, until the gateway is gone. */
async function work(
  url: string,
  random: (below: number) => number,
  known: Map<string, Known>,
  count: number,
): Promise<void> {
  await Promise.all(
    Array.from({ length: count }, async () => {
      const maxAttempts = 1 + random(3)
      const status = [200, 200, 404, 500][random(4)]!
      // A third of the bodies are parts of their own.
      const bytes = [0, 10, 20_000][random(3)]!
      const isForCancel = random(6) === 0
      const made = await call(`${url}/_fn/jobs`, 'POST', {
        name: 'run',
        method: 'POST',
        query: { wait: random(40), status },
        body: 'x'.repeat(bytes),
        max_attempts: maxAttempts,
        retry_delay_ms: random(30),
        delay_ms: random(2) * random(60),
      })
      if (made?.status !== 201) return
      const { id } = made.body as Record
      const job: Known = { maxAttempts, status, bytes, isCanceled: false, mayBeGone: isForCancel }
      known.set(id, job)
      if (!isForCancel) return
      const canceled = await call(`${url}/_fn/jobs/${id}`, 'DELETE')
      if (canceled?.status !== 200) return
      const { status: state, deleted } = canceled.body as { status: string; deleted: boolean }
      if (deleted) known.delete(id)
      job.mayBeGone = false
      if (!deleted) job.isCanceled = state === 'canceled'
    }),
  )
}

/** Waits until no job waits or runs. */
async function settle(url: string): Promise<Record[]> {
  const giveUpAt = performance.now() + 60_000
  for (;;) {
    const records: Record[] = []
    for (let cursor: string | null = '0'; cursor !== null; ) {
      const page = await call(`${url}/_fn/jobs?limit=200&cursor=${cursor}`, 'GET')
      const { jobs, next_cursor } = page!.body as { jobs: Record[]; next_cursor: string | null }
      records.push(...jobs)
      cursor = next_cursor
    }
    const isOver = records.every(({ status }) => status !== 'queued' && status !== 'running')
    if (isOver || performance.now() > giveUpAt) return records
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

function countRuns(tree: Tree): Map<string, number> {
  const path = tree.path('run/runs.txt')
  const runs = new Map<string, number>()
  if (!existsSync(path)) return runs
  for (const line of readFileSync(path, 'utf8').trim().split('\n')) {
    const id = line.split(' ')[0]!
    runs.set(id, (runs.get(id) ?? 0) + 1)
  }
  return runs
}

async function check(url: string, tree: Tree, known: Map<string, Known>, report: KillReport): Promise<void> {
  const records = new Map((await settle(url)).map(record => [record.id, record]))
  const runs = countRuns(tree)
  const wrong = (id: string, what: string) => report.wrong.push(`${id} ${what}: ${JSON.stringify(records.get(id))}`)
  for (const [id, { maxAttempts, status, bytes, isCanceled, mayBeGone }] of known) {
    const record = records.get(id)
    const ran = runs.get(id) ?? 0
    report.runs += ran
    if (record === undefined) {
      if (!mayBeGone) wrong(id, 'was acknowledged and is lost')
      continue
    }
    if (ran > maxAttempts) wrong(id, `ran ${ran} times, at most ${maxAttempts} are allowed`)
    if (ran > record.attempt) wrong(id, `ran ${ran} times, and ${record.attempt} are counted`)
    if (record.status === 'queued' || record.status === 'running') wrong(id, 'is stuck')
    if (isCanceled && record.status !== 'canceled') wrong(id, 'was canceled')
    if (record.last_error?.includes('the gateway ended')) report.interrupted += 1
    if (record.status !== 'done') continue
    if (ran === 0 || status >= 500) wrong(id, 'is done without a good run')
    const result = await call(`${url}/_fn/jobs/${id}/result`, 'GET')
    const { body } = result!.body as { body?: string }
    if (body !== 'x'.repeat(bytes) + id) wrong(id, 'has another result')
  }
  for (const [id, ran] of runs) if (ran > 3) wrong(id, `ran ${ran} times`)
}

/** Jobs of one root: few enough that none of them is deleted for its age. */
const JOBS_OF_A_ROOT = 200
const JOBS_OF_A_ROUND = 20

export async function killGateways(kills: number, seed: number, say: (text: string) => void): Promise<KillReport> {
  const random = createRandom(seed)
  const report: KillReport = { kills: 0, acknowledged: 0, interrupted: 0, runs: 0, wrong: [] }
  while (report.kills < kills && report.wrong.length === 0) {
    const tree = makeTree({
      'run/handler.js': HANDLER,
      'run/fn.config.json': { json: { name: 'run', runtime: 'node', invoke: { methods: ['POST'] } } },
    })
    const known = new Map<string, Known>()
    try {
      for (let made = 0; made < JOBS_OF_A_ROOT && report.kills < kills; made += JOBS_OF_A_ROUND) {
        const running = await startGateway(tree.root)
        const working = work(running.url, random, known, JOBS_OF_A_ROUND)
        // Early moments more often: that is when most is written.
        await new Promise(resolve => setTimeout(resolve, random(1 + random(900))))
        await killGateway(running)
        await working
        report.kills += 1
      }
      const last = await startGateway(tree.root)
      await check(last.url, tree, known, report)
      await killGateway(last)
      report.acknowledged += known.size
      say(
        `${report.kills} kills, ${report.acknowledged} jobs acknowledged, ${report.runs} runs, ${report.interrupted} failed for a kill`,
      )
    } finally {
      tree.cleanup()
    }
  }
  return report
}

/** Keeps steps of jobs in a log that is written anew all the time, and says each one that was kept. */
const KEEPER = `
const { writeSync } = await import('node:fs')
const { randomBytes } = await import('node:crypto')
const { FileStore } = await import(${moduleUrl('jobs/file-store.ts')})
const { OwnFolder } = await import(${moduleUrl('files/own-folder.ts')})
const { RootLock } = await import(${moduleUrl('files/root-lock.ts')})
const { systemClock } = await import(${moduleUrl('core/clock.ts')})
const root = process.argv[1]
const lock = new RootLock(new OwnFolder(root, '.svc'), systemClock)
// The reader may be slow, and nothing may be said later than it is true.
const say = text => {
  for (;;) try { return writeSync(1, text + '\\n') } catch (error) { if (error.code !== 'EAGAIN') throw error }
}
const store = new FileStore({
  folder: new OwnFolder(root, '.svc', 'jobs'), lock, now: Date.now, onProblem: text => say('problem ' + text), outdatedBytes: 8192,
})
const { jobs, warnings } = await store.open()
say('opened ' + JSON.stringify({ jobs: jobs.map(job => [job.id, job.attempt]), warnings }))
let seq = jobs.reduce((most, job) => Math.max(most, job.seq), 0)
const retry = { maxAttempts: 1, delayMs: 0, backoff: 1 }
const make = () => ({ id: 'job-1-' + ++seq + '-' + randomBytes(6).toString('hex'), seq, key: 'node/a@default', state: 'queued', attempt: 0,
  retry, createdAt: 0, updatedAt: 0, dueAt: 0, finishedAt: null, resultStatus: null, lastError: null, result: null, callback: null, idempotency: null })
const lane = async () => {
  for (;;) {
    let job = make()
    await store.save([{ job, request: { pad: 'x'.repeat(seq % 700) } }])
    say('kept ' + job.id + ' 0')
    for (let attempt = 1; attempt < 6; attempt++) {
      job = { ...job, attempt }
      await store.save([{ job }])
      say('kept ' + job.id + ' ' + attempt)
    }
    if (seq % 3 === 0) continue
    say('goes ' + job.id)
    await store.save([{ gone: job.id }])
    say('gone ' + job.id)
  }
}
await Promise.all([lane(), lane(), lane(), lane()])`

/** Kills a process that keeps jobs; what it said to be kept must be there when the next one looks. */
export async function killKeepers(kills: number, seed: number): Promise<KillReport> {
  const random = createRandom(seed)
  const report: KillReport = { kills: 0, acknowledged: 0, interrupted: 0, runs: 0, wrong: [] }
  const tree = makeTree()
  const kept = new Map<string, number>()
  const going = new Set<string>()
  try {
    while (report.kills < kills && report.wrong.length === 0) {
      const child = spawn(process.execPath, [...FROM_SOURCES, '--input-type=module', '-e', KEEPER, tree.root], {
        stdio: ['ignore', 'pipe', 'inherit'],
      })
      const ended = new Promise(resolve => child.once('exit', resolve))
      for await (const line of createInterface({ input: child.stdout })) {
        const [what, id = '', attempt] = line.split(' ')
        if (what === 'opened') {
          checkKept(line.slice('opened '.length), kept, going, report)
          setTimeout(() => child.kill('SIGKILL'), random(1 + random(120)))
        } else if (what === 'kept') {
          kept.set(id, Number(attempt))
          report.acknowledged += 1
        } else if (what === 'goes') going.add(id)
        else if (what === 'gone') kept.delete(id)
        else report.wrong.push(line)
      }
      await ended
      report.kills += 1
    }
  } finally {
    tree.cleanup()
  }
  return report
}

function checkKept(json: string, kept: Map<string, number>, going: Set<string>, report: KillReport): void {
  const { jobs, warnings } = JSON.parse(json) as { jobs: [string, number][]; warnings: unknown[] }
  const found = new Map(jobs)
  if (warnings.length > 0) report.wrong.push(JSON.stringify(warnings))
  for (const [id, attempt] of kept) {
    const read = found.get(id)
    // One that was about to be deleted may be there or not.
    if (read === undefined ? !going.has(id) : read < attempt || read > attempt + 1)
      report.wrong.push(`${id}: ${attempt} was kept, ${read} is there`)
  }
  for (const id of found.keys()) if (going.has(id) && !kept.has(id)) report.wrong.push(`${id} is back`)
  kept.clear()
  for (const [id, attempt] of found) kept.set(id, attempt)
}
