/** The first frames of a connection: few, small, one at a time. Nobody has proved yet who the peer is. Owner: page runtime/greeting. */

import { type Kind, ProtocolError } from './wire-protocol.ts'

/** Bytes before the header, and what of them the length word counts. */
const PREFIX_BYTES = 13
const FIXED_BYTES = 9

export interface OpeningFrame {
  kind: Kind
  id: number
  header: string
  body: Buffer
}

/** Kinds that may come next, each with the most bytes of header and body together. */
type Expected = ReadonlyMap<number, number>

export class OpeningReader {
  #chunks: Buffer[] = []
  #length = 0

  /** @param chunk - the next bytes; they are copied, so that the caller may use its memory again */
  push(chunk: Uint8Array): void {
    this.#chunks.push(Buffer.from(chunk))
    this.#length += chunk.length
  }

  /**
   * @returns the next frame, null while it is not whole
   * @throws ProtocolError as soon as the bytes that are here show a frame that is not expected, or too large
   */
  next(expected: Expected): OpeningFrame | null {
    const first = this.#first()
    if (first.length < 4) return null
    const length = first.readUInt32BE(0)
    const most = Math.max(...expected.values())
    if (length < FIXED_BYTES)
      throw new ProtocolError('FRAME_TOO_SHORT', `frame length ${length} is below ${FIXED_BYTES}`)
    if (length > FIXED_BYTES + most) {
      throw new ProtocolError('FRAME_TOO_LONG', `frame length ${length} is above ${FIXED_BYTES + most}`)
    }
    if (first.length < PREFIX_BYTES) return null
    const kind = first[4]!
    const limit = expected.get(kind)
    if (limit === undefined) throw new ProtocolError('UNKNOWN_KIND', `frame kind ${kind} is not expected now`)
    if (length > FIXED_BYTES + limit)
      throw new ProtocolError('FRAME_TOO_LONG', `frame length ${length} is above ${FIXED_BYTES + limit}`)
    const headerBytes = first.readUInt32BE(9)
    if (headerBytes > length - FIXED_BYTES)
      throw new ProtocolError('HEADER_TOO_LONG', 'frame header is longer than its frame')
    if (this.#length < 4 + length) return null
    const all = this.rest()
    const bodyAt = PREFIX_BYTES + headerBytes
    this.push(all.subarray(4 + length))
    return {
      kind: kind as Kind,
      id: all.readUInt32BE(5),
      header: all.toString('utf8', PREFIX_BYTES, bodyAt),
      body: all.subarray(bodyAt, 4 + length),
    }
  }

  /** Takes what is left: it belongs to what comes after the opening. */
  rest(): Buffer {
    const all = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks)
    this.#chunks = []
    this.#length = 0
    return all
  }

  /** At least the fixed fields in one piece, once they are here. */
  #first(): Buffer {
    if (this.#chunks.length > 1 && this.#chunks[0]!.length < PREFIX_BYTES) {
      const all = this.rest()
      this.#chunks = [all]
      this.#length = all.length
    }
    return this.#chunks[0] ?? Buffer.alloc(0)
  }
}
