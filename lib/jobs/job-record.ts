/** A job as people and programs see it: names with underscores, times in milliseconds since the epoch. Spec: page jobs/jobs. */

import type { Job, JobRequest, JobState } from './job.ts'

export interface JobRecord {
  id: string
  status: JobState
  created_at_ms: number
  updated_at_ms: number
  finished_at_ms: number | null
  runtime: string
  name: string
  version: string | null
  method: string
  /** The path that is called, and the route that it comes from. */
  route: string
  route_template: string | null
  /** Runs that began. */
  attempt: number
  max_attempts: number
  /** The runs in order; the end is null while one goes on. `request_id` finds its log lines. */
  attempts: {
    request_id: string
    started_at_ms: number
    ended_at_ms: number | null
    status: number | null
    error: string | null
  }[]
  retry_delay_ms: number
  backoff: number
  /** When a queued job may run; null for others. */
  next_run_at_ms: number | null
  /** Status of the last answer. */
  result_status: number | null
  /** Bytes of the kept body; null when there is no result. */
  result_bytes: number | null
  result_truncated: boolean
  last_error: string | null
  idempotency_key: string | null
  /** What follows the path of the URL is not shown: it may hold a secret. */
  callback: { url: string; status: string; attempts: number; last_error: string | null } | null
}

export function toJobRecord(job: Job, request: JobRequest): JobRecord {
  return {
    id: job.id,
    status: job.state,
    created_at_ms: job.createdAt,
    updated_at_ms: job.updatedAt,
    finished_at_ms: job.finishedAt,
    runtime: request.runtime,
    name: request.name,
    version: request.version,
    method: request.method,
    route: request.rawPath,
    route_template: request.routeTemplate,
    attempt: job.attempt,
    max_attempts: job.retry.maxAttempts,
    attempts: job.attempts.map(({ startedAt, endedAt, status, error }, index) => ({
      request_id: `${job.id}.${index + 1}`,
      started_at_ms: startedAt,
      ended_at_ms: endedAt,
      status,
      error,
    })),
    retry_delay_ms: job.retry.delayMs,
    backoff: job.retry.backoff,
    next_run_at_ms: job.state === 'queued' ? job.dueAt : null,
    result_status: job.resultStatus,
    result_bytes: job.result?.bytes ?? null,
    result_truncated: job.result?.truncated ?? false,
    last_error: job.lastError,
    idempotency_key: job.idempotency?.key ?? null,
    callback: toCallback(job, request.callbackUrl),
  }
}

function toCallback({ callback }: Job, url: string | null): JobRecord['callback'] {
  if (callback === null || url === null) return null
  const { origin, pathname } = new URL(url)
  const { state, attempts, lastError } = callback
  return { url: origin + pathname, status: state, attempts, last_error: lastError }
}
