/**
 * Workers that wait for their function, each with a connection that is open: a first call need not wait for one.
 * Owner: page runtime/ready-workers.
 */

import type net from 'node:net'
import { NO_TRUST } from './dial.ts'
import { connectWorker, toWorkerHello, type WorkerSocketEvents } from './worker-socket.ts'

/** Workers kept; a daemon of ours keeps one or two, and more are none that works. */
const MAX_READY = 8

/** A worker as its daemon offers it. */
export interface OfferedWorker {
  worker: string
  uri: string
  pid: number
  /** Ends of the names of entry files that it is prepared for; empty: all. */
  entries: readonly string[]
}

/** As much as a function's `ready` and its first answer take most of the time. */
const FIRST_READ_BYTES = 4096
const NO_BYTES = Buffer.alloc(0)

/** A connection that greets at once, and belongs to nobody until a function's worker takes it. */
export class ReadyConnection {
  readonly socket: net.Socket
  #events: WorkerSocketEvents | null = null
  /** The first read's memory, which a socket asks for when it is made; null once that was read. */
  #first: Buffer | null

  /**
   * @param onEnd - it ended, or said something, before anybody took it
   * @throws Error when the address is none
   */
  constructor({ worker, uri }: OfferedWorker, onEnd: () => void) {
    const first = Buffer.allocUnsafeSlow(FIRST_READ_BYTES)
    this.#first = first
    const address = { id: worker, uri, isShared: false, trust: NO_TRUST }
    this.socket = connectWorker(address, null, {
      toReadInto: () => (this.#first === null && this.#events !== null ? this.#events.toReadInto() : first),
      onRead: length => {
        // Whoever speaks before it was spoken to is no worker.
        if (this.#events === null) onEnd()
        else this.#read(this.#events, length)
        return true
      },
      onProven: () => {},
      onProblem: () => {},
    })
    this.socket.on('error', () => {})
    for (const event of ['end', 'close'])
      this.socket.on(event, () => {
        if (this.#events === null) onEnd()
      })
    this.socket.write(toWorkerHello(address))
  }

  /** From here on it is read by whoever took it. */
  adopt(events: WorkerSocketEvents): net.Socket {
    this.#events = events
    return this.socket
  }

  #read({ toReadInto, onRead }: WorkerSocketEvents, length: number): void {
    this.#first?.copy(toReadInto(), 0, 0, length)
    this.#first = null
    onRead(length)
  }

  close(): void {
    this.#events = { toReadInto: () => NO_BYTES, onRead: () => true, onProven: () => {}, onProblem: () => {} }
    this.socket.destroy()
  }
}

export interface ReadyWorker extends OfferedWorker {
  connection: ReadyConnection
}

/** What one daemon has offered and nobody has taken. */
export class ReadyWorkers {
  /** By id, oldest first. */
  readonly #workers = new Map<string, ReadyWorker>()
  readonly #onRefused: (worker: string) => void

  /** @param onRefused - it is of no use, and nobody else would end it */
  constructor(onRefused: (worker: string) => void) {
    this.#onRefused = onRefused
  }

  get size(): number {
    return this.#workers.size
  }

  /** Connects to it. */
  add(offer: OfferedWorker): void {
    const { worker } = offer
    if (this.#workers.size >= MAX_READY || this.#workers.has(worker) || !offer.uri.startsWith('unix:')) {
      this.#onRefused(worker)
      return
    }
    const connection = new ReadyConnection(offer, () => {
      this.drop(worker)
      this.#onRefused(worker)
    })
    this.#workers.set(worker, { ...offer, connection })
  }

  /** The oldest that is prepared for such an entry file, or else for another: still faster than a new process. */
  take(entry: string): ReadyWorker | null {
    let found: ReadyWorker | null = null
    for (const worker of this.#workers.values()) {
      const { entries } = worker
      if (entries.length === 0 || entries.some(end => entry.endsWith(end))) {
        found = worker
        break
      }
      found ??= worker
    }
    return found === null ? null : this.#remove(found.worker)
  }

  /** Its process has ended, or nobody may have it. */
  drop(id: string): void {
    this.#remove(id)?.connection.close()
  }

  clear(): void {
    for (const id of [...this.#workers.keys()]) this.drop(id)
  }

  #remove(id: string): ReadyWorker | null {
    const worker = this.#workers.get(id) ?? null
    this.#workers.delete(id)
    return worker
  }
}
