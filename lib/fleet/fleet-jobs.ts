/**
 * The jobs of a fleet: created at any of its gateways, run by any of them, the next one that has a free place. The store keeps the record
 * of each job, and a ticket with its id goes to one gateway after the other. Spec: page fleet/fleet-jobs.
 *
 *   create ─► record kept ─► ticket ─► any gateway ─► begin is kept ─► attempt ─► its end is kept ─► ticket back for later, or over
 *
 * The record decides, the ticket only reminds: a lost ticket is made again, one too many finds nothing to do.
 */

import { Readable } from 'node:stream'
import type { FunctionVersion } from '../core/catalog.ts'
import { Timer, within } from '../core/clock.ts'
import { GatewayError, type Warning } from '../core/errors.ts'
import { parseObject } from '../core/json.ts'
import { KEPT_JOB_MS, KEPT_JOBS, MAX_OPEN_JOBS } from '../core/limits.ts'
import {
  type CheckedInput,
  checkIdempotencyKey,
  checkJobInput,
  digestOf,
  draftJob,
  type JobInput,
  type ShownInput,
  toRetryInput,
  toShownInput,
} from '../jobs/job-input.ts'
import { type JobResult, openResult } from '../jobs/job-result.ts'
import { runAttempt, STORE_RETRY_MS } from '../jobs/job-runner.ts'
import {
  afterAttempt,
  afterInterruption,
  begin,
  cancel,
  isFinished,
  isJobId,
  type Job,
  type JobParts,
  type JobRecord,
  type JobRequest,
  JOB_STATES,
  type JobState,
  readBody,
  toJobRecord,
} from '../jobs/job.ts'
import type { JobListOptions, JobsOptions, JobsPart } from '../jobs/jobs.ts'
import type { JobEventRecord } from '../observe/events.ts'
import type { Store } from './fleet-store.ts'
import { isJobEvent, JobRecords, type Kept, type WrittenPart } from './job-records.ts'
import { type Ticket, Tickets, type TicketsOptions } from './tickets.ts'

const QUEUE = 'tickets'
/** Milliseconds for which a job waits for room in its function while it holds a place, and until its ticket comes again. */
const ROOM_MS = 250
const LATER_MS = { first: 500, longest: 30_000 }
/** Milliseconds until a job of a function that is not in this tree comes again, for another gateway, and how long that goes on. */
const ELSEWHERE_MS = { again: 1000, most: 60_000 }
/** Milliseconds between two searches for lost tickets, callbacks and outdated jobs: each looks at every open job. */
const SWEEP_MS = 60_000
/** Milliseconds for which one gateway tries a callback before another one may. */
const CALLBACK_MS = 180_000
/** Jobs that are read for one look at a filtered page. */
const LIST_PIECE = 200
/** Jobs of one page by default. */
const LIST_LIMIT = 50

export interface FleetJobsOptions extends Omit<JobsOptions, 'store' | 'hasStored' | 'callbacks'> {
  store: Store
  /** Of this gateway. */
  id: string
  lockMs?: TicketsOptions['lockMs']
  callbacks: (parts: Pick<JobParts, 'read'>) => JobsOptions['callbacks']
  /** True when there is another gateway: it may have a function that this one has not. */
  hasOthers: () => boolean
}

interface Run {
  readonly stop: AbortController
  isCanceled: boolean
  ended: Promise<unknown>
}

interface Message {
  /** Id of the gateway that sends it. */
  from: string
  /** A step that was kept. */
  job: JobEventRecord
  /** A job whose running attempt is to be stopped. */
  cancel: string
}

export class FleetJobs implements JobsPart {
  readonly #options: FleetJobsOptions
  readonly #records: JobRecords
  readonly #parts: Pick<JobParts, 'read'>
  readonly #callbacks: JobsOptions['callbacks']
  readonly #tickets: Tickets
  readonly #runs = new Map<string, Run>()
  /** Resolve when a function that was full has room, by its key. */
  readonly #rooms = new Map<string, Promise<void>>()
  readonly #sweep: Timer
  #counts = Object.fromEntries(JOB_STATES.map(state => [state, 0])) as Record<JobState, number>
  #isCounting = false
  #isClosed = false
  /** Jobs that were created here, refused ones too. */
  #drafts = 0
  readonly warnings: readonly Warning[] = []

  constructor(options: FleetJobsOptions, bullmq: typeof import('bullmq')) {
    this.#options = options
    const { store, clock, maxConcurrency: concurrency, lockMs } = options
    this.#records = new JobRecords(store)
    this.#parts = {
      read: (id, part) => (part === 'request' ? this.#readRequest(id) : this.#records.readPart(id, part)),
    }
    this.#callbacks = options.callbacks(this.#parts)
    this.#sweep = new Timer(clock, true)
    const take = (ticket: Ticket): Promise<number | null> => this.#take(ticket)
    this.#tickets = new Tickets({ store, clock, name: QUEUE, concurrency, lockMs, take }, bullmq)
  }

  /** As of the last look; each call looks again. */
  counts(): Readonly<Record<JobState, number>> {
    if (!this.#isCounting && !this.#isClosed) {
      this.#isCounting = true
      void this.#records
        .counts()
        .then(counts => (this.#counts = counts))
        .catch(() => {})
        .finally(() => (this.#isCounting = false))
    }
    return this.#counts
  }

  /** Begins to take jobs. Never rejects: the store may come later. */
  async start(): Promise<void> {
    if (!this.#options.enabled) return
    this.counts()
    // It waits for a store that is away, and the start does not.
    const { clock, store } = this.#options
    const own = this.#toMessage().slice(0, -1)
    const onMessage = (text: string): void => {
      if (!text.startsWith(own)) this.#receive(parseObject(text) as Partial<Message> | null)
    }
    await within(clock, STORE_RETRY_MS, store.listen(this.#channel, onMessage))
    this.#tickets.start()
    this.#sweepLater(0)
  }

  async create(input: JobInput, idempotencyKey: string | null = null): ReturnType<JobsPart['create']> {
    const key = checkIdempotencyKey(idempotencyKey)
    const checked = checkJobInput(input)
    this.#assertOpen()
    const idempotency = key === null ? null : { key, digest: digestOf(checked) }
    const made = await this.#create(checked, idempotency)
    if (!('known' in made)) return { record: made.record, replayed: false }
    const known = await this.#find(made.known)
    if (known.job.idempotency?.digest !== idempotency?.digest)
      throw new GatewayError('ROUTE_CONFLICT', 'this Idempotency-Key was used for another request')
    return { record: toJobRecord(known.job, known.request), replayed: true }
  }

  async get(id: string): Promise<JobRecord> {
    this.#assertOpen()
    const { job, request } = await this.#find(id)
    return toJobRecord(job, request)
  }

  async list({ limit = LIST_LIMIT, before = null, state = null, fn = null }: JobListOptions = {}) {
    this.#assertOpen()
    const found: Kept[] = []
    for (let from = before; ; ) {
      const size = fn === null ? limit + 1 : LIST_PIECE
      const ids = await this.#records.list(state, from, size)
      const kept = (await Promise.all(ids.map(id => this.#records.read(id)))).filter(one => one !== null)
      for (const one of kept) if (fn === null || one.request.name === fn) found.push(one)
      if (ids.length < size || found.length > limit) break
      from = await this.#records.numberOf(ids.at(-1)!)
    }
    const page = found.slice(0, limit)
    const next = found.length > limit ? page.at(-1)!.job.seq : null
    return { jobs: page.map(({ job, request }) => toJobRecord(job, request)), next }
  }

  async input(id: string): Promise<ShownInput> {
    this.#assertOpen()
    const { job, request } = await this.#find(id)
    return toShownInput(job, request, await readBody(job, request, this.#parts))
  }

  async retry(id: string, changes: Partial<JobInput> = {}): Promise<JobRecord> {
    this.#assertOpen()
    const { job, request } = await this.#find(id)
    if (!isFinished(job))
      throw new GatewayError('ROUTE_CONFLICT', `job ${id} is ${job.state}: only finished jobs run again`)
    const body = await readBody(job, request, this.#parts)
    const made = await this.#create(checkJobInput(toRetryInput(job, request, body, changes)), null)
    return (made as { record: JobRecord }).record
  }

  async cancel(id: string): Promise<{ record: JobRecord; deleted: boolean }> {
    this.#assertOpen()
    for (;;) {
      const kept = await this.#find(id)
      const { job, request } = kept
      if (isFinished(job)) {
        this.#callbacks.cancel(id)
        await this.#records.remove(job)
        return { record: toJobRecord(job, request), deleted: true }
      }
      const canceled = await this.#keep(kept, cancel(job, this.#options.clock.wall()))
      // It went on in between.
      if (canceled === null) continue
      this.#stop(id)
      const { store } = this.#options
      await store.ask(redis => redis.publish(this.#channel, this.#toMessage({ cancel: id }))).catch(() => {})
      await this.#tickets.remove(id).catch(() => {})
      return { record: toJobRecord(canceled.job, request), deleted: false }
    }
  }

  async result(id: string): Promise<{ record: JobRecord; result: JobResult | null }> {
    this.#assertOpen()
    const { job, request } = await this.#find(id)
    return { record: toJobRecord(job, request), result: isFinished(job) ? await openResult(job, this.#parts) : null }
  }

  /** Takes nothing more, lets what runs finish within the time; the rest goes on at another gateway. */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosed = true
    this.#sweep.clear()
    const { clock, store } = this.#options
    await this.#tickets.pause()
    const runs = [...this.#runs.values()]
    if (timeoutMs > 0 && runs.length > 0) await within(clock, timeoutMs, Promise.all(runs.map(({ ended }) => ended)))
    for (const { stop } of runs) stop.abort()
    await within(clock, STORE_RETRY_MS, Promise.all(runs.map(({ ended }) => ended)))
    await this.#callbacks.close()
    store.ignore(this.#channel)
    await this.#tickets.close()
  }

  async #create(
    input: CheckedInput,
    idempotency: Job['idempotency'],
  ): Promise<{ record: JobRecord } | { known: string }> {
    const { clock, maxOpen = MAX_OPEN_JOBS } = this.#options
    // The store numbers jobs in their order; ids are unique without that.
    const { job, request } = draftJob(input, this.#options, clock.wall(), () => ++this.#drafts, idempotency)
    if (request.hasBodyPart) {
      const part = this.#records.writeBody(job.id)
      await part.write(input.body!)
      await part.end()
    }
    const event = this.#toEvent(job)
    const made = await this.#records.create(job, request, maxOpen, this.#toMessage({ job: event }))
    const isMade = made !== null && 'job' in made
    if (!isMade && request.hasBodyPart) await this.#records.remove({ id: job.id, idempotency: null })
    if (made === null) {
      const headers = { 'Retry-After': '10' }
      throw new GatewayError('CONCURRENCY_LIMIT', `${maxOpen} jobs wait already`, { headers })
    }
    if (!isMade) return made
    await this.#addTicket(made.job)
    this.#options.onEvent(event)
    return { record: toJobRecord(made.job, request) }
  }

  /** A ticket that is there already stays as it is. A lost one is made by the next sweep. */
  async #addTicket({ id, dueAt }: Job): Promise<void> {
    const delay = Math.max(0, dueAt - this.#options.clock.wall())
    await this.#tickets.add(id, null, delay).catch(() => {})
  }

  async #find(id: string): Promise<Kept> {
    const kept = isJobId(id) ? await this.#records.read(id) : null
    if (kept === null) throw new GatewayError('NOT_FOUND', 'job not found')
    return kept
  }

  async #readRequest(id: string): Promise<Readable | null> {
    const kept = await this.#records.read(id)
    return kept && toReadable(kept.request)
  }

  /** A ticket of this gateway. @returns milliseconds after which it must come again; null when its job is over */
  async #take(ticket: Ticket): Promise<number | null> {
    const { clock, onLog } = this.#options
    const id = ticket.id!
    try {
      const again = await this.#advance(id, ticket.attemptsStarted)
      return again === null ? null : again - clock.wall()
    } catch (error) {
      onLog('warn', `job ${id} waits for the store: ${(error as Error).message}`)
      return STORE_RETRY_MS
    }
  }

  /** @returns when the ticket must come again, wall clock, ms; null when the job is over */
  async #advance(id: string, times: number): Promise<number | null> {
    const { clock, functionOf, hasOthers } = this.#options
    let kept = await this.#records.read(id)
    if (kept === null || isFinished(kept.job)) return null
    if (kept.job.state === 'running') {
      kept = await this.#keep(kept, afterInterruption(kept.job, clock.wall(), 'its gateway ended'))
      if (kept === null) return clock.wall()
      if (isFinished(kept.job)) return null
    }
    const { job } = kept
    if (job.dueAt > clock.wall()) return job.dueAt
    const fn = functionOf(job.key)
    const isNew = clock.wall() - job.dueAt < ELSEWHERE_MS.most
    if (fn === null && isNew && hasOthers()) return clock.wall() + ELSEWHERE_MS.again
    if (this.#isClosed) return clock.wall()
    if (fn !== null && !(await this.#hasRoom(fn)))
      return clock.wall() + Math.min(LATER_MS.longest, LATER_MS.first * 2 ** Math.min(times, 8))
    const begun = await this.#keep(kept, begin(job, clock.wall()))
    return begun === null ? clock.wall() : this.#run(begun, fn)
  }

  async #run(begun: Kept, fn: FunctionVersion | null): Promise<number | null> {
    const { clock, call, maxResultBytes } = this.#options
    const { id } = begun.job
    const run: Run = { stop: new AbortController(), isCanceled: false, ended: Promise.resolve() }
    this.#runs.set(id, run)
    let result: WrittenPart | null = null
    const writer = this.#records.writeResult(written => (result = written))
    const going = runAttempt(begun.job, fn, run.stop, {
      ...{ call, maxResultBytes, request: begun.request },
      store: { read: this.#parts.read, write: async () => writer },
    })
    run.ended = going.then(() => this.#runs.delete(id))
    const outcome = await going
    if (run.isCanceled) {
      await writer.discard()
      return null
    }
    const now = clock.wall()
    const isStopped = run.stop.signal.aborted && outcome.kind === 'failure'
    const ended = isStopped
      ? afterInterruption(begun.job, now, 'the gateway was stopped')
      : afterAttempt(begun.job, outcome, now)
    await this.#keepEnd(begun, ended, result)
    return isFinished(ended) ? null : ended.dueAt
  }

  /** Tries until the store takes it. The place of the attempt stays taken, which bounds how many wait. */
  async #keepEnd(begun: Kept, ended: Job, result: WrittenPart | null): Promise<void> {
    const { clock, onLog } = this.#options
    for (let isFirst = true; ; isFirst = false) {
      try {
        if ((await this.#keep(begun, ended, result)) === null)
          onLog('warn', `the end of job ${ended.id} is dropped: another gateway went on with it`)
        return
      } catch (error) {
        if (isFirst) onLog('warn', `the end of job ${ended.id} waits for the store: ${(error as Error).message}`)
        if (this.#isClosed) throw error
        await new Promise<void>(resolve => clock.setTimeout(resolve, STORE_RETRY_MS))
      }
    }
  }

  async #hasRoom(fn: FunctionVersion): Promise<boolean> {
    const { admission, clock } = this.#options
    if (admission.canEnter(fn)) return true
    const room =
      this.#rooms.get(fn.key) ??
      new Promise<void>(resolve => admission.onceRoom(fn, resolve)).then(() => void this.#rooms.delete(fn.key))
    this.#rooms.set(fn.key, room)
    await within(clock, ROOM_MS, room)
    return admission.canEnter(fn)
  }

  /** A step counts when it is kept; then it is reported. @returns null when another step came first */
  async #keep(before: Kept, job: Job, result: WrittenPart | null = null): Promise<Kept | null> {
    const event = this.#toEvent(job)
    const kept = await this.#records.save(before, job, this.#toMessage({ job: event }), result)
    if (kept === null) return null
    this.#options.onEvent(event)
    if (isFinished(job)) await this.#callBack(job)
    return kept
  }

  #toEvent({ id, key, state, attempt, resultStatus, lastError }: Job): JobEventRecord {
    return { time: this.#options.clock.wall(), id, key, state, attempt, status: resultStatus, error: lastError }
  }

  /** Sends the callback of a finished job; when this gateway ends first, another one does. */
  async #callBack(job: Job): Promise<void> {
    if (job.callback?.state !== 'pending') return
    const { store, clock } = this.#options
    const waiting = store.key('callbacks')
    await store.ask(redis => redis.zadd(waiting, clock.wall() + CALLBACK_MS, job.id))
    this.#callbacks.send(job, async callback => {
      const kept = await this.#records.read(job.id)
      if (kept !== null) await this.#records.save(kept, { ...kept.job, callback })
      if (callback.state !== 'pending') await store.ask(redis => redis.zrem(waiting, job.id))
    })
  }

  get #channel(): string {
    return this.#options.store.key('events')
  }

  #toMessage(message: Partial<Pick<Message, 'job' | 'cancel'>> = {}): string {
    return JSON.stringify({ from: this.#options.id, ...message })
  }

  /** @param message - of any release, or of another program that writes to the channel */
  #receive(message: Partial<Message> | null): void {
    if (message === null) return
    if (typeof message.cancel === 'string') this.#stop(message.cancel)
    if (isJobEvent(message.job)) this.#options.onEvent(message.job)
  }

  #stop(id: string): void {
    const run = this.#runs.get(id)
    if (run === undefined) return
    run.isCanceled = true
    run.stop.abort()
  }

  #assertOpen(): void {
    if (!this.#options.enabled) throw new GatewayError('NOT_FOUND', 'jobs disabled')
    if (this.#isClosed) throw new GatewayError('SHUTTING_DOWN', 'gateway is shutting down')
  }

  #sweepLater(ms = SWEEP_MS): void {
    if (this.#isClosed) return
    this.#sweep.set(ms, () => {
      void this.#sweepNow()
        .catch(() => {})
        .finally(() => this.#sweepLater())
    })
  }

  /** Completes what a killed gateway left: jobs without a ticket and undelivered callbacks. Deletes outdated jobs. */
  async #sweepNow(): Promise<void> {
    const { clock, store, id } = this.#options
    // One gateway does it for all.
    if ((await store.ask(redis => redis.set(store.key('sweep'), id, 'PX', SWEEP_MS, 'NX'))) === null) return
    for (const state of ['queued', 'running'] as const) await this.#renewTickets(state)
    const waiting = store.key('callbacks')
    const now = clock.wall()
    for (const id of await store.ask(redis => redis.zrangebyscore(waiting, '-inf', now))) {
      // One gateway takes it.
      if ((await store.ask(redis => redis.zrem(waiting, id))) === 0) continue
      const kept = await this.#records.read(id)
      if (kept !== null) await this.#callBack(kept.job)
    }
    for (const id of await this.#records.outdated(KEPT_JOBS, now - KEPT_JOB_MS)) {
      const kept = await this.#records.read(id)
      if (kept?.job.callback?.state === 'pending') continue
      await this.#records.remove({ id, idempotency: kept?.job.idempotency ?? null })
    }
  }

  async #renewTickets(state: JobState): Promise<void> {
    for (let before: number | null = null; ; ) {
      const ids: string[] = await this.#records.list(state, before, LIST_PIECE)
      const areThere = await this.#tickets.has(ids)
      for (const [i, id] of ids.entries()) {
        if (areThere[i]) continue
        const kept = await this.#records.read(id)
        if (kept !== null && !isFinished(kept.job)) await this.#addTicket(kept.job)
      }
      if (ids.length < LIST_PIECE) return
      before = await this.#records.numberOf(ids.at(-1)!)
    }
  }
}

function toReadable(request: JobRequest): Readable {
  return Readable.from([Buffer.from(JSON.stringify(request))])
}
