/**
 * The modules `cjson` and `cjson.safe`, as handlers written for lua-cjson expect them. `cjson` raises, `cjson.safe`
 * returns nil and a message. Owner: page runtime/lua-runtime.
 */

import { isUtf8 } from 'node:buffer'
import { JsonError } from './json.mjs'
import { fromLatin1, LuaTable, toBytes, toText } from './vm.mjs'

const MAX_DECODE_DEPTH = 1000

/** Values that stand for something else; lightuserdata, like lua-cjson's own. */
export const MARKS = { nullValue: null, emptyArray: Object.freeze({ name: 'empty_array' }) }

/**
 * @param {any} vm - from `loadVm`
 * @param {any} L
 * @param {import('./guard.mjs').Guard} guard
 * @param {import('./values.mjs').Values} values
 * @param {import('./json.mjs').JsonWriter} writer - shares its options with the answers of the handler
 * @param {{ arrayMeta: LuaTable, emptyArrayMeta: LuaTable }} metas
 * @returns {{ open(L: any): number, openSafe(L: any): number }} openers for `package.preload`
 */
export function createCjson(vm, L, guard, values, writer, metas) {
  const { lua, lauxlib } = vm
  const { LUA_TLIGHTUSERDATA } = vm.types
  const options = { arraysWithMeta: false, maxDepth: MAX_DECODE_DEPTH }
  const ofNull = () => new vm.TValue(LUA_TLIGHTUSERDATA, MARKS.nullValue)

  /** @param {unknown} value @param {number} depth @returns {any} a TValue */
  const toLua = (value, depth) => {
    if (value === null) return ofNull()
    if (typeof value !== 'object') return values.ofJson(value)
    if (depth >= options.maxDepth) throw new JsonError(` is nested deeper than ${options.maxDepth}`)
    const table = new LuaTable(L)
    if (Array.isArray(value)) {
      guard.count(value.length)
      for (let i = 0; i < value.length; i++) values.putItem(table, i + 1, toLua(value[i], depth + 1))
      if (options.arraysWithMeta) table.metatable = metas.arrayMeta
    } else {
      for (const [name, item] of Object.entries(value)) {
        guard.count(1)
        values.put(table, name, toLua(item, depth + 1))
      }
    }
    return values.ofTable(table)
  }

  /** @param {Uint8Array} bytes @returns {any} a TValue */
  const decode = bytes => {
    if (!isUtf8(bytes)) throw new JsonError(' is not valid UTF-8')
    guard.reserve(bytes.length * 2)
    let value
    try {
      value = JSON.parse(toText(bytes))
    } catch (error) {
      throw new JsonError(` is not JSON: ${/** @type {Error} */ (error).message}`)
    }
    return toLua(value, 1)
  }

  /** @param {any} value @returns {any} a TValue */
  const encode = value => {
    const text = writer.write(value)
    return values.ofBytes(typeof text === 'string' ? fromLatin1(text) : text)
  }

  /** @param {any} L @param {any} value */
  const push = (L, value) => {
    L.stack[L.top] = value
    L.top++
    return 1
  }

  /** @param {any} L @param {number} n */
  const argument = (L, n) => {
    lauxlib.luaL_checkany(L, n)
    return L.stack[L.ci.funcOff + n]
  }

  /** @param {(L: any) => any} work @param {string} subject @param {boolean} safe */
  const wrap = (work, subject, safe) => (/** @type {any} */ L) => {
    try {
      return push(L, work(L))
    } catch (error) {
      if (!(error instanceof JsonError)) throw error
      const message = toBytes(subject + error.message)
      if (!safe) return lauxlib.luaL_error(L, toBytes('%s'), message)
      lua.lua_pushnil(L)
      lua.lua_pushstring(L, message)
      return 2
    }
  }

  /** @param {boolean} safe */
  const functions = safe => ({
    decode: wrap(L => decode(lauxlib.luaL_checkstring(L, 1)), 'the text', safe),
    encode: wrap(L => encode(argument(L, 1)), 'the value', safe),
    new: (/** @type {any} */ L) => {
      build(L, safe)
      return 1
    },
    encode_empty_table_as_object: (/** @type {any} */ L) => {
      if (lua.lua_gettop(L) > 0) writer.options.emptyTableAsObject = lua.lua_toboolean(L, 1)
      return push(L, values.ofBoolean(writer.options.emptyTableAsObject))
    },
    decode_array_with_array_mt: (/** @type {any} */ L) => {
      if (lua.lua_gettop(L) > 0) options.arraysWithMeta = lua.lua_toboolean(L, 1)
      return push(L, values.ofBoolean(options.arraysWithMeta))
    },
    encode_max_depth: (/** @type {any} */ L) => {
      if (lua.lua_gettop(L) > 0) writer.options.maxDepth = depthArgument(L)
      return push(L, values.ofNumber(writer.options.maxDepth))
    },
    decode_max_depth: (/** @type {any} */ L) => {
      if (lua.lua_gettop(L) > 0) options.maxDepth = depthArgument(L)
      return push(L, values.ofNumber(options.maxDepth))
    },
  })

  /** @param {any} L */
  const depthArgument = L => {
    const depth = lauxlib.luaL_checkinteger(L, 1)
    lauxlib.luaL_argcheck(
      L,
      depth >= 1 && depth <= MAX_DECODE_DEPTH,
      1,
      toBytes(`depth from 1 to ${MAX_DECODE_DEPTH} expected`),
    )
    return depth
  }

  /** @param {any} L @param {boolean} safe */
  const build = (L, safe) => {
    lauxlib.luaL_newlib(L, functions(safe))
    const { value: table } = L.stack[L.top - 1]
    values.put(table, 'null', ofNull())
    values.put(table, 'empty_array', new vm.TValue(LUA_TLIGHTUSERDATA, MARKS.emptyArray))
    values.put(table, 'array_mt', values.ofTable(metas.arrayMeta))
    values.put(table, 'empty_array_mt', values.ofTable(metas.emptyArrayMeta))
    values.put(table, '_NAME', values.ofText('cjson'))
    values.put(table, '_VERSION', values.ofText('fngw'))
  }

  return {
    open: L => {
      build(L, false)
      return 1
    },
    openSafe: L => {
      build(L, true)
      return 1
    },
  }
}
