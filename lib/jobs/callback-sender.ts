/**
 * Posts the end of each finished job to its `callback_url`, and retries. Spec: page jobs/callback-sender.
 *
 *   send ─► waits for a slot ─► POST ─► 2xx: delivered
 *              ▲                  └─► else: kept as one more attempt ─(1 s, 4 s, 16 s, 64 s)─┐
 *              └─────────────────────────────────────────────────────────────────────────────┘
 */

import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import type { EdgePolicy, FunctionVersion } from '../core/catalog.ts'
import { backoffDelay, Timer, within } from '../core/clock.ts'
import { toHeaderRecord } from '../core/http-text.ts'
import { Semaphore } from '../core/semaphore.ts'
import type { ResolvedAddress } from '../edge/addresses.ts'
import type { EdgeNetwork } from '../edge/connections.ts'
import type { UpstreamRequest } from '../edge/upstream-connection.ts'
import { toTransferError } from '../edge/transfer.ts'
import { type EdgeRequest, toEdgeRequest, toEdgeRules } from '../edge/target.ts'
import { openResult } from './job-result.ts'
import { type CallbackFacts, type Job, type JobParts, readRequest, readWhole, toJobRecord } from './job.ts'

export const CALLBACK_ATTEMPTS = 5
/** Milliseconds before the second attempt; each further wait is four times as long. */
export const CALLBACK_DELAY_MS = 1000
/** Requests at once. */
const MAX_CALLBACKS = 4
/** Bytes of a result that go along; of a longer one only its facts do. */
export const CALLBACK_RESULT_BYTES = 1024 * 1024

interface CallbackSenderOptions {
  network: EdgeNetwork
  /** Key of the signature, null to send callbacks unsigned. */
  secret: string | null
  store: Pick<JobParts, 'read'>
  /** The function in force now. */
  functionOf: (key: string) => FunctionVersion | null
  onLog: (level: 'warn', message: string) => void
}

export class CallbackSender {
  readonly #options: CallbackSenderOptions
  readonly #running = new Map<string, { stop: AbortController; ended: Promise<void> }>()
  readonly #slots = new Semaphore(MAX_CALLBACKS)

  constructor(options: CallbackSenderOptions) {
    this.#options = options
  }

  /**
   * @param job - finished, with a pending callback
   * @param onStep - keeps the outcome of an attempt
   */
  send(job: Job, onStep: (facts: CallbackFacts) => Promise<void>): void {
    if (this.#running.has(job.id)) return
    const stop = new AbortController()
    const ended = this.#deliver(job, onStep, stop.signal)
      .catch(error => this.#options.onLog('warn', `callback of job ${job.id}: ${(error as Error).message}`))
      .finally(() => this.#running.delete(job.id))
    this.#running.set(job.id, { stop, ended })
  }

  /** Gives up on a job. */
  cancel(id: string): void {
    this.#running.get(id)?.stop.abort()
  }

  /** Stops; pending callbacks are sent after the next start. */
  async close(): Promise<void> {
    const all = [...this.#running.values()]
    for (const { stop } of all) stop.abort()
    await Promise.all(all.map(({ ended }) => ended))
  }

  async #deliver(job: Job, onStep: (facts: CallbackFacts) => Promise<void>, signal: AbortSignal): Promise<void> {
    const aborted = once(signal, 'abort')
    for (let attempts = (job.callback?.attempts ?? 0) + 1; !signal.aborted; attempts++) {
      const problem = await this.#slots.run(() => (signal.aborted ? null : this.#post(job, signal)))
      if (signal.aborted) return
      if (problem === null) return onStep({ state: 'delivered', attempts, lastError: null })
      const isLast = attempts >= CALLBACK_ATTEMPTS
      await onStep({ state: isLast ? 'failed' : 'pending', attempts, lastError: problem })
      // The first failure is logged at once: a wrong URL or setting is seen before the last attempt, minutes later.
      if (attempts === 1 || isLast) {
        const next = isLast ? 'giving up' : `retrying up to ${CALLBACK_ATTEMPTS - attempts} times`
        const count = `attempt ${attempts} of ${CALLBACK_ATTEMPTS}`
        this.#options.onLog('warn', `callback of job ${job.id} (${job.key}) failed, ${count}, ${next}: ${problem}`)
      }
      if (isLast) return
      const delayMs = backoffDelay(attempts - 1, { first: CALLBACK_DELAY_MS, factor: 4 })
      await within(this.#options.network.clock, delayMs, aborted, true)
    }
  }

  async #post(job: Job, signal: AbortSignal): Promise<string | null> {
    const { network, secret, store, functionOf } = this.#options
    const request = await readRequest(job, store)
    const record = { job: toJobRecord(job, request), result: await toShortResult(job, store) }
    const message = { jobId: job.id, url: request.callbackUrl!, body: Buffer.from(JSON.stringify(record)), secret }
    return sendCallback(network, message, functionOf(job.key)?.policy.edge ?? null, signal)
  }
}

/** The result as a part of the callback; null when there is none. */
async function toShortResult(job: Job, store: Pick<JobParts, 'read'>): Promise<Record<string, unknown> | null> {
  const result = await openResult(job, store)
  if (result === null) return null
  const { status, headers, bytes, isText, truncated, latencyMs } = result
  const facts = { status, headers: toHeaderRecord(headers), bytes, truncated, latency_ms: latencyMs }
  if (bytes > CALLBACK_RESULT_BYTES) {
    await result.body.return()
    return { ...facts, omitted: true }
  }
  const body = await readWhole(result.body)
  if (isText) return { ...facts, is_base64: false, body: body.toString('utf8') }
  return { ...facts, is_base64: true, body_base64: body.toString('base64') }
}

/** Milliseconds within which a response must have begun. */
export const CALLBACK_TIMEOUT_MS = 10_000

/** The content of a callback. */
interface CallbackMessage {
  readonly jobId: string
  readonly url: string
  readonly body: Buffer
  /** Key of the signature, null for none. */
  readonly secret: string | null
}

/** The policy of a function without one: every public host, nothing private. */
const PUBLIC_ONLY: EdgePolicy = { baseUrl: null, allowHosts: [], allowPrivate: false, maxResponseBytes: 1 }

/**
 * One POST to the `callback_url` of a job under the rules of edge requests: every address of the name is checked and only those
 * are reached, redirects are not followed, certificates are always checked.
 * @param policy - `edge` of the function: its hosts, and whether they may be private; null for none
 * @param signal - gives up
 * @returns null when the response is 2xx, else why the delivery failed and, where a setting decides, which one
 */
export async function sendCallback(
  network: EdgeNetwork,
  { jobId, url, body, secret }: CallbackMessage,
  policy: EdgePolicy | null,
  signal: AbortSignal,
): Promise<string | null> {
  const edge = policy ?? PUBLIC_ONLY
  try {
    const headers = {
      'content-type': 'application/json',
      'user-agent': 'fngw-jobs',
      'x-job-id': jobId,
      ...(secret !== null && { 'x-fn-signature': toSignature(body, secret, network.clock.wall()) }),
    }
    const request = toEdgeRequest({ url, method: 'POST', headers }, toEdgeRules(edge), CALLBACK_TIMEOUT_MS, 'POST')
    const addresses = await network.addresses.of(request.to, edge.allowPrivate)
    signal.throwIfAborted()
    const status = await post(network, request, addresses, body, signal)
    return status >= 200 && status < 300 ? null : `HTTP ${status}`
  } catch (error) {
    return toReason(error)
  }
}

/**
 * The value of `X-Fn-Signature`: `t=<seconds>,v1=<hex>`, where v1 is HMAC-SHA256 of `<seconds>.<body>`. The time is signed too, so
 * that a receiver can refuse a request that is sent again later.
 * @param wall - ms
 */
function toSignature(body: Buffer, secret: string, wall: number): string {
  const seconds = Math.floor(wall / 1000)
  return `t=${seconds},v1=${createHmac('sha256', secret).update(`${seconds}.`).update(body).digest('hex')}`
}

/** @returns the status; the body of the response is not read */
function post(
  network: EdgeNetwork,
  request: EdgeRequest,
  addresses: readonly ResolvedAddress[],
  body: Buffer,
  signal: AbortSignal,
): Promise<number> {
  const timer = new Timer(network.clock)
  let sent: UpstreamRequest | null = null
  let onAbort = (): void => {}
  const status = new Promise<number>((resolve, reject) => {
    onAbort = () => reject(new Error('given up'))
    timer.set(CALLBACK_TIMEOUT_MS, () => reject(new Error('no answer in time')))
    signal.addEventListener('abort', onAbort, { once: true })
    sent = network.connections.send(request, [], addresses, body, 'none', {
      onHead: ({ status }) => (status === 101 ? reject(new Error('asked for another protocol')) : resolve(status)),
      onPiece: () => {},
      onRead: () => {},
      onEnd: () => {},
      onError: error => reject(toTransferError(error)),
    })
  })
  return status.finally(() => {
    timer.clear()
    signal.removeEventListener('abort', onAbort)
    sent?.destroy()
  })
}

/** Refusals of the gateway that a field of the function's config allows. */
const HINTS: Readonly<Record<string, string>> = {
  'private host not allowed':
    'set "edge": {"allow_private": true} in the function\'s fn.config.json to allow private addresses',
  'host not in allowlist': "add the host to edge.allow_hosts in the function's fn.config.json",
}

/** The words of edge failures, without the part that names the proxy. */
function toReason(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  const reason = message
    .replace(/^edge proxy failed: (?:proxy (?:request failed|denied): )?/, '')
    .replaceAll('proxy.url', 'callback_url')
  const hint = HINTS[reason]
  return hint === undefined ? reason : `${reason}: ${hint}`
}
