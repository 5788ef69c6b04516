/**
 * The globals a Lua handler finds. Left out: `os.execute`, `os.exit` and what changes files, `io` but for writing to the
 * captured output, bytecode, `debug` but for its traceback, and everything that reaches JavaScript.
 * Owner: page runtime/lua-runtime.
 */

import { Chunks } from './chunks.mjs'
import { Cjson, MARKS } from './cjson.mjs'
import { JsonWriter } from './json.mjs'
import { createIo, createPrint } from './output.mjs'
import { hookCount, push, topOf } from './stack.mjs'
import { createGetmetatable, createStringFunctions, separateMethods } from './strings.mjs'
import { LuaTable } from './table.mjs'
import { toBytes, toText } from './text.mjs'
import { createTimeFunctions } from './time.mjs'
import { Values } from './values.mjs'

const LIBRARIES = ['coroutine', 'table', 'string', 'math', 'utf8']

/** @typedef {ReturnType<typeof createState>} State */

/**
 * What a state works with; files and environment are those of the function once there is one.
 * @typedef {object} Host
 * @property {import('./files.mjs').SourceFiles} files
 * @property {Readonly<Record<string, string>>} env - what `os.getenv` gives
 * @property {(stream: 'stdout' | 'stderr', text: Uint8Array) => void} write - takes the output
 */

/**
 * What the functions of a state need.
 * @typedef {object} Parts
 * @property {any} vm - from `loadVm`
 * @property {any} L
 * @property {import('./guard.mjs').Guard} guard
 * @property {Host} host
 * @property {Values} values
 * @property {Chunks} chunks
 */

/**
 * A Lua state for one function.
 * @param {object} options
 * @param {any} options.vm - from `loadVm`
 * @param {import('./guard.mjs').Guard} options.guard
 * @param {Host} options.host
 */
export function createState({ vm, guard, host }) {
  const L = vm.newState()
  openLibraries(vm, L)
  const values = new Values(vm, L)
  const chunks = new Chunks(vm, L, guard, values, host)
  /** @type {Parts} */
  const parts = { vm, L, guard, host, values, chunks }
  defineGlobals(parts)
  const writer = defineCjson(parts)
  vm.lua.lua_settop(L, 0)
  vm.lua.lua_sethook(L, createHook(vm, guard), vm.lua.LUA_MASKCOUNT, vm.hookInstructions)
  return {
    vm,
    L,
    values,
    writer,
    /** @param {any} L @param {import('./files.mjs').Source} source */
    compileFile: (L, source) => chunks.compileFile(L, source),
    /** @param {string} name @param {(L: any) => number} opener */
    preload: (name, opener) => chunks.preload(name, opener),
  }
}

/** @param {any} vm @param {any} L */
function openLibraries({ lua, lauxlib, lualib }, L) {
  for (const name of ['_G', ...LIBRARIES]) {
    lauxlib.luaL_requiref(L, toBytes(name), lualib[`luaopen_${name === '_G' ? 'base' : name}`], 1)
    lua.lua_settop(L, 0)
  }
}

/** @param {Parts} parts */
function defineGlobals(parts) {
  const { vm, L, values, chunks } = parts
  const { lua } = vm
  const getmetatable = createGetmetatable(parts)
  const print = createPrint(parts)
  lua.lua_pushglobaltable(L)
  define(parts, { ...chunks.globals, print, getmetatable, collectgarbage: createCollectgarbage(parts) })
  lua.lua_getglobal(L, toBytes('string'))
  define(parts, createStringFunctions(parts))
  lua.lua_settop(L, 0)
  separateMethods(parts)
  lua.lua_getglobal(L, toBytes('table'))
  lua.lua_getfield(L, -1, toBytes('unpack'))
  lua.lua_setglobal(L, toBytes('unpack'))
  lua.lua_settop(L, 0)
  lua.lua_newtable(L)
  define(parts, { ...createTimeFunctions(vm, values), getenv: createGetenv(parts) })
  publish(parts, 'os')
  lua.lua_newtable(L)
  define(parts, { traceback: createTraceback(parts) })
  publish(parts, 'debug')
  chunks.pushPackage()
  publish(parts, 'package')
  push(L, values.ofTable(createIo(parts)))
  publish(parts, 'io')
}

/** Adds functions to the table on top of the stack. @param {Parts} parts @param {Record<string, ((L: any) => number) | null>} functions - null removes */
function define({ vm: { lua }, L }, functions) {
  for (const [name, fn] of Object.entries(functions)) {
    if (fn === null) lua.lua_pushnil(L)
    else lua.lua_pushcfunction(L, fn)
    lua.lua_setfield(L, -2, toBytes(name))
  }
}

/** Makes the table on top of the stack a global that `require` knows too. @param {Parts} parts @param {string} name */
function publish({ vm, L, chunks }, name) {
  chunks.provide(name, topOf(L))
  vm.lua.lua_setglobal(L, toBytes(name))
}

/** @param {Parts} parts @returns {JsonWriter} which writes the answers too */
function defineCjson({ vm, L, guard, values, chunks }) {
  const metas = { arrayMeta: new LuaTable(L), emptyArrayMeta: new LuaTable(L) }
  const writer = new JsonWriter(vm, guard, { ...MARKS, ...metas })
  const cjson = new Cjson(vm, L, guard, values, writer, metas)
  chunks.preload('cjson', cjson.open)
  chunks.preload('cjson.safe', cjson.openSafe)
  return writer
}

/** @param {Parts} parts @returns {(L: any) => number} */
function createCollectgarbage({ vm: { lua, lauxlib }, guard }) {
  return L => {
    const option = toText(lauxlib.luaL_optstring(L, 1, toBytes('collect')))
    if (option === 'count') lua.lua_pushnumber(L, guard.usedBytes() / 1024)
    else if (option === 'step' || option === 'isrunning') lua.lua_pushboolean(L, true)
    else lua.lua_pushinteger(L, 0)
    return 1
  }
}

/** @param {Parts} parts @returns {(L: any) => number} */
function createGetenv({ vm: { lua, lauxlib }, host, values }) {
  return L => {
    const name = toText(lauxlib.luaL_checkstring(L, 1))
    const { env } = host
    if (Object.hasOwn(env, name)) return push(L, values.ofText(String(env[name])))
    lua.lua_pushnil(L)
    return 1
  }
}

/** @param {Parts} parts @returns {(L: any) => number} */
function createTraceback({ vm: { lua, lauxlib } }) {
  return L => {
    const message = lua.lua_tostring(L, 1)
    if (message === null && !lua.lua_isnoneornil(L, 1)) lua.lua_pushvalue(L, 1)
    else lauxlib.luaL_traceback(L, L, message, lauxlib.luaL_optinteger(L, 2, 1))
    return 1
  }
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
    if (hookCount(L) === 1) lua.lua_sethook(L, hook, lua.LUA_MASKCOUNT, vm.hookInstructions)
  }
  return hook
}
