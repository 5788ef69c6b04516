/** The index of jobs in memory: by id, by state, by idempotency key, and those whose time is over. Owner: page jobs/jobs. */

import { KEPT_JOB_MS, KEPT_JOBS } from '../core/limits.ts'
import { isFinished, type Job, type JobState } from './job.ts'

export interface JobFilter {
  state: JobState | null
  /** Function name. */
  fn: string | null
  /** Only jobs older than the one with this number. */
  before: number | null
  limit: number
}

export class JobTable {
  readonly #jobs = new Map<string, Job>()
  /** Finished ones in the order in which they ended. */
  readonly #finished = new Map<string, Job>()
  readonly #byKey = new Map<string, string>()
  readonly #counts: Record<JobState, number> = { queued: 0, running: 0, done: 0, failed: 0, canceled: 0 }
  #seq = 0

  /** Number of the next job. */
  nextSeq(): number {
    this.#seq += 1
    return this.#seq
  }

  get(id: string): Job | null {
    return this.#jobs.get(id) ?? null
  }

  /** The job that was made with an idempotency key. */
  withKey(key: string): Job | null {
    const id = this.#byKey.get(key)
    return id === undefined ? null : this.get(id)
  }

  /** Jobs by state. */
  counts(): Readonly<Record<JobState, number>> {
    return { ...this.#counts }
  }

  /** Jobs that wait or run. */
  get open(): number {
    return this.#counts.queued + this.#counts.running
  }

  /** Adds a job, or puts its next step in the place of the last one. */
  put(job: Job): void {
    const before = this.#jobs.get(job.id)
    if (before !== undefined) this.#counts[before.state] -= 1
    this.#counts[job.state] += 1
    this.#jobs.set(job.id, job)
    if (job.idempotency !== null) this.#byKey.set(job.idempotency.key, job.id)
    if (isFinished(job)) this.#finished.set(job.id, job)
    this.#seq = Math.max(this.#seq, job.seq)
  }

  remove(id: string): void {
    const job = this.#jobs.get(id)
    if (job === undefined) return
    this.#counts[job.state] -= 1
    this.#jobs.delete(id)
    this.#finished.delete(id)
    if (job.idempotency !== null) this.#byKey.delete(job.idempotency.key)
  }

  /** Finished jobs beyond those that are kept, oldest first; one whose end is still to be told to somebody stays. */
  outdated(now: number): Job[] {
    let surplus = this.#finished.size - KEPT_JOBS
    const found: Job[] = []
    for (const job of this.#finished.values()) {
      if (surplus <= 0 && now - (job.finishedAt ?? 0) < KEPT_JOB_MS) break
      if (job.callback?.state === 'pending') continue
      surplus -= 1
      found.push(job)
    }
    return found
  }

  /** Newest first, and whether there are more. */
  list({ state, fn, before, limit }: JobFilter): { jobs: Job[]; more: boolean } {
    const found: Job[] = []
    for (const job of [...this.#jobs.values()].reverse()) {
      if (before !== null && job.seq >= before) continue
      if ((state !== null && job.state !== state) || (fn !== null && nameOf(job) !== fn)) continue
      if (found.length === limit) return { jobs: found, more: true }
      found.push(job)
    }
    return { jobs: found, more: false }
  }

  /** Jobs in the order of their creation. */
  all(): Iterable<Job> {
    return this.#jobs.values()
  }
}

/** The name in `runtime/name@version`; neither a runtime nor a version has a slash, and a name no `@`. */
function nameOf({ key }: Job): string {
  return key.slice(key.indexOf('/') + 1, key.lastIndexOf('@'))
}
