/**
 * Runs of schedules in a fleet: the leader notes each one and hands it to a queue of BullMQ, any gateway calls the function, and the
 * leader takes the outcome from the store. Spec: page fleet/fleet-runs.
 *
 *   <prefix>:schedules:runs   hash by schedule: "<run>" ─► "<run> <gateway>" ─► "<run> <gateway> <outcome>"
 *                                              noted by     a gateway begins      it has ended
 *                                              the leader
 *
 * The record decides, the ticket only reminds: a lost ticket is made again, one too many finds nothing to do.
 */

import { createHash } from 'node:crypto'
import type { FunctionVersion } from '../core/catalog.ts'
import { Timer, within } from '../core/clock.ts'
import { parseObject } from '../core/json.ts'
import type { JobsOptions } from '../jobs/jobs.ts'
import {
  type RunOutcome,
  type ScheduleRunnerOptions,
  type SharedRun,
  toRunOutcome,
} from '../scheduler/schedule-runner.ts'
import { MAX_ERROR_CHARS, type ScheduleState } from '../scheduler/schedule-store.ts'
import { INTERRUPTED } from '../scheduler/schedule.ts'
import type { Store } from './fleet-store.ts'
import { type Ticket, Tickets, type TicketsOptions } from './tickets.ts'

/** Name of the key with the records. */
export const RUNS = ['schedules', 'runs'] as const
const QUEUE = 'runs'
/** Runs of one gateway at once. */
const MOST_RUNS = 500
/** Milliseconds for which messages about ends are gathered, and between two looks at the records: a message may be lost. */
const GATHER_MS = 5
const LOOK_MS = 1000
/** Milliseconds after which a ticket is made again, in case that the store lost it. */
const TICKET_MS = 30_000
/** Milliseconds until a ticket that this gateway cannot take comes again. */
const LATER_MS = 500
/** Milliseconds for which a run waits for a gateway whose function has room, and for one that has its schedule. */
const MOST_WAIT_MS = { room: 30_000, schedule: 60_000 }
/** Milliseconds until a run is looked at again that another gateway holds, and in which that one reports after the store was away. */
const HELD_MS = 5000
/** Milliseconds between two attempts to keep an end. */
const STORE_RETRY_MS = 1000
/** Keys in one command. */
const BATCH = 500

/** KEYS: runs. ARGV: schedule, run, gateway, 1 when it may begin. @returns what to do, and the gateway that holds the run */
const CLAIM_RUN = `
local known = redis.call('HGET', KEYS[1], ARGV[1])
local run, by, outcome = string.match(known or '', '^(%S+) ?(%S*) ?(.*)$')
if run ~= ARGV[2] or outcome ~= '' then return {'over', ''} end
if by ~= '' then return {'held', by} end
if ARGV[4] ~= '1' then return {'later', ''} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
return {'begun', ARGV[3]}`

/** KEYS: runs. ARGV: schedule, run, gateway that holds it, outcome, channel. @returns 0 when it is over already */
const END_RUN = `
local held = ARGV[2] .. ' ' .. ARGV[3]
if redis.call('HGET', KEYS[1], ARGV[1]) ~= held then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], held .. ' ' .. ARGV[4])
redis.call('PUBLISH', ARGV[5], ARGV[2])
return 1`

interface Scripts {
  fngwClaimRun(keys: number, ...words: (string | number)[]): Promise<['over' | 'held' | 'later' | 'begun', string]>
  fngwEndRun(keys: number, ...words: string[]): Promise<number>
}

export interface FleetRunsOptions
  extends Pick<ScheduleRunnerOptions, 'clock' | 'call' | 'onLog'>,
    Pick<JobsOptions, 'functionOf' | 'admission'> {
  store: Store
  /** Of this gateway. */
  id: string
  lockMs?: TicketsOptions['lockMs']
  /** Of the functions in force here. */
  release: () => string
  /** Whether a gateway of the fleet that has not ended has an id, or runs the schedules of a release. */
  isThere: (which: { id: string } | { release: string }) => boolean
}

/** A run whose end the leader waits for. */
interface Followed {
  run: SharedRun
  /** Monotonic, ms: when its ticket was made. */
  ticketAt: number
  end: (outcome: RunOutcome | null) => void
}

/** A run as its ticket has it. */
interface TakenRun extends Omit<SharedRun, 'signal'> {
  release: string
}

export class FleetRuns {
  readonly #options: FleetRunsOptions
  readonly #scripts: Scripts
  readonly #tickets: Tickets
  /** By run. */
  readonly #followed = new Map<string, Followed>()
  readonly #running = new Map<string, { stop: AbortController; ended: Promise<unknown> }>()
  readonly #look: Timer
  readonly #gather: Timer
  readonly #closing = new AbortController()

  constructor(options: FleetRunsOptions, bullmq: typeof import('bullmq')) {
    this.#options = options
    const { store, clock, lockMs } = options
    this.#look = new Timer(clock, true)
    this.#gather = new Timer(clock, true)
    store.redis.defineCommand('fngwClaimRun', { lua: CLAIM_RUN })
    store.redis.defineCommand('fngwEndRun', { lua: END_RUN })
    this.#scripts = store.redis as unknown as Scripts
    const take = (ticket: Ticket): Promise<number | null> => this.#take(ticket)
    this.#tickets = new Tickets({ store, clock, name: QUEUE, concurrency: MOST_RUNS, lockMs, take }, bullmq)
  }

  /** Begins to take runs. */
  start(): void {
    const { store } = this.#options
    // The content of a message only says whose record to read.
    void store.listen(this.#channel, run => {
      if (this.#followed.has(run) && !this.#gather.isSet) this.#gather.set(GATHER_MS, () => void this.#readOutcomes())
    })
    this.#tickets.start()
  }

  /** Has a noted run done by one of the gateways. @returns null when its signal says that another gateway follows it */
  readonly share = (run: SharedRun): Promise<RunOutcome | null> => {
    const { signal } = run
    if (signal.aborted || this.#closing.signal.aborted) return Promise.resolve(null)
    return new Promise(resolve => {
      const id = idOf(run)
      const leave = (): void => followed.end(null)
      const followed: Followed = {
        run,
        ticketAt: 0,
        end: outcome => {
          signal.removeEventListener('abort', leave)
          if (this.#followed.get(id) === followed) this.#followed.delete(id)
          resolve(outcome)
        },
      }
      signal.addEventListener('abort', leave)
      this.#followed.set(id, followed)
      void this.#addTicket(id, followed)
      if (!this.#look.isSet) this.#look.repeat(LOOK_MS, () => void this.#readOutcomes())
    })
  }

  /** Takes nothing more, and lets what runs here end within the time. The next leader follows runs of other gateways. */
  async close(timeoutMs: number): Promise<void> {
    const { store, clock } = this.#options
    this.#closing.abort()
    for (const { end } of this.#followed.values()) end(null)
    this.#look.clear()
    this.#gather.clear()
    store.ignore(this.#channel)
    await this.#tickets.pause()
    const running = [...this.#running.values()]
    if (timeoutMs > 0 && running.length > 0)
      await within(clock, timeoutMs, Promise.all(running.map(({ ended }) => ended)))
    for (const { stop } of running) stop.abort()
    await this.#tickets.close()
  }

  /** A ticket that is there already stays as it is. */
  async #addTicket(id: string, followed: Followed): Promise<void> {
    const { clock, release } = this.#options
    const { key, due, attempt } = followed.run
    const data: TakenRun = { key, due, attempt, release: release() }
    followed.ticketAt = clock.monotonic()
    // The next look makes one that could not be added.
    await this.#tickets.add(id, data).catch(() => (followed.ticketAt = -Infinity))
  }

  /** Ends what has an outcome. Never rejects: the store may come back. */
  async #readOutcomes(): Promise<void> {
    const { store, clock } = this.#options
    const all = [...this.#followed]
    if (all.length === 0) this.#look.clear()
    for (let at = 0; at < all.length; at += BATCH) {
      const batch = all.slice(at, at + BATCH)
      const keys = batch.map(([, { run }]) => run.key)
      const records = await store.ask(redis => redis.hmget(store.key(...RUNS), ...keys)).catch(() => null)
      if (records === null) return
      for (const [i, [id, followed]] of batch.entries()) {
        const { run, outcome } = parseRecord(records[i] ?? '')
        if (run !== id) followed.end(LOST)
        else if (outcome !== null) followed.end(outcome)
        else if (clock.monotonic() - followed.ticketAt > TICKET_MS) void this.#addTicket(id, followed)
      }
    }
  }

  /** A ticket of this gateway. @returns milliseconds after which it must come again; null when it is of no more use */
  async #take({ data, timestamp }: Ticket): Promise<number | null> {
    const run = parseRun(data)
    // A store that is away is reported by its connection.
    return run && this.#advance(run, this.#options.clock.wall() - timestamp).catch(() => STORE_RETRY_MS)
  }

  /** @returns as `#take`. @throws GatewayError while the store is away */
  async #advance(run: TakenRun, waitedMs: number): Promise<number | null> {
    const { store, id, release, isThere, functionOf, admission } = this.#options
    const fn = functionOf(run.key)
    const isScheduled = fn !== null && fn.policy.schedule?.enabled === true
    const isOurs = run.release === release() || !isThere({ release: run.release })
    const hasRoom = fn !== null && (waitedMs > MOST_WAIT_MS.room || admission.canEnter(fn))
    const mayBegin = isOurs && (isScheduled ? hasRoom : waitedMs > MOST_WAIT_MS.schedule)
    const words = [run.key, idOf(run), id, Number(mayBegin && !this.#closing.signal.aborted)]
    const [step, by] = await store.ask(() => this.#scripts.fngwClaimRun(1, store.key(...RUNS), ...words))
    if (step === 'later') return LATER_MS
    if (step === 'over') return null
    if (step === 'begun') return this.#run(run, isScheduled ? fn : null)
    if (this.#running.has(idOf(run)) || isThere({ id: by })) return HELD_MS
    // Its gateway has ended, or reports again in a moment: the store may have been away.
    await this.#pause(HELD_MS)
    if (this.#closing.signal.aborted || isThere({ id: by })) return LATER_MS
    await this.#keepOutcome(run, by, { ...INTERRUPTED, latencyMs: 0 })
    return null
  }

  async #run(run: TakenRun, fn: FunctionVersion | null): Promise<null> {
    const { call, id } = this.#options
    const stop = new AbortController()
    const { signal } = stop
    const { attempt } = run
    const work = async (): Promise<void> => {
      const policy = fn?.policy.schedule ?? null
      const outcome =
        fn === null || policy === null
          ? UNKNOWN
          : toRunOutcome(
              await call({ fn, policy, attempt: Math.max(1, attempt), isManual: attempt === 0, signal }),
              signal,
            )
      await this.#keepOutcome(run, id, outcome)
    }
    const ended = work().finally(() => this.#running.delete(idOf(run)))
    this.#running.set(idOf(run), { stop, ended })
    await ended
    return null
  }

  /** Tries until the store takes it. The place of the run stays taken, which bounds how many wait. */
  async #keepOutcome(run: TakenRun, by: string, outcome: RunOutcome): Promise<void> {
    const { store, onLog } = this.#options
    const words = [run.key, idOf(run), by, JSON.stringify(outcome), this.#channel]
    for (let isFirst = true; ; isFirst = false) {
      try {
        const isKept = await store.ask(() => this.#scripts.fngwEndRun(1, store.key(...RUNS), ...words))
        if (isKept === 0)
          onLog('warn', `the end of a run of ${run.key} is dropped: it counts as interrupted, or its schedule is gone`)
        return
      } catch (error) {
        if (isFirst) onLog('warn', `the end of a run of ${run.key} waits for the store: ${(error as Error).message}`)
        if (this.#closing.signal.aborted) return
        await this.#pause(STORE_RETRY_MS)
      }
    }
  }

  /** Ends early at the stop of the gateway. */
  async #pause(ms: number): Promise<void> {
    const { signal } = this.#closing
    if (signal.aborted) return
    let stop = (): void => {}
    const stopped = new Promise<void>(resolve => {
      stop = resolve
      signal.addEventListener('abort', stop)
    })
    await within(this.#options.clock, ms, stopped)
    signal.removeEventListener('abort', stop)
  }

  get #channel(): string {
    return this.#options.store.key(...RUNS, 'ends')
  }
}

const LOST: RunOutcome = { status: 0, error: 'the store lost this run: it may have taken place', latencyMs: 0 }
const UNKNOWN: RunOutcome = { status: 0, error: 'no gateway has this schedule', latencyMs: 0 }

/** Name of the run that a state has; '' for none. Two leaders give the same run the same name. */
export function toRunId(key: string, { running, runningDue }: ScheduleState): string {
  return running === null || runningDue === null ? '' : idOf({ key, due: runningDue, attempt: running })
}

function idOf({ key, due, attempt }: Omit<SharedRun, 'signal'>): string {
  // BullMQ takes no number for an id.
  return `run-${createHash('sha256')
    .update(JSON.stringify([key, due, attempt]))
    .digest('hex')
    .slice(0, 32)}`
}

/** The content of a ticket; null for what no gateway has written. */
function parseRun(data: unknown): TakenRun | null {
  const { key, due, attempt, release } = (data ?? {}) as { readonly [name: string]: unknown }
  const isRun =
    typeof key === 'string' && Number.isFinite(due) && Number.isSafeInteger(attempt) && typeof release === 'string'
  return isRun ? { key, due: due as number, attempt: attempt as number, release } : null
}

function parseRecord(text: string): { run: string; outcome: RunOutcome | null } {
  const [, run = '', outcome = ''] = /^(\S+)(?: \S+ (.*))?/s.exec(text) ?? []
  const { status, error, latencyMs } = parseObject(outcome) ?? {}
  if (!Number.isFinite(status) || !Number.isFinite(latencyMs)) return { run, outcome: null }
  const reason = typeof error === 'string' ? error.slice(0, MAX_ERROR_CHARS) : null
  return { run, outcome: { status: status as number, error: reason, latencyMs: latencyMs as number } }
}
