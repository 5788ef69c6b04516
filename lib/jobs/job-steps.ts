/**
 * The states of a job as pure functions: a job and what happened in, the job afterwards out. Spec: page jobs/jobs.
 *
 *   queued ──begin──► running ──answer 200..499──► done
 *     ▲  │               ├──another try is left──► queued, later
 *     │  │               ├──none is left─────────► failed
 *     │  └──cancel──► canceled ◄──cancel──┤
 *     └──── not admitted, not begun ──────┘
 */

import { MAX_JOB_DELAY_MS } from '../core/limits.ts'
import type { Job, ResultFacts } from './job.ts'

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
  return { ...job, state: 'running', attempt: job.attempt + 1, updatedAt: now, result: null, resultStatus: null }
}

export function afterAttempt(job: Job, outcome: AttemptOutcome, now: number): Job {
  const { kind, status, error, result } = outcome
  if (kind === 'unbegun') {
    const dueAt = now + UNBEGUN_DELAY_MS
    return { ...job, state: 'queued', attempt: job.attempt - 1, updatedAt: now, dueAt, lastError: error }
  }
  const ended = { ...job, resultStatus: status === 0 ? null : status, result, lastError: error, updatedAt: now }
  if (kind === 'answer' && status >= 200 && status < 500)
    return { ...ended, state: 'done', lastError: null, finishedAt: now }
  const lastError = error ?? `HTTP ${status}`
  if (kind === 'final' || job.attempt >= job.retry.maxAttempts)
    return { ...ended, state: 'failed', lastError, finishedAt: now }
  return { ...ended, state: 'queued', lastError, dueAt: now + retryDelay(job) }
}

/** A run that its gateway did not see to an end. */
export function afterInterruption(job: Job, now: number, why: string): Job {
  const error = `${why} during attempt ${job.attempt} of ${job.retry.maxAttempts}`
  return afterAttempt(job, { kind: 'failure', status: 0, error, result: null }, now)
}

export function cancel(job: Job, now: number): Job {
  return { ...job, state: 'canceled', updatedAt: now, finishedAt: now, lastError: 'canceled' }
}

/** Milliseconds before the attempt after this one. */
function retryDelay({ attempt, retry }: Job): number {
  return Math.min(MAX_JOB_DELAY_MS, retry.delayMs * retry.backoff ** (attempt - 1))
}
