/** `fngw jobs`: what its words do, over the API of the running gateway. Owner: page bin/jobs. */

import { once } from 'node:events'
import type { Readable } from 'node:stream'
import type { ApiClient } from './api-client.ts'
import { type InvokeFlags, toCall } from './invoke-call.ts'
import { alignColumns, toRelativeTime } from './columns.ts'
import type { Output } from './output.ts'
import { UsageError } from './usage-error.ts'

export interface JobListFlags {
  state?: string
  fn?: string
  limit?: string
  cursor?: string
  json?: boolean
}

export interface JobCreateFlags extends InvokeFlags {
  maxAttempts?: string
  retryDelay?: string
  backoff?: string
  delay?: string
  callback?: string
  key?: string
  wait?: boolean
  json?: boolean
}

/** The fields of a record that are shown. */
interface JobRecord {
  id: string
  status: string
  runtime: string
  name: string
  version: string | null
  attempt: number
  max_attempts: number
  created_at_ms: number
  result_status: number | null
  last_error: string | null
}

/** Milliseconds between two looks at a job that is waited for. */
const WAIT_MS = 250
const ENDED = ['done', 'failed', 'canceled']

export async function listJobs(api: ApiClient, { json, ...query }: JobListFlags, output: Output): Promise<void> {
  const answer = (await api.json('GET', '/_fn/jobs', { query })) as { jobs: JobRecord[]; next_cursor: string | null }
  if (json === true) {
    output.result(JSON.stringify(answer, null, 2))
    return
  }
  const now = Date.now()
  const rows = answer.jobs.map(job => toCells(job, output, toRelativeTime(job.created_at_ms, now)))
  const [head, ...lines] = alignColumns([['ID', 'STATE', 'FUNCTION', 'ATTEMPT', 'STATUS', 'CREATED', 'ERROR'], ...rows])
  if (rows.length === 0) output.note('no jobs')
  else output.result(head!.join('  '))
  for (const cells of lines) output.result(toColoured(cells, output))
  if (answer.next_cursor !== null) output.note(`there are more: --cursor ${answer.next_cursor}`)
}

export async function showJob(api: ApiClient, id: string, output: Output): Promise<void> {
  output.result(JSON.stringify(await api.json('GET', toPath(id)), null, 2))
}

/** @returns the exit code: with `--wait` 1 for a job that is not done */
export async function createJob(
  api: ApiClient,
  name: string,
  flags: JobCreateFlags,
  { output, stdin }: { output: Output; stdin: Readable },
): Promise<number> {
  const { headers = {}, method, ...call } = await toCall(name, flags, stdin)
  const request = {
    ...call,
    // The function's own first method where nothing is said.
    ...((flags.method !== undefined || flags.data !== undefined) && { method }),
    headers: Object.fromEntries(
      Object.entries(headers as Record<string, string | string[]>).map(([key, value]) => [
        key,
        [value].flat().join(', '),
      ]),
    ),
    ...toNumbers(flags),
    ...(flags.callback !== undefined && { callback_url: flags.callback }),
  }
  const key: Record<string, string> = flags.key === undefined ? {} : { 'Idempotency-Key': flags.key }
  let job = (await api.json('POST', '/_fn/jobs', { json: request, headers: key })) as JobRecord
  if (flags.wait === true) job = await waitForEnd(api, job)
  if (flags.json === true) output.result(JSON.stringify(job, null, 2))
  else output.result(flags.wait === true ? toLine(job, output) : job.id)
  return flags.wait === true && job.status !== 'done' ? 1 : 0
}

async function waitForEnd(api: ApiClient, job: JobRecord): Promise<JobRecord> {
  let latest = job
  while (!ENDED.includes(latest.status)) {
    await new Promise(resolve => setTimeout(resolve, WAIT_MS))
    latest = (await api.json('GET', toPath(job.id))) as JobRecord
  }
  return latest
}

export async function cancelJob(api: ApiClient, id: string, output: Output): Promise<void> {
  const job = (await api.json('DELETE', toPath(id))) as JobRecord & { deleted: boolean }
  output.result(`${job.id} ${job.deleted ? 'deleted' : job.status}`)
}

/** The bytes of the result on standard output, as they are. @returns the exit code: 1 for an answer of 400 or more */
export async function writeResult(
  api: ApiClient,
  id: string,
  { wait }: { wait?: boolean },
  output: Output,
): Promise<number> {
  let job = (await api.json('GET', toPath(id))) as JobRecord
  if (wait === true) job = await waitForEnd(api, job)
  const { status, result_status: answered } = job
  if (!ENDED.includes(status)) {
    output.note(`no result yet: the job is ${status}`)
    return 1
  }
  for await (const piece of api.stream('GET', `${toPath(id)}/result`, { query: { raw: 1 } })) {
    if (!output.stdout.write(piece)) await once(output.stdout, 'drain')
  }
  if (answered !== null && answered >= 400) output.note(`status ${answered}`)
  return answered !== null && answered < 400 ? 0 : 1
}

function toPath(id: string): string {
  return `/_fn/jobs/${encodeURIComponent(id)}`
}

const COLOURS: Readonly<Record<string, 'green' | 'red' | 'yellow' | 'dim'>> = {
  done: 'green',
  failed: 'red',
  canceled: 'dim',
  running: 'yellow',
}

/** `job-… done     hello  1/3  200  2026-11-22T03:00:00.000Z`, and why it failed. */
function toLine(job: JobRecord, output: Output): string {
  const cells = toCells(job, output, new Date(job.created_at_ms).toISOString())
  return toColoured(cells.with(1, job.status.padEnd(8)), output)
}

function toCells(job: JobRecord, output: Output, created: string): string[] {
  const { id, status, name, version, attempt, max_attempts: most, result_status: answered, last_error: error } = job
  const reason = error === null || status === 'canceled' ? '' : output.clean(error)
  const label = version === null ? name : `${name}@${version}`
  return [id, status, label, `${attempt}/${most}`, String(answered ?? '-'), created, reason]
}

/** @param cells - a job's, the state padded or not */
function toColoured(cells: readonly string[], output: Output): string {
  const colour = COLOURS[cells[1]!.trimEnd()]
  const shown = colour === undefined ? cells : cells.with(1, output.styleResult(colour, cells[1]!))
  return shown.join('  ').trimEnd()
}

/** Times are seconds on the command line. */
function toNumbers({ maxAttempts, retryDelay, backoff, delay }: JobCreateFlags): Record<string, number> {
  const numbers: Record<string, number> = {}
  const add = (field: string, flag: string, text: string | undefined, factor = 1): void => {
    if (text === undefined) return
    const value = text.trim() === '' ? Number.NaN : Number(text)
    if (!Number.isFinite(value)) throw new UsageError(`${flag} must be a number, got ${JSON.stringify(text)}`)
    numbers[field] = factor === 1 ? value : Math.round(value * factor)
  }
  add('max_attempts', '--max-attempts', maxAttempts)
  add('retry_delay_ms', '--retry-delay', retryDelay, 1000)
  add('backoff', '--backoff', backoff)
  add('delay_ms', '--delay', delay, 1000)
  return numbers
}
