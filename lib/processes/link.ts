/** The private line between the first process and an acceptor: frames both ways over an unnamed pair of sockets. Owner: page processes/processes. */

import type { Socket } from 'node:net'
import { finished } from 'node:stream/promises'
import type { Settings } from '../config/settings.ts'
import type { EndpointPath } from '../control/control-plane.ts'
import { type Bytes, copyOf, lengthOf } from '../core/byte-pool.ts'
import { ERROR_STATUS, type ErrorCode, GatewayError, type Warning } from '../core/errors.ts'
import type { Discovery } from '../discovery/discover.ts'
import type { Listening } from '../http/server.ts'
import type { FailedCall } from '../observe/journal.ts'
import type { MetricCounts } from '../observe/metrics.ts'
import type { StartedWorker, WorkerExit } from '../runtime/socket-worker.ts'
import { FrameReader, FrameWriter, KIND, type Kind, parseHeader, SMALL_BODY_BYTES } from '../runtime/wire-protocol.ts'

/** Frames that leave in one write before the end of a poll phase. */
const FLUSH_FRAMES = 8
/** Largest piece of a streamed body in one frame. */
const PIECE_BYTES = 128 * 1024

export interface LinkEvents {
  onFrame(kind: Kind, id: number, header: string, body: Buffer): void
  /** The other process is gone, or broke the protocol. Called once, not after `close`. */
  onLost(reason: string): void
}

export class Link {
  readonly #socket: Socket
  readonly #events: LinkEvents
  readonly #writer: FrameWriter
  readonly #reader: FrameReader
  #isOver = false
  #lastId = 0

  /** @param moreBodyBytes - that the body of a call may have beyond the protocol's own limit */
  constructor(socket: Socket, events: LinkEvents, moreBodyBytes = 0) {
    this.#socket = socket
    this.#events = events
    this.#writer = new FrameWriter(bytes => {
      if (socket.writable) socket.write(bytes)
      return socket.writableLength === 0
    }, FLUSH_FRAMES)
    this.#reader = new FrameReader((kind, id, header, body) => {
      if (!this.#isOver) events.onFrame(kind, id, header, body)
    }, moreBodyBytes)
    socket.on('data', bytes => this.#read(bytes))
    socket.on('error', () => {})
    socket.on('close', () => this.#lose('connection closed'))
  }

  get isOver(): boolean {
    return this.#isOver
  }

  /** An id for what is asked over it: 32 bits, and never 0. */
  nextId(): number {
    this.#lastId = (this.#lastId % 0xffff_ffff) + 1
    return this.#lastId
  }

  /** @param body - valid during the call only */
  send(kind: Kind, id: number, header: string, body: Bytes | null = null): void {
    if (this.#isOver) return
    // The writer joins a short one with its header and hands a long one on: the memory it views may be used again before it is written.
    const isLong = body !== null && lengthOf(body) > SMALL_BODY_BYTES
    this.#writer.add(kind, id, header, isLong ? copyOf(body) : body)
  }

  /** A piece of a streamed body, in frames that the other side takes. */
  sendPiece(id: number, piece: Buffer): void {
    for (let at = 0; at < piece.length; at += PIECE_BYTES)
      this.send(KIND.chunk, id, '', piece.subarray(at, at + PIECE_BYTES))
  }

  close(): void {
    if (this.#isOver) return
    this.#writer.flush()
    this.#isOver = true
    this.#socket.end()
  }

  /** Resolves when everything sent so far is with the other process, or cannot be. */
  async finish(): Promise<void> {
    this.close()
    await finished(this.#socket, { readable: false }).catch(() => {})
  }

  #read(bytes: Buffer): void {
    if (this.#isOver) return
    try {
      this.#reader.push(bytes)
    } catch (error) {
      this.#lose(`protocol error: ${(error as Error).message}`)
    }
  }

  #lose(reason: string): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#socket.destroy()
    this.#events.onLost(reason)
  }
}

/** The line as calls and requests use it. */
export type Line = Pick<Link, 'nextId' | 'send' | 'sendPiece'>

// Headers of the line's frames: which call, which failure.

/** Bytes of one text of a failure as JSON, and characters of one that has more: all texts fit the header of an `error` frame. */
const MAX_TEXT_BYTES = 12 * 1024
const CUT_CHARS = 2 * 1024

/** Header of a `call`: the key of the function version, which has no line end, and the handler event. */
export function joinCall(key: string, event: string): string {
  return `${key}\n${event}`
}

/** Such a header as key and handler event. @throws Error for one that is none */
export function cutCall(header: string): { key: string; event: string } {
  const end = header.indexOf('\n')
  if (end === -1) throw new Error('call without a key')
  return { key: header.slice(0, end), event: header.slice(end + 1) }
}

function cutText(text: string): string {
  return Buffer.byteLength(JSON.stringify(text)) > MAX_TEXT_BYTES ? `${text.slice(0, CUT_CHARS)}...` : text
}

/** A failure as the header of an `error` or `end` frame. */
export function toErrorHeader({ code, message, status, headers, detail }: GatewayError): string {
  const shown: Record<string, unknown> = { ...detail }
  for (const [name, value] of Object.entries(shown)) if (typeof value === 'string') shown[name] = cutText(value)
  return JSON.stringify({ code, message: cutText(message), status, headers, ...(detail && { detail: shown }) })
}

/** The failure in a header; null for a header without one. */
export function fromErrorHeader(header: string): GatewayError | null {
  if (header === '') return null
  const { code, message, ...facts } = parseHeader(header)
  const known = Object.hasOwn(ERROR_STATUS, String(code)) ? (code as ErrorCode) : 'INTERNAL'
  return new GatewayError(known, String(message), facts as ConstructorParameters<typeof GatewayError>[2])
}

/** How a call reached its worker, where that is worth reporting. */
interface CallFacts {
  cold: boolean
  socketIndex: number
  queuedMs: number
  loadError: GatewayError | null
}

export function toFactsHeader(facts: CallFacts): string {
  const { loadError } = facts
  return JSON.stringify({ ...facts, loadError: loadError === null ? '' : toErrorHeader(loadError) })
}

export function fromFactsHeader(header: string): CallFacts {
  const { cold, socketIndex, queuedMs, loadError } = parseHeader(header)
  return {
    cold: cold === true,
    socketIndex: Number(socketIndex) || 1,
    queuedMs: Number(queuedMs) || 0,
    loadError: fromErrorHeader(String(loadError ?? '')),
  }
}

// Messages between the first process and an acceptor beside calls. Data that the structured clone takes.

export type EdgeResult = 'answered' | 'failed' | 'refused' | 'left'

/** A tree as the first process has read it. */
export interface AdoptMessage {
  kind: 'adopt'
  generation: number
  discovery: Discovery
}

export interface BeginMessage {
  kind: 'begin'
  settings: Settings
  controlPaths: readonly EndpointPath[]
  /** Descriptors of the sockets to listen on. */
  fds: readonly number[]
  /** Where the gateway listens, its control plane's own socket among them: no function may be sent there. */
  addresses: readonly Listening[]
  wantsRequests: boolean
  /** Processes of the gateway. */
  processes: number
  tree: AdoptMessage
}

/** An acceptor may run calls of a function itself. */
export interface LeaseMessage {
  kind: 'lease'
  id: number
  key: string
  /** 0 for an unlimited function. */
  slots: number
  program: string | null
  /** JSON text of its workers' `start` frame. */
  header: string
}

/** The fate of a worker that an acceptor asked for. */
export type WorkerMessage =
  | { kind: 'worker'; ask: number; worker: Omit<StartedWorker, 'connection' | 'kill' | 'ended'> }
  | { kind: 'noWorker'; ask: number; error: string }
  | { kind: 'workerExit'; ask: number; exit: WorkerExit }

export type ToAcceptor =
  | BeginMessage
  | AdoptMessage
  | LeaseMessage
  | { kind: 'recall'; id: number }
  | WorkerMessage
  | { kind: 'wants'; requests: boolean }
  | { kind: 'count'; id: number }
  /** All connections but `kept` are to go: others have fewer. */
  | { kind: 'shed'; kept: number }
  | { kind: 'drain' }
  | { kind: 'close'; timeoutMs: number }

export type FromAcceptor =
  | { kind: 'serving'; generation: number }
  | { kind: 'adopted'; generation: number }
  /** @param id - of the question; 0 for none */
  | {
      kind: 'counts'
      id: number
      counts: MetricCounts | null
      edge: Record<EdgeResult, number> | null
      used: (readonly [id: number, calls: number])[]
      connections: number
    }
  /** A failed call of which only its acceptor knows; `error` is a header of the line. */
  | { kind: 'failed'; key: string | null; call: Omit<FailedCall, 'fn'>; error: string }
  /** Output of a function in a worker of an acceptor; `call` is null outside any call. */
  | {
      kind: 'output'
      key: string
      stream: 'stdout' | 'stderr'
      text: string
      call: Pick<FailedCall, 'id' | 'trace'> | null
    }
  /** A worker failed to load or ended by itself. */
  | { kind: 'workerFailed'; key: string; error: string }
  | { kind: 'log'; level: 'info' | 'warn' | 'error'; message: string }
  | { kind: 'warning'; warning: Warning }
  /** Many calls of a function go over the line. */
  | { kind: 'ask'; key: string }
  /** A lease is given back, all but the slots of calls that run. */
  | { kind: 'returned'; id: number; used: number }
  /** One of those has ended. */
  | { kind: 'freed'; id: number }
  | { kind: 'startWorker'; ask: number; key: string; program: string | null; header: string }
  | { kind: 'stopWorker'; ask: number; graceMs: number }
