/**
 * A queue of BullMQ that hands tickets to the gateways of a fleet, keeps those that are due later, and gives a ticket to another gateway
 * when its holder has not renewed its lock. What a ticket is for is kept elsewhere and decides: a lost ticket is made again, one too many
 * finds nothing to do. Spec: pages fleet/fleet-jobs and fleet/fleet-runs.
 */

import type { Job, Queue, Worker } from 'bullmq'
import type { Redis } from 'ioredis'
import { type Clock, within } from '../core/clock.ts'
import type { Store } from './fleet-store.ts'

/** Milliseconds for which a ticket is held without renewal. Tickets that were not renewed are looked for twice as often. */
const LOCK_MS = 10_000
/** Events that BullMQ keeps in the store. No gateway reads them. */
const UNREAD_EVENTS = 100
/** Milliseconds for each step of the end. */
const CLOSE_MS = 2000

export type Ticket = Pick<Job, 'id' | 'data' | 'timestamp' | 'attemptsStarted'>

export interface TicketsOptions {
  store: Store
  clock: Clock
  /** Of the queue. */
  name: string
  /** Tickets that this gateway holds at once. */
  concurrency: number
  /** Milliseconds for which it holds a ticket without renewal; LOCK_MS by default. */
  lockMs?: number | undefined
  /** Does what a ticket is for. @returns milliseconds after which it must come again; null when it is of no more use */
  take: (ticket: Ticket) => Promise<number | null>
}

export class Tickets {
  readonly #options: TicketsOptions
  readonly #queue: Queue
  readonly #connection: Redis
  readonly #worker: Worker
  /** Tickets that this gateway holds. */
  readonly #held = new Set<Promise<void>>()

  constructor(options: TicketsOptions, { Queue, Worker, DelayedError }: typeof import('bullmq')) {
    this.#options = options
    const { store, name, concurrency, lockMs = LOCK_MS, take } = options
    const { prefix } = store
    const streams = { events: { maxLen: UNREAD_EVENTS } }
    this.#queue = new Queue(name, { prefix, connection: store.redis, skipWaitingForReady: true, streams })
    this.#connection = store.connectBlocking()
    const hold = async (ticket: Job, token?: string): Promise<void> => {
      const laterMs = await take(ticket)
      if (laterMs === null) return
      await ticket.moveToDelayed(Date.now() + Math.max(1, laterMs), token)
      throw new DelayedError()
    }
    const handle = (ticket: Job, token?: string): Promise<void> => {
      const held = hold(ticket, token)
      const ended = held.catch(() => {}).finally(() => this.#held.delete(ended))
      this.#held.add(ended)
      return held
    }
    this.#worker = new Worker(name, handle, {
      ...{ prefix, concurrency },
      connection: this.#connection,
      autorun: false,
      lockDuration: lockMs,
      stalledInterval: lockMs / 2,
      // What a ticket is for knows how often it was begun.
      maxStalledCount: Number.MAX_SAFE_INTEGER,
      removeOnComplete: { count: 0 },
      removeOnFail: { count: 0 },
    })
    // The connection of the store reports it.
    this.#queue.on('error', () => {})
    this.#worker.on('error', () => {})
  }

  /** Begins to take tickets. */
  start(): void {
    void this.#worker.run().catch(() => {})
  }

  /** Adds a ticket; one with this id that is there already stays as it is. @throws GatewayError while the store is away */
  async add(id: string, data: unknown, delayMs = 0): Promise<void> {
    await this.#options.store.ask(() => this.#queue.add('run', data, { jobId: id, delay: delayMs }))
  }

  /** Deletes a ticket that no gateway holds. @throws GatewayError while the store is away */
  async remove(id: string): Promise<void> {
    await this.#options.store.ask(() => this.#queue.remove(id))
  }

  /** @returns for each id whether there is a ticket. @throws GatewayError while the store is away */
  async has(ids: readonly string[]): Promise<boolean[]> {
    const { store, name } = this.#options
    const found = await store.ask(redis => Promise.all(ids.map(id => redis.exists(store.key(name, id)))))
    return found.map(count => count === 1)
  }

  /** Takes nothing more; what it holds goes on. */
  async pause(): Promise<void> {
    await this.#within(this.#worker.pause(true))
  }

  /** After `pause`: what is held still is left to other gateways. */
  async close(): Promise<void> {
    const isAway = this.#options.store.problem !== null
    await this.#within(Promise.all(this.#held))
    // The commands that end the tickets precede this one.
    await new Promise(setImmediate)
    if (!isAway) await this.#within(this.#connection.ping())
    // It would wait for a handler that does not end.
    const mustForce = isAway || this.#held.size > 0
    await this.#within(Promise.all([this.#worker.close(mustForce), this.#queue.close()]))
  }

  async #within(step: Promise<unknown>): Promise<void> {
    await within(
      this.#options.clock,
      CLOSE_MS,
      step.catch(() => {}),
    )
  }
}
