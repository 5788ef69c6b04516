/**
 * The globals a Lua handler finds. Left out: `os.execute`, `os.exit` and what changes files, `io` but for writing to the
 * captured output, bytecode, `debug` but for its traceback, and everything that reaches JavaScript.
 * Owner: page runtime/lua-runtime.
 */

import { createChunks } from './chunks.mjs'
import { createCjson, MARKS } from './cjson.mjs'
import { createJsonWriter } from './json.mjs'
import { createTimeFunctions } from './time.mjs'
import { createValues } from './values.mjs'
import { LuaTable, toBytes, toText } from './vm.mjs'

const LIBRARIES = ['coroutine', 'table', 'string', 'math', 'utf8']
const PATTERN_FUNCTIONS = ['find', 'match', 'gmatch', 'gsub']
/** Steps of a match that take about a millisecond. */
const SLOW_STEPS = 100_000
const QUANTIFIERS = new Set(toBytes('*+-?'))
const EMPTY = toBytes('')
const TAB = toBytes('\t')
const NEW_LINE = toBytes('\n')
const FROZEN_STRINGS = 'the metatable of strings cannot be changed: all strings of all calls share it'

/** @typedef {ReturnType<typeof createState>} State */

/**
 * What a state works with; files and environment are those of the function once there is one.
 * @typedef {object} Host
 * @property {import('./files.mjs').SourceFiles} files
 * @property {Readonly<Record<string, string>>} env - what `os.getenv` gives
 * @property {(stream: 'stdout' | 'stderr', text: Uint8Array) => void} write - takes the output
 */

/**
 * A Lua state for one function.
 * @param {object} options
 * @param {any} options.vm - from `loadVm`
 * @param {import('./guard.mjs').Guard} options.guard
 * @param {Host} options.host
 */
export function createState({ vm, guard, host }) {
  const { lua, lauxlib, lualib } = vm
  const state = vm.newState()
  for (const name of ['_G', ...LIBRARIES]) {
    lauxlib.luaL_requiref(state, toBytes(name), lualib[`luaopen_${name === '_G' ? 'base' : name}`], 1)
    lua.lua_settop(state, 0)
  }
  const values = createValues(vm, state)
  const metas = { arrayMeta: new LuaTable(state), emptyArrayMeta: new LuaTable(state) }
  const writer = createJsonWriter(vm, guard, { ...MARKS, ...metas })
  const chunks = createChunks(vm, state, guard, values, host)

  /** @param {any} L @param {any} value - a TValue */
  const push = (L, value) => {
    L.stack[L.top] = value
    L.top++
    return 1
  }

  /** Values from index `first` on as text. @param {any} L @param {number} first @param {Uint8Array} separator */
  const joinArguments = (L, first, separator) => {
    const count = lua.lua_gettop(L)
    /** @type {Uint8Array[]} */
    const pieces = []
    for (let i = first; i <= count; i++) {
      if (i > first) pieces.push(separator)
      pieces.push(lauxlib.luaL_tolstring(L, i))
      lua.lua_settop(L, count)
    }
    return pieces
  }

  /** @param {any} L */
  const print = L => {
    host.write('stdout', Buffer.concat([...joinArguments(L, 1, TAB), NEW_LINE]))
    return 0
  }

  /** @param {any} L */
  const collectgarbage = L => {
    const option = toText(lauxlib.luaL_optstring(L, 1, toBytes('collect')))
    if (option === 'count') lua.lua_pushnumber(L, guard.usedBytes() / 1024)
    else if (option === 'step' || option === 'isrunning') lua.lua_pushboolean(L, true)
    else lua.lua_pushinteger(L, 0)
    return 1
  }

  /** Refused before it is built when it would not fit. @param {any} L */
  const rep = L => {
    const text = lauxlib.luaL_checkstring(L, 1)
    const times = lauxlib.luaL_checkinteger(L, 2)
    const separator = lauxlib.luaL_optstring(L, 3, EMPTY)
    const unit = text.length + separator.length
    if (times <= 0 || unit === 0) return push(L, values.ofBytes(EMPTY))
    const size = unit * times - separator.length
    if (size > guard.maxStringBytes) return chunks.raise(L, `resulting string of ${size} bytes is too large`)
    const bytes = new Uint8Array(size)
    bytes.set(text)
    if (times > 1) bytes.set(separator, text.length)
    // Doubles what is there.
    for (let done = unit; done < size; done *= 2) bytes.copyWithin(done, 0, Math.min(done, size - done))
    return push(L, values.ofBytes(bytes))
  }

  /**
   * A pattern function of the library, which looks at no clock. A subject and pattern that may take long to match let
   * the answers that wait go first: the gateway then knows which call is the slow one.
   * @param {string} name
   */
  const watchPattern = name => {
    lua.lua_getglobal(state, toBytes('string'))
    lua.lua_getfield(state, -1, toBytes(name))
    const original = lua.lua_tocfunction(state, -1)
    lua.lua_settop(state, -3)
    return (/** @type {any} */ L) => {
      const subject = lua.lua_tostring(L, 1)
      const pattern = lua.lua_tostring(L, 2)
      if (subject !== null && pattern !== null && mayBeSlow(subject.length, pattern)) guard.beforeSlow()
      return original(L)
    }
  }

  /** @param {any} L */
  const getenv = L => {
    const name = toText(lauxlib.luaL_checkstring(L, 1))
    const { env } = host
    if (Object.hasOwn(env, name)) return push(L, values.ofText(String(env[name])))
    lua.lua_pushnil(L)
    return 1
  }

  /** @param {any} L */
  const traceback = L => {
    const message = lua.lua_tostring(L, 1)
    if (message === null && !lua.lua_isnoneornil(L, 1)) lua.lua_pushvalue(L, 1)
    else lauxlib.luaL_traceback(L, L, message, lauxlib.luaL_optinteger(L, 2, 1))
    return 1
  }

  /** @param {Record<string, ((L: any) => number) | null>} functions - into the table on top of the stack; null removes */
  const define = functions => {
    for (const [name, fn] of Object.entries(functions)) {
      if (fn === null) lua.lua_pushnil(state)
      else lua.lua_pushcfunction(state, fn)
      lua.lua_setfield(state, -2, toBytes(name))
    }
  }

  /** Makes the table on top of the stack a global that `require` knows too. @param {string} name */
  const publish = name => {
    const table = state.stack[state.top - 1]
    chunks.provide(name, table)
    lua.lua_setglobal(state, toBytes(name))
  }

  /**
   * `getmetatable`, which shows the metatable of strings but does not hand it out: a call that changed it would change
   * what strings do in every later call.
   */
  const createGetmetatable = () => {
    lua.lua_getglobal(state, toBytes('getmetatable'))
    const original = lua.lua_tocfunction(state, -1)
    lua.lua_pushstring(state, EMPTY)
    lua.lua_getmetatable(state, -1)
    const { value: stringMeta } = state.stack[state.top - 1]
    lua.lua_newtable(state)
    push(state, values.ofTable(values.without(stringMeta, [])))
    lua.lua_setfield(state, -2, toBytes('__index'))
    define({ __newindex: L => chunks.raise(L, FROZEN_STRINGS) })
    lua.lua_pushboolean(state, false)
    lua.lua_setfield(state, -2, toBytes('__metatable'))
    const { value: viewMeta } = state.stack[state.top - 1]
    lua.lua_settop(state, -5)
    return (/** @type {any} */ L) => {
      if (lua.lua_type(L, 1) !== lua.LUA_TSTRING) return original(L)
      // Each time another one: `rawset` changes no more than what its caller holds.
      const view = new LuaTable(L)
      view.metatable = viewMeta
      return push(L, values.ofTable(view))
    }
  }

  const defineOutput = () => {
    const io = new LuaTable(state)
    for (const stream of /** @type {const} */ (['stdout', 'stderr'])) {
      const file = new LuaTable(state)
      values.put(file, 'write', values.ofFunction(writeTo(stream, file, 2)))
      for (const name of ['flush', 'setvbuf', 'close']) values.put(file, name, values.ofFunction(doNothing))
      values.put(io, stream, values.ofTable(file))
      if (stream === 'stdout') values.put(io, 'write', values.ofFunction(writeTo(stream, file, 1)))
    }
    push(state, values.ofTable(io))
    publish('io')
  }

  /** @param {'stdout' | 'stderr'} stream @param {LuaTable} file - returned, so that calls can be chained @param {number} first */
  const writeTo = (stream, file, first) => (/** @type {any} */ L) => {
    for (let i = first; i <= lua.lua_gettop(L); i++) lauxlib.luaL_checkstring(L, i)
    host.write(stream, Buffer.concat(joinArguments(L, first, EMPTY)))
    return push(L, values.ofTable(file))
  }

  /** @param {any} L */
  const doNothing = L => {
    lua.lua_pushboolean(L, true)
    return 1
  }

  lua.lua_pushglobaltable(state)
  define({ ...chunks.globals, print, collectgarbage, getmetatable: createGetmetatable() })
  lua.lua_getglobal(state, toBytes('string'))
  const patterns = Object.fromEntries(PATTERN_FUNCTIONS.map(name => [name, watchPattern(name)]))
  define({ ...patterns, rep, dump: null })
  lua.lua_settop(state, 0)
  lua.lua_getglobal(state, toBytes('table'))
  lua.lua_getfield(state, -1, toBytes('unpack'))
  lua.lua_setglobal(state, toBytes('unpack'))
  lua.lua_settop(state, 0)
  lua.lua_newtable(state)
  define({ ...createTimeFunctions(vm, values), getenv })
  publish('os')
  lua.lua_newtable(state)
  define({ traceback })
  publish('debug')
  chunks.pushPackage()
  publish('package')
  defineOutput()
  const cjson = createCjson(vm, state, guard, values, writer, metas)
  chunks.preload('cjson', cjson.open)
  chunks.preload('cjson.safe', cjson.openSafe)
  lua.lua_settop(state, 0)
  lua.lua_sethook(state, createHook(vm, guard), lua.LUA_MASKCOUNT, vm.hookInstructions)

  return { vm, L: state, values, writer, compileFile: chunks.compileFile }
}

/** A match backtracks through every way its quantifiers can share the subject. @param {number} length @param {Uint8Array} pattern */
function mayBeSlow(length, pattern) {
  let steps = length
  for (let i = 0; i < pattern.length && steps <= SLOW_STEPS; i++) {
    if (QUANTIFIERS.has(/** @type {number} */ (pattern[i]))) steps *= length
  }
  return steps > SLOW_STEPS
}

/**
 * The count hook of every coroutine of a state. Once the time or memory is used up it raises at every instruction, so
 * that a `pcall` around the work fails with its caller.
 * @param {any} vm
 * @param {import('./guard.mjs').Guard} guard
 */
function createHook(vm, guard) {
  const { lua } = vm
  /** @param {any} L */
  const hook = L => {
    try {
      guard.poll()
    } catch (error) {
      lua.lua_sethook(L, hook, lua.LUA_MASKCOUNT, 1)
      throw error
    }
    if (L.basehookcount === 1) lua.lua_sethook(L, hook, lua.LUA_MASKCOUNT, vm.hookInstructions)
  }
  return hook
}
