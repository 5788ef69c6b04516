/**
 * Lua values as JSON text. The text is built with one character per byte, the form in which Lua strings, table keys and
 * messages between threads already are. Owner: §2.6.
 */

import { isUtf8 } from 'node:buffer'
import { fromLatin1 } from './vm.mjs'

const MAX_DEPTH = 128
/** Characters of text gathered before they become bytes: a long rope of pieces costs more than its text. */
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

/** @typedef {ReturnType<typeof createJsonWriter>} JsonWriter */

/**
 * @param {any} vm - from `loadVm`
 * @param {import('./guard.mjs').Guard} guard
 * @param {{ nullValue: unknown, emptyArray: unknown, arrayMeta: unknown, emptyArrayMeta: unknown }} marks - of cjson
 */
export function createJsonWriter(vm, guard, marks) {
  const { LUA_TNIL, LUA_TBOOLEAN, LUA_TNUMINT, LUA_TNUMFLT, LUA_TLNGSTR, LUA_TTABLE, LUA_TLIGHTUSERDATA } = vm.types
  const hashOf = vm.hash
  const options = { emptyTableAsObject: true, maxDepth: MAX_DEPTH }

  let text = ''
  /** @type {Uint8Array[]} */
  let chunks = []
  let size = 0
  let depth = 0
  /** @type {any[]} */
  const tables = []
  /** @type {any[]} keys on the way to the value being written */
  const keys = []

  const reset = () => {
    text = ''
    chunks = []
    size = 0
    depth = 0
    tables.length = 0
  }

  const flush = () => {
    guard.reserve(text.length)
    size += text.length
    if (size > guard.maxStringBytes) guard.reserve(size)
    chunks.push(fromLatin1(text))
    text = ''
  }

  /** @param {string} problem @param {number} [levels] - of the path that lead to it */
  const refuse = (problem, levels = depth) => {
    let path = ''
    for (let i = 0; i < levels; i++) {
      const key = keys[i]
      path += typeof key === 'number' ? `[${key}]` : `.${Buffer.from(key, 'latin1').toString()}`
    }
    throw new JsonError(`${path} ${problem}`)
  }

  /** @param {any} string - TString */
  const writeString = string => {
    const bytes = string.realstring
    if (bytes.length > CHUNK) {
      guard.reserve(bytes.length * 2)
    }
    const plain = hashOf(string)
    if (NOT_ASCII.test(plain) && !isUtf8(bytes))
      refuse('is a string that is not valid UTF-8; send binary data with body_base64')
    text += NEEDS_ESCAPE.test(plain) ? JSON.stringify(plain) : `"${plain}"`
  }

  /** @param {any} value - a TValue */
  const writeValue = value => {
    switch (value.type) {
      case LUA_TLNGSTR:
        writeString(value.value)
        break
      case LUA_TNUMINT:
        text += value.value
        break
      case LUA_TNUMFLT:
        if (!Number.isFinite(value.value)) refuse(`is ${luaNumberName(value.value)}, which JSON cannot hold`)
        text += Object.is(value.value, -0) ? '0' : value.value
        break
      case LUA_TBOOLEAN:
        text += value.value ? 'true' : 'false'
        break
      case LUA_TNIL:
        text += 'null'
        break
      case LUA_TTABLE:
        writeTable(value.value)
        break
      case LUA_TLIGHTUSERDATA:
        if (value.value === marks.nullValue) text += 'null'
        else if (value.value === marks.emptyArray) text += '[]'
        else refuse('is a userdata, which JSON cannot hold')
        break
      default:
        refuse(`is a ${vm.typeName(value)}, which JSON cannot hold`)
    }
    if (text.length > CHUNK) flush()
  }

  /** @param {import('./vm.mjs').LuaTable} table */
  const writeTable = table => {
    if (tables.includes(table)) refuse('is a table that contains itself')
    if (depth >= options.maxDepth) refuse(`is nested deeper than ${options.maxDepth} tables`)
    tables[depth] = table
    depth++
    const length = listLength(table)
    if (length < 0) writeRecord(table)
    else writeList(table, length)
    depth--
    tables.length = depth
  }

  /** @param {import('./vm.mjs').LuaTable} table @param {number} length */
  const writeList = (table, length) => {
    text += '['
    for (let i = 1; i <= length; i++) {
      if (i > 1) text += ','
      keys[depth - 1] = i
      const entry = table.strong.get(i)
      if (entry === undefined) text += 'null'
      else writeValue(entry.value)
      if (i % WATCH_ITEMS === 0) guard.count(WATCH_ITEMS)
    }
    text += ']'
  }

  /** @param {import('./vm.mjs').LuaTable} table */
  const writeRecord = table => {
    text += '{'
    let count = 0
    for (let entry = table.f; entry !== undefined; entry = entry.n) {
      const { key } = entry
      if (count > 0) text += ','
      count++
      if (key.type === LUA_TLNGSTR) {
        keys[depth - 1] = hashOf(key.value)
        writeString(key.value)
      } else if (key.type === LUA_TNUMINT || key.type === LUA_TNUMFLT) {
        keys[depth - 1] = key.value
        text += `"${key.value}"`
      } else refuse(`has a key that is a ${vm.typeName(key)}; keys must be strings or numbers`, depth - 1)
      text += ':'
      writeValue(entry.value)
      if (count % WATCH_ITEMS === 0) guard.count(WATCH_ITEMS)
    }
    text += '}'
  }

  /**
   * @param {import('./vm.mjs').LuaTable} table
   * @returns {number} items of a list, -1 for a record
   */
  const listLength = table => {
    const { metatable } = table
    const { size: count } = table.strong
    if (count === 0) {
      return metatable !== null && (metatable === marks.arrayMeta || metatable === marks.emptyArrayMeta)
        ? 0
        : options.emptyTableAsObject
          ? -1
          : 0
    }
    let most = 0
    for (let entry = table.f; entry !== undefined; entry = entry.n) {
      const { key } = entry
      if (key.type !== LUA_TNUMINT || key.value < 1) return -1
      if (key.value > most) most = key.value
    }
    if (most === count || most <= SPARSE_SHORT || most <= count * SPARSE_RATIO) return most
    return -1
  }

  return {
    options,
    /**
     * @param {any} value - a TValue
     * @returns {string | Uint8Array} the text, one character per byte, or its bytes when it is long
     * @throws {JsonError}
     */
    write: value => {
      reset()
      try {
        writeValue(value)
        if (chunks.length === 0) return text
        if (text !== '') flush()
        guard.reserve(size)
        return Buffer.concat(chunks, size)
      } finally {
        reset()
      }
    },
  }
}

/** @param {number} number */
export function luaNumberName(number) {
  return Number.isNaN(number) ? 'NaN' : number > 0 ? 'infinity' : '-infinity'
}
