/** What a job is: the small part that memory holds for each, and the request that stays on disk. Data only. Spec: page jobs/jobs. */

import type { Method, RuntimeName } from '../core/identity.ts'

export const JOB_STATES = ['queued', 'running', 'done', 'failed', 'canceled'] as const
export type JobState = (typeof JOB_STATES)[number]

/** Milliseconds, and how often. */
export interface JobRetry {
  maxAttempts: number
  delayMs: number
  /** Each delay is so many times the one before it. */
  backoff: number
}

/** What is known of the result in the store. */
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
export interface JobAttempt {
  readonly startedAt: number
  readonly endedAt: number | null
  /** Status of the response; null when there was none. */
  readonly status: number | null
  readonly error: string | null
}

/** How far telling the `callback_url` got. */
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

/** What a job asks of its function, as it was when the job was made. */
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
  /** A small body in base64; null when there is none or it is a part of its own. */
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
