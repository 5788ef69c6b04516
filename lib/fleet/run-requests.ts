/**
 * A schedule that is to run now, asked for at a gateway that does not run it: the gateway with its lease runs it and sends the outcome
 * back. Spec: page fleet/run-requests.
 *
 *   asking gateway ─► channel of the gateway with the lease ─► run ─► channel of the asking gateway
 */

import { randomBytes } from 'node:crypto'
import { type Clock, Timer } from '../core/clock.ts'
import { ERROR_STATUS, type ErrorCode, GatewayError, toGatewayError } from '../core/errors.ts'
import { isObject, parseObject } from '../core/json.ts'
import type { Store } from './fleet-store.ts'

/** Milliseconds that a run may take beyond the time limit of its function: it may wait for a slot. */
const WAIT_MS = 30_000
/** Milliseconds between two looks whether the other gateway is still there. */
const LOOK_MS = 1000

/** What the endpoint of the gateway that ran it would respond with. */
export type RunReply = Readonly<Record<string, unknown>>

interface RunRequestsOptions {
  store: Store
  clock: Clock
  /** Of this gateway. */
  id: string
  /** False when a gateway has ended. */
  isThere: (id: string) => boolean
}

export class RunRequests {
  readonly #options: RunRequestsOptions
  /** By id of the request. */
  readonly #pending = new Map<string, (outcome: RunReply | GatewayError) => void>()
  #run: ((key: string) => Promise<RunReply>) | null = null

  constructor(options: RunRequestsOptions) {
    this.#options = options
  }

  /** Answers from now on. @param run - runs a schedule of this gateway */
  serve(run: (key: string) => Promise<RunReply>): void {
    this.#run = run
    const { store, id } = this.#options
    void store.listen(this.#channelOf(id), text => this.#receive(parseObject(text)))
  }

  /** @throws GatewayError of the other gateway; RUNTIME_DOWN or TIMEOUT when it does not answer */
  async ask(gateway: string, key: string, timeoutMs: number): Promise<RunReply> {
    const { store, clock, id, isThere } = this.#options
    const request = randomBytes(16).toString('hex')
    const [alive, late] = [new Timer(clock, true), new Timer(clock, true)]
    const answered = new Promise<RunReply | GatewayError>(resolve => this.#pending.set(request, resolve))
    const fail = (code: ErrorCode, why: string): void => this.#pending.get(request)?.(new GatewayError(code, why))
    try {
      const message = JSON.stringify({ from: id, request, run: key })
      const receivers = await store.ask(redis => redis.publish(this.#channelOf(gateway), message))
      if (receivers === 0) fail('RUNTIME_DOWN', `gateway ${gateway}, which runs this schedule, cannot be reached`)
      alive.repeat(LOOK_MS, () => {
        if (isThere(gateway)) return
        fail('RUNTIME_DOWN', `gateway ${gateway} has ended; whether the run took place is not known`)
      })
      late.set(timeoutMs + WAIT_MS, () => fail('TIMEOUT', `gateway ${gateway} does not report the end of the run`))
      const outcome = await answered
      if (outcome instanceof GatewayError) throw outcome
      return outcome
    } finally {
      alive.clear()
      late.clear()
      this.#pending.delete(request)
    }
  }

  close(): void {
    this.#run = null
    this.#options.store.ignore(this.#channelOf(this.#options.id))
    for (const end of this.#pending.values()) end(new GatewayError('SHUTTING_DOWN', 'gateway is shutting down'))
  }

  /** @param message - of another gateway, or of any program that reaches the store */
  #receive(message: Readonly<Record<string, unknown>> | null): void {
    const { from, request, run, reply, error } = message ?? {}
    if (typeof request !== 'string') return
    if (typeof run === 'string' && typeof from === 'string') void this.#answer(from, request, run)
    else if (isObject(reply)) this.#pending.get(request)?.(reply)
    else if (isObject(error)) this.#pending.get(request)?.(toError(error))
  }

  async #answer(from: string, request: string, key: string): Promise<void> {
    const run = this.#run
    if (run === null) return
    const answer = await run(key).then(
      reply => ({ reply }),
      thrown => {
        const { code, message } = toGatewayError(thrown)
        return { error: { code, message } }
      },
    )
    const { store } = this.#options
    const text = JSON.stringify({ request, ...answer })
    // Without the store the asking gateway gives up by itself.
    await store.ask(redis => redis.publish(this.#channelOf(from), text)).catch(() => {})
  }

  #channelOf(gateway: string): string {
    return this.#options.store.key('to', gateway)
  }
}

function toError({ code, message }: Readonly<Record<string, unknown>>): GatewayError {
  const known = typeof code === 'string' && Object.hasOwn(ERROR_STATUS, code) ? (code as ErrorCode) : 'INTERNAL'
  return new GatewayError(known, typeof message === 'string' ? message : 'the run failed at another gateway')
}
