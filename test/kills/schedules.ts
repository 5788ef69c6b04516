/**
 * Gateways that are killed at random moments while their schedules run, and what must be true of every due time afterwards: it had
 * one run or shares one, none ran that was not noted before, and what a kill cut off is tried again only where a retry says so.
 */

import { existsSync, readFileSync } from 'node:fs'
import { killGateway, startGateway } from './jobs.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'
import { createRandom } from '../helpers/random.ts'

const HANDLER = `const { appendFileSync } = require('node:fs')
exports.handler = async event => {
  const { attempt } = event.context.trigger
  appendFileSync(__dirname + '/../runs.txt', event.path.slice(1) + ' ' + attempt + '\\n')
  await new Promise(resolve => setTimeout(resolve, Number(event.query.wait)))
  return { status: Number(event.query.status), headers: {}, body: '' }
}`

const RETRY = { max_attempts: 3, base_delay_seconds: 0, jitter: 0 }

/** Schedules by name: quick and slow ones, with and without retries. All are due every second. */
const SCHEDULES: Readonly<Record<string, { schedule: object; attempts: number }>> = {
  quick: { schedule: { every_seconds: 1, query: { wait: 0, status: 200 } }, attempts: 1 },
  slow: { schedule: { every_seconds: 1, query: { wait: 700, status: 200 } }, attempts: 1 },
  cron: { schedule: { cron: '* * * * * *', timezone: 'Europe/Berlin', query: { wait: 50, status: 200 } }, attempts: 1 },
  fails: { schedule: { every_seconds: 1, retry: RETRY, query: { wait: 100, status: 500 } }, attempts: 3 },
}

export interface ScheduleKillReport {
  kills: number
  /** Runs that were noted, that began, and that a kill cut off. */
  noted: number
  began: number
  cutOff: number
  wrong: string[]
}

interface State {
  next: number
  done_up_to: number | null
  retry_due: number | null
  running: number | null
}

/** What is known of one schedule over all kills. */
interface Life {
  /** Last state that was kept. */
  state: State | null
  /** Runs that were noted, by attempt. */
  noted: number[]
  /** A run was cut off: the attempt, and what may follow. */
  cutOff: number | null
}

export async function killSchedules(
  kills: number,
  seed: number,
  say: (text: string) => void = () => {},
): Promise<ScheduleKillReport> {
  const random = createRandom(seed)
  const report: ScheduleKillReport = { kills: 0, noted: 0, began: 0, cutOff: 0, wrong: [] }
  const entries = Object.entries(SCHEDULES).flatMap(([name, { schedule }]) => [
    [`${name}/handler.js`, HANDLER] as const,
    [`${name}/fn.config.json`, JSON.stringify({ schedule })] as const,
  ])
  const tree = makeTree(Object.fromEntries(entries))
  const lives = new Map<string, Life>()
  for (const name of Object.keys(SCHEDULES)) lives.set(name, { state: null, noted: [0, 0, 0, 0], cutOff: null })
  try {
    while (report.kills < kills && report.wrong.length === 0) {
      const running = await startGateway(tree.root)
      await new Promise(resolve => setTimeout(resolve, random(2500)))
      await killGateway(running)
      report.kills += 1
      for (const [name, life] of lives) follow(tree, name, life, report)
      if (report.kills % 10 === 0) say(`${report.kills} kills, ${report.noted} runs noted, ${report.cutOff} cut off`)
    }
    compare(tree, lives, report)
  } finally {
    tree.cleanup()
  }
  return report
}

/** Every state of a schedule that was kept between two kills, in its order. */
function statesOf(tree: Tree, name: string): State[] {
  const key = `node/${name}@default`
  const whole = tree.path('.svc/scheduler-state.json')
  if (!existsSync(whole)) return []
  const { seq: last, schedules } = JSON.parse(readFileSync(whole, 'utf8')) as {
    seq: number
    schedules: Record<string, State>
  }
  const states = schedules[key] === undefined ? [] : [schedules[key]]
  for (const line of readFileSync(`${whole}.log`, 'utf8').trim().split('\n').filter(Boolean)) {
    const change = JSON.parse(line) as { seq: number; key: string; state: State }
    if (change.key === key && change.seq > last) states.push(change.state)
  }
  return states
}

function follow(tree: Tree, name: string, life: Life, report: ScheduleKillReport): void {
  const { attempts } = SCHEDULES[name]!
  const wrong = (what: string, state: State): void =>
    void report.wrong.push(`${name}: ${what}: ${JSON.stringify(life.state)} then ${JSON.stringify(state)}`)
  for (const state of statesOf(tree, name)) {
    const before = life.state
    life.state = state
    if (state.running === null || (before?.running === state.running && before.done_up_to === state.done_up_to))
      continue
    report.noted += 1
    life.noted[state.running]! += 1
    if (state.running > attempts) wrong('one attempt too many', state)
    if (life.cutOff !== null && state.running !== (life.cutOff < attempts ? life.cutOff + 1 : 1))
      wrong('after a kill', state)
    life.cutOff = null
    if (before === null) continue
    if (before.running !== null && before.running === state.running && state.running > 1) wrong('beside itself', state)
    if (state.running > 1) continue
    // A first attempt: exactly what was due, and something was.
    if (state.done_up_to! < before.next) wrong(`nothing was due at ${state.done_up_to}`, state)
    if (before.done_up_to !== null && state.done_up_to! <= before.done_up_to) wrong('the same due time twice', state)
  }
  if (life.state?.running == null) return
  life.cutOff = life.state.running
  report.cutOff += 1
}

/** No run began that was not noted, and of those that were noted only one for each kill may be missing. */
function compare(tree: Tree, lives: ReadonlyMap<string, Life>, report: ScheduleKillReport): void {
  const began = new Map<string, number>()
  const path = tree.path('runs.txt')
  for (const line of existsSync(path) ? readFileSync(path, 'utf8').trim().split('\n') : [])
    began.set(line, (began.get(line) ?? 0) + 1)
  for (const [name, { noted, state }] of lives) {
    if (state === null) report.wrong.push(`${name}: nothing was kept`)
    let missing = 0
    for (let attempt = 1; attempt <= 3; attempt++) {
      const count = began.get(`${name} ${attempt}`) ?? 0
      report.began += count
      missing += noted[attempt]! - count
      if (count > noted[attempt]!)
        report.wrong.push(`${name}: attempt ${attempt} began ${count} times and was noted ${noted[attempt]} times`)
    }
    if (missing > report.kills) report.wrong.push(`${name}: ${missing} noted runs never began`)
  }
}
