/** Bytes in one piece, or in the pieces they came in: joining them would copy them. Owner: page core/byte-pool. */

export type Bytes = Buffer | readonly Buffer[]

export function lengthOf(bytes: Bytes): number {
  if (Buffer.isBuffer(bytes)) return bytes.length
  let length = 0
  for (const piece of bytes) length += piece.length
  return length
}

/** In one piece; a copy where there are several. */
export function joined(bytes: Bytes): Buffer {
  if (Buffer.isBuffer(bytes)) return bytes
  return bytes.length === 1 ? bytes[0]! : Buffer.concat(bytes)
}

/** In one piece that is nobody else's. */
export function copyOf(bytes: Bytes): Buffer {
  return Buffer.isBuffer(bytes) ? Buffer.from(bytes) : Buffer.concat(bytes)
}
