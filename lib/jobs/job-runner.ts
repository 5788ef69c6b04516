/**
 * Runs jobs, the oldest first, a few at once, each under the admission of its function. Spec: page jobs/jobs.
 *
 *   add ─► queue ─(due, function has room, a place is free)─► begin is kept ─► attempt ─► its end is kept ─► again or over
 *
 * A step counts when it is kept. The beginning of an attempt is kept before the handler starts: a process that is killed
 * at any moment leaves a job that ran at most as often as is written.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { runAttempt } from './attempt.ts'
import type { AttemptOptions } from './attempt.ts'
import { isFinished, type Job } from './job.ts'
import { JobQueue } from './job-queue.ts'
import { afterAttempt, afterInterruption, begin } from './job-steps.ts'

/** Milliseconds until a step that could not be kept is tried again. */
export const STORE_RETRY_MS = 2000

export interface JobRunnerOptions extends AttemptOptions {
  clock: Clock
  /** Jobs that run at once. */
  maxConcurrency: number
  /** The function in force now. */
  functionOf: (key: string) => FunctionVersion | null
  /** Admission of functions. */
  admission: { canEnter(fn: FunctionVersion): boolean; onceRoom(fn: FunctionVersion, callback: () => void): void }
  /** Keeps a step, then tells it. Rejects when it cannot be kept. */
  keep: (job: Job) => Promise<void>
  /** A step could not be kept and will be tried again. */
  onProblem: (message: string) => void
}

/** A job that runs. */
interface Run {
  job: Job
  readonly stop: AbortController
  isCanceled: boolean
  ended: Promise<void>
}

export class JobRunner {
  readonly #options: JobRunnerOptions
  readonly #queue = new JobQueue()
  readonly #runs = new Map<string, Run>()
  /** Functions without room. */
  readonly #full = new Set<string>()
  #timer: NodeJS.Timeout | null = null
  #isClosed = false

  constructor(options: JobRunnerOptions) {
    this.#options = options
  }

  /** A queued job waits for its turn from now on. */
  add(job: Job): void {
    this.#enqueue(job)
    this.#pump()
  }

  /** Jobs that were queued before, in their order. */
  addAll(jobs: Iterable<Job>): void {
    for (const job of jobs) this.#enqueue(job)
    this.#pump()
  }

  /** Takes a job out of the queue. @returns false when it is not there */
  withdraw(id: string): boolean {
    return this.#queue.remove(id)
  }

  /** Stops the handler of a running job. @returns resolves when it is over; null when the job does not run */
  cancel(id: string): Promise<void> | null {
    const run = this.#runs.get(id)
    if (run === undefined) return null
    run.isCanceled = true
    run.stop.abort()
    return run.ended
  }

  /** Begins nothing more, lets what runs finish. @param timeoutMs - after that handlers are stopped */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosed = true
    this.#disarm()
    if (this.#runs.size === 0) return
    const { clock } = this.#options
    const stopAll = () => {
      for (const { stop } of this.#runs.values()) stop.abort()
    }
    if (timeoutMs <= 0) stopAll()
    const timer = clock.setTimeout(stopAll, timeoutMs)
    await Promise.all([...this.#runs.values()].map(({ ended }) => ended))
    clock.clearTimeout(timer)
  }

  #enqueue(job: Job): void {
    const { clock } = this.#options
    // Measured by the monotonic clock. The wall clock gives what is left, at most the whole delay: it may have been ahead when the
    // job was created.
    const left = Math.max(0, job.dueAt - clock.wall())
    const delay = job.dueAt - (job.attempts.at(-1)?.endedAt ?? job.createdAt)
    const due = clock.monotonic() + (delay < 0 ? left : Math.min(left, delay))
    this.#queue.add(job, due)
  }

  #pump(): void {
    const { clock, maxConcurrency } = this.#options
    this.#disarm()
    while (!this.#isClosed && this.#runs.size < maxConcurrency) {
      const job = this.#queue.take(clock.monotonic(), this.#mayRun)
      if (job === null) break
      this.#start(job)
    }
    if (!this.#isClosed && this.#runs.size < maxConcurrency) this.#arm()
  }

  readonly #mayRun = (key: string): boolean => {
    if (this.#full.has(key)) return false
    const { admission, functionOf } = this.#options
    const fn = functionOf(key)
    if (fn === null || admission.canEnter(fn)) return true
    this.#full.add(key)
    admission.onceRoom(fn, () => {
      this.#full.delete(key)
      this.#pump()
    })
    return false
  }

  #arm(): void {
    const { clock } = this.#options
    const now = clock.monotonic()
    const due = this.#queue.nextDue(now)
    if (due === null) return
    this.#timer = clock.setTimeout(() => this.#pump(), Math.max(1, Math.ceil(due - now)))
    this.#timer.unref?.()
  }

  #disarm(): void {
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    this.#timer = null
  }

  #start(job: Job): void {
    const run: Run = { job, stop: new AbortController(), isCanceled: false, ended: Promise.resolve() }
    this.#runs.set(job.id, run)
    run.ended = this.#run(run).finally(() => {
      this.#runs.delete(job.id)
      this.#pump()
    })
  }

  async #run(run: Run): Promise<void> {
    const { clock, keep, functionOf, onProblem } = this.#options
    const begun = begin(run.job, clock.wall())
    try {
      await keep(begun)
    } catch (error) {
      onProblem(`job ${run.job.id} cannot begin, it is tried again: ${(error as Error).message}`)
      if (!run.isCanceled) this.#enqueue({ ...run.job, dueAt: clock.wall() + STORE_RETRY_MS })
      return
    }
    run.job = begun
    const outcome = run.stop.signal.aborted
      ? null
      : await runAttempt(begun, functionOf(begun.key), run.stop.signal, this.#options)
    // Whoever canceled it keeps that step.
    if (run.isCanceled) return
    const now = clock.wall()
    const isStopped = outcome === null || (run.stop.signal.aborted && outcome.kind === 'failure')
    await this.#keepEnd(
      run,
      isStopped ? afterInterruption(begun, now, 'the gateway was stopped') : afterAttempt(begun, outcome, now),
    )
  }

  /** The end of an attempt is tried to be kept until it is: its place is taken meanwhile, so few can wait so. */
  async #keepEnd(run: Run, ended: Job): Promise<void> {
    const { keep, onProblem } = this.#options
    for (;;) {
      try {
        await keep(ended)
        if (!isFinished(ended)) this.#enqueue(ended)
        return
      } catch (error) {
        onProblem(`the end of job ${ended.id} cannot be kept: ${(error as Error).message}`)
        if (this.#isClosed || run.isCanceled) return
        await new Promise<void>(resolve => this.#options.clock.setTimeout(resolve, STORE_RETRY_MS))
      }
    }
  }
}
