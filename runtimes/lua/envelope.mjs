/** Any value a Lua handler returns -> one reply. Pages: invocation/response, runtime/lua-runtime. */

import { isUtf8 } from 'node:buffer'
import { MARKS } from './cjson.mjs'
import { JsonError } from './json.mjs'
import { bytesOf } from './stack.mjs'
import { nextOf } from './table.mjs'

const HEADER_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/
/** What HTTP cannot carry in a header value; one character is one byte here. */
const BAD_HEADER_VALUE = /[^\t\x20-\x7e\x80-\xff]/
const BASE64 = /^[A-Za-z0-9+/]*(={0,2})$/
const NOT_ASCII = /[\x80-\xff]/
const JSON_TYPE = 'application/json'
const TEXT_TYPE = 'text/plain; charset=utf-8'
const BYTES_TYPE = 'application/octet-stream'
const JSON_200 = `{"status":200,"headers":{"content-type":"${JSON_TYPE}"}}`
const EMPTY_200 = '{"status":200,"headers":{}}'
/** Characters of a wrong value shown in a message. */
const MAX_SHOWN = 60

/** @type {import('./event.mjs').Given} */
const NOTHING_GIVEN = { string: null, bytes: null }

/** The answer breaks the response contract; the gateway sends 502. */
export class ContractError extends Error {
  /**
   * @param {string} message - what is wrong, with value and type
   * @param {string} [hint] - how to mend it
   */
  constructor(message, hint) {
    super(message)
    this.hint = hint
  }
}

/**
 * @typedef {object} Reply
 * @property {string} head - JSON text of the `reply` header; equal answers have equal texts
 * @property {string | Uint8Array} body - one character per byte, or bytes
 */

/** Makes replies of what handlers of one state return. */
export class Envelopes {
  #vm
  #types
  #values
  #writer
  /** @type {import('./event.mjs').Given} */
  #given = NOTHING_GIVEN

  /** @param {import('./sandbox.mjs').State} state */
  constructor({ vm, values, writer }) {
    this.#vm = vm
    this.#types = vm.types
    this.#values = values
    this.#writer = writer
  }

  /** nil and cjson.null. @param {any} value */
  #isAbsent(value) {
    return (
      this.#values.isNil(value) || (value.type === this.#types.LUA_TLIGHTUSERDATA && value.value === MARKS.nullValue)
    )
  }

  /** A value with its type, short enough for a message; the same words in every runtime. @param {any} value */
  #show(value) {
    if (this.#isAbsent(value)) return 'null'
    switch (value.type) {
      case this.#types.LUA_TLNGSTR: {
        const text = Buffer.from(this.#vm.hash(value.value), 'latin1').toString()
        return `${JSON.stringify(text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}...` : text)} (string)`
      }
      case this.#types.LUA_TNUMINT:
      case this.#types.LUA_TNUMFLT:
        return `${value.value} (number)`
      case this.#types.LUA_TBOOLEAN:
        return `${value.value} (boolean)`
      case this.#types.LUA_TTABLE: {
        const count = this.#listLength(value.value)
        return count === 0 ? 'an object' : `an array of ${count} item${count === 1 ? '' : 's'}`
      }
      default:
        return `a ${this.#vm.typeName(value)}`
    }
  }

  /** Items of a table that counts from 1 without a gap, else 0. @param {import('./table.mjs').LuaTable} table */
  #listLength(table) {
    const { size } = table
    for (let i = 1; i <= size; i++) if (table.entry(i) === undefined) return 0
    return size
  }

  /** @param {any} value @param {string} what - its name in a message */
  #toJson(value, what) {
    try {
      return this.#writer.write(value)
    } catch (error) {
      if (!(error instanceof JsonError)) throw error
      throw new ContractError(`${what}${error.message}`)
    }
  }

  /**
   * @param {any} value - a TValue
   * @param {import('./event.mjs').Given} given - the body of the call
   * @returns {Reply}
   * @throws {ContractError}
   */
  toReply(value, given = NOTHING_GIVEN) {
    this.#given = given
    if (this.#isAbsent(value)) return { head: EMPTY_200, body: '' }
    if (value.type === this.#types.LUA_TTABLE && this.#isEnvelope(value.value)) return this.#fromEnvelope(value.value)
    return { head: JSON_200, body: this.#toJson(value, 'the answer') }
  }

  /** A table is an envelope when it says so by one of its fields; any other table is a JSON body. @param {any} table */
  #isEnvelope(table) {
    const has = (/** @type {string} */ name) => this.#values.get(table, name) !== undefined
    return has('status') || has('statusCode') || has('proxy') || has('body_base64') || (has('headers') && has('body'))
  }

  /** @param {any} table @returns {Reply} */
  #fromEnvelope(table) {
    const proxy = this.#values.get(table, 'proxy')
    if (!this.#isAbsent(proxy)) return this.#fromProxy(proxy)
    const status = this.#toStatus(this.#values.get(table, 'status') ?? this.#values.get(table, 'statusCode'))
    const head = this.#toHeaders(this.#values.get(table, 'headers'))
    const decoded = this.#takeBase64(table)
    if (decoded !== null) return this.#typed(status, head, BYTES_TYPE, decoded)
    const body = this.#values.get(table, 'body')
    if (this.#isAbsent(body)) return { head: `{"status":${status},"headers":{${head.text}}}`, body: '' }
    if (body.type !== this.#types.LUA_TLNGSTR) return this.#typed(status, head, JSON_TYPE, this.#toJson(body, 'body'))
    return this.#typed(status, head, head.typed ? '' : this.#typeOfText(body.value), this.#toRaw(body.value))
  }

  /** @param {any} string - TString @returns {string | Uint8Array} */
  #toRaw(string) {
    const bytes = bytesOf(string)
    return bytes.length > this.#vm.longBody ? bytes : this.#vm.hash(string)
  }

  /** @param {any} string - TString */
  #typeOfText(string) {
    const bytes = bytesOf(string)
    const isText =
      bytes.length > this.#vm.longBody ? isUtf8(bytes) : !NOT_ASCII.test(this.#vm.hash(string)) || isUtf8(bytes)
    return isText ? TEXT_TYPE : BYTES_TYPE
  }

  /** @param {any} proxy - edge proxy directive; its body travels beside it @returns {Reply} */
  #fromProxy(proxy) {
    if (proxy.type !== this.#types.LUA_TTABLE) {
      throw new ContractError(
        `proxy must be an object, got ${this.#show(proxy)}`,
        'return { proxy = { path = "/..." } }',
      )
    }
    const table = proxy.value
    if (this.#listLength(table) > 0) throw new ContractError(`proxy must be an object, got ${this.#show(proxy)}`)
    const decoded = this.#takeBase64(table)
    const body = this.#values.get(table, 'body')
    const rest = this.#values.without(table, ['body', 'body_base64', 'is_base64'])
    const json = this.#toJson(this.#values.ofTable(rest), 'proxy')
    const head = `{"proxy":${typeof json === 'string' ? Buffer.from(json, 'latin1').toString() : json}}`
    if (decoded !== null) return { head, body: decoded }
    if (this.#isAbsent(body)) return { head, body: '' }
    return {
      head,
      body: body.type === this.#types.LUA_TLNGSTR ? this.#toRaw(body.value) : this.#toJson(body, 'proxy.body'),
    }
  }

  /** @param {any} status - a TValue */
  #toStatus(status) {
    if (this.#values.isNil(status)) return 200
    const number =
      status.type === this.#types.LUA_TNUMINT || status.type === this.#types.LUA_TNUMFLT ? status.value : Number.NaN
    if (Number.isInteger(number) && number >= 100 && number <= 599) return number
    throw new ContractError(`status must be an integer from 100 to 599, got ${this.#show(status)}`)
  }

  /**
   * @param {any} headers - a TValue: table of strings, numbers, booleans or lists of them
   * @returns {{ text: string, typed: boolean }} inner JSON text; `typed` when a content type is among them
   */
  #toHeaders(headers) {
    const head = { text: '', typed: false }
    if (this.#isAbsent(headers)) return head
    if (headers.type !== this.#types.LUA_TTABLE || this.#listLength(headers.value) > 0) {
      throw new ContractError(
        `headers must be an object, got ${this.#show(headers)}`,
        'headers = { ["content-type"] = "text/html" }',
      )
    }
    for (let entry = headers.value.firstField(); entry !== undefined; entry = nextOf(entry)) {
      if (entry.key.type !== this.#types.LUA_TLNGSTR) {
        throw new ContractError(`header names must be strings, got ${this.#show(entry.key)}`)
      }
      this.#addHeader(head, this.#vm.hash(entry.key.value), entry.value)
    }
    return head
  }

  /** @param {{ text: string, typed: boolean }} head @param {string} name @param {any} value */
  #addHeader(head, name, value) {
    if (this.#isAbsent(value)) return
    if (!HEADER_NAME.test(name)) {
      const shown = Buffer.from(name, 'latin1').toString()
      throw new ContractError(`header name ${JSON.stringify(shown)} is not allowed in HTTP`)
    }
    let text
    if (value.type === this.#types.LUA_TTABLE) {
      const items = []
      const { value: table } = value
      for (let i = 1; i <= table.size; i++) {
        const entry = table.entry(i)
        if (entry === undefined) throw this.#badValue(name, value)
        items.push(this.#headerValue(name, entry.value))
      }
      text = `[${items.join()}]`
    } else text = this.#headerValue(name, value)
    head.text += `${head.text === '' ? '' : ','}"${name}":${text}`
    if (name.length === 12 && name.toLowerCase() === 'content-type') head.typed = true
  }

  /** @param {string} name @param {any} value @returns {string} JSON text */
  #headerValue(name, value) {
    let text
    if (value.type === this.#types.LUA_TLNGSTR) text = this.#vm.hash(value.value)
    else if (
      value.type === this.#types.LUA_TNUMINT ||
      value.type === this.#types.LUA_TNUMFLT ||
      value.type === this.#types.LUA_TBOOLEAN
    ) {
      text = String(value.value)
    } else throw this.#badValue(name, value)
    if (NOT_ASCII.test(text)) text = this.#toText(name, text)
    const bad = BAD_HEADER_VALUE.exec(text)
    if (bad !== null) {
      const code = Number(text.codePointAt(bad.index)).toString(16).toUpperCase().padStart(4, '0')
      throw new ContractError(`header "${name}" holds the character U+${code}, which HTTP does not allow there`)
    }
    return JSON.stringify(text)
  }

  /** A header goes out as Latin-1, whatever bytes a Lua string has for its text. @param {string} name @param {string} raw */
  #toText(name, raw) {
    const bytes = Buffer.from(raw, 'latin1')
    if (isUtf8(bytes)) return bytes.toString()
    throw new ContractError(`header "${name}" holds bytes that are not UTF-8, which HTTP does not allow there`)
  }

  /** @param {string} name @param {any} value */
  #badValue(name, value) {
    return new ContractError(
      `header "${name}" must be a string, a number, a boolean or a list of them, got ${this.#show(value)}`,
    )
  }

  /**
   * The bytes of a body given as base64, null when it is not given that way.
   * @param {any} table
   */
  #takeBase64(table) {
    const body = this.#values.get(table, 'body')
    const encoded = this.#values.get(table, 'body_base64')
    const flag = this.#values.get(table, 'is_base64')
    if (!this.#isAbsent(flag) && flag.type !== this.#types.LUA_TBOOLEAN) {
      throw new ContractError(`is_base64 must be true or false, got ${this.#show(flag)}`)
    }
    const isEncoded = !this.#isAbsent(flag) && flag.value === true
    if (!this.#isAbsent(encoded))
      return isEncoded || this.#isAbsent(body) ? this.#fromBase64('body_base64', encoded) : null
    if (isEncoded) throw new ContractError('is_base64 is true, but body_base64 is missing')
    const alias = this.#values.get(table, 'isBase64Encoded')
    const isAlias = !this.#isAbsent(alias) && alias.type === this.#types.LUA_TBOOLEAN && alias.value === true
    return isAlias && !this.#isAbsent(body) ? this.#fromBase64('body', body) : null
  }

  /** @param {string} name @param {any} value @returns {Uint8Array} */
  #fromBase64(name, value) {
    if (value.type === this.#types.LUA_TLNGSTR) {
      if (value.value === this.#given.string && this.#given.bytes !== null) return this.#given.bytes
      const text = this.#vm.hash(value.value)
      const padding = BASE64.exec(text)?.[1]
      // Padding may be left out, but not be wrong.
      const isWhole = padding === '' ? text.length % 4 !== 1 : text.length % 4 === 0
      if (padding !== undefined && isWhole) return Buffer.from(text, 'base64')
    }
    throw new ContractError(`${name} must be base64 text, got ${this.#show(value)}`)
  }

  /** @param {number} status @param {{ text: string, typed: boolean }} head @param {string} type @param {string | Uint8Array} body */
  #typed(status, head, type, body) {
    const headers = head.typed ? head.text : `${head.text}${head.text === '' ? '' : ','}"content-type":"${type}"`
    return { head: `{"status":${status},"headers":{${headers}}}`, body }
  }
}
