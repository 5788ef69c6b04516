/**
 * Length-prefixed frames between the gateway, daemons and workers; no I/O. Spec: §1, page runtime/wire-protocol.
 *
 *   u32 length | u8 kind | u32 id | u32 header length | header: JSON text | body: raw bytes
 *   `length` counts what follows it: 9 + header + body.
 */

import { type BytePool, type Bytes, lengthOf } from '../core/byte-pool.ts'
import { MAX_FRAME_BYTES, PROTOCOL_VERSION } from '../core/limits.ts'

const KIB = 1024
const MIB = 1024 * KIB

/**
 * Number of each kind, and the most bytes of its header and of its body. A peer that sends more is not read on: a header is a
 * text in memory, and a frame is kept until it is whole. To the body of a call the function's `max_body_bytes` are added.
 */
export const FRAME_LIMITS = {
  hello: { kind: 1, header: 4 * KIB, body: 16 },
  ready: { kind: 2, header: 256 * KIB, body: 0 },
  start: { kind: 3, header: 4 * MIB, body: 0 },
  started: { kind: 4, header: 4 * KIB, body: 0 },
  stop: { kind: 5, header: 4 * KIB, body: 0 },
  exited: { kind: 6, header: 4 * KIB, body: 0 },
  log: { kind: 7, header: 4 * KIB, body: 64 * KIB },
  loaded: { kind: 8, header: 256 * KIB, body: 0 },
  call: { kind: 16, header: MIB, body: MAX_FRAME_BYTES },
  reply: { kind: 17, header: 512 * KIB, body: MAX_FRAME_BYTES },
  chunk: { kind: 18, header: 4 * KIB, body: 256 * KIB },
  end: { kind: 19, header: 64 * KIB, body: 0 },
  cancel: { kind: 20, header: 4 * KIB, body: 0 },
  error: { kind: 21, header: 64 * KIB, body: 0 },
  more: { kind: 22, header: 4 * KIB, body: 0 },
  ping: { kind: 32, header: 4 * KIB, body: 64 },
  pong: { kind: 33, header: 4 * KIB, body: 64 },
} as const

type Frames = typeof FRAME_LIMITS
export const KIND = Object.fromEntries(Object.entries(FRAME_LIMITS).map(([name, { kind }]) => [name, kind])) as {
  readonly [Name in keyof Frames]: Frames[Name]['kind']
}
export type Kind = Frames[keyof Frames]['kind']

/** Names and limits by number; -1 for an unknown kind. */
const NAMES: string[] = []
const MAX_HEADER = new Int32Array(256).fill(-1)
const MAX_BODY = new Int32Array(256)
for (const [name, { kind, header, body }] of Object.entries(FRAME_LIMITS)) {
  NAMES[kind] = name
  MAX_HEADER[kind] = header
  MAX_BODY[kind] = body
}

/** Bytes of the length word, and of the fixed fields behind it. */
const LENGTH_BYTES = 4
const FIXED_BYTES = 9
const PREFIX_BYTES = LENGTH_BYTES + FIXED_BYTES

const NO_BYTES = Buffer.alloc(0)
type FrameProblem =
  | 'FRAME_TOO_SHORT'
  | 'FRAME_TOO_LONG'
  | 'UNKNOWN_KIND'
  | 'HEADER_TOO_LONG'
  | 'HEADER_TOO_LARGE'
  | 'BODY_TOO_LARGE'
  | 'BAD_HEADER'

/** A peer broke the protocol: the connection is closed, nothing else. */
export class ProtocolError extends Error {
  readonly code: FrameProblem
  /** The call whose frame is too large; 0 for other frames and other problems. */
  readonly id: number
  constructor(code: FrameProblem, message: string, id = 0) {
    super(message)
    this.name = 'ProtocolError'
    this.code = code
    this.id = id
  }
}

/**
 * One frame as bytes.
 * @param header - JSON text, '' for no fields
 */
export function encodeFrame(kind: Kind, id: number, header: string, body: Uint8Array | null): Buffer {
  const headerBytes = Buffer.byteLength(header)
  const bodyBytes = body === null ? 0 : body.length
  const frame = Buffer.allocUnsafe(PREFIX_BYTES + headerBytes + bodyBytes)
  frame.writeUInt32BE(FIXED_BYTES + headerBytes + bodyBytes, 0)
  frame[4] = kind
  frame.writeUInt32BE(id, 5)
  frame.writeUInt32BE(headerBytes, 9)
  frame.write(header, PREFIX_BYTES)
  if (body !== null) frame.set(body, PREFIX_BYTES + headerBytes)
  return frame
}

const VERSION_BODY = Buffer.from([PROTOCOL_VERSION])

/** The frame that opens a connection. */
export function encodeHello(fields: object): Buffer {
  return encodeFrame(KIND.hello, 0, JSON.stringify(fields), VERSION_BODY)
}

/** Header text to fields. @throws ProtocolError BAD_HEADER when it is not a JSON object */
export function parseHeader(header: string): Record<string, unknown> {
  if (header === '') return {}
  let value: unknown
  try {
    value = JSON.parse(header)
  } catch {
    throw new ProtocolError('BAD_HEADER', 'frame header is not JSON')
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ProtocolError('BAD_HEADER', 'frame header is not a JSON object')
  }
  return value as Record<string, unknown>
}

/**
 * Receives one frame; `body` is a view that is valid during the call only, or until its pool gets it back. With a
 * pool a `chunk` may come in parts, each as a separate chunk: it is a piece of a stream either way.
 */
type FrameHandler = (kind: Kind, id: number, header: string, body: Buffer) => void

/** Bytes from which on an unfinished frame is kept in the pool. */
const POOLED_FRAME_BYTES = 16 * 1024

/**
 * Cuts a byte stream into frames. One pass over each chunk; a frame that spans chunks is put together by one copy, or, where
 * the owner reads into `room`, by none of what follows its beginning.
 */
export class FrameReader {
  readonly #handler: FrameHandler
  #onFrame: FrameHandler
  readonly #pool: BytePool | null
  /** Added to the limit of a call's body. */
  readonly #moreBodyBytes: number
  #maxFrameBytes: number
  /** Kinds that are expected; null for all. */
  #expected: readonly number[] | null = null
  #isStopped = false
  /** The unfinished frame: `held` bytes of it so far. As long as its fixed fields while these are not complete. */
  #unfinished: Buffer = NO_BYTES
  #held = 0
  /** The chunk of which parts were handed on: its call, and bytes of its body that are still to come. */
  #partId = 0
  #partLeft = 0

  /** @param pool - for large unfinished frames; null where these are rare */
  constructor(onFrame: FrameHandler, maxBodyBytes = 0, pool: BytePool | null = null) {
    this.#handler = this.#onFrame = onFrame
    this.#pool = pool
    this.#moreBodyBytes = maxBodyBytes
    this.#maxFrameBytes = MAX_FRAME_BYTES + maxBodyBytes
  }

  /** Until `open`, only frames of these kinds are taken, and `onFrame` gets them: the peer has not proved itself. */
  guard(kinds: readonly Kind[], onFrame: FrameHandler): void {
    this.#expected = kinds
    this.#onFrame = onFrame
    this.#maxFrameBytes = FIXED_BYTES + Math.max(...kinds.map(kind => MAX_HEADER[kind]! + MAX_BODY[kind]!))
  }

  open(): void {
    this.#expected = null
    this.#onFrame = this.#handler
    this.#maxFrameBytes = MAX_FRAME_BYTES + this.#moreBodyBytes
  }

  /** Called by a handler: the bytes behind its frame belong to another reader, and `push` returns where they begin. */
  stop(): void {
    this.#isStopped = true
  }

  /** Where the rest of a large unfinished frame belongs: `fill` reports bytes that were read into it. Null without one. */
  get room(): Buffer | null {
    const unfinished = this.#unfinished
    return this.#pool !== null && unfinished.length >= POOLED_FRAME_BYTES ? unfinished.subarray(this.#held) : null
  }

  /**
   * The next `length` bytes of the stream are in `room`.
   * @throws what `onFrame` throws
   */
  fill(length: number): void {
    this.#held += length
    if (this.#held === this.#unfinished.length) this.#finish()
  }

  /**
   * @param chunk - the next `length` bytes of the stream; the caller may use its memory again afterwards
   * @returns how many of them were taken: all, unless a handler called `stop`
   * @throws ProtocolError; the reader must not be used after that
   */
  push(chunk: Buffer, length = chunk.length): number {
    let at = 0
    if (this.#partLeft > 0) {
      at = this.#handPartOn(chunk, 0, length)
    } else if (this.#held > 0) {
      at = this.#add(chunk, length)
      if (this.#held > 0) return length
    }
    while (length - at >= PREFIX_BYTES && !this.#isStopped) {
      const bytes = this.#measure(chunk, at)
      if (at + bytes > length) {
        if (!this.#beginParts(chunk, at, length, bytes)) this.#hold(chunk, at, length, bytes)
        return length
      }
      this.#handOn(chunk, at, at + bytes)
      at += bytes
    }
    if (at === length || this.#isStopped) return at
    this.#hold(chunk, at, length, PREFIX_BYTES)
    this.#checkHeldLength()
    return length
  }

  /**
   * The first part of a chunk goes on at once: held until the rest comes, it would leave in a separate write with that rest.
   * @returns false when none of its body is here, or the frame is another
   */
  #beginParts(chunk: Buffer, from: number, to: number, bytes: number): boolean {
    const bodyAt = from + PREFIX_BYTES + chunk.readUInt32BE(from + 9)
    if (this.#pool === null || chunk[from + 4] !== KIND.chunk || bodyAt >= to) return false
    this.#partId = chunk.readUInt32BE(from + 5)
    this.#partLeft = from + bytes - bodyAt
    this.#handPartOn(chunk, bodyAt, to)
    return true
  }

  /** @returns where the part ends */
  #handPartOn(chunk: Buffer, from: number, to: number): number {
    const end = Math.min(to, from + this.#partLeft)
    this.#partLeft -= end - from
    this.#onFrame(KIND.chunk, this.#partId, '', chunk.subarray(from, end))
    return end
  }

  #hold(chunk: Buffer, from: number, to: number, bytes: number): void {
    const isLarge = this.#pool !== null && bytes >= POOLED_FRAME_BYTES
    this.#unfinished = isLarge ? this.#pool!.take(bytes) : Buffer.allocUnsafe(bytes)
    this.#held = chunk.copy(this.#unfinished, 0, from, to)
  }

  /** Adds to the unfinished frame and hands it on when it is complete. @returns how many bytes of the chunk it took */
  #add(chunk: Buffer, length: number): number {
    let at = 0
    if (this.#held < PREFIX_BYTES) {
      at = chunk.copy(this.#unfinished, this.#held, 0, Math.min(length, PREFIX_BYTES - this.#held))
      this.#held += at
      this.#checkHeldLength()
      if (this.#held < PREFIX_BYTES) return at
      this.#hold(this.#unfinished, 0, PREFIX_BYTES, this.#measure(this.#unfinished, 0))
    }
    const taken = chunk.copy(this.#unfinished, this.#held, at, length)
    this.#held += taken
    if (this.#held === this.#unfinished.length) this.#finish()
    return at + taken
  }

  #finish(): void {
    const frame = this.#unfinished
    this.#unfinished = NO_BYTES
    this.#held = 0
    this.#handOn(frame, 0, frame.length)
    this.#pool?.free(frame)
  }

  /** Bytes of the frame whose fixed fields are here. Nothing is kept or made of it before this has passed. */
  #measure(chunk: Buffer, at: number): number {
    const length = this.#checkLength(chunk.readUInt32BE(at))
    const kind = chunk[at + 4]!
    const headerBytes = chunk.readUInt32BE(at + 9)
    const bodyBytes = length - FIXED_BYTES - headerBytes
    const maxHeader = MAX_HEADER[kind]!
    if (this.#expected !== null && !this.#expected.includes(kind))
      throw new ProtocolError('UNKNOWN_KIND', `frame kind ${kind} is not expected now`)
    if (maxHeader === -1) throw new ProtocolError('UNKNOWN_KIND', `unknown frame kind ${kind}`)
    if (bodyBytes < 0) throw new ProtocolError('HEADER_TOO_LONG', 'frame header is longer than its frame')
    const maxBody = MAX_BODY[kind]! + (kind === KIND.call ? this.#moreBodyBytes : 0)
    if (headerBytes > maxHeader || bodyBytes > maxBody) {
      const id = chunk.readUInt32BE(at + 5)
      throw headerBytes > maxHeader
        ? new ProtocolError('HEADER_TOO_LARGE', toLargeText('header', kind, headerBytes, maxHeader), id)
        : new ProtocolError('BODY_TOO_LARGE', toLargeText('body', kind, bodyBytes, maxBody), id)
    }
    return LENGTH_BYTES + length
  }

  /** A wrong length is reported as soon as it is here. */
  #checkHeldLength(): void {
    if (this.#held >= LENGTH_BYTES) this.#checkLength(this.#unfinished.readUInt32BE(0))
  }

  #handOn(chunk: Buffer, from: number, to: number): void {
    const headerBytes = chunk.readUInt32BE(from + 9)
    const bodyAt = from + PREFIX_BYTES + headerBytes
    this.#onFrame(
      chunk[from + 4] as Kind,
      chunk.readUInt32BE(from + 5),
      headerBytes === 0 ? '' : chunk.toString('utf8', from + PREFIX_BYTES, bodyAt),
      bodyAt === to ? NO_BYTES : chunk.subarray(bodyAt, to),
    )
  }

  #checkLength(length: number): number {
    if (length < FIXED_BYTES)
      throw new ProtocolError('FRAME_TOO_SHORT', `frame length ${length} is below ${FIXED_BYTES}`)
    if (length > this.#maxFrameBytes) {
      throw new ProtocolError('FRAME_TOO_LONG', `frame length ${length} is above ${this.#maxFrameBytes}`)
    }
    return length
  }
}

function toLargeText(part: string, kind: number, bytes: number, limit: number): string {
  return `${part} of a ${NAMES[kind]} frame is ${bytes} bytes, above ${limit}`
}

/** Bytes of one joined write; a body above SMALL_BODY_BYTES is handed on without copying. */
const BLOCK_BYTES = 64 * 1024
export const SMALL_BODY_BYTES = 16 * 1024

/**
 * Joins frames into few writes: they wait for the end of a poll phase, and some leave at once, for the peer to begin while the
 * rest of what the poll phase brought is read.
 */
export class FrameWriter {
  readonly #write: (bytes: Buffer) => boolean
  readonly #maxFrames: number
  #unflushed = 0
  #isPlanned = false
  #block: Buffer = Buffer.allocUnsafe(BLOCK_BYTES)
  #from = 0
  #to = 0

  /**
   * @param write - returns true when it has no use for the bytes any more
   * @param maxFrames - this many leave at once
   */
  constructor(write: (bytes: Buffer) => boolean, maxFrames: number) {
    this.#write = write
    this.#maxFrames = maxFrames
  }

  /**
   * Adds a frame.
   * @param header - JSON text, '' for no fields
   */
  add(kind: Kind, id: number, header: string, body: Bytes | null): void {
    const bodyBytes = body === null ? 0 : lengthOf(body)
    const copied = bodyBytes <= SMALL_BODY_BYTES ? bodyBytes : 0
    // Three bytes a UTF-16 unit is the most UTF-8 needs, so the header can be written before it is measured.
    this.#reserve(PREFIX_BYTES + header.length * 3 + copied)
    const at = this.#to
    const headerBytes = header === '' ? 0 : this.#block.write(header, at + PREFIX_BYTES)
    this.#block.writeUInt32BE(FIXED_BYTES + headerBytes + bodyBytes, at)
    this.#block[at + 4] = kind
    this.#block.writeUInt32BE(id, at + 5)
    this.#block.writeUInt32BE(headerBytes, at + 9)
    this.#to = at + PREFIX_BYTES + headerBytes
    if (body !== null) this.#addBody(Array.isArray(body) ? body : [body], copied === bodyBytes)
    this.#unflushed += 1
    if (this.#unflushed === this.#maxFrames) this.flush()
    if (this.#isPlanned) return
    this.#isPlanned = true
    setImmediate(this.#flushLater)
  }

  #addBody(pieces: readonly Buffer[], isCopied: boolean): void {
    if (!isCopied) this.flush()
    for (const piece of pieces) {
      if (isCopied) this.#to += piece.copy(this.#block, this.#to)
      else this.#write(piece)
    }
  }

  readonly #flushLater = (): void => {
    this.#isPlanned = false
    this.flush()
  }

  flush(): void {
    this.#unflushed = 0
    if (this.#to === this.#from) return
    const isGone = this.#write(this.#block.subarray(this.#from, this.#to))
    if (isGone && this.#from === 0) this.#to = 0
    this.#from = this.#to
  }

  #reserve(bytes: number): void {
    if (this.#to + bytes <= this.#block.length) return
    this.flush()
    // The socket may still hold views of the old block.
    this.#block = Buffer.allocUnsafe(Math.max(BLOCK_BYTES, bytes))
    this.#from = 0
    this.#to = 0
  }
}
