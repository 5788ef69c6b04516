/** One run of a job: its request read back, its function called, its answer kept. Never rejects. Spec: page jobs/jobs. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import type { InternalRequest, InternalResult } from '../invocation/internal-call.ts'
import type { Job, JobRequest } from './job.ts'
import type { AttemptOutcome } from './job-steps.ts'
import { ResultWriter } from './result-writer.ts'
import { type JobStore, readWhole } from './job-store.ts'

export interface AttemptOptions {
  store: JobStore
  /** Calls a function through its own admission. Never rejects. */
  call: (request: InternalRequest) => Promise<InternalResult>
  /** Bytes of a result that are kept. */
  maxResultBytes: number
}

/** The handler did not begin: it may be asked again without that being another attempt. */
const UNBEGUN: ReadonlySet<string> = new Set(['CONCURRENCY_LIMIT', 'POOL_OVERFLOW', 'BUILD_PENDING'])
/** Another attempt would be refused in the same way. */
const FINAL: ReadonlySet<string> = new Set(['METHOD_NOT_ALLOWED', 'BODY_TOO_LARGE', 'BAD_REQUEST'])

/**
 * @param fn - null when it is gone
 * @param signal - stops the handler
 */
export async function runAttempt(
  job: Job,
  fn: FunctionVersion | null,
  signal: AbortSignal,
  options: AttemptOptions,
): Promise<AttemptOutcome> {
  if (fn === null) return toFailure(404, `unknown function or version: ${job.key}`)
  // The writer stops the call when it is full, the owner when nobody wants the job any more.
  const stop = new AbortController()
  const writer = new ResultWriter({
    open: () => options.store.write(job.id, 'result'),
    maxBytes: options.maxResultBytes,
    onFull: () => stop.abort(),
  })
  try {
    const request = await readRequest(job, options.store)
    const body = await readBody(job, request, options.store)
    const result = await options.call({
      ...toInternal(job, request, fn, body),
      // Found again from the logs, and the logs from the job.
      id: `${job.id}.${job.attempt}`,
      signal: AbortSignal.any([signal, stop.signal]),
      mustEnd: true,
      sink: writer,
    })
    return await toOutcome(result, writer)
  } catch (error) {
    await writer.discard()
    return toFailure(0, `the job could not be read: ${(error as Error).message}`)
  }
}

async function toOutcome(result: InternalResult, writer: ResultWriter): Promise<AttemptOutcome> {
  const { error, latencyMs } = result
  if (error !== null && !writer.truncated) {
    await writer.discard()
    return { kind: kindOf(error), status: error.status, error: error.message, result: null }
  }
  const kept = await writer.end()
  const { bytes, truncated } = writer
  return {
    kind: 'answer',
    status: writer.status ?? result.status,
    error: writer.problem === null ? null : `its result could not be kept: ${writer.problem}`,
    result: kept && { bytes, truncated, isText: kept.isText, latencyMs: Math.round(latencyMs * 1000) / 1000 },
  }
}

function kindOf({ code }: GatewayError): AttemptOutcome['kind'] {
  if (UNBEGUN.has(code)) return 'unbegun'
  return FINAL.has(code) ? 'final' : 'failure'
}

function toFailure(status: number, error: string): AttemptOutcome {
  return { kind: 'failure', status, error, result: null }
}

/** @throws Error when the store has lost it */
export async function readRequest({ id }: Job, store: JobStore): Promise<JobRequest> {
  const part = await store.read(id, 'request')
  if (part === null) throw new Error('its request is gone')
  return JSON.parse((await readWhole(part)).toString('utf8')) as JobRequest
}

export async function readBody(
  { id }: Job,
  { body, hasBodyPart }: JobRequest,
  store: JobStore,
): Promise<Buffer | null> {
  if (!hasBodyPart) return body === null ? null : Buffer.from(body, 'base64')
  const part = await store.read(id, 'body')
  if (part === null) throw new Error('its body is gone')
  return readWhole(part)
}

function toInternal(
  job: Job,
  request: JobRequest,
  fn: FunctionVersion,
  body: Buffer | null,
): Omit<InternalRequest, 'id' | 'signal' | 'sink'> {
  const { method, path, rawPath, params, query, headers, context } = request
  return {
    fn,
    method,
    path,
    rawPath,
    params,
    query,
    headers: { 'user-agent': 'fngw-jobs', ...headers },
    body,
    user: context,
    trigger: { type: 'job', id: job.id, attempt: job.attempt, max_attempts: job.retry.maxAttempts },
  }
}
