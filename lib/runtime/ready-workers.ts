/**
 * Workers that wait for their function, each with a connection that is open: a first call need not wait for one.
 * Owner: page runtime/ready-workers.
 */

import type net from 'node:net'
import { connectWorker, NO_TRUST, toWorkerHello, type PeerEvents } from './worker-socket.ts'

/** Workers kept; a daemon of ours keeps one or two, and more are none that works. */
const MAX_READY = 8

/** A worker as its daemon offers it. */
export interface OfferedWorker {
  worker: string
  uri: string
  pid: number
  /** Ends of the names of entry files that it is prepared for; empty: all. */
  entries: readonly string[]
  /** It becomes the program whose path it reads first. */
  takesProgram: boolean
}

/** As much as a function's `ready` and its first answer take most of the time. */
const FIRST_READ_BYTES = 4096
const NO_BYTES = Buffer.alloc(0)

/** A connection without an owner until a function's worker takes it. It greets at once, unless the process that reads it does not run yet. */
export class ReadyConnection {
  readonly socket: net.Socket
  readonly #hello: Buffer
  #events: PeerEvents | null = null
  /** The first read's memory, which a socket asks for when it is made; null once that was read. */
  #first: Buffer | null

  /**
   * @param onEnd - it ended, or said something, before anybody took it
   * @throws Error when the address is none
   */
  constructor({ worker, uri, takesProgram }: OfferedWorker, onEnd: () => void) {
    const first = Buffer.allocUnsafeSlow(FIRST_READ_BYTES)
    this.#first = first
    const address = { id: worker, uri, isShared: false, trust: NO_TRUST }
    this.socket = connectWorker(address, null, {
      toReadInto: () => (this.#first === null && this.#events !== null ? this.#events.toReadInto() : first),
      onRead: length => {
        // A worker does not speak before it was spoken to.
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
    this.#hello = toWorkerHello(address)
    if (!takesProgram) this.socket.write(this.#hello)
  }

  /** @param path - of the program that is at the other end from then on; without a line break */
  begin(path: string): void {
    this.socket.write(Buffer.concat([Buffer.from(`${path}\n`), this.#hello]))
  }

  /** From here on `events` gets its bytes. */
  adopt(events: PeerEvents): net.Socket {
    this.#events = events
    return this.socket
  }

  #read({ toReadInto, onRead }: PeerEvents, length: number): void {
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

/** Workers that one daemon has offered and no function has taken. */
export class ReadyWorkers {
  /** By id, oldest first. */
  readonly #workers = new Map<string, ReadyWorker>()
  readonly #onRefused: (worker: string) => void

  /** @param onRefused - it is of no use, and nothing else would end it */
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

  /**
   * The oldest that is prepared for such an entry file, or else for another: still faster than a new process.
   * @param program - of a compiled function, which the worker becomes at once
   */
  take(entry: string, program: string | null): ReadyWorker | null {
    const found = this.#find(entry, program)
    if (found === null) return null
    this.#remove(found.worker)
    if (program !== null) found.connection.begin(program)
    return found
  }

  #find(entry: string, program: string | null): ReadyWorker | null {
    // A path is sent as one line.
    if (program?.includes('\n')) return null
    let found: ReadyWorker | null = null
    for (const worker of this.#workers.values()) {
      const { entries } = worker
      if (worker.takesProgram !== (program !== null)) continue
      if (entries.length === 0 || entries.some(end => entry.endsWith(end))) return worker
      found ??= worker
    }
    return found
  }

  /** Its process has ended, or it may not be used. */
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
