/** JSON values of the gateway as Lua values: null is absent, arrays count from 1, text is its UTF-8 bytes. Owner: §2.5. */

import { LuaTable, toBytes } from './vm.mjs'

/** Names kept as ready keys; the ones after that are made anew each time. */
const MAX_KNOWN_NAMES = 512

/** @typedef {ReturnType<typeof createValues>} Values */

/**
 * @param {any} vm - from `loadVm`
 * @param {any} L
 */
export function createValues(vm, L) {
  const { TValue, TString } = vm
  const { LUA_TNIL, LUA_TBOOLEAN, LUA_TNUMINT, LUA_TNUMFLT, LUA_TLNGSTR, LUA_TTABLE, LUA_TLCF } = vm.types
  const luaStringHash = vm.hash
  /** @type {Map<string, any>} */
  const known = new Map()

  /** @param {string} name @returns {any} a TString whose hash is ready */
  const nameOf = name => {
    let string = known.get(name)
    if (string === undefined) {
      string = new TString(L, toBytes(name))
      luaStringHash(string)
      if (known.size < MAX_KNOWN_NAMES) known.set(name, string)
    }
    return string
  }

  /** @param {Uint8Array} bytes - owned by the value from now on */
  const ofBytes = bytes => new TValue(LUA_TLNGSTR, new TString(L, bytes))

  /** @param {string} text */
  const ofText = text => ofBytes(toBytes(text))

  /** @param {LuaTable} table */
  const ofTable = table => new TValue(LUA_TTABLE, table)

  /** @param {number} number */
  const ofNumber = number =>
    (number | 0) === number && !Object.is(number, -0)
      ? new TValue(LUA_TNUMINT, number)
      : new TValue(LUA_TNUMFLT, number)

  /** @param {boolean} flag */
  const ofBoolean = flag => new TValue(LUA_TBOOLEAN, flag)

  /** @param {(L: any) => number} fn */
  const ofFunction = fn => new TValue(LUA_TLCF, fn)

  /**
   * Adds a field to a table that does not have it.
   * @param {LuaTable} table
   * @param {string} name
   * @param {any} value - a TValue
   */
  const put = (table, name, value) => {
    const string = nameOf(name)
    table.add(string.hash, new TValue(LUA_TLNGSTR, string), value)
  }

  /**
   * @param {LuaTable} table
   * @param {number} index
   * @param {any} value - a TValue
   */
  const putItem = (table, index, value) => {
    table.add(index, new TValue(LUA_TNUMINT, index), value)
  }

  /**
   * @param {unknown} value - as JSON.parse gives it
   * @returns {any} a TValue, null for what Lua leaves out
   */
  const ofJson = value => {
    switch (typeof value) {
      case 'string':
        return ofText(value)
      case 'number':
        return ofNumber(value)
      case 'boolean':
        return ofBoolean(value)
      case 'object':
        if (value === null) return null
        return ofTable(Array.isArray(value) ? tableOfArray(value) : tableOfRecord(/** @type {any} */ (value)))
      default:
        return null
    }
  }

  /** @param {unknown[]} items */
  const tableOfArray = items => {
    const table = new LuaTable(L)
    for (let i = 0; i < items.length; i++) {
      const value = ofJson(items[i])
      if (value !== null) putItem(table, i + 1, value)
    }
    return table
  }

  /** @param {Record<string, unknown>} record */
  const tableOfRecord = record => {
    const table = new LuaTable(L)
    fillRecord(table, record)
    return table
  }

  /** @param {LuaTable} table @param {Record<string, unknown>} record */
  const fillRecord = (table, record) => {
    for (const name in record) {
      const value = ofJson(record[name])
      if (value !== null) put(table, name, value)
    }
  }

  /**
   * A table that is filled when it is first looked into.
   * @param {Record<string, unknown>} record
   */
  const lazyRecord = record => new LuaTable(L, table => fillRecord(table, record))

  /** @param {any} value */
  const isNil = value => value === undefined || value.type === LUA_TNIL

  /**
   * @param {LuaTable} table
   * @param {string} name
   * @returns {any} a TValue, undefined when the field is absent
   */
  const get = (table, name) => table.strong.get(nameOf(name).hash)?.value

  /**
   * @param {LuaTable} table
   * @param {string} name
   * @param {any} value - a TValue; copied
   */
  const set = (table, name, value) => {
    const field = get(table, name)
    if (field === undefined) put(table, name, new TValue(value.type, value.value))
    else field.setfrom(value)
  }

  /**
   * A copy that lacks some fields.
   * @param {LuaTable} table
   * @param {readonly string[]} names
   */
  const without = (table, names) => {
    const copy = new LuaTable(L)
    for (let entry = table.f; entry !== undefined; entry = entry.n) {
      const { key, value } = entry
      const hash = key.type === LUA_TLNGSTR ? luaStringHash(key.value) : key.value
      if (!names.includes(hash)) copy.add(hash, new TValue(key.type, key.value), value)
    }
    return copy
  }

  return {
    ofBytes,
    ofText,
    ofTable,
    ofNumber,
    ofBoolean,
    ofFunction,
    ofJson,
    put,
    putItem,
    fill: fillRecord,
    lazyRecord,
    without,
    get,
    set,
    isNil,
  }
}
