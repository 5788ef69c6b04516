/**
 * Tells the `callback_url` of each finished job how it ended, a few times when need be. Spec: page jobs/callback-sender.
 *
 *   tell ─► waits for a place ─► POST ─► 2xx: delivered
 *              ▲                   └─► else: kept as one more attempt ─(1 s, 4 s, 16 s, 64 s)─┐
 *              └──────────────────────────────────────────────────────────────────────────────┘
 */

import type { FunctionVersion } from '../core/catalog.ts'
import { backoffDelay } from '../core/clock.ts'
import { Semaphore } from '../core/semaphore.ts'
import { readRequest } from './attempt.ts'
import { type CallbackNetwork, sendCallback } from './callback-request.ts'
import type { CallbackFacts, Job } from './job.ts'
import { toJobRecord } from './job-record.ts'
import { openResult } from './job-result.ts'
import type { JobStore } from './job-store.ts'

export const CALLBACK_ATTEMPTS = 5
/** Milliseconds before the second attempt; each further wait is four times as long. */
export const CALLBACK_DELAY_MS = 1000
/** Requests at once. */
const MAX_CALLBACKS = 4
/** Bytes of a result that go along; of a longer one only its facts do. */
export const CALLBACK_RESULT_BYTES = 1024 * 1024

interface CallbackSenderOptions {
  network: CallbackNetwork
  /** Key of the signature, null to send callbacks unsigned. */
  secret: string | null
  store: JobStore
  /** The function in force now. */
  functionOf: (key: string) => FunctionVersion | null
  onLog: (level: 'warn', message: string) => void
}

export class CallbackSender {
  readonly #options: CallbackSenderOptions
  readonly #told = new Map<string, { stop: AbortController; ended: Promise<void> }>()
  readonly #slots = new Semaphore(MAX_CALLBACKS)

  constructor(options: CallbackSenderOptions) {
    this.#options = options
  }

  /**
   * @param job - finished, with a pending callback
   * @param onStep - keeps what became of an attempt
   */
  tell(job: Job, onStep: (facts: CallbackFacts) => Promise<void>): void {
    if (this.#told.has(job.id)) return
    const stop = new AbortController()
    const ended = this.#tell(job, onStep, stop.signal)
      .catch(error => this.#options.onLog('warn', `callback of job ${job.id}: ${(error as Error).message}`))
      .finally(() => this.#told.delete(job.id))
    this.#told.set(job.id, { stop, ended })
  }

  /** Gives up telling of a job. */
  cancel(id: string): void {
    this.#told.get(id)?.stop.abort()
  }

  /** Gives up for now: what is pending is told after the next start. */
  async close(): Promise<void> {
    const all = [...this.#told.values()]
    for (const { stop } of all) stop.abort()
    await Promise.all(all.map(({ ended }) => ended))
  }

  async #tell(job: Job, onStep: (facts: CallbackFacts) => Promise<void>, signal: AbortSignal): Promise<void> {
    for (let attempts = (job.callback?.attempts ?? 0) + 1; !signal.aborted; attempts++) {
      const problem = await this.#send(job, signal)
      if (signal.aborted) return
      if (problem === null) return onStep({ state: 'delivered', attempts, lastError: null })
      const isLast = attempts >= CALLBACK_ATTEMPTS
      await onStep({ state: isLast ? 'failed' : 'pending', attempts, lastError: problem })
      // The first failure is logged at once: a wrong URL or setting is seen before the last attempt, minutes later.
      if (attempts === 1 || isLast) this.#warn(job, attempts, isLast, problem)
      if (isLast) return
      await this.#pause(backoffDelay(attempts - 1, { first: CALLBACK_DELAY_MS, factor: 4 }), signal)
    }
  }

  #warn({ id, key }: Job, attempts: number, isLast: boolean, problem: string): void {
    const next = isLast ? 'giving up' : `retrying up to ${CALLBACK_ATTEMPTS - attempts} times`
    const count = `attempt ${attempts} of ${CALLBACK_ATTEMPTS}`
    this.#options.onLog('warn', `callback of job ${id} (${key}) failed, ${count}, ${next}: ${problem}`)
  }

  #send(job: Job, signal: AbortSignal): Promise<string | null> {
    const { network, secret, store, functionOf } = this.#options
    return this.#slots.run(async () => {
      if (signal.aborted) return null
      const request = await readRequest(job, store)
      const body = await toPayload(job, store)
      const edge = functionOf(job.key)?.policy.edge ?? null
      return await sendCallback(network, { jobId: job.id, url: request.callbackUrl!, body, secret }, edge, signal)
    })
  }

  #pause(ms: number, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options.network
    return new Promise(resolve => {
      if (signal.aborted) return resolve()
      const end = () => {
        clock.clearTimeout(timer)
        signal.removeEventListener('abort', end)
        resolve()
      }
      const timer = clock.setTimeout(end, ms)
      timer.unref?.()
      signal.addEventListener('abort', end, { once: true })
    })
  }
}

/** `{ job, result }` as JSON; `result` is null when there is none. */
async function toPayload(job: Job, store: JobStore): Promise<Buffer> {
  const record = toJobRecord(job, await readRequest(job, store))
  return Buffer.from(JSON.stringify({ job: record, result: await toShortResult(job, store) }))
}

async function toShortResult(job: Job, store: JobStore): Promise<Record<string, unknown> | null> {
  const result = await openResult(job, store)
  if (result === null) return null
  const { status, headers, bytes, isText, truncated, latencyMs } = result
  const facts = { status, headers: toHeaderObject(headers), bytes, truncated, latency_ms: latencyMs }
  if (bytes > CALLBACK_RESULT_BYTES) {
    await result.body.return()
    return { ...facts, omitted: true }
  }
  const pieces: Buffer[] = []
  for await (const piece of result.body) pieces.push(piece)
  const body = Buffer.concat(pieces)
  if (isText) return { ...facts, is_base64: false, body: body.toString('utf8') }
  return { ...facts, is_base64: true, body_base64: body.toString('base64') }
}

/** Headers by lower-case name; a repeated one is a list. */
export function toHeaderObject(headers: readonly string[]): Record<string, string | string[]> {
  const object: Record<string, string | string[]> = Object.create(null)
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const name = headers[i]!.toLowerCase()
    const value = headers[i + 1]!
    const known = object[name]
    object[name] = known === undefined ? value : Array.isArray(known) ? [...known, value] : [known, value]
  }
  return object
}
