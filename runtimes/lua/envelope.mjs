/** Any value a Lua handler returns -> one reply. Pages: invocation/response, runtime/lua-runtime. */

import { isUtf8 } from 'node:buffer'
import { MARKS } from './cjson.mjs'
import { JsonError } from './json.mjs'

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

/**
 * @param {import('./sandbox.mjs').State} state
 * @returns {(value: any) => Reply} throws ContractError
 */
export function createEnvelopes({ vm, values, writer }) {
  const { LUA_TNUMINT, LUA_TNUMFLT, LUA_TLNGSTR, LUA_TBOOLEAN, LUA_TTABLE, LUA_TLIGHTUSERDATA } = vm.types
  const hashOf = vm.hash

  /** nil and cjson.null. @param {any} value */
  const isAbsent = value =>
    values.isNil(value) || (value.type === LUA_TLIGHTUSERDATA && value.value === MARKS.nullValue)

  /** A value with its type, short enough for a message; the same words in every runtime. @param {any} value */
  const show = value => {
    if (isAbsent(value)) return 'null'
    switch (value.type) {
      case LUA_TLNGSTR: {
        const text = Buffer.from(hashOf(value.value), 'latin1').toString()
        return `${JSON.stringify(text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}...` : text)} (string)`
      }
      case LUA_TNUMINT:
      case LUA_TNUMFLT:
        return `${value.value} (number)`
      case LUA_TBOOLEAN:
        return `${value.value} (boolean)`
      case LUA_TTABLE: {
        const count = listLength(value.value)
        return count === 0 ? 'an object' : `an array of ${count} item${count === 1 ? '' : 's'}`
      }
      default:
        return `a ${vm.typeName(value)}`
    }
  }

  /** Items of a table that counts from 1 without a gap, else 0. @param {any} table */
  const listLength = table => {
    let count = 0
    for (let entry = table.f; entry !== undefined; entry = entry.n) count++
    for (let i = 1; i <= count; i++) if (!table.strong.has(i)) return 0
    return count
  }

  /** @param {any} value @param {string} what - its name in a message */
  const toJson = (value, what) => {
    try {
      return writer.write(value)
    } catch (error) {
      if (!(error instanceof JsonError)) throw error
      throw new ContractError(`${what}${error.message}`)
    }
  }

  /** @param {any} value @returns {Reply} */
  const toReply = value => {
    if (isAbsent(value)) return { head: EMPTY_200, body: '' }
    if (value.type === LUA_TTABLE && isEnvelope(value.value)) return fromEnvelope(value.value)
    return { head: JSON_200, body: toJson(value, 'the answer') }
  }

  /** A table is an envelope when it says so by one of its fields; any other table is a JSON body. @param {any} table */
  const isEnvelope = table => {
    const has = (/** @type {string} */ name) => values.get(table, name) !== undefined
    return has('status') || has('statusCode') || has('proxy') || has('body_base64') || (has('headers') && has('body'))
  }

  /** @param {any} table @returns {Reply} */
  const fromEnvelope = table => {
    const proxy = values.get(table, 'proxy')
    if (!isAbsent(proxy)) return fromProxy(proxy)
    const status = toStatus(values.get(table, 'status') ?? values.get(table, 'statusCode'))
    const head = toHeaders(values.get(table, 'headers'))
    const decoded = takeBase64(table)
    if (decoded !== null) return typed(status, head, BYTES_TYPE, decoded)
    const body = values.get(table, 'body')
    if (isAbsent(body)) return { head: `{"status":${status},"headers":{${head.text}}}`, body: '' }
    if (body.type !== LUA_TLNGSTR) return typed(status, head, JSON_TYPE, toJson(body, 'body'))
    return typed(status, head, head.typed ? '' : typeOfText(body.value), toRaw(body.value))
  }

  /** @param {any} string - TString @returns {string | Uint8Array} */
  const toRaw = string => (string.realstring.length > vm.longBody ? string.realstring : hashOf(string))

  /** @param {any} string - TString */
  const typeOfText = string => {
    const { realstring: bytes } = string
    const isText = bytes.length > vm.longBody ? isUtf8(bytes) : !NOT_ASCII.test(hashOf(string)) || isUtf8(bytes)
    return isText ? TEXT_TYPE : BYTES_TYPE
  }

  /** @param {any} proxy - edge proxy directive; its body travels beside it @returns {Reply} */
  const fromProxy = proxy => {
    if (proxy.type !== LUA_TTABLE) {
      throw new ContractError(`proxy must be an object, got ${show(proxy)}`, 'return { proxy = { path = "/..." } }')
    }
    const table = proxy.value
    if (listLength(table) > 0) throw new ContractError(`proxy must be an object, got ${show(proxy)}`)
    const decoded = takeBase64(table)
    const body = values.get(table, 'body')
    const rest = values.without(table, ['body', 'body_base64', 'is_base64'])
    const json = toJson(values.ofTable(rest), 'proxy')
    const head = `{"proxy":${typeof json === 'string' ? Buffer.from(json, 'latin1').toString() : json}}`
    if (decoded !== null) return { head, body: decoded }
    if (isAbsent(body)) return { head, body: '' }
    return { head, body: body.type === LUA_TLNGSTR ? toRaw(body.value) : toJson(body, 'proxy.body') }
  }

  /** @param {any} status - a TValue */
  const toStatus = status => {
    if (values.isNil(status)) return 200
    const number = status.type === LUA_TNUMINT || status.type === LUA_TNUMFLT ? status.value : Number.NaN
    if (Number.isInteger(number) && number >= 100 && number <= 599) return number
    throw new ContractError(
      `status must be an integer from 100 to 599, got ${show(status)}`,
      'to answer with a table that has a field "status", return { status = 200, body = { ... } }',
    )
  }

  /**
   * @param {any} headers - a TValue: table of strings, numbers, booleans or lists of them
   * @returns {{ text: string, typed: boolean }} inner JSON text; `typed` when a content type is among them
   */
  const toHeaders = headers => {
    const head = { text: '', typed: false }
    if (isAbsent(headers)) return head
    if (headers.type !== LUA_TTABLE || listLength(headers.value) > 0) {
      throw new ContractError(
        `headers must be an object, got ${show(headers)}`,
        'headers = { ["content-type"] = "text/html" }',
      )
    }
    for (let entry = headers.value.f; entry !== undefined; entry = entry.n) {
      if (entry.key.type !== LUA_TLNGSTR) {
        throw new ContractError(`header names must be strings, got ${show(entry.key)}`)
      }
      addHeader(head, hashOf(entry.key.value), entry.value)
    }
    return head
  }

  /** @param {{ text: string, typed: boolean }} head @param {string} name @param {any} value */
  const addHeader = (head, name, value) => {
    if (isAbsent(value)) return
    if (!HEADER_NAME.test(name)) {
      const shown = Buffer.from(name, 'latin1').toString()
      throw new ContractError(`header name ${JSON.stringify(shown)} is not allowed in HTTP`)
    }
    let text
    if (value.type === LUA_TTABLE) {
      const items = []
      const { strong: map } = value.value
      for (let i = 1; i <= map.size; i++) {
        const entry = map.get(i)
        if (entry === undefined) throw badValue(name, value)
        items.push(headerValue(name, entry.value))
      }
      text = `[${items.join()}]`
    } else text = headerValue(name, value)
    head.text += `${head.text === '' ? '' : ','}"${name}":${text}`
    if (name.length === 12 && name.toLowerCase() === 'content-type') head.typed = true
  }

  /** @param {string} name @param {any} value @returns {string} JSON text */
  const headerValue = (name, value) => {
    let text
    if (value.type === LUA_TLNGSTR) text = hashOf(value.value)
    else if (value.type === LUA_TNUMINT || value.type === LUA_TNUMFLT || value.type === LUA_TBOOLEAN) {
      text = String(value.value)
    } else throw badValue(name, value)
    if (NOT_ASCII.test(text)) text = toText(name, text)
    const bad = BAD_HEADER_VALUE.exec(text)
    if (bad !== null) {
      const code = Number(text.codePointAt(bad.index)).toString(16).toUpperCase().padStart(4, '0')
      throw new ContractError(`header "${name}" holds the character U+${code}, which HTTP does not allow there`)
    }
    return JSON.stringify(text)
  }

  /** A header goes out as Latin-1, whatever bytes a Lua string has for its text. @param {string} name @param {string} raw */
  const toText = (name, raw) => {
    const bytes = Buffer.from(raw, 'latin1')
    if (isUtf8(bytes)) return bytes.toString()
    throw new ContractError(`header "${name}" holds bytes that are not UTF-8, which HTTP does not allow there`)
  }

  /** @param {string} name @param {any} value */
  const badValue = (name, value) =>
    new ContractError(`header "${name}" must be a string, a number, a boolean or a list of them, got ${show(value)}`)

  /**
   * The bytes of a body given as base64, null when it is not given that way.
   * @param {any} table
   */
  const takeBase64 = table => {
    const body = values.get(table, 'body')
    const encoded = values.get(table, 'body_base64')
    const flag = values.get(table, 'is_base64')
    if (!isAbsent(flag) && flag.type !== LUA_TBOOLEAN) {
      throw new ContractError(`is_base64 must be true or false, got ${show(flag)}`)
    }
    const isEncoded = !isAbsent(flag) && flag.value === true
    if (!isAbsent(encoded)) return isEncoded || isAbsent(body) ? fromBase64('body_base64', encoded) : null
    if (isEncoded) throw new ContractError('is_base64 is true, but body_base64 is missing')
    const alias = values.get(table, 'isBase64Encoded')
    const isAlias = !isAbsent(alias) && alias.type === LUA_TBOOLEAN && alias.value === true
    return isAlias && !isAbsent(body) ? fromBase64('body', body) : null
  }

  /** @param {string} name @param {any} value @returns {Uint8Array} */
  const fromBase64 = (name, value) => {
    if (value.type === LUA_TLNGSTR) {
      const text = hashOf(value.value)
      const padding = BASE64.exec(text)?.[1]
      // Padding may be left out, but not be wrong.
      const isWhole = padding === '' ? text.length % 4 !== 1 : text.length % 4 === 0
      if (padding !== undefined && isWhole) return Buffer.from(text, 'base64')
    }
    throw new ContractError(`${name} must be base64 text, got ${show(value)}`)
  }

  /** @param {number} status @param {{ text: string, typed: boolean }} head @param {string} type @param {string | Uint8Array} body */
  const typed = (status, head, type, body) => {
    const headers = head.typed ? head.text : `${head.text}${head.text === '' ? '' : ','}"content-type":"${type}"`
    return { head: `{"status":${status},"headers":{${headers}}}`, body }
  }

  return toReply
}
