/**
 * Questions of one gateway to another one, through the store. Spec: page fleet/gateway-requests.
 *
 *   asking gateway ─► channel of the other gateway ─► its handler for the topic ─► channel of the asking gateway
 */

import { randomBytes } from 'node:crypto'
import { type Clock, Timer } from '../core/clock.ts'
import { ERROR_STATUS, type ErrorCode, GatewayError, toGatewayError } from '../core/errors.ts'
import { isObject, parseObject } from '../core/json.ts'
import type { Store } from './fleet-store.ts'

/** Milliseconds between two looks whether the other gateway is still there. */
const LOOK_MS = 1000

/** What can be asked: to run a schedule by its key, and the history of a window. Each is a field of the message. */
const TOPICS = ['run', 'history'] as const
type Topic = (typeof TOPICS)[number]

/** A JSON object. */
export type GatewayReply = Readonly<Record<string, unknown>>
type Answer = (value: string) => Promise<GatewayReply>

interface GatewayRequestsOptions {
  store: Store
  clock: Clock
  /** Of this gateway. */
  id: string
  /** False when a gateway has ended. */
  isThere: (id: string) => boolean
}

export class GatewayRequests {
  readonly #options: GatewayRequestsOptions
  /** By id of the request. */
  readonly #pending = new Map<string, (outcome: GatewayReply | GatewayError) => void>()
  readonly #answers = new Map<Topic, Answer>()

  constructor(options: GatewayRequestsOptions) {
    this.#options = options
  }

  /** Answers questions of a topic from now on. */
  serve(topic: Topic, answer: Answer): void {
    const { store, id } = this.#options
    if (this.#answers.size === 0) void store.listen(this.#channelOf(id), text => this.#receive(parseObject(text)))
    this.#answers.set(topic, answer)
  }

  /** @throws GatewayError of the other gateway; RUNTIME_DOWN or TIMEOUT when it does not answer */
  async ask(gateway: string, topic: Topic, value: string, timeoutMs: number): Promise<GatewayReply> {
    const { store, clock, id, isThere } = this.#options
    const request = randomBytes(16).toString('hex')
    const [alive, late] = [new Timer(clock, true), new Timer(clock, true)]
    const answered = new Promise<GatewayReply | GatewayError>(resolve => this.#pending.set(request, resolve))
    const fail = (code: ErrorCode, why: string): void => this.#pending.get(request)?.(new GatewayError(code, why))
    try {
      const message = JSON.stringify({ from: id, request, [topic]: value })
      const receivers = await store.ask(redis => redis.publish(this.#channelOf(gateway), message))
      // A node of a Cluster counts only those that are connected to itself.
      if (receivers === 0 && !store.isCluster) fail('RUNTIME_DOWN', `gateway ${gateway} cannot be reached`)
      alive.repeat(LOOK_MS, () => {
        if (isThere(gateway)) return
        fail('RUNTIME_DOWN', `gateway ${gateway} ended before it replied: what it did is not known`)
      })
      late.set(timeoutMs, () => fail('TIMEOUT', `gateway ${gateway} did not reply within ${timeoutMs} ms`))
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
    this.#answers.clear()
    this.#options.store.ignore(this.#channelOf(this.#options.id))
    for (const end of this.#pending.values()) end(new GatewayError('SHUTTING_DOWN', 'gateway is shutting down'))
  }

  /** @param message - of another gateway, or of any program that reaches the store */
  #receive(message: Readonly<Record<string, unknown>> | null): void {
    const { from, request, reply, error } = message ?? {}
    if (typeof request !== 'string') return
    const topic = TOPICS.find(name => typeof message?.[name] === 'string')
    if (topic !== undefined && typeof from === 'string')
      void this.#answer(from, request, this.#answers.get(topic), message?.[topic] as string)
    else if (isObject(reply)) this.#pending.get(request)?.(reply)
    else if (isObject(error)) this.#pending.get(request)?.(toError(error))
  }

  async #answer(from: string, request: string, answer: Answer | undefined, value: string): Promise<void> {
    if (answer === undefined) return
    const outcome = await answer(value).then(
      reply => ({ reply }),
      thrown => {
        const { code, message } = toGatewayError(thrown)
        return { error: { code, message } }
      },
    )
    const { store } = this.#options
    const text = JSON.stringify({ request, ...outcome })
    // Without the store the asking gateway gives up by itself.
    await store.ask(redis => redis.publish(this.#channelOf(from), text)).catch(() => {})
  }

  #channelOf(gateway: string): string {
    return this.#options.store.key('to', gateway)
  }
}

function toError({ code, message }: Readonly<Record<string, unknown>>): GatewayError {
  const known = typeof code === 'string' && Object.hasOwn(ERROR_STATUS, code) ? (code as ErrorCode) : 'INTERNAL'
  return new GatewayError(known, typeof message === 'string' ? message : 'another gateway failed')
}
