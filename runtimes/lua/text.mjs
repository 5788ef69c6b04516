/** Lua strings are bytes: how they become JavaScript text and back. Owner: page runtime/lua-runtime. */

/** Up to here a byte loop beats the native conversion. */
const SHORT = 48
const LONG = 16 * 1024

/** The engine's own: the thread replaces the global one to watch allocations (see vm.mjs). */
export const Bytes = globalThis.Uint8Array
const { latin1Slice, latin1Write, utf8Slice } = /** @type {any} */ (Buffer.prototype)
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
  const { length } = text
  // Long memory is not filled with zeros first.
  const bytes = length > LONG ? new Bytes(allocUnsafeSlow(length).buffer) : new Bytes(length)
  latin1Write.call(bytes, text, 0, text.length)
  return bytes
}

/**
 * Text for people: invalid UTF-8 becomes U+FFFD.
 * @param {Uint8Array} bytes
 * @returns {string}
 */
export function toText(bytes) {
  return utf8Slice.call(bytes, 0, bytes.length)
}
