/** Jobs as `/_fn/jobs` shows them; described on page control/jobs-endpoints. Owner: page console/jobs. */

export const JOB_STATES = ['queued', 'running', 'done', 'failed', 'canceled'] as const

/** One run of a job; its end is null while it goes on. */
export interface JobAttempt {
  readonly request_id: string
  readonly started_at_ms: number
  readonly ended_at_ms: number | null
  readonly status: number | null
  readonly error: string | null
}

export interface Job {
  readonly id: string
  readonly status: (typeof JOB_STATES)[number]
  /** Times are milliseconds since the epoch. */
  readonly created_at_ms: number
  readonly updated_at_ms: number
  readonly finished_at_ms: number | null
  readonly next_run_at_ms: number | null
  readonly runtime: string
  readonly name: string
  readonly version: string | null
  readonly method: string
  readonly route: string
  readonly attempt: number
  readonly max_attempts: number
  readonly attempts: readonly JobAttempt[]
  readonly retry_delay_ms: number
  readonly backoff: number
  readonly result_status: number | null
  readonly result_bytes: number | null
  readonly result_truncated: boolean
  readonly last_error: string | null
  readonly idempotency_key: string | null
  readonly callback: { readonly url: string; readonly status: string; readonly attempts: number } | null
}

/** The job that a request was an attempt of; null for another request. */
export function toJobId(requestId: string): string | null {
  return /^(job-\d+-\d+-[\da-f]{12})\.\d+$/.exec(requestId)?.[1] ?? null
}

/** Not finished: it can be canceled. A finished one can be deleted or run again. */
export function isPending({ status }: Pick<Job, 'status'>): boolean {
  return status === 'queued' || status === 'running'
}
