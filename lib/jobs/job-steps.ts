/**
 * The states of a job as pure functions: a job and what happened in, the job afterwards out. Spec: page jobs/jobs.
 *
 *   queued ──begin──► running ──answer 200..499──► done
 *     ▲  │               ├──another try is left──► queued, later
 *     │  │               ├──none is left─────────► failed
 *     │  └──cancel──► canceled ◄──cancel──┤
 *     └──── not admitted, not begun ──────┘
 */

import { backoffDelay } from '../core/clock.ts'
import { MAX_JOB_DELAY_MS } from '../core/limits.ts'
import type { Job, JobAttempt, ResultFacts } from './job.ts'

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
