/**
 * Joins a gateway's control connection to the daemon process of this machine: the function that the gateway asks to start is found,
 * and made ready, here. Owner: page remote/daemon-server.
 */

import net from 'node:net'
import { type Clock, Timer, within } from '../core/clock.ts'
import type { FolderContent } from '../files/folder-content.ts'
import { toProblem } from '../runtime/greeting.ts'
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
  readonly #silence: Timer
  #isOver = false

  constructor(options: GatewayRelayOptions) {
    this.#options = options
    const { peer, uri, clock } = options
    this.#silence = new Timer(clock, true)
    this.#remote = peer.socket
    this.#local = net.connect({ path: uri.slice('unix:'.length) })
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
    this.#awaitFrame()
    this.#push(fromRemote, peer.rest)
    this.#remote.resume()
  }

  /** @param reason - for the gateway */
  close(reason: string): void {
    if (this.#isOver) return
    this.#isOver = true
    const { clock, onWorker, onClose } = this.#options
    this.#silence.clear()
    for (const worker of this.#workers.keys()) onWorker(worker, null)
    this.#local.destroy()
    endWith(this.#remote, 'start', reason, clock)
    onClose()
  }

  #follow(socket: net.Socket, reader: FrameReader, reason: string): void {
    socket.on('data', chunk => this.#push(reader, chunk))
    socket.on('error', () => {})
    for (const event of ['end', 'close']) socket.once(event, () => this.close(reason))
  }

  #push(reader: FrameReader, chunk: Buffer): void {
    try {
      if (!this.#isOver) reader.push(chunk)
    } catch (error) {
      this.close(toProblem(error))
    }
  }

  /** A cut cable closes nothing: who is not heard of any more is gone, and its workers with it. */
  #awaitFrame(): void {
    this.#silence.set(SILENCE_MS, () => this.close(`nothing was heard for ${SILENCE_MS / 1000} s`))
  }

  #handleRemote(kind: Kind, id: number, header: string, body: Buffer): void {
    if (this.#isOver) return
    this.#awaitFrame()
    if (kind === KIND.start) void this.#start(id, parseHeader(header))
    else if (kind === KIND.stop || kind === KIND.ping || kind === KIND.pong)
      this.#local.write(encodeFrame(kind, id, header, body))
    else this.close(`protocol error: a daemon does not take frames of kind ${kind}`)
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
    if (kind === KIND.ready) {
      void this.#sendReady(parseHeader(header))
      return
    }
    if (kind !== KIND.started && kind !== KIND.exited) {
      this.#send(kind, id, header, body)
      return
    }
    // A worker is reached through the socket of this daemon: the gateway does not learn its address.
    const { uri, ...fields } = parseHeader(header)
    const worker = String(fields.worker)
    if (kind === KIND.started) this.#workers.set(worker, Number(fields.pid) || 0)
    else this.#workers.delete(worker)
    this.#options.onWorker(worker, kind === KIND.started ? String(uri) : null)
    this.#send(kind, id, JSON.stringify(fields), null)
  }

  async #sendReady(header: Header): Promise<void> {
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
