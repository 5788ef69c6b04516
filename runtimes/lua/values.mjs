/** JSON values of the gateway as Lua values: null is absent, arrays count from 1, text is its UTF-8 bytes. Owner: §2.5. */

import { assign } from './stack.mjs'
import { LuaTable, nextOf } from './table.mjs'
import { toBytes } from './text.mjs'

/** Field names whose Lua strings are kept for the next use; those beyond are made anew each time. */
const MAX_KNOWN_NAMES = 512

/** Makes and reads the values of one Lua state. */
export class Values {
  #L
  #TValue
  #TString
  #types
  #hashOf
  /** @type {Map<string, any>} */
  #known = new Map()

  /**
   * @param {any} vm - from `loadVm`
   * @param {any} L
   */
  constructor(vm, L) {
    this.#L = L
    this.#TValue = vm.TValue
    this.#TString = vm.TString
    this.#types = vm.types
    this.#hashOf = vm.hash
  }

  /** @param {Uint8Array} bytes - owned by the value from now on @returns {any} a TValue */
  ofBytes(bytes) {
    return new this.#TValue(this.#types.LUA_TLNGSTR, new this.#TString(this.#L, bytes))
  }

  /** @param {string} text */
  ofText(text) {
    return this.ofBytes(toBytes(text))
  }

  /** @param {LuaTable} table @returns {any} a TValue */
  ofTable(table) {
    return new this.#TValue(this.#types.LUA_TTABLE, table)
  }

  /** @param {number} number @returns {any} a TValue */
  ofNumber(number) {
    const isInteger = (number | 0) === number && !Object.is(number, -0)
    return new this.#TValue(isInteger ? this.#types.LUA_TNUMINT : this.#types.LUA_TNUMFLT, number)
  }

  /** @param {boolean} flag @returns {any} a TValue */
  ofBoolean(flag) {
    return new this.#TValue(this.#types.LUA_TBOOLEAN, flag)
  }

  /** @param {(L: any) => number} fn @returns {any} a TValue */
  ofFunction(fn) {
    return new this.#TValue(this.#types.LUA_TLCF, fn)
  }

  /** @param {unknown} mark - what Lua code can only compare @returns {any} a TValue */
  ofMark(mark) {
    return new this.#TValue(this.#types.LUA_TLIGHTUSERDATA, mark)
  }

  /** A value in a TValue of its own: others may be written over. @param {any} value */
  copy(value) {
    return new this.#TValue(value.type, value.value)
  }

  /**
   * @param {unknown} value - as JSON.parse gives it
   * @returns {any} a TValue, null for what Lua leaves out
   */
  ofJson(value) {
    switch (typeof value) {
      case 'string':
        return this.ofText(value)
      case 'number':
        return this.ofNumber(value)
      case 'boolean':
        return this.ofBoolean(value)
      case 'object':
        if (value === null) return null
        return this.ofTable(Array.isArray(value) ? this.#ofArray(value) : this.#ofRecord(/** @type {any} */ (value)))
      default:
        return null
    }
  }

  /** @param {unknown[]} items */
  #ofArray(items) {
    const table = new LuaTable(this.#L)
    for (let i = 0; i < items.length; i++) {
      const value = this.ofJson(items[i])
      if (value !== null) this.putItem(table, i + 1, value)
    }
    return table
  }

  /** @param {Record<string, unknown>} record */
  #ofRecord(record) {
    const table = new LuaTable(this.#L)
    this.fill(table, record)
    return table
  }

  /** @param {LuaTable} table @param {Record<string, unknown>} record */
  fill(table, record) {
    for (const name in record) {
      const value = this.ofJson(record[name])
      if (value !== null) this.put(table, name, value)
    }
  }

  /**
   * A table that is filled when it is first looked into.
   * @param {Record<string, unknown>} record
   */
  lazyRecord(record) {
    return new LuaTable(this.#L, table => this.fill(table, record))
  }

  /** @param {string} name @returns {any} a TString whose hash is ready */
  #nameOf(name) {
    let string = this.#known.get(name)
    if (string === undefined) {
      string = new this.#TString(this.#L, toBytes(name))
      this.#hashOf(string)
      if (this.#known.size < MAX_KNOWN_NAMES) this.#known.set(name, string)
    }
    return string
  }

  /**
   * Adds a field to a table that does not have it.
   * @param {LuaTable} table
   * @param {string} name
   * @param {any} value - a TValue
   */
  put(table, name, value) {
    const string = this.#nameOf(name)
    table.add(string.hash, new this.#TValue(this.#types.LUA_TLNGSTR, string), value)
  }

  /**
   * @param {LuaTable} table
   * @param {number} index
   * @param {any} value - a TValue
   */
  putItem(table, index, value) {
    table.add(index, new this.#TValue(this.#types.LUA_TNUMINT, index), value)
  }

  /**
   * @param {LuaTable} table
   * @param {string} name
   * @returns {any} a TValue, undefined when the field is absent
   */
  get(table, name) {
    return table.entry(this.#nameOf(name).hash)?.value
  }

  /**
   * @param {LuaTable} table
   * @param {string} name
   * @param {any} value - a TValue; copied
   */
  set(table, name, value) {
    const field = this.get(table, name)
    if (field === undefined) this.put(table, name, this.copy(value))
    else assign(field, value)
  }

  /**
   * A copy that lacks some fields. A field is written in place, so each has a value of its own: neither table changes with the other.
   * @param {LuaTable} table
   * @param {readonly string[]} names
   */
  without(table, names) {
    const copy = new LuaTable(this.#L)
    for (let entry = table.firstField(); entry !== undefined; entry = nextOf(entry)) {
      const { key, value } = entry
      const hash = key.type === this.#types.LUA_TLNGSTR ? this.#hashOf(key.value) : key.value
      if (!names.includes(hash)) copy.add(hash, this.copy(key), this.copy(value))
    }
    return copy
  }

  /** @param {any} value */
  isNil(value) {
    return value === undefined || value.type === this.#types.LUA_TNIL
  }
}
