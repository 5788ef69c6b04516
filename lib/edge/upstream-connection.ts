/**
 * One connection to an upstream: a request at a time goes out, its answer is read where it lies. Only ever to addresses that
 * were checked. Spec: §2.10.
 */

import { connect, type LookupFunction, type NetConnectOpts, type Socket } from 'node:net'
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from 'node:tls'
import { type AnswerHead, AnswerParser, type AnswerSink } from './answer-parser.ts'
import type { ResolvedAddress } from './addresses.ts'

/** Milliseconds for which an idle connection is kept. */
const IDLE_MS = 4000
const READ_BUFFER_BYTES = 64 * 1024

/** Every plain connection is read into this: a read is handled before the next one begins, and what is kept of it is copied. */
const READ_BUFFER = Buffer.allocUnsafeSlow(READ_BUFFER_BYTES)

/** Where a connection leads. */
export interface Upstream {
  readonly isTls: boolean
  /** For a certificate and for messages; it is not looked up. */
  readonly hostname: string
  readonly port: number
  /** Checked. */
  readonly addresses: readonly ResolvedAddress[]
  /** Name that the certificate must bear; empty for an address. */
  readonly servername: string
  /** Authorities to trust instead of the usual ones, PEM. */
  readonly ca: string | null
}

/** Takes the answer of one request. Nothing comes after `onEnd` or `onError`. */
export interface AnswerTaker extends AnswerSink {
  /** One piece from the upstream was handed over, and more of the answer is to come. */
  onRead(): void
  /** The answer cannot be had, or not the rest of it. */
  onError(error: Error): void
}

/** One request as it is sent. */
export interface SentRequest {
  /** Request line and headers. */
  readonly head: string
  readonly body: Buffer
  readonly isHead: boolean
}

/**
 * Over which connection a request may go: any, a kept one only if it is trusted (the request cannot be sent again), or a new one
 * that is closed behind it.
 */
export type Reuse = 'any' | 'trusted' | 'none'

/** A request and its answer. */
export class UpstreamRequest {
  readonly upstream: Upstream
  readonly sent: SentRequest
  readonly reuse: Reuse
  readonly taker: AnswerTaker
  /** That it goes over; null before that, and once the answer is whole. */
  connection: UpstreamConnection | null = null
  /** The answer is not waited for any more. */
  isOver = false

  constructor(upstream: Upstream, sent: SentRequest, reuse: Reuse, taker: AnswerTaker) {
    this.upstream = upstream
    this.sent = sent
    this.reuse = reuse
    this.taker = taker
  }

  /** True when it went over a connection that had been used before, and may have been closed just then. */
  get isOverUsed(): boolean {
    return this.connection?.isReused === true
  }

  pause(): void {
    this.connection?.pause()
  }

  resume(): void {
    this.connection?.resume()
  }

  /** Its connection is closed unless the answer was whole. No callback follows. */
  destroy(): void {
    if (this.isOver) return
    this.isOver = true
    this.connection?.destroy()
  }

  fail(error: Error): void {
    if (this.isOver) return
    this.isOver = true
    this.taker.onError(error)
  }
}

/** The times that decide whether a connection may be used again. */
export interface KeptTimes {
  /** Monotonic ms of the last request or answer. */
  usedAt: number
  /** The turn of the event loop in which it became free last; -1 before that. */
  freedTurn: number
}

interface ConnectionOwner {
  /** It can take another request. */
  onFree(connection: UpstreamConnection): void
  /** @param isByUpstream - which had not said that it would */
  onClosed(connection: UpstreamConnection, isByUpstream: boolean): void
}

export class UpstreamConnection implements AnswerSink, KeptTimes {
  usedAt = 0
  freedTurn = -1
  readonly #owner: ConnectionOwner
  readonly #socket: Socket
  readonly #parser = new AnswerParser(this)
  /** That waits for its answer. */
  #request: UpstreamRequest | null = null
  /** Requests so far. */
  #count = 0
  /** For how long it may be idle, ms; 0 when this is its last request. */
  #keepMs = IDLE_MS
  #isReading = false
  /** Bytes that came while the answer was held up. */
  #rest: Buffer | null = null
  #isEnded = false
  /** It was closed here. */
  #isDropped = false
  #error: Error | null = null

  /** @param isKept - it may be used again */
  constructor(upstream: Upstream, isKept: boolean, session: Buffer | undefined, owner: ConnectionOwner) {
    this.#owner = owner
    if (!isKept) this.#keepMs = 0
    this.#socket = upstream.isTls ? this.#openTls(upstream, session) : this.#open(upstream)
    this.#socket.on('error', error => {
      this.#error ??= error
    })
    this.#socket.on('close', () => this.#onClose())
    // Counted from the last byte on; a request that waits for an answer has its own limits.
    this.#socket.setTimeout(IDLE_MS)
    this.#socket.on('timeout', () => {
      if (this.#request === null) this.destroy()
    })
  }

  /** True when its request is not the first one. */
  get isReused(): boolean {
    return this.#count > 1
  }

  /** True when it is open and nothing is asked of it. */
  get isFree(): boolean {
    return this.#request === null && this.#socket.writable
  }

  /** TLS session for further connections to the same upstream. */
  onSession(keep: (session: Buffer) => void): void {
    this.#socket.on('session', keep)
  }

  send(request: UpstreamRequest): void {
    const { head, body, isHead } = request.sent
    const socket = this.#socket
    if (this.#count > 0) socket.ref()
    this.#count += 1
    this.#request = request
    request.connection = this
    this.#parser.begin(isHead)
    if (body.length === 0) {
      socket.write(head, 'latin1')
      return
    }
    socket.cork()
    socket.write(head, 'latin1')
    socket.write(body)
    socket.uncork()
  }

  /** Stops the upstream's answer. */
  pause(): void {
    this.#parser.pause()
    this.#socket.pause()
  }

  resume(): void {
    this.#parser.resume()
    if (this.#isReading) return
    const rest = this.#rest
    this.#rest = null
    if (rest !== null) this.#read(rest)
    if (this.#rest !== null || this.#parser.isPaused) return
    if (this.#isEnded) this.#finish()
    else this.#socket.resume()
  }

  /** A request that waits for an answer fails as reset. */
  close(): void {
    this.#fail(toReset())
  }

  /** No callback follows. */
  destroy(): void {
    this.#isDropped = true
    this.#request = null
    this.#parser.pause()
    this.#socket.destroy()
  }

  onHead(head: AnswerHead): void {
    if (head.keepMs !== null || head.status === 101) this.#limitKeep(head)
    this.#request?.taker.onHead(head)
  }

  onPiece(piece: Buffer): void {
    this.#request?.taker.onPiece(piece)
  }

  onEnd(): void {
    const request = this.#request
    this.#request = null
    if (request === null) return
    request.isOver = true
    request.connection = null
    request.taker.onEnd()
  }

  #limitKeep({ keepMs, status }: AnswerHead): void {
    this.#keepMs = status === 101 ? 0 : Math.min(this.#keepMs, keepMs ?? IDLE_MS)
    if (this.#keepMs > 0 && this.#keepMs < IDLE_MS) this.#socket.setTimeout(this.#keepMs)
  }

  #open({ hostname, port, addresses }: Upstream): Socket {
    const onread = {
      buffer: READ_BUFFER,
      callback: (length: number): boolean => {
        this.#read(READ_BUFFER.subarray(0, length))
        return true
      },
    }
    const options = { host: hostname, port, lookup: toLookup(addresses), noDelay: true, onread }
    return connect(options as NetConnectOpts)
  }

  #openTls({ hostname, port, addresses, servername, ca }: Upstream, session: Buffer | undefined): TLSSocket {
    const options: ConnectionOptions & { noDelay: boolean } = {
      host: hostname,
      port,
      lookup: toLookup(addresses),
      noDelay: true,
      servername,
      // Whatever the environment says: an unverified upstream may be anyone.
      rejectUnauthorized: true,
      ALPNProtocols: ['http/1.1'],
      ...(ca !== null && { ca }),
      ...(session !== undefined && { session }),
    }
    const socket = connectTls(options)
    // Nothing is sent before the certificate was checked.
    socket.cork()
    socket.once('secureConnect', () => socket.uncork())
    socket.on('data', (bytes: Buffer) => this.#read(bytes))
    return socket
  }

  #read(bytes: Buffer): void {
    const parser = this.#parser
    if (parser.isDone) {
      // Nothing was asked: the bytes belong to no request.
      this.destroy()
      return
    }
    if (this.#rest !== null) {
      this.#rest = Buffer.concat([this.#rest, bytes])
      return
    }
    this.#isReading = true
    let taken: number
    try {
      taken = parser.add(bytes)
    } catch (error) {
      this.#isReading = false
      this.#fail(error as Error)
      return
    }
    this.#isReading = false
    if (parser.isDone) {
      this.#release(taken === bytes.length)
      return
    }
    if (this.#request === null) return
    if (taken < bytes.length) this.#rest = Buffer.from(bytes.subarray(taken))
    else if (!parser.isPaused && this.#socket.isPaused()) this.#socket.resume()
    this.#request.taker.onRead()
  }

  /** The answer is whole. @param isClean - nothing came behind it */
  #release(isClean: boolean): void {
    const socket = this.#socket
    // An answer before the whole request was taken: nothing more may be written on that connection.
    if (!isClean || this.#keepMs === 0 || socket.writableLength > 0 || !socket.writable) {
      this.destroy()
      return
    }
    if (socket.isPaused()) socket.resume()
    // An idle connection keeps no process alive.
    socket.unref()
    this.#owner.onFree(this)
  }

  #onClose(): void {
    const isByUpstream = !this.#isDropped
    this.#isEnded = true
    // Bytes that came before the end are still to be handed over.
    if (this.#rest === null) this.#finish()
    this.#owner.onClosed(this, isByUpstream)
  }

  #finish(): void {
    if (this.#request === null) return
    if (this.#error === null && this.#parser.finish()) return
    this.#fail(this.#error ?? toReset())
  }

  #fail(error: Error): void {
    const request = this.#request
    this.destroy()
    request?.fail(error)
  }
}

export function toReset(): Error {
  return Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' })
}

function toLookup(addresses: readonly ResolvedAddress[]): LookupFunction {
  return (_hostname, options, callback) => {
    const list = addresses.map(({ address, family }) => ({ address, family }))
    if (options.all === true) callback(null, list)
    else callback(null, list[0]!.address, list[0]!.family)
  }
}
