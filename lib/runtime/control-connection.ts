/** The control connection to one daemon. Owner: §1, pages runtime/daemon and runtime/wire-protocol. */

import type net from 'node:net'
import { type Clock, Timer, within } from '../core/clock.ts'
import { toProblem } from './greeting.ts'
import type { WorkerExit } from './socket-worker.ts'
import { encodeFrame, encodeHello, FrameReader, KIND, type Kind, parseHeader } from './wire-protocol.ts'
import { dial, greet, NO_TRUST, type PeerTrust } from './worker-socket.ts'

/** Milliseconds a daemon has to answer `hello`. */
export const DAEMON_READY_TIMEOUT_MS = 10_000
/** Milliseconds a daemon has to answer a `start`. */
const START_TIMEOUT_MS = 15_000
/** Milliseconds between health pings of a daemon, and pings in a row without any answer after which it counts as lost. */
const PING_INTERVAL_MS = 2000
const PING_MISSES = 4
/** Bytes of one read: frames of a control connection are few and small. */
const READ_BYTES = 16 * 1024
/** Bytes that may wait for a daemon to read before what it asks for is not answered any more. */
const MAX_WAITING_BYTES = 64 * 1024

type Header = Record<string, unknown>

/** A daemon's `ready`. */
export interface DaemonInfo {
  runtime: string
  version: string
  pid: number
  /** Content of its functions folder, as page remote/daemon-server describes it; undefined where it does not report it. */
  content: unknown
}

/** A worker as `started` reports it. */
export interface DaemonWorker {
  worker: string
  uri: string
  /** Process (and process group) id on the daemon's machine; 0 when it is not known. */
  pid: number
}

/** A worker that waits for its function. */
export interface OfferedWorker extends DaemonWorker {
  /** Ends of the names of entry files that it is prepared for; empty: all. */
  entries: readonly string[]
  /** It becomes the program whose path it reads first. */
  takesProgram: boolean
}

interface ControlEvents {
  onReady(info: DaemonInfo): void
  /** Called once; pending starts are rejected before it. Not called after `close`. */
  onLost(reason: string): void
  onLog(worker: string, stream: 'stdout' | 'stderr', text: string): void
  onExited(worker: string, exit: WorkerExit): void
  /** Absent: the daemon does not offer workers that wait. */
  onOffered?: ((worker: OfferedWorker) => void) | undefined
  /** It cannot start workers, whatever their functions, and why; null when it can. Reported again while it lasts. */
  onTrouble(reason: string | null): void
}

interface PendingStart {
  resolve(worker: DaemonWorker): void
  reject(error: Error): void
}

export class ControlConnection {
  readonly #uri: string
  readonly #clock: Clock
  readonly #events: ControlEvents
  readonly #socket: net.Socket
  readonly #reader = new FrameReader((kind, id, header, body) => this.#handleFrame(kind, id, header, body))
  readonly #starts = new Map<number, PendingStart>()
  readonly #timer: Timer
  #lastId = 0
  #isReady = false
  #isOver = false
  #misses = 0
  #problem = 'connection closed'

  constructor(uri: string, clock: Clock, events: ControlEvents, trust: PeerTrust = NO_TRUST) {
    this.#uri = uri
    this.#clock = clock
    this.#events = events
    this.#timer = new Timer(clock, true)
    const bytes = Buffer.allocUnsafeSlow(READ_BYTES)
    this.#socket = dial(uri, trust, { buffer: () => bytes, callback: length => this.#read(bytes, length) })
    this.#socket.on('error', ({ message }) => {
      this.#problem = message
    })
    this.#socket.on('close', () => this.#lose(this.#problem))
    this.#timer.set(DAEMON_READY_TIMEOUT_MS, () =>
      this.#lose(`no answer to hello within ${DAEMON_READY_TIMEOUT_MS / 1000} s`),
    )
    const offers = events.onOffered === undefined ? {} : { ready_workers: true, ready_programs: true }
    greet(this.#socket, { uri, trust }, this.#reader, () =>
      this.#socket.write(encodeHello({ role: 'control', ...offers })),
    )
  }

  /**
   * Asks for a worker.
   * @param fields - of the `start` frame
   * @throws Error with the daemon's reason, the reason why the connection was lost, or that there was no answer in time
   */
  async start(fields: object): Promise<DaemonWorker> {
    if (this.#isOver) throw new Error('connection closed')
    this.#lastId += 1
    const id = this.#lastId
    const answered = new Promise<DaemonWorker>((resolve, reject) => this.#starts.set(id, { resolve, reject }))
    this.#send(KIND.start, id, JSON.stringify(fields))
    const worker = await within(this.#clock, START_TIMEOUT_MS, answered)
    if (worker !== null) return worker
    this.#starts.delete(id)
    throw new Error(`no answer to start within ${START_TIMEOUT_MS / 1000} s`)
  }

  stop(worker: string, graceMs: number): void {
    this.#send(KIND.stop, 0, JSON.stringify({ worker, grace_ms: graceMs }))
  }

  /** Ends the connection without `onLost`. */
  close(): void {
    this.#finish('connection closed')
  }

  #read(bytes: Buffer, length: number): boolean {
    try {
      if (!this.#isOver) this.#reader.push(bytes, length)
    } catch (error) {
      this.#lose(toProblem(error))
    }
    return true
  }

  #handleFrame(kind: Kind, id: number, headerText: string, body: Buffer): void {
    this.#misses = 0
    if (this.#isOver) return
    const header = parseHeader(headerText)
    const { onReady, onLog, onExited, onTrouble } = this.#events
    switch (kind) {
      case KIND.ready:
        if (this.#isReady) return
        this.#isReady = true
        this.#timer.repeat(PING_INTERVAL_MS, () => this.#ping())
        onReady(toInfo(header))
        return
      case KIND.started:
        this.#handleStarted(id, header)
        return
      case KIND.error: {
        const reason = typeof header.message === 'string' ? header.message : 'daemon answered with an error'
        if (id === 0) this.#lose(reason)
        else this.#takeStart(id)?.reject(new Error(reason))
        return
      }
      case KIND.exited:
        onExited(String(header.worker), toExit(header))
        return
      case KIND.log:
        onLog(String(header.worker), header.stream === 'stderr' ? 'stderr' : 'stdout', body.toString('utf8'))
        return
      case KIND.pong:
        onTrouble(typeof header.trouble === 'string' ? header.trouble : null)
        return
      case KIND.ping:
        if (this.#isRead) this.#send(KIND.pong, id, '')
        return
      default:
    }
  }

  #handleStarted(id: number, header: Header): void {
    const { onOffered } = this.#events
    const start = this.#takeStart(id)
    if (start !== undefined) start.resolve(toWorker(header, this.#uri))
    // Answers to it must not pile up.
    else if (!this.#isRead) this.#lose('the daemon sends and does not read')
    else if (id === 0 && onOffered !== undefined) onOffered(toOffered(header))
    // Its call is gone, and nothing else would end it.
    else this.stop(String(header.worker), 0)
  }

  /** False when answers to what it sends would pile up. */
  get #isRead(): boolean {
    return this.#socket.writableLength < MAX_WAITING_BYTES
  }

  #takeStart(id: number): PendingStart | undefined {
    const start = this.#starts.get(id)
    this.#starts.delete(id)
    return start
  }

  #ping(): void {
    if (this.#misses >= PING_MISSES) this.#lose(`no answer for ${(PING_INTERVAL_MS * PING_MISSES) / 1000} s`)
    else {
      this.#misses += 1
      this.#send(KIND.ping, 0, '')
    }
  }

  #send(kind: Kind, id: number, header: string): void {
    if (!this.#isOver) this.#socket.write(encodeFrame(kind, id, header, null))
  }

  #lose(reason: string): void {
    if (this.#finish(reason)) this.#events.onLost(reason)
  }

  /** @returns false when it was over before */
  #finish(reason: string): boolean {
    if (this.#isOver) return false
    this.#isOver = true
    this.#timer.clear()
    this.#socket.destroy()
    for (const { reject } of this.#starts.values()) reject(new Error(reason))
    this.#starts.clear()
    return true
  }
}

function toInfo({ runtime, version, pid, content }: Header): DaemonInfo {
  return { runtime: String(runtime ?? ''), version: String(version ?? ''), pid: Number(pid) || 0, content }
}

/** @param daemonUri - a worker without a separate socket is reached through that */
function toWorker({ worker, uri, pid }: Header, daemonUri: string): DaemonWorker {
  return {
    worker: String(worker),
    uri: typeof uri === 'string' ? uri : daemonUri,
    pid: typeof pid === 'number' ? pid : 0,
  }
}

function toOffered(header: Header): OfferedWorker {
  const { entries, takes_program: takesProgram } = header
  const texts = Array.isArray(entries) ? entries.filter(one => typeof one === 'string') : []
  return { ...toWorker(header, ''), entries: texts, takesProgram: takesProgram === true }
}

function toExit({ code: given, signal, reason }: Header): WorkerExit {
  const code = typeof given === 'number' ? given : null
  return {
    code,
    signal: typeof signal === 'string' ? signal : null,
    reason: typeof reason === 'string' ? reason : `exited with code ${code}`,
  }
}
