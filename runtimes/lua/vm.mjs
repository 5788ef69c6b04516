/**
 * Fengari with its strings repaired and its allocations watched. The thread has its own copy of every module and its
 * own globals, so what is changed here is changed for one function only. Owner: page runtime/lua-runtime.
 *
 * Repairs, each with a test: table keys and comparisons of strings with control characters (the shipped hash drops
 * leading zeros, so that "\t\18" and "\145\2" are one key and "\n" sorts after "A"), quadratic or per-byte
 * conversions between Lua bytes and JavaScript text, and the instruction hook of coroutines.
 */

import { isUtf8 } from 'node:buffer'
import { createRequire } from 'node:module'
import { HOOK_INSTRUCTIONS, LimitError } from './guard.mjs'
import { LuaTable } from './table.mjs'
import { Bytes, toBytes, toLatin1, toText } from './text.mjs'

/** Slots of one Lua stack: bounds what a single instruction can make (vararg lists, unpack). */
const MAX_STACK_SLOTS = 200_000
/** Longest file name kept in error messages. */
const MAX_SOURCE_NAME = 512
/** Bytes from which a body travels as a transferred buffer instead of text. */
const LONG_BODY = 16 * 1024
/** Stack slots that reporting an error takes. */
const ERROR_SLOTS = 4
/**
 * A JavaScript error as the Lua error it stands for.
 * @param {unknown} error
 * @returns {string}
 */
function describeNativeError(error) {
  if (error instanceof LimitError) return error.message
  if (error instanceof RangeError) {
    return /call stack/.test(error.message) ? 'stack overflow' : `not enough memory: ${error.message}`
  }
  return `internal error: ${error instanceof Error ? error.message : String(error)}`
}

/**
 * Loads fengari. Once per thread.
 * @param {import('./guard.mjs').Guard} guard
 * @returns {any} fengari's modules
 */
export function loadVm(guard) {
  process.env.FENGARICONF = JSON.stringify({ LUAI_MAXSTACK: MAX_STACK_SLOTS, LUA_IDSIZE: MAX_SOURCE_NAME })
  // Not called `require`: the type checker would look for types of fengari, which has none.
  const load = createRequire(import.meta.url)
  watchAllocations(guard)
  // The order matters: a module takes what it needs from another when it is loaded.
  repairConversions(load('fengari/src/defs.js'), guard)
  const strings = load('fengari/src/lstring.js')
  strings.luaS_hash = toLatin1
  strings.luaS_hashlongstr = (/** @type {any} */ string) => {
    if (string.hash === null) string.hash = toLatin1(string.realstring)
    return string.hash
  }
  const api = load('fengari/src/lapi.js')
  const tables = load('fengari/src/ltable.js')
  Object.setPrototypeOf(LuaTable.prototype, tables.Table.prototype)
  tables.luaH_new = (/** @type {any} */ L) => new LuaTable(L)
  repairHooks(api)
  watchItems(api, tables, load('fengari/src/ldo.js'), guard)
  const handleNativeError = (/** @type {any} */ L) => {
    api.lua_pushstring(L, toBytes(describeNativeError(api.lua_touserdata(L, 1))))
    return 1
  }
  const { lua_pushcclosure: pushClosure } = api
  api.lua_pushcfunction = (/** @type {any} */ L, /** @type {any} */ fn) => {
    // An error inside an instruction leaves no room above its frame, which is about to be dropped anyway.
    if (fn === handleNativeError) L.ci.top = Math.max(L.ci.top, L.top + ERROR_SLOTS)
    pushClosure(L, fn, 0)
  }
  const { lua, lauxlib, lualib } = load('fengari')
  const newState = lauxlib.luaL_newstate
  return {
    lua,
    lauxlib,
    lualib,
    longBody: LONG_BODY,
    hookInstructions: HOOK_INSTRUCTIONS,
    newState: () => {
      const L = newState()
      lua.lua_atnativeerror(L, handleNativeError)
      return L
    },
    /** A string as text of one character per byte; computed once and kept with the string. */
    hash: strings.luaS_hashlongstr,
    TString: strings.TString,
    TValue: load('fengari/src/lobject.js').TValue,
    types: load('fengari/src/defs.js').constant_types,
    /** @param {any} value - a TValue */
    typeName: value => toText(lua.lua_typename(null, value.ttnov())),
  }
}

/**
 * Lua strings are Uint8Arrays that fengari makes through the global name; node's own code does not use that name.
 * @param {import('./guard.mjs').Guard} guard
 */
function watchAllocations(guard) {
  /** @param {any} first @param {any} offset @param {any} length */
  function WatchedBytes(first, offset, length) {
    if (typeof first !== 'number') return new Bytes(first, offset, length)
    guard.reserve(first)
    return new Bytes(first)
  }
  Object.setPrototypeOf(WatchedBytes, Bytes)
  WatchedBytes.prototype = Bytes.prototype
  globalThis.Uint8Array = /** @type {any} */ (WatchedBytes)
}

/**
 * @param {any} defs
 * @param {import('./guard.mjs').Guard} guard
 */
function repairConversions(defs, guard) {
  /** @type {Map<string, Uint8Array>} */
  const constants = new Map()
  defs.luastring_from = (/** @type {any} */ source) => {
    guard.reserve(source.length)
    return Bytes.prototype.slice.call(source)
  }
  defs.to_luastring = (/** @type {string} */ text, /** @type {boolean | undefined} */ keep) => {
    if (typeof text !== 'string') throw new TypeError('to_luastring expects a javascript string')
    if (!keep) return toBytes(text)
    let bytes = constants.get(text)
    if (bytes === undefined) {
      bytes = toBytes(text)
      constants.set(text, bytes)
    }
    return bytes
  }
  defs.to_jsstring = (
    /** @type {Uint8Array} */ bytes,
    /** @type {number | undefined} */ from,
    /** @type {number | undefined} */ to,
    /** @type {boolean | undefined} */ replace,
  ) => {
    const part = from === undefined && to === undefined ? bytes : bytes.subarray(from, to)
    if (!replace && !isUtf8(part)) throw new RangeError('cannot convert invalid utf8 to javascript string')
    return toText(part)
  }
}

/**
 * An error caught in a coroutine switched its hook off for ever, because a protected call noted that it was off before.
 * @param {any} api
 */
function repairHooks(api) {
  const { lua_pcallk: pcallk } = api
  api.lua_pcallk = (/** @type {any[]} */ ...args) => {
    const [L] = args
    // The flag CIST_OAH is bit 0, the form in which the state keeps it.
    L.ci.callstatus |= L.allowhook
    return pcallk(...args)
  }
}

/**
 * Library functions that make or walk many items without running a Lua instruction.
 * @param {any} api
 * @param {any} table
 * @param {any} calls
 * @param {import('./guard.mjs').Guard} guard
 */
function watchItems(api, table, calls, guard) {
  const { lua_geti: geti, lua_seti: seti } = api
  const { luaH_setint: setint } = table
  const { luaD_growstack: growstack, luaD_checkstack: checkstack } = calls
  api.lua_geti = (/** @type {any} */ L, /** @type {number} */ index, /** @type {number} */ n) => {
    guard.count(1)
    return geti(L, index, n)
  }
  api.lua_seti = (/** @type {any} */ L, /** @type {number} */ index, /** @type {number} */ n) => {
    guard.count(1)
    return seti(L, index, n)
  }
  table.luaH_setint = (/** @type {any} */ t, /** @type {number} */ key, /** @type {any} */ value) => {
    guard.count(1)
    return setint(t, key, value)
  }
  calls.luaD_growstack = (/** @type {any} */ L, /** @type {number} */ n) => {
    guard.count(n)
    return growstack(L, n)
  }
  calls.luaD_checkstack = (/** @type {any} */ L, /** @type {number} */ n) => {
    guard.count(n)
    return checkstack(L, n)
  }
}
