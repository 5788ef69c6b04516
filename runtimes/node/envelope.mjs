/**
 * Any value a handler returns -> one reply. Pages: invocation/response, runtime/wire-protocol.
 */

/** @typedef {import('./event.mjs').GivenBody} GivenBody */

/** @param {unknown} object @param {PropertyKey} key */
const has = (object, key) => objectHasOwn(/** @type {object} */ (object), key)
// Captured before user code can patch them.
const { stringify } = JSON
const { isArray } = Array
const { hasOwn: objectHasOwn } = Object
const { from: bufferFrom } = Buffer

const HEADER_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/
/** What HTTP cannot carry in a header value. */
const BAD_HEADER_VALUE = /[^\t\x20-\x7e\x80-\xff]/
const BASE64 = /^[A-Za-z0-9+/]*(={0,2})$/
/** Characters of a value shown in a message. */
const MAX_SHOWN = 60
const JSON_TYPE = 'application/json'
const TEXT_TYPE = 'text/plain; charset=utf-8'
export const BYTES_TYPE = 'application/octet-stream'
/** Fields of the usual reply, kept as one text so that the gateway sees equal headers as equal. */
const JSON_200 = `"status":200,"headers":{"content-type":"${JSON_TYPE}"}`
const EMPTY_200 = '"status":200,"headers":{}'

/** The answer breaks the response contract; the gateway sends 502. */
export class ContractError extends Error {
  /**
   * @param {string} message - what is wrong, with value and type
   * @param {string} [hint] - how to mend it
   */
  constructor(message, hint) {
    super(message)
    this.name = 'ContractError'
    this.hint = hint
  }
}

/**
 * @typedef {object} Reply
 * @property {string} fields - JSON text of the `reply` header without its braces
 * @property {Uint8Array | string | null} body
 * @property {boolean} isTheirs - the body is bytes that the handler has too, and may change
 * @property {AsyncIterable<unknown> | Iterable<unknown> | null} stream - instead of `body`
 * @property {string} status - for a stream without a content type: what to build the header from, else ''
 * @property {string} headers
 */

/**
 * @param {any} value - what the handler returned
 * @param {GivenBody | null} [given] - the body of the call: what comes back as it was given is not written anew
 * @returns {Reply}
 * @throws {ContractError}
 */
export function toReply(value, given = null) {
  if (typeof value === 'string') return whole(JSON_200, stringify(value))
  if (value === undefined || value === null) return whole(EMPTY_200, null)
  if (typeof value !== 'object') return whole(JSON_200, toJson(value, 'the answer'))
  if (isResponse(value)) return fromResponse(value)
  if (isBytes(value)) return theirs(typed(200, '', BYTES_TYPE, toBytes(value)))
  if (isStream(value)) return streamed('200', '', false, value)
  if (isEnvelope(value)) return fromEnvelope(value, given)
  return whole(JSON_200, toJson(value, 'the answer'))
}

/**
 * An object is an envelope when it says so by one of its own keys; any other object is a JSON body.
 * @param {any} value
 */
function isEnvelope(value) {
  if (isArray(value)) return false
  return (
    isGiven(value, 'status') ||
    isGiven(value, 'statusCode') ||
    isGiven(value, 'proxy') ||
    isGiven(value, 'body_base64') ||
    (has(value, 'headers') && has(value, 'body'))
  )
}

/** @param {any} value @param {string} key */
function isGiven(value, key) {
  return value[key] !== undefined && has(value, key)
}

/** @param {any} envelope @param {GivenBody | null} given */
function fromEnvelope(envelope, given) {
  if (envelope.proxy !== undefined && envelope.proxy !== null) return fromProxy(envelope.proxy, given)
  const status = toStatus(envelope.status === undefined ? envelope.statusCode : envelope.status)
  const head = toHeaders(envelope.headers)
  const encoded = takeBase64(envelope, given)
  if (encoded !== null) return typed(status, head, BYTES_TYPE, encoded)
  const { body } = envelope
  if (body === undefined || body === null) return whole(fieldsOf(status, head.text), null)
  if (typeof body === 'string') return typed(status, head, TEXT_TYPE, bytesOrText(body, given))
  if (typeof body === 'object') {
    if (isBytes(body)) return theirs(typed(status, head, BYTES_TYPE, toBytes(body)))
    if (isStream(body)) return streamed(String(status), head.text, head.typed, body)
    if (isBlob(body)) return streamed(String(status), withType(head, body.type || BYTES_TYPE), true, body.stream())
  }
  return typed(status, head, JSON_TYPE, toJson(body, 'body'))
}

/** @param {string} text @param {GivenBody | null} given */
function bytesOrText(text, given) {
  return given?.isText(text) === true ? given.bytes : text
}

/** @param {any} proxy - edge proxy directive; its body travels as the frame's @param {GivenBody | null} given */
function fromProxy(proxy, given) {
  if (typeof proxy !== 'object' || isArray(proxy)) {
    throw new ContractError(`proxy must be an object, got ${show(proxy)}`, 'return { proxy: { path: "/..." } }')
  }
  const { body, body_base64: _, is_base64: __, ...rest } = proxy
  /** @type {Uint8Array | string | null} */
  let bytes = takeBase64(proxy, given)
  if (bytes !== null) return whole(`"proxy":${toJson(rest, 'proxy')}`, bytes)
  if (typeof body === 'string') bytes = bytesOrText(body, given)
  else if (isBytes(body)) return theirs(whole(`"proxy":${toJson(rest, 'proxy')}`, toBytes(body)))
  else if (body !== undefined && body !== null) bytes = toJson(body, 'proxy.body')
  return whole(`"proxy":${toJson(rest, 'proxy')}`, bytes)
}

/**
 * A fetch `Response`, the built-in one or that of a package.
 * @param {any} response
 */
function fromResponse(response) {
  const status = toStatus(response.status)
  const headers = toHeaders(response.headers)
  if (response.body === null || response.body === undefined) return whole(fieldsOf(status, headers.text), null)
  if (response.bodyUsed) {
    throw new ContractError(
      'the body of the returned Response was already read',
      'return a fresh Response or response.clone()',
    )
  }
  return streamed(String(status), headers.text, headers.typed, response.body)
}

/** @param {unknown} status */
function toStatus(status) {
  if (status === undefined) return 200
  if (Number.isInteger(status) && Number(status) >= 100 && Number(status) <= 599) return Number(status)
  throw new ContractError(`status must be an integer from 100 to 599, got ${show(status)}`)
}

/** @typedef {{ text: string, typed: boolean }} Head - inner JSON text of the headers; `typed` when a content type is among them */

/**
 * @param {any} headers - object of strings, numbers, booleans or arrays of them; `Headers`, `Map`
 * @returns {Head}
 */
function toHeaders(headers) {
  const head = { text: '', typed: false }
  if (headers === undefined || headers === null) return head
  if (typeof headers !== 'object' || (isArray(headers) && headers.length > 0)) {
    throw new ContractError(
      `headers must be an object, got ${show(headers)}`,
      'headers: { "content-type": "text/html" }',
    )
  }
  if (typeof headers.forEach === 'function') {
    const cookies = typeof headers.getSetCookie === 'function' ? headers.getSetCookie() : []
    headers.forEach((/** @type {unknown} */ value, /** @type {unknown} */ name) => {
      if (cookies.length === 0 || name !== 'set-cookie') addHeader(head, String(name), value)
    })
    if (cookies.length > 0) addHeader(head, 'set-cookie', cookies)
    return head
  }
  for (const name of Object.keys(headers)) addHeader(head, name, headers[name])
  return head
}

/**
 * @param {Head} head
 * @param {string} name
 * @param {unknown} value
 */
function addHeader(head, name, value) {
  if (value === undefined || value === null) return
  if (!HEADER_NAME.test(name)) throw new ContractError(`header name ${stringify(name)} is not allowed in HTTP`)
  const text = isArray(value) ? `[${value.map(item => headerValue(name, item)).join()}]` : headerValue(name, value)
  head.text += head.text === '' ? `${stringify(name)}:${text}` : `,${stringify(name)}:${text}`
  if (name.length === 12 && name.toLowerCase() === 'content-type') head.typed = true
}

/** @param {string} name @param {unknown} value @returns {string} JSON text */
function headerValue(name, value) {
  if (typeof value !== 'string' && typeof value !== 'number' && typeof value !== 'boolean') {
    throw new ContractError(
      `header ${stringify(name)} must be a string, a number, a boolean or a list of them, got ${show(value)}`,
    )
  }
  const text = String(value)
  const bad = BAD_HEADER_VALUE.exec(text)
  if (bad !== null) {
    const code = Number(text.codePointAt(bad.index)).toString(16).toUpperCase().padStart(4, '0')
    throw new ContractError(`header ${stringify(name)} holds the character U+${code}, which HTTP does not allow there`)
  }
  return stringify(text)
}

/**
 * The bytes of a body given as base64, null when it is not given that way.
 * @param {any} envelope
 * @param {GivenBody | null} given
 */
function takeBase64(envelope, given) {
  const { body, body_base64: encoded, is_base64: flag, isBase64Encoded: alias } = envelope
  if (flag !== undefined && flag !== null && typeof flag !== 'boolean') {
    throw new ContractError(`is_base64 must be true or false, got ${show(flag)}`)
  }
  if (encoded !== undefined && encoded !== null) {
    return flag === true || body === undefined || body === null ? fromBase64('body_base64', encoded, given) : null
  }
  if (flag === true) throw new ContractError('is_base64 is true, but body_base64 is missing')
  return alias === true && body !== undefined && body !== null ? fromBase64('body', body, given) : null
}

/** @param {string} name @param {unknown} text @param {GivenBody | null} given */
function fromBase64(name, text, given) {
  if (given?.isBase64Text(text) === true) return given.bytes
  if (typeof text === 'string' && isBase64(text)) return bufferFrom(text, 'base64')
  throw new ContractError(`${name} must be base64 text, got ${show(text)}`)
}

/** Padding may be left out, but not be wrong. @param {string} text */
function isBase64(text) {
  const padding = BASE64.exec(text)?.[1]
  if (padding === undefined) return false
  return padding === '' ? text.length % 4 !== 1 : text.length % 4 === 0
}

/**
 * @param {unknown} value
 * @param {string} what - named in the error
 * @returns {string}
 */
function toJson(value, what) {
  let text
  try {
    text = stringify(value)
  } catch (error) {
    const [reason] = String(/** @type {any} */ (error)?.message ?? error).split('\n')
    throw new ContractError(`${what} cannot be written as JSON: ${reason}`)
  }
  if (text === undefined) throw new ContractError(`${what} cannot be written as JSON: it is ${show(value)}`)
  return text
}

/** @param {any} value */
function isBytes(value) {
  return value instanceof Uint8Array || value instanceof ArrayBuffer || ArrayBuffer.isView(value)
}

/** @param {any} value @returns {Uint8Array} a view, not a copy */
export function toBytes(value) {
  if (value instanceof Uint8Array) return value
  if (value instanceof ArrayBuffer) return new Uint8Array(value)
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength)
}

/** Async iterables (streams among them), web streams and generators; not arrays, maps or sets. @param {any} value */
function isStream(value) {
  return (
    typeof value[Symbol.asyncIterator] === 'function' ||
    typeof value.getReader === 'function' ||
    (typeof value.next === 'function' && typeof value[Symbol.iterator] === 'function')
  )
}

/** @param {any} value */
function isBlob(value) {
  return typeof value.stream === 'function' && typeof value.arrayBuffer === 'function'
}

/** By shape: touching the global `Response` would load its whole implementation. @param {any} value */
function isResponse(value) {
  return (
    typeof value.arrayBuffer === 'function' &&
    typeof value.status === 'number' &&
    typeof value.headers?.forEach === 'function'
  )
}

/** @param {string | number} status @param {string} headersText */
export function fieldsOf(status, headersText) {
  return `"status":${status},"headers":{${headersText}}`
}

/** @param {Head} head @param {string} type */
function withType(head, type) {
  if (head.typed) return head.text
  return head.text === '' ? `"content-type":"${type}"` : `${head.text},"content-type":"${type}"`
}

/** @param {string} fields @param {Uint8Array | string | null} body @returns {Reply} */
function whole(fields, body) {
  return { fields, body, isTheirs: false, stream: null, status: '', headers: '' }
}

/** @param {Reply} reply @returns {Reply} */
function theirs(reply) {
  reply.isTheirs = true
  return reply
}

/** @param {number} status @param {Head | ''} head @param {string} type @param {Uint8Array | string} body */
function typed(status, head, type, body) {
  return whole(fieldsOf(status, head === '' ? `"content-type":"${type}"` : withType(head, type)), body)
}

/** @param {string} status @param {string} headers @param {boolean} isTyped @param {any} stream @returns {Reply} */
function streamed(status, headers, isTyped, stream) {
  if (stream.locked === true) throw new ContractError('the returned stream is locked by another reader')
  return { fields: isTyped ? fieldsOf(status, headers) : '', body: null, isTheirs: false, stream, status, headers }
}

/**
 * The header of an untyped stream, from its first piece: text is plain text, anything else is bytes.
 * @param {Reply} reply
 * @param {unknown} first
 */
export function typeStream(reply, first) {
  const head = { text: reply.headers, typed: false }
  reply.fields = fieldsOf(reply.status, withType(head, typeof first === 'string' ? TEXT_TYPE : BYTES_TYPE))
}

/** A value with its type, short enough for a message; the same words in every runtime. @param {unknown} value */
export function show(value) {
  if (value === null) return 'null'
  if (value === undefined) return 'undefined'
  if (isArray(value)) return `an array of ${value.length} item${value.length === 1 ? '' : 's'}`
  if (typeof value === 'object') return 'an object'
  if (typeof value === 'function') return 'a function'
  const text = String(value)
  const cut = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}...` : text
  return `${typeof value === 'string' ? stringify(cut) : cut} (${typeof value})`
}
