/**
 * Runs jobs, the oldest first, a few at once, each under the admission of its function. Spec: page jobs/jobs.
 *
 *   add ─► queue ─(due, function has room, a place is free)─► begin is kept ─► attempt ─► its end is kept ─► again or over
 *
 * A step counts when it is kept. The beginning of an attempt is kept before the handler starts: a process that is killed
 * at any moment leaves a job that ran at most as often as is written.
 */

import { isAscii } from 'node:buffer'
import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, Timer, within } from '../core/clock.ts'
import { getOrMake, Heap, type HeapItem } from '../core/collections.ts'
import type { BodySink, InternalRequest, InternalResult } from '../invocation/internal-call.ts'
import type { ResultHead } from './job-result.ts'
import {
  afterAttempt,
  afterInterruption,
  type AttemptOutcome,
  begin,
  isFinished,
  type Job,
  type JobParts,
  type JobRequest,
  type PartWriter,
  readBody,
  readRequest,
} from './job.ts'

/** Milliseconds until a step that could not be kept is tried again. */
export const STORE_RETRY_MS = 2000

export interface JobRunnerOptions extends Omit<AttemptOptions, 'request'> {
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
  readonly #timer: Timer
  #isClosed = false

  constructor(options: JobRunnerOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock, true)
  }

  /** Queued jobs, in their order, wait for their turn from now on. */
  add(jobs: Iterable<Job>): void {
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
    this.#timer.clear()
    const ended = Promise.all([...this.#runs.values()].map(run => run.ended))
    if (timeoutMs <= 0 || (await within(this.#options.clock, timeoutMs, ended)) === null)
      for (const { stop } of this.#runs.values()) stop.abort()
    await ended
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
    this.#timer.clear()
    const hasRoom = (): boolean => !this.#isClosed && this.#runs.size < maxConcurrency
    // Read once: a job that became due between two readings would be neither taken nor waited for.
    const now = clock.monotonic()
    while (hasRoom()) {
      const job = this.#queue.take(now, this.#mayRun)
      if (job === null) break
      this.#start(job)
    }
    const due = hasRoom() ? this.#queue.nextDue(now) : null
    if (due !== null) this.#timer.set(Math.max(1, Math.ceil(due - now)), () => this.#pump())
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
    const { signal } = run.stop
    const begun = begin(run.job, clock.wall())
    try {
      await keep(begun)
    } catch (error) {
      onProblem(`job ${run.job.id} cannot begin, it is tried again: ${(error as Error).message}`)
      if (!run.isCanceled) this.#enqueue({ ...run.job, dueAt: clock.wall() + STORE_RETRY_MS })
      return
    }
    run.job = begun
    const outcome = signal.aborted ? null : await runAttempt(begun, functionOf(begun.key), run.stop, this.#options)
    // `Jobs.cancel` keeps that step.
    if (run.isCanceled) return
    const now = clock.wall()
    const isStopped = outcome === null || (signal.aborted && outcome.kind === 'failure')
    const ended = isStopped
      ? afterInterruption(begun, now, 'the gateway was stopped')
      : afterAttempt(begun, outcome, now)
    const isKept = await this.keepEnd(ended, () => run.isCanceled)
    if (isKept && !isFinished(ended)) this.#enqueue(ended)
  }

  /**
   * Keeps the end of an attempt, however often the store refuses it. The attempt's slot is taken meanwhile, so few can wait so.
   * @returns false when the runner was closed, or another end counts
   */
  async keepEnd(ended: Job, isOver: () => boolean = () => false): Promise<boolean> {
    const { keep, onProblem, clock } = this.#options
    for (;;) {
      try {
        await keep(ended)
        return true
      } catch (error) {
        onProblem(`the end of job ${ended.id} cannot be kept: ${(error as Error).message}`)
        if (this.#isClosed || isOver()) return false
        await new Promise<void>(resolve => clock.setTimeout(resolve, STORE_RETRY_MS))
      }
    }
  }
}

interface AttemptOptions {
  store: JobParts
  /** Read already; otherwise the store is asked for it. */
  request?: JobRequest
  /** Calls a function through its own admission. Never rejects. */
  call: (request: InternalRequest) => Promise<InternalResult>
  /** Bytes of a result that are kept. */
  maxResultBytes: number
}

/** By refusal: the handler did not begin, and asking again is no further attempt; or a further attempt would be refused as well. */
const KINDS: Readonly<Record<string, AttemptOutcome['kind']>> = {
  ...{ CONCURRENCY_LIMIT: 'unbegun', POOL_OVERFLOW: 'unbegun', BUILD_PENDING: 'unbegun' },
  ...{ METHOD_NOT_ALLOWED: 'final', BODY_TOO_LARGE: 'final', BAD_REQUEST: 'final' },
}

/**
 * One attempt: reads the request, calls the function and stores the result. Never rejects.
 * @param fn - null when it was removed
 * @param stop - stops the handler
 */
export async function runAttempt(
  job: Job,
  fn: FunctionVersion | null,
  stop: AbortController,
  { store, request: known, call, maxResultBytes }: AttemptOptions,
): Promise<AttemptOutcome> {
  const toFailure = (status: number, error: string): AttemptOutcome => ({
    kind: 'failure',
    status,
    error,
    result: null,
  })
  if (fn === null) return toFailure(404, `unknown function or version: ${job.key}`)
  const writer = new ResultWriter({
    open: () => store.write(job.id, 'result'),
    maxBytes: maxResultBytes,
    onFull: () => stop.abort(),
  })
  try {
    const request = known ?? (await readRequest(job, store))
    const { method, path, rawPath, params, query, headers, context } = request
    const result = await call({
      ...{ fn, method, path, rawPath, params, query },
      headers: { 'user-agent': 'fngw-jobs', ...headers },
      body: await readBody(job, request, store),
      user: context,
      trigger: { type: 'job', id: job.id, attempt: job.attempt, max_attempts: job.retry.maxAttempts },
      // Found again from the logs, and the logs from the job.
      id: `${job.id}.${job.attempt}`,
      signal: stop.signal,
      mustEnd: true,
      sink: writer,
    })
    return await toOutcome(result, writer)
  } catch (error) {
    await writer.discard()
    return toFailure(0, `the job could not be read: ${(error as Error).message}`)
  }
}

async function toOutcome({ error, status, latencyMs }: InternalResult, writer: ResultWriter): Promise<AttemptOutcome> {
  if (error !== null && !writer.truncated) {
    await writer.discard()
    return { kind: KINDS[error.code] ?? 'failure', status: error.status, error: error.message, result: null }
  }
  const kept = await writer.end()
  const { bytes, truncated, problem } = writer
  return {
    kind: 'answer',
    status: writer.status ?? status,
    error: problem === null ? null : `its result could not be kept: ${problem}`,
    result: kept && { bytes, truncated, isText: kept.isText, latencyMs: Math.round(latencyMs * 1000) / 1000 },
  }
}

interface ResultWriterOptions {
  open: () => Promise<PartWriter>
  /** Bytes of the body that are kept; 0 keeps all. */
  maxBytes: number
  /** Called when the limit is reached: the handler can be stopped. */
  onFull: () => void
}

/**
 * Writes the response of a job into the store: a line of JSON with status and headers, then the bytes of the body. Memory holds one
 * piece at a time.
 */
export class ResultWriter implements BodySink {
  readonly #options: ResultWriterOptions
  readonly #text = new TextCheck()
  #part: PartWriter | null = null
  #head: ResultHead | null = null
  bytes = 0
  truncated = false
  /** Why the result cannot be kept, such as a full disk; null while it can. The handler goes on all the same. */
  problem: string | null = null

  constructor(options: ResultWriterOptions) {
    this.#options = options
  }

  /** null while no answer has begun. */
  get status(): number | null {
    return this.#head?.status ?? null
  }

  begin(status: number, headers: readonly string[]): void {
    this.#head = { status, headers }
  }

  async write(piece: Buffer): Promise<void> {
    if (this.truncated || this.problem !== null) return
    const { maxBytes } = this.#options
    const room = maxBytes === 0 ? piece.length : Math.min(piece.length, maxBytes - this.bytes)
    const kept = piece.subarray(0, room)
    this.#text.add(kept)
    if (!(await this.#tryTo(part => part.write(kept)))) return
    this.bytes += room
    if (room === piece.length) return
    this.truncated = true
    this.#options.onFull()
  }

  /** Keeps what was written. @returns whether the body is text; null when there was no answer, or it cannot be kept */
  async end(): Promise<{ isText: boolean } | null> {
    if (this.#head === null) {
      await this.#part?.discard()
      return null
    }
    if (this.problem !== null || !(await this.#tryTo(part => part.end()))) return null
    // A cut may go through a character.
    if (!this.truncated) this.#text.add()
    return { isText: this.#text.isText }
  }

  async discard(): Promise<void> {
    await this.#part?.discard()
    this.#part = null
  }

  async #tryTo(work: (part: PartWriter) => Promise<void>): Promise<boolean> {
    try {
      await work(await this.#open())
      return true
    } catch (error) {
      this.problem = (error as Error).message
      await this.discard()
      return false
    }
  }

  async #open(): Promise<PartWriter> {
    if (this.#part === null) {
      this.#part = await this.#options.open()
      await this.#part.write(Buffer.from(`${JSON.stringify(this.#head)}\n`))
    }
    return this.#part
  }
}

/** Whether bytes that come in pieces are UTF-8, cuts inside characters included. */
export class TextCheck {
  /** From the first piece on that is not ASCII: most results need none. */
  #decoder: InstanceType<typeof TextDecoder> | null = null
  isText = true

  /** @param piece - none: the last character has to be whole */
  add(piece?: Buffer): void {
    if (this.#decoder === null && (piece === undefined || isAscii(piece))) return
    this.#decoder ??= new TextDecoder('utf-8', { fatal: true })
    try {
      if (this.isText) this.#decoder.decode(piece, { stream: piece !== undefined })
    } catch {
      this.isText = false
    }
  }
}

/** A queued job, and when it may run, monotonic ms. */
interface QueuedJob extends HeapItem {
  readonly job: Job
  readonly due: number
}

function isBefore(a: QueuedJob, b: QueuedJob): boolean {
  return a.due < b.due || (a.due === b.due && a.job.seq < b.job.seq)
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
    getOrMake(this.#lanes, job.key, () => new Heap(isBefore)).put(queued)
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
