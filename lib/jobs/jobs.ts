/**
 * Jobs run functions in the background. They are stored on disk until they are done. Spec: page jobs/jobs.
 *
 *   create ─► checked ─► kept ─► acknowledged ─► runner ─► kept ─► result, callback ─► 250 jobs or 24 h later gone
 */

import type { Clock } from '../core/clock.ts'
import { GatewayError, type Warning } from '../core/errors.ts'
import { KEPT_JOB_MS, KEPT_JOBS, MAX_OPEN_JOBS } from '../core/limits.ts'
import type { JobEventRecord } from '../observe/events.ts'
import type { CallbackSender } from './callback-sender.ts'
import {
  type CheckedInput,
  checkIdempotencyKey,
  checkJobInput,
  digestOf,
  draftJob,
  type DraftOptions,
  type JobInput,
  type ShownInput,
  toRetryInput,
  toShownInput,
} from './job-input.ts'
import { type JobResult, openResult } from './job-result.ts'
import { JobRunner, type JobRunnerOptions, STORE_RETRY_MS } from './job-runner.ts'
import {
  afterInterruption,
  cancel,
  isFinished,
  isJobId,
  type Job,
  type JobChange,
  type JobRecord,
  type JobRequest,
  type JobState,
  readBody,
  readRequest,
  toJobRecord,
} from './job.ts'

/** Jobs of one page, where nothing is said. */
const LIST_LIMIT = 50
/** Milliseconds between two looks for jobs whose time is over. */
const SWEEP_MS = KEPT_JOB_MS / 24
/** Milliseconds until a store that cannot be had is asked for again. */
const REOPEN_MS = 10_000

export interface JobsOptions extends Omit<JobRunnerOptions, 'keep' | 'onProblem'>, DraftOptions {
  clock: Clock
  /** False where `FN_JOBS_ENABLED` is off. */
  enabled: boolean
  callbacks: CallbackSender
  /** Jobs that may wait or run; MAX_OPEN_JOBS by default. */
  maxOpen?: number
  /** True when an earlier run may have left jobs; nothing is made on the disk before the first job is. */
  hasStored: () => boolean
  onEvent: (record: JobEventRecord) => void
  onLog: (level: 'warn' | 'error', message: string) => void
}

interface JobListOptions {
  /** Of one page; 50 by default. */
  limit?: number
  /** `next` of the previous page: only jobs older than that. */
  before?: number | null
  state?: JobState | null
  /** Name of a function. */
  fn?: string | null
}

/** Jobs as a program that embeds a gateway sees them. */
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

export class Jobs implements GatewayJobs {
  readonly #options: JobsOptions
  #table = new JobTable()
  readonly #runner: JobRunner
  /** Jobs that are being made, by idempotency key. */
  readonly #making = new Map<string, Promise<unknown>>()
  #opening: Promise<void> | null = null
  #isOpen = false
  /** True while the store can only be read. */
  #isReadOnly = false
  #isClosed = false
  #problem: string | null = null
  /** Warnings about files that could not be used when the store was opened. */
  #asides: readonly Warning[] = []
  #timer: NodeJS.Timeout | null = null

  constructor(options: JobsOptions) {
    this.#options = options
    this.#runner = new JobRunner({
      ...options,
      keep: job => this.#keep(job),
      onProblem: message => options.onLog('warn', message),
    })
  }

  counts(): Readonly<Record<JobState, number>> {
    return this.#table.counts()
  }

  /** Why jobs cannot be kept, as a warning of the gateway. */
  get warnings(): Warning[] {
    if (this.#problem === null) return [...this.#asides]
    const hint = 'Make .svc of the functions root writable, or stop the other gateway; it is tried again by itself.'
    return [
      ...this.#asides,
      { code: 'JOBS_NOT_KEPT', path: '.svc/jobs', message: `jobs do not run: ${this.#problem}`, hint },
    ]
  }

  /** Reads what earlier runs left and goes on with it. Never rejects: what keeps it from that is a warning, and tried again. */
  async start(): Promise<void> {
    const { enabled, hasStored } = this.#options
    if (enabled && (hasStored() || this.#problem !== null)) await this.#open().catch(() => {})
  }

  async create(input: JobInput | unknown, idempotencyKey: string | null = null): ReturnType<GatewayJobs['create']> {
    const key = checkIdempotencyKey(idempotencyKey)
    const checked = checkJobInput(input)
    await this.#ready(true)
    if (key === null) return { record: await this.#make(checked, null), replayed: false }
    // Two that ask at once: the second one looks when the first one's job is kept.
    while (this.#making.has(key)) await this.#making.get(key)
    const digest = digestOf(checked)
    const known = this.#table.withKey(key)
    if (known !== null) return this.#replay(known, digest)
    const making = this.#make(checked, { key, digest })
    this.#making.set(
      key,
      making.catch(() => {}),
    )
    try {
      return { record: await making, replayed: false }
    } finally {
      this.#making.delete(key)
    }
  }

  async get(id: string): Promise<JobRecord> {
    await this.#ready()
    return this.#toRecord(this.#find(id))
  }

  async list({
    limit = LIST_LIMIT,
    before = null,
    state = null,
    fn = null,
  }: JobListOptions = {}): ReturnType<GatewayJobs['list']> {
    await this.#ready()
    const { jobs, more } = this.#table.list({ limit, before, state, fn })
    const records = await Promise.all(jobs.map(job => this.#toRecord(job).catch(() => null)))
    // One that went away while the page was read.
    return { jobs: records.filter(record => record !== null), next: more ? jobs.at(-1)!.seq : null }
  }

  async input(id: string): Promise<ShownInput> {
    await this.#ready()
    const { job, request, body } = await this.#readInput(id)
    return toShownInput(job, request, body)
  }

  async retry(id: string, changes: unknown = {}): Promise<JobRecord> {
    await this.#ready(true)
    const { job, request, body } = await this.#readInput(id)
    if (!isFinished(job))
      throw new GatewayError('ROUTE_CONFLICT', `job ${id} is ${job.state}: only finished jobs run again`)
    return this.#make(checkJobInput(toRetryInput(job, request, body, changes)), null)
  }

  async #readInput(id: string): Promise<{ job: Job; request: JobRequest; body: Buffer | null }> {
    const { store } = this.#options
    const job = this.#find(id)
    const request = await readRequest(job, store)
    return { job, request, body: await readBody(job, request, store) }
  }

  async cancel(id: string): Promise<{ record: JobRecord; deleted: boolean }> {
    await this.#ready(true)
    if (isFinished(this.#find(id))) return this.#delete(this.#find(id))
    await this.#runner.cancel(id)
    const job = this.#find(id)
    // It ended before it could be stopped: its result is kept.
    if (isFinished(job)) return { record: await this.#toRecord(job), deleted: false }
    this.#runner.withdraw(id)
    const canceled = cancel(job, this.#options.clock.wall())
    try {
      await this.#keep(canceled)
    } catch (error) {
      if (job.state === 'queued') this.#runner.add(job)
      else void this.#keepLater(canceled)
      throw notKept(error)
    }
    return { record: await this.#toRecord(canceled), deleted: false }
  }

  async result(id: string): Promise<{ record: JobRecord; result: JobResult | null }> {
    await this.#ready()
    const job = this.#find(id)
    return {
      record: await this.#toRecord(job),
      result: isFinished(job) ? await openResult(job, this.#options.store) : null,
    }
  }

  /** Begins nothing more, lets what runs finish within the time, keeps what is left. */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosed = true
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    await this.#opening?.catch(() => {})
    await this.#runner.close(timeoutMs)
    await this.#options.callbacks.close()
    if (this.#isOpen || this.#isReadOnly) await this.#options.store.close()
    this.#isOpen = false
  }

  async #ready(writes = false): Promise<void> {
    const { enabled, hasStored } = this.#options
    if (!enabled) throw new GatewayError('NOT_FOUND', 'jobs disabled')
    if (this.#isClosed) throw new GatewayError('SHUTTING_DOWN', 'gateway is shutting down')
    if (this.#isOpen || (!writes && (this.#isReadOnly || !hasStored()))) return
    try {
      await this.#open()
    } catch (error) {
      if (writes || !this.#isReadOnly) throw notKept(error)
    }
  }

  #open(): Promise<void> {
    this.#opening ??= this.#load().finally(() => {
      this.#opening = null
    })
    return this.#opening
  }

  async #load(): Promise<void> {
    if (this.#isOpen || this.#isClosed) return
    const { store, clock, onLog } = this.#options
    try {
      const { jobs, warnings } = await store.open()
      this.#asides = warnings
      for (const { message } of warnings) onLog('warn', message)
      this.#table = new JobTable()
      await this.#recover(jobs)
    } catch (error) {
      await store.close().catch(() => {})
      await this.#peek(error)
      this.#report((error as Error).message)
      // The other gateway may end; the disk may be repaired.
      if (this.#timer !== null) clock.clearTimeout(this.#timer)
      this.#timer = clock.setTimeout(() => void this.start(), REOPEN_MS)
      this.#timer.unref?.()
      throw error
    }
    this.#isOpen = true
    this.#isReadOnly = false
    this.#problem = null
    this.#sweepLater()
  }

  /** On a full or read-only disk the jobs of earlier runs are shown. */
  async #peek(error: unknown): Promise<void> {
    this.#table = new JobTable()
    this.#isReadOnly = false
    if (!isOfStorage(error)) return
    const jobs = await this.#options.store.peek().catch(() => null)
    for (const job of jobs ?? []) this.#table.put(job)
    this.#isReadOnly = jobs !== null
  }

  #report(problem: string): void {
    if (this.#problem !== problem) this.#options.onLog('warn', `jobs do not run: ${problem}`)
    this.#problem = problem
  }

  /** Jobs that ran when the process ended run again, where another attempt is left, or have failed. */
  async #recover(jobs: readonly Job[]): Promise<void> {
    const { clock, store } = this.#options
    const now = clock.wall()
    const steps = jobs.map(job => (job.state === 'running' ? afterInterruption(job, now, 'the gateway ended') : job))
    for (const job of steps) this.#table.put(job)
    const changed = steps.filter((job, index) => job !== jobs[index])
    if (changed.length > 0) await store.save(changed.map(job => ({ job })))
    await this.#dropOutdated()
    for (const job of changed) this.#emit(job)
    this.#runner.addAll(steps.filter(job => job.state === 'queued'))
    for (const job of steps) if (isFinished(job)) this.#callBack(job)
  }

  async #make(input: CheckedInput, idempotency: Job['idempotency']): Promise<JobRecord> {
    const { clock, store, maxOpen = MAX_OPEN_JOBS } = this.#options
    if (this.#table.open >= maxOpen)
      throw new GatewayError('CONCURRENCY_LIMIT', `${maxOpen} jobs wait already`, {
        headers: { 'Retry-After': '10' },
      })
    const { job, request } = draftJob(input, this.#options, clock.wall(), () => this.#table.nextSeq(), idempotency)
    try {
      if (request.hasBodyPart) {
        const part = await store.write(job.id, 'body')
        await part.write(input.body!)
        await part.end()
      }
      await store.save([{ job, request }])
    } catch (error) {
      throw notKept(error)
    }
    this.#table.put(job)
    this.#emit(job)
    this.#runner.add(job)
    return toJobRecord(job, request)
  }

  async #replay(job: Job, digest: string): ReturnType<GatewayJobs['create']> {
    if (job.idempotency?.digest !== digest)
      throw new GatewayError('ROUTE_CONFLICT', 'this Idempotency-Key was used for another request')
    return { record: await this.#toRecord(job), replayed: true }
  }

  #find(id: string): Job {
    const job = isJobId(id) ? this.#table.get(id) : null
    if (job === null) throw new GatewayError('NOT_FOUND', 'job not found')
    return job
  }

  async #toRecord(job: Job): Promise<JobRecord> {
    return toJobRecord(job, await readRequest(job, this.#options.store))
  }

  async #delete(job: Job): Promise<{ record: JobRecord; deleted: boolean }> {
    const record = await this.#toRecord(job)
    this.#options.callbacks.cancel(job.id)
    try {
      await this.#options.store.save([{ gone: job.id }])
    } catch (error) {
      throw notKept(error)
    }
    this.#table.remove(job.id)
    return { record, deleted: true }
  }

  /** A step of a job is kept first, then reported. */
  async #keep(job: Job): Promise<void> {
    await this.#options.store.save([{ job }])
    this.#table.put(job)
    this.#emit(job)
    if (!isFinished(job)) return
    this.#callBack(job)
    await this.#dropOutdated().catch(() => {})
  }

  #emit({ id, key, state, attempt, resultStatus, lastError }: Job): void {
    const time = this.#options.clock.wall()
    this.#options.onEvent({ time, id, key, state, attempt, status: resultStatus, error: lastError })
  }

  /** A handler was stopped, and that could not be kept: it is tried until it can, so that nothing is stuck. */
  async #keepLater(job: Job): Promise<void> {
    const { clock } = this.#options
    while (!this.#isClosed) {
      await new Promise<void>(resolve => clock.setTimeout(resolve, STORE_RETRY_MS).unref?.())
      const isKept = await this.#keep(job).then(
        () => true,
        () => false,
      )
      if (isKept) return
    }
  }

  /** Sends the callback of a finished job. */
  #callBack(job: Job): void {
    if (job.callback?.state !== 'pending') return
    this.#options.callbacks.send(job, async callback => {
      const now = this.#table.get(job.id)
      if (now === null) return
      const next = { ...now, callback }
      this.#table.put(next)
      await this.#options.store.save([{ job: next }])
      if (callback.state !== 'pending') await this.#dropOutdated()
    })
  }

  async #dropOutdated(): Promise<void> {
    const outdated = this.#table.outdated(this.#options.clock.wall())
    if (outdated.length === 0) return
    for (const { id } of outdated) this.#table.remove(id)
    const changes: JobChange[] = outdated.map(({ id }) => ({ gone: id }))
    await this.#options.store.save(changes)
  }

  #sweepLater(): void {
    if (this.#isClosed) return
    const { clock } = this.#options
    this.#timer = clock.setTimeout(() => {
      this.#dropOutdated().catch(error => this.#options.onLog('warn', `old jobs cannot be deleted: ${String(error)}`))
      this.#sweepLater()
    }, SWEEP_MS)
    this.#timer.unref?.()
  }
}

function isOfStorage(error: unknown): boolean {
  return ['ENOSPC', 'EDQUOT', 'EROFS'].includes((error as NodeJS.ErrnoException).code ?? '')
}

function notKept(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error
  const seconds = String(Math.ceil(STORE_RETRY_MS / 1000))
  const message = `jobs cannot be kept: ${(error as Error).message}`
  return new GatewayError('RUNTIME_DOWN', message, { headers: { 'Retry-After': seconds }, cause: error })
}

export type JobFilter = Required<JobListOptions>

/** The index of jobs in memory: by id, by state, by idempotency key, and the finished ones by their age. */
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

  /** Finished jobs beyond those that are kept, oldest first; one with a pending callback stays. */
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
