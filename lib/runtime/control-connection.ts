/** The control connection to one daemon. Owner: §1, pages runtime/daemon and runtime/wire-protocol. */

import type net from 'node:net'
import { type Clock, Timer } from '../core/clock.ts'
import { connectPeer, needsProof, NO_TRUST, type PeerTrust } from './worker-socket.ts'
import type { WorkerExit } from './started-worker.ts'
import type { OfferedWorker } from './ready-workers.ts'
import { encodeFrame, encodeHello, FrameReader, KIND, type Kind, parseHeader } from './wire-protocol.ts'

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

interface ControlEvents {
  onReady(info: DaemonInfo): void
  /** Called once; pending starts are rejected before it. Not called after `close`. */
  onLost(reason: string): void
  onLog(worker: string, stream: 'stdout' | 'stderr', text: string): void
  onExited(worker: string, exit: WorkerExit): void
  /** A worker that waits for its function. Absent: the daemon does not offer such. */
  onOffered?: ((worker: OfferedWorker) => void) | undefined
  /** It cannot start workers, whatever their functions, and why; null when it can. Reported again while it lasts. */
  onTrouble(reason: string | null): void
}

interface PendingStart {
  timer: NodeJS.Timeout
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
  #nextId = 0
  #isReady = false
  #isOver = false
  #misses = 0
  readonly #timer: Timer
  #problem: string | null = null

  constructor(uri: string, clock: Clock, events: ControlEvents, trust: PeerTrust = NO_TRUST) {
    this.#uri = uri
    this.#clock = clock
    this.#events = events
    this.#timer = new Timer(clock, true)
    const bytes = Buffer.allocUnsafeSlow(READ_BYTES)
    this.#socket = connectPeer(uri, trust, {
      toReadInto: () => bytes,
      onRead: length => this.#read(bytes.subarray(0, length)),
      onProven: rest => {
        this.#sendHello()
        this.#read(rest)
      },
      onProblem: text => this.#lose(text),
    })
    this.#socket.on('error', error => {
      this.#problem ??= error.message
    })
    this.#socket.on('close', () => this.#lose(this.#problem ?? 'connection closed'))
    if (!needsProof(uri, trust)) this.#sendHello()
    this.#timer.set(DAEMON_READY_TIMEOUT_MS, () =>
      this.#lose(`no answer to hello within ${DAEMON_READY_TIMEOUT_MS / 1000} s`),
    )
  }

  /**
   * Asks for a worker.
   * @param header - JSON text of the `start` frame
   * @throws Error with the daemon's reason, the reason why the connection was lost, or that there was no answer in time
   */
  start(header: string): Promise<DaemonWorker> {
    this.#nextId += 1
    const id = this.#nextId
    return new Promise((resolve, reject) => {
      if (this.#isOver) {
        reject(new Error('connection closed'))
        return
      }
      const timer = this.#clock.setTimeout(() => {
        this.#starts.delete(id)
        reject(new Error(`no answer to start within ${START_TIMEOUT_MS / 1000} s`))
      }, START_TIMEOUT_MS)
      this.#starts.set(id, { timer, resolve, reject })
      this.#send(KIND.start, id, header)
    })
  }

  stop(worker: string, graceMs: number): void {
    this.#send(KIND.stop, 0, JSON.stringify({ worker, grace_ms: graceMs }))
  }

  /** Ends the connection without `onLost`. */
  close(): void {
    this.#finish('connection closed')
  }

  #read(bytes: Buffer): boolean {
    try {
      if (!this.#isOver) this.#reader.push(bytes)
    } catch (error) {
      this.#lose(`protocol error: ${(error as Error).message}`)
    }
    return true
  }

  #sendHello(): void {
    const takesReady = this.#events.onOffered !== undefined
    const offers = takesReady ? { ready_workers: true, ready_programs: true } : {}
    if (!this.#isOver) this.#socket.write(encodeHello({ role: 'control', ...offers }))
  }

  #handleFrame(kind: Kind, id: number, headerText: string, body: Buffer): void {
    this.#misses = 0
    if (this.#isOver) return
    const header = parseHeader(headerText)
    switch (kind) {
      case KIND.ready:
        this.#handleReady(header)
        return
      case KIND.started: {
        const start = this.#takeStart(id)
        if (start !== null) start.resolve(toWorker(header, this.#uri))
        // Answers to it must not pile up.
        else if (!this.#isRead()) this.#lose('the daemon sends and does not read')
        else if (id === 0 && this.#events.onOffered !== undefined) this.#events.onOffered(toOffered(header))
        // Its call is gone, and nothing else would end it.
        else this.stop(String(header.worker), 0)
        return
      }
      case KIND.error: {
        const reason = typeof header.message === 'string' ? header.message : 'daemon answered with an error'
        if (id === 0) {
          this.#lose(reason)
          return
        }
        this.#takeStart(id)?.reject(new Error(reason))
        return
      }
      case KIND.exited:
        this.#events.onExited(String(header.worker), toExit(header))
        return
      case KIND.log:
        this.#events.onLog(
          String(header.worker),
          header.stream === 'stderr' ? 'stderr' : 'stdout',
          body.toString('utf8'),
        )
        return
      case KIND.pong:
        this.#events.onTrouble(typeof header.trouble === 'string' ? header.trouble : null)
        return
      case KIND.ping:
        if (this.#isRead()) this.#send(KIND.pong, id, '')
        return
      default:
    }
  }

  /** False when answers to what it sends would pile up. */
  #isRead(): boolean {
    return this.#socket.writableLength < MAX_WAITING_BYTES
  }

  #takeStart(id: number): PendingStart | null {
    const start = this.#starts.get(id)
    if (start === undefined) return null
    this.#starts.delete(id)
    this.#clock.clearTimeout(start.timer)
    return start
  }

  #handleReady(header: Record<string, unknown>): void {
    if (this.#isReady) return
    this.#isReady = true
    this.#ping()
    this.#events.onReady({
      runtime: String(header.runtime ?? ''),
      version: String(header.version ?? ''),
      pid: Number(header.pid) || 0,
      content: header.content,
    })
  }

  #ping(): void {
    this.#timer.set(PING_INTERVAL_MS, () => {
      if (this.#misses >= PING_MISSES) {
        this.#lose(`no answer for ${(PING_INTERVAL_MS * PING_MISSES) / 1000} s`)
        return
      }
      this.#misses += 1
      this.#send(KIND.ping, 0, '')
      this.#ping()
    })
  }

  #send(kind: Kind, id: number, header: string): void {
    if (!this.#isOver) this.#socket.write(encodeFrame(kind, id, header, null))
  }

  #lose(reason: string): void {
    if (this.#isOver) return
    this.#finish(reason)
    this.#events.onLost(reason)
  }

  #finish(reason: string): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#timer.clear()
    this.#socket.destroy()
    for (const id of [...this.#starts.keys()]) this.#takeStart(id)?.reject(new Error(reason))
  }
}

/** @param uri - of the daemon: a worker without a separate socket is reached through that */
function toWorker(header: Record<string, unknown>, uri: string): DaemonWorker {
  return {
    worker: String(header.worker),
    uri: typeof header.uri === 'string' ? header.uri : uri,
    pid: typeof header.pid === 'number' ? header.pid : 0,
  }
}

function toOffered(header: Record<string, unknown>): OfferedWorker {
  const { entries, takes_program: takesProgram } = header
  const texts = Array.isArray(entries) ? entries.filter(one => typeof one === 'string') : []
  return { ...toWorker(header, ''), entries: texts, takesProgram: takesProgram === true }
}

function toExit(header: Record<string, unknown>): WorkerExit {
  const code = typeof header.code === 'number' ? header.code : null
  const signal = typeof header.signal === 'string' ? header.signal : null
  const reason = typeof header.reason === 'string' ? header.reason : `exited with code ${code}`
  return { code, signal, reason }
}
