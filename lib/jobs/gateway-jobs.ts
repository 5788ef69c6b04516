/** Jobs as a program that embeds a gateway sees them. Spec: page jobs/jobs. */

import type { JobState } from './job.ts'
import type { JobInput } from './job-input.ts'
import type { JobRecord } from './job-record.ts'
import type { ShownInput } from './job-retry.ts'
import type { JobResult } from './job-result.ts'

export interface JobListOptions {
  /** Of one page; 50 by default. */
  limit?: number
  /** `next` of the page before. */
  before?: number | null
  state?: JobState | null
  /** Name of a function. */
  fn?: string | null
}

export interface GatewayJobs {
  /**
   * Makes a job; it is on the disk when this resolves.
   * @param idempotencyKey - the same key and input give the same job, with `replayed`
   * @throws GatewayError BAD_REQUEST, NOT_FOUND, ROUTE_CONFLICT, METHOD_NOT_ALLOWED, BODY_TOO_LARGE, CONCURRENCY_LIMIT
   */
  create(input: JobInput, idempotencyKey?: string | null): Promise<{ record: JobRecord; replayed: boolean }>
  /** @throws GatewayError NOT_FOUND */
  get(id: string): Promise<JobRecord>
  /** Newest first. */
  list(options?: JobListOptions): Promise<{ jobs: JobRecord[]; next: number | null }>
  /** The fields that created a job; headers that look like secrets are `<hidden>`. @throws GatewayError NOT_FOUND */
  input(id: string): Promise<ShownInput>
  /**
   * Creates a job with the input of a finished one.
   * @param changes - fields that replace its own; a header `<hidden>` keeps its value
   * @throws GatewayError NOT_FOUND, ROUTE_CONFLICT when it has not finished, and as `create`
   */
  retry(id: string, changes?: Partial<JobInput>): Promise<JobRecord>
  /** Cancels a job that waits or runs, deletes one that is over. @throws GatewayError NOT_FOUND */
  cancel(id: string): Promise<{ record: JobRecord; deleted: boolean }>
  /** Its answer; `result.body` must be read to its end or returned from. @throws GatewayError NOT_FOUND */
  result(id: string): Promise<{ record: JobRecord; result: JobResult | null }>
  /** Jobs by state. */
  counts(): Readonly<Record<JobState, number>>
}
