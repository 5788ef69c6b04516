/** A job: the small part that stays in memory, and the request that stays on disk. Data only. Spec: page jobs/jobs. */

import type { Readable } from 'node:stream'
import { backoffDelay } from '../core/clock.ts'
import type { Warning } from '../core/errors.ts'
import type { Method, RuntimeName } from '../core/identity.ts'
import { MAX_JOB_DELAY_MS } from '../core/limits.ts'

export const JOB_STATES = ['queued', 'running', 'done', 'failed', 'canceled'] as const
export type JobState = (typeof JOB_STATES)[number]

/** Milliseconds, and how often. */
interface JobRetry {
  maxAttempts: number
  delayMs: number
  /** Factor from one delay to the next. */
  backoff: number
}

/** Facts of the result in the store. */
export interface ResultFacts {
  /** Of the body as it is kept. */
  bytes: number
  /** True when the body is UTF-8 text. */
  isText: boolean
  /** True when the body was cut at `FN_JOBS_MAX_RESULT_BYTES`. */
  truncated: boolean
  latencyMs: number
}

/** One run of a job. Times are wall clock, ms; the end is null while it runs. */
interface JobAttempt {
  readonly startedAt: number
  readonly endedAt: number | null
  /** Status of the response; null when there was none. */
  readonly status: number | null
  readonly error: string | null
}

/** The delivery of the callback. */
export interface CallbackFacts {
  state: 'pending' | 'delivered' | 'failed'
  attempts: number
  lastError: string | null
}

/** A key of the creator's, and what it was used for. */
export interface Idempotency {
  key: string
  /** Digest of the request. */
  digest: string
}

/** A job as memory holds it: never changed, each step makes a new one. Times are wall clock, ms. */
export interface Job {
  readonly id: string
  /** Order of creation. */
  readonly seq: number
  /** Key of its function version. */
  readonly key: string
  readonly state: JobState
  /** Runs that began. */
  readonly attempt: number
  /** Those runs in order, at most `retry.maxAttempts`. */
  readonly attempts: readonly JobAttempt[]
  readonly retry: JobRetry
  readonly createdAt: number
  readonly updatedAt: number
  /** When a queued one may run. */
  readonly dueAt: number
  readonly finishedAt: number | null
  readonly resultStatus: number | null
  readonly lastError: string | null
  readonly result: ResultFacts | null
  readonly callback: CallbackFacts | null
  readonly idempotency: Idempotency | null
}

/** The request of a job, as it was when the job was created. */
export interface JobRequest {
  readonly runtime: RuntimeName
  readonly name: string
  readonly version: string | null
  readonly method: Method
  /** Pattern of the route; null for a function without one. */
  readonly routeTemplate: string | null
  /** The path with its params filled in, decoded and as a client would write it. */
  readonly path: string
  readonly rawPath: string
  readonly params: Readonly<Record<string, string>>
  readonly query: Readonly<Record<string, unknown>>
  readonly headers: Readonly<Record<string, string>>
  readonly context: Readonly<Record<string, unknown>> | null
  /** A small body in base64; null when there is none or it is a separate part. */
  readonly body: string | null
  readonly hasBodyPart: boolean
  readonly callbackUrl: string | null
}

const JOB_ID = /^job-\d{1,15}-\d{1,12}-[0-9a-f]{12}$/

/** True for a text that may be the id of a job; nothing else ever becomes the name of a file. */
export function isJobId(text: string): boolean {
  return JOB_ID.test(text)
}

/** True for a job that will not run any more. */
export function isFinished({ state }: Job): boolean {
  return state === 'done' || state === 'failed' || state === 'canceled'
}

/*
 * The states of a job are pure functions: the job and what happened in, the job afterwards out.
 *
 *   queued ──begin──► running ──response 200..499──► done
 *     ▲  │               ├──another attempt is left─► queued, later
 *     │  │               ├──none is left────────────► failed
 *     │  └──cancel──► canceled ◄──cancel──┤
 *     └──── not admitted, not begun ──────┘
 */

/** How an attempt ended. */
export interface AttemptOutcome {
  /** `answer`: of the function. `failure`: none came. `final`: another try would end the same. `unbegun`: the handler never ran. */
  kind: 'answer' | 'failure' | 'final' | 'unbegun'
  /** Status of the answer or of the refusal; 0 when there is none. */
  status: number
  error: string | null
  result: ResultFacts | null
}

/** Milliseconds until a job whose handler did not begin asks again. */
export const UNBEGUN_DELAY_MS = 1000

/** Kept before the handler starts: whatever happens then, this run counts. */
export function begin(job: Job, now: number): Job {
  const attempts = [...job.attempts, { startedAt: now, endedAt: null, status: null, error: null }]
  const attempt = job.attempt + 1
  return { ...job, state: 'running', attempt, attempts, updatedAt: now, result: null, resultStatus: null }
}

/** The attempts with the end of the one that runs; none runs where the last one has its end. */
function endAttempt({ attempts }: Job, endedAt: number, status: number | null, error: string | null): JobAttempt[] {
  const last = attempts.at(-1)
  if (last === undefined || last.endedAt !== null) return [...attempts]
  return [...attempts.slice(0, -1), { ...last, endedAt, status, error }]
}

export function afterAttempt(job: Job, outcome: AttemptOutcome, now: number): Job {
  const { kind, status, error, result } = outcome
  if (kind === 'unbegun') {
    const dueAt = now + UNBEGUN_DELAY_MS
    const attempts = job.attempts.slice(0, -1)
    return { ...job, state: 'queued', attempt: job.attempt - 1, attempts, updatedAt: now, dueAt, lastError: error }
  }
  const isDone = kind === 'answer' && status >= 200 && status < 500
  const lastError = isDone ? error : (error ?? `HTTP ${status}`)
  const resultStatus = status === 0 ? null : status
  const attempts = endAttempt(job, now, resultStatus, lastError)
  const ended = { ...job, attempts, resultStatus, result, lastError, updatedAt: now }
  if (isDone) return { ...ended, state: 'done', finishedAt: now }
  if (kind === 'final' || job.attempt >= job.retry.maxAttempts) return { ...ended, state: 'failed', finishedAt: now }
  return { ...ended, state: 'queued', dueAt: now + retryDelay(job) }
}

/** A run that its gateway did not see to an end. */
export function afterInterruption(job: Job, now: number, why: string): Job {
  const error = `${why} during attempt ${job.attempt} of ${job.retry.maxAttempts}`
  return afterAttempt(job, { kind: 'failure', status: 0, error, result: null }, now)
}

export function cancel(job: Job, now: number): Job {
  const attempts = endAttempt(job, now, null, 'canceled')
  return { ...job, state: 'canceled', attempts, updatedAt: now, finishedAt: now, lastError: 'canceled' }
}

/** Milliseconds before the attempt after this one. */
function retryDelay({ attempt, retry }: Job): number {
  return backoffDelay(attempt - 1, { first: retry.delayMs, factor: retry.backoff, max: MAX_JOB_DELAY_MS })
}

/** A job, as `gateway.jobs` and `GET /_fn/jobs/<id>` return it. */
export type JobRecord = ReturnType<typeof toJobRecord>

/** A job as the API shows it: times in milliseconds since the epoch. */
export function toJobRecord(job: Job, request: JobRequest) {
  const { id, state, attempt, retry, result, callback } = job
  const { runtime, name, version, method } = request
  return {
    id,
    status: state,
    created_at_ms: job.createdAt,
    updated_at_ms: job.updatedAt,
    finished_at_ms: job.finishedAt,
    ...{ runtime, name, version, method },
    /** The path that is called, and the route that it comes from. */
    route: request.rawPath,
    route_template: request.routeTemplate,
    /** Runs that began. */
    attempt,
    max_attempts: retry.maxAttempts,
    /** The runs in order; the end is null while one goes on. `request_id` finds its log lines. */
    attempts: job.attempts.map(({ startedAt, endedAt, status, error }, index) => ({
      request_id: `${id}.${index + 1}`,
      started_at_ms: startedAt,
      ended_at_ms: endedAt,
      status,
      error,
    })),
    retry_delay_ms: retry.delayMs,
    backoff: retry.backoff,
    /** When a queued job may run; null for others. */
    next_run_at_ms: state === 'queued' ? job.dueAt : null,
    /** Status of the last response. */
    result_status: job.resultStatus,
    /** Bytes of the kept body; null when there is no result. */
    result_bytes: result?.bytes ?? null,
    result_truncated: result?.truncated ?? false,
    last_error: job.lastError,
    idempotency_key: job.idempotency?.key ?? null,
    callback:
      callback === null || request.callbackUrl === null ? null : toCallbackRecord(callback, request.callbackUrl),
  }
}

/** The query of the URL is not shown: it may contain a secret. */
function toCallbackRecord({ state, attempts, lastError }: CallbackFacts, url: string) {
  const { origin, pathname } = new URL(url)
  return { url: origin + pathname, status: state, attempts, last_error: lastError }
}

/** `request` is JSON and comes with the job; the others are bytes of any size. */
export type JobPart = 'request' | 'body' | 'result'

/** One step of a job, or its end. A new job comes with its request. */
export type JobChange = { job: Job; request?: JobRequest } | { gone: string }

/** Takes the bytes of a part one after the other. */
export interface PartWriter {
  /** Resolves when there is room for more. */
  write(bytes: Uint8Array): Promise<void>
  /** The part is whole: it is kept when this resolves, in the place of an older one. */
  end(): Promise<void>
  /** Nothing of it is kept. */
  discard(): Promise<void>
}

export interface JobStore {
  /**
   * Takes possession and returns every job that was kept, in the order of creation.
   * @throws Error when nothing can be kept here now
   */
  open(): Promise<{ jobs: Job[]; warnings: Warning[] }>
  /** As `open`, to read alone, where nothing can be written. Takes no possession. @throws Error when nothing can be read */
  peek(): Promise<Job[]>
  /** Resolves when all of it is kept, whatever happens to the process or the machine; rejects when none is. */
  save(changes: readonly JobChange[]): Promise<void>
  /** null when there is none. */
  read(id: string, part: JobPart): Promise<Readable | null>
  write(id: string, part: 'body' | 'result'): Promise<PartWriter>
  /** Keeps what is being kept; nothing more is taken. */
  close(): Promise<void>
}

/** The parts of jobs, wherever they are kept. */
export type JobParts = Pick<JobStore, 'read' | 'write'>

/** A whole part that is known to be small. */
export async function readWhole(part: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = []
  for await (const piece of part) pieces.push(piece)
  return Buffer.concat(pieces)
}

/** @throws Error when the store has lost it */
export async function readRequest({ id }: Job, store: Pick<JobParts, 'read'>): Promise<JobRequest> {
  const part = await store.read(id, 'request')
  if (part === null) throw new Error('its request is gone')
  return JSON.parse((await readWhole(part)).toString('utf8')) as JobRequest
}

export async function readBody(
  { id }: Job,
  { body, hasBodyPart }: JobRequest,
  store: Pick<JobParts, 'read'>,
): Promise<Buffer | null> {
  if (!hasBodyPart) return body === null ? null : Buffer.from(body, 'base64')
  const part = await store.read(id, 'body')
  if (part === null) throw new Error('its body is gone')
  return readWhole(part)
}
