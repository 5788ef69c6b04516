/**
 * The modules `cjson` and `cjson.safe`, as handlers written for lua-cjson expect them. `cjson` raises, `cjson.safe`
 * returns nil and a message. Owner: page runtime/lua-runtime.
 */

import { isUtf8 } from 'node:buffer'
import { JsonError } from './json.mjs'
import { argumentOf, push, topOf } from './stack.mjs'
import { LuaTable } from './table.mjs'
import { fromLatin1, toBytes, toText } from './text.mjs'

const MAX_DECODE_DEPTH = 1000

/** Values that stand for something else; lightuserdata, like lua-cjson's own. */
export const MARKS = { nullValue: null, emptyArray: Object.freeze({ name: 'empty_array' }) }

/** Makes the modules; their functions share options, which handlers may set, with the answers of the handler. */
export class Cjson {
  #lua
  #lauxlib
  #L
  #guard
  #values
  #writer
  #metas
  #options = { arraysWithMeta: false, maxDepth: MAX_DECODE_DEPTH }

  /**
   * @param {any} vm - from `loadVm`
   * @param {any} L
   * @param {import('./guard.mjs').Guard} guard
   * @param {import('./values.mjs').Values} values
   * @param {import('./json.mjs').JsonWriter} writer
   * @param {{ arrayMeta: LuaTable, emptyArrayMeta: LuaTable }} metas
   */
  constructor(vm, L, guard, values, writer, metas) {
    this.#lua = vm.lua
    this.#lauxlib = vm.lauxlib
    this.#L = L
    this.#guard = guard
    this.#values = values
    this.#writer = writer
    this.#metas = metas
  }

  /** Opener of `cjson` for `package.preload`. @param {any} L */
  open = L => {
    this.#build(L, false)
    return 1
  }

  /** Opener of `cjson.safe`. @param {any} L */
  openSafe = L => {
    this.#build(L, true)
    return 1
  }

  /** @param {any} L @param {boolean} safe */
  #build(L, safe) {
    const values = this.#values
    this.#lauxlib.luaL_newlib(L, this.#functions(safe))
    const { value: table } = topOf(L)
    values.put(table, 'null', values.ofMark(MARKS.nullValue))
    values.put(table, 'empty_array', values.ofMark(MARKS.emptyArray))
    values.put(table, 'array_mt', values.ofTable(this.#metas.arrayMeta))
    values.put(table, 'empty_array_mt', values.ofTable(this.#metas.emptyArrayMeta))
    values.put(table, '_NAME', values.ofText('cjson'))
    values.put(table, '_VERSION', values.ofText('fngw'))
  }

  /** @param {boolean} safe @returns {Record<string, (L: any) => number>} */
  #functions(safe) {
    const { options } = this.#writer
    return {
      decode: this.#guarded(L => this.#decode(this.#lauxlib.luaL_checkstring(L, 1)), 'the text', safe),
      encode: this.#guarded(L => this.#encode(L), 'the value', safe),
      new: L => {
        this.#build(L, safe)
        return 1
      },
      encode_empty_table_as_object: this.#flag(options, 'emptyTableAsObject'),
      decode_array_with_array_mt: this.#flag(this.#options, 'arraysWithMeta'),
      encode_max_depth: this.#depth(options),
      decode_max_depth: this.#depth(this.#options),
    }
  }

  /** A function of the module, whose problems are raised or returned. @param {(L: any) => any} work @param {string} subject @param {boolean} safe */
  #guarded(work, subject, safe) {
    return (/** @type {any} */ L) => {
      try {
        return push(L, work(L))
      } catch (error) {
        if (!(error instanceof JsonError)) throw error
        const message = toBytes(subject + error.message)
        if (!safe) return this.#lauxlib.luaL_error(L, toBytes('%s'), message)
        this.#lua.lua_pushnil(L)
        this.#lua.lua_pushstring(L, message)
        return 2
      }
    }
  }

  /** A function that sets an option when it gets one, and answers what it is. @param {any} options @param {string} name */
  #flag(options, name) {
    return (/** @type {any} */ L) => {
      if (this.#lua.lua_gettop(L) > 0) options[name] = this.#lua.lua_toboolean(L, 1)
      return push(L, this.#values.ofBoolean(options[name]))
    }
  }

  /** @param {{ maxDepth: number }} options */
  #depth(options) {
    return (/** @type {any} */ L) => {
      if (this.#lua.lua_gettop(L) > 0) options.maxDepth = this.#depthArgument(L)
      return push(L, this.#values.ofNumber(options.maxDepth))
    }
  }

  /** @param {any} L */
  #depthArgument(L) {
    const depth = this.#lauxlib.luaL_checkinteger(L, 1)
    const isRight = depth >= 1 && depth <= MAX_DECODE_DEPTH
    this.#lauxlib.luaL_argcheck(L, isRight, 1, toBytes(`depth from 1 to ${MAX_DECODE_DEPTH} expected`))
    return depth
  }

  /** @param {any} L @returns {any} a TValue */
  #encode(L) {
    this.#lauxlib.luaL_checkany(L, 1)
    const text = this.#writer.write(argumentOf(L, 1))
    return this.#values.ofBytes(typeof text === 'string' ? fromLatin1(text) : text)
  }

  /** @param {Uint8Array} bytes @returns {any} a TValue */
  #decode(bytes) {
    if (!isUtf8(bytes)) throw new JsonError(' is not valid UTF-8')
    this.#guard.reserve(bytes.length * 2)
    let value
    try {
      value = JSON.parse(toText(bytes))
    } catch (error) {
      throw new JsonError(` is not JSON: ${/** @type {Error} */ (error).message}`)
    }
    return this.#toLua(value, 1)
  }

  /** @param {unknown} value @param {number} depth @returns {any} a TValue */
  #toLua(value, depth) {
    const values = this.#values
    if (value === null) return values.ofMark(MARKS.nullValue)
    if (typeof value !== 'object') return values.ofJson(value)
    if (depth >= this.#options.maxDepth) throw new JsonError(` is nested deeper than ${this.#options.maxDepth}`)
    const table = new LuaTable(this.#L)
    if (Array.isArray(value)) {
      this.#guard.count(value.length)
      for (let i = 0; i < value.length; i++) values.putItem(table, i + 1, this.#toLua(value[i], depth + 1))
      if (this.#options.arraysWithMeta) table.metatable = this.#metas.arrayMeta
      return values.ofTable(table)
    }
    for (const [name, item] of Object.entries(value)) {
      this.#guard.count(1)
      values.put(table, name, this.#toLua(item, depth + 1))
    }
    return values.ofTable(table)
  }
}
