/** The words of `fngw jobs` and their flags. Owner: page bin/jobs. */

import type { Command } from 'commander'
import { RUNTIMES } from '../lib/core/identity.ts'
import { addApiFlags, toApiClient } from './api-flags.ts'
import {
  cancelJob,
  createJob,
  type JobCreateFlags,
  type JobListFlags,
  listJobs,
  showJob,
  writeResult,
} from './jobs-command.ts'
import type { Output } from './output.ts'

/** Takes a flag that may be given several times. */
function collect(value: string, before: string[] | undefined): string[] {
  return [...(before ?? []), value]
}

export function addJobs(program: Command, output: Output): void {
  const jobs = program.command('jobs').description('Create, list and cancel jobs of the running gateway.')
  const apiOf = (command: Command) => toApiClient(command, { cwd: process.cwd(), env: process.env })
  const list = jobs
    .command('ls')
    .description('List jobs, newest first.')
    .option('--state <name>', 'queued, running, done, failed or canceled.')
    .option('--fn <name>', 'Of this function only.')
    .option('--limit <count>', 'Maximum number of jobs, 1 to 200 (default 50).')
    .option('--cursor <number>', 'Go on behind the page before.')
    .option('--json', 'As JSON.')
  addApiFlags(list).action(() => {
    const { state, fn, limit, cursor, json } = list.opts<JobListFlags>()
    const flags = { state, fn, limit, cursor, json } as JobListFlags
    return listJobs(apiOf(list), flags, output)
  })
  const show = jobs.command('show').description('Print the record of a job.').argument('<id>', 'Id of the job.')
  addApiFlags(show).action((id: string) => showJob(apiOf(show), id, output))
  addCreate(jobs, output)
  const cancel = jobs
    .command('cancel')
    .description('Cancel a job that waits or runs; delete one that is over.')
    .argument('<id>', 'Id of the job.')
  addApiFlags(cancel).action((id: string) => cancelJob(apiOf(cancel), id, output))
  const result = jobs
    .command('result')
    .description('Write what a job answered to standard output.')
    .argument('<id>', 'Id of the job.')
    .option('--wait', 'Wait until the job has finished.')
  addApiFlags(result)
    .addHelpText('after', '\nExit code 1 when there is no result yet, or its status is 400 or more.')
    .action(async (id: string) => {
      process.exitCode = await writeResult(apiOf(result), id, result.opts<{ wait?: boolean }>(), output)
    })
}

function addCreate(jobs: Command, output: Output): void {
  const create = jobs
    .command('create')
    .description('Make a job and print its id.')
    .argument('<name>', 'Name of the function, such as hello or api/users.')
    .option('-X, --method <name>', 'Method (default GET where it is allowed, with -d POST).')
    .option('-d, --data <text>', 'Body: text, @FILE, or @- for standard input.')
    .option('-H, --header <line>', 'Header, such as "Accept: text/plain"; may be repeated.', collect)
    .option('-q, --query <pair>', 'Query parameter, name=value; may be repeated.', collect)
    .option('--route <path>', 'One of the routes of the function.')
    .option('--param <pair>', 'Route parameter, name=value; may be repeated.', collect)
    .option('--version <label>', 'Version of the function.')
    .option('--runtime <name>', `Where several languages have the name: ${RUNTIMES.join(', ')}.`)
    .option('--context <json>', 'JSON object for event.context.user, or @FILE.')
    .option('--max-attempts <count>', 'Attempts, 1 to 10 (default 1).')
    .option('--retry-delay <seconds>', 'Between two attempts (default 1).')
    .option('--backoff <factor>', 'Factor between one delay and the next (default 1).')
    .option('--delay <seconds>', 'Before the first attempt (default 0).')
    .option('--callback <url>', 'Receives a POST when the job ends.')
    .option('--key <text>', 'Idempotency key: the same key and request give the same job.')
    .option('--wait', 'Wait for its end; exit code 1 unless it is done.')
    .option('--json', 'Print the record as JSON.')
  addApiFlags(create)
    .addHelpText('after', `\nExample:\n  fngw jobs create report -d '{"month":"2026-11"}' --max-attempts 3 --wait`)
    .action(async (name: string) => {
      const api = toApiClient(create, { cwd: process.cwd(), env: process.env })
      process.exitCode = await createJob(api, name, create.opts<JobCreateFlags>(), { output, stdin: process.stdin })
    })
}
