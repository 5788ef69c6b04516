/** Jobs as `/_fn/jobs` shows them; described on page control/jobs-endpoints. Owner: page console/jobs. */

export const JOB_STATES = ['queued', 'running', 'done', 'failed', 'canceled'] as const

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
  readonly retry_delay_ms: number
  readonly backoff: number
  readonly result_status: number | null
  readonly result_bytes: number | null
  readonly result_truncated: boolean
  readonly last_error: string | null
  readonly idempotency_key: string | null
  readonly callback: { readonly url: string; readonly status: string; readonly attempts: number } | null
}

/** Request ids of the newest attempts of a job, the last one first. */
export function toAttemptIds({ id, attempt }: Pick<Job, 'id' | 'attempt'>, most: number): string[] {
  return Array.from({ length: Math.min(attempt, most) }, (_, index) => `${id}.${attempt - index}`)
}

/** The job that a request was an attempt of; null for another request. */
export function toJobId(requestId: string): string | null {
  return /^(job-\d+-\d+-[\da-f]{12})\.\d+$/.exec(requestId)?.[1] ?? null
}

/** Not over yet: it can be canceled. Else it can be deleted. */
export function isPending({ status }: Pick<Job, 'status'>): boolean {
  return status === 'queued' || status === 'running'
}
