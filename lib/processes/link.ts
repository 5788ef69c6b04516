/** The private line between the first process and a front: frames both ways over an unnamed pair of sockets. Owner: page processes/processes. */

import type { Socket } from 'node:net'
import { type Bytes, copyOf, lengthOf } from '../core/byte-pool.ts'
import { FrameReader, FrameWriter, KIND, type Kind, SMALL_BODY_BYTES } from '../runtime/wire-protocol.ts'

/** Frames that wait for the end of a poll phase to leave in one write; so many leave at once. */
const FLUSH_FRAMES = 8
/** Largest piece of a streamed body in one frame. */
const PIECE_BYTES = 128 * 1024

interface LinkEvents {
  onFrame(kind: Kind, id: number, header: string, body: Buffer): void
  /** The other process is gone, or broke the protocol. Called once, not after `close`. */
  onLost(reason: string): void
}

export class Link {
  readonly #socket: Socket
  readonly #events: LinkEvents
  readonly #writer: FrameWriter
  readonly #reader: FrameReader
  #unflushed = 0
  #isPlanned = false
  #isOver = false

  /** @param moreBodyBytes - that the body of a call may have beyond the protocol's own limit */
  constructor(socket: Socket, events: LinkEvents, moreBodyBytes = 0) {
    this.#socket = socket
    this.#events = events
    this.#writer = new FrameWriter(bytes => {
      if (socket.writable) socket.write(bytes)
      return socket.writableLength === 0
    })
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

  /** @param body - valid during the call only */
  send(kind: Kind, id: number, header: string, body: Bytes | null = null, rest?: Buffer): void {
    if (this.#isOver) return
    // The writer joins a short one with its header and hands a long one on: what that is a view of may be used again before it is written.
    const isLong = body !== null && lengthOf(body) > SMALL_BODY_BYTES
    this.#writer.add(kind, id, header, isLong ? copyOf(body) : body, rest)
    this.#unflushed += 1
    if (this.#unflushed === FLUSH_FRAMES) this.#flush()
    if (this.#isPlanned) return
    this.#isPlanned = true
    setImmediate(this.#flushLater)
  }

  /** A piece of a streamed body, in frames that the other side takes. */
  sendPiece(id: number, piece: Buffer): void {
    for (let at = 0; at < piece.length; at += PIECE_BYTES)
      this.send(KIND.chunk, id, '', piece.subarray(at, at + PIECE_BYTES))
  }

  close(): void {
    if (this.#isOver) return
    this.#flush()
    this.#isOver = true
    this.#socket.end()
  }

  /** Resolves when everything sent so far is with the other process, or cannot be. */
  finish(): Promise<void> {
    return new Promise(resolve => {
      this.#socket.once('close', () => resolve())
      this.#socket.once('finish', () => resolve())
      if (this.#isOver) resolve()
      else this.close()
    })
  }

  readonly #flushLater = (): void => {
    this.#isPlanned = false
    this.#flush()
  }

  #flush(): void {
    this.#unflushed = 0
    if (!this.#isOver) this.#writer.flush()
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
