/** A client's connection: its open exchanges, oldest first, and what is remembered of its last request. Owner: §4.1. */

import type { ByteBudget } from '../core/byte-pool.ts'
import { MAX_UNREAD_BYTES } from '../core/limits.ts'
import { toPlainAddress } from '../invocation/client-address.ts'
import type { Exchange, ExchangeConnection, HttpSocket } from './exchange.ts'
import type { RequestHead } from '../invocation/forwarded-headers.ts'
import type { RequestMemo } from './request-memo.ts'

/** Unanswered requests of one connection from which on nothing more is read from it, until half of them are answered. */
export const MAX_OPEN_EXCHANGES = 64
/** Requests of one connection after which the others get their turn. */
export const REQUESTS_PER_TURN = 256

/** Bytes that a request without a response counts as: those of the response before it, with a minimum. */
const EXPECTED_BYTES = { min: 1024, first: 32 * 1024 } as const

/** Unanswered requests of a connection until its first response shows its size. */
export const FIRST_OPEN_EXCHANGES = MAX_UNREAD_BYTES / EXPECTED_BYTES.first

const CONNECTION = Symbol('fngw.connection')

/** What is open on one client connection. Kept on the socket, so that it costs no lookup and ends with it. */
export class ClientConnection implements ExchangeConnection {
  readonly address: string
  /** Oldest open exchange; more than one when the client pipelines. */
  first: Exchange | null = null
  /** The one that began last, open or not: a broken connection closes after its answer. */
  latest: Exchange | null = null
  /** Head and target of its last request: clients often send the same ones again. */
  lastHead: RequestHead | null = null
  lastTarget: string | undefined = undefined
  /** True when its newest request has the head and target of the one before. */
  isRepeating = false
  /** What became of the last request that came twice in a row: one that comes once is not worth remembering. */
  memo: RequestMemo | null = null
  /** True once an answer said that it is the last: what the client sends after that is no request. */
  closing = false
  /** True for a connection beyond the limit of open files: it serves one request for the gateway's health. */
  isSpare = false

  readonly #socket: HttpSocket
  #last: Exchange | null = null
  /** Open exchanges. */
  #open = 0
  /** Requests begun since others had a turn. */
  #begun = 0
  /** True while nothing is read. */
  #isHeld = false
  #isGuarded = false
  /** Begin requests that came in the same packet as the one that filled the connection: a packet is always parsed whole. */
  #waiting: (() => void)[] = []
  #isTurnPlanned = false
  /** Bytes of responses that are held for the client, and the budget in which they count. */
  #unread = 0
  #budget: ByteBudget | null = null
  /** Bytes of the last response. */
  #expected: number = EXPECTED_BYTES.first
  /** Waits for the client to read something, and what is called when it does not. */
  #watches = 0
  #onStall: (() => void) | null = null
  #isClosed = false

  constructor(socket: HttpSocket) {
    this.#socket = socket
    this.address = toPlainAddress(socket.remoteAddress)
    // One listener per connection instead of one per request.
    socket.once('close', () => this.#onClose())
  }

  /** True when it takes no further request: give it to `wait`. */
  get isFull(): boolean {
    if (!this.#isHeld && this.#isBehind) this.#hold()
    return this.#isHeld
  }

  /**
   * True when the client sends requests without reading the responses before. What is open counts too: its response comes
   * when others that the client has not read may already be here.
   */
  get #isBehind(): boolean {
    const written = this.#socket.writableLength ?? 0
    const open = this.#open * Math.max(this.#expected, EXPECTED_BYTES.min)
    return open + Math.max(this.#unread, written) >= MAX_UNREAD_BYTES
  }

  /** True when requests wait that were not begun. */
  get hasWaiting(): boolean {
    return this.#waiting.length > 0
  }

  /** @param begin - called when others were answered, in order; never when the connection ends before */
  wait(begin: () => void): void {
    this.#waiting.push(begin)
  }

  /** Requests that wait are not begun any more. */
  dropWaiting(): void {
    this.#waiting = []
  }

  /** Takes note of a request for the comparison with the next one. */
  note(head: RequestHead, target: string | undefined): void {
    this.isRepeating = head === this.lastHead && target === this.lastTarget
    this.lastHead = head
    this.lastTarget = target
  }

  add(exchange: Exchange): void {
    this.latest = exchange
    const last = this.#last
    exchange.previousOpen = last
    if (last === null) this.first = exchange
    else last.nextOpen = exchange
    this.#last = exchange
    this.#open += 1
    this.#begun += 1
    if (this.#begun === REQUESTS_PER_TURN) this.#giveTurn()
    if (this.#open >= MAX_OPEN_EXCHANGES) this.#hold()
  }

  remove(exchange: Exchange): void {
    const { previousOpen, nextOpen } = exchange
    if (previousOpen === null && this.first !== exchange) return
    if (previousOpen === null) this.first = nextOpen
    else previousOpen.nextOpen = nextOpen
    if (nextOpen === null) this.#last = previousOpen
    else nextOpen.previousOpen = previousOpen
    exchange.previousOpen = null
    exchange.nextOpen = null
    this.#open -= 1
    this.#expected = exchange.bytesOut
    if (this.#isHeld) this.#letGo()
  }

  hold(bytes: number, budget: ByteBudget): void {
    if (this.#isClosed) return
    this.#budget = budget
    this.#unread += bytes
    budget.used += bytes
  }

  release(bytes: number): void {
    if (this.#isClosed || this.#budget === null) return
    this.#unread -= bytes
    this.#budget.used -= bytes
    if (this.#isHeld) this.#letGo()
  }

  watch(ms: number, onStall: () => void): void {
    if (this.#onStall === null) this.#socket.on?.('timeout', () => this.#watches > 0 && this.#onStall?.())
    this.#onStall = onStall
    this.#watches += 1
    this.#socket.setTimeout(ms)
  }

  unwatch(): void {
    if (this.#watches === 0) return
    this.#watches -= 1
    if (this.#watches === 0) this.#socket.setTimeout(0)
  }

  /**
   * Stops reading: a client that sends on without waiting for answers would fill memory with what is open and keep the
   * gateway from everybody else. What it has sent already waits in its system's buffers and ours.
   */
  #hold(): void {
    this.#isHeld = true
    if (!this.#isGuarded) {
      this.#isGuarded = true
      // Whoever begins to read a request's body resumes the socket for it.
      this.#socket.on?.('resume', () => {
        if (this.#isHeld) this.#socket.pause?.()
      })
      this.#socket.on?.('drain', () => {
        if (this.#isHeld) this.#letGo()
      })
    }
    this.#socket.pause?.()
  }

  #letGo(): void {
    if (this.#open > MAX_OPEN_EXCHANGES / 2 || this.#begun >= REQUESTS_PER_TURN || this.#isBehind) return
    if (this.#waiting.length > 0) {
      // Not at once: whoever is just being answered is not through yet.
      if (!this.#isTurnPlanned) setImmediate(() => this.#beginWaiting())
      this.#isTurnPlanned = true
      return
    }
    this.#isHeld = false
    this.#socket.resume?.()
  }

  #beginWaiting(): void {
    this.#isTurnPlanned = false
    const waiting = this.#waiting
    this.#isHeld = false
    let begun = 0
    while (begun < waiting.length && !this.isFull) waiting[begun++]!()
    // One that ended the connection has dropped the others.
    if (this.#waiting === waiting) this.#waiting = waiting.slice(begun)
    if (!this.#isHeld) {
      this.#isHeld = true
      this.#letGo()
    }
  }

  /** Answers that are at hand at once leave nothing open, so many of them would still take a whole turn of the loop. */
  #giveTurn(): void {
    this.#hold()
    setImmediate(() => {
      this.#begun = 0
      this.#letGo()
    })
  }

  #onClose(): void {
    this.dropWaiting()
    this.release(this.#unread)
    this.#isClosed = true
    while (this.first !== null) {
      const exchange = this.first
      this.remove(exchange)
      exchange.onDisconnect()
    }
  }
}

/** The open exchanges of a socket; attached at its first request. */
export function connectionOf(socket: HttpSocket): ClientConnection {
  const carrier = socket as HttpSocket & { [CONNECTION]?: ClientConnection }
  carrier[CONNECTION] ??= new ClientConnection(socket)
  return carrier[CONNECTION]
}
