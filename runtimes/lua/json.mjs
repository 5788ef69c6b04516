/**
 * Lua values as JSON text. The text is built with one character per byte, the form in which Lua strings, table keys and
 * messages between threads already are. Owner: §2.6.
 */

import { isUtf8 } from 'node:buffer'
import { bytesOf } from './stack.mjs'
import { nextOf } from './table.mjs'
import { fromLatin1 } from './text.mjs'

const MAX_DEPTH = 128
/** Characters of text gathered before they become bytes: the engine keeps joined texts as a tree of their pieces, which takes more memory. */
const CHUNK = 64 * 1024
/** A list with holes is written with nulls when it is short or at least half full, else as an object. */
const SPARSE_SHORT = 10
const SPARSE_RATIO = 2
/** Items between two looks at the memory. */
const WATCH_ITEMS = 64

const NEEDS_ESCAPE = /["\\\u0000-\u001f]/
const NOT_ASCII = /[\u0080-\u00ff]/

/** A value that JSON cannot hold. The message goes on from the value's name: `.items[2] is a function, ...`. */
export class JsonError extends Error {}

/** Tables and values that cjson gives a meaning of their own. @typedef {object} Marks
 * @property {unknown} nullValue
 * @property {unknown} emptyArray
 * @property {unknown} arrayMeta
 * @property {unknown} emptyArrayMeta
 */

export class JsonWriter {
  /** What handlers set through `cjson`. */
  options = { emptyTableAsObject: true, maxDepth: MAX_DEPTH }
  #vm
  #types
  #hashOf
  #guard
  #marks
  #text = ''
  /** @type {Uint8Array[]} */
  #chunks = []
  #size = 0
  #depth = 0
  /** Tables around the value that is written. @type {any[]} */
  #tables = []
  /** Keys on the way to it. @type {any[]} */
  #keys = []

  /**
   * @param {any} vm - from `loadVm`
   * @param {import('./guard.mjs').Guard} guard
   * @param {Marks} marks
   */
  constructor(vm, guard, marks) {
    this.#vm = vm
    this.#types = vm.types
    this.#hashOf = vm.hash
    this.#guard = guard
    this.#marks = marks
  }

  /**
   * @param {any} value - a TValue
   * @returns {string | Uint8Array} the text, one character per byte, or its bytes when it is long
   * @throws {JsonError}
   */
  write(value) {
    this.#reset()
    try {
      this.#writeValue(value)
      if (this.#chunks.length === 0) return this.#text
      if (this.#text !== '') this.#flush()
      this.#guard.reserve(this.#size)
      return Buffer.concat(this.#chunks, this.#size)
    } finally {
      this.#reset()
    }
  }

  #reset() {
    this.#text = ''
    this.#chunks = []
    this.#size = 0
    this.#depth = 0
    this.#tables.length = 0
  }

  #flush() {
    const text = this.#text
    this.#guard.reserve(text.length)
    this.#size += text.length
    if (this.#size > this.#guard.maxStringBytes) this.#guard.reserve(this.#size)
    this.#chunks.push(fromLatin1(text))
    this.#text = ''
  }

  /** @param {string} problem @param {number} [levels] - of the path that lead to it @returns {never} */
  #refuse(problem, levels = this.#depth) {
    let path = ''
    for (let i = 0; i < levels; i++) {
      const key = this.#keys[i]
      path += typeof key === 'number' ? `[${key}]` : `.${Buffer.from(key, 'latin1').toString()}`
    }
    throw new JsonError(`${path} ${problem}`)
  }

  /** @param {any} value - a TValue */
  #writeValue(value) {
    const types = this.#types
    switch (value.type) {
      case types.LUA_TLNGSTR:
        this.#writeString(value.value)
        break
      case types.LUA_TNUMINT:
        this.#text += value.value
        break
      case types.LUA_TNUMFLT:
        if (!Number.isFinite(value.value)) this.#refuse(`is ${luaNumberName(value.value)}, which JSON cannot hold`)
        this.#text += Object.is(value.value, -0) ? '0' : value.value
        break
      case types.LUA_TBOOLEAN:
        this.#text += value.value ? 'true' : 'false'
        break
      case types.LUA_TNIL:
        this.#text += 'null'
        break
      case types.LUA_TTABLE:
        this.#writeTable(value.value)
        break
      case types.LUA_TLIGHTUSERDATA:
        this.#writeMark(value.value)
        break
      default:
        this.#refuse(`is a ${this.#vm.typeName(value)}, which JSON cannot hold`)
    }
    if (this.#text.length > CHUNK) this.#flush()
  }

  /** @param {unknown} mark */
  #writeMark(mark) {
    if (mark === this.#marks.nullValue) this.#text += 'null'
    else if (mark === this.#marks.emptyArray) this.#text += '[]'
    else this.#refuse('is a userdata, which JSON cannot hold')
  }

  /** @param {any} string - TString */
  #writeString(string) {
    const bytes = bytesOf(string)
    if (bytes.length > CHUNK) this.#guard.reserve(bytes.length * 2)
    const plain = this.#hashOf(string)
    if (NOT_ASCII.test(plain) && !isUtf8(bytes))
      this.#refuse('is a string that is not valid UTF-8; send binary data with body_base64')
    this.#text += NEEDS_ESCAPE.test(plain) ? JSON.stringify(plain) : `"${plain}"`
  }

  /** @param {import('./table.mjs').LuaTable} table */
  #writeTable(table) {
    if (this.#tables.includes(table)) this.#refuse('is a table that contains itself')
    if (this.#depth >= this.options.maxDepth) this.#refuse(`is nested deeper than ${this.options.maxDepth} tables`)
    this.#tables[this.#depth] = table
    this.#depth++
    const length = this.#listLength(table)
    if (length < 0) this.#writeRecord(table)
    else this.#writeList(table, length)
    this.#depth--
    this.#tables.length = this.#depth
  }

  /** @param {import('./table.mjs').LuaTable} table @param {number} length */
  #writeList(table, length) {
    this.#text += '['
    for (let i = 1; i <= length; i++) {
      if (i > 1) this.#text += ','
      this.#keys[this.#depth - 1] = i
      const entry = table.entry(i)
      if (entry === undefined) this.#text += 'null'
      else this.#writeValue(entry.value)
      if (i % WATCH_ITEMS === 0) this.#guard.count(WATCH_ITEMS)
    }
    this.#text += ']'
  }

  /** @param {import('./table.mjs').LuaTable} table */
  #writeRecord(table) {
    this.#text += '{'
    let count = 0
    for (let entry = table.firstField(); entry !== undefined; entry = nextOf(entry)) {
      if (count > 0) this.#text += ','
      count++
      this.#writeKey(entry.key)
      this.#text += ':'
      this.#writeValue(entry.value)
      if (count % WATCH_ITEMS === 0) this.#guard.count(WATCH_ITEMS)
    }
    this.#text += '}'
  }

  /** @param {any} key - a TValue */
  #writeKey(key) {
    const types = this.#types
    if (key.type === types.LUA_TLNGSTR) {
      this.#keys[this.#depth - 1] = this.#hashOf(key.value)
      this.#writeString(key.value)
    } else if (key.type === types.LUA_TNUMINT || key.type === types.LUA_TNUMFLT) {
      this.#keys[this.#depth - 1] = key.value
      this.#text += `"${key.value}"`
    } else
      this.#refuse(`has a key that is a ${this.#vm.typeName(key)}; keys must be strings or numbers`, this.#depth - 1)
  }

  /**
   * @param {import('./table.mjs').LuaTable} table
   * @returns {number} items of a list, -1 for a record
   */
  #listLength(table) {
    const count = table.size
    if (count === 0) {
      const { metatable } = table
      const { arrayMeta, emptyArrayMeta } = this.#marks
      if (metatable !== null && (metatable === arrayMeta || metatable === emptyArrayMeta)) return 0
      return this.options.emptyTableAsObject ? -1 : 0
    }
    let most = 0
    for (let entry = table.firstField(); entry !== undefined; entry = nextOf(entry)) {
      const { key } = entry
      if (key.type !== this.#types.LUA_TNUMINT || key.value < 1) return -1
      if (key.value > most) most = key.value
    }
    return most === count || most <= SPARSE_SHORT || most <= count * SPARSE_RATIO ? most : -1
  }
}

/** @param {number} number */
export function luaNumberName(number) {
  return Number.isNaN(number) ? 'NaN' : number > 0 ? 'infinity' : '-infinity'
}
