/**
 * What happens in a gateway as server-sent events, for those who follow it. Owner: page observe/event-feed.
 *
 * A follower costs something only while there is one: the gateway's events are listened to from the first follower who
 * wants them until a while after the last, so that one whose connection broke finds what it missed. Each event is made
 * into bytes once, for all.
 */

import type { Clock } from '../core/clock.ts'
import { escapeUnsafe } from '../core/text.ts'
import type { BuildRecord, EventName, GatewayEvents } from './events.ts'

/** Followers at once; with one more the oldest ends. */
export const MAX_FOLLOWERS = 32
/** Bytes that wait for a slow follower; one that is behind further is dropped. */
export const MAX_WAITING_BYTES = 512 * 1024
/** Bytes of the newest events that are kept for followers that come back. */
export const KEPT_BYTES = 256 * 1024
/** Milliseconds for which events are kept after the last follower left. */
export const KEPT_AFTER_MS = 30_000
/** Milliseconds between signs of life: proxies give up connections on which nothing moves. */
export const HEARTBEAT_MS = 15_000
/** Milliseconds after which a stream ends, so that the next one is asked again whether it may. */
export const MAX_FOLLOW_MS = 15 * 60_000
/** Milliseconds after which a client that lost its stream comes back. */
const RETRY_MS = 2000
/** Bytes of one event; the texts of a larger one are cut. */
const MAX_EVENT_BYTES = 64 * 1024
/** Characters that are left of a text in an event that is too large, first try and last. */
const CUT_CHARS = [4096, 256]

const HEARTBEAT = Buffer.from(':\n\n')

/** Why a follower gets nothing more. */
export type EndReason = 'closed' | 'slow' | 'renew'

/** Where a follower's events go. */
interface FollowerSink {
  /** Takes bytes; false asks for a pause until `Following.resume`. */
  write(bytes: Buffer): boolean
  /** Nothing more comes. */
  end(reason: EndReason): void
}

interface Kept {
  seq: number
  name: EventName
  bytes: Buffer
}

interface EventFeedOptions {
  clock: Clock
  events: Pick<GatewayEvents, 'on'>
  /** Builds that go on. */
  builds: () => Iterable<BuildRecord>
  /** A short random word, different for every gateway and start. */
  id: string
}

/** One follower, as its opener sees it. */
export interface Following {
  /** The sink takes bytes again. */
  resume(): void
  /** The client left. */
  stop(): void
  /** Ends the stream from this side. */
  end(reason: EndReason): void
}

export class EventFeed {
  readonly #options: EventFeedOptions
  readonly #followers = new Set<Follower>()
  /** Listened to: how to stop, and the number of the last event before. */
  readonly #listening = new Map<EventName, { stop: () => void; since: number }>()
  #kept: Kept[] = []
  #keptBytes = 0
  /** Number of the newest event, and of the newest that was thrown away. */
  #seq = 0
  #forgotten = 0
  #heartbeat: NodeJS.Timeout | null = null
  #letGo: NodeJS.Timeout | null = null
  #isClosed = false

  constructor(options: EventFeedOptions) {
    this.#options = options
  }

  /**
   * Sends events of some names from now on, and before them what came since `lastId`, as far as it is kept.
   * @param lastId - the last id that the follower has seen; null for none
   * @returns null when the gateway stops
   */
  follow(names: ReadonlySet<EventName>, lastId: string | null, sink: FollowerSink): Following | null {
    if (this.#isClosed) return null
    const [oldest] = this.#followers
    // Its reader may be long gone without a word.
    if (oldest !== undefined && this.#followers.size >= MAX_FOLLOWERS) oldest.end('renew')
    const { clock } = this.#options
    const missed = lastId === null ? [] : this.#since(lastId, names)
    for (const name of names) this.#listen(name)
    const follower = new Follower(names, sink, clock.monotonic(), () => this.#leave(follower))
    this.#followers.add(follower)
    if (this.#letGo !== null) clock.clearTimeout(this.#letGo)
    this.#letGo = null
    this.#heartbeat ??= clock.setTimeout(this.#beat, HEARTBEAT_MS)
    // The id alone: who loses the stream before its first event comes back with it.
    follower.push(Buffer.from(`retry: ${RETRY_MS}\nid: ${this.#options.id}-${this.#seq}\n\n`))
    if (missed === null) follower.push(toBytes('gap', null, { last_event_id: lastId }))
    else for (const { bytes } of missed) follower.push(bytes)
    if (names.has('build') && !missed?.length)
      for (const build of this.#options.builds()) follower.push(toBytes('build', null, build))
    return follower
  }

  /** Ends every stream; later calls of `follow` return null. */
  close(): void {
    this.#isClosed = true
    for (const follower of [...this.#followers]) follower.end('closed')
    if (this.#letGo !== null) this.#options.clock.clearTimeout(this.#letGo)
    this.#letGo = null
    this.#forget()
  }

  /** Kept events after an id, in order; null when some of them are not kept, or that is unknown. */
  #since(lastId: string, names: ReadonlySet<EventName>): readonly Kept[] | null {
    const [, id, digits] = /^(.+)-(\d{1,15})$/.exec(lastId) ?? []
    const last = Number(digits)
    if (id !== this.#options.id || last > this.#seq || last < this.#forgotten) return null
    for (const name of names) {
      const listening = this.#listening.get(name)
      if (listening === undefined || listening.since > last) return null
    }
    return this.#kept.filter(({ seq, name }) => seq > last && names.has(name))
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
    const behind: Follower[] = []
    for (const follower of this.#followers) if (follower.names.has(name) && !follower.push(bytes)) behind.push(follower)
    // Their end is an event itself, which the others get after this one.
    for (const follower of behind) follower.end('slow')
  }

  #keep(event: Kept): void {
    this.#kept.push(event)
    this.#keptBytes += event.bytes.length
    let first = 0
    while (this.#keptBytes > KEPT_BYTES) {
      const { seq, bytes } = this.#kept[first]!
      this.#forgotten = seq
      this.#keptBytes -= bytes.length
      first += 1
    }
    // Taking the first off a long list moves all others: done for many at once.
    if (first > 0) this.#kept = this.#kept.slice(first)
  }

  #leave(follower: Follower): void {
    this.#followers.delete(follower)
    const { clock } = this.#options
    if (this.#followers.size > 0 && [...this.#listening.keys()].every(name => this.#isWanted(name))) return
    if (this.#followers.size === 0 && this.#heartbeat !== null) {
      clock.clearTimeout(this.#heartbeat)
      this.#heartbeat = null
    }
    if (this.#isClosed) return
    if (this.#letGo !== null) clock.clearTimeout(this.#letGo)
    this.#letGo = clock.setTimeout(() => this.#forget(), KEPT_AFTER_MS)
  }

  #isWanted(name: EventName): boolean {
    for (const follower of this.#followers) if (follower.names.has(name)) return true
    return false
  }

  /** Stops listening to events without a follower. */
  #forget(): void {
    this.#letGo = null
    for (const [name, { stop }] of this.#listening) {
      if (this.#isWanted(name)) continue
      stop()
      this.#listening.delete(name)
    }
    if (this.#listening.size > 0) return
    this.#kept = []
    this.#keptBytes = 0
    this.#forgotten = this.#seq
  }

  readonly #beat = (): void => {
    const { clock } = this.#options
    this.#heartbeat = clock.setTimeout(this.#beat, HEARTBEAT_MS)
    for (const follower of [...this.#followers]) {
      if (clock.monotonic() - follower.begunAt >= MAX_FOLLOW_MS) follower.end('renew')
      else follower.push(HEARTBEAT)
    }
  }
}

class Follower implements Following {
  readonly names: ReadonlySet<EventName>
  /** Monotonic ms. */
  readonly begunAt: number
  readonly #sink: FollowerSink
  readonly #onEnd: () => void
  #waiting: Buffer[] = []
  #waitingBytes = 0
  #isPaused = false
  #isScheduled = false
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
    if (!this.#isPaused && !this.#isScheduled) {
      // What happens in one turn of the loop goes out in one write.
      this.#isScheduled = true
      setImmediate(() => {
        this.#isScheduled = false
        this.#flush()
      })
    }
    return true
  }

  resume(): void {
    this.#isPaused = false
    this.#flush()
  }

  stop(): void {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#waiting = []
    this.#onEnd()
  }

  end(reason: EndReason): void {
    if (this.#isEnded) return
    if (reason !== 'slow') this.#flush()
    this.stop()
    this.#sink.end(reason)
  }

  #flush(): void {
    if (this.#isEnded || this.#isPaused || this.#waiting.length === 0) return
    const bytes = this.#waiting.length === 1 ? this.#waiting[0]! : Buffer.concat(this.#waiting, this.#waitingBytes)
    this.#waiting = []
    this.#waitingBytes = 0
    if (!this.#sink.write(bytes)) this.#isPaused = true
  }
}

/** One event on the wire. */
function toBytes(name: string, id: string | null, record: object): Buffer {
  let data = JSON.stringify(record)
  for (const chars of CUT_CHARS) {
    // A character is three bytes at most in UTF-8, and so are the halves of longer ones.
    if (data.length * 3 <= MAX_EVENT_BYTES || Buffer.byteLength(data) <= MAX_EVENT_BYTES) break
    data = JSON.stringify(record, (_key, value: unknown) => cut(value, chars))
  }
  return Buffer.from(`${id === null ? '' : `id: ${id}\n`}event: ${name}\ndata: ${escapeUnsafe(data)}\n\n`)
}

function cut(value: unknown, chars: number): unknown {
  return typeof value === 'string' && value.length > chars ? `${value.slice(0, chars)}... (cut)` : value
}
