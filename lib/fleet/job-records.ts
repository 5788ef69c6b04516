/**
 * Jobs of a fleet as they are kept in the store. A script writes each step and compares its number first, so that of two gateways that
 * hold the same job one is refused. Spec: page fleet/fleet-jobs.
 *
 *   <prefix>:job:<id>                hash: job (JSON of its last step), request (JSON), step (number of the last step)
 *   <prefix>:part:<id>:body|result   bytes
 *   <prefix>:jobs, :jobs:<state>     sorted sets of ids by their number; of the finished ones also by their end
 *   <prefix>:idempotency:<key>       id of the job
 */

import { randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import type { Redis } from 'ioredis'
import { type Check, hasShape, isObject, parseObject } from '../core/json.ts'
import { KEPT_JOB_MS } from '../core/limits.ts'
import {
  isJobId,
  type Job,
  JOB_STATES,
  type JobPart,
  type JobRequest,
  type JobState,
  type PartWriter,
} from '../jobs/job.ts'
import type { JobEventRecord } from '../observe/events.ts'
import type { Store } from './fleet-store.ts'

/** Bytes that are read from the store or written to it at once. */
const PIECE_BYTES = 256 * 1024
/** Records of finished jobs expire after this time even when no gateway deletes them, ms. */
const LIFETIME_MS = 2 * KEPT_JOB_MS
/** Lifetime of a part that is being written, ms. */
const DRAFT_MS = 3_600_000

/** A job as it was read. */
export interface Kept {
  readonly job: Job
  readonly request: JobRequest
  /** Of the last step, to be given to `save`. */
  readonly step: number
}

/** A part that is not kept yet: a key that has it, or its bytes. */
export type WrittenPart = { draft: string } | { bytes: Buffer }

/**
 * KEYS: job, jobs, queued, running, counter, body, idempotency. The job's key stands for one that is missing: a Cluster refuses an empty one.
 * ARGV: id, job from behind its number, request, most open, channel, event.
 */
const CREATE = `
if KEYS[7] ~= KEYS[1] then
  local known = redis.call('GET', KEYS[7])
  if known then return {'known', known} end
end
if redis.call('ZCARD', KEYS[3]) + redis.call('ZCARD', KEYS[4]) >= tonumber(ARGV[4]) then return {'full'} end
local number = redis.call('INCR', KEYS[5])
redis.call('HSET', KEYS[1], 'job', '{"seq":' .. number .. ',' .. ARGV[2], 'request', ARGV[3], 'step', 1)
redis.call('ZADD', KEYS[2], number, ARGV[1])
redis.call('ZADD', KEYS[3], number, ARGV[1])
if KEYS[6] ~= KEYS[1] then redis.call('PERSIST', KEYS[6]) end
if KEYS[7] ~= KEYS[1] then redis.call('SET', KEYS[7], ARGV[1]) end
redis.call('PUBLISH', ARGV[5], ARGV[6])
return {'made', number}`

/**
 * KEYS: job, set of the state before, set of the state now, finished, body, idempotency, result, draft of the result or the job's key.
 * ARGV: id, number, step, job, end in ms or '', lifetime of a finished job and of a result, channel, event or '', bytes of a result
 * without a draft.
 */
const SAVE = `
if redis.call('HGET', KEYS[1], 'step') ~= ARGV[3] then
  if KEYS[8] ~= KEYS[1] then redis.call('DEL', KEYS[8]) end
  return 0
end
redis.call('HSET', KEYS[1], 'job', ARGV[4], 'step', ARGV[3] + 1)
if KEYS[2] ~= KEYS[3] then
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1])
end
if KEYS[8] ~= KEYS[1] then
  redis.call('RENAME', KEYS[8], KEYS[7])
  redis.call('PEXPIRE', KEYS[7], ARGV[6])
elseif ARGV[9] then
  redis.call('SET', KEYS[7], ARGV[9], 'PX', ARGV[6])
end
if ARGV[5] ~= '' then
  redis.call('ZADD', KEYS[4], ARGV[5], ARGV[1])
  for _, key in ipairs({KEYS[1], KEYS[5], KEYS[6]}) do redis.call('PEXPIRE', key, ARGV[6]) end
end
if ARGV[8] ~= '' then redis.call('PUBLISH', ARGV[7], ARGV[8]) end
return 1`

/** KEYS: job, body, result, jobs, finished, idempotency, set of each state. ARGV: id. */
const REMOVE = `
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
if redis.call('GET', KEYS[6]) == ARGV[1] then redis.call('DEL', KEYS[6]) end
for i = 7, #KEYS do redis.call('ZREM', KEYS[i], ARGV[1]) end`

/** A script that the store keeps: sent whole only when it does not know it. */
interface Scripts {
  fngwCreate(keys: number, ...words: (string | number)[]): Promise<['made', number] | ['known', string] | ['full']>
  fngwSave(keys: number, ...words: (string | number | Buffer)[]): Promise<number>
  fngwRemove(keys: number, ...words: (string | number)[]): Promise<null>
}

export class JobRecords {
  readonly #store: Store
  readonly #scripts: Scripts

  constructor(store: Store) {
    this.#store = store
    const { redis } = store
    redis.defineCommand('fngwCreate', { lua: CREATE })
    redis.defineCommand('fngwSave', { lua: SAVE })
    redis.defineCommand('fngwRemove', { lua: REMOVE })
    this.#scripts = redis as unknown as Scripts
  }

  /**
   * @param draft - gets the next number
   * @param event - published when the job is kept
   * @returns the job; or the id of the one that has the idempotency key; or null when `maxOpen` jobs wait or run
   */
  async create(
    draft: Job,
    request: JobRequest,
    maxOpen: number,
    event: string,
  ): Promise<Kept | { known: string } | null> {
    const at = this.#store.key.bind(this.#store)
    const { seq: _, ...job } = draft
    const { id, idempotency } = job
    const body = request.hasBodyPart ? at('part', id, 'body') : at('job', id)
    const keyed = idempotency === null ? at('job', id) : at('idempotency', idempotency.key)
    const keys = [at('job', id), at('jobs'), at('jobs', 'queued'), at('jobs', 'running'), at('seq'), body, keyed]
    const words = [id, JSON.stringify(job).slice(1), JSON.stringify(request), maxOpen, at('events'), event]
    const answer = await this.#store.ask(() => this.#scripts.fngwCreate(keys.length, ...keys, ...words))
    if (answer[0] === 'known') return { known: answer[1] }
    return answer[0] === 'full' ? null : { job: { ...draft, seq: answer[1] }, request, step: 1 }
  }

  /** @returns null when there is none, or it is damaged: nothing could run it */
  async read(id: string): Promise<Kept | null> {
    const words = await this.#store.ask(redis => redis.hmget(this.#store.key('job', id), 'job', 'request', 'step'))
    const [job, request] = [parseObject(words[0] ?? ''), parseObject(words[1] ?? '')]
    const step = Number(words[2])
    // Written otherwise, the number would never be the one that a script compares.
    const isStep = Number.isSafeInteger(step) && String(step) === words[2]
    if (!isJob(job) || job?.id !== id || !isRequest(request) || !isStep) return null
    return { job: job as unknown as Job, request: request as unknown as JobRequest, step }
  }

  /**
   * @param event - published when the step is kept; '' for none
   * @param result - kept with the step, in the place of that of an earlier attempt
   * @returns null when another step came in between, or the job is gone
   */
  async save(before: Kept, job: Job, event = '', result: WrittenPart | null = null): Promise<Kept | null> {
    const at = this.#store.key.bind(this.#store)
    const { id, state, idempotency } = job
    const parts = [at('part', id, 'body'), at('idempotency', idempotency?.key ?? ''), at('part', id, 'result')]
    const keys = [at('job', id), at('jobs', before.job.state), at('jobs', state), at('finished'), ...parts]
    keys.push(result !== null && 'draft' in result ? result.draft : keys[0]!)
    const bytes = result !== null && 'bytes' in result ? [result.bytes] : []
    const end = [job.finishedAt ?? '', LIFETIME_MS, at('events'), event, ...bytes]
    const words = [id, job.seq, before.step, JSON.stringify(job), ...end]
    const isSaved = (await this.#store.ask(() => this.#scripts.fngwSave(keys.length, ...keys, ...words))) === 1
    return isSaved ? { job, request: before.request, step: before.step + 1 } : null
  }

  async remove({ id, idempotency }: Pick<Job, 'id' | 'idempotency'>): Promise<void> {
    const at = this.#store.key.bind(this.#store)
    const keyed = at('idempotency', idempotency?.key ?? '')
    const keys = [at('job', id), at('part', id, 'body'), at('part', id, 'result'), at('jobs'), at('finished'), keyed]
    const states = JOB_STATES.map(state => at('jobs', state))
    await this.#store.ask(() => this.#scripts.fngwRemove(keys.length + states.length, ...keys, ...states, id))
  }

  async counts(): Promise<Record<JobState, number>> {
    const counts = await this.#store.ask(redis =>
      Promise.all(JOB_STATES.map(state => redis.zcard(this.#store.key('jobs', state)))),
    )
    return Object.fromEntries(JOB_STATES.map((state, i) => [state, counts[i]!])) as Record<JobState, number>
  }

  /** Ids, newest first, of jobs that are older than `before`. */
  list(state: JobState | null, before: number | null, limit: number): Promise<string[]> {
    const set = state === null ? this.#store.key('jobs') : this.#store.key('jobs', state)
    const from = before === null ? '+inf' : `(${before}`
    return this.#store.ask(redis => redis.zrevrangebyscore(set, from, '-inf', 'LIMIT', 0, limit))
  }

  /** 0 for a job that is gone. */
  async numberOf(id: string): Promise<number> {
    return Number((await this.#store.ask(redis => redis.zscore(this.#store.key('jobs'), id))) ?? 0)
  }

  /** Ids of finished jobs beyond the newest `kept`, and of those that ended before `time`. */
  async outdated(kept: number, time: number): Promise<string[]> {
    const set = this.#store.key('finished')
    return this.#store.ask(async redis => {
      const [old, surplus] = [await redis.zrangebyscore(set, '-inf', time), await redis.zrange(set, 0, -kept - 1)]
      return [...new Set([...old, ...surplus])]
    })
  }

  async readPart(id: string, part: JobPart): Promise<Readable | null> {
    const key = this.#store.key('part', id, part)
    const size = await this.#store.ask(redis => redis.strlen(key))
    if (size === 0 && (await this.#store.ask(redis => redis.exists(key))) === 0) return null
    return Readable.from(this.#pieces(key, size), { objectMode: false })
  }

  /** It expires unless `create` follows. */
  writeBody(id: string): PartWriter {
    const key = this.#store.key('part', id, 'body')
    return this.#writePart(async part => {
      await this.#store.ask(async redis => {
        if ('bytes' in part) return redis.set(key, part.bytes, 'PX', DRAFT_MS)
        return redis.rename(part.draft, key)
      })
    })
  }

  /** @param onWritten - takes the whole result, for `save`: it is kept together with the end of its attempt */
  writeResult(onWritten: (result: WrittenPart) => void): PartWriter {
    return this.#writePart(async part => onWritten(part))
  }

  #writePart(keep: (part: WrittenPart) => Promise<void>): PartWriter {
    const ask = <T>(work: (redis: Redis) => Promise<T>): Promise<T> => this.#store.ask(work)
    let held: Uint8Array[] = []
    let size = 0
    let draft: string | null = null
    const append = async (): Promise<string> => {
      const bytes = Buffer.concat(held)
      held = []
      size = 0
      draft ??= this.#store.key('draft', randomBytes(8).toString('hex'))
      const key = draft
      for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
        const piece = bytes.subarray(at, at + PIECE_BYTES)
        await ask(redis => redis.append(key, piece))
      }
      await ask(redis => redis.pexpire(key, DRAFT_MS))
      return key
    }
    return {
      write: async bytes => {
        // A copy: the caller may use its buffer again.
        held.push(Buffer.from(bytes))
        size += bytes.length
        if (size > PIECE_BYTES) await append()
      },
      end: async () => keep(draft === null ? { bytes: Buffer.concat(held) } : { draft: await append() }),
      discard: async () => {
        const key = draft
        if (key !== null) await ask(redis => redis.del(key)).catch(() => {})
      },
    }
  }

  async *#pieces(key: string, size: number): AsyncGenerator<Buffer> {
    for (let at = 0; at < size; at += PIECE_BYTES)
      yield await this.#store.ask(redis => redis.getrangeBuffer(key, at, at + PIECE_BYTES - 1))
  }
}

// Any program that reaches the store can write a record or an event, and one that is not whole must not harm the others.

const isText: Check = value => typeof value === 'string'
const isNumber: Check = value => Number.isFinite(value)
const isFlag: Check = value => typeof value === 'boolean'
const isState: Check = value => (JOB_STATES as readonly unknown[]).includes(value)
const orNull =
  (check: Check): Check =>
  value =>
    value === null || check(value)
const isAttempt = hasShape({
  startedAt: isNumber,
  endedAt: orNull(isNumber),
  status: orNull(isNumber),
  error: orNull(isText),
})
const isTexts: Check = value => isObject(value) && Object.values(value).every(isText)
const isUrl: Check = value => typeof value === 'string' && URL.canParse(value)

const isJob = hasShape({
  id: isText,
  seq: isNumber,
  key: isText,
  state: isState,
  attempt: isNumber,
  attempts: value => Array.isArray(value) && value.every(isAttempt),
  retry: hasShape({ maxAttempts: isNumber, delayMs: isNumber, backoff: isNumber }),
  createdAt: isNumber,
  updatedAt: isNumber,
  dueAt: isNumber,
  finishedAt: orNull(isNumber),
  resultStatus: orNull(isNumber),
  lastError: orNull(isText),
  result: orNull(hasShape({ bytes: isNumber, isText: isFlag, truncated: isFlag, latencyMs: isNumber })),
  callback: orNull(hasShape({ state: isText, attempts: isNumber, lastError: orNull(isText) })),
  idempotency: orNull(hasShape({ key: isText, digest: isText })),
} satisfies Record<keyof Job, Check>)

const isRequest = hasShape({
  runtime: isText,
  name: isText,
  version: orNull(isText),
  method: isText,
  routeTemplate: orNull(isText),
  path: isText,
  rawPath: isText,
  params: isTexts,
  query: isObject,
  headers: isTexts,
  context: orNull(isObject),
  body: orNull(isText),
  hasBodyPart: isFlag,
  callbackUrl: orNull(isUrl),
} satisfies Record<keyof JobRequest, Check>)

export const isJobEvent = hasShape({
  time: isNumber,
  id: value => typeof value === 'string' && isJobId(value),
  key: isText,
  state: isState,
  attempt: isNumber,
  status: orNull(isNumber),
  error: orNull(isText),
} satisfies Record<keyof JobEventRecord, Check>) as (value: unknown) => value is JobEventRecord
