/**
 * Joins a gateway's control connection to the daemon process of this machine: the function that the gateway asks to start is found,
 * and made ready, here. Owner: page remote/daemon-server.
 */

import net from 'node:net'
import { type Clock, Timer, within } from '../core/clock.ts'
import type { FolderContent } from '../files/folder-content.ts'
import { encodeFrame, encodeHello, FrameReader, KIND, type Kind, parseHeader } from '../runtime/wire-protocol.ts'
import { endWith, type Peer } from './daemon-server.ts'

/** Milliseconds without a frame after which a gateway, which pings every 2 s, counts as gone. */
const SILENCE_MS = 10_000
/** Milliseconds that reading the functions folder may take before `ready` is sent without it. */
const CONTENT_WAIT_MS = 5000
/** Bytes that may wait for the gateway to read before the daemon is read no more. */
const MAX_WAITING_BYTES = 1024 * 1024

type Header = Record<string, unknown>

interface GatewayRelayOptions {
  peer: Peer
  /** `unix:/path` of the daemon process. */
  uri: string
  clock: Clock
  /** Content of the functions folder; null when it cannot be read. */
  content(): Promise<FolderContent | null>
  /**
   * The start that the daemon process gets instead.
   * @throws Error with a message for people
   */
  toStart(header: Header): Promise<Header>
  /** A worker of this gateway listens at `uri`; null: it has ended. */
  onWorker(worker: string, uri: string | null): void
  /** Kills a worker's process with its group, of a daemon process that is gone or is about to do the same. */
  endProcess(pid: number): void
  onClose(): void
}

export class GatewayRelay {
  readonly #options: GatewayRelayOptions
  readonly #remote: net.Socket
  readonly #local: net.Socket
  /** Process (and group) by worker; 0 where it is not known. */
  readonly #workers = new Map<string, number>()
  readonly #timer: Timer
  #heardAt: number
  #isOver = false

  constructor(options: GatewayRelayOptions) {
    this.#options = options
    const { peer, uri, clock } = options
    this.#timer = new Timer(clock, true)
    this.#remote = peer.socket
    this.#local = net.connect({ path: uri.slice('unix:'.length) })
    this.#heardAt = clock.monotonic()
    const fromRemote = new FrameReader((kind, id, header, body) => this.#handleRemote(kind, id, header, body))
    const fromLocal = new FrameReader((kind, id, header, body) => this.#handleLocal(kind, id, header, body))
    this.#follow(this.#remote, fromRemote, 'connection closed')
    this.#follow(this.#local, fromLocal, 'the daemon process ended')
    // Nothing else knows them any more; one that is stuck would never end.
    this.#local.once('close', () => {
      for (const pid of this.#workers.values()) options.endProcess(pid)
      this.#workers.clear()
    })
    this.#remote.on('drain', () => this.#local.resume())
    this.#local.write(encodeHello({ role: 'control' }))
    this.#watch()
    this.#push(fromRemote, peer.rest)
    this.#remote.resume()
  }

  /** @param reason - for the gateway */
  close(reason: string): void {
    if (this.#isOver) return
    this.#isOver = true
    const { clock, onWorker, onClose } = this.#options
    this.#timer.clear()
    for (const worker of this.#workers.keys()) onWorker(worker, null)
    this.#local.destroy()
    endWith(this.#remote, 'start', reason, clock)
    onClose()
  }

  #follow(socket: net.Socket, reader: FrameReader, reason: string): void {
    socket.on('data', chunk => this.#push(reader, chunk))
    socket.on('error', () => {})
    socket.once('end', () => this.close(reason))
    socket.once('close', () => this.close(reason))
  }

  #push(reader: FrameReader, chunk: Buffer): void {
    if (this.#isOver) return
    try {
      reader.push(chunk)
    } catch (error) {
      this.close(`protocol error: ${(error as Error).message}`)
    }
  }

  /** A cut cable closes nothing: who is not heard of any more is gone, and its workers with it. */
  #watch(): void {
    const { clock } = this.#options
    const left = this.#heardAt + SILENCE_MS - clock.monotonic()
    if (left <= 0) {
      this.close(`nothing was heard for ${SILENCE_MS / 1000} s`)
      return
    }
    this.#timer.set(left, () => this.#watch())
  }

  #handleRemote(kind: Kind, id: number, header: string, body: Buffer): void {
    if (this.#isOver) return
    this.#heardAt = this.#options.clock.monotonic()
    switch (kind) {
      case KIND.start:
        void this.#start(id, parseHeader(header))
        return
      case KIND.stop:
      case KIND.ping:
      case KIND.pong:
        this.#local.write(encodeFrame(kind, id, header, body))
        return
      default:
        this.close(`protocol error: a daemon does not take frames of kind ${kind}`)
    }
  }

  async #start(id: number, header: Header): Promise<void> {
    try {
      const start = await this.#options.toStart(header)
      if (!this.#isOver) this.#local.write(encodeFrame(KIND.start, id, JSON.stringify(start), null))
    } catch (error) {
      this.#send(KIND.error, id, JSON.stringify({ code: 'start', message: (error as Error).message }), null)
    }
  }

  #handleLocal(kind: Kind, id: number, header: string, body: Buffer): void {
    switch (kind) {
      case KIND.ready:
        void this.#tellReady(parseHeader(header))
        return
      case KIND.started: {
        const { uri, ...fields } = parseHeader(header)
        const worker = String(fields.worker)
        this.#workers.set(worker, Number(fields.pid) || 0)
        this.#options.onWorker(worker, String(uri))
        // It is reached through the socket of this daemon.
        this.#send(kind, id, JSON.stringify(fields), null)
        return
      }
      case KIND.exited: {
        const worker = String(parseHeader(header).worker)
        this.#workers.delete(worker)
        this.#options.onWorker(worker, null)
        this.#send(kind, id, header, body)
        return
      }
      default:
        this.#send(kind, id, header, body)
    }
  }

  async #tellReady(header: Header): Promise<void> {
    const { clock, content } = this.#options
    const found = await within(clock, CONTENT_WAIT_MS, content())
    this.#send(KIND.ready, 0, JSON.stringify(found === null ? header : { ...header, content: found }), null)
  }

  #send(kind: Kind, id: number, header: string, body: Buffer | null): void {
    if (this.#isOver) return
    this.#remote.write(encodeFrame(kind, id, header, body))
    if (this.#remote.writableLength > MAX_WAITING_BYTES) this.#local.pause()
  }
}
