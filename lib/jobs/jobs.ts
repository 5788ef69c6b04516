/**
 * Jobs run functions in the background. They are stored on disk until they are done. Spec: page jobs/jobs.
 *
 *   create ─► checked ─► kept ─► acknowledged ─► runner ─► kept ─► result, callback ─► 250 jobs or 24 h later gone
 */

import { type Clock, Timer } from '../core/clock.ts'
import { GatewayError, type Warning } from '../core/errors.ts'
import { KEPT_JOB_MS, KEPT_JOBS, MAX_OPEN_JOBS } from '../core/limits.ts'
import { KeyedMutex } from '../core/semaphore.ts'
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
  type JobRecord,
  type JobRequest,
  type JobState,
  type JobStore,
  readBody,
  readRequest,
  toJobRecord,
} from './job.ts'

/** Jobs of one page by default. */
const LIST_LIMIT = 50
/** Milliseconds between two searches for outdated jobs. */
const SWEEP_MS = KEPT_JOB_MS / 24
/** Milliseconds until a store that could not be opened is opened again. */
const REOPEN_MS = 10_000

export interface JobsOptions extends Omit<JobRunnerOptions, 'keep' | 'onProblem' | 'store'>, DraftOptions {
  clock: Clock
  store: JobStore
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

export interface JobListOptions {
  /** Of one page; 50 by default. */
  limit?: number
  /** `next` of the previous page: only jobs older than that. */
  before?: number | null
  state?: JobState | null
  /** Name of a function. */
  fn?: string | null
}

/** Background jobs of a gateway. Methods throw a `GatewayError`, also while jobs cannot be stored. */
export type GatewayJobs = Pick<Jobs, 'create' | 'get' | 'list' | 'input' | 'retry' | 'cancel' | 'result' | 'counts'>

/** Jobs as a gateway holds them, wherever they are kept. */
export interface JobsPart extends GatewayJobs {
  /** About what could not be used or kept. */
  readonly warnings: readonly Warning[]
  /** Begins to run jobs. Never rejects. */
  start(): Promise<void>
  /** Begins nothing more, lets what runs finish within the time. */
  close(timeoutMs: number): Promise<void>
}

export class Jobs implements JobsPart {
  readonly #options: JobsOptions
  #table = new JobTable()
  readonly #runner: JobRunner
  /** By idempotency key. */
  readonly #creating = new KeyedMutex()
  #opening: Promise<void> | null = null
  /** `readable`: the store can only be read, on a full or read-only disk. */
  #store: 'closed' | 'readable' | 'open' = 'closed'
  #isClosed = false
  #problem: string | null = null
  /** About files that could not be used when the store was opened, and why jobs cannot be kept. */
  warnings: readonly Warning[] = []
  #asides: readonly Warning[] = []
  /** For the next attempt to open the store, and for the next sweep. */
  readonly #timer: Timer

  constructor(options: JobsOptions) {
    this.#options = options
    this.#timer = new Timer(options.clock, true)
    this.#runner = new JobRunner({
      ...options,
      keep: job => this.#keep(job),
      onProblem: message => options.onLog('warn', message),
    })
  }

  /** Jobs by state. */
  counts(): Readonly<Record<JobState, number>> {
    return this.#table.counts()
  }

  /** Reads what earlier runs left and goes on with it. Never rejects: what keeps it from that is a warning, and tried again. */
  async start(): Promise<void> {
    const { enabled, hasStored } = this.#options
    if (enabled && (hasStored() || this.#problem !== null)) await this.#open().catch(() => {})
  }

  /**
   * Creates a job; it is on the disk when this resolves.
   * @param idempotencyKey - the same key and input give the same job, with `replayed`
   * @throws GatewayError BAD_REQUEST, NOT_FOUND, ROUTE_CONFLICT, METHOD_NOT_ALLOWED, BODY_TOO_LARGE, CONCURRENCY_LIMIT
   */
  async create(
    input: JobInput,
    idempotencyKey: string | null = null,
  ): Promise<{ record: JobRecord; replayed: boolean }> {
    const key = checkIdempotencyKey(idempotencyKey)
    const checked = checkJobInput(input)
    await this.#ready(true)
    if (key === null) return { record: await this.#create(checked, null), replayed: false }
    // Of two that ask at once the second one waits until the first one's job is kept.
    return this.#creating.run(key, async () => {
      const digest = digestOf(checked)
      const known = this.#table.withKey(key)
      if (known === null) return { record: await this.#create(checked, { key, digest }), replayed: false }
      if (known.idempotency?.digest === digest) return { record: await this.#toRecord(known), replayed: true }
      throw new GatewayError('ROUTE_CONFLICT', 'this Idempotency-Key was used for another request')
    })
  }

  /** @throws GatewayError NOT_FOUND */
  async get(id: string): Promise<JobRecord> {
    await this.#ready()
    return this.#toRecord(this.#find(id))
  }

  /** Newest first. */
  async list({ limit = LIST_LIMIT, before = null, state = null, fn = null }: JobListOptions = {}): Promise<{
    jobs: JobRecord[]
    next: number | null
  }> {
    await this.#ready()
    const { jobs, more } = this.#table.list({ limit, before, state, fn })
    const records = await Promise.all(jobs.map(job => this.#toRecord(job).catch(() => null)))
    // One may have been removed while the page was read.
    return { jobs: records.filter(record => record !== null), next: more ? jobs.at(-1)!.seq : null }
  }

  /** The fields that created a job; headers that look like secrets are `<hidden>`. @throws GatewayError NOT_FOUND */
  async input(id: string): Promise<ShownInput> {
    await this.#ready()
    const { job, request, body } = await this.#readInput(id)
    return toShownInput(job, request, body)
  }

  /**
   * Creates a job with the input of a finished one.
   * @param changes - fields that replace its own; a header `<hidden>` keeps its value
   * @throws GatewayError NOT_FOUND, ROUTE_CONFLICT when it has not finished, and as `create`
   */
  async retry(id: string, changes: Partial<JobInput> = {}): Promise<JobRecord> {
    await this.#ready(true)
    const { job, request, body } = await this.#readInput(id)
    if (!isFinished(job))
      throw new GatewayError('ROUTE_CONFLICT', `job ${id} is ${job.state}: only finished jobs run again`)
    return this.#create(checkJobInput(toRetryInput(job, request, body, changes)), null)
  }

  async #readInput(id: string): Promise<{ job: Job; request: JobRequest; body: Buffer | null }> {
    const { store } = this.#options
    const job = this.#find(id)
    const request = await readRequest(job, store)
    return { job, request, body: await readBody(job, request, store) }
  }

  /** Cancels a job that waits or runs, deletes one that is over. @throws GatewayError NOT_FOUND */
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
      // The handler of a job that ran was stopped: nothing else will end it.
      if (job.state === 'queued') this.#runner.add([job])
      else void this.#runner.keepEnd(canceled)
      throw notKept(error)
    }
    return { record: await this.#toRecord(canceled), deleted: false }
  }

  /** The result of a job; `result.body` must be read to its end or returned from. @throws GatewayError NOT_FOUND */
  async result(id: string): Promise<{ record: JobRecord; result: JobResult | null }> {
    await this.#ready()
    const job = this.#find(id)
    const record = await this.#toRecord(job)
    return { record, result: isFinished(job) ? await openResult(job, this.#options.store) : null }
  }

  /** Begins nothing more, lets what runs finish within the time, keeps what is left. */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosed = true
    this.#timer.clear()
    await this.#opening?.catch(() => {})
    await this.#runner.close(timeoutMs)
    await this.#options.callbacks.close()
    if (this.#store !== 'closed') await this.#options.store.close()
    this.#store = 'closed'
  }

  async #ready(writes = false): Promise<void> {
    const { enabled, hasStored } = this.#options
    if (!enabled) throw new GatewayError('NOT_FOUND', 'jobs disabled')
    if (this.#isClosed) throw new GatewayError('SHUTTING_DOWN', 'gateway is shutting down')
    if (this.#store === 'open' || (!writes && (this.#store === 'readable' || !hasStored()))) return
    const isReadable = (): boolean => this.#store === 'readable'
    try {
      await this.#open()
    } catch (error) {
      if (writes || !isReadable()) throw notKept(error)
    }
  }

  #open(): Promise<void> {
    this.#opening ??= this.#load().finally(() => {
      this.#opening = null
    })
    return this.#opening
  }

  async #load(): Promise<void> {
    if (this.#store === 'open' || this.#isClosed) return
    const { store, onLog } = this.#options
    try {
      const { jobs, warnings } = await store.open()
      this.#asides = warnings
      for (const { message } of warnings) onLog('warn', message)
      this.#table = new JobTable()
      await this.#recover(jobs)
    } catch (error) {
      await store.close().catch(() => {})
      await this.#peek(error)
      const { message } = error as Error
      const text = `jobs do not run: ${message}`
      if (this.#problem !== message) onLog('warn', text)
      this.#problem = message
      const hint = 'Make .svc of the functions root writable, or stop the other gateway; it is tried again by itself.'
      this.warnings = [...this.#asides, { code: 'JOBS_NOT_KEPT', path: '.svc/jobs', message: text, hint }]
      // The other gateway may end; the disk may be repaired.
      this.#timer.set(REOPEN_MS, () => void this.start())
      throw error
    }
    this.#store = 'open'
    this.#problem = null
    this.warnings = this.#asides
    if (!this.#isClosed) this.#timer.repeat(SWEEP_MS, () => this.#sweep())
  }

  /** On a full or read-only disk the jobs of earlier runs are shown. */
  async #peek(error: unknown): Promise<void> {
    this.#table = new JobTable()
    this.#store = 'closed'
    if (!['ENOSPC', 'EDQUOT', 'EROFS'].includes((error as NodeJS.ErrnoException).code ?? '')) return
    const jobs = await this.#options.store.peek().catch(() => null)
    for (const job of jobs ?? []) this.#table.put(job)
    if (jobs !== null) this.#store = 'readable'
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
    this.#runner.add(steps.filter(job => job.state === 'queued'))
    for (const job of steps) if (isFinished(job)) this.#callBack(job)
  }

  async #create(input: CheckedInput, idempotency: Job['idempotency']): Promise<JobRecord> {
    const { clock, store, maxOpen = MAX_OPEN_JOBS } = this.#options
    if (this.#table.open >= maxOpen) {
      const headers = { 'Retry-After': '10' }
      throw new GatewayError('CONCURRENCY_LIMIT', `${maxOpen} jobs wait already`, { headers })
    }
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
    this.#runner.add([job])
    return toJobRecord(job, request)
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
    await this.#options.store.save([{ gone: job.id }]).catch(error => {
      throw notKept(error)
    })
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
    await this.#options.store.save(outdated.map(({ id }) => ({ gone: id })))
  }

  #sweep(): void {
    this.#dropOutdated().catch(error => this.#options.onLog('warn', `old jobs cannot be deleted: ${String(error)}`))
  }
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

  /** The job that was created with an idempotency key. */
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
}

/** The name in `runtime/name@version`; neither a runtime nor a version has a slash, and a name no `@`. */
function nameOf({ key }: Job): string {
  return key.slice(key.indexOf('/') + 1, key.lastIndexOf('@'))
}
