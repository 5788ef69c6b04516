/**
 * Header and body of a `call` frame -> the handler's event. Page: invocation/event.
 */

import { isAscii, isUtf8 } from 'node:buffer'
import { inspect } from 'node:util'

/** Bytes from which on a body's text is made only when it is read. */
export const LONG_BODY_BYTES = 16 * 1024
// Captured before user code can patch them.
const { defineProperty, getOwnPropertyDescriptor } = Object
const EMPTY = Buffer.alloc(0)

/** @typedef {import('./call.mjs').Call} Call */

/**
 * The function as told by the `start` frame.
 * @typedef {object} FunctionStart
 * @property {string} key
 * @property {string} runtime
 * @property {string} name
 * @property {string | null} version
 * @property {string} root - functions root, full path
 * @property {string} dir - folder of the handler, full path
 * @property {string} entry - handler file, full path or relative to `dir`
 * @property {{ names: string[] }} callable - symbols to look for, first found wins
 * @property {string | null} adapter - canonical name; null is `native`, any other text is unsupported
 * @property {Record<string, string>} env
 * @property {string[]} packs - folders of shared packs
 * @property {boolean} production
 * @property {{ waits: boolean }} [debug] - a debugger is let in; `waits`: the function is loaded when one is there
 * @property {Record<string, any>} context - the parts of `event.context` that are the same for every call
 */

/** What a handler gets. A class only for `signal`: everything else is plain data, in the order of the page. */
export class FnEvent {
  #call
  /**
   * @param {FunctionStart} fn
   * @param {any} header
   * @param {Buffer} body
   * @param {Call} call
   */
  constructor(fn, header, body, call) {
    this.#call = call
    this.id = header.id
    this.ts = header.ts
    this.method = header.method
    this.path = header.path
    this.raw_path = header.raw_path
    this.params = header.params ?? {}
    this.path_params = this.params
    this.query = header.query ?? {}
    this.headers = header.headers ?? {}
    if (body.length >= LONG_BODY_BYTES) giveLater(this, body, call)
    else {
      const isText = isUtf8(body)
      this.body = isText && body.length > 0 ? body.toString() : null
      this.is_base64 = !isText
      this.body_base64 = isText ? null : body.toString('base64')
    }
    this.client = header.client ?? null
    this.session = header.session ?? null
    this.version = fn.version ?? 'default'
    // Copies: what a handler changes, the next call does not see.
    this.env = { ...fn.env }
    this.context = toContext(fn, header)
  }

  /** Aborts when the client is gone or the time is up; not part of the JSON event. */
  get signal() {
    return this.#call.signal
  }

  /** Whoever prints an event sees values. */
  [inspect.custom]() {
    for (const [name] of LATER) {
      const { get } = getOwnPropertyDescriptor(this, name) ?? {}
      if (get !== undefined) setField(this, name, get.call(this))
    }
    return this
  }
}

/** Bytes that tell of most bodies that they are no text. */
const BEGINNING_BYTES = 1024
/** Bytes of the longest character. */
const CHARACTER_BYTES = 4

/**
 * False for bytes whose beginning shows that they are no text: the check of all of them looks at each, wherever it fails.
 * @param {Buffer} bytes - more than the beginning
 */
function isBegunAsText(bytes) {
  let end = BEGINNING_BYTES
  // Cut between characters: at most three bytes 10xxxxxx follow a character's first one.
  while (end > BEGINNING_BYTES - CHARACTER_BYTES && (bytes.readUInt8(end) & 0xc0) === 0x80) end -= 1
  return isUtf8(bytes.subarray(0, end))
}

/** A long request body: its text, in either form, is made when somebody reads it. */
export class GivenBody {
  /** The bytes as they came; nobody else has them. */
  bytes
  /** @type {boolean | null} */
  #isBinary = null
  #text = ''
  #base64 = ''
  #isLent = false

  /** @param {Buffer} bytes */
  constructor(bytes) {
    this.bytes = bytes
  }

  /** True for bytes that are no text. */
  get isBase64() {
    this.#isBinary ??= !(isBegunAsText(this.bytes) && isUtf8(this.bytes))
    return this.#isBinary
  }

  /** `event.body`. */
  get text() {
    if (this.isBase64) return null
    if (this.#text === '') this.#text = this.bytes.toString(isAscii(this.bytes) ? 'latin1' : 'utf8')
    return this.#text
  }

  /** `event.body_base64`. */
  get base64() {
    if (!this.isBase64) return null
    if (this.#base64 === '') this.#base64 = this.bytes.toString('base64')
    return this.#base64
  }

  /** The bytes for the handler itself, which may look into them as long as it wants. */
  lend() {
    this.#isLent = true
    return this.bytes
  }

  /**
   * The call is over. Whoever kept its event has the texts that were read; of a body that was not read he may want one yet.
   * @returns {Buffer | null} memory that nobody needs for this body any more
   */
  release() {
    if (this.#isLent || (this.#text === '' && this.#base64 === '')) return null
    const { bytes } = this
    this.bytes = EMPTY
    return bytes
  }

  /** True when this text is the one that was given: then the bytes are at hand. @param {string} text */
  isText(text) {
    return this.#text !== '' && text === this.#text
  }

  /** @param {unknown} text */
  isBase64Text(text) {
    return this.#base64 !== '' && text === this.#base64
  }
}

/** Where the body of an event is found, by its getters: also behind a proxy, in an object derived from it and in a copy. */
const GIVEN = Symbol('fngw.body')

/**
 * The fields of a long body, made when they are read. To a handler they are fields like all others. One getter serves all
 * events: of getters of its own each event would leave a pair in the engine's old memory, which keeps its body from the
 * collector until everything is collected.
 * @type {readonly (readonly [name: string, descriptor: PropertyDescriptor & ThisType<any>])[]}
 */
const LATER = [
  /** @this {any} */
  function body() {
    return this[GIVEN].text
  },
  /** @this {any} */
  function is_base64() {
    return this[GIVEN].isBase64
  },
  /** @this {any} */
  function body_base64() {
    return this[GIVEN].base64
  },
].map(get => {
  /** @this {any} @param {unknown} value */
  const set = function (value) {
    setField(this, get.name, value)
  }
  return [get.name, { get, set, enumerable: true, configurable: true }]
})

/**
 * @param {FnEvent} event
 * @param {Buffer} bytes
 * @param {Call} call
 */
function giveLater(event, bytes, call) {
  const given = new GivenBody(bytes)
  call.given = given
  defineProperty(event, GIVEN, { value: given })
  for (const [name, descriptor] of LATER) defineProperty(event, name, descriptor)
}

/** @param {object} event @param {string} name @param {unknown} value */
function setField(event, name, value) {
  defineProperty(event, name, { value, writable: true, enumerable: true, configurable: true })
}

/**
 * A context to copy, with every field in its place: the engine copies a whole object far faster than it adds fields to one.
 * @typedef {{ template: Record<string, any>, nested: string[] }} ContextShape
 * @type {WeakMap<FunctionStart, ContextShape>}
 */
const shapes = new WeakMap()

/** @param {FunctionStart} fn @returns {ContextShape} */
function toShape(fn) {
  const template = { request_id: '', ...fn.context, user: null, trigger: null, trace: null, trace_state: null }
  const nested = Object.keys(fn.context).filter(key => typeof fn.context[key] === 'object' && fn.context[key] !== null)
  const shape = { template, nested }
  shapes.set(fn, shape)
  return shape
}

/** @param {FunctionStart} fn @param {any} header @returns {Record<string, any>} */
function toContext(fn, header) {
  const { template, nested } = shapes.get(fn) ?? toShape(fn)
  const context = { ...template }
  context.request_id = header.id
  context.user = header.user ?? null
  context.trigger = header.trigger ?? null
  context.trace = header.trace ?? null
  context.trace_state = header.trace_state ?? null
  for (const key of nested) context[key] = { ...template[key] }
  return context
}
