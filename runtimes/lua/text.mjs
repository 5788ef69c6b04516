/** Lua strings are bytes: how they become JavaScript text and back. Owner: page runtime/lua-runtime. */

/** Up to here a byte loop beats the native conversion. */
const SHORT = 48
const LONG = 16 * 1024
/** Bytes that become base64 at once: whole groups of three, and a text that the collector of the young takes. */
const BASE64_PIECE = 48 * 1024

/** The engine's own: the thread replaces the global one to watch allocations (see vm.mjs). */
export const Bytes = globalThis.Uint8Array
const { base64Slice, latin1Slice, latin1Write, utf8Slice } = /** @type {any} */ (Buffer.prototype)
const { allocUnsafeSlow } = Buffer
const encoder = new TextEncoder()

/**
 * Lua bytes of a JavaScript text.
 * @param {string} text
 * @returns {Uint8Array}
 */
export function toBytes(text) {
  const { length } = text
  if (length > SHORT) return encoder.encode(text)
  const bytes = new Bytes(length)
  for (let i = 0; i < length; i++) {
    const code = text.charCodeAt(i)
    if (code > 127) return encoder.encode(text)
    bytes[i] = code
  }
  return bytes
}

/**
 * One character per byte: how strings travel between threads and are used as table keys.
 * @param {Uint8Array} bytes
 * @returns {string}
 */
export function toLatin1(bytes) {
  return bytes.length > SHORT
    ? latin1Slice.call(bytes, 0, bytes.length)
    : String.fromCharCode.apply(null, /** @type {any} */ (bytes))
}

/**
 * @param {string} text - characters up to U+00FF
 * @returns {Uint8Array}
 */
export function fromLatin1(text) {
  const bytes = toRoom(text.length)
  latin1Write.call(bytes, text, 0, text.length)
  return bytes
}

/**
 * Base64 as Lua bytes. The text of a long one is never there as a whole: it would be memory outside the engine's heap.
 * @param {Uint8Array} bytes
 * @returns {Uint8Array}
 */
export function toBase64(bytes) {
  const { length } = bytes
  const base64 = toRoom(Math.ceil(length / 3) * 4)
  for (let from = 0, at = 0; from < length; from += BASE64_PIECE) {
    at += latin1Write.call(base64, base64Slice.call(bytes, from, Math.min(length, from + BASE64_PIECE)), at)
  }
  return base64
}

/** Long memory is not filled with zeros first. @param {number} length */
function toRoom(length) {
  return length > LONG ? new Bytes(allocUnsafeSlow(length).buffer) : new Bytes(length)
}

/**
 * Text for people: invalid UTF-8 becomes U+FFFD.
 * @param {Uint8Array} bytes
 * @returns {string}
 */
export function toText(bytes) {
  return utf8Slice.call(bytes, 0, bytes.length)
}
