/** A worker process behind a socket: frames in, frames out. Owner: §1, page runtime/wire-protocol. */

import type net from 'node:net'
import { isAbsolute } from 'node:path'
import { type BytePool, type Bytes, lengthOf } from '../core/byte-pool.ts'
import { Timer } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { MAX_REPLY_HEAD_CHARS } from '../core/limits.ts'
import type { RuntimeCall } from './call.ts'
import { connectWorker, findSecret, needsProof, toWorkerHello } from './worker-socket.ts'
import { toRuntimeError } from './runtime-error.ts'
import {
  FrameReader,
  FrameWriter,
  KIND,
  type Kind,
  ProtocolError,
  parseHeader,
  SMALL_BODY_BYTES,
} from './wire-protocol.ts'
import { Worker, type WorkerOwner, WORKER_READY_TIMEOUT_MS } from './worker.ts'
import type { StartedWorker, WorkerExit, WorkerSource } from './started-worker.ts'

/** Bytes of a worker's input that may wait for it to read before its pings are not answered any more. */
const MAX_WAITING_PONG_BYTES = 64 * 1024
/**
 * Frames that wait for the end of a poll phase to leave in one write; this many leave at once, for the worker to begin while the
 * rest of what the poll phase brought is read. Beside other processes of the gateway more: those have work for the processors meanwhile.
 */
export const FLUSH_FRAMES = { alone: 8, besideOthers: 16 } as const
/** Milliseconds a worker that ends in good order has to finish background work. */
const WORKER_STOP_GRACE_MS = 5000

/** Milliseconds to wait for the reason of an end (a busy daemon reports it late), and for the rest of what a killed worker wrote. */
const EXIT_REASON_WAIT_MS = 500
const RESIDUE_WAIT_MS = 1000
/** As much as a unix socket holds. */
const READ_BUFFER_BYTES = 256 * 1024

/**
 * Every worker's socket is read into it: a read is handled before the next one begins, and the part that is kept is
 * copied. Without it each reply would cost a buffer and a walk through a stream's machinery. Only the rest of a large frame
 * is read to where the frame lies.
 */
const READ_BUFFER = Buffer.allocUnsafeSlow(READ_BUFFER_BYTES)

/** A head that is too large to be right is not parsed: the check of the reply refuses it unread. */
export function isStreamHead(header: string): boolean {
  return header.length <= MAX_REPLY_HEAD_CHARS && header.includes('"stream"') && parseHeader(header).stream === true
}

export class SocketWorker extends Worker {
  readonly #writer: FrameWriter
  readonly #reader: FrameReader
  readonly #pool: BytePool
  /** The socket is read into it: of the pool, it is held until the socket reads into something else. */
  #readInto: Buffer = READ_BUFFER
  #unsent: Buffer[] = []
  #flushing = false
  #unflushed = 0
  readonly #flushFrames: number
  /** Monotonic ms of the last read. */
  #readAt = 0
  #socket: net.Socket | null = null
  /** False while what is to be sent waits: for the connection to be dialled, and for a proof where one is needed. */
  #isOpen = false
  #started: StartedWorker | null = null
  #exit: WorkerExit | null = null
  #closed = false
  #killed = false
  readonly #lifeTimer: Timer
  /** How the worker broke the protocol, and how its connection failed; the second counts only when nothing better is known. */
  #problem: string | null = null
  #failure: string | null = null
  /** False when bytes it wrote may be lost: a failed write drops what was not read yet. */
  #isRead = true
  /** True when it was gone before its first word: the system took none of it. */
  #isUnheard = false

  /** @param startHeader - JSON text of the worker's `start` frame */
  constructor(
    set: WorkerOwner,
    source: WorkerSource,
    startHeader: string,
    pool: BytePool,
    flushFrames: number = FLUSH_FRAMES.alone,
  ) {
    super(set, pool.leads)
    this.#lifeTimer = new Timer(set.clock)
    this.#pool = pool
    this.#flushFrames = flushFrames
    this.#writer = new FrameWriter(bytes => this.#write(bytes))
    this.#reader = new FrameReader((kind, id, header, body) => this.#handleFrame(kind, id, header, body), 0, pool)
    this.#writer.add(KIND.start, 0, startHeader, null)
    const onSocket = (index: number) => {
      this.socketIndex = index
    }
    source.startWorker(set.fn, set.loadOf, onSocket).then(
      started => this.#connect(started),
      error => this.#failStart(toGatewayError(error)),
    )
  }

  override get pid(): number | null {
    return this.#started?.pid ?? null
  }

  protected override sendCall(call: RuntimeCall): void {
    this.#send(KIND.call, call.wireId, call.header, call.body)
  }

  protected override sendCancel(call: RuntimeCall): void {
    this.#send(KIND.cancel, call.wireId, '', null)
  }

  protected override sendMore(call: RuntimeCall, bytes: number): void {
    this.#send(KIND.more, call.wireId, `{"bytes":${bytes}}`, null)
  }

  protected override sendPing(): void {
    this.#send(KIND.ping, 0, '', null)
  }

  protected override endNow(): void {
    this.#killed = true
    this.#lifeTimer.clear()
    if (this.#closed) return
    this.#started?.kill(0)
    // Its last bytes are still read: a reply on its way shows which call had begun.
    this.#lifeTimer.set(RESIDUE_WAIT_MS, () => this.#finishClose())
  }

  protected override handleOverrun(): void {
    throw new Error('a stream was sent beyond its window')
  }

  protected override endGracefully(): void {
    this.#flush()
    this.#socket?.end()
    this.#lifeTimer.set(WORKER_STOP_GRACE_MS, () => this.endNow(), true)
  }

  #connect(started: StartedWorker): void {
    this.#started = started
    this.socketIndex = started.socketIndex
    started.onExit(exit => this.#handleExit(exit))
    if (this.#killed || this.state === 'ending') {
      started.kill(0)
      this.#finishClose()
      return
    }
    let socket: net.Socket
    try {
      const events = {
        toReadInto: this.#toReadInto,
        onRead: this.#onRead,
        onProven: (rest: Buffer) => this.#handleProven(rest),
        onProblem: (text: string) => this.#breakOff(text),
      }
      socket = started.connection?.adopt(events) ?? connectWorker(started, findSecret(this.set.fn), events)
    } catch (error) {
      started.kill(0)
      const detail = { hint: (error as Error).message }
      this.#failStart(new GatewayError('RUNTIME_DOWN', 'runtime down', { headers: { 'Retry-After': '1' }, detail }))
      return
    }
    // Bytes that wait in the writer follow those that were flushed before.
    this.#flush()
    this.#socket = socket
    socket.on('error', error => {
      this.#failure ??= `connection failed: ${error.message}`
      this.#isRead = false
    })
    socket.on('close', () => this.#handleSocketClose())
    this.#lifeTimer.set(WORKER_READY_TIMEOUT_MS, () => this.handleSlowLoad())
    if (!needsProof(started.uri, started.trust)) this.#open()
  }

  #handleProven(rest: Buffer): void {
    if (this.#closed) return
    this.#open()
    this.#push(rest, rest.length)
  }

  /** Says what the connection is for, and what was to be sent so far. */
  #open(): void {
    this.#isOpen = true
    const [socket, started] = [this.#socket!, this.#started!]
    // A connection that was opened ahead has greeted, and its process may have ended while it waited.
    let isHeard = !started.connection
    if (isHeard) socket.write(toWorkerHello(started))
    for (const bytes of this.#unsent) {
      this.#hand(bytes)
      isHeard ||= socket.writable && socket.errored === null
    }
    this.#isUnheard = !isHeard
    this.#unsent = []
  }

  #failStart(error: GatewayError): void {
    if (this.state === 'dead') return
    this.state = 'dead'
    const calls = this.inflight.takeAll()
    this.#closed = true
    this.#dropUnsent()
    this.set.handleStartFailure(this, error)
    for (const call of calls) call.cut(error)
  }

  #send(kind: Kind, id: number, header: string, body: Bytes | null): void {
    if (this.#closed) return
    if (body !== null && lengthOf(body) > SMALL_BODY_BYTES) {
      // Header and pieces in one write.
      this.#socket?.cork()
      this.#writer.add(kind, id, header, body)
      this.#socket?.uncork()
    } else {
      this.#writer.add(kind, id, header, body)
    }
    this.#unflushed += 1
    if (this.#unflushed === this.#flushFrames) this.#flush()
    if (this.#flushing) return
    this.#flushing = true
    setImmediate(this.#flushLater)
  }

  readonly #toReadInto = (): Buffer => {
    const next = this.#reader.room ?? READ_BUFFER
    if (next !== this.#readInto) {
      this.#pool.hold(next)
      this.#pool.free(this.#readInto)
      this.#readInto = next
    }
    return next
  }

  readonly #onRead = (length: number): boolean => {
    this.#push(this.#readInto, length)
    return true
  }

  readonly #flushLater = (): void => {
    this.#flushing = false
    this.#flush()
  }

  #flush(): void {
    this.#unflushed = 0
    if (!this.#closed) this.#writer.flush()
  }

  /** @returns true when the bytes are with the system */
  #write(bytes: Buffer): boolean {
    if (this.#isOpen) return this.#hand(bytes, this.#pool.hold(bytes))
    // A request's body is in the pool, and the request may be over before its worker is there.
    this.#pool.hold(bytes)
    this.#unsent.push(bytes)
    return false
  }

  /** @param isHeld - it may be the pool's, and is free when it is written */
  #hand(bytes: Buffer, isHeld = true): boolean {
    const socket = this.#socket!
    if (!isHeld) {
      if (socket.writable) socket.write(bytes)
    } else if (socket.writable) {
      socket.write(bytes, () => this.#pool.free(bytes))
    } else {
      this.#pool.free(bytes)
    }
    return socket.writableLength === 0
  }

  #dropUnsent(): void {
    for (const bytes of this.#unsent) this.#pool.free(bytes)
    this.#unsent = []
  }

  #push(bytes: Buffer, length: number): void {
    this.#readAt = this.set.clock.monotonic()
    try {
      // Bytes that were read into the pool are where their frame is.
      if (bytes === this.#readInto && bytes !== READ_BUFFER) this.#reader.fill(length)
      else this.#reader.push(bytes, length)
    } catch (error) {
      const { message } = error as Error
      // The call it belongs to gets the reason; the others, that their worker ended.
      if (error instanceof ProtocolError && error.id !== 0)
        this.handleLastError(error.id, new GatewayError('CONTRACT_BROKEN', `invalid runtime response: ${message}`))
      this.#breakOff(`protocol error: ${message}`)
    }
  }

  /** A worker that breaks the protocol has said its last; as a failure it counts like a crash. */
  #breakOff(problem: string): void {
    this.#problem ??= problem
    this.#isRead = false
    this.#finishClose()
  }

  #handleFrame(kind: Kind, id: number, header: string, body: Buffer): void {
    switch (kind) {
      case KIND.reply:
        // The header text goes on unparsed: equal texts are prepared once.
        this.handleReply(id, header, body, isStreamHead(header), this.#readAt)
        return
      case KIND.chunk:
        this.handleChunk(id, body)
        return
      case KIND.end: {
        const problem = parseHeader(header).error
        this.handleEnd(id, typeof problem === 'string' ? problem : null)
        return
      }
      case KIND.error: {
        const fields = parseHeader(header)
        const error = toRuntimeError(fields, this.set.fn)
        if (id === 0) this.handleLoadError(error)
        else if (fields.ends === true) this.handleLastError(id, error)
        else this.handleError(id, error)
        return
      }
      case KIND.log:
        this.handleLog(id, parseHeader(header).stream === 'stderr' ? 'stderr' : 'stdout', body.toString('utf8'))
        return
      case KIND.ready: {
        this.#lifeTimer.clear()
        const { max_inflight: most, files } = parseHeader(header)
        this.#reportFiles(files)
        this.handleReady(typeof most === 'number' && Number.isInteger(most) && most >= 0 ? most : 1)
        return
      }
      case KIND.loaded:
        this.#reportFiles(parseHeader(header).files)
        return
      case KIND.pong:
        this.handlePong()
        return
      case KIND.ping:
        // One that asks and never reads would make the answers pile up.
        if ((this.#socket?.writableLength ?? 0) < MAX_WAITING_PONG_BYTES) this.#send(KIND.pong, id, '', null)
        return
      default:
    }
  }

  #reportFiles(files: unknown): void {
    if (Array.isArray(files)) this.set.onFiles(files.filter(file => typeof file === 'string' && isAbsolute(file)))
  }

  #handleExit(exit: WorkerExit): void {
    this.#exit = exit
    if (this.#socket === null || this.#socket.destroyed) {
      this.#finishClose()
      return
    }
    // It takes no further call. A child of it may hold the connection open; the worker's last bytes are here long before this.
    this.set.forget(this)
    this.#rearm(RESIDUE_WAIT_MS)
  }

  #handleSocketClose(): void {
    if (this.#closed) return
    if (this.#exit !== null || this.#killed || this.#isUnheard) {
      this.#finishClose()
      return
    }
    // No further call comes here. The reason of its end is about to; one that lives on is killed after the wait.
    this.set.forget(this)
    this.#rearm(this.state === 'ending' ? WORKER_STOP_GRACE_MS : EXIT_REASON_WAIT_MS)
  }

  #rearm(ms: number): void {
    this.#lifeTimer.set(ms, () => this.#finishClose(), this.state === 'ending')
  }

  #finishClose(): void {
    if (this.#closed) return
    const complete = this.#isRead && (this.#socket === null || this.#socket.destroyed)
    this.#closed = true
    this.#lifeTimer.clear()
    this.#dropUnsent()
    this.#socket?.destroy()
    if (this.#exit === null) this.#started?.kill(0)
    const reason = this.#problem ?? this.#exit?.reason ?? this.#failure ?? 'connection closed'
    const unexpected = !this.#killed && this.#exit?.isOfDaemon !== true
    this.handleClosed({ reason, unexpected, complete, unheard: this.#isUnheard })
  }
}
