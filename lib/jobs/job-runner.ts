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
import type { GatewayError } from '../core/errors.ts'
import { Heap, type HeapItem } from '../core/collections.ts'
import type { InternalRequest, InternalResult } from '../invocation/internal-call.ts'
import { ResultWriter } from './job-result.ts'
import {
  afterAttempt,
  afterInterruption,
  type AttemptOutcome,
  begin,
  isFinished,
  type Job,
  type JobRequest,
  type JobStore,
  readBody,
  readRequest,
} from './job.ts'

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
  /** Keeps a step, then reports it. Rejects when it cannot be kept. */
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
    // `Jobs.cancel` keeps that step.
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

interface AttemptOptions {
  store: JobStore
  /** Calls a function through its own admission. Never rejects. */
  call: (request: InternalRequest) => Promise<InternalResult>
  /** Bytes of a result that are kept. */
  maxResultBytes: number
}

/** The handler did not begin: it may be asked again without that being another attempt. */
const UNBEGUN: ReadonlySet<string> = new Set(['CONCURRENCY_LIMIT', 'POOL_OVERFLOW', 'BUILD_PENDING'])
/** Another attempt would be refused in the same way. */
const FINAL: ReadonlySet<string> = new Set(['METHOD_NOT_ALLOWED', 'BODY_TOO_LARGE', 'BAD_REQUEST'])

/**
 * One attempt: reads the request, calls the function and stores the result. Never rejects.
 * @param fn - null when it was removed
 * @param signal - stops the handler
 */
export async function runAttempt(
  job: Job,
  fn: FunctionVersion | null,
  signal: AbortSignal,
  options: AttemptOptions,
): Promise<AttemptOutcome> {
  if (fn === null) return toFailure(404, `unknown function or version: ${job.key}`)
  // The writer stops the call when it is full, the owner when the job is canceled or the gateway stops.
  const stop = new AbortController()
  const writer = new ResultWriter({
    open: () => options.store.write(job.id, 'result'),
    maxBytes: options.maxResultBytes,
    onFull: () => stop.abort(),
  })
  try {
    const request = await readRequest(job, options.store)
    const body = await readBody(job, request, options.store)
    const result = await options.call({
      ...toInternal(job, request, fn, body),
      // Found again from the logs, and the logs from the job.
      id: `${job.id}.${job.attempt}`,
      signal: AbortSignal.any([signal, stop.signal]),
      mustEnd: true,
      sink: writer,
    })
    return await toOutcome(result, writer)
  } catch (error) {
    await writer.discard()
    return toFailure(0, `the job could not be read: ${(error as Error).message}`)
  }
}

async function toOutcome(result: InternalResult, writer: ResultWriter): Promise<AttemptOutcome> {
  const { error, latencyMs } = result
  if (error !== null && !writer.truncated) {
    await writer.discard()
    return { kind: kindOf(error), status: error.status, error: error.message, result: null }
  }
  const kept = await writer.end()
  const { bytes, truncated } = writer
  return {
    kind: 'answer',
    status: writer.status ?? result.status,
    error: writer.problem === null ? null : `its result could not be kept: ${writer.problem}`,
    result: kept && { bytes, truncated, isText: kept.isText, latencyMs: Math.round(latencyMs * 1000) / 1000 },
  }
}

function kindOf({ code }: GatewayError): AttemptOutcome['kind'] {
  if (UNBEGUN.has(code)) return 'unbegun'
  return FINAL.has(code) ? 'final' : 'failure'
}

function toFailure(status: number, error: string): AttemptOutcome {
  return { kind: 'failure', status, error, result: null }
}

function toInternal(
  job: Job,
  request: JobRequest,
  fn: FunctionVersion,
  body: Buffer | null,
): Omit<InternalRequest, 'id' | 'signal' | 'sink'> {
  const { method, path, rawPath, params, query, headers, context } = request
  return {
    fn,
    method,
    path,
    rawPath,
    params,
    query,
    headers: { 'user-agent': 'fngw-jobs', ...headers },
    body,
    user: context,
    trigger: { type: 'job', id: job.id, attempt: job.attempt, max_attempts: job.retry.maxAttempts },
  }
}

/** A queued job, and when it may run, monotonic ms. */
interface QueuedJob extends HeapItem {
  readonly job: Job
  readonly due: number
}

/** The queued jobs of each function by (due, seq). Of the functions with a due job, the oldest of these jobs is next. */
export class JobQueue {
  readonly #lanes = new Map<string, Heap<QueuedJob>>()
  readonly #queued = new Map<string, QueuedJob>()

  get size(): number {
    return this.#queued.size
  }

  add(job: Job, due: number): void {
    const queued = { job, due, heapIndex: -1 }
    this.#queued.set(job.id, queued)
    const lane =
      this.#lanes.get(job.key) ?? new Heap((a, b) => a.due < b.due || (a.due === b.due && a.job.seq < b.job.seq))
    this.#lanes.set(job.key, lane)
    lane.put(queued)
  }

  /** @returns false when it is not queued */
  remove(id: string): boolean {
    const queued = this.#queued.get(id)
    if (queued === undefined) return false
    this.#queued.delete(id)
    const { key } = queued.job
    const lane = this.#lanes.get(key)!
    lane.remove(queued)
    if (lane.size === 0) this.#lanes.delete(key)
    return true
  }

  /**
   * Takes out the job to run now.
   * @param mayRun - false for a function without a free slot: only its own jobs wait for that
   */
  take(now: number, mayRun: (key: string) => boolean): Job | null {
    let best: Job | null = null
    for (const [key, lane] of this.#lanes) {
      const { job, due } = lane.first!
      if (due > now || (best !== null && best.seq < job.seq)) continue
      if (mayRun(key)) best = job
    }
    if (best !== null) this.remove(best.id)
    return best
  }

  /** When the next job is due that is not due yet, monotonic ms; null when there is none. */
  nextDue(now: number): number | null {
    let next: number | null = null
    for (const lane of this.#lanes.values()) {
      const { due } = lane.first!
      if (due > now && (next === null || due < next)) next = due
    }
    return next
  }
}
