/**
 * One connection to an upstream: a request at a time goes out, its answer is read where it lies. Only ever to addresses that
 * were checked. Spec: §2.10.
 */

import { connect, isIP, type LookupFunction, type NetConnectOpts, type Socket } from 'node:net'
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from 'node:tls'
import type { ResolvedAddress } from './addresses.ts'
import { AnswerParser, type AnswerSink, toFailure } from './answer-parser.ts'

/** Milliseconds for which an idle connection is kept. */
const IDLE_MS = 4000
const READ_BUFFER_BYTES = 64 * 1024

/** Every plain connection is read into this: a read is handled before the next one begins, and what is kept of it is copied. */
const READ_BUFFER = Buffer.allocUnsafeSlow(READ_BUFFER_BYTES)

/** Where a connection leads. */
export interface Upstream {
  readonly isTls: boolean
  /** For the certificate and for messages; it is not looked up. */
  readonly hostname: string
  readonly port: number
  /** Checked. */
  readonly addresses: readonly ResolvedAddress[]
  /** Authorities to trust instead of the usual ones, PEM. */
  readonly ca: string | null
}

/** Takes the answer of one request. Nothing comes after `onEnd` or `onError`. */
export interface AnswerTaker extends AnswerSink {
  /** Everything of one read was handed over, and more of the answer is to come. */
  onRead(): void
  /** The answer cannot be had, or not the rest of it. */
  onError(error: Error): void
}

/**
 * Over which connection a request may go: any, a kept one only if it is trusted (the request cannot be sent again), or a new one
 * that is closed behind it.
 */
export type Reuse = 'any' | 'trusted' | 'none'

/** A request and its answer. */
export class UpstreamRequest {
  readonly upstream: Upstream
  /** Request line and headers. */
  readonly head: string
  readonly body: Buffer | null
  /** The answer has no body. */
  readonly isHead: boolean
  readonly reuse: Reuse
  readonly taker: AnswerTaker
  /** That it goes over; null before that, and once the answer is whole. */
  connection: UpstreamConnection | null = null
  /** True when that had been used before, and may have been closed just then. */
  isOverUsed = false
  /** The answer is not waited for any more. */
  isOver = false

  constructor(
    upstream: Upstream,
    head: string,
    body: Buffer | null,
    isHead: boolean,
    reuse: Reuse,
    taker: AnswerTaker,
  ) {
    this.upstream = upstream
    this.head = head
    this.body = body
    this.isHead = isHead
    this.reuse = reuse
    this.taker = taker
  }

  /** Stops the upstream's answer; what is read already is still handed over. */
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

interface ConnectionOwner {
  /** It can take another request. */
  onFree(connection: UpstreamConnection): void
  /** A TLS session for further connections to the same upstream. */
  onSession(session: Buffer): void
  /** @param isByUpstream - which had not said that it would */
  onClosed(connection: UpstreamConnection, isByUpstream: boolean): void
}

export class UpstreamConnection {
  /** Of its owner: monotonic ms of the last request or answer, and the turn of the event loop in which it became free last; -1 before that. */
  usedAt = 0
  freedTurn = -1
  readonly #owner: ConnectionOwner
  readonly #socket: Socket
  readonly #parser = new AnswerParser()
  /** That waits for its answer. */
  #request: UpstreamRequest | null = null
  #isUsed = false
  /** For how long it may be idle, ms; 0 when this is its last request. */
  #keepMs: number
  /** It was closed here. */
  #isDropped = false
  #error: Error | null = null

  /** @param isKept - it may be used again */
  constructor(upstream: Upstream, isKept: boolean, session: Buffer | undefined, owner: ConnectionOwner) {
    this.#owner = owner
    this.#keepMs = isKept ? IDLE_MS : 0
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

  /** True when it is open and nothing is asked of it. */
  get isFree(): boolean {
    return this.#request === null && this.#socket.writable
  }

  send(request: UpstreamRequest): void {
    const { head, body, isHead } = request
    const socket = this.#socket
    if (this.#isUsed) socket.ref()
    request.isOverUsed = this.#isUsed
    request.connection = this
    this.#isUsed = true
    this.#request = request
    this.#parser.begin(request.taker, isHead)
    if (body === null || body.length === 0) {
      socket.write(head, 'latin1')
      return
    }
    socket.cork()
    socket.write(head, 'latin1')
    socket.write(body)
    socket.uncork()
  }

  pause(): void {
    this.#socket.pause()
  }

  resume(): void {
    this.#socket.resume()
  }

  /** A request that waits for an answer fails as reset. */
  close(): void {
    this.#fail(toFailure('ECONNRESET'))
  }

  /** No callback follows. */
  destroy(): void {
    this.#isDropped = true
    this.#request = null
    this.#parser.stop()
    this.#socket.destroy()
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

  #openTls({ hostname, port, addresses, ca }: Upstream, session: Buffer | undefined): TLSSocket {
    const options: ConnectionOptions & { noDelay: boolean } = {
      host: hostname,
      port,
      lookup: toLookup(addresses),
      noDelay: true,
      // An address is no name that a certificate may bear.
      servername: isIP(hostname) === 0 ? hostname : '',
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
    socket.on('session', (session: Buffer) => this.#owner.onSession(session))
    socket.on('data', (bytes: Buffer) => this.#read(bytes))
    return socket
  }

  #read(bytes: Buffer): void {
    // Nothing was asked: the bytes belong to no request.
    if (this.#request === null) {
      this.destroy()
      return
    }
    let taken: number
    try {
      taken = this.#parser.add(bytes)
    } catch (error) {
      this.#fail(error as Error)
      return
    }
    if (this.#parser.isDone) this.#release(taken === bytes.length)
    else this.#request?.taker.onRead()
  }

  /** The answer is whole. @param isClean - nothing came behind it */
  #release(isClean: boolean): void {
    const request = this.#request
    // It was given up during its last read.
    if (request === null) return
    const socket = this.#socket
    this.#request = null
    request.isOver = true
    request.connection = null
    const keepMs = this.#keepMs === 0 ? 0 : Math.min(IDLE_MS, this.#parser.keepMs ?? IDLE_MS)
    // An answer before the whole request was taken: nothing more may be written on that connection.
    if (!isClean || keepMs === 0 || socket.writableLength > 0 || !socket.writable) {
      this.destroy()
      return
    }
    if (keepMs !== this.#keepMs) socket.setTimeout(keepMs)
    this.#keepMs = keepMs
    if (socket.isPaused()) socket.resume()
    // An idle connection keeps no process alive.
    socket.unref()
    this.#owner.onFree(this)
  }

  #onClose(): void {
    const isByUpstream = !this.#isDropped
    if (this.#error === null && this.#request !== null && this.#parser.finish()) this.#release(false)
    else this.#fail(this.#error ?? toFailure('ECONNRESET'))
    this.#owner.onClosed(this, isByUpstream)
  }

  #fail(error: Error): void {
    const request = this.#request
    this.destroy()
    request?.fail(error)
  }
}

function toLookup(addresses: readonly ResolvedAddress[]): LookupFunction {
  return (_hostname, options, callback) => {
    const list = addresses.map(({ address, family }) => ({ address, family }))
    if (options.all === true) callback(null, list)
    else callback(null, list[0]!.address, list[0]!.family)
  }
}
