/**
 * Frames of the wire protocol, for the node daemon and its workers. Page: runtime/wire-protocol.
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

const MIB = 1024 * 1024
/** Largest frame before a function's `max_body_bytes` is added, bytes. */
export const MAX_FRAME_BYTES = 16 * MIB
/** Largest body of one `reply`, bytes; a larger one goes out as chunks. */
export const MAX_REPLY_BODY_BYTES = MIB
/** Bytes of a stream that may be under way, and of one chunk. */
export const STREAM_WINDOW_BYTES = 256 * 1024

const PREFIX_BYTES = 13
const FIXED_BYTES = 9
const EMPTY = Buffer.alloc(0)
const known = new Uint8Array(256)
for (const kind of Object.values(KIND)) known[kind] = 1

// Handlers may patch builtins; the frames of their own process must stay right.
const { parse } = JSON
const { concat, allocUnsafe, byteLength } = Buffer

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

/** Cuts a byte stream into frames, whatever way the transport splits it. */
export class FrameReader {
  /** Largest `length`; the owner raises it when it learns the function's `max_body_bytes`. */
  maxFrameBytes = MAX_FRAME_BYTES
  /** @type {Buffer[]} */
  #parts = []
  #held = 0
  #needed = PREFIX_BYTES
  #onFrame

  /** @param {(kind: number, id: number, header: string, body: Buffer) => void} onFrame - `body` is a view to copy if kept */
  constructor(onFrame) {
    this.#onFrame = onFrame
  }

  /**
   * @param {Buffer} chunk
   * @throws {ProtocolError} the connection is to be closed
   */
  push(chunk) {
    let bytes = chunk
    if (this.#held > 0) {
      this.#parts.push(chunk)
      this.#held += chunk.length
      // A large frame is joined once, when all of it is here.
      if (this.#held < this.#needed) return
      bytes = concat(this.#parts, this.#held)
      this.#parts = []
      this.#held = 0
    }
    let at = 0
    this.#needed = PREFIX_BYTES
    while (bytes.length - at >= 4) {
      const length = bytes.readUInt32BE(at)
      if (length < FIXED_BYTES) throw new ProtocolError(`frame length ${length} is below ${FIXED_BYTES}`)
      if (length > this.maxFrameBytes) throw new ProtocolError(`frame length ${length} is above ${this.maxFrameBytes}`)
      const next = at + 4 + length
      if (next > bytes.length) {
        this.#needed = 4 + length
        break
      }
      const kind = /** @type {number} */ (bytes[at + 4])
      if (known[kind] === 0) throw new ProtocolError(`unknown frame kind ${kind}`)
      const headerAt = at + PREFIX_BYTES
      const bodyAt = headerAt + bytes.readUInt32BE(at + 9)
      if (bodyAt > next) throw new ProtocolError('frame header is longer than its frame')
      this.#onFrame(
        kind,
        bytes.readUInt32BE(at + 5),
        bodyAt === headerAt ? '' : bytes.toString('utf8', headerAt, bodyAt),
        bodyAt === next ? EMPTY : bytes.subarray(bodyAt, next),
      )
      at = next
    }
    if (at < bytes.length) {
      this.#parts = [at === 0 ? bytes : bytes.subarray(at)]
      this.#held = bytes.length - at
    }
  }
}

const BLOCK_BYTES = 64 * 1024
const COPIED_BODY_BYTES = 16 * 1024
/** Frames that wait for the end of a tick to leave in one write; so many leave at once. */
const FLUSH_FRAMES = 8

/** Joins the frames of one tick into one write. */
export class FrameWriter {
  #write
  #block = allocUnsafe(BLOCK_BYTES)
  #from = 0
  #to = 0
  #scheduled = false
  #waiting = 0
  #flush = () => this.flush()

  /** @param {(bytes: Buffer) => void} write */
  constructor(write) {
    this.#write = write
  }

  /**
   * @param {number} kind
   * @param {number} id
   * @param {string} header - JSON text, '' for no fields
   * @param {Uint8Array | null} [body]
   */
  add(kind, id, header, body = null) {
    const bodyBytes = body === null ? 0 : body.length
    const copied = bodyBytes <= COPIED_BODY_BYTES
    // Three bytes a UTF-16 unit is the most UTF-8 takes, so the header is written before it is measured.
    const room = PREFIX_BYTES + header.length * 3 + (copied ? bodyBytes : 0)
    if (this.#to + room > this.#block.length) this.#renew(room)
    const block = this.#block
    const at = this.#to
    const headerBytes = header === '' ? 0 : block.write(header, at + PREFIX_BYTES)
    block.writeUInt32BE(FIXED_BYTES + headerBytes + bodyBytes, at)
    block[at + 4] = kind
    block.writeUInt32BE(id, at + 5)
    block.writeUInt32BE(headerBytes, at + 9)
    this.#to = at + PREFIX_BYTES + headerBytes
    if (body !== null && copied) {
      block.set(body, this.#to)
      this.#to += bodyBytes
    } else if (body !== null) {
      this.flush()
      this.#write(/** @type {Buffer} */ (body))
      return
    }
    this.#waiting += 1
    // The gateway shall pass these on while the calls behind them run.
    if (this.#waiting === FLUSH_FRAMES) {
      const scheduled = this.#scheduled
      this.flush()
      this.#scheduled = scheduled
    }
    if (this.#scheduled) return
    this.#scheduled = true
    schedule(this.#flush)
  }

  flush() {
    this.#scheduled = false
    this.#waiting = 0
    if (this.#to === this.#from) return
    const bytes = this.#block.subarray(this.#from, this.#to)
    this.#from = this.#to
    this.#write(bytes)
  }

  /** @param {number} room - bytes the next frame may need */
  #renew(room) {
    const scheduled = this.#scheduled
    this.flush()
    this.#scheduled = scheduled
    // Never reused: the socket may still hold views of the old block.
    this.#block = allocUnsafe(Math.max(BLOCK_BYTES, room))
    this.#from = 0
    this.#to = 0
  }
}

const schedule = setImmediate
