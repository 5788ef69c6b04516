/** `fngw schedule`: due times and runs of schedules, over the API of the running gateway. Owner: page bin/schedule. */

import type { Command } from 'commander'
import { RUNTIMES } from '../lib/core/identity.ts'
import type { ApiClient } from './api-client.ts'
import { addApiFlags, toApiClient } from './api-flags.ts'
import { alignColumns, toRelativeTime, toRuleText } from './columns.ts'
import type { Output } from './output.ts'
import { UsageError } from './usage-error.ts'

/** The fields of a row that are shown. */
interface ScheduleRow {
  name: string
  version: string
  schedule: { enabled: boolean; every_seconds?: number; cron?: string; timezone: string } | null
  /** Seconds. */
  next: number | null
  next_at: string | null
  running: boolean
  /** Seconds. */
  last: number | null
  last_status: number | null
  last_error: string
}

interface TargetFlags {
  runtime?: string
  version?: string
  json?: boolean
}

export async function listSchedules(api: ApiClient, { json }: { json?: boolean }, output: Output): Promise<void> {
  const answer = (await api.json('GET', '/_fn/schedules')) as { ts: number; schedules: ScheduleRow[] }
  if (json === true) {
    output.result(JSON.stringify(answer, null, 2))
    return
  }
  if (answer.schedules.length === 0) {
    output.note('no schedules')
    return
  }
  const rows = answer.schedules.map(row => toCells(row, answer.ts * 1000))
  for (const cells of alignColumns([['NAME', 'RULE', 'NEXT', 'LAST'], ...rows]))
    output.result(output.clean(cells.join('  ').trimEnd()))
}

/** @throws UsageError for a count that is not a number */
export async function showNext(
  api: ApiClient,
  name: string,
  { json, count, ...target }: TargetFlags & { count?: string },
  output: Output,
): Promise<void> {
  if (count !== undefined && !/^\d+$/.test(count))
    throw new UsageError(`--count must be a number from 1 to 100, got ${JSON.stringify(count)}`)
  const query = { name, count, ...target }
  const answer = (await api.json('GET', '/_fn/schedules/next', { query })) as { next: { local: string }[] }
  if (json === true) output.result(JSON.stringify(answer, null, 2))
  else for (const { local } of answer.next) output.result(output.clean(local))
  if (answer.next.length === 0) output.note('it is switched off, or never due again')
}

/** @returns the exit code: 1 for a run that failed */
export async function runSchedule(
  api: ApiClient,
  name: string,
  { json, ...target }: TargetFlags,
  output: Output,
): Promise<number> {
  const answer = (await api.json('POST', '/_fn/schedules/run', { json: { name, ...target } })) as {
    status: number
    error: string
    latency_ms: number
  }
  if (json === true) output.result(JSON.stringify(answer, null, 2))
  else output.result(`${answer.status} in ${answer.latency_ms.toFixed(1)} ms`)
  if (answer.error !== '') output.note(output.clean(answer.error))
  return answer.error === '' ? 0 : 1
}

/** Name, rule, next time, how the last run went. @param now - ms */
function toCells(row: ScheduleRow, now: number): string[] {
  const { name, version, schedule, next, next_at, running, last, last_status, last_error } = row
  const label = version === 'default' ? name : `${name}@${version}`
  const off = schedule?.enabled === false ? 'off' : 'never'
  const due = next === null || next_at === null ? off : `${toRelativeTime(next * 1000, now)}, ${next_at}`
  const ago = last === null ? '' : toRelativeTime(last * 1000, now)
  const ended = [last_status ?? '', ago, last_error].filter(part => part !== '').join(', ')
  return [label, toRuleText(schedule), due, running ? 'running' : ended || 'not run yet']
}

/** Adds the command with its words. */
export function addSchedule(program: Command, output: Output): void {
  const schedule = program
    .command('schedule')
    .description('Show the schedules of the running gateway, and run one by hand.')
    .enablePositionalOptions()
    .addHelpText(
      'after',
      '\nExamples:\n  fngw schedule ls\n  fngw schedule next report -n 5\n  fngw schedule run report',
    )
  const add = (words: string, description: string): Command => {
    const command = schedule.command(words).description(description).option('--json', 'Print the response of the API.')
    if (words !== 'ls') addTarget(command)
    return addApiFlags(command)
  }
  const apiOf = (command: Command): ApiClient => toApiClient(command, { cwd: process.cwd(), env: process.env })
  const list = add('ls', 'List schedules: name, rule, next time, how the last run went.')
  list.action(() => listSchedules(apiOf(list), pick(list), output))
  const next = add('next', 'Print the next due times in the zone of the schedule.')
  next.option('-n, --count <count>', 'How many, 1 to 100 (default 5).')
  next.action((name: string) => showNext(apiOf(next), name, { ...pick(next), ...toCount(next) }, output))
  const run = add('run', 'Run a schedule now; exit code 1 when the run fails.')
  run.action(async (name: string) => {
    process.exitCode = await runSchedule(apiOf(run), name, pick(run), output)
  })
}

function addTarget(command: Command): void {
  command
    .argument('<name>', 'Name of the function, such as report or api/users.')
    .option('--version <label>', 'Version of the function.')
    .option('--runtime <name>', `Where several languages have the name: ${RUNTIMES.join(', ')}.`)
}

function toCount(command: Command): { count?: string } {
  const { count } = command.opts<{ count?: string }>()
  return count === undefined ? {} : { count }
}

function pick(command: Command): TargetFlags {
  const { runtime, version, json } = command.opts<TargetFlags>()
  return {
    ...(runtime !== undefined && { runtime }),
    ...(version !== undefined && { version }),
    ...(json !== undefined && { json }),
  }
}
