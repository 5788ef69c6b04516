/** A worker process behind a socket: frames in, frames out. Owner: §1, pages runtime/wire-protocol and runtime/ready-workers. */

import type net from 'node:net'
import { isAbsolute } from 'node:path'
import { type BytePool, type Bytes, lengthOf } from '../core/byte-pool.ts'
import { Timer } from '../core/clock.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { MAX_REPLY_HEAD_CHARS } from '../core/limits.ts'
import type { RuntimeCall } from './call.ts'
import { toProblem } from './greeting.ts'
import {
  encodeHello,
  FrameReader,
  FrameWriter,
  KIND,
  type Kind,
  ProtocolError,
  parseHeader,
  SMALL_BODY_BYTES,
} from './wire-protocol.ts'
import { Worker, type WorkerOwner, WORKER_READY_TIMEOUT_MS } from './worker.ts'
import { dial, dialWorker, greet, NO_TRUST, type OnRead, type WorkerAddress } from './worker-socket.ts'

export interface WorkerExit {
  code: number | null
  signal: string | null
  reason: string
  /** True when its daemon ended and took it along: no fault of the function. */
  isOfDaemon?: boolean
}

/** The end of a worker, for everything that holds it. */
export class WorkerEnd {
  /** Null while it lives. */
  exit: WorkerExit | null = null
  readonly ended: Promise<WorkerExit>
  #resolve: (exit: WorkerExit) => void = () => {}

  constructor() {
    this.ended = new Promise(resolve => {
      this.#resolve = resolve
    })
  }

  settle(exit: WorkerExit): void {
    this.exit = exit
    this.#resolve(exit)
  }
}

/** A worker that a daemon started. */
export interface StartedWorker extends WorkerAddress {
  socketIndex: number
  /** Opened ahead, and greeted; absent or null where it is to be dialled. */
  connection?: ReadyConnection | null
  /** Its process on this machine; null where that is not known. */
  pid: number | null
  kill(graceMs: number): void
  readonly ended: Promise<WorkerExit>
}

/** A worker that is to be started: for a function, where that has the fewest workers. */
export interface AskedWorker {
  readonly set: { readonly fn: FunctionVersion; loadOf(socketIndex: number): number }
  /** Set to the socket (from 1) that is asked, and again when another socket has to do it. */
  socketIndex: number
}

export interface WorkerSource {
  /** @throws GatewayError RUNTIME_DOWN when no socket of the runtime can start one */
  startWorker(asked: AskedWorker): Promise<StartedWorker>
}

/** Bytes of a worker's input that may wait for it to read before its pings are not answered any more. */
const MAX_WAITING_PONG_BYTES = 64 * 1024
/** Frames that leave for a worker at once. Beside other processes of the gateway more: those have work for the processors meanwhile. */
export const FLUSH_FRAMES = { alone: 8, besideOthers: 16 } as const
/** Milliseconds a worker that ends in good order has to finish background work. */
const WORKER_STOP_GRACE_MS = 5000

/** Milliseconds to wait for the reason of an end (on a busy machine it comes late), and for the rest of what a killed worker wrote. */
const EXIT_REASON_WAIT_MS = 2000
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
    this.#writer = new FrameWriter(bytes => this.#write(bytes), flushFrames)
    this.#reader = new FrameReader((kind, id, header, body) => this.#handleFrame(kind, id, header, body), 0, pool)
    this.#writer.add(KIND.start, 0, startHeader, null)
    source.startWorker(this).then(
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
    this.#writer.flush()
    this.#socket?.end()
    this.#lifeTimer.set(WORKER_STOP_GRACE_MS, () => this.endNow(), true)
  }

  #connect(started: StartedWorker): void {
    this.#started = started
    this.socketIndex = started.socketIndex
    void started.ended.then(exit => this.#handleExit(exit))
    if (this.#killed || this.state === 'ending') {
      started.kill(0)
      this.#finishClose()
      return
    }
    let socket: net.Socket
    try {
      const onRead = { buffer: this.#toReadInto, callback: this.#onRead }
      socket = started.connection?.adopt(onRead) ?? dialWorker(started, this.set.fn, onRead)
    } catch (error) {
      started.kill(0)
      const detail = { hint: (error as Error).message }
      this.#failStart(new GatewayError('RUNTIME_DOWN', 'runtime down', { headers: { 'Retry-After': '1' }, detail }))
      return
    }
    // Bytes that wait in the writer follow those that were flushed before.
    this.#writer.flush()
    this.#socket = socket
    socket.on('error', error => {
      this.#failure ??= `connection failed: ${error.message}`
      this.#isRead = false
    })
    socket.on('close', () => this.#handleSocketClose())
    this.#awaitReady()
    greet(socket, started, this.#reader, () => this.#open())
  }

  #awaitReady(): void {
    this.#lifeTimer.set(WORKER_READY_TIMEOUT_MS, () => {
      if (this.isDebugged) this.#awaitReady()
      else this.handleSlowLoad()
    })
  }

  /** Says what the connection is for, and what was to be sent so far. */
  #open(): void {
    this.#isOpen = true
    const socket = this.#socket!
    const { connection, isShared, id } = this.#started!
    // A connection that was opened ahead has greeted, and its process may have ended while it waited.
    let isHeard = !connection
    if (isHeard) socket.write(encodeHello(isShared ? { role: 'worker', worker: id } : { role: 'worker' }))
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
    // Header and pieces of a long body go in one write.
    const isLong = body !== null && lengthOf(body) > SMALL_BODY_BYTES
    if (isLong) this.#socket?.cork()
    this.#writer.add(kind, id, header, body)
    if (isLong) this.#socket?.uncork()
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

  /** @returns true when the bytes are with the system */
  #write(bytes: Buffer): boolean {
    if (this.#closed) return true
    if (this.#isOpen) return this.#hand(bytes, this.#pool.hold(bytes))
    // A request's body is in the pool, and the request may be over before its worker is there.
    this.#pool.hold(bytes)
    this.#unsent.push(bytes)
    return false
  }

  /** @param isHeld - it may be the pool's, and is free when it is written */
  #hand(bytes: Buffer, isHeld = true): boolean {
    const socket = this.#socket!
    if (!socket.writable) this.#pool.free(bytes)
    else if (isHeld) socket.write(bytes, () => this.#pool.free(bytes))
    else socket.write(bytes)
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
      // A worker that breaks the protocol has said its last; as a failure it counts like a crash.
      this.#problem ??= toProblem(error)
      this.#isRead = false
      this.#finishClose()
    }
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
      case KIND.error:
        this.handleFailure(id, parseHeader(header))
        return
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
        this.#handleLoaded(parseHeader(header))
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

  #handleLoaded({ files, debugger: opened }: Record<string, unknown>): void {
    this.#reportFiles(files)
    if (opened !== undefined) void this.set.debuggers?.announce(this, opened)
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

// A connection that is opened ahead: a first call need not wait for one.

/** As much as a function's `ready` and its first answer take most of the time. */
const FIRST_READ_BYTES = 4096
const IGNORED: OnRead = { buffer: () => READ_BUFFER, callback: () => true }

/** Without an owner until a function's worker takes it. It greets at once, unless the process that reads it does not run yet. */
export class ReadyConnection {
  readonly #socket: net.Socket
  #owner: OnRead | null = null
  /** The first read's memory, which a socket asks for when it is made; null once that was read. */
  #first: Buffer | null

  /**
   * @param greets - false for a process that becomes the program whose path it reads first
   * @param onEnd - it ended, or sent something, before a function took it
   * @throws Error when the address is none
   */
  constructor(uri: string, greets: boolean, onEnd: () => void) {
    const first = Buffer.allocUnsafeSlow(FIRST_READ_BYTES)
    this.#first = first
    this.#socket = dial(uri, NO_TRUST, {
      buffer: () => (this.#first === null && this.#owner !== null ? this.#owner.buffer() : first),
      callback: length => {
        // A worker sends nothing before it gets something.
        if (this.#owner === null) onEnd()
        else this.#read(this.#owner, length)
        return true
      },
    })
    this.#socket.on('error', () => {})
    for (const event of ['end', 'close'])
      this.#socket.on(event, () => {
        if (this.#owner === null) onEnd()
      })
    if (greets) this.#greet()
  }

  /** @param path - of the program that is at the other end from then on; without a line break */
  begin(path: string): void {
    this.#socket.write(`${path}\n`)
    this.#greet()
  }

  /** From here on the owner gets its bytes. */
  adopt(owner: OnRead): net.Socket {
    this.#owner = owner
    return this.#socket
  }

  close(): void {
    this.#owner = IGNORED
    this.#socket.destroy()
  }

  #greet(): void {
    this.#socket.write(encodeHello({ role: 'worker' }))
  }

  #read({ buffer, callback }: OnRead, length: number): void {
    this.#first?.copy(buffer(), 0, 0, length)
    this.#first = null
    callback(length)
  }
}
