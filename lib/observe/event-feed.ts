/**
 * Events of a gateway as server-sent events. Owner: page observe/event-feed.
 *
 * The feed listens to the gateway's events from the first follower of them until a while after the last, so that a follower whose
 * connection broke gets the events it missed. Each event is encoded once, for all followers.
 */

import { type Clock, Timer } from '../core/clock.ts'
import { escapeUnsafe } from '../core/text.ts'
import type { BuildRecord, EventName, GatewayEvents } from './events.ts'

/** Followers at once; one more ends the oldest. */
export const MAX_FOLLOWERS = 32
/** Bytes that wait for a slow follower; with more it is dropped. */
export const MAX_WAITING_BYTES = 512 * 1024
/** Bytes of the newest events in memory, for followers that come back. */
export const KEPT_BYTES = 256 * 1024
/** Milliseconds for which events stay in memory after the last follower left. */
export const KEPT_AFTER_MS = 30_000
/** Milliseconds between comments on an idle stream: proxies close silent connections. */
export const HEARTBEAT_MS = 15_000
/** Milliseconds after which a stream ends, so that access is checked again for the next one. */
export const MAX_FOLLOW_MS = 15 * 60_000
/** Milliseconds after which a client that lost its stream connects again. */
const RETRY_MS = 2000
/** Bytes of one event; the texts of a larger one are cut to these numbers of characters, the second if the first is not enough. */
const MAX_EVENT_BYTES = 64 * 1024
const CUT_CHARS = [4096, 256]

const HEARTBEAT = Buffer.from(':\n\n')

/** The reason for which a stream ended. */
export type EndReason = 'closed' | 'slow' | 'renew'

/** Receives the events of a follower. */
interface FollowerSink {
  /** Takes bytes; false asks for a pause until `Following.resume`. */
  write(bytes: Buffer): boolean
  end(reason: EndReason): void
}

/** One follower, for its opener. */
export type Following = Pick<Follower, 'resume' | 'stop'>

interface EventFeedOptions {
  clock: Clock
  events: Pick<GatewayEvents, 'on'>
  /** Unfinished builds. */
  builds: () => Iterable<BuildRecord>
  /** A short random word, different for every gateway and start. */
  id: string
}

interface KeptEvent {
  seq: number
  name: EventName
  bytes: Buffer
}

export class EventFeed {
  readonly #options: EventFeedOptions
  readonly #followers = new Set<Follower>()
  /** By name of the event: how to stop listening, and the number of the last event before. */
  readonly #listening = new Map<EventName, { stop: () => void; since: number }>()
  #kept: KeptEvent[] = []
  #keptBytes = 0
  /** Number of the newest event, and of the newest that was dropped. */
  #seq = 0
  #dropped = 0
  readonly #heartbeat: Timer
  readonly #forgetting: Timer
  #isClosed = false

  constructor(options: EventFeedOptions) {
    this.#options = options
    this.#heartbeat = new Timer(options.clock)
    this.#forgetting = new Timer(options.clock)
  }

  /**
   * Sends events of some names from now on, and before them the events since `lastId` that are in memory.
   * @param lastId - the last id that the follower has seen; null for none
   * @returns null when the gateway stops
   */
  follow(names: ReadonlySet<EventName>, lastId: string | null, sink: FollowerSink): Following | null {
    if (this.#isClosed) return null
    const [oldest] = this.#followers
    // Its client may have disappeared without closing the connection.
    if (oldest !== undefined && this.#followers.size >= MAX_FOLLOWERS) oldest.end('renew')
    const { clock, id, builds } = this.#options
    const missed = lastId === null ? [] : this.#since(lastId, names)
    for (const name of names) this.#listen(name)
    const follower = new Follower(names, sink, clock.monotonic(), () => this.#leave(follower))
    this.#followers.add(follower)
    this.#forgetting.clear()
    if (!this.#heartbeat.isSet) this.#heartbeat.repeat(HEARTBEAT_MS, () => this.#beat())
    // The id alone, for a client that loses the stream before its first event.
    follower.push(Buffer.from(`retry: ${RETRY_MS}\nid: ${id}-${this.#seq}\n\n`))
    if (missed === null) follower.push(toBytes('gap', null, { last_event_id: lastId }))
    else for (const { bytes } of missed) follower.push(bytes)
    if (names.has('build') && !missed?.length)
      for (const build of builds()) follower.push(toBytes('build', null, build))
    return follower
  }

  /** Ends every stream; later calls of `follow` return null. */
  close(): void {
    this.#isClosed = true
    for (const follower of [...this.#followers]) follower.end('closed')
    this.#forgetting.clear()
    this.#forget()
  }

  /** Events in memory after an id, in order; null when some of them were dropped, or the id is unknown. */
  #since(lastId: string, names: ReadonlySet<EventName>): readonly KeptEvent[] | null {
    const [, id, digits] = /^(.+)-(\d{1,15})$/.exec(lastId) ?? []
    const last = Number(digits)
    if (id !== this.#options.id || last > this.#seq || last < this.#dropped) return null
    const isKnown = [...names].every(name => (this.#listening.get(name)?.since ?? Number.POSITIVE_INFINITY) <= last)
    return isKnown ? this.#kept.filter(({ seq, name }) => seq > last && names.has(name)) : null
  }

  #listen<Name extends EventName>(name: Name): void {
    if (this.#listening.has(name)) return
    const stop = this.#options.events.on(name, record => this.#take(name, record))
    this.#listening.set(name, { stop, since: this.#seq })
  }

  #take(name: EventName, record: object): void {
    this.#seq += 1
    const bytes = toBytes(name, `${this.#options.id}-${this.#seq}`, record)
    this.#keep({ seq: this.#seq, name, bytes })
    const slow = [...this.#followers].filter(follower => follower.names.has(name) && !follower.push(bytes))
    // Their end is an event as well, which the others get after this one.
    for (const follower of slow) follower.end('slow')
  }

  #keep(event: KeptEvent): void {
    this.#kept.push(event)
    this.#keptBytes += event.bytes.length
    while (this.#keptBytes > KEPT_BYTES) {
      const { seq, bytes } = this.#kept.shift()!
      this.#dropped = seq
      this.#keptBytes -= bytes.length
    }
  }

  #leave(follower: Follower): void {
    this.#followers.delete(follower)
    if (this.#followers.size === 0) this.#heartbeat.clear()
    const hasUnwanted = [...this.#listening.keys()].some(name => !this.#isWanted(name))
    if (hasUnwanted && !this.#isClosed) this.#forgetting.set(KEPT_AFTER_MS, () => this.#forget())
  }

  #isWanted(name: EventName): boolean {
    return [...this.#followers].some(({ names }) => names.has(name))
  }

  /** Stops listening to events without a follower. */
  #forget(): void {
    for (const [name, { stop }] of this.#listening) {
      if (this.#isWanted(name)) continue
      stop()
      this.#listening.delete(name)
    }
    if (this.#listening.size > 0) return
    this.#kept = []
    this.#keptBytes = 0
    this.#dropped = this.#seq
  }

  #beat(): void {
    const now = this.#options.clock.monotonic()
    for (const follower of [...this.#followers]) {
      if (now - follower.begunAt >= MAX_FOLLOW_MS) follower.end('renew')
      else follower.push(HEARTBEAT)
    }
  }
}

class Follower {
  readonly names: ReadonlySet<EventName>
  /** Monotonic ms. */
  readonly begunAt: number
  readonly #sink: FollowerSink
  readonly #onEnd: () => void
  #waiting: Buffer[] = []
  #waitingBytes = 0
  #isPaused = false
  #isEnded = false

  constructor(names: ReadonlySet<EventName>, sink: FollowerSink, begunAt: number, onEnd: () => void) {
    this.names = names
    this.#sink = sink
    this.begunAt = begunAt
    this.#onEnd = onEnd
  }

  /** @returns false when too much waits already */
  push(bytes: Buffer): boolean {
    if (this.#isEnded) return true
    if (this.#waitingBytes + bytes.length > MAX_WAITING_BYTES) return false
    this.#waiting.push(bytes)
    this.#waitingBytes += bytes.length
    // Events of one turn of the event loop leave in one write.
    if (!this.#isPaused && this.#waiting.length === 1) setImmediate(() => this.#flush())
    return true
  }

  /** The sink takes bytes again. */
  resume(): void {
    this.#isPaused = false
    this.#flush()
  }

  /** The client left. */
  stop(): void {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#waiting = []
    this.#onEnd()
  }

  /** Ends the stream from this side. */
  end(reason: EndReason): void {
    if (this.#isEnded) return
    if (reason !== 'slow') this.#flush()
    this.stop()
    this.#sink.end(reason)
  }

  #flush(): void {
    if (this.#isEnded || this.#isPaused || this.#waiting.length === 0) return
    const bytes = Buffer.concat(this.#waiting, this.#waitingBytes)
    this.#waiting = []
    this.#waitingBytes = 0
    this.#isPaused = !this.#sink.write(bytes)
  }
}

/** One event as bytes of the stream. */
function toBytes(name: string, id: string | null, record: object): Buffer {
  let data = JSON.stringify(record)
  for (const chars of CUT_CHARS) {
    if (Buffer.byteLength(data) <= MAX_EVENT_BYTES) break
    data = JSON.stringify(record, (_key, value: unknown) => cut(value, chars))
  }
  return Buffer.from(`${id === null ? '' : `id: ${id}\n`}event: ${name}\ndata: ${escapeUnsafe(data)}\n\n`)
}

function cut(value: unknown, chars: number): unknown {
  return typeof value === 'string' && value.length > chars ? `${value.slice(0, chars)}... (cut)` : value
}
