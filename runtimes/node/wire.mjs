/**
 * Frames of the wire protocol, for node workers and the daemon of node, go and rust. Page: runtime/wire-protocol.
 *
 *   u32 length | u8 kind | u32 id | u32 header length | header: JSON text | body: raw bytes
 */

export const PROTOCOL_VERSION = 1

export const KIND = Object.freeze({
  hello: 1,
  ready: 2,
  start: 3,
  started: 4,
  stop: 5,
  exited: 6,
  log: 7,
  loaded: 8,
  call: 16,
  reply: 17,
  chunk: 18,
  end: 19,
  cancel: 20,
  error: 21,
  more: 22,
  ping: 32,
  pong: 33,
})

const KIB = 1024
const MIB = KIB * KIB
/**
 * Most bytes of header and body by kind, looked at before memory is taken for them. A call may have a function's
 * `max_body_bytes` more.
 * @type {Readonly<Record<string, readonly [number, number]>>}
 */
const LIMITS = {
  hello: [4 * KIB, 16],
  ready: [256 * KIB, 0],
  start: [4 * MIB, 0],
  started: [4 * KIB, 0],
  stop: [4 * KIB, 0],
  exited: [4 * KIB, 0],
  log: [4 * KIB, 64 * KIB],
  loaded: [256 * KIB, 0],
  call: [MIB, 16 * MIB],
  reply: [512 * KIB, 16 * MIB],
  chunk: [4 * KIB, 256 * KIB],
  end: [64 * KIB, 0],
  cancel: [4 * KIB, 0],
  error: [64 * KIB, 0],
  more: [4 * KIB, 0],
  ping: [4 * KIB, 64],
  pong: [4 * KIB, 64],
}
/** Largest body of one `log` frame, bytes. */
const MAX_LOG_BYTES = 64 * KIB
/** Largest header of `ready` and `loaded`, and what it needs beside the names of files, bytes. */
const MAX_FILES_BYTES = 256 * KIB
const FILES_MARGIN_BYTES = 64
/** Largest body of one `reply`, bytes; a larger one goes out as chunks. */
export const MAX_REPLY_BODY_BYTES = MIB
/** Largest status and headers of a `reply`: its header has little more, bytes. */
export const MAX_REPLY_FIELDS_BYTES = 512 * KIB - 64
/** Bytes of a stream that may be under way, and of one chunk. */
export const STREAM_WINDOW_BYTES = 256 * 1024

const PREFIX_BYTES = 13
const FIXED_BYTES = 9
/** Largest frame of any kind: a call, before its function's `max_body_bytes` is added, bytes. */
const MAX_FRAME_BYTES = FIXED_BYTES + 17 * MIB
const EMPTY = Buffer.alloc(0)
const MOST_HEADER_BYTES = new Int32Array(256).fill(-1)
const MOST_BODY_BYTES = new Int32Array(256)
/** @type {string[]} */
const NAMES = []
for (const [name, kind] of Object.entries(KIND)) {
  const [header, body] = /** @type {readonly [number, number]} */ (LIMITS[name])
  MOST_HEADER_BYTES[kind] = header
  MOST_BODY_BYTES[kind] = body
  NAMES[kind] = name
}

// Handlers may patch builtins; the frames of their own process must stay right.
const { parse, stringify } = JSON
const { allocUnsafe, allocUnsafeSlow, byteLength } = Buffer

/** @typedef {import('./frame-memory.mjs').FrameMemory} FrameMemory */

export class ProtocolError extends Error {}

/**
 * @param {number} kind
 * @param {number} id
 * @param {string} header - JSON text, '' for no fields
 * @param {Uint8Array | null} [body]
 * @returns {Buffer} one frame
 */
export function encodeFrame(kind, id, header, body = null) {
  const headerBytes = byteLength(header)
  const bodyBytes = body === null ? 0 : body.length
  const frame = allocUnsafe(PREFIX_BYTES + headerBytes + bodyBytes)
  frame.writeUInt32BE(FIXED_BYTES + headerBytes + bodyBytes, 0)
  frame[4] = kind
  frame.writeUInt32BE(id, 5)
  frame.writeUInt32BE(headerBytes, 9)
  frame.write(header, PREFIX_BYTES)
  if (body !== null) frame.set(body, PREFIX_BYTES + headerBytes)
  return frame
}

/**
 * @param {string} text - header of a frame
 * @returns {Record<string, any>}
 */
export function parseHeader(text) {
  if (text === '') return {}
  let value
  try {
    value = parse(text)
  } catch {
    throw new ProtocolError('frame header is not JSON')
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ProtocolError('frame header is not a JSON object')
  }
  return value
}

/**
 * As many files as fit into a `ready` or `loaded` frame.
 * @param {string[]} files
 */
export function cutFiles(files) {
  let left = MAX_FILES_BYTES - FILES_MARGIN_BYTES
  const end = files.findIndex(file => {
    left -= byteLength(stringify(file)) + 1
    return left < 0
  })
  return end === -1 ? files : files.slice(0, end)
}

/**
 * Output in pieces that fit into `log` frames, cut between characters.
 * @param {Buffer} bytes
 * @returns {Buffer[]}
 */
export function cutLog(bytes) {
  const pieces = []
  for (let at = 0; at < bytes.length; ) {
    let end = Math.min(bytes.length, at + MAX_LOG_BYTES)
    // Text that is none is cut anywhere.
    for (let back = 0; back < 3 && end < bytes.length && isInside(bytes, end); back++) end -= 1
    pieces.push(bytes.subarray(at, end))
    at = end
  }
  return pieces
}

/** True at a byte 10xxxxxx, which goes on with a character. @param {Buffer} bytes @param {number} at */
function isInside(bytes, at) {
  return (bytes.readUInt8(at) & 0xc0) === 0x80
}

/** Cuts a byte stream into frames, whatever way the transport splits it. */
export class FrameReader {
  /** What the body of a `call` may have beyond the protocol's own limit: the function's `max_body_bytes`. */
  maxBodyBytes = 0
  /** The unfinished frame: `#held` bytes of it. As long as its fixed fields while these are not complete. */
  #unfinished = EMPTY
  #held = 0
  #onFrame
  /** The only kind taken, 0 for all. */
  #only
  /** @type {FrameMemory | null} */
  #memory

  /**
   * @param {(kind: number, id: number, header: string, body: Buffer, isOwn: boolean) => void} onFrame - `body` is a view to
   *   copy if kept, unless it is the frame's own memory
   * @param {number} [only] - the kind that the first frame must have; `acceptAll` ends that
   * @param {FrameMemory | null} [memory] - for large frames; null gives each memory that the collector takes
   */
  constructor(onFrame, only = 0, memory = null) {
    this.#onFrame = onFrame
    this.#only = only
    this.#memory = memory
  }

  acceptAll() {
    this.#only = 0
  }

  /** Where the rest of a large unfinished frame belongs: what is read into it is told by `fill`. Null without one. */
  get room() {
    return this.#unfinished.length >= COPIED_BODY_BYTES ? this.#unfinished.subarray(this.#held) : null
  }

  /** @param {number} length - bytes of the stream that are in `room` */
  fill(length) {
    this.#held += length
    if (this.#held === this.#unfinished.length) this.#finish()
  }

  /**
   * @param {Buffer} chunk - the next `length` bytes of the stream
   * @param {number} [length]
   * @throws {ProtocolError} the connection is to be closed
   */
  push(chunk, length = chunk.length) {
    let at = 0
    while (this.#held > 0) {
      const taken = chunk.copy(this.#unfinished, this.#held, at, length)
      this.#held += taken
      at += taken
      if (this.#held < this.#unfinished.length) {
        this.#checkHeldLength()
        return
      }
      if (this.#held > PREFIX_BYTES) this.#finish()
      else {
        const fixed = this.#unfinished
        const bytes = 4 + this.#check(fixed, 0)
        this.#hold(fixed, 0, PREFIX_BYTES, bytes)
        if (bytes === PREFIX_BYTES) this.#finish()
      }
    }
    while (length - at >= PREFIX_BYTES) {
      const bytes = 4 + this.#check(chunk, at)
      if (at + bytes > length) {
        this.#hold(chunk, at, length, bytes)
        return
      }
      this.#handOn(chunk, at, at + bytes, false)
      at += bytes
    }
    if (at === length) return
    this.#hold(chunk, at, length, PREFIX_BYTES)
    this.#checkHeldLength()
  }

  /**
   * @param {Buffer} chunk
   * @param {number} from
   * @param {number} to
   * @param {number} bytes - of the whole frame, or of its fixed fields
   */
  #hold(chunk, from, to, bytes) {
    // Memory of its own for a large one: its body may be kept.
    if (bytes < COPIED_BODY_BYTES) this.#unfinished = allocUnsafe(bytes)
    else this.#unfinished = this.#memory?.take(bytes) ?? allocUnsafeSlow(bytes)
    this.#held = chunk.copy(this.#unfinished, 0, from, to)
  }

  #finish() {
    const frame = this.#unfinished
    this.#unfinished = EMPTY
    this.#held = 0
    this.#handOn(frame, 0, frame.length, true)
  }

  /**
   * @param {Buffer} bytes
   * @param {number} from - where a whole frame begins
   * @param {number} to
   * @param {boolean} isOwn
   */
  #handOn(bytes, from, to, isOwn) {
    const headerAt = from + PREFIX_BYTES
    const bodyAt = headerAt + bytes.readUInt32BE(from + 9)
    this.#onFrame(
      /** @type {number} */ (bytes[from + 4]),
      bytes.readUInt32BE(from + 5),
      bodyAt === headerAt ? '' : bytes.toString('utf8', headerAt, bodyAt),
      bodyAt === to ? EMPTY : bytes.subarray(bodyAt, to),
      isOwn,
    )
  }

  /** A length that cannot be right is told at once: nothing may follow it. */
  #checkHeldLength() {
    if (this.#held >= 4) this.#checkLength(this.#unfinished.readUInt32BE(0))
  }

  /**
   * @param {Buffer} bytes
   * @param {number} at - where a frame begins, of which at least the fixed fields are here
   * @returns {number} its length
   */
  #check(bytes, at) {
    const length = this.#checkLength(bytes.readUInt32BE(at))
    const kind = /** @type {number} */ (bytes[at + 4])
    const mostHeader = /** @type {number} */ (MOST_HEADER_BYTES[kind])
    if (mostHeader === -1) throw new ProtocolError(`unknown frame kind ${kind}`)
    if (this.#only !== 0 && kind !== this.#only) throw new ProtocolError(`the first frame must be ${NAMES[this.#only]}`)
    const header = bytes.readUInt32BE(at + 9)
    const body = length - FIXED_BYTES - header
    if (header > mostHeader)
      throw new ProtocolError(`header of a ${NAMES[kind]} frame has ${header} bytes, above ${mostHeader}`)
    if (body < 0) throw new ProtocolError('frame header is longer than its frame')
    const mostBody = /** @type {number} */ (MOST_BODY_BYTES[kind]) + (kind === KIND.call ? this.maxBodyBytes : 0)
    if (body > mostBody) throw new ProtocolError(`body of a ${NAMES[kind]} frame has ${body} bytes, above ${mostBody}`)
    return length
  }

  /** @param {number} length */
  #checkLength(length) {
    const most = MAX_FRAME_BYTES + this.maxBodyBytes
    if (length < FIXED_BYTES) throw new ProtocolError(`frame length ${length} is below ${FIXED_BYTES}`)
    if (length > most) throw new ProtocolError(`frame length ${length} is above ${most}`)
    return length
  }
}

const BLOCK_BYTES = 64 * 1024
/** A longer body leaves by itself: bytes from where they are, text from memory for large frames. */
export const COPIED_BODY_BYTES = 16 * 1024
/** Most memory for large frames that is kept, bytes. */
const KEPT_LARGE_BYTES = 4 * MIB
/** The most bytes of UTF-8 that one UTF-16 unit takes: with room for them text is written before it is measured. */
const MOST_BYTES_PER_UNIT = 3
/** Frames that wait for the end of a tick to leave in one write; so many leave at once. */
const FLUSH_FRAMES = 8

/**
 * Writes frames to a socket.
 * @param {import('node:net').Socket} socket
 * @returns {(bytes: Buffer, body: Buffer | null) => boolean} for a FrameWriter
 */
export function toWrite(socket) {
  return (bytes, body) => {
    if (socket.destroyed) return true
    if (body === null) socket.write(bytes)
    else {
      socket.cork()
      socket.write(bytes)
      socket.write(body)
      socket.uncork()
    }
    return socket.writableLength === 0
  }
}

/**
 * Waits until a socket has given to the system what it holds; one that is gone holds nothing.
 * @param {import('node:net').Socket} socket
 * @returns {() => Promise<void>} for a FrameWriter
 */
export function toWaitWritten(socket) {
  // What is written behind it is told of after it, or when the connection is gone.
  return () => new Promise(resolve => socket.write(EMPTY, () => resolve()))
}

/** Joins the frames of one tick into one write. */
export class FrameWriter {
  #write
  #waitWritten
  #block = allocUnsafe(BLOCK_BYTES)
  /** Where a large frame is put together; null while the socket may still hold it. @type {Buffer | null} */
  #large = null
  #from = 0
  #to = 0
  #scheduled = false
  #waiting = 0
  #flush = () => this.flush()

  /**
   * @param {(bytes: Buffer, body: Buffer | null) => unknown} write - true when it has no use for the bytes any more; with a body, both leave in one write
   * @param {() => Promise<void>} [waitWritten] - until it has no use for anything that it was given
   */
  constructor(write, waitWritten = () => Promise.resolve()) {
    this.#write = write
    this.#waitWritten = waitWritten
  }

  /**
   * @param {number} kind
   * @param {number} id
   * @param {string} header - JSON text, '' for no fields
   * @param {Uint8Array | string | null} [body] - text is written as UTF-8
   * @returns {Promise<void> | null} until when the body's bytes must stay as they are; null when they may change at once
   */
  add(kind, id, header, body = null) {
    if (body !== null && body.length > COPIED_BODY_BYTES) {
      if (typeof body !== 'string') return this.#addBefore(kind, id, header, body) ? null : this.#waitWritten()
      this.#addLarge(kind, id, header, body)
      return null
    }
    const room = PREFIX_BYTES + header.length * MOST_BYTES_PER_UNIT + roomOf(body)
    if (this.#to + room > this.#block.length) this.#renew(room)
    this.#to = putFrame(this.#block, this.#to, kind, id, header, body)
    this.#waiting += 1
    // The gateway shall pass these on while the calls behind them run.
    if (this.#waiting === FLUSH_FRAMES) {
      const scheduled = this.#scheduled
      this.flush()
      this.#scheduled = scheduled
    }
    if (!this.#scheduled) {
      this.#scheduled = true
      schedule(this.#flush)
    }
    return null
  }

  flush() {
    this.#scheduled = false
    this.#waiting = 0
    if (this.#to > this.#from) this.#flushWith()
  }

  /** @param {Buffer | null} [body] - leaves with what waits @returns {boolean} true when all of it is with the system */
  #flushWith(body = null) {
    const isGone = this.#write(this.#block.subarray(this.#from, this.#to), body) === true
    if (isGone && this.#from === 0) this.#to = 0
    this.#from = this.#to
    return isGone
  }

  /**
   * A frame whose body leaves from where it is.
   * @param {number} kind
   * @param {number} id
   * @param {string} header
   * @param {Uint8Array} body
   * @returns {boolean} true when it is with the system
   */
  #addBefore(kind, id, header, body) {
    const room = PREFIX_BYTES + header.length * MOST_BYTES_PER_UNIT
    if (this.#to + room > this.#block.length) this.#renew(room)
    this.#to = putFrame(this.#block, this.#to, kind, id, header, null, body.length)
    this.#waiting = 0
    return this.#flushWith(/** @type {Buffer} */ (body))
  }

  /**
   * A frame that is put together in memory of its own and leaves at once.
   * @param {number} kind
   * @param {number} id
   * @param {string} header
   * @param {string} body
   */
  #addLarge(kind, id, header, body) {
    if (this.#to > this.#from) this.#flushWith()
    this.#waiting = 0
    const room = PREFIX_BYTES + header.length * MOST_BYTES_PER_UNIT + roomOf(body)
    const kept = this.#large
    const large = kept !== null && kept.length >= room ? kept : allocUnsafeSlow(toLargeBytes(room))
    this.#large = null
    const isGone = this.#write(large.subarray(0, putFrame(large, 0, kind, id, header, body)), null) === true
    if (isGone && large.length <= KEPT_LARGE_BYTES) this.#large = large
  }

  /** @param {number} room - bytes the next frame may need */
  #renew(room) {
    const scheduled = this.#scheduled
    this.flush()
    this.#scheduled = scheduled
    // The socket may still hold views of the old block.
    this.#block = allocUnsafe(Math.max(BLOCK_BYTES, room))
    this.#from = 0
    this.#to = 0
  }
}

/** @param {Uint8Array | string | null} body @returns {number} the most bytes that it takes */
function roomOf(body) {
  if (body === null) return 0
  return typeof body === 'string' ? body.length * MOST_BYTES_PER_UNIT : body.length
}

/** Sizes double, so that a little more does not take new memory each time. @param {number} room */
function toLargeBytes(room) {
  let bytes = 2 * BLOCK_BYTES
  while (bytes < room) bytes *= 2
  return bytes
}

/**
 * @param {Buffer} block - with room for it
 * @param {number} at
 * @param {number} kind
 * @param {number} id
 * @param {string} header
 * @param {Uint8Array | string | null} body
 * @param {number} [following] - bytes of a body that is not put here
 * @returns {number} where it ends
 */
function putFrame(block, at, kind, id, header, body, following = 0) {
  const headerBytes = header === '' ? 0 : block.write(header, at + PREFIX_BYTES)
  const bodyAt = at + PREFIX_BYTES + headerBytes
  let bodyBytes = following
  if (typeof body === 'string') bodyBytes = body === '' ? 0 : block.write(body, bodyAt)
  else if (body !== null) {
    block.set(body, bodyAt)
    bodyBytes = body.length
  }
  block.writeUInt32BE(FIXED_BYTES + headerBytes + bodyBytes, at)
  block[at + 4] = kind
  block.writeUInt32BE(id, at + 5)
  block.writeUInt32BE(headerBytes, at + 9)
  return bodyAt + bodyBytes - following
}

const schedule = setImmediate
