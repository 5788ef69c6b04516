/** The gateways of one daemon, with their workers. Owner: page remote/daemon-server. */

import type { Clock } from '../core/clock.ts'
import type { FolderContent } from '../files/folder-content.ts'
import { killGroup } from '../runtime/started-worker.ts'
import type { SocketHealth } from '../runtime/runtime.ts'
import { encodeFrame, KIND } from '../runtime/wire-protocol.ts'
import { GatewayRelay } from './gateway-relay.ts'
import type { Peer } from './daemon-server.ts'
import { WorkerRelay } from './worker-relay.ts'

/** Milliseconds a peer has to read why it is sent away. */
const LAST_WORD_MS = 1000

interface RelaysOptions {
  clock: Clock
  /** Full path of the functions folder. */
  root: string
  /** The daemon process. */
  health(): SocketHealth
  content(): Promise<FolderContent | null>
  toStart(header: Record<string, unknown>): Promise<Record<string, unknown>>
  packsOf(key: string): readonly string[]
  onNote(text: string): void
}

interface RemoteWorker {
  uri: string
  control: GatewayRelay
}

export class Relays {
  readonly #options: RelaysOptions
  readonly #workers = new Map<string, RemoteWorker>()
  /** Each with the connections to its workers. */
  readonly #controls = new Map<GatewayRelay, Set<WorkerRelay>>()

  constructor(options: RelaysOptions) {
    this.#options = options
  }

  take(peer: Peer): void {
    if (peer.role === 'control') this.#addControl(peer)
    else this.#addWorker(peer)
  }

  /** @param reason - told to every gateway */
  close(reason: string): void {
    for (const control of [...this.#controls.keys()]) control.close(reason)
  }

  #addControl(peer: Peer): void {
    const { health, clock, content, toStart, onNote } = this.#options
    const { up, reason, uri } = health()
    if (!up || uri === '') {
      this.#refuse(peer, reason)
      return
    }
    const from = peer.socket.remoteAddress ?? 'this machine'
    onNote(`a gateway connected from ${from}`)
    const control = new GatewayRelay({
      peer,
      uri,
      clock,
      content,
      toStart,
      onWorker: (worker, workerUri) => {
        if (workerUri === null) this.#workers.delete(worker)
        else this.#workers.set(worker, { uri: workerUri, control })
      },
      endProcess: killGroup,
      onClose: () => {
        for (const relay of this.#controls.get(control) ?? []) relay.close()
        this.#controls.delete(control)
        onNote(`the gateway at ${from} is gone`)
      },
    })
    this.#controls.set(control, new Set())
  }

  #addWorker(peer: Peer): void {
    const worker = this.#workers.get(peer.worker)
    const relays = worker && this.#controls.get(worker.control)
    if (worker === undefined || relays === undefined) {
      this.#refuse(peer, `there is no worker ${JSON.stringify(peer.worker)} here`)
      return
    }
    const { root, clock, packsOf } = this.#options
    const relay = new WorkerRelay({ peer, uri: worker.uri, root, clock, packsOf })
    relays.add(relay)
    peer.socket.once('close', () => relays.delete(relay))
  }

  #refuse({ socket }: Peer, message: string): void {
    const { clock } = this.#options
    socket.resume()
    socket.end(encodeFrame(KIND.error, 0, JSON.stringify({ code: 'start', message }), null), () => socket.destroy())
    clock.setTimeout(() => socket.destroy(), LAST_WORD_MS).unref?.()
  }
}
